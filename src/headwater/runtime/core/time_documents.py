"""Time, read like data: one small document per moment or step that is read, which changes when its time comes.

`past(when)` is false until that moment; `now(every)` is the time rounded down to a step. Both are ordinary reads of
ordinary documents, so that they invalidate nodes through the feed like every other change (P1); all alarms share the
scheduler's timer.

A document without a live reader has no alarm and is brought up to date at its next read. Outside a node's run `past`
and `now` read the clock and create no document. Alarms use the monotonic clock and moments the wall clock, so the
difference of both clocks is checked every `clock_check_us`: the wall clock may be set, or go on in a sleeping machine.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Final

from headwater.cells.open_run import Current, Run
from headwater.clock import Clock
from headwater.data.address import Depth, DocKey
from headwater.data.reader_trie import Spot
from headwater.errors import AuthoringError
from headwater.replica.detached import Detached
from headwater.replica.document import Document
from headwater.replica.replica import Replica
from headwater.runtime.core.limits import RUNTIME_LIMITS
from headwater.scheduler.node import Node

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class TimeDocuments:
    """The moments and steps that are read, as documents of a replica that belongs to no space."""

    __slots__ = (
        "_alarm",
        "_apart_us",
        "_cancel",
        "_checking",
        "_clock",
        "_current",
        "_looked",
        "_session",
        "_steps",
        "replica",
    )

    def __init__(
        self, clock: Clock, current: Current, alarm: Callable[[int, Callable[[], object]], Callable[[], None]]
    ) -> None:
        self._clock = clock
        self._current = current
        self._alarm = alarm  # calls a function at a time of the monotonic clock
        self.replica = Replica()
        self._session = Detached(self.replica)
        self._cancel: dict[Document, Callable[[], None]] = {}
        self._steps: dict[Document, tuple[int, int]] = {}  # time of the next change, and the step; 0: changes once
        self._looked: dict[Document, int] = {}  # steps, with the number of the run that read them last
        self._apart_us = 0  # wall clock minus monotonic clock, at the time the alarms were set
        self._checking: Callable[[], None] | None = None  # cancels the next check of that difference

    def has_passed(self, when: datetime) -> bool:
        """Return whether a moment with a time zone has come. The reading node runs again when it comes."""
        if when.tzinfo is None:
            raise AuthoringError(f"past({when.isoformat()}) has no time zone: write datetime(..., tzinfo=timezone.utc)")
        return self.past((when - EPOCH) // timedelta(microseconds=1))

    def round_down(self, every_ms: float) -> datetime:
        """Return the time, rounded down to a step. The reading node runs again at each step."""
        if not 0 < every_ms < inf:
            raise AuthoringError(f"now(every_ms={every_ms:g}): write how often it changes, more than 0")
        return EPOCH + timedelta(microseconds=self.now(max(1, round(every_ms * 1_000))))

    def past(self, when_us: int) -> bool:
        """True if a moment has come. Invalidates the reading node when it comes."""
        is_past = self._clock.now_us() >= when_us
        if is_past and not self._steps:
            return True  # A past moment stays past: no read is recorded.
        run = self._run()
        key = DocKey("space", f"past:{when_us}")
        document = self.replica.documents.get(key)
        if is_past:
            if document is not None and document in self._steps:
                self._arm(document, when_us, 0)  # Nodes that still wait for this moment are notified at once.
            return True
        if run is None:
            return False  # No node reads it.
        if document is None or document not in self._steps:
            document = self._document(key)
            self._show(document, False)
            self._arm(document, when_us, 0)
        run.record_read(Spot(document, (), Depth.DEEP))
        return False

    def now(self, every_us: int) -> int:
        """Return the time rounded down to a step, which is the same for all readers.

        The next step invalidates the readers.
        """
        if every_us <= 0:
            raise AuthoringError(f"now(every_ms={every_us / 1_000:g}): write how often it changes, more than 0")
        run = self._run()
        key = DocKey("space", f"now:{every_us}")
        document = self.replica.documents.get(key)
        now_us = self._clock.now_us()
        shown = document.value if document is not None and document in self._steps else None
        if type(shown) is not int or not shown <= now_us < shown + 2 * every_us:  # The alarm is late, or far too early.
            current = now_us // every_us * every_us
            if run is None:
                return current
            if document is None or self._looked.get(document) != run.number:
                document = self._document(key)
                self._show(document, current)
                self._arm(document, current + every_us, every_us)
        assert document is not None
        if run is not None:
            self._looked[document] = run.number  # The value stays the same until the run ends.
            run.record_read(Spot(document, (), Depth.DEEP))
        assert type(document.value) is int
        return document.value

    def _run(self) -> Run | None:
        """Return the open run if it is the run of a node; only a node can be invalidated later."""
        run = self._current.run
        return run if run is not None and isinstance(run.node, Node) else None

    def _document(self, key: DocKey) -> Document:
        self._session.watch((key,))
        return self.replica.documents.of(key)

    def _show(self, document: Document, value: bool | int) -> None:
        """Write a value and notify its readers, except the node of the open run, which is about to read the value."""
        run = self._current.run
        self.replica.write_whole(document, value, (), None if run is None else run.node)
        self._session.flush()

    def _arm(self, document: Document, at_us: int, every_us: int) -> None:
        now_us, monotonic_us = self._clock.now_us(), self._clock.monotonic_us()
        if self._checking is None:
            self._apart_us = now_us - monotonic_us
            self._checking = self._alarm(monotonic_us + RUNTIME_LIMITS.clock_check_us, self._check)
        self._disarm(document)
        self._steps[document] = (at_us, every_us)
        self._cancel[document] = self._alarm(monotonic_us + max(0, at_us - now_us), lambda: self._due(document))

    def _disarm(self, document: Document) -> tuple[int, int] | None:
        cancel = self._cancel.pop(document, None)
        if cancel is not None:
            cancel()
        return self._steps.pop(document, None)

    def _due(self, document: Document) -> None:
        """Handle an alarm: write the current value.

        A document without readers is dropped. A step without a live reader is not armed again.
        """
        step = self._disarm(document)
        if step is None or document.twig is None:
            self.release(document)
            return
        at_us, every_us = step
        now_us = self._clock.now_us()
        if every_us:
            current = now_us // every_us * every_us
            self._show(document, current)
            if _is_looked_at(document):
                self._arm(document, current + every_us, every_us)
        elif now_us < at_us:
            self._arm(document, at_us, every_us)  # The wall clock was set back.
        else:
            self._show(document, True)
        self._rest()

    def _check(self) -> None:
        """Check the clocks. If their difference changed, every alarm is set for the wrong time."""
        self._checking = None
        has_jumped = (
            abs(self._clock.now_us() - self._clock.monotonic_us() - self._apart_us) > RUNTIME_LIMITS.clock_jump_us
        )
        for document in tuple(self._steps):
            if document.twig is None:
                self.release(document)  # A stopped attempt read it, and the next one did not.
            elif has_jumped:
                self._due(document)
        if self._steps and self._checking is None:
            self._apart_us = self._clock.now_us() - self._clock.monotonic_us()
            self._checking = self._alarm(self._clock.monotonic_us() + RUNTIME_LIMITS.clock_check_us, self._check)

    def _rest(self) -> None:
        """Stop checking the clocks when no alarm is set."""
        if not self._steps and self._checking is not None:
            self._checking()
            self._checking = None

    def release(self, document: Document) -> None:
        """Drop a document that no node reads, with its alarm."""
        self._disarm(document)
        self._looked.pop(document, None)
        self.replica.let_go(document.key)
        self._rest()

    def moments(self) -> int:
        """Return the number of documents with an alarm."""
        return len(self._steps)


def _is_looked_at(document: Document) -> bool:
    """True if a live node reads the document."""
    twig = document.twig
    if twig is None:
        return False
    return any(isinstance(node, Node) and node.live for spot in twig.spots() for node in spot.readers)
