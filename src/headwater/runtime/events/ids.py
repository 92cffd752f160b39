"""Creation of events: their ids, their user and their session. An id follows from its cause and contains its send time.

The id of a follow-up follows from the attempt that posts it, so that a retry of the parent posts new ids. Everything
else made in a handler follows from the id of the event, so that a retry makes the same. An id given by a caller is
hashed with the sender and the full address of the handler: equal ids of the same sender for the same handler are the
same event, and all others are different events. The sender is the user, and the session if the program named one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.data.ids import derive, event_id
from headwater.data.value import Value, freeze
from headwater.errors import AuthoringError
from headwater.runtime.channel.sessions import called
from headwater.runtime.events.event import Event
from headwater.runtime.writing.attempt import RetriedWrite

if TYPE_CHECKING:
    from headwater.pieces.declarations import HandlerMember
    from headwater.pieces.handles import Options
    from headwater.runtime.events.events import Events
    from headwater.runtime.pieces.instance import PieceInstance
    from headwater.runtime.pieces.view import ScopedView


def event(
    events: Events, view: ScopedView, member: HandlerMember, payload: Value, options: Options, due_us: int
) -> Event:
    """An event, with an id of its own or the caller's."""
    pieces, home, current = events.pieces, view.instance, events.current
    stream = home.place(member)
    minted_us = pieces.core.clock.now_us()
    user, session = view.user, view.session
    is_own = pieces.sessions.is_own(home.space.name, user, session)
    is_kept = pieces.channel(home.space.name) is not None
    if options.durable and not is_kept:
        raise AuthoringError(f"options(durable=True) of {member!r}: {home.space.name} is kept nowhere but here")
    if current is not None:
        parent = current[0]
        attempt = parent.attempt
        assert attempt is not None
        # A follow-up is sent for whoever sent the first.
        user, is_own = parent.user, parent.is_own
        session = pieces.sessions.there(parent.instance.space.name, home.space.name, user, parent.session)
        cause = f"{parent.id} {events.origin} {parent.calls}"
        # fault lineage.followups_keep_ids: id = event_id(parent.id, stream, attempt.minted, 0)
        id = event_id(cause, stream, attempt.minted, minted_us)
        attempt.minted += 1
    else:
        id = event_id(events.origin, stream, events.next_stamp(), minted_us)
    given = "" if options.id is None else given_id(user, "" if is_own else called(session), options.id, stream)
    return Event(
        id=given or id,
        row=id if given else "",
        instance=home,
        member=member,
        stream=stream,
        payload=payload,
        user=user,
        session=session,
        is_own=is_own,
        minted_us=minted_us,
        write=RetriedWrite(member.retries if options.retries is None else options.retries),
        due_us=due_us,
        is_known=options.id is not None,
        is_durable=current is None and is_kept and (options.durable or due_us > minted_us),
    )


def given_id(user: str, session: str, said: str, stream: str) -> str:
    """The id of an event to which its sender gave one. It does not depend on when it was sent.

    Nor on which runtime sent it: a session counts if somebody named it, as a program does for the windows that it
    serves, and not if it is the runtime's own, which is another one after a restart.
    """
    # fault events.caller_ids_not_hashed: return event_id(derive("caller", said), "s", 0, 0)
    return event_id(derive("caller", user, session, said), stream, 0, 0)


def stranger_id(principal: str, said: str, stream: str) -> str:
    """The id of an event that somebody stored who may not write where it is handled: it can be nobody else's."""
    return event_id(derive("stranger", principal, said), stream, 0, 0)


def periodic(home: PieceInstance, member: HandlerMember, period: int) -> Event:
    """The event of one period of a handler that is due again and again. Nobody sent it."""
    assert member.every_ms is not None
    stream = home.place(member)
    began_us = period * member.every_ms * 1_000
    return Event(
        id=event_id("period", stream, period, began_us),
        instance=home,
        member=member,
        stream=stream,
        payload=freeze({}),
        user="",
        session="",
        minted_us=home.pieces.core.clock.now_us(),
        write=RetriedWrite(member.retries),
        period=period,
    )
