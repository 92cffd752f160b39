"""Persistence: what is told of the runs of a node, and how a node comes back without one. DESIGN.md section 7.

An account belongs to one node. After each completed run it says which addresses that run looked at, with the commit it
made or, if it changed nothing, by itself; what is the same as in the run before is the same bytes. What nobody could
compare later is told without a fingerprint, and is never clean. Attempts that were stopped are not told, nor is
anything that they meant to write. Owns what an observation says; decides nothing about running.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, cast

import msgspec

from headwater.data.address import Depth, DocKey
from headwater.data.ids import derive
from headwater.data.path import Path
from headwater.data.reader_trie import Spot
from headwater.protocol.commit import Read
from headwater.protocol.observations import About, Footprint, ForeignRead, Layers, Observed, Touched, encode_part
from headwater.replica.document import NOT_HERE, Document
from headwater.replica.observation_queue import Cause, ObservationQueue
from headwater.replica.pending import Fate, Layer
from headwater.replica.replica import Replica
from headwater.scheduler.graph.graph import Graph
from headwater.scheduler.node import CLEAN, INVALID, Node

AFRESH: Final[Sequence[Spot | None]] = (None,)
NEAR: Final = 64
"""So many of its reads are searched for a cause. One further away is told by its address."""
SESSION: Final = "session:"
"""How the scope of what one session has begins: the next process is another session."""


class Account:
    """What is told of the runs of one node."""

    __slots__ = (
        "_abouts",
        "_chain_of",
        "_describe",
        "_due",
        "_footprint",
        "_foreign",
        "_found",
        "_implied",
        "_imply",
        "_is_comparable",
        "_listed",
        "_name_of",
        "_on_elsewhere",
        "_on_unsure",
        "_places",
        "_reads",
        "_spots",
        "_started",
        "_unsure",
        "is_told",
        "runs",
    )

    def __init__(
        self,
        runs: ObservationQueue,
        describe: Callable[[], About],
        name_of: Callable[[Replica], str | None],
        *,
        started: Callable[[], tuple[str, ...] | None] | None = None,
        chain_of: Callable[[Replica], int | None] | None = None,
        on_elsewhere: Callable[[], object] | None = None,
        on_unsure: Callable[[Node], object] | None = None,
        imply: Callable[[list[Document]], str | None] | None = None,
    ) -> None:
        self.runs = runs
        self._describe = describe  # what is the same in every run of it
        self._name_of = name_of  # a space, by its replica; None: it is none, as the time is not
        self._chain_of = chain_of  # what names the log of a space where its replica is; None: nobody knows
        self._on_elsewhere = on_elsewhere  # it reads other documents of other spaces than before
        self._on_unsure = on_unsure  # what it read elsewhere has no verdict yet: `again` is worth it when it has
        self._unsure: tuple[Cause, int] | None = None  # what that will say beside
        self._imply = imply  # what documents read as where nothing was written; its answer None: nobody knows
        self._implied: str | None = None  # of the run that the rest is made of
        self._started = started  # what it keeps, as far as that comes back without a run; its answer None: it does not
        self._abouts: tuple[bytes, bytes] | None = None  # without a fingerprint, and with it
        self._reads: Sequence[Spot | None] | None = None  # of the run that the rest is made of
        self._listed: tuple[str, ...] = ()
        self._found: tuple[tuple[Document, Path], ...] = ()
        self._spots: list[Spot] = []  # of its own space, as the footprint lists them
        self._places: list[tuple[Document, Path]] = []  # the same, and its result behind them
        self._foreign: list[Spot] = []
        self._footprint = b""
        self._is_comparable = False
        self._due: tuple[DocKey, Path] | None = None  # what was written since its last run, if it runs for that
        self.is_told = False  # its last run was told, and can be compared

    def forget(self) -> None:
        """Its code may be another from now on, or the piece that it is a part of."""
        self._abouts = self._implied = None

    def said(self) -> About:
        """Which node it is, and what its code does."""
        return self._describe()

    def because(self, observed: Observed) -> None:
        """It is to run because of what was written since this was observed. The last write is told."""
        place, _ = max(observed.stale, key=lambda each: each[1])
        self._due = (observed.reads[place].doc, observed.reads[place].path)

    def _about(self, is_known: bool) -> bytes:
        if self._abouts is None:
            said = self._describe()
            if self._implied is None:
                self._implied = self._below()
            said = msgspec.structs.replace(said, fingerprint=standing_on(said.fingerprint, self._implied))
            self._abouts = (encode_part(msgspec.structs.replace(said, fingerprint="")), encode_part(said))
        return self._abouts[is_known]

    def gone(self, node: Node) -> None:
        """The node is no more: what is known of it is to be forgotten."""
        self.runs.gone(self._about(False), node.home.confirmed.seq)

    def ran(
        self,
        node: Node,
        layer: Layer | None,
        causes: Mapping[Spot, object] | None,
        failure: Exception | None,
        took_us: int,
    ) -> None:
        """A run came to its end: with a commit, without one because nothing changed, or with a failure."""
        runs = self.runs
        self.is_told = False
        if not runs.is_on or (layer is not None and layer.fate is Fate.LOCAL):
            return  # What stays here says nothing to anybody.
        children = () if self._started is None else self._started()
        if node.reads is not self._reads or (children or ()) != self._listed or node.found != self._found:
            self._look(node, children or ())
        if self._implied is None:
            self._implied = self._below()
        is_known = (
            self._is_comparable
            and self._implied is not None
            and node.expect is node.reads  # Otherwise it was shown a failure, which nobody will compare.
            and node.cleanup is None  # What it set up is gone with the process.
            and children is not None
            and (self._started is not None or not node.children)
        )
        foreign = self._seen_elsewhere() if self._foreign else ()
        failed = "" if failure is None else derive("failure", type(failure).__name__, str(failure)[:1_000])
        # What arrived here meanwhile, as the record of its piece does, was no reason to run.
        cause = self._cause(node, causes) if self._due is None else self._due
        self._due = self._unsure = None
        if foreign is None:
            if is_known and failure is None and self._on_unsure is not None and not self._stays_local():
                self._unsure = (cause, took_us)
                self._on_unsure(node)
            is_known, foreign = False, ()
        about = self._about(is_known)
        is_known = is_known and failure is None
        if layer is not None:
            self.is_told = is_known
            runs.ran(layer.local_seq, about, self._footprint, cause=cause, foreign=foreign, took_us=took_us)
            return
        layers = self._layers(node) if node.status == CLEAN else None
        if layers is not None:
            self.is_told = is_known
            seq = node.home.confirmed.seq
            runs.noted(
                about, self._footprint, seq, layers, failed=failed, cause=cause, foreign=foreign, took_us=took_us
            )

    def waits(self) -> bool:
        """Whether what its last run read elsewhere stands on something that is not confirmed there yet."""
        layers = [layer for spot in self._foreign for layer in cast(Document, spot.document).layers]
        return self._unsure is not None and any(layer.fate is not Fate.LOCAL for layer in layers)

    def again(self, node: Node) -> None:
        """What its last run read elsewhere had no verdict then, and is confirmed by now: it is told as of now."""
        unsure, self._unsure = self._unsure, None
        foreign = self._seen_elsewhere() if unsure is not None and node.reads is self._reads else None
        layers = self._layers(node) if foreign is not None and self.runs.is_on and node.error is None else None
        if unsure is not None and foreign is not None and layers is not None:
            cause, took_us = unsure
            seq = node.home.confirmed.seq
            self.is_told = True
            self.runs.noted(
                self._about(True), self._footprint, seq, layers, cause=cause, foreign=foreign, took_us=took_us
            )

    def reads_elsewhere(self, node: Node) -> bool:
        """Whether something that it read is for another space to say."""
        return bool(self._foreign) or bool(node.elsewhere)

    def rejected(self, local_seq: int) -> None:
        """Its commit will not land, and may never have been sent."""
        self.runs.ended(local_seq)

    # ---- what it looked at -------------------------------------------------------------------------

    def _look(self, node: Node, children: tuple[str, ...]) -> None:
        """Its reads are other ones: what is said of them is made once."""
        self._reads, self._listed, self._found = node.reads, children, node.found
        before = {spot.document for spot in self._foreign}
        self._spots, self._foreign, self._is_comparable = [], [], True
        # fault materializers.reads_not_told: for spot in () if node.envelope else node.reads:
        for spot in node.reads:
            if spot is None:
                continue
            document = cast(Document, spot.document)
            if document in node.outputs or document.key.scope.startswith(SESSION):
                self._is_comparable = False
            if document.home is node.home:
                self._spots.append(spot)
            elif self._name_of(document.home) is not None:
                self._foreign.append(spot)
            else:
                self._is_comparable = False  # The time: by then it is another.
        reads = [Touched(cast(Document, s.document).key, s.path, s.depth) for s in self._spots]
        self._places = [(cast(Document, spot.document), spot.path) for spot in self._spots]
        if node.returns:
            # Whoever replaces its result, or deletes it, leaves nothing that it could be clean about.
            reads.append(Touched(node.outputs[0].key, (), Depth.DEEP))
            self._places.append((node.outputs[0], ()))
        for inside, path in node.found:
            # I1: found in place counts as read. Until it has run again it is subscribed to that, too.
            reads.append(Touched(inside.key, path, Depth.DEEP))
            self._places.append((inside, path))
        # fault+ observations.read_missing: cut = len(reads) > 1
        # fault+ observations.read_missing: self._places, self._spots = self._places[cut:], self._spots[cut:]
        # fault observations.read_missing: self._footprint = encode_part(Footprint(tuple(reads[cut:]), children))
        self._footprint = encode_part(Footprint(tuple(reads), children))
        implied = self._below()
        if implied != self._implied:
            self._implied, self._abouts = implied, None
        if self._on_elsewhere is not None and before != {spot.document for spot in self._foreign}:
            self._on_elsewhere()

    def _below(self) -> str | None:
        """What its reads stand on where nothing is written: that is as much a part of what it did as its code."""
        if self._imply is None:
            return ""
        read = [document for document, _ in self._places]
        return self._imply(read + [cast(Document, spot.document) for spot in self._foreign])

    def _layers(self, node: Node) -> tuple[Layers, ...] | None:
        """The own commits that each read stands on. None: something that will never be told, or is dead."""
        if not any(document.layers for document, _ in self._places):
            return ()
        home = node.home
        home.tell()
        found: list[Layers] = []
        for document, path in self._places:
            under = home.pending.under(document, path, home.next_local_seq)
            if under.local or under.dead:
                return None
            found.append(under.spans)
        return tuple(found)

    def _seen_elsewhere(self) -> tuple[ForeignRead, ...] | None:
        """What it looked at in other spaces, as of when. None: on top of something that is not confirmed there."""
        found = []
        for spot in self._foreign:
            document = cast(Document, spot.document)
            name = self._name_of(document.home)
            # fault foreign_reads.unconfirmed_told: if name is None:
            if document.layers or name is None:
                return None
            home = document.home
            chain = None if self._chain_of is None else self._chain_of(home)
            found.append(ForeignRead(name, document.key, spot.path, spot.depth, home.confirmed.seq, chain, home.branch))
        # fault foreign_reads.last_not_told: return tuple(found[:-1])
        return tuple(found)

    def _stays_local(self) -> bool:
        """Whether something that it looked at elsewhere is nowhere but here, and will never be confirmed."""
        layers = [layer for spot in self._foreign for layer in cast(Document, spot.document).layers]
        return any(layer.fate is Fate.LOCAL for layer in layers)

    def _cause(self, node: Node, causes: Mapping[Spot, object] | None) -> Cause:
        """One of the changes that made it run."""
        for spot in causes or ():
            if spot in self._spots[:NEAR]:
                return self._spots.index(spot)
            document = cast(Document, spot.document)
            return (document.key, spot.path) if document.home is node.home else None
        return None


def standing_on(fingerprint: str, implied: str | None) -> str:
    """A fingerprint with what reads stand on where nothing is written. Empty: nobody can compare it."""
    if not fingerprint or implied is None:
        return ""
    return derive("standing on", fingerprint, implied) if implied else fingerprint


class Held(NamedTuple):
    """A read of another space that is known to hold there as of one of its seqs."""

    document: Document
    path: Path
    depth: Depth
    seq: int


def install(graph: Graph, node: Node, reads: Sequence[Read], seq: int, elsewhere: Sequence[Held] = ()) -> bool:
    """Have a node back as if it had just run: clean, and subscribed to what its last run read, as of a seq.

    False: something that it read was written here since then, or is being written, and it is as fresh as it was. What
    is not here is fetched, and tells when it arrives whether it was written after that seq. Each space has its own.
    """
    spots: dict[Spot, None] = {}
    own = [Held(node.home.documents.of(read.doc), read.path, read.depth, seq) for read in reads]
    for document, path, depth, held in (*own, *elsewhere):
        if document.layers and _is_written(document, path):
            return False
        if document.value is not NOT_HERE and document.written > held:
            return False
        if document in node.outputs:
            continue  # Its result: it is said to be what it made, and no read of it.
        spots[graph.canonical(Spot(document, path, depth))] = None
    # I7: it is told of what changes there from then on, and of nothing that it knew.
    node.elsewhere = {each.document.home: each.seq for each in elsewhere} or None
    # fault resume.not_subscribed: graph.apply_read_delta(node, [None])
    graph.apply_read_delta(node, [*spots, None])
    node.expect = AFRESH  # These are no edges that anything was ordered by here: its next run looks at each anew.
    node.status, node.causes, node.as_of = CLEAN, None, seq
    return True


def reconnect(graph: Graph, node: Node, reads: Sequence[Read]) -> None:
    """Have a node back that is to run, with what its last run read: whatever that stands on is wanted until then."""
    documents = [(node.home.documents.of(read.doc), read) for read in reads]
    spots = [Spot(document, read.path, read.depth) for document, read in documents if document not in node.outputs]
    # fault resume.not_subscribed: graph.apply_read_delta(node, [None])
    graph.apply_read_delta(node, [*dict.fromkeys(map(graph.canonical, spots)), None])
    node.expect = AFRESH
    node.status = INVALID


def _is_written(document: Document, path: Path) -> bool:
    """Whether a commit of this runtime that is not confirmed yet had a say in what is at a place."""
    home = document.home
    home.tell()
    return bool(home.pending.under(document, path, home.next_local_seq))
