"""The idempotency validator: repeats each computation after its commit, and compares the writes.

A computation may run any number of times, so that a second run on the state after the first must change nothing: not
its output, not its side writes, nor any value in a materializer's envelope. Off by default, for
tests. The second run has a run record and a tracker of its own, with numbers that no real run has: it subscribes to
nothing, commits nothing, loads nothing, moves no gate and reports nothing to the trace. If it cannot decide, because a
value changed meanwhile or is not fresh, it records the reason and finds nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, cast

from headwater.cells.open_run import Current, Run
from headwater.data.address import doc_text
from headwater.data.diff import diff
from headwater.data.patch import Patch
from headwater.data.reader_trie import Spot
from headwater.data.text import shown
from headwater.data.value import ABSENT, MaybeValue, freeze, lookup
from headwater.errors import AuthoringError
from headwater.replica.document import NOT_HERE, Document, TierEntry
from headwater.replica.pending import Layer
from headwater.scheduler.failures import INTERRUPTS
from headwater.scheduler.freshness import upstream_failed
from headwater.scheduler.graph.edges import writers_of
from headwater.scheduler.graph.graph import Graph
from headwater.scheduler.introspection.listeners import Listeners
from headwater.scheduler.node import CLEAN, Node, NodeKind
from headwater.scheduler.suspension import Suspend

__all__ = ["Finding", "Idempotency"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A node that would write something else if it ran again. Reported once for each node and place."""

    node: str
    kind: str
    address: str  # the place that differs; "": the second run raised
    first: MaybeValue  # the value after the first run
    second: MaybeValue  # the value that the second run would write
    error: str | None = None

    def __str__(self) -> str:
        if self.error is not None:
            return f"{self.kind} {self.node} is not idempotent: run again after its commit, it raises {self.error}"
        return (
            f"{self.kind} {self.node} is not idempotent: run again after its commit, it changes {self.address} "
            f"from {_text(self.first)} to {_text(self.second)}"
        )


class Idempotency:
    """Second runs and their findings."""

    __slots__ = ("_current", "_entries", "_expected", "_graph", "_run", "_taps", "_undecided", "checked", "found")
    prepare: ClassVar[None] = None
    perform: ClassVar[None] = None

    def __init__(self, current: Current, graph: Graph, taps: Listeners, entries: int) -> None:
        self._current = current
        self._graph = graph
        self._taps = taps
        self._entries = entries  # how many findings are kept
        self._expected: list[dict[str, bool]] = []  # for each open context: ids, and whether a finding came
        self._run = Run(self)
        self._undecided: str | None = None
        self.checked = 0  # second runs that were compared
        self.found: dict[tuple[str, str], Finding] = {}

    def switch(self, *, on: bool) -> None:
        self._taps.on_ran(self._check, on)

    # ---- asserting ---------------------------------------------------------------------------------

    def assert_idempotent(self) -> None:
        """Raise `AssertionError` if there is a finding that was not expected."""
        if self.found:
            raise AssertionError("\n".join(str(finding) for finding in self.found.values()))

    @contextmanager
    def expect_non_idempotent(self, ids: Iterable[str]) -> Iterator[None]:
        """Expect findings of these nodes in the context, and drop them. `AssertionError` if a node has none."""
        expected = dict.fromkeys(ids, False)
        self._expected.append(expected)
        try:
            yield
        finally:
            self._expected = [other for other in self._expected if other is not expected]
        missing = [id for id, was_found in expected.items() if not was_found]
        if missing:
            raise AssertionError(f"expected not to be idempotent, and nothing was found: {', '.join(missing)}")

    # ---- a second run ------------------------------------------------------------------------------

    def _check(self, node: Node, made: Layer | TierEntry | None) -> None:
        if node.kind is NodeKind.EFFECT or node.error is not None:
            return  # An effect is not meant to be repeated, and a failed run wrote nothing.
        if node.status != CLEAN or node.removed:
            return  # A value that it read is different already: a second run would have other inputs.
        findings = self._second_run(node)
        if self._undecided is not None:
            return
        self.checked += 1
        if findings and made is not None and not _is_newest(node, made):
            return  # Another commit answered this one: the present values are not only the node's own.
        for finding in findings:
            self._keep(finding)

    def _second_run(self, node: Node) -> list[Finding]:
        run = self._run
        run.number = self._current.number_apart()  # No stamp of it equals one of a real run or a transaction.
        run.node = node
        run.reads, run.place, run.log = [None], 0, None
        self._undecided = None
        self._current.run = run
        try:
            result = node.fn()
            self._current.run = None
            return self._differences(node, run, result)
        except Suspend:
            self._undecided = self._undecided or "it would have to wait, or makes nodes"
            return []
        except INTERRUPTS:
            raise
        except BaseException as error:  # An author error that the first run did not have: its writes would differ.
            return [_raised(node, error)]
        finally:
            self._current.run = None
            if run.transaction is not None:
                node.home.drop(run.transaction)
                run.transaction = run.overlay = None
            run.node = None

    def _differences(self, node: Node, run: Run, result: object) -> list[Finding]:
        transaction = run.transaction
        written: dict[Document, MaybeValue] = {}
        for document in run.overlay or ():
            assert transaction is not None
            written[document] = transaction.peek(document.key)
        if node.returns and node.outputs:
            document = node.outputs[0]
            before = written.get(document, cast(MaybeValue, document.value))
            written[document] = _value(node, result, before)
        return [
            Finding(
                node=node.id,
                kind=node.kind.value,
                address=doc_text(document.key, patch.path),
                first=lookup(cast(MaybeValue, document.value), patch.path),
                second=lookup(after, patch.path),
            )
            for document, after in written.items()
            for patch in diff(cast(MaybeValue, document.value), after)
        ]

    def _keep(self, finding: Finding) -> None:
        is_expected = False
        for expected in self._expected:
            if finding.node in expected:
                expected[finding.node] = is_expected = True
        if not is_expected and len(self.found) < self._entries:
            self.found.setdefault((finding.node, finding.address), finding)

    # ---- tracker of the second run's handles -------------------------------------------------------

    def missed(self, run: Run, spot: Spot) -> Spot:
        """Check a read. The handle keeps its own spot, and the node is not subscribed."""
        node = cast(Node, run.node)
        found = self._graph.canonical(spot)
        is_new = node not in found.readers
        for writer in writers_of(cast(Document, spot.document)):
            if writer is node:
                continue
            if is_new and (writer.status != CLEAN or not writer.live):
                self._stop("it looks at something that may not be fresh")
            if writer.error is not None:
                raise upstream_failed(writer)
        if is_new and self._graph.dirty_envelopes((found,)):
            self._stop("it looks at something that a materializer may change")
        return spot

    def absent(self, run: Run, document: Document) -> None:
        self._stop("it looks at a document that is not here")

    def write(self, run: Run, document: Document, patch: Patch) -> None:
        """Write into a transaction that is dropped."""
        node = cast(Node, run.node)
        if document.home is not node.home:
            raise AuthoringError(f"{node.id} writes {document!r} of another space: a run writes its own space only")
        if document.value is NOT_HERE:
            self._stop("it writes to a document that is not here")
        if run.transaction is None:
            run.transaction = node.home.begin(source=node, node=node.id, derived=True)
            run.overlay = {}
        run.transaction.write(document.key, patch)
        cast("dict[Document, None]", run.overlay)[document] = None

    def _stop(self, why: str) -> None:
        self._undecided = why
        raise Suspend


def _value(node: Node, result: object, before: MaybeValue) -> MaybeValue:
    if node.encode is not None:
        return node.encode(result, before)
    return ABSENT if result is ABSENT else freeze(result)


def _raised(node: Node, error: BaseException) -> Finding:
    text = f"{type(error).__name__}: {error}"
    return Finding(node=node.id, kind=node.kind.value, address="", first=ABSENT, second=ABSENT, error=text)


def _text(value: MaybeValue) -> str:
    return "absent" if value is ABSENT else shown(value)


def _is_newest(node: Node, made: Layer | TierEntry) -> bool:
    """True if nothing was committed or shown since the commit or the result of a run."""
    if isinstance(made, TierEntry):
        return node.outputs[0].entry is made and node.home.tier.version == made.version
    return node.home.next_local_seq == made.local_seq + 1
