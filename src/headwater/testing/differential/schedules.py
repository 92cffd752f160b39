"""Random schedules: the steps that an engine and the naive model play, drawn from one seed.

`Generator` draws steps and tells the clients how they were answered. A `Client` sees its branch as it was at its
basis, with its own undecided commits on top (layers). It makes commits over that view, sends them later, receives
verdicts later still, and catches up with the branch now and then. An honest client names its layers and basis
truthfully and refuses locally a commit that stands on a rejected layer; a lying client sometimes does not. Engine and
naive model judge the commit as it declares itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec

from headwater.clock import Random
from headwater.data.address import DocKey
from headwater.data.patch import PatchError
from headwater.data.value import MaybeValue
from headwater.engine import Limits
from headwater.engine.verify import NaiveSpace, folded, numbers, same, writes
from headwater.protocol.commit import (
    MAIN,
    Commit,
    EntityAbsent,
    Frame,
    LeaseHeld,
    NodeResult,
    Operation,
    OriginCommitted,
    Precondition,
    Provenance,
    Read,
    SentEvent,
    TopicRecord,
    without_results,
)
from headwater.protocol.reactions import lease_name
from headwater.protocol.verdict import Accepted, Verdict
from headwater.testing.differential import draws
from headwater.testing.differential.draws import DOCS

REACTION: Final = "worker"
JOB: Final = TopicRecord("jobs", "job", None)
LEASE: Final = lease_name(REACTION, JOB.key)
"""The lease of the only target."""


class Client:
    """One session, seen from its own side."""

    __slots__ = ("basis", "branch", "key", "landed", "layers", "next_local", "outbox", "saw", "sent", "unheard")

    def __init__(self, key: str) -> None:
        self.key = key
        self.branch = MAIN
        self.basis = 0
        self.next_local = 1
        self.layers: list[Commit] = []  # shown by the view on top of the basis, in order
        self.outbox: list[Commit] = []  # made, not sent yet
        self.sent: dict[int, Commit] = {}
        self.unheard: list[Verdict] = []
        self.landed: dict[int, int] = {}  # heard: the seq of each accepted commit
        self.saw: dict[int, list[tuple[Read, MaybeValue]]] = {}  # per commit, its reads and their documents

    # ---- the view --------------------------------------------------------------------------------

    def value(self, naive: NaiveSpace, doc: DocKey) -> MaybeValue:
        """Return the client's value of a document."""
        return self._view(naive, doc)[0]

    def _view(self, naive: NaiveSpace, doc: DocKey) -> tuple[MaybeValue, set[int]]:
        """Return the client's value of a document, and the layers that do not fit it any more: these show nothing."""
        value = naive.value(doc, self.branch, self.basis)
        misfits: set[int] = set()
        for layer in self.layers:
            try:
                value = folded(value, layer, doc)
            except PatchError:
                misfits.add(layer.local_seq)
        return value, misfits

    def answered(self, verdicts: tuple[Verdict, ...]) -> None:
        """The engine's answer, on its way to the client. A repeated answer says nothing new."""
        waiting = {verdict.local_seq for verdict in self.unheard}
        for verdict in verdicts:
            if verdict.local_seq not in waiting and verdict.local_seq not in self.landed:
                self.unheard.append(verdict)

    def hear(self, count: int, *, honest: bool) -> None:
        """C5: verdicts are heard in the order of `local_seq`."""
        heard, self.unheard = self.unheard[:count], self.unheard[count:]
        for verdict in heard:
            if isinstance(verdict, Accepted):
                self.landed[verdict.local_seq] = verdict.seq
                if verdict.superseded or verdict.refused:
                    self._leave_out(verdict)
            else:
                self.drop(verdict.local_seq, honest=honest)

    def _leave_out(self, verdict: Accepted) -> None:
        """Show a wave without the results that were not accepted."""
        for place, layer in enumerate(self.layers):
            if layer.local_seq == verdict.local_seq:
                self.layers[place] = without_results(layer, lost_by(verdict))

    def drop(self, local_seq: int, *, honest: bool) -> None:
        """Drop a dead layer. C4: unsent commits that stand on it are refused locally, transitively."""
        dead = {local_seq}
        if honest:
            for commit in self.outbox:
                if any(not dead.isdisjoint(numbers(read.layers)) for read in commit.reads):
                    dead.add(commit.local_seq)
        self.layers = [layer for layer in self.layers if layer.local_seq not in dead]
        self.outbox = [commit for commit in self.outbox if commit.local_seq not in dead]

    def deceived(self, naive: NaiveSpace, verdict: Verdict) -> Read | None:
        """C1, asked directly: a read of an accepted commit that saw something else than was there, or None."""
        if isinstance(verdict, Accepted) and not verdict.replayed:
            saw, results = self.saw.get(verdict.local_seq, []), self.sent[verdict.local_seq].results
            if results:
                accepted = [result for place, result in enumerate(results) if place not in lost_by(verdict)]
                saw = [saw[place] for place in sorted({at for result in accepted for at in result.reads})]
            for read, view in saw:
                now = naive.value(read.doc, self.sent[verdict.local_seq].branch, verdict.seq - 1)
                if not same(view, now, read):
                    return read
        return None

    def catch_up(self, seq: int, *, honest: bool) -> None:
        """See the branch as of a seq. A verdict is heard before anything that covers it."""
        self.hear(len(self.unheard), honest=honest)
        self.basis = max(seq, self.basis)
        self.layers = [
            layer
            for layer in self.layers
            if layer.local_seq not in self.landed or self.landed[layer.local_seq] > self.basis
        ]

    # ---- making commits --------------------------------------------------------------------------

    def make(
        self, rng: Random, naive: NaiveSpace, docs: tuple[DocKey, ...], reads: tuple[int, ...], lie: float
    ) -> None:
        """One more commit over the view, not sent yet: it writes and reads some of the documents."""
        if self.branch == MAIN and rng.random() < 0.2:  # A merge leaves derived values out.
            self._make_wave(rng, naive, docs, reads, lie)
            return
        operations = tuple(self._operation(rng, naive, doc, lie) for doc in _some(rng, docs, (0, 1, 1, 1, 2)))
        self.saw[self.next_local] = [
            self._read(rng, naive, doc, lie) for doc in _some(rng, docs, reads) for _ in range(rng.choice((1, 1, 2)))
        ]
        commit = Commit(
            self.next_local,
            operations,
            tuple(read for read, _ in self.saw[self.next_local]),
            self._preconditions(rng, naive) if rng.random() < 0.12 else (),
            self.branch,
            self._events(rng, naive) if rng.random() < 0.1 else (),
            tuple(TopicRecord(rng.choice("tu"), rng.choice("kl"), draws.scalar(rng)) for _ in range(rng.choice((1, 2))))
            if rng.random() < 0.1
            else (),
            Provenance(rng.choice(("", "node"))),
            (),
            self._handled(naive),
        )
        if rng.random() < lie / 4:
            commit = self._distorted(rng, commit)
        self.next_local += rng.choice((1, 1, 1, 1, 1, 2))
        self.layers.append(commit)
        self.outbox.append(commit)

    def _make_wave(
        self, rng: Random, naive: NaiveSpace, docs: tuple[DocKey, ...], reads: tuple[int, ...], lie: float
    ) -> None:
        """One more wave: each result reads some documents that no other result writes, and some earlier results."""
        written = _some(rng, docs, (1, 2, 3, 4))
        others = tuple(doc for doc in docs if doc not in written) if lie == 0 else docs
        saw = self.saw[self.next_local] = []
        operations: list[Operation] = []
        results: list[NodeResult] = []
        while written:
            own, written = written[: (count := rng.choice((1, 1, 2)))], written[count:]
            operations += [self._operation(rng, naive, doc, lie) for doc in own]
            first = len(saw)
            # A difference stands on the value that it is a difference to.
            looked = [*own, *(_some(rng, others, reads) if others else ())]
            saw += [self._read(rng, naive, doc, lie) for doc in looked]
            places = [*range(first, len(saw)), *rng.sample(range(first), min(first, rng.choice((0, 0, 1))))]
            places = [place for place in places if place >= first or saw[place][0].doc in others]
            after = rng.sample(range(len(results)), min(len(results), rng.choice((0, 0, 1, 2))))
            origin = Provenance(rng.choice(("", "node", f"node-{len(results)}")), derived=True)
            results.append(NodeResult(origin, len(own), tuple(places), tuple(sorted(after))))
        if rng.random() < lie / 4:
            results[-1] = msgspec.structs.replace(results[-1], reads=(len(saw),))
        origin = Provenance(derived=True)
        table = tuple(read for read, _ in saw)
        commit = Commit(self.next_local, tuple(operations), table, (), self.branch, (), (), origin, tuple(results))
        self.next_local += 1
        self.layers.append(commit)
        self.outbox.append(commit)

    def _operation(self, rng: Random, naive: NaiveSpace, doc: DocKey, lie: float) -> Operation:
        value = self.value(naive, doc)
        if lie and rng.random() < 0.1:
            return Operation(doc, (draws.misfit(rng, value),))
        return Operation(doc, draws.patches(rng, value, doc))

    def _read(self, rng: Random, naive: NaiveSpace, doc: DocKey, lie: float) -> tuple[Read, MaybeValue]:
        view, misfits = self._view(naive, doc)
        path, depth = draws.place(rng, view)
        # C3: a layer that does not fit shows nothing here, so it is not named. It may fit again when it lands.
        layers = [layer.local_seq for layer in self.layers if layer.local_seq not in misfits]
        if rng.random() < 0.3:  # Layers that do not write the document show nothing there.
            writers = {layer.local_seq for layer in self.layers if writes(layer, doc)}
            layers = [layer for layer in layers if layer in writers]
        basis = self.basis
        if rng.random() < lie:
            basis, layers = self._lie(rng, naive, basis, layers)
        return Read(doc, path, depth, basis, ranges(layers)), view

    def _lie(self, rng: Random, naive: NaiveSpace, basis: int, layers: list[int]) -> tuple[int, list[int]]:
        earlier = list(range(1, self.next_local))
        match rng.randrange(9):
            case 0:
                return basis, layers[-1:]
            case 1:
                return basis, []
            case 2:
                return basis, [*layers[:-1]]
            case 3:
                return rng.randrange(basis + 1), layers
            case 4:
                return rng.randrange(naive.last_seq + 1), layers
            case 5:
                return basis, sorted(rng.sample(earlier, min(len(earlier), rng.randrange(1, 4))))
            case 6:
                return rng.randrange(basis + 1), sorted({*layers, *rng.sample(earlier, min(len(earlier), 2))})
            case 7:
                return naive.last_seq, layers
            case _:
                if rng.random() < 0.2:  # Outside the protocol: the whole frame is refused.
                    return naive.last_seq + 1, layers
                if rng.random() < 0.2:
                    return basis, [*layers, self.next_local]
                return basis, layers[1:]

    def _distorted(self, rng: Random, commit: Commit) -> Commit:
        """Names a document twice, or says that it is a wave of one result. Either is outside the protocol."""
        if rng.random() < 0.5:
            return msgspec.structs.replace(commit, operations=commit.operations * 2)
        return msgspec.structs.replace(commit, results=(NodeResult(commit.provenance, len(commit.operations) or 1),))

    def _preconditions(self, rng: Random, naive: NaiveSpace) -> tuple[Precondition, ...]:
        match rng.randrange(3):
            case 0:
                if self.next_local == 1:
                    return ()
                return (OriginCommitted(rng.randrange(max(1, self.next_local - 3), self.next_local)),)
            case 1:
                docs = [doc for doc in draws.DOCS if not naive.written(doc, self.branch, self.basis)]
                return (EntityAbsent(rng.choice(docs if docs and rng.random() < 0.7 else draws.DOCS)),)
            case _:
                token = naive.leases.get(LEASE, 0)
                return (LeaseHeld(LEASE, max(0, token - rng.choice((0, 0, 1)))),)

    def _events(self, rng: Random, naive: NaiveSpace) -> tuple[SentEvent, ...]:
        fresh = f"{self.key}{self.next_local}"
        ids = rng.choice(((fresh,), (fresh,), (f"{fresh}a", f"{fresh}b"), (fresh, fresh), ("taken",)))
        return tuple(SentEvent(id, rng.choice("st"), draws.scalar(rng), rng.randrange(9)) for id in ids)

    def _handled(self, naive: NaiveSpace) -> tuple[str, ...]:
        """Return, now and then, some events of any branch, and one that was never sent: an event that is not stored
        here is harmless.

        Nothing is drawn for it, so that the other draws are the same as without events.
        """
        turn = 7 * self.next_local + 3 * naive.last_seq
        ids = [event.id for event, _ in naive.events()] if turn % 4 == 0 else []
        return (*ids[turn % 3 :: 2], "unknown") if ids else ()


def _some(rng: Random, docs: tuple[DocKey, ...], counts: tuple[int, ...]) -> list[DocKey]:
    return rng.sample(docs, min(len(docs), rng.choice(counts)))


def ranges(numbers: list[int]) -> tuple[tuple[int, int], ...]:
    """Return rising numbers as inclusive ranges. Numbers between two of them are not named."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return tuple(found)


def lost_by(verdict: Accepted) -> set[int]:
    """The places of the results of a wave that were not accepted."""
    return {*verdict.superseded, *[place for place, _ in verdict.refused]}


@dataclass(frozen=True, slots=True)
class Submit:
    """Frames of several sessions in one group."""

    batch: tuple[tuple[str, Frame], ...]


@dataclass(frozen=True, slots=True)
class Fork:
    name: str
    parent: str
    at: int


@dataclass(frozen=True, slots=True)
class DeleteBranch:
    name: str


@dataclass(frozen=True, slots=True)
class MergeBranch:
    name: str


@dataclass(frozen=True, slots=True)
class Restart:
    """All memory is lost; stored rows stay. `clean`: the engine was closed in order."""

    clean: bool


@dataclass(frozen=True, slots=True)
class Compact:
    before: int


@dataclass(frozen=True, slots=True)
class Acknowledge:
    session: str
    local_seq: int


@dataclass(frozen=True, slots=True)
class TakeLease:
    """A worker claims the target of the job; the lease of the worker before it is over."""


@dataclass(frozen=True, slots=True)
class Look:
    """Compare every way of reading with folding."""

    at: int


Step: TypeAlias = Submit | Fork | DeleteBranch | MergeBranch | Restart | Compact | Acknowledge | TakeLease | Look


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The kind of a schedule."""

    steps: int
    sessions: int
    lie: float  # how often a read is declared falsely
    eager: float  # how often a client catches up before it writes
    docs: tuple[DocKey, ...]
    reads: tuple[int, ...]  # how many documents a commit reads
    limits: Limits

    @classmethod
    def draw(cls, rng: Random) -> Profile:
        """Half of the schedules run with bounds so small that everything is evicted, merged and forgotten."""
        limits = Limits()
        if rng.random() < 0.5:
            limits = Limits(
                cache_bytes=rng.choice((1, 3_000, 64_000_000)),
                cached_sessions=rng.choice((1, 4_096, 4_096)),
                session_commits=rng.choice((1, 2, 512)),
                session_rejections=rng.choice((1, 512)),
                marks_per_document=rng.choice((3, 6, 16_384)),
                marks_patches=rng.choice((1, 2, 64)),
                snapshot_patches=rng.choice((1, 2, 3)),
                snapshot_share=rng.choice((1, 8, 1_000)),
                snapshots_fresh=rng.choice((1, 2, 16)),
                heads_commits=rng.choice((1, 3, 1_024)),
                scan_commits=rng.choice((1, 2, 1_024)),
                page=rng.choice((1, 2, 1_000)),
            )
        return cls(
            steps=rng.randrange(8, 31),
            sessions=rng.randrange(2, 5),
            lie=rng.choice((0.0, 0.0, 0.1, 0.4)),
            eager=rng.choice((0.2, 0.5, 0.9)),
            docs=tuple(rng.sample(DOCS, rng.choice((1, 2, 3, 4)))),
            reads=rng.choice(((0, 1, 2), (0, 0, 1), (0, 1, 1, 2, 3))),
            limits=limits,
        )


class Generator:
    """Draws the next step from the steps so far."""

    __slots__ = ("_forks", "_naive", "_profile", "_rng", "clients")

    def __init__(self, rng: Random, profile: Profile, naive: NaiveSpace) -> None:
        self._rng = rng
        self._profile = profile
        self._naive = naive
        self._forks = 0
        self.clients = {key: Client(key) for key in "pqrs"[: profile.sessions]}

    def next_step(self) -> Step:
        rng = self._rng
        roll = rng.random()
        if roll < 0.68 or not self._naive.history:
            return self._submit()
        if roll < 0.74:
            return self._replay()
        if roll < 0.80:
            return self._fork()
        if roll < 0.82:
            return DeleteBranch(self._branch())
        if roll < 0.85:
            return MergeBranch(self._branch())
        if roll < 0.90:
            return Restart(rng.random() < 0.3)
        if roll < 0.93:
            return Compact(rng.randrange(1, self._naive.last_seq + 2))
        if roll < 0.96:
            client = rng.choice(list(self.clients.values()))
            return Acknowledge(client.key, self._acknowledgeable(client))
        if roll < 0.98:
            return TakeLease()
        return Look(rng.randrange(self._naive.last_seq + 1))

    def answered(self, session: str, frame: Frame, verdicts: tuple[Verdict, ...] | None) -> Read | None:
        """Take in the engine's answer to a frame. None: it was no frame, and its commits will not be sent again.

        Returns a read of an honest client that was accepted and had seen something else.
        """
        client = self.clients[session]
        honest = self._profile.lie == 0
        if verdicts is not None:
            client.answered(verdicts)
            deceived = [client.deceived(self._naive, verdict) for verdict in verdicts] if honest else []
            return next((read for read in deceived if read is not None), None)
        for commit in frame:
            if commit.local_seq not in client.landed and client.sent.get(commit.local_seq) == commit:
                client.drop(commit.local_seq, honest=honest)
        return None

    # ---- commits ---------------------------------------------------------------------------------

    def _submit(self) -> Submit:
        rng = self._rng
        batch: list[tuple[str, Frame]] = []
        for client in rng.sample(list(self.clients.values()), rng.choice((1, 1, 1, 2, len(self.clients)))):
            self._refresh(client)
            for _ in range(rng.choice((1, 1, 2, 3))):
                client.make(rng, self._naive, self._profile.docs, self._profile.reads, self._profile.lie)
            batch += [(client.key, frame) for frame in self._frames(client)]
        if rng.random() < 0.1:
            rng.shuffle(batch)  # Frames of one session may then come in the wrong order.
        return Submit(tuple(batch))

    def _frames(self, client: Client) -> list[Frame]:
        """Return some of the unsent commits, oldest first, in one wave or in several frames of one branch each."""
        rng = self._rng
        count = rng.randrange(1, len(client.outbox) + 1)
        sending, client.outbox = client.outbox[:count], client.outbox[count:]
        frames: list[list[Commit]] = [[sending[0]]]
        for commit in sending[1:]:
            if commit.branch != frames[-1][0].branch or rng.random() < 0.3:
                frames.append([commit])
            else:
                frames[-1].append(commit)
        client.sent.update({commit.local_seq: commit for frame in frames for commit in frame})
        return [tuple(frame) for frame in frames]

    def _refresh(self, client: Client) -> None:
        """Give the client news before it writes: verdicts, the branch, or nothing."""
        rng, naive = self._rng, self._naive
        honest = self._profile.lie == 0
        if rng.random() < self._profile.eager:
            client.catch_up(rng.randrange(client.basis, naive.last_seq + 1), honest=honest)
        elif client.unheard and rng.random() < 0.5:
            client.hear(rng.randrange(1, len(client.unheard) + 1), honest=honest)
        idle = not client.layers and not client.outbox
        if client.branch in naive.deleted or (rng.random() < 0.15 and (idle or not honest)):
            if client.branch in naive.deleted:
                client.catch_up(client.basis, honest=honest)
                client.layers.clear()
                client.outbox.clear()
            client.branch = self._branch()

    def _replay(self) -> Submit:
        """Commits sent before, as they were or altered, perhaps with a new one behind them."""
        rng = self._rng
        client = rng.choice(list(self.clients.values()))
        sent = list(client.sent.values())
        if not sent:
            return self._submit()
        start = rng.randrange(len(sent))
        again = [commit for commit in sent[start : start + 3] if commit.branch == sent[start].branch]
        if rng.random() < 0.3:
            again[0] = msgspec.structs.replace(again[0], provenance=Provenance("altered"))
        return Submit(((client.key, tuple(again)),))

    def _acknowledgeable(self, client: Client) -> int:
        """Return the number up to which an honest client has verdicts and will neither send again nor name commits."""
        pending = [commit.local_seq for commit in (*client.layers, *client.outbox)]
        pending += [verdict.local_seq for verdict in client.unheard]
        return max(0, min([client.next_local - 1, *[number - 1 for number in pending]]))

    # ---- branches --------------------------------------------------------------------------------

    def _branch(self) -> str:
        live = [name for name in self._naive.branches if name not in self._naive.deleted]
        return self._rng.choice(live)

    def _fork(self) -> Fork:
        rng, naive = self._rng, self._naive
        self._forks += 1
        parent = self._branch() if rng.random() < 0.5 else MAIN
        at = naive.last_seq if rng.random() < 0.5 else rng.randrange(naive.last_seq + 1)
        return Fork(f"b{self._forks}", parent, max(at, naive.branches[parent].fork_seq))
