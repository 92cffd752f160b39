"""Simulated clients: each has a view of its branch and a stack of commits the engine has not confirmed to it.

A client sees the branch as it was at its basis, and its own commits on top (layers). It makes commits over
that view, sends them later, hears verdicts later still, and catches up with the branch now and then. An
honest client names its layers and basis truthfully and refuses locally what stands on a rejected layer; a
liar sometimes does not. What counts is what the commit declares: engine and naive model judge the same thing.
"""

from __future__ import annotations

import msgspec

from headwater.clock import Random
from headwater.data.address import DocKey
from headwater.data.patch import PatchError
from headwater.data.value import MaybeValue
from headwater.engine.verify import NaiveSpace, folded, numbers, same, writes
from headwater.protocol.commit import (
    MAIN,
    Commit,
    EntityAbsent,
    LeaseHeld,
    Operation,
    OriginCommitted,
    Precondition,
    Provenance,
    Read,
    SentEvent,
    TopicRecord,
)
from headwater.protocol.verdict import Accepted, Verdict
from headwater.testing import draws


class Client:
    """One session, seen from its own side."""

    __slots__ = ("basis", "branch", "key", "landed", "layers", "next_local", "outbox", "saw", "sent", "unheard")

    def __init__(self, key: str) -> None:
        self.key = key
        self.branch = MAIN
        self.basis = 0
        self.next_local = 1
        self.layers: list[Commit] = []  # what the view shows on top of the basis, in order
        self.outbox: list[Commit] = []  # made, not sent yet
        self.sent: dict[int, Commit] = {}
        self.unheard: list[Verdict] = []
        self.landed: dict[int, int] = {}  # heard: the seq of each accepted commit
        self.saw: dict[int, list[tuple[Read, MaybeValue]]] = {}  # per commit, its reads and their documents

    # ---- the view --------------------------------------------------------------------------------

    def value(self, naive: NaiveSpace, doc: DocKey) -> MaybeValue:
        """What the client sees of a document."""
        return self._view(naive, doc)[0]

    def _view(self, naive: NaiveSpace, doc: DocKey) -> tuple[MaybeValue, set[int]]:
        """What the client sees of a document, and the layers that do not fit it any more: these show nothing."""
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
            else:
                self.drop(verdict.local_seq, honest=honest)

    def drop(self, local_seq: int, *, honest: bool) -> None:
        """A layer is dead. C4: what stands on it and was not sent yet is refused locally, transitively."""
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
            for read, view in self.saw.get(verdict.local_seq, ()):
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
        """Stands on any earlier commits, or names a document twice, which is outside the protocol."""
        if rng.random() < 0.2:
            return msgspec.structs.replace(commit, operations=commit.operations * 2)
        earlier = list(range(1, commit.local_seq + 1))
        some = rng.sample(earlier[:-1] or earlier, 1 if commit.local_seq < 3 else rng.randrange(1, 3))
        return msgspec.structs.replace(commit, after=ranges(sorted(some)))

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
                token = naive.leases.get("lease", 0)
                return (LeaseHeld("lease", max(0, token - rng.choice((0, 0, 1)))),)

    def _events(self, rng: Random, naive: NaiveSpace) -> tuple[SentEvent, ...]:
        fresh = f"{self.key}{self.next_local}"
        ids = rng.choice(((fresh,), (fresh,), (f"{fresh}a", f"{fresh}b"), (fresh, fresh), ("taken",)))
        return tuple(SentEvent(id, rng.choice("st"), draws.scalar(rng), rng.randrange(9)) for id in ids)

    def _handled(self, naive: NaiveSpace) -> tuple[str, ...]:
        """Now and then some events of any branch, and one that nobody sent: what is not stored here is harmless.

        Nothing is drawn for it, so that what else is drawn is what it was before there were any.
        """
        turn = 7 * self.next_local + 3 * naive.last_seq
        ids = [event.id for event, _ in naive.events()] if turn % 4 == 0 else []
        return (*ids[turn % 3 :: 2], "unknown") if ids else ()


def _some(rng: Random, docs: tuple[DocKey, ...], counts: tuple[int, ...]) -> list[DocKey]:
    return rng.sample(docs, min(len(docs), rng.choice(counts)))


def ranges(numbers: list[int]) -> tuple[tuple[int, int], ...]:
    """Rising numbers as inclusive ranges. What lies between two of them is not named."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return tuple(found)
