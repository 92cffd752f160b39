"""Events, and the door through which they are sent to one piece.

An event is the same however often it is handled. `send` waits for its end, and whoever stops waiting does not withdraw
it; `post` answers at once. Handling them is somebody else's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from headwater.data.value import Value
from headwater.errors import AuthoringError, SessionExpiredError
from headwater.pieces.handles import Intent, Options

if TYPE_CHECKING:
    from headwater.pieces.declarations import HandlerMember
    from headwater.replica.layer import Layer
    from headwater.runtime.binding.facet import Facet
    from headwater.runtime.binding.handling import Handling
    from headwater.runtime.binding.home import Home
    from headwater.runtime.core import Core


@dataclass(slots=True, kw_only=True, eq=False)
class Event:
    """One event, however often it is handled."""

    id: str
    home: Home
    member: HandlerMember
    payload: Value
    user: str
    session: str
    minted_us: int
    retries: int | None
    period: int | None = None  # of a handler that is due again and again: which time it is
    has_receipt: bool = False  # its sender gave it an id: a second one like it finds what came of the first
    attempts: int = 0
    posted: list[Event] = field(default_factory=list)  # by the attempt under way, or the last one
    launched: list[tuple[Home, bool]] = field(default_factory=list)  # and whether that waits until it is durable
    is_awaited: bool = False  # somebody will be told how it ended
    is_withdrawn: bool = False
    is_dispatched: bool = False
    is_local: bool = False  # it waits for its turn, or for something to run here
    had_turn: bool = False  # its commit was made, or it has an end
    doubted_us: int = 0  # when it was first refused on something that had no verdict; 0: never
    stood_on: list[Layer] = field(default_factory=list)  # writes without a verdict that its last attempt relied on
    next_turn: asyncio.Future[None] | None = None  # for the one behind it
    task: asyncio.Task[None] | None = None  # which sees it through
    answer: Any = None
    failure: BaseException | None = None

    @property
    def stream(self) -> str:
        return self.home.place(self.member)

    async def turn_over(self) -> None:
        """Wait until it had its turn. One event stands behind it."""
        if not self.had_turn:
            self.next_turn = asyncio.get_running_loop().create_future()
            await self.next_turn

    def begin_attempt(self) -> None:
        """What the last attempt left behind was never there."""
        self.attempts += 1
        self.posted = []
        launched, self.launched = self.launched, []
        for home, _ in launched:
            home.stop()


class Sender:
    """Sends to the handlers of one piece, for one user and session."""

    __slots__ = ("_facet", "_handling")

    def __init__(self, handling: Handling, facet: Facet) -> None:
        self._handling = handling
        self._facet = facet

    def send(self, member: HandlerMember, payload: Value, options: Options) -> Coroutine[Any, Any, Any]:
        core = self._facet.home.pieces.core
        if core.current.run is not None:
            raise AuthoringError(f"send() of {member!r} inside a run, which never awaits: write post()")
        core.check_thread()
        self._handling.check_room(member)
        return self._sent(self._handling.event(self._facet, member, payload, options))

    async def _sent(self, event: Event) -> Any:
        event.is_awaited = True
        self._handling.start(event)
        assert event.task is not None
        try:
            await asyncio.shield(event.task)
        except asyncio.CancelledError:
            event.is_awaited = False  # Nobody waits any more; it goes on,
            if event.task.cancelled():  # unless the runtime was closed before it began.
                raise self._closed(event) from None
            raise
        failure = event.failure
        if isinstance(failure, asyncio.CancelledError):
            raise self._closed(event)
        if failure is not None:
            raise failure
        return event.answer

    @staticmethod
    def _closed(event: Event) -> SessionExpiredError:
        return SessionExpiredError(
            f"the runtime was closed while {event.stream} was handled: open another one, and look"
        )

    def post(self, member: HandlerMember, payload: Value, options: Options) -> Intent:
        handling, core = self._handling, self._facet.home.pieces.core
        core.check_thread()
        if core.current.run is not None and handling.current is None:
            raise AuthoringError(f"post() of {member!r}: this run is repeated. Post it in a handler.")
        if handling.current is not None:
            event = handling.event(self._facet, member, payload, options)
            handling.current[0].posted.append(event)
        else:
            handling.check_room(member)
            event = handling.event(self._facet, member, payload, options)
            handling.start(event)

        def withdraw() -> bool:
            if not event.is_dispatched:
                event.is_withdrawn = True
            return event.is_withdrawn

        return Intent(event.id, withdraw)

    def post_at(self, member: HandlerMember, when: datetime | timedelta, payload: Value, options: Options) -> Intent:
        raise AuthoringError(f"post_at() of {member!r}: events that are due later are not stored yet")

    @property
    def core(self) -> Core:
        return self._facet.home.pieces.core

    def place(self, member: HandlerMember) -> str:
        return self._facet.home.place(member)

    def seen_by(self, facet: Facet) -> Sender:
        """The same piece, for the user and the session of another view."""
        return Sender(self._handling, self._facet.home.facet("session", facet.user, facet.session))

    def same(self, other: object) -> bool:
        """Whether it sends to the same piece for the same user and session."""
        return isinstance(other, Sender) and self._facet is other._facet
