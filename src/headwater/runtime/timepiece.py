"""Time, read like data: a small document for every moment or step that somebody reads, which changes when it comes.

`past(when)` is false until that moment, `now(every)` the time rounded down to a step. Both are ordinary reads of
ordinary documents, so that a node wakes for them through the one door (P1); the alarms wait on the one timer.
What no live node reads has no alarm: it is brought up to date when somebody reads it again.
"""

from __future__ import annotations

from collections.abc import Callable

from headwater.cells.run import Current
from headwater.clock import Clock
from headwater.data.address import Depth, DocKey
from headwater.data.spots import Spot
from headwater.errors import AuthoringError
from headwater.replica.detached import Detached
from headwater.replica.document import Document
from headwater.replica.replica import Replica
from headwater.scheduler.node import Node


class Timepiece:
    """The moments that are read, as documents of a replica that nobody else has."""

    __slots__ = ("_alarm", "_cancel", "_clock", "_current", "_session", "_steps", "replica")

    def __init__(
        self, clock: Clock, current: Current, alarm: Callable[[int, Callable[[], object]], Callable[[], None]]
    ) -> None:
        self._clock = clock
        self._current = current
        self._alarm = alarm  # call at a moment of the monotonic clock
        self.replica = Replica()
        self._session = Detached(self.replica)
        self._cancel: dict[Document, Callable[[], None]] = {}
        self._steps: dict[Document, tuple[int, int]] = {}  # when it changes, and by how much; 0: once

    def past(self, when_us: int) -> bool:
        """Whether a moment has come. Wakes its reader when it does."""
        if self._clock.now_us() >= when_us:
            return True  # It stays so: there is nothing to wait for.
        if self._current.run is None:
            return False  # Nobody is to be woken.
        document = self._document(f"past:{when_us}")
        if document not in self._steps:
            self._show(document, False)
            self._arm(document, when_us, 0)
        self._look(document)
        return False

    def now(self, every_us: int) -> int:
        """The time, rounded down to a step: one value for everybody until the next step. Wakes its reader then."""
        if every_us <= 0:
            raise AuthoringError(f"now(every_ms={every_us / 1_000:g}): write how often it changes, more than 0")
        document = self._document(f"now:{every_us}")
        if document not in self._steps or self._clock.now_us() >= self._steps[document][0] + every_us:
            current = self._clock.now_us() // every_us * every_us
            self._show(document, current)
            if document not in self._steps:
                self._arm(document, current + every_us, every_us)
        self._look(document)
        assert type(document.value) is int
        return document.value

    def _document(self, id: str) -> Document:
        key = DocKey("space", id)
        self._session.watch((key,))
        return self.replica.documents.of(key)

    def _look(self, document: Document) -> None:
        run = self._current.run
        if run is not None:
            run.look(Spot(document, (), Depth.DEEP))

    def _show(self, document: Document, value: bool | int) -> None:
        """Others who read it are to know. The run that is open is not: it is about to see it."""
        run = self._current.run
        self.replica.write_whole(document, value, (), None if run is None else run.node)
        self._session.flush()

    def _arm(self, document: Document, at_us: int, every_us: int) -> None:
        delay_us = max(0, at_us - self._clock.now_us())
        self._steps[document] = (at_us, every_us)
        self._cancel[document] = self._alarm(self._clock.monotonic_us() + delay_us, lambda: self._due(document))

    def _due(self, document: Document) -> None:
        """Its moment has come. What nobody looks at any more is shown as it is now, once, and let go."""
        at_us, every_us = self._steps.pop(document)
        self._cancel.pop(document, None)
        if document.twig is None:
            self.replica.let_go(document.key)
            return
        now_us = self._clock.now_us()
        if now_us < at_us:
            self._arm(document, at_us, every_us)  # The clock was set back.
        elif every_us:
            self._show(document, now_us // every_us * every_us)
            if _is_looked_at(document):
                self._arm(document, (now_us // every_us + 1) * every_us, every_us)
        else:
            self._show(document, True)

    def release(self, document: Document) -> None:
        """Nobody reads it any more: nobody waits for it."""
        self._steps.pop(document, None)
        cancel = self._cancel.pop(document, None)
        if cancel is not None:
            cancel()
        self.replica.let_go(document.key)

    def moments(self) -> int:
        """How many are waited for."""
        return len(self._steps)


def _is_looked_at(document: Document) -> bool:
    """Whether somebody reads it whom somebody demands."""
    twig = document.twig
    if twig is None:
        return False
    return any(isinstance(node, Node) and node.live for spot in twig.spots() for node in spot.readers)
