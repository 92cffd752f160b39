"""The value of `self.ctx` in a handler, in the run of a node, and outside any run.

The context of a handler is the same in every retry of its event: the time, new ids and random numbers follow from the
id of the event. A node has no event, so its context refuses to name a sender or to make an id; the error says where to
do so instead.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from headwater.clock import Random, seeded
from headwater.data.address import Link
from headwater.data.ids import minted_id
from headwater.errors import AuthoringError
from headwater.pieces.names import piece_id
from headwater.pieces.piece import Context, Piece
from headwater.runtime.channel.sessions import called
from headwater.runtime.core.time_documents import EPOCH

if TYPE_CHECKING:
    from headwater.runtime.core.core import Core
    from headwater.runtime.pieces.instance import PieceInstance
    from headwater.runtime.pieces.links import Links
    from headwater.runtime.pieces.ports import EventHeader, HandledEvent
    from headwater.runtime.pieces.records import Records
    from headwater.runtime.pieces.registry import PieceRegistry
    from headwater.runtime.pieces.view import ScopedView

PieceT = TypeVar("PieceT", bound=Piece)


def as_datetime(us: int) -> datetime:
    return EPOCH + timedelta(microseconds=us)


class Contexts:
    """Makes the contexts of the pieces of one runtime."""

    __slots__ = ("_core", "_records", "_registry", "links", "make_space")

    def __init__(
        self,
        core: Core,
        registry: PieceRegistry,
        records: Records,
        links: Links,
        make_space: Callable[[str, str, str], object],
    ) -> None:
        self._core = core
        self._registry = registry
        self._records = records
        self.links = links
        self.make_space = make_space  # returns the application's object for a space, a user and a session

    def of_view(self, view: ScopedView, handled: HandledEvent | None) -> Context:
        """Return the value of `ctx` for a view, while the handler of an event is called or not (None)."""
        if handled is None:
            return NodeContext(self, view)
        if handled.event.instance is view.instance:
            return handled.context
        return self.of_event(view, handled.event, handled.launched)

    def of_event(
        self, view: ScopedView, event: EventHeader, launched: list[tuple[PieceInstance, bool]]
    ) -> EventContext:
        """Return the context of one attempt to handle an event. `launched` receives the pieces that it launches."""
        return EventContext(self, view, event, launched)

    def run_began_us(self) -> int:
        """Return the wall clock time at which the open run began: the same value at every call."""
        run = self._core.current.run
        if run is None:
            return self._core.clock.now_us()
        if run.began is None or run.began[0] != run.number:
            run.began = (run.number, self._core.clock.now_us())
        return run.began[1]

    def launch(
        self,
        view: ScopedView,
        event: EventHeader,
        launched: list[tuple[PieceInstance, bool]],
        id: str,
        piece: PieceT,
        after_commit: bool,
    ) -> PieceT:
        """Start an independent piece.

        A piece with this id that already exists here was launched by another handling of the same event. It is returned
        unchanged, whatever the outcome of this attempt.
        """
        registry, space = self._registry, view.instance.space
        known = registry.find(space.name, piece_id(id))
        is_own = known is not None and not known.is_stopped and not known.is_launched and isinstance(piece, known.cls)
        if known is not None and is_own and self._records.exists(known):  # A piece that was only named has no record.
            return known.view("session", event.user, event.session).piece  # type: ignore[return-value]
        instance = registry.launch(space, id, piece)
        launched.append((instance, after_commit))
        return instance.view("session", event.user, event.session).piece  # type: ignore[return-value]


class _Context:
    """The part that the contexts of nodes and of events share."""

    __slots__ = ("_contexts", "_view")

    def __init__(self, contexts: Contexts, view: ScopedView) -> None:
        self._contexts = contexts
        self._view = view

    @property
    def space(self) -> Any:
        """The space of the piece."""
        view = self._view
        return self._contexts.make_space(view.instance.space.name, self.user_or_none, self.session_or_none)

    @property
    def user_or_none(self) -> str:
        return self._view.user

    @property
    def session_or_none(self) -> str:
        return self._view.session

    @property
    def name(self) -> str:
        """The name of the piece in its space."""
        return self._view.instance.name

    def past(self, when: datetime, /) -> bool:
        """Return whether a moment has come. The reader runs again at that moment."""
        return self._view.instance.core.has_passed(when)

    def follow(self, link: Link, /) -> Any:
        """Return the handle or the piece that a link points at."""
        return self._contexts.links.follow(self._view, link)


class NodeContext(_Context):
    """The context in the run of a computed, an effect or a materializer, and outside any run."""

    __slots__ = ()

    @property
    def user(self) -> str:
        """The user that this run is for."""
        if not self._view.user:
            self._refuse("user", "declare @computed(scope='user'), or read it in a handler")
        return self._view.user

    @property
    def session(self) -> str:
        if not self._view.session:
            self._refuse("session", "declare @computed(scope='session'), or read it in a handler")
        return called(self._view.session)

    def now(self, *, every_ms: int | None = None) -> datetime:
        """Return the time, rounded down to the step; the reader runs again at each step.

        Without a step, return the time at which the run began.
        """
        if every_ms is not None:
            return self._view.instance.core.current_time(every_ms)
        return as_datetime(self._contexts.run_began_us())

    def new_id(self) -> str:
        self._refuse("new_id()", "make ids in a handler, where a retry makes the same ones")

    def random(self) -> Random:
        self._refuse("random()", "draw in a handler, where a retry draws the same")

    def launch(self, piece: PieceT, /, *, after_commit: bool = False) -> PieceT:
        self._refuse("launch()", "launch it in a handler: this run is repeated")

    def _refuse(self, what: str, instead: str) -> NoReturn:
        raise AuthoringError(f"ctx.{what} in a run of {self._view.instance!r} that no event began: {instead}")


class EventContext(_Context):
    """The context in one attempt to handle an event."""

    __slots__ = ("_event", "_minted", "_random", "launched")

    def __init__(
        self, contexts: Contexts, view: ScopedView, event: EventHeader, launched: list[tuple[PieceInstance, bool]]
    ) -> None:
        super().__init__(contexts, view)
        self._event = event
        self.launched = launched  # pieces that this attempt launches, and whether each starts after the commit
        self._minted = 0
        self._random: Random | None = None

    @property
    def user(self) -> str:
        """The authenticated sender of the event."""
        return self._event.user

    @property
    def session(self) -> str:
        return called(self._event.session)

    @property
    def user_or_none(self) -> str:
        return self._event.user

    @property
    def session_or_none(self) -> str:
        return self._event.session

    def now(self, *, every_ms: int | None = None) -> datetime:
        """Return the time at which the event was sent: one value for the whole run and for every retry."""
        us = self._event.minted_us
        if every_ms is not None:
            us -= us % (every_ms * 1_000)
        return as_datetime(us)

    def past(self, when: datetime, /) -> bool:
        """Return whether a moment has come by the current clock, so that a delayed handler knows how late it is."""
        return self._view.instance.core.has_passed(when)

    def new_id(self) -> str:
        """Return a new id, the same in every retry of one event."""
        self._minted += 1
        return minted_id(self._event.id, self._minted)

    def random(self) -> Random:
        """Return a random generator with the same sequence in every retry of one event."""
        if self._random is None:
            self._random = seeded(self._event.id)
        return self._random

    def launch(self, piece: PieceT, /, *, after_commit: bool = False) -> PieceT:
        """Start an independent piece, which exists from the commit of this attempt on."""
        return self._contexts.launch(self._view, self._event, self.launched, self.new_id(), piece, after_commit)
