"""Time, read like data: a small document for every moment or step that somebody reads, which changes when it comes.

`past(when)` is false until that moment, `now(every)` the time rounded down to a step. Both are ordinary reads of
ordinary documents, so that a node wakes for them through the one door (P1); the alarms wait on the one timer.
What no live node reads has no alarm: it is brought up to date when somebody reads it again. Outside a node's run they
are looks at the clock and leave nothing. Alarms go by the monotonic clock and moments by the wall clock: every so
often somebody looks whether that was set, or went on while the machine slept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from headwater.cells.open_run import Current, Run
from headwater.clock import Clock
from headwater.data.address import Depth, DocKey
from headwater.data.reader_trie import Spot
from headwater.errors import AuthoringError
from headwater.replica.detached import Detached
from headwater.replica.document import Document
from headwater.replica.replica import Replica
from headwater.scheduler.node import Node

CHECK_US: Final = 30_000_000
"""How often somebody looks whether the wall clock was set, as long as something is waited for."""
JUMP_US: Final = 10_000
"""How far the two clocks may have come apart until then."""


class TimeDocuments:
    """The moments that are read, as documents of a replica that nobody else has."""

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
        self._alarm = alarm  # call at a moment of the monotonic clock
        self.replica = Replica()
        self._session = Detached(self.replica)
        self._cancel: dict[Document, Callable[[], None]] = {}
        self._steps: dict[Document, tuple[int, int]] = {}  # when it changes, and by how much; 0: once
        self._looked: dict[Document, int] = {}  # steps, with the number of the run that looked at them last
        self._apart_us = 0  # the wall clock less the monotonic one, when alarms were set by them
        self._checking: Callable[[], None] | None = None  # ends the looking whether they still are

    def past(self, when_us: int) -> bool:
        """Whether a moment has come. Wakes its reader when it does."""
        is_past = self._clock.now_us() >= when_us
        if is_past and not self._steps:
            return True  # It stays so: there is nothing to wait for.
        run = self._run()
        key = DocKey("space", f"past:{when_us}")
        document = self.replica.documents.get(key)
        if is_past:
            if document is not None and document in self._steps:
                self._arm(document, when_us, 0)  # Those who still wait for it are told at once.
            return True
        if run is None:
            return False  # Nobody is to be woken.
        if document is None or document not in self._steps:
            document = self._document(key)
            self._show(document, False)
            self._arm(document, when_us, 0)
        run.record_read(Spot(document, (), Depth.DEEP))
        return False

    def now(self, every_us: int) -> int:
        """The time, rounded down to a step: one value for everybody until the next step. Wakes its reader then."""
        if every_us <= 0:
            raise AuthoringError(f"now(every_ms={every_us / 1_000:g}): write how often it changes, more than 0")
        run = self._run()
        key = DocKey("space", f"now:{every_us}")
        document = self.replica.documents.get(key)
        now_us = self._clock.now_us()
        shown = document.value if document is not None and document in self._steps else None
        if type(shown) is not int or not shown <= now_us < shown + 2 * every_us:  # Its alarm is late, or far too early.
            current = now_us // every_us * every_us
            if run is None:
                return current
            if document is None or self._looked.get(document) != run.number:
                document = self._document(key)
                self._show(document, current)
                self._arm(document, current + every_us, every_us)
        assert document is not None
        if run is not None:
            self._looked[document] = run.number  # It is one value for the whole run, however long that takes.
            run.record_read(Spot(document, (), Depth.DEEP))
        assert type(document.value) is int
        return document.value

    def _run(self) -> Run | None:
        """The run of a node that is open, if there is one: only that can be woken."""
        run = self._current.run
        return run if run is not None and isinstance(run.node, Node) else None

    def _document(self, key: DocKey) -> Document:
        self._session.watch((key,))
        return self.replica.documents.of(key)

    def _show(self, document: Document, value: bool | int) -> None:
        """Others who read it are to know. The run that is open is not: it is about to see it."""
        run = self._current.run
        self.replica.write_whole(document, value, (), None if run is None else run.node)
        self._session.flush()

    def _arm(self, document: Document, at_us: int, every_us: int) -> None:
        now_us, monotonic_us = self._clock.now_us(), self._clock.monotonic_us()
        if self._checking is None:
            self._apart_us = now_us - monotonic_us
            self._checking = self._alarm(monotonic_us + CHECK_US, self._check)
        self._disarm(document)
        self._steps[document] = (at_us, every_us)
        self._cancel[document] = self._alarm(monotonic_us + max(0, at_us - now_us), lambda: self._due(document))

    def _disarm(self, document: Document) -> tuple[int, int] | None:
        cancel = self._cancel.pop(document, None)
        if cancel is not None:
            cancel()
        return self._steps.pop(document, None)

    def _due(self, document: Document) -> None:
        """Its moment has come. What nobody looks at any more is shown as it is now, once, and let go."""
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
            self._arm(document, at_us, every_us)  # The clock was set back.
        else:
            self._show(document, True)
        self._rest()

    def _check(self) -> None:
        """If the clocks came apart, every alarm is at the wrong time."""
        self._checking = None
        has_jumped = abs(self._clock.now_us() - self._clock.monotonic_us() - self._apart_us) > JUMP_US
        for document in tuple(self._steps):
            if document.twig is None:
                self.release(document)  # The attempt that looked was stopped, and the next one did not look.
            elif has_jumped:
                self._due(document)
        if self._steps and self._checking is None:
            self._apart_us = self._clock.now_us() - self._clock.monotonic_us()
            self._checking = self._alarm(self._clock.monotonic_us() + CHECK_US, self._check)

    def _rest(self) -> None:
        """Nothing is waited for: nobody need look at the clock."""
        if not self._steps and self._checking is not None:
            self._checking()
            self._checking = None

    def release(self, document: Document) -> None:
        """Nobody reads it any more: nobody waits for it."""
        self._disarm(document)
        self._looked.pop(document, None)
        self.replica.let_go(document.key)
        self._rest()

    def moments(self) -> int:
        """How many are waited for."""
        return len(self._steps)


def _is_looked_at(document: Document) -> bool:
    """Whether somebody reads it whom somebody demands."""
    twig = document.twig
    if twig is None:
        return False
    return any(isinstance(node, Node) and node.live for spot in twig.spots() for node in spot.readers)
