"""The run, as the author's code inside it sees it: `self.ctx`. A port; the runtime answers."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from headwater.clock import Random
    from headwater.pieces.links import Link
    from headwater.pieces.piece import Piece

__all__ = ["Context"]

PieceT = TypeVar("PieceT", bound="Piece")
T = TypeVar("T")


class Context(Protocol):
    """One run. Everything it says is the same in every retry of one event."""

    @property
    def user(self) -> str:
        """Who sent the event, authenticated; in a follow-up, who sent the first."""

    @property
    def session(self) -> str:
        """The sender's session."""

    @property
    def space(self) -> Any:
        """The space of the piece."""

    @property
    def name(self) -> str:
        """What the space calls the piece."""

    def now(self, *, every_ms: int | None = None) -> datetime:
        """The time, one value for the whole run; with `every_ms` rounded down, and its reader wakes at each step."""

    def past(self, when: datetime, /) -> bool:
        """Whether a moment has come. Its reader wakes when it does."""

    def new_id(self) -> str:
        """An id, the same in every retry of one event. In handlers only."""

    def random(self) -> Random:
        """Chance, the same in every retry of one event. In handlers only."""

    def launch(self, piece: PieceT, /, *, after_commit: bool = False) -> PieceT:
        """Have a piece of its own live from this commit on. In handlers only."""

    def follow(self, link: Link[T], /) -> T:
        """The handle or the piece that a link points at."""
