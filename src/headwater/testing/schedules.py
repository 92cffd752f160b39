"""Random schedules of a space: several sessions, waves, branches, replays, restarts and compaction.

Owns the steps a schedule is made of and the order they come in. A step is plain data, so that a schedule
that failed can be played again without its generator, and shortened. Draws everything from one seeded source.
Never talks to an engine: the player (`testing.player`) does, and the clients are told what was answered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from headwater.clock import Random
from headwater.data.address import DocKey
from headwater.data.path import starts_with
from headwater.engine import Limits
from headwater.engine.verify import NaiveSpace, numbers
from headwater.protocol.commit import MAIN, Commit, Frame, Provenance, Read
from headwater.protocol.verdict import Verdict
from headwater.testing.clients import Client
from headwater.testing.draws import DOCS


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
    """Everything in memory is lost; what is stored stays. `clean`: it was closed in order."""

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
    name: str


@dataclass(frozen=True, slots=True)
class Look:
    """Compare every way of reading with folding."""

    at: int


Step: TypeAlias = Submit | Fork | DeleteBranch | MergeBranch | Restart | Compact | Acknowledge | TakeLease | Look


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What kind of schedule it is."""

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
    """Draws the next step from what happened so far."""

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
            return TakeLease("lease")
        return Look(rng.randrange(self._naive.last_seq + 1))

    def answered(self, session: str, frame: Frame, verdicts: tuple[Verdict, ...] | None) -> Read | None:
        """What the engine said to a frame. None: it was no frame, and its commits will not be sent again.

        Answers with a read of an honest client that was accepted and had seen something else.
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
        """Some of what waits to be sent, oldest first, in one wave or in several frames of one branch each."""
        rng = self._rng
        count = rng.randrange(1, len(client.outbox) + 1)
        sending, client.outbox = client.outbox[:count], client.outbox[count:]
        frames: list[list[Commit]] = [[sending[0]]]
        for commit in sending[1:]:
            if commit.branch != frames[-1][0].branch or rng.random() < 0.3:
                frames.append([commit])
            else:
                frames[-1].append(commit)
        # A wave may leave out the reads that its own frame answers, as replicas do.
        waves = [_thinned(frame) if rng.random() < 0.5 else tuple(frame) for frame in frames]
        client.sent.update({commit.local_seq: commit for wave in waves for commit in wave})
        return list(waves)

    def _refresh(self, client: Client) -> None:
        """What the client learns before it writes: verdicts, the branch, or nothing."""
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
        """An honest client acknowledges what it heard and will neither send again nor name."""
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


def _thinned(frame: list[Commit]) -> Frame:
    """The same commits without the reads that the frame itself answers: each names the commit that does."""
    sent: list[Commit] = []
    for place, commit in enumerate(frame):
        writers = [(read, _answering(read, frame[:place])) for read in commit.reads]
        reads = tuple(read for read, writer in writers if writer is None)
        after = sorted({writer for _, writer in writers if writer is not None})
        named = tuple((number, number) for number in after)
        sent.append(msgspec.structs.replace(commit, reads=reads, after=named) if after else commit)
    return tuple(sent)


def _answering(read: Read, earlier: list[Commit]) -> int | None:
    """The commit of a frame whose plain write is the last one there and above all that the read saw."""
    last = [
        (commit.local_seq, patch)
        for commit in earlier
        for operation in commit.operations
        if operation.doc == read.doc
        for patch in operation.patches
        if starts_with(read.path, patch.path) or starts_with(patch.path, read.path)
    ][-1:]
    for number, patch in last:
        if patch.kind in ("replace", "add", "remove") and starts_with(read.path, patch.path):
            return number if number in numbers(read.layers) else None
    return None
