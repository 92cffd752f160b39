"""`Event`, the data of one request to a handler.

An event is frozen: it stays the same however often it is handled. Its progress is in `delivery.EventDelivery`.

The id of an event follows from its cause and contains its send time. The id of a follow-up follows from the attempt
that posts it, so that a retry of the parent posts new ids. Everything else made in a handler follows from the id of the
event, so that a retry makes the same. An id given by a caller is hashed with the sender and the full address of the
handler: equal ids of the same sender for the same handler are the same event, and all others are different events. The
sender is the user, and the session if the program named one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from headwater.data.ids import derive, event_id
from headwater.data.value import Value
from headwater.errors import AuthoringError
from headwater.pieces.handles import Options
from headwater.runtime.channel.sessions import called
from headwater.runtime.core.limits import RUNTIME_LIMITS
from headwater.runtime.pieces.ports import EventHeader

if TYPE_CHECKING:
    from headwater.pieces.declarations import HandlerMember
    from headwater.protocol.commit import Delivered
    from headwater.protocol.reactions import Hold
    from headwater.runtime.channel.sessions import UserSessions
    from headwater.runtime.pieces.view import ScopedView


class EventSource(Enum):
    """The origin of an event."""

    SENT = "sent"  # it was sent in this process
    DUE = "due"  # it was sent in this process for a later time, which has come
    OUTBOX = "outbox"  # an outbox kept it when an earlier process ended
    STORE = "store"  # it was read from the store of a space, whichever process sent it


class Storage(Enum):
    """Where the stored form of an event is."""

    NOWHERE = "nowhere"
    LEFT = "left"  # a commit that stores it was made: other runtimes may find it
    STORED = "stored"  # a row of a store remembers it until it is handled


class Barred(Enum):
    """The party whose rights an event failed for."""

    NONE = "none"
    RUNTIME = "runtime"  # its last commit was refused for access: another runtime may handle it
    SENDER = "sender"  # the user that stored it may not send it: it leaves no receipt


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Event(EventHeader):
    """One event: id, target, payload, sender and times. It never changes; `EventDelivery` has its state."""

    member: HandlerMember
    stream: str  # the name of its handler in messages and traces
    payload: Value
    retries: int | None = None
    is_own: bool = False  # the session is the sending runtime's own, not one that a program named
    source: EventSource = EventSource.SENT
    due_us: int = 0  # when it is to be handled, if not at once
    period: int | None = None  # the number of the period, for an event of a periodic handler
    delivers: tuple[Hold, Delivered] | None = None  # the record of a reaction that is acknowledged with it
    emitter: str = ""  # of that record, in the form of `Records.emitter`
    principal: str = ""  # of a stored event: the user that stored it; empty: the application itself
    row: str = ""  # the id of its row, if that is not its own: an id that its sender gave may be stored twice
    is_durable: bool = False  # it has to be stored before its handling is committed
    chain: tuple[str, ...] = ()  # the handlers of the last events that led to it
    generation: int = 0  # how many events led to it, each posted by the handler of the one before
    is_taken: bool = field(init=False)  # it was stored before this process handled it
    is_known: bool = field(init=False)  # it may have been handled before: its sender gave it an id, or it was stored

    def __post_init__(self) -> None:
        is_taken = self.source is EventSource.OUTBOX or self.source is EventSource.STORE
        object.__setattr__(self, "is_taken", is_taken)
        object.__setattr__(self, "is_known", is_taken or bool(self.row))

    @property
    def row_id(self) -> str:
        return self.row or self.id

    @property
    def is_late(self) -> bool:
        """True if it waited in a store or for its due time. Such an event does not create a deleted piece again."""
        return self.source in (EventSource.DUE, EventSource.STORE) or (
            self.source is EventSource.OUTBOX and bool(self.due_us)
        )

    @property
    def is_named(self) -> bool:
        """True if its sender may ask for its outcome: by an id of its own, or because another runtime handles it."""
        return bool(self.row) or (self.is_durable and not self.due_us)


def make_event(
    view: ScopedView,
    member: HandlerMember,
    payload: Value,
    options: Options,
    due_us: int,
    *,
    parent: Event | None,
    minted_us: int,
    is_kept: bool,
    sessions: UserSessions,
    new_id: Callable[[str, int], str],
) -> Event:
    """Make an event, with the caller's id or one of its own.

    `parent` is the event whose handler posts it. `is_kept`: the space of the handler has an engine. `new_id` returns an
    id for a handler and a send time.
    """
    instance = view.instance
    stream = instance.place(member)
    user, session = view.user, view.session
    is_own = sessions.is_own(instance.space.name, user, session)
    if options.durable and not is_kept:
        raise AuthoringError(f"options(durable=True) of {member!r}: {instance.space.name} is kept nowhere but here")
    if parent is not None:
        # A follow-up keeps the sender of the event that posted it.
        user, is_own = parent.user, parent.is_own
        session = sessions.there(parent.instance.space.name, instance.space.name, user, parent.session)
    id = new_id(stream, minted_us)
    chain: tuple[str, ...] = ()
    generation = 0
    if parent is not None and not due_us:
        chain, generation = (*parent.chain[1 - RUNTIME_LIMITS.chain_names :], parent.stream), parent.generation + 1
    given = "" if options.id is None else given_id(user, "" if is_own else called(session), options.id, stream)
    return Event(
        id=given or id,
        row=id if given else "",
        instance=instance,
        member=member,
        stream=stream,
        payload=payload,
        user=user,
        session=session,
        is_own=is_own,
        minted_us=minted_us,
        retries=member.retries if options.retries is None else options.retries,
        due_us=due_us,
        chain=chain,
        generation=generation,
        is_durable=parent is None and is_kept and (options.durable or due_us > minted_us),
    )


def given_id(user: str, session: str, said: str, stream: str) -> str:
    """The id of an event to which its sender gave one. It does not depend on when it was sent.

    It depends on a session that the program named, as a server does for the windows that it serves, but not on the
    runtime's own session, which is another one after a restart.
    """
    # fault events.caller_ids_not_hashed: return event_id(derive("caller", said), "s", 0, 0)
    return event_id(derive("caller", user, session, said), stream, 0, 0)


def stranger_id(principal: str, said: str, stream: str) -> str:
    """Return the id of an event whose sender may not write the space of its handler: no other sender can have it."""
    return event_id(derive("stranger", principal, said), stream, 0, 0)
