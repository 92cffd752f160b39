"""Shadow runs: run nodes that count as clean on the stored data, and compare their writes with the stored results.

This proves that a restart may skip these nodes. Each node is run by itself, on a picture of the spaces, so that it
reads stored values and not new results of other nodes; its writes are compared and dropped. Effects are not run,
because they act outside. Nodes that are not clean would run anyway and are skipped. If a run reads an object that other
nodes would have to make first, the node is counted as undecided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, cast

from headwater.cells.open_run import Run
from headwater.data.address import doc_text
from headwater.data.diff import diff
from headwater.data.json_form import json_form
from headwater.data.patch import Patch
from headwater.data.reader_trie import Spot
from headwater.data.value import ABSENT, MaybeValue, freeze, lookup
from headwater.errors import AuthoringError
from headwater.protocol.observations import label_of
from headwater.replica.document import NOT_HERE, Document
from headwater.runtime.pieces.identity import kind_of
from headwater.runtime.resume.dry_nodes import DryNode, DryNodes, OpenDry, Read
from headwater.runtime.resume.limits import DEFAULT_RESUME_LIMITS, ResumeLimits
from headwater.runtime.resume.preview import CLEAN, PreviewInput, fates_of, register_stored
from headwater.scheduler.failures import INTERRUPTS
from headwater.scheduler.node import Node, NodeKind
from headwater.scheduler.suspension import Suspend

__all__ = ["ShadowFinding", "ShadowReport", "shadowed"]

Progress = Callable[[int, int], object]
NOTE: Final = "/folded"
"""Ending of the id of the document in which a fold keeps its checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowFinding:
    """A node that counts as clean and would write another value."""

    space: str
    piece: str
    node: str
    kind: str
    address: str  # of the value; empty: the run raised an error
    stored: MaybeValue
    new: MaybeValue
    error: str = ""

    def as_json(self) -> dict[str, Any]:
        made: dict[str, Any] = {name: getattr(self, name) for name in ("space", "piece", "node", "kind", "address")}
        for name, value in (("stored", self.stored), ("new", self.new)):
            if value is not ABSENT:
                made[name] = json_form(value)
        return made | ({"error": self.error} if self.error else {})


@dataclass(slots=True, kw_only=True)
class ShadowReport:
    """The results of shadow runs."""

    checked: int = 0  # runs that were compared
    effects: int = 0  # clean effects, which are not run
    not_clean: int = 0  # would run at a start
    undecided: dict[str, str] = field(default_factory=dict)  # nodes without a result, each with the reason
    findings: list[ShadowFinding] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.findings


async def shadowed(
    known: Iterable[PreviewInput], read: Read, progress: Progress | None = None, *, open_dry: OpenDry
) -> ShadowReport:
    """Run every node that counts as clean on the stored data, and compare its writes with the stored results.

    `open_dry` opens the runtime that the nodes run in.
    """
    report, everything = ShadowReport(), list(known)
    async with open_dry(read) as dry_nodes:
        for each in everything:
            register_stored(dry_nodes, each)
        clean = [dry_node for each in everything for dry_node in _clean(dry_nodes, each, report)]
        # Nodes that keep rows and children come last: their runs may remove some.
        clean.sort(key=lambda dry_node: dry_node.identity.started is not None)
        shadow = _Shadow(dry_nodes, frozenset(_made_by(clean)))
        for done, dry_node in enumerate(clean):
            if progress is not None:
                progress(done, len(clean))
            shadow.check(dry_node, report)
        if progress is not None:
            progress(len(clean), len(clean))
    return report


def _clean(dry_nodes: DryNodes, known: PreviewInput, report: ShadowReport) -> list[DryNode]:
    found = []
    for node, (fate, _, _) in fates_of(dry_nodes, known).items():
        at = (known.space, node.piece, (node.member, node.child, node.scope, node.principal))
        dry_node = dry_nodes.nodes.get(at)
        if fate == CLEAN and dry_node is not None:
            found.append(dry_node)
        else:
            report.not_clean += dry_node is not None
    return found


def _made_by(nodes: Iterable[DryNode]) -> Iterable[Document]:
    for dry_node in nodes:
        yield from dry_node.node.outputs


class _Shadow:
    """The tracker of shadow runs: loads documents that are read, and keeps writes in a transaction that is dropped."""

    __slots__ = ("_core", "_dry_nodes", "_limits", "_missing", "_run", "_sure", "_undecided")
    prepare: ClassVar[None] = None
    perform: ClassVar[None] = None

    def __init__(
        self,
        dry_nodes: DryNodes,
        sure: frozenset[Document],
        limits: ResumeLimits = DEFAULT_RESUME_LIMITS,
    ) -> None:
        self._limits = limits
        self._core = dry_nodes.core
        self._dry_nodes = dry_nodes
        self._sure = sure  # results of clean nodes
        self._run = Run(self)
        self._undecided = ""
        self._missing = False

    def check(self, dry_node: DryNode, report: ShadowReport) -> None:
        node, space = dry_node.node, dry_node.instance.space.name
        label = label_of(dry_node.observed.node)
        if node.kind is NodeKind.EFFECT:
            report.effects += 1
            return
        for document in (*node.outputs, *(inside for inside, _ in node.envelope)):
            self._fetch(document)
        differences = [] if node.removed else self._attempts(node)
        if node.removed:
            self._undecided = "its piece is no longer kept by its parent"
        if self._undecided:
            report.undecided[f"{space}/{label}"] = self._undecided
            return
        report.checked += 1
        piece, kind = dry_node.observed.node.piece, kind_of(dry_node.observed.kind)
        for address, stored, new, error in differences:
            report.findings.append(
                ShadowFinding(
                    space=space,
                    piece=piece,
                    node=label,
                    kind=kind,
                    address=address,
                    stored=stored,
                    new=new,
                    error=error,
                )
            )

    def _attempts(self, node: Node) -> list[tuple[str, MaybeValue, MaybeValue, str]]:
        for _ in range(self._limits.shadow_attempts):
            self._undecided, self._missing = "", False
            found = self._attempt(node)
            if not self._missing:
                return found
        self._undecided = "a document that it reads cannot be read"
        return []

    def _attempt(self, node: Node) -> list[tuple[str, MaybeValue, MaybeValue, str]]:
        run, current = self._run, self._core.current
        run.number = current.number_apart()
        run.node = node
        run.reads, run.place, run.log = [None], 0, None
        current.run = run
        try:
            result = node.fn()
            current.run = None
            return self._differences(node, run, result)
        except Suspend:
            self._undecided = self._undecided or "it would have to wait"
            return []
        except INTERRUPTS:
            raise
        except BaseException as error:  # The author's code: the stored run succeeded, this one failed.
            return [("", ABSENT, ABSENT, f"{type(error).__name__}: {error}")]
        finally:
            current.run = None
            if run.transaction is not None:
                node.home.drop(run.transaction)
                run.transaction = run.overlay = None
            run.node = None

    def _differences(self, node: Node, run: Run, result: object) -> list[tuple[str, MaybeValue, MaybeValue, str]]:
        written: dict[Document, MaybeValue] = {}
        for document in run.overlay or ():
            assert run.transaction is not None
            written[document] = run.transaction.peek(document.key)
        if node.returns and node.outputs:
            document = node.outputs[0]
            before = written.get(document, cast(MaybeValue, document.value))
            written[document] = _value(node, result, before)
        return [
            (
                doc_text(document.key, patch.path),
                lookup(cast(MaybeValue, document.value), patch.path),
                lookup(after, patch.path),
                "",
            )
            for document, after in written.items()
            if not document.key.id.endswith(NOTE)
            for patch in diff(cast(MaybeValue, document.value), after)
        ]

    def _fetch(self, document: Document) -> None:
        if document.value is NOT_HERE:
            self._core.load(document)

    # ---- the tracker of the run ----------------------------------------------

    def missed(self, run: Run, spot: Spot) -> Spot:
        document = cast(Document, spot.document)
        if document in self._dry_nodes.keepers and document not in self._sure:
            self._undecided = f"it looks at {doc_text(document.key)}, which would be put together anew"
            raise Suspend
        self._fetch(document)
        return spot

    def absent(self, run: Run, document: Document) -> None:
        self._fetch(document)
        self._missing = document.value is not NOT_HERE
        self._undecided = "" if self._missing else f"{doc_text(document.key)} cannot be read"
        raise Suspend

    def write(self, run: Run, document: Document, patch: Patch) -> None:
        """Write into a transaction that is dropped."""
        node = cast(Node, run.node)
        if document.home is not node.home:
            raise AuthoringError(f"{node.id} writes {document!r} of another space: a run writes its own space only")
        self._fetch(document)
        if run.transaction is None:
            run.transaction = node.home.begin(source=node, node=node.id, derived=True)
            run.overlay = {}
        run.transaction.write(document.key, patch)
        cast("dict[Document, None]", run.overlay)[document] = None


def _value(node: Node, result: object, before: MaybeValue) -> MaybeValue:
    if node.encode is not None:
        return node.encode(result, before)
    return ABSENT if result is ABSENT else freeze(result)
