"""What an outbox holds from the last time: sent again at once, or as soon as that can be done here.

It was let in when it was sent, and is not refused now, however much it is. One whose class is not imported, or whose
piece is part of another that is not open here, waits; it is looked at when a piece was opened, and now and then. What
waits is in the table of intents and stays in the outbox, whatever happens. It never calls a handler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from headwater.runtime.binding import stored
from headwater.runtime.binding.intents import STATES, IntentRow
from headwater.runtime.binding.stored import Unavailable
from headwater.runtime.effort import Stage

if TYPE_CHECKING:
    from headwater.protocol.commit import SentEvent
    from headwater.runtime.binding.pieces import Pieces

PATIENCE_US: Final = (1_000_000, 60_000_000)
"""When they are looked at again: soon after a piece was opened, then less often."""


class Waiting:
    """What was sent the last time and cannot be handled here yet."""

    __slots__ = ("_cancel", "_is_looking", "_left", "_patience_us", "_pieces")

    def __init__(self, pieces: Pieces) -> None:
        self._pieces = pieces
        self._left: dict[str, tuple[str, SentEvent, str]] = {}  # by row, in the order of their sending: space, row, why
        self._cancel: Callable[[], None] | None = None
        self._patience_us = PATIENCE_US[0]
        self._is_looking = False  # it is looked once everything has settled

    def take(self, rows: Iterable[tuple[str, SentEvent]]) -> None:
        """Have them handled, in the order of their sending. What cannot be is told, once, and waits."""
        self._left = {row.id: (space, row, "") for space, row in rows}
        self._look()
        for space, row, why in self._left.values():
            self._pieces.core.report(f"the outbox, of space {space}", Unavailable(f"{row.stream} waits: {why}"))

    def opened(self) -> None:
        """A piece runs here from now on: it and its children are known once what it reads has come."""
        if self._left and not self._is_looking:
            self._is_looking = True
            core = self._pieces.core
            core.afterwards(lambda: core.observing.when(core.is_settled, self._settled))

    def _settled(self) -> None:
        self._is_looking = False
        self._patience_us = PATIENCE_US[0]
        self._look()

    def _look(self) -> None:
        """Send what can be sent, and look at the rest again."""
        if self._cancel is not None:
            self._cancel()
            self._cancel = None
        self._left = {
            id: (space, row, why)
            for id, (space, row, _) in self._left.items()
            if (why := self._started(row)) is not None
        }
        if self._left:
            core = self._pieces.core
            at_us = core.clock.monotonic_us() + self._patience_us
            self._cancel = core.scheduler.gates.alarm(at_us, self._look)
            self._patience_us = min(2 * self._patience_us, PATIENCE_US[1])

    def _started(self, row: SentEvent) -> str | None:
        """Have one handled. Answers why it cannot be, yet."""
        pieces = self._pieces
        if pieces.handling.find(stored.id_of(row.id, row.payload)) is not None:
            return "it was sent again meanwhile, and has no end yet"
        try:
            event = stored.read(pieces, row.id, row.stream, row.payload, row.due_us, "")
        except Unavailable as error:
            return str(error)
        if event.is_own:  # The window that it was sent from ended with its process: this one is in its place.
            event.session = pieces.windows.of(event.home.space.name, event.user)
        event.is_late = bool(event.due_us)
        pieces.handling.resume(event)
        return None

    def rows(self) -> tuple[IntentRow, ...]:
        """As the table of intents shows them."""
        return tuple(
            IntentRow(
                id=stored.id_of(row.id, row.payload),
                stream=row.stream,
                user="",
                state=STATES[Stage.PARKED],
                sent_us=stored.minted(row.id),
                error=why,
            )
            for _, row, why in self._left.values()
        )
