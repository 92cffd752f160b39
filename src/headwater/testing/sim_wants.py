"""What a simulated process wants to be shown, and what it may expect of it.

Owns the documents that are watched, those that were let go on purpose, and what becomes of both when a watch is
refused: one that could not be widened is watched on as it was, one that could not be begun is not watched. Never asks
for anything; checks that nobody is refused for nothing.
"""

from __future__ import annotations

from headwater.data.address import DocKey
from headwater.engine import DEFAULT_LIMITS
from headwater.protocol.messages import Open, Problem, Selector, Watch, Watched
from headwater.replica import Replica
from headwater.testing.sim_trace import Trace


class Wants:
    """The watches of one life of a process."""

    __slots__ = ("_numbers", "_plain", "_scopes", "_stopped", "_trace", "_who", "dropped", "follow_documents", "wanted")

    def __init__(self, who: str, trace: Trace) -> None:
        self._who = who
        self._trace = trace
        self._scopes: tuple[str, ...] = ()
        self._numbers: dict[int, tuple[Selector, ...]] = {}
        self._plain: set[DocKey] = set()  # have arrived by a watch of their own, and are told since
        self._stopped: set[DocKey] = set()  # links from there are not followed any more, however often it is asked for
        self.follow_documents = DEFAULT_LIMITS.follow_documents  # to how many links may lead
        self.wanted: dict[DocKey, bool] = {}  # watched, and whether with what its links lead to
        self.dropped: set[DocKey] = set()  # let go on purpose, so that following links need not bring them back

    def begin(self, scopes: tuple[str, ...]) -> None:
        """Another life."""
        self._scopes = scopes
        self._numbers.clear()
        self._plain.clear()
        self._stopped.clear()
        self.wanted.clear()
        self.dropped.clear()

    def watch(self, doc: DocKey, *, follow: bool) -> None:
        self.wanted[doc] = (follow and doc not in self._stopped) or self.wanted.get(doc, False)
        self.dropped.discard(doc)

    def drop(self, doc: DocKey) -> None:
        self.wanted.pop(doc, None)
        self._plain.discard(doc)
        self._stopped.discard(doc)
        self._numbers = {n: selectors for n, selectors in self._numbers.items() if selectors[0].doc != doc}
        self.dropped.add(doc)

    def says(self, message: Watch) -> None:
        self._numbers[message.id] = message.selectors

    def opens(self, message: Open) -> None:
        """Whoever is taken up again goes on watching what it was told until now."""
        for doc in self._plain:
            numbers = [number for number, selectors in self._numbers.items() if selectors[0].doc == doc]
            if message.watching is not None and max(numbers, default=0) not in message.watching:
                self._trace.broken("watch", self._who, f"{doc} is shown and not watched any more")

    def arrived(self, message: Watched) -> None:
        self._plain.update(selector.doc for selector in self._numbers.get(message.id, ()))

    def gap(self) -> None:
        """Nothing is watched any more: all of it is asked for again, as it was asked for last."""
        self._plain.clear()
        self._stopped.clear()

    # ---- what is refused ---------------------------------------------------------------------------

    def narrowed(self, problem: Problem) -> None:
        """Links lead too far: what is watched is watched on, and no more will follow."""
        if problem.code == "limit" and problem.id and self.follow_documents < DEFAULT_LIMITS.follow_documents:
            for selector in self._numbers.get(problem.id, ()):
                if self.wanted.get(selector.doc):
                    self._trace.counts["watches that stopped following"] += 1
                    self.wanted[selector.doc] = False
                    self._stopped.add(selector.doc)

    def refused(self, docs: tuple[DocKey, ...], problem: Problem | None, replica: Replica) -> None:
        """A load failed."""
        is_far = problem is not None and problem.code == "limit"
        is_bounded = self.follow_documents < DEFAULT_LIMITS.follow_documents
        for doc in docs:
            self._trace.counts["watches refused"] += 1
            if doc.scope in self._scopes and not (is_far and is_bounded):
                self._trace.broken("watch", self._who, f"{doc} was refused: {problem}")
            if doc in self._plain and replica.is_here(doc):
                self._trace.counts["watches refused while they were widened"] += 1
                self.wanted[doc] = False
            else:
                self._plain.discard(doc)
                self.wanted.pop(doc, None)
