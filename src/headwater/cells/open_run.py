"""The open run, as handles see it: reads are recorded in it, and writes go to it.

Runs are serialised, so a runtime has at most one, and `Current` holds it. A read that the last run of the same node
made in the same place costs a comparison; everything else is left to the scheduler, which also decides what runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import get_ident
from typing import TYPE_CHECKING, Protocol

from headwater.data.reader_trie import Spot
from headwater.errors import AuthoringError

if TYPE_CHECKING:
    from headwater.data.patch import Patch
    from headwater.data.path import Path
    from headwater.replica.document import Document
    from headwater.replica.feed import Notification
    from headwater.replica.transaction import Transaction


class Tracker(Protocol):
    """Receives the reads and writes of an open run.

    `scheduler.runner.Runner` is the tracker of nodes, `runtime.core.tracker.TransactionTracker` that of transactions.
    """

    @property
    def missed(self) -> Callable[[Run, Spot], Spot]:
        """Record a read that the last run did not make here. Stops the attempt if the value there is not fresh.

        `Run` fetches it once.
        """

    def absent(self, run: Run, document: Document) -> None:
        """A document was read that is not here. Stops the attempt."""

    def write(self, run: Run, document: Document, patch: Patch) -> None:
        """Write inside the run's surface; raises where it lies outside."""

    @property
    def prepare(self) -> Callable[[Run, Document], object] | None:
        """Run the writers of a document that is about to be read. None: a stale value is found when it is read.

        `Run` fetches it once.
        """

    @property
    def perform(self) -> Callable[[Run, Callable[[], object]], object] | None:
        """Do a write of the author's function. None: a write is a plain call.

        `TransactionTracker` has it. `Run` fetches it once.
        """


class Run:
    """One run of one node, or one transaction. The same object serves one run after the other."""

    __slots__ = (
        "away_us",
        "began",
        "causes",
        "counted",
        "created",
        "fresh",
        "log",
        "misses",
        "node",
        "number",
        "overlay",
        "parted",
        "performs",
        "place",
        "prepares",
        "reads",
        "seen",
        "thread",
        "tracker",
        "transaction",
    )

    def __init__(self, tracker: Tracker) -> None:
        self.tracker = tracker
        self.misses = tracker.missed
        self.prepares = tracker.prepare
        self.performs = tracker.perform
        self.thread = get_ident()  # of its runtime: no other one reads in it
        self.number = 0  # rises with every attempt; a spot's stamp says in which one it was looked at
        self.node: object | None = None
        self.reads: Sequence[Spot | None] = (None,)  # first reads of the last run, in order; ends with None
        self.place = 0  # how far this run looked at the same
        self.log: list[Spot] | None = None  # the reads of this run, from the first difference on
        self.created: list[object] | None = None  # nodes it registered: if it is stopped, the next one takes them on
        self.fresh: dict[tuple[object, ...], Spot] | None = None  # spots in `log` without other readers yet
        self.causes: dict[Spot, Notification] | None = None  # why it runs
        # documents of its first `counted` reads; None: no nested run has marked its node so far
        self.seen: set[object] | None = None
        self.counted = 0
        self.overlay: dict[Document, None] | None = None  # documents that it wrote itself
        self.transaction: Transaction | None = None  # from its first write on
        self.parted = 0  # the number of the last one in which others ran meanwhile
        self.away_us = 0  # how long these took, in that one
        self.began: tuple[int, int] | None = None  # a number, and when that one looked at the time first

    def begin(self, node: object, reads: Sequence[Spot | None], causes: dict[Spot, Notification] | None) -> None:
        """Another attempt begins."""
        self.number += 1
        self.node = node
        self.reads = reads
        self.place = 0
        self.log = None
        self.fresh = None
        self.created = None
        self.causes = causes
        self.seen = None

    def prepare(self, document: Document) -> None:
        """Prepare a document that is about to be read. Reads that the last run made here were prepared before.

        A run that has written may see another value than its readers, also in a document without writers of its own.
        """
        if (document.writers or self.overlay) and self.prepares is not None and get_ident() == self.thread:
            foreseen = self.reads[self.place]
            if foreseen is None or foreseen.document is not document:
                self.prepares(self, document)

    def record_read(self, spot: Spot) -> Spot:
        """Note that a spot is read; the one to remember for the next time."""
        if spot.stamp != self.number:
            if self.reads[self.place] is spot:
                spot.stamp = self.number
                self.place += 1
            else:
                return self.miss(spot)
        return spot

    def miss(self, spot: Spot) -> Spot:
        """Record a read that the last run did not make at this point. A read of another thread is refused.

        A read of another thread at a place that the open run reads, too, is not noticed, and harmless: it returns the
        shown value.
        """
        if get_ident() != self.thread:
            raise AuthoringError(
                "a runtime belongs to one thread: call rt.call(fn) to have fn called there, as in "
                "rt.call(piece.total.pull)"
            )
        spot.stamp = self.number
        try:
            return self.misses(self, spot)
        except BaseException:
            # fault run.failure_raised_once: raise
            spot.stamp = 0  # A failure that the author's function catches is raised again by the next read.
            raise


class Current:
    """Where the open run of a runtime is, if there is one."""

    __slots__ = ("apart", "run", "written")

    def __init__(self) -> None:
        self.run: Run | None = None
        # Where a write outside any run writes that is made now; None: no later write has to know that.
        self.written: list[tuple[Document, Path]] | None = None
        self.apart = 0  # the last number that was given to a call that is no run of a node

    def number_apart(self) -> int:
        """Return a number for a call that behaves like a run but is not a node's: unique among these and all runs."""
        self.apart -= 1
        return self.apart
