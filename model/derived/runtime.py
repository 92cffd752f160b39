"""A runtime of the model: confirmed state, authored layers, the tier, nodes, and the messages without an answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from model.derived.graph import DISPUTED, DOCUMENTS, FAILED, NODES, OF_PIECE, PATCHED, RECORD, Value, result_of
from model.derived.messages import Cause, Commit, Fate, Id, Message, Origin, Read, Sync, Verdict, WaveEntry
from model.derived.rules import Elision, Outputs, Rules, Superseded
from model.messages import Broken

HOPS_MOST: Final = 3
"""A node that a change with more hops made invalid pauses. The product has 10, and pauses that end."""

NO_CAUSES: Final[frozenset[Cause]] = frozenset()


class State(IntEnum):
    """Whether the last run of a node still counts."""

    NEW = 0
    INVALID = 1
    CLEAN = 2


class Stage(IntEnum):
    """How far the newest result of a node has come."""

    UNSENT = 0
    SENT = 1
    ACCEPTED = 2
    SUPERSEDED = 3
    LOCAL = 4


class Node(NamedTuple):
    """A registered computation: its last run, and why it is to run again. `owed` is for the checker."""

    state: State = State.NEW
    result: Value = None
    reads: frozenset[str] = frozenset()
    causes: frozenset[Cause] = NO_CAUSES
    hops: int = 0
    paused: bool = False
    owed: frozenset[Cause] = NO_CAUSES  # causes of runs since the last accepted result


class Entry(NamedTuple):
    """The newest result of a node."""

    value: Value
    version: int
    reads: frozenset[str]
    causes: frozenset[Cause]
    hops: int
    stage: Stage = Stage.UNSENT
    seq: int = 0  # accepted: its seq; superseded: the seq of the judgement
    message: int = 0  # the message that carried this version
    frozen: bool = False


class Layer(NamedTuple):
    """An authored commit above the confirmed state."""

    commit: Commit
    message: int = 0  # 0: not sent
    seq: int = 0  # accepted, and not yet covered by the confirmed seq

    @property
    def names(self) -> frozenset[Id]:
        return frozenset().union(*(read.layers for read in self.commit.reads))

    def is_raw(self, node: str) -> bool:
        """Whether the commit writes the output of a node that stays registered."""
        written = [document for document, _ in self.commit.writes]
        return node in written and RECORD not in written


class Runtime:
    """One session. Every method is one step of a single thread."""

    __slots__ = (
        "aside",
        "asked",
        "changes",
        "confirmed",
        "differs",
        "down",
        "fates",
        "fingerprint",
        "gated",
        "is_connected",
        "layers",
        "made",
        "messages",
        "nodes",
        "number",
        "read_only",
        "reports",
        "rules",
        "seq",
        "session",
        "stopped",
        "tier",
        "unanswered",
        "uncovered",
        "up",
        "versions",
        "wanted",
        "written",
    )

    def __init__(
        self, number: int, rules: Rules, *, differs: bool, fingerprint: str, read_only: bool, gated: bool
    ) -> None:
        self.number = number
        self.rules = rules
        self.differs = differs
        self.fingerprint = fingerprint
        self.read_only = read_only
        self.gated = gated
        self.made = 0
        self.changes = 0
        self.versions = 0
        self.reports = 0
        self.fates: dict[Id, int] = {}
        self.wanted: frozenset[str] = frozenset()
        self.begin(number, 0, dict.fromkeys(DOCUMENTS), {})

    def begin(self, session: int, seq: int, values: Mapping[str, Value], written: Mapping[str, int]) -> None:
        """Begin a session with nothing but a confirmed state."""
        self.session = session
        self.seq = seq
        self.confirmed = dict(values)
        self.written = dict(written)
        self.layers: tuple[Layer, ...] = ()
        self.tier: dict[str, Entry] = {}
        self.nodes = dict.fromkeys(NODES, Node())
        self.stopped = False
        self.aside: frozenset[str] = frozenset()
        self.asked: frozenset[str] = frozenset()
        self.unanswered: dict[int, Message] = {}
        self.uncovered: dict[str, int] = {}
        self.messages = 0
        self.is_connected = False
        self.up: tuple[Message, ...] = ()
        self.down: tuple[Verdict | Sync, ...] = ()

    def copy(self) -> Runtime:
        other = object.__new__(Runtime)
        for name in Runtime.__slots__:
            value = getattr(self, name)
            setattr(other, name, dict(value) if isinstance(value, dict) else value)
        return other

    def key(self) -> object:
        """All that later moves depend on, without causes and counters: a version only matters as the newest or not."""
        messages = tuple(
            (
                message.number,
                tuple((commit.id, commit.reads) for commit in message.commits),
                tuple(
                    (sent.node, sent.value, sent.base, sent.reads, self._is_newest(sent)) for sent in message.entries
                ),
            )
            for message in self.unanswered.values()
        )
        return (
            self.seq,
            tuple(self.confirmed.values()),
            tuple((layer.commit.id, layer.commit.reads, layer.message, layer.seq) for layer in self.layers),
            tuple(
                (node, entry.value, entry.stage, entry.seq, entry.message, entry.frozen, entry.reads)
                for node, entry in sorted(self.tier.items())
            ),
            tuple((node.state, node.result, node.reads, node.hops, node.paused) for node in self.nodes.values()),
            (self.wanted, self.stopped, self.aside, self.asked, self.is_connected, self.messages),
            messages,
            tuple(sorted(self.uncovered.items())),
            tuple(message.number for message in self.up),
            self.down,
        )

    def _is_newest(self, sent: WaveEntry) -> bool:
        entry = self.tier.get(sent.node)
        return entry is not None and entry.version == sent.version

    # ---- what is shown -------------------------------------------------------------------------------

    def shown(self, document: str) -> Value:
        entry = self.tier.get(document)
        if entry is not None:
            return entry.value
        for layer in reversed(self.layers):
            for written, value in layer.commit.writes:
                if written == document:
                    return value
        return self.confirmed[document]

    def view(self) -> dict[str, Value]:
        return {document: self.shown(document) for document in DOCUMENTS}

    def is_registered(self, node: str) -> bool:
        return node != OF_PIECE or (not self.stopped and self.shown(RECORD) is not None)

    def yields(self, node: str) -> bool:
        """Whether an authored commit wrote the output of a node and has not ended: the node waits until it has."""
        return any(layer.is_raw(node) for layer in self.layers)

    def live(self) -> set[str]:
        """The nodes that are demanded, or read by a live node."""
        found: set[str] = set()
        waiting = list(self.wanted)
        while waiting:
            node = waiting.pop()
            if node not in found and self.is_registered(node):
                found.add(node)
                waiting += [document for document in self.nodes[node].reads if document in NODES]
        return found

    def layers_of(self, document: str) -> frozenset[Id]:
        return frozenset(
            layer.commit.id for layer in self.layers if any(document == written for written, _ in layer.commit.writes)
        )

    # ---- the feed ------------------------------------------------------------------------------------

    def announce(self, before: Mapping[str, Value], hops: Mapping[str, int]) -> None:
        """Tell nodes of each difference between `before` and the documents shown now, then drop what fell with it."""
        while True:
            after = self.view()
            unfounded: set[str] = set()
            for document in DOCUMENTS:
                if before[document] != after[document]:
                    unfounded |= self._tell(document, hops.get(document, 0))
            if self.rules.dormant_dropped:
                live = self.live()
                unfounded |= {
                    node
                    for node in self.tier
                    if node not in live and self.is_registered(node) and self.nodes[node].state is not State.CLEAN
                }
            dropped = [node for node in sorted(unfounded) if self._drop(node)]
            if not dropped:
                return
            before = after

    def _tell(self, document: str, hops: int) -> set[str]:
        """Invalidate the readers of a document; answer the entries that fall with its old value."""
        self.changes += 1
        cause = (document, self.changes)
        for node in NODES:
            if document in self.nodes[node].reads and document != node:
                self.invalidate(node, cause, hops)
        unfounded = (
            {node for node, entry in self.tier.items() if entry.frozen and document in entry.reads}
            if self.rules.stop_freezes
            else set()
        )
        if document == RECORD:
            self.nodes[OF_PIECE] = Node()  # another piece, or none
            if self.rules.piece_dropped:
                unfounded.add(OF_PIECE)
        return unfounded

    def _drop(self, node: str) -> bool:
        """Take an entry out of the tier; its causes wait for the next run of its node."""
        entry = self.tier.pop(node, None)
        if entry is None:
            return False
        if self.rules.causes_join and entry.stage is not Stage.ACCEPTED:
            self.nodes[node] = self.nodes[node]._replace(causes=self.nodes[node].causes | entry.causes)
        return True

    def invalidate(self, node: str, cause: Cause, hops: int) -> None:
        known = self.nodes[node]
        paused = hops > HOPS_MOST and (known.paused or known.state is State.CLEAN)
        if paused and not known.paused:
            self.reports += 1
        self.nodes[node] = known._replace(
            state=State.NEW if known.state is State.NEW else State.INVALID,
            causes=known.causes | {cause},
            hops=max(known.hops, hops),
            paused=paused,
        )

    def arm(self, yielding: Iterable[str]) -> None:
        """Invalidate the nodes that yielded to an authored commit that has ended."""
        for node in yielding:
            if not self.yields(node) and self.rules.overwritten_armed:
                self.changes += 1
                self.invalidate(node, (node, self.changes), 0)

    def yielding(self) -> list[str]:
        return [node for node in NODES if self.yields(node)]

    # ---- runs ----------------------------------------------------------------------------------------

    def runnable(self) -> list[str]:
        """The lowest node that is to run now; if that one is gated, the next one may run before it."""
        live = self.live()
        found = [node for node in NODES if node in live and self.is_runnable(node)]
        return found[: 2 if self.gated and found[:1] == [DISPUTED] else 1]

    def is_runnable(self, node: str) -> bool:
        known = self.nodes[node]
        return known.state is not State.CLEAN and not known.paused and not self.yields(node)

    def evaluate(self, node: str) -> None:
        """Run a node unless it is fresh; invalid nodes that it reads run first."""
        if self.nodes[node].state is State.CLEAN:
            # A clean node may stand on an invalid one that nothing demanded until now.
            for document in NODES:
                if document in self.nodes[node].reads:
                    self._evaluate_upstream(document)
        if not self.is_runnable(node):
            return
        if self.nodes[node].state is State.INVALID and not self.nodes[node].causes:
            raise Broken("I3", f"{node} runs for nothing")
        reads: set[str] = {RECORD} if node == OF_PIECE else set()

        def read(document: str) -> Value:
            reads.add(document)
            self._evaluate_upstream(document)
            return self.shown(document)

        value = result_of(node, differs=self.differs, read=read)
        self._show(node, value, frozenset(reads))

    def _evaluate_upstream(self, document: str) -> None:
        """Evaluate an input of a run. A gated node that has run is not: its last value is read."""
        if document not in NODES or not self.is_registered(document):
            return
        if self.gated and document == DISPUTED and self.nodes[document].state is State.INVALID:
            return
        self.evaluate(document)

    def _show(self, node: str, value: Value, reads: frozenset[str]) -> None:
        known, old = self.nodes[node], self.tier.get(node)
        causes = known.causes
        if old is not None and old.stage is not Stage.ACCEPTED and self.rules.causes_join:
            causes |= old.causes
        before = self.view()
        self.versions += 1
        self.nodes[node] = Node(State.CLEAN, value, reads, owed=known.owed | known.causes)
        hops = known.hops if self.rules.hops_counted else 0
        stage = Stage.LOCAL if value == FAILED or self.read_only else Stage.UNSENT
        if self.rules.elision is Elision.RUN and value == self.confirmed[node] and not self.layers_of(node):
            self.tier.pop(node, None)
            self.nodes[node] = self.nodes[node]._replace(owed=NO_CAUSES)
        else:
            self.tier[node] = Entry(value, self.versions, reads, causes, hops, stage)
        self.announce(before, {node: hops})

    def resume(self, origins: Mapping[str, Origin]) -> None:
        """Install the stored results whose reads are current, without a run."""
        for node in NODES:
            origin = origins.get(node)
            if origin is not None and self.is_registered(node) and self._is_installable(node, origin):
                self.nodes[node] = Node(State.CLEAN, self.confirmed[node], origin.reads - {node})

    def want(self, node: str) -> None:
        """Demand a node, or cease to."""
        self.wanted ^= {node}
        self.announce(self.view(), {})

    def stop(self) -> None:
        """Stop the piece: its node is not registered any more, its result is frozen."""
        was_clean = self.nodes[OF_PIECE].state is State.CLEAN
        before = self.view()
        self.stopped = True
        entry = self.tier.get(OF_PIECE)
        if entry is not None:
            if was_clean and entry.stage is not Stage.LOCAL:
                self.tier[OF_PIECE] = entry._replace(frozen=True)
            else:
                self._drop(OF_PIECE)
        self.nodes[OF_PIECE] = Node(owed=self.nodes[OF_PIECE].owed, causes=self.nodes[OF_PIECE].causes)
        if self.rules.drops_announced:
            self.announce(before, {})

    def start(self) -> None:
        """Start the stopped piece: its node has not run yet."""
        before = self.view()
        self.stopped = False
        self._drop(OF_PIECE)
        self.announce(before, {})

    # ---- authored commits ----------------------------------------------------------------------------

    def read_of(self, document: str) -> Read:
        return Read(document, self.seq, self.layers_of(document))

    def sources(self, document: str, *, frozen: bool = True) -> set[str]:
        """The documents that a value was computed from: cells, and confirmed results of nodes that are not here."""
        reads: frozenset[str] = frozenset()
        if document in NODES and self.is_registered(document):
            reads = frozenset() if self.yields(document) else self.nodes[document].reads
        elif document in self.tier and frozen:
            reads = self.tier[document].reads
        if not reads:
            return {document}
        return {source for read in reads for source in self.sources(read, frozen=frozen)}

    def write(self, reads: Iterable[str], writes: tuple[tuple[str, Value], ...], saw: tuple[str, ...] = ()) -> None:
        """Make an authored commit. A commit that reads is a handler's: computeds that it reads are evaluated first."""
        for name in saw:
            if name in NODES and self.is_registered(name):
                self.evaluate(name)
        self.made += 1
        names = set(reads)
        for name in saw:
            if name in NODES and not self.rules.sources:
                names.add(name)
            elif self.shown(name) != FAILED or self.rules.failed_sources:
                names |= self.sources(name, frozen=self.rules.frozen_sources)
        stored = {source for name in saw for source in self.sources(name) if source in NODES}
        commit = Commit(
            (self.number, self.made),
            tuple(self.read_of(name) for name in sorted(names)),
            writes,
            tuple((name, self.shown(name)) for name in saw),
            frozenset(stored),
        )
        before = self.view()
        self.layers += (Layer(commit),)
        for node in NODES:
            if any(node == written for written, _ in writes):
                self._drop(node)  # a deleted piece, or a write to the output: the result yields
        self.announce(before, {})

    def is_fresh(self, node: str) -> bool:
        """Whether a handler may read a node now: nothing that it stands on pauses or is set aside."""
        if not self.is_registered(node):
            return node not in self.aside
        if self.yields(node):
            return True
        reads = self.nodes[node].reads
        if self.gated and node == DISPUTED and self.nodes[node].state is State.INVALID:
            return False
        return not self.nodes[node].paused and all(
            self.is_fresh(document) if document in NODES else document not in self.aside for document in reads
        )

    # ---- the flush -----------------------------------------------------------------------------------

    def flush(self) -> None:
        """Send unsent commits and the wave composed now, in one message."""
        entries, elided = self.composed()
        for node in elided:
            # The observation says that the result was found in place, so its causes are accounted for.
            self.nodes[node] = self.nodes[node]._replace(owed=NO_CAUSES)
            del self.tier[node]
        commits = tuple(layer.commit for layer in self.layers if not layer.message)
        if not commits and not entries:
            return
        self.messages += 1
        message = Message(self.session, self.messages, commits, entries)
        self.layers = tuple(layer if layer.message else layer._replace(message=self.messages) for layer in self.layers)
        for entry in entries:
            known = self.tier[entry.node]
            self.tier[entry.node] = known._replace(stage=Stage.SENT, message=self.messages)
        self.unanswered[self.messages] = message
        self.up += (message,)

    def is_flushable(self) -> bool:
        if self.read_only or not self.is_connected:
            return False
        return any(not layer.message for layer in self.layers) or any(self.composed())

    def composed(self) -> tuple[tuple[WaveEntry, ...], tuple[str, ...]]:
        """The entries of a wave cut now, and the nodes whose results are in place already."""
        waves = sum(bool(message.entries) for message in self.unanswered.values())
        unsent = any(not layer.message for layer in self.layers)
        entries: dict[str, WaveEntry] = {}
        elided: list[str] = []
        if waves >= (self.rules.waves_most if unsent else self.rules.waves_alone):
            return (), ()
        for node in NODES:
            entry = self.tier.get(node)
            if entry is None or entry.stage is not Stage.UNSENT or entry.value == FAILED:
                continue
            known = self.nodes[node]
            if self.rules.clean_only and not entry.frozen and known.state is not State.CLEAN:
                continue
            if self.rules.watched_only and any(document in self.aside for document in entry.reads):
                continue
            if self._is_in_place(node, entry):
                elided.append(node)
                continue
            reads = self._wire_reads(entry, entries, elided)
            if reads is not None:
                entries[node] = self._wave_entry(node, entry, reads)
        return tuple(entries.values()), tuple(elided)

    def _is_in_place(self, node: str, entry: Entry) -> bool:
        """Whether a result equals the confirmed value, which no own result is about to replace."""
        if entry.value != self.confirmed[node] or self.layers_of(node):
            return False
        match self.rules.elision:
            case Elision.COVERED:
                return not self._is_under_way(node) and node not in self.uncovered
            case Elision.ANSWERED:
                return not self._is_under_way(node)
            case Elision.FLUSH:
                return True
            case _:
                return False

    def _is_under_way(self, node: str) -> bool:
        return any(entry.node == node for message in self.unanswered.values() for entry in message.entries)

    def _wire_reads(
        self, entry: Entry, chosen: Mapping[str, WaveEntry], elided: Iterable[str]
    ) -> tuple[Read, ...] | None:
        """The reads of an entry as they are sent; None if it has to be held until a result it read has left."""
        reads = []
        for document in sorted(entry.reads):
            if document == RECORD and not self.rules.stands_on_record:
                continue
            upstream = self.tier.get(document)
            if upstream is None or document in elided or not self.rules.upstream_named:
                reads.append(self.read_of(document))
            elif document in chosen:
                reads.append(Read(document, self.seq, frozenset(), (self.messages + 1, document)))
            elif upstream.message and (upstream.stage is not Stage.SUPERSEDED or not self.rules.waiting_upstream_holds):
                reads.append(Read(document, self.seq, frozenset(), (upstream.message, document)))
            else:
                return None
        return tuple(reads)

    def _wave_entry(self, node: str, entry: Entry, reads: tuple[Read, ...]) -> WaveEntry:
        base = None
        if node == PATCHED and not self.rules.base_accepted and self._is_under_way(node):
            base = [
                sent.value for message in self.unanswered.values() for sent in message.entries if sent.node == node
            ][-1]
        elif node == PATCHED and not self._is_under_way(node) and node not in self.uncovered:
            base = self.confirmed[node]
            if base is not None:
                reads += (self.read_of(node),)
        owed = self.nodes[node].owed
        return WaveEntry(node, entry.version, entry.value, base, reads, entry.causes, entry.hops, owed)

    # ---- verdicts ------------------------------------------------------------------------------------

    def hear(self, verdict: Verdict) -> None:
        """Settle the commits and the entries of a message."""
        message = self.unanswered.pop(verdict.number, None)
        if message is None:
            raise Broken("C6", f"message {verdict.number} is answered twice")
        before, yielding = self.view(), self.yielding()
        for commit, seq in zip(message.commits, verdict.commits, strict=True):
            self._settle(commit, seq)
        for sent, fate in zip(message.entries, verdict.fates, strict=True):
            self._settle_entry(sent, fate, verdict)
        self.arm(yielding)
        self._resume_superseded()
        self.announce(before, {})

    def _settle(self, commit: Commit, seq: int) -> None:
        self.fates[commit.id] = seq
        if seq > self.seq:
            self.layers = tuple(
                layer._replace(seq=seq) if layer.commit.id == commit.id else layer for layer in self.layers
            )
        elif seq:
            self.layers = tuple(layer for layer in self.layers if layer.commit.id != commit.id)
        else:
            self.take_back({commit.id})

    def take_back(self, dead: set[Id]) -> None:
        """Drop layers, and those that stand on them. Of these, the sent ones are rejected by the engine, too."""
        kept = []
        for layer in self.layers:
            if layer.commit.id in dead or layer.names & dead:
                dead.add(layer.commit.id)
                if not layer.message:
                    self.fates[layer.commit.id] = 0
            else:
                kept.append(layer)
        self.layers = tuple(kept)

    def _settle_entry(self, sent: WaveEntry, fate: Fate, verdict: Verdict) -> None:
        """Note the fate of a version."""
        node = sent.node
        entry = self.tier.get(node)
        is_newest = self._is_newest(sent) or not self.rules.verdict_of_version
        if fate is Fate.ACCEPTED:
            missing = sent.owed - sent.causes
            if missing:
                raise Broken("I8", f"the accepted result of {node} does not name its causes {sorted(missing)}")
            self.nodes[node] = self.nodes[node]._replace(owed=self.nodes[node].owed - sent.owed)
            if verdict.wave > self.seq:
                self.uncovered[node] = verdict.wave
        if entry is None or not is_newest:
            return
        match fate:
            case Fate.ACCEPTED if not self.rules.shown_until_covered:
                del self.tier[node]
            case Fate.ACCEPTED:
                self.tier[node] = entry._replace(stage=Stage.ACCEPTED, seq=verdict.wave)
            case Fate.REFUSED if self.rules.refused_fails:
                if entry.frozen:
                    self._drop(node)
                else:
                    self.tier[node] = entry._replace(stage=Stage.LOCAL, value=FAILED)
                    if self.nodes[node].state is State.CLEAN:
                        self.nodes[node] = self.nodes[node]._replace(result=FAILED)
            case _ if entry.frozen or self.rules.superseded is Superseded.DROPPED:
                self._drop(node)
            case _:
                self.tier[node] = entry._replace(stage=Stage.SUPERSEDED, seq=verdict.judged)

    def _resume_superseded(self) -> None:
        """Let superseded entries be sent again once the winners have arrived; drop those that are in place by now."""
        if self.rules.superseded is Superseded.DIRTIED:
            return
        for node, entry in list(self.tier.items()):
            if entry.stage is not Stage.SUPERSEDED or self.nodes[node].state is not State.CLEAN:
                continue
            if entry.seq <= self.seq or self.rules.superseded is Superseded.AT_ONCE:
                self.tier[node] = entry._replace(stage=Stage.UNSENT, message=0)

    # ---- the confirmed state -------------------------------------------------------------------------

    def integrate(self, sync: Sync) -> None:
        """Take in changes of the log: layers and accepted entries that they cover go, outputs are compared."""
        before, yielding = self.view(), self.yielding()
        origins = dict(sync.origins)
        changed = dict(sync.values)
        old = {node: self.confirmed[node] for node in NODES}
        self.seq = sync.seq
        self.confirmed.update(changed)
        self.written.update(sync.written)
        self.asked -= sync.fetched
        self.aside -= sync.fetched
        self.layers = tuple(layer for layer in self.layers if not layer.seq or layer.seq > self.seq)
        self.uncovered = {node: seq for node, seq in self.uncovered.items() if seq > self.seq}
        compared = {node for node in NODES if node in changed and changed[node] != old[node]}
        for node, entry in list(self.tier.items()):
            if entry.stage is Stage.ACCEPTED and entry.seq <= self.seq:
                del self.tier[node]
                if self.rules.covered_compared:
                    compared.add(node)
            elif self.read_only and node in compared and entry.stage is Stage.LOCAL and entry.value != FAILED:
                del self.tier[node]
        for node in NODES:
            if node in compared:
                self._compare_output(node, origins.get(node))
        self.arm(yielding)
        self._resume_superseded()
        self.announce(before, {document: self._hops(origins.get(document)) for document in changed})

    def _hops(self, origin: Origin | None) -> int:
        if origin is None or not origin.fingerprint or not self.rules.hops_counted:
            return 0
        return origin.hops + (origin.session != self.session)

    def _compare_output(self, node: str, origin: Origin | None) -> None:
        """A confirmed value that is not the node's own result is a change that the node reads."""
        known = self.nodes[node]
        value = self.confirmed[node]
        if known.state is not State.CLEAN or value == known.result or origin is None or not self.is_registered(node):
            return
        if self.yields(node) or not (self.rules.dormant_compared or node in self.live()):
            return
        match self.rules.outputs:
            case Outputs.NONE:
                return
            case Outputs.OTHERS if origin.session == self.session:
                return
            case Outputs.ANY if origin.session == self.session and node in self.tier:
                return
            case _:
                pass
        if self._is_installable(node, origin):
            self.tier.pop(node, None)
            # The peer's causes explain the value that is shown from now on.
            self.nodes[node] = Node(State.CLEAN, value, origin.reads - {node})
            return
        self.changes += 1
        self.invalidate(node, (node, self.changes), self._hops(origin))

    def _is_installable(self, node: str, origin: Origin) -> bool:
        """Whether a peer's result was computed by the same code from the documents that are shown here."""
        fingerprint = self.fingerprint if node == DISPUTED else node
        if not self.rules.installs or origin.fingerprint != fingerprint:
            return False
        return all(
            document == node
            or (
                self.written.get(document, 0) <= origin.seq
                and document not in self.aside
                and self.shown(document) == self.confirmed[document]
            )
            for document in origin.reads
        )
