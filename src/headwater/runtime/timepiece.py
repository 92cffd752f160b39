"""Time, read like data: a small document for every moment or step that somebody reads, which changes when it comes.

`past(when)` is false until that moment, `now(every)` the time rounded down to a step. Both are ordinary reads of
ordinary documents, so that a node wakes for them through the one door (P1); the alarms wait on the one timer.
What nobody reads any more has no alarm.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from headwater.cells.run import Current
from headwater.clock import Clock
from headwater.data.address import Depth, DocKey
from headwater.data.spots import Spot
from headwater.errors import AuthoringError
from headwater.replica.detached import Detached
from headwater.replica.document import Document
from headwater.replica.replica import Replica


class Timepiece:
    """The moments that are read, as documents of a replica that nobody else has."""

    __slots__ = ("_alarm", "_clock", "_current", "_session", "_steps", "replica")

    def __init__(self, clock: Clock, current: Current, alarm: Callable[[int, Callable[[], object]], object]) -> None:
        self._clock = clock
        self._current = current
        self._alarm = alarm  # call at a moment of the monotonic clock
        self.replica = Replica()
        self._session = Detached(self.replica)
        self._steps: dict[Document, tuple[int, int]] = {}  # when it changes, and by how much; 0: once

    def past(self, when_us: int) -> bool:
        """Whether a moment has come. Wakes its reader when it does."""
        if self._clock.now_us() >= when_us:
            return True
        document = self._document(f"past:{when_us}")
        if document not in self._steps:
            self._show(document, False)
            self._arm(document, when_us, 0)
        self._look(document)
        return False

    def now(self, every_us: int) -> int:
        """The time, rounded down to a step. Wakes its reader at each step."""
        if every_us <= 0:
            raise AuthoringError(f"now(every_ms={every_us / 1_000:g}): write how often it changes, more than 0")
        current = self._clock.now_us() // every_us * every_us
        document = self._document(f"now:{every_us}")
        if document not in self._steps:
            self._show(document, current)
            self._arm(document, current + every_us, every_us)
        self._look(document)
        return current

    def _document(self, id: str) -> Document:
        key = DocKey("space", id)
        self._session.watch((key,))
        return self.replica.documents.of(key)

    def _look(self, document: Document) -> None:
        run = self._current.run
        if run is not None:
            run.look(Spot(document, (), Depth.DEEP))

    def _show(self, document: Document, value: bool | int) -> None:
        self.replica.write_whole(document, value, ())
        self._session.flush()

    def _arm(self, document: Document, at_us: int, every_us: int) -> None:
        self._steps[document] = (at_us, every_us)
        delay_us = max(0, at_us - self._clock.now_us())
        self._alarm(self._clock.monotonic_us() + delay_us, lambda: self._due(document))

    def _due(self, document: Document) -> None:
        """Its moment has come. If nobody reads it, it is let go."""
        at_us, every_us = self._steps.pop(document)
        if document.twig is None:
            self.replica.let_go(document.key)
            return
        now_us = self._clock.now_us()
        if now_us < at_us:
            self._arm(document, at_us, every_us)  # The clock was set back.
        elif every_us:
            self._show(document, now_us // every_us * every_us)
            self._arm(document, (now_us // every_us + 1) * every_us, every_us)
        else:
            self._show(document, True)

    def moments(self) -> int:
        """How many are waited for."""
        return len(cast("dict[Document, object]", self._steps))
