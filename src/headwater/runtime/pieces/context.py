"""What `self.ctx` is: in a handler, in the run of a node, and outside any run.

A handler's context is the same in every retry of its event: the time, ids and chance follow from the event's id. A node
has no event, so that asking it for a sender or an id is refused, with what to do instead.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from headwater.clock import Random, seeded
from headwater.data.address import Link
from headwater.data.ids import minted_id
from headwater.errors import AuthoringError
from headwater.pieces.names import piece_id
from headwater.pieces.piece import Piece
from headwater.runtime.channel.sessions import called

if TYPE_CHECKING:
    from headwater.runtime.events.event import Event
    from headwater.runtime.pieces.view import ScopedView

PieceT = TypeVar("PieceT", bound=Piece)
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def as_datetime(us: int) -> datetime:
    return EPOCH + timedelta(microseconds=us)


class _Context:
    """What all of them have."""

    __slots__ = ("_facet",)

    def __init__(self, facet: ScopedView) -> None:
        self._facet = facet

    @property
    def space(self) -> Any:
        """The space of the piece."""
        facet = self._facet
        return facet.home.pieces.space(facet.home.space.name, self.user_or_none, self.session_or_none)

    @property
    def user_or_none(self) -> str:
        return self._facet.user

    @property
    def session_or_none(self) -> str:
        return self._facet.session

    @property
    def name(self) -> str:
        """What the space calls the piece."""
        return self._facet.home.name

    def past(self, when: datetime, /) -> bool:
        """Whether a moment has come. Its reader wakes when it does."""
        return self._facet.home.pieces.runtime.past(when)

    def follow(self, link: Link, /) -> Any:
        """The handle or the piece that a link points at."""
        return self._facet.home.pieces.follow(self._facet, link)


class NodeContext(_Context):
    """The run of a computed, an effect or a materializer; or no run at all."""

    __slots__ = ()

    @property
    def user(self) -> str:
        """Whose this run is."""
        if not self._facet.user:
            self._refuse("user", "declare @computed(scope='user'), or read it in a handler")
        return self._facet.user

    @property
    def session(self) -> str:
        if not self._facet.session:
            self._refuse("session", "declare @computed(scope='session'), or read it in a handler")
        return called(self._facet.session)

    def now(self, *, every_ms: int | None = None) -> datetime:
        """The time, rounded down; its reader wakes at each step. Without a step, as it was when the run began."""
        pieces = self._facet.home.pieces
        if every_ms is not None:
            return pieces.runtime.now(every_ms=every_ms)
        return as_datetime(pieces.run_began_us())

    def new_id(self) -> str:
        self._refuse("new_id()", "make ids in a handler, where a retry makes the same ones")

    def random(self) -> Random:
        self._refuse("random()", "draw in a handler, where a retry draws the same")

    def launch(self, piece: PieceT, /, *, after_commit: bool = False) -> PieceT:
        self._refuse("launch()", "launch it in a handler: this run is repeated")

    def _refuse(self, what: str, instead: str) -> NoReturn:
        raise AuthoringError(f"ctx.{what} in a run of {self._facet.home!r} that no event began: {instead}")


class EventContext(_Context):
    """One attempt to handle an event."""

    __slots__ = ("_event", "_minted", "_random")

    def __init__(self, facet: ScopedView, event: Event) -> None:
        super().__init__(facet)
        self._event = event
        self._minted = 0
        self._random: Random | None = None

    @property
    def user(self) -> str:
        """Who sent the event, authenticated."""
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
        """When the event was sent: one value for the whole run, and for every retry."""
        us = self._event.minted_us
        if every_ms is not None:
            us -= us % (every_ms * 1_000)
        return as_datetime(us)

    def past(self, when: datetime, /) -> bool:
        """Whether a moment has come, by the clock of now: a handler that waited knows how late it is."""
        return self._facet.home.pieces.runtime.past(when)

    def new_id(self) -> str:
        """An id, the same in every retry of one event."""
        self._minted += 1
        return minted_id(self._event.id, self._minted)

    def random(self) -> Random:
        """Chance, the same in every retry of one event."""
        if self._random is None:
            self._random = seeded(self._event.id)
        return self._random

    def launch(self, piece: PieceT, /, *, after_commit: bool = False) -> PieceT:
        """Have a piece of its own live from this commit on."""
        return launch(self._facet, self._event, self.new_id(), piece, after_commit)


def launch(facet: ScopedView, event: Event, id: str, piece: PieceT, after_commit: bool) -> PieceT:
    """A piece of its own. One that lives here already was launched by another handling of the same event: it stays
    what it is, whatever becomes of this one."""
    pieces = facet.home.pieces
    known = pieces.known(facet.home.space.name, piece_id(id))
    is_own = known is not None and not known.is_stopped and not known.is_launched and isinstance(piece, known.cls)
    if known is not None and is_own and pieces.records.exists(known):  # Who only named it has launched nothing.
        return known.facet("session", event.user, event.session).piece  # type: ignore[return-value]
    return pieces.launch(facet, event, id, piece, after_commit)
