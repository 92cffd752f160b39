"""The reporter: tells the engine which addresses the runs of one node read. Upholds I7.

A `RunReporter` belongs to one node. After each completed run it reports the addresses that the run read: with the run's
commit or, if the run changed nothing, in an observation of its own. Parts that are the same as in the run before are
the same bytes. A run that cannot be compared later is reported without a fingerprint, and its node is never found
clean. Stopped attempts and their writes are not reported. The reporter decides the content of an observation and
nothing about running.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Final, Protocol, cast

from headwater.data.address import Depth, DocKey
from headwater.data.ids import derive, derive_cached
from headwater.data.path import Path
from headwater.data.reader_trie import Spot
from headwater.protocol.observations import About, Footprint, ForeignRead, Observed, Touched, encode_part
from headwater.replica.document import Document, EntryState, TierEntry
from headwater.replica.observation_queue import Cause, ObservationQueue, RunDraft
from headwater.replica.pending import Fate, Layer
from headwater.replica.replica import Replica
from headwater.scheduler.limits import SchedulerLimits
from headwater.scheduler.node import CLEAN, Node

FAILURE_CHARACTERS: Final = 1_000
"""Characters of an error message that the id of a failure depends on. Stored ids are compared: do not change it."""
_DOCUMENT: Final[Callable[[tuple[Document, Path]], Document]] = itemgetter(0)
SESSION: Final = "session:"
"""Prefix of the scope of session documents: the next process is another session."""


class NodeFacts(Protocol):
    """Facts about one node that its reporter needs, from the owner of the node."""

    def describe(self) -> About:
        """Return the identity of the node and the description of its code, the same in every run."""

    def imply(self, documents: list[Document]) -> str | None:
        """Return the defaults that unwritten documents read as. None: unknown."""

    def started(self) -> tuple[str, ...] | None:
        """Return the keys of children to resume without a run. None: they cannot be resumed."""

    @property
    def keeps_children(self) -> bool:
        """True if the node keeps children that `started` lists."""

    def name_of(self, replica: Replica) -> str | None:
        """Return the name of a replica's space. None: it is not a space, as the clock."""

    def chain_of(self, replica: Replica) -> int | None:
        """Return the identity of the log of a replica's space. None: unknown."""

    def on_unsure(self, node: Node) -> None:
        """A foreign read has no verdict yet: call `report_again` when it has one."""


class RunReporter:
    """Reporter of the runs of one node."""

    __slots__ = (
        "_about_known",
        "_about_unknown",
        "_due",
        "_facts",
        "_footprint",
        "_foreign",
        "_found",
        "_implied",
        "_is_comparable",
        "_is_standing",
        "_keeps_children",
        "_listed",
        "_places",
        "_reads",
        "_searched_reads",
        "_spots",
        "_unsure",
        "is_told",
        "runs",
    )

    def __init__(self, runs: ObservationQueue, facts: NodeFacts, limits: SchedulerLimits) -> None:
        self.runs = runs
        self._facts = facts
        self._keeps_children = facts.keeps_children
        self._searched_reads = limits.searched_reads
        self._unsure: tuple[Cause, int] | None = None  # cause and duration of the run to report again
        self._is_standing = False  # it is reported again for a write of its own space
        self._implied: str | None = None  # the defaults that its reads depend on; None: unknown
        self._about_known = self._about_unknown = (
            b""  # its description with and without its fingerprint; empty: not made
        )
        self._reads: Sequence[Spot | None] | None = None  # reads of the run that the cached parts describe
        self._listed: tuple[str, ...] = ()
        self._found: tuple[tuple[Document, Path], ...] = ()
        self._spots: list[Spot] = []  # reads of its own space, as the footprint lists them
        self._places: list[tuple[Document, Path]] = []  # the same, followed by its result and found places
        self._foreign: list[Spot] = []
        self._footprint = b""
        self._is_comparable = False
        self._due: tuple[DocKey, Path] | None = None  # the write since its last run that it runs for, if known
        self.is_told = False  # its last run was reported, and can be compared

    def forget(self) -> None:
        """Drop cached descriptions: the code of the node or of its piece may have changed."""
        self._about_known = self._about_unknown = b""
        self._implied = None

    def describe(self) -> About:
        """Return the node's identity and the description of its code."""
        return self._facts.describe()

    def set_cause(self, observed: Observed) -> None:
        """Note that the node will run for a write after an observation. The last such write is reported as cause."""
        place, _ = max(observed.stale, key=lambda each: each[1])
        self._due = (observed.reads[place].doc, observed.reads[place].path)

    def _about(self, is_known: bool) -> bytes:
        """Make the description of the node, with or without its fingerprint."""
        said = self._facts.describe()
        if self._implied is None:
            self._implied = self._below()
        fingerprint = standing_on(said.fingerprint, self._implied) if is_known else ""
        found = encode_part(About(said.node, said.kind, fingerprint, said.gate))
        if is_known:
            self._about_known = found
        else:
            self._about_unknown = found
        return found

    def report_stop(self, node: Node, *, is_clean: bool) -> None:
        """Report the last run of a node that is stopped as of now, if the node is clean."""
        if is_clean:
            self.runs.freeze(node, node.home)
        elif not self.runs.is_frozen(node):  # It was reported when `Scheduler.outdate` made it invalid.
            self.runs.drop(node)

    def report_removal(self, node: Node) -> None:
        """Report that the node was removed, so that its observations are deleted."""
        self.runs.drop(node)
        self.runs.gone(self._about_unknown or self._about(False), node.home.confirmed.seq)

    def report_run(
        self,
        node: Node,
        made: Layer | TierEntry | None,
        causes: Mapping[Spot, object] | None,
        failure: Exception | None,
        took_us: int,
    ) -> None:
        """Report a completed run: with its commit or result, without one because nothing changed, or with a failure."""
        runs = self.runs
        self.is_told = False
        layer = made if isinstance(made, Layer) else None
        if not runs.is_on or (layer is not None and layer.fate is Fate.LOCAL):
            return  # A layer that is never sent has no observation.
        children = self._facts.started() if self._keeps_children else ()
        if node.reads is not self._reads or (children or ()) != self._listed or node.found != self._found:
            self._look(node, children or ())
        if self._implied is None:
            self._implied = self._below()
        # I7: a run that cannot be compared later is reported without a fingerprint.
        is_known = (
            self._is_comparable
            and self._implied is not None
            # Otherwise the run was shown a failure, which cannot be compared later.
            and (node.expect is node.reads or node.reads[0] is None)
            and node.cleanup is None  # Otherwise the effect's setup is gone with the process.
            and children is not None
            and (self._keeps_children or not node.children)
        )
        foreign = self._seen_elsewhere() if self._foreign else ()
        failed = "" if failure is None else derive("failure", type(failure).__name__, str(failure)[:FAILURE_CHARACTERS])
        # Documents that arrived meanwhile, such as the record of its piece, were not the reason for this run.
        cause = self._cause(node, causes) if self._due is None else self._due
        self._due = self._unsure = None
        self._is_standing = False
        if foreign is None:
            if is_known and failure is None and not self._stays_local():
                self._unsure = (cause, took_us)
                self._facts.on_unsure(node)
            is_known, foreign = False, ()
        about = (self._about_known if is_known else self._about_unknown) or self._about(is_known)
        is_known = is_known and failure is None
        if layer is None and (node.status != CLEAN or (not node.home.may_write and self._stands_on_local())):
            runs.drop(node)
            return
        self.is_told = is_known
        draft = RunDraft(
            about, self._footprint, self._places, failed=failed, cause=cause, foreign=foreign, took_us=took_us
        )
        # A commit is sent before the results that its run read: the run is then observed after these, as of them.
        is_alone = layer is not None and not any(document.entry is not None for document, _ in self._places)
        runs.record(node, draft, layer.local_seq if layer is not None and is_alone else 0)

    def waits(self) -> bool:
        """True if its last run is to be reported again, and a value that it depends on is not confirmed yet."""
        if self._unsure is None:
            return False
        documents = [cast(Document, spot.document) for spot in self._foreign]
        if self._is_standing:
            documents += [document for document, _ in self._places]
        if any(document.entry is not None and document.is_unconfirmed() for document in documents):
            return True
        return any(layer.fate is not Fate.LOCAL for document in documents for layer in document.layers)

    def report_as_standing(self, node: Node) -> None:
        """Have the last run reported again: a document was written since, and its reads show no difference.

        The engine, which does not know the defaults of cells, would otherwise count the node as stale.
        """
        # fault+ reporter.standing_runs_not_told: return
        if self._unsure is None and (self.is_told if node.runs else node.as_of):
            children = self._facts.started() if self._keeps_children else ()
            if node.reads is not self._reads and children is not None:
                self._look(node, children)
            self._unsure, self._is_standing = (None, 0), True
            self._facts.on_unsure(node)

    def report_again(self, node: Node) -> None:
        """Report the last run as of now: values that it depends on had no verdict then, and are confirmed by now."""
        unsure, self._unsure, self._is_standing = self._unsure, None, False
        foreign = self._seen_elsewhere() if unsure is not None and node.reads is self._reads else None
        if unsure is None or foreign is None or not self.runs.is_on or node.error is not None:
            return
        if not self._stands_on_local():
            cause, took_us = unsure
            self.is_told = True
            about = self._about_known or self._about(True)
            draft = RunDraft(about, self._footprint, self._places, cause=cause, foreign=foreign, took_us=took_us)
            self.runs.record(node, draft)

    def reads_elsewhere(self, node: Node) -> bool:
        """True if the node reads another space."""
        return bool(self._foreign) or bool(node.elsewhere)

    def rejected(self, local_seq: int) -> None:
        """Withdraw the observation of a commit that was rejected, which may never have been sent."""
        self.runs.ended(local_seq)

    # ---- reads -------------------------------------------------------------------------------------

    def _look(self, node: Node, children: tuple[str, ...]) -> None:
        """Rebuild the cached footprint after the node's reads changed."""
        self._reads, self._listed, self._found = node.reads, children, node.found
        home, outputs, is_comparable = node.home, node.outputs, True
        spots: list[Spot] = []
        foreign: list[Spot] = []
        touched: list[Touched] = []
        places: list[tuple[Document, Path]] = []
        # fault materializers.reads_not_told: for spot in () if node.envelope else node.reads:
        for spot in node.reads:
            if spot is None:
                continue
            document: Document = spot.document  # type: ignore[assignment]  # Every spot is one of a document's.
            key = document.key
            if document in outputs or key.scope.startswith(SESSION):
                is_comparable = False
            if document.home is home:
                spots.append(spot)
                touched.append(Touched(key, spot.path, spot.depth))
                places.append((document, spot.path))
            elif self._facts.name_of(document.home) is not None:
                foreign.append(spot)
            else:
                is_comparable = False  # The clock: its value will be another one.
        if node.returns:
            # A write that replaces or deletes the result makes the node stale.
            touched.append(Touched(outputs[0].key, (), Depth.DEEP))
            places.append((outputs[0], ()))
        for inside, path in node.found:
            # I1: found in place counts as read. A resumed node is subscribed to these places, too, until its next run.
            touched.append(Touched(inside.key, path, Depth.DEEP))
            places.append((inside, path))
        # fault+ observations.read_missing: cut = len(touched) > 1
        # fault+ observations.read_missing: touched, places, spots = touched[cut:], places[cut:], spots[cut:]
        self._spots, self._foreign, self._places, self._is_comparable = spots, foreign, places, is_comparable
        self._footprint = encode_part(Footprint(tuple(touched), children))
        implied = self._below()
        if implied != self._implied:
            self._implied, self._about_known, self._about_unknown = implied, b"", b""

    def _below(self) -> str | None:
        """Return the defaults that its reads depend on where nothing is written.

        They are as much a part of the node's behaviour as its code.
        """
        documents = [*map(_DOCUMENT, self._places)]
        if self._foreign:
            documents += [cast(Document, spot.document) for spot in self._foreign]
        return self._facts.imply(documents)

    def _stands_on_local(self) -> bool:
        """True if a value that the node read or found will never be sent."""
        return any(is_local(document) for document, _ in self._places)

    def _seen_elsewhere(self) -> tuple[ForeignRead, ...] | None:
        """Return the foreign reads with their seqs. None: one depends on a commit that is not confirmed there."""
        found = []
        for spot in self._foreign:
            document = cast(Document, spot.document)
            home = document.home
            name = self._facts.name_of(home)
            # fault foreign_reads.unconfirmed_told: if name is None:
            if document.layers or document.entry is not None or name is None:
                return None
            chain = self._facts.chain_of(home)
            found.append(ForeignRead(name, document.key, spot.path, spot.depth, home.confirmed.seq, chain, home.branch))
        # fault foreign_reads.last_not_told: return tuple(found[:-1])
        return tuple(found)

    def _stays_local(self) -> bool:
        """True if a foreign read depends on a layer that stays in this runtime, and will never be confirmed."""
        return any(is_local(cast(Document, spot.document)) for spot in self._foreign)

    def _cause(self, node: Node, causes: Mapping[Spot, object] | None) -> Cause:
        """Return one of the changes that made the node run."""
        for spot in causes or ():
            if spot in self._spots[: self._searched_reads]:
                return self._spots.index(spot)
            document = cast(Document, spot.document)
            return (document.key, spot.path) if document.home is node.home else None
        return None


def is_local(document: Document) -> bool:
    """True if a document shows a value that stays in this runtime."""
    if document.entry is not None and document.entry.state is EntryState.LOCAL:
        return True
    return bool(document.layers) and any(layer.fate is Fate.LOCAL for layer in document.layers)


def standing_on(fingerprint: str, implied: str | None) -> str:
    """Combine a fingerprint with the defaults that reads depend on. Empty: the result cannot be compared."""
    if not fingerprint or implied is None:
        return ""
    return derive_cached("standing on", fingerprint, implied) if implied else fingerprint
