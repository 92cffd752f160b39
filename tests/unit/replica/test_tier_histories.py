"""Random histories of results in the tier, compared with functions that are evaluated anew on the engine's documents.

Two clients compute the same nodes with a scheduler that only compares values. Messages pass one at a time, and
connections are lost. Each result of the log has to be the value of its function at its place in the log, and
each commit of an author that read a result has to follow from values at its place. At the end the documents of all
nodes have the values of their functions, and no result is left in a tier.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from random import Random

import pytest

from headwater.data.patch import replace
from headwater.data.value import ABSENT, MaybeValue
from headwater.engine.limits import Limits
from headwater.errors import AuthoringError
from headwater.protocol.commit import Commit
from headwater.replica.confirmed import NotHere
from headwater.replica.document import NOT_HERE, Document, TierEntry
from headwater.replica.feed import Kind
from headwater.replica.limits import ReplicaLimits
from headwater.replica.pending import Layer
from headwater.replica.transaction import Transaction
from tests.counts import scaled
from tests.unit.replica.kit import Client, World, doc
from tests.unit.replica.results_kit import Node, attach, put, spot_of

CELLS = ("x", "y", "z")
Read = Callable[[str], int]
EXPIRY_US = 10**12


def _a(read: Read) -> int:
    return read("x") * 2 + (read("y") if read("x") % 2 else read("z"))


def _b(read: Read) -> int:
    return read("a") + 1 if read("a") % 3 else read("z")


def _c(read: Read) -> int:
    return read("b") * 3 + read("a") + read("y")


def _d(read: Read) -> int:
    return read("x") + 1


def _e(read: Read) -> int:
    return read("d") + read("c") if read("d") % 2 else read("b")


FUNCTIONS = {"a": _a, "b": _b, "c": _c, "d": _d, "e": _e}
TARGETS = ("s", "t")


def number(value: MaybeValue) -> int:
    return value if isinstance(value, int) else 0


def value_of(id: str, read: Read) -> int:
    """The value of a node, a small number, so that different inputs often make the same value."""
    return FUNCTIONS[id](read) % 5


class Computed(Node):
    """A node that notes the values that its last run read."""

    def __init__(self, client: Client, id: str) -> None:
        super().__init__(client, id)
        self.name = id
        self.seen: dict[Document, MaybeValue] | None = None
        self.result = 0
        self.is_overwritten = False

    @property
    def is_clean(self) -> bool:
        if self.seen is None or self.is_overwritten:
            return False
        return number(_shown(self.output)) == self.result and all(
            number(_shown(document)) == number(value) for document, value in self.seen.items()
        )

    def run(self) -> None:
        """Evaluate the function and show its value, unless a document is not here."""
        seen: dict[Document, MaybeValue] = {}

        def read(id: str) -> int:
            document = self.client.replica.documents.of(doc(id))
            if document.value is NOT_HERE:
                raise NotHere(document.key)
            seen[document] = document.value
            return number(document.value)

        try:
            value = value_of(self.name, read)
            self.show(
                value,
                spots=[spot_of(self.client, document.key.id) for document in seen],
                causes=[spot_of(self.client, document.key.id) for document in seen],
            )
        except NotHere:
            return
        self.seen, self.result, self.is_overwritten = seen, value, False


def _shown(document: Document) -> MaybeValue:
    """The shown value; after a gap the last one, as for a node that waits for its documents."""
    value = document.stale if document.value is NOT_HERE else document.value
    return ABSENT if value is NOT_HERE else value


@dataclass
class Opened:
    """A transaction of an author that will read one result and write its value."""

    client: Client
    transaction: Transaction
    id: str
    target: str


class Story:
    """One random history."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        limits = Limits(sync_patches=self.random.choice((1, 2, 16)), sync_window=self.random.choice((1, 2, 8)))
        self.world = World("ann", "bob", limits=limits)
        self.nodes: dict[Client, dict[str, Computed]] = {}
        self.opened: list[Opened] = []
        self.frozen: list[tuple[str, TierEntry]] = []  # results of stopped nodes
        self.counts: Counter[str] = Counter()
        for client in self.world.clients:
            self._begin(client)
        self.world.settle()
        for id in CELLS:
            put(self.world.clients[0], id, self.random.randrange(4))
        self.world.settle()

    def _begin(self, client: Client) -> None:
        attach(client)
        tier = client.replica.tier
        tier.is_clean = tier.is_current = lambda node: isinstance(node, Computed) and node.is_clean
        client.replica.limits = ReplicaLimits(
            wave_results=self.random.choice((1, 2, 512)), in_flight=self.random.choice((2, 4, 512))
        )
        client.watch(*CELLS, *FUNCTIONS, *TARGETS)
        nodes = self.nodes[client] = {id: Computed(client, id) for id in FUNCTIONS}

        def overwritten(document: Document, _kind: Kind, _ways: object) -> None:
            nodes[document.key.id].is_overwritten = True

        client.replica.on_overwritten(overwritten)

    # ---- steps -------------------------------------------------------------------------------------

    def step(self) -> None:
        client = self.random.choice(self.world.clients)
        steps = (
            (4, self._write),
            (8, self._run),
            (2, self._run_all),
            (6, self._flush),
            (12, self._message),
            (1, self._reconnect),
            (1, self._stop),
            (1, self._write_output),
            (1, self._change_demand),
            (2, self._open_transaction),
            (2, self._end_transaction),
        )
        (chosen,) = self.random.choices([step for _, step in steps], [weight for weight, _ in steps])
        chosen(client)

    def _write(self, client: Client) -> None:
        id = self.random.choice(CELLS)
        if client.replica.is_here(doc(id)):
            put(client, id, self.random.randrange(4))

    def _run(self, client: Client) -> None:
        node = self.random.choice(list(self.nodes[client].values()))
        if not node.is_clean or self.random.random() < 0.1:
            node.run()

    def _run_all(self, client: Client) -> None:
        for node in self.nodes[client].values():
            if not node.is_clean:
                node.run()

    def _flush(self, client: Client) -> None:
        client.session.flush()

    def _message(self, client: Client) -> None:
        if self.random.random() < 0.5:
            client.send(1)
        else:
            client.hear(1)

    def _reconnect(self, client: Client) -> None:
        if client.peer is None:
            client.up()
        elif self.random.random() < 0.5:
            client.again()
        else:
            client.down()
            if self.random.random() < 0.5:
                self.world.later(EXPIRY_US)

    def _stop(self, client: Client) -> None:
        """Stop a node, and begin it anew."""
        id = self.random.choice(list(FUNCTIONS))
        node = self.nodes[client][id]
        client.replica.stop_result(node.output, node, is_current=node.is_clean)
        entry = node.output.entry
        if entry is not None and entry.reads is not None:
            self.frozen.append((client.session.key, entry))
        self.nodes[client][id] = Computed(client, id)

    def _write_output(self, client: Client) -> None:
        id = self.random.choice(list(FUNCTIONS))
        if client.replica.is_here(doc(id)):
            put(client, id, self.random.randrange(5))

    def _change_demand(self, client: Client) -> None:
        node = self.random.choice(list(self.nodes[client].values()))
        node.is_demanded = not node.is_demanded

    def _open_transaction(self, client: Client) -> None:
        id = self.random.choice(list(FUNCTIONS))
        nodes = self.nodes[client]
        if not all(client.replica.is_here(doc(each)) for each in (*CELLS, *FUNCTIONS, *TARGETS)):
            return
        if all(nodes[each].is_clean for each in FUNCTIONS):
            self.opened.append(Opened(client, client.replica.begin(node=id), id, self.random.choice(TARGETS)))

    def _end_transaction(self, _: Client) -> None:
        if not self.opened:
            return
        opened = self.opened.pop(self.random.randrange(len(self.opened)))
        try:
            value = opened.transaction.read(doc(opened.id))
            opened.transaction.write(doc(opened.target), replace((), {"of": opened.id, "value": number(value)}))
            made = opened.client.replica.commit(opened.transaction)
        except (NotHere, AuthoringError):
            opened.client.replica.drop(opened.transaction)
        else:
            self.counts["transactions"] += isinstance(made, Layer)

    # ---- the end -----------------------------------------------------------------------------------

    def finish(self) -> None:
        while self.opened:
            self._end_transaction(self.world.clients[0])
        for client in self.world.clients:
            if client.peer is None:
                client.up()
            for node in self.nodes[client].values():
                node.is_demanded = True
        for _ in range(60):
            self.world.settle()
            before = self.world.engine.last_seq
            for client in self.world.clients:
                for _ in FUNCTIONS:
                    self._run_all(client)
                client.session.flush()
            self.world.settle()
            if before == self.world.engine.last_seq and not any(client.replica.tier for client in self.world.clients):
                return
        raise AssertionError("results are sent without end")

    def problems(self) -> Iterator[str]:
        """Where the log or a replica differs from the functions."""
        cells = {id: number(self.world.value(id)) for id in CELLS}
        for id in FUNCTIONS:
            cells[id] = value_of(id, cells.__getitem__)
            if number(self.world.value(id)) != cells[id]:
                yield f"{id} is {self.world.value(id)!r} at the end, not {cells[id]}"
        for client in self.world.clients:
            yield from client.mirror.differences()
            yield from [f"{client.session.key} raised {error!r}" for error in (*client.raised, *client.errors)]
            for id, value in cells.items():
                if number(client.shows(id)) != value:
                    yield f"{client.session.key} shows {client.shows(id)!r} for {id}, not {value}"
            if not client.replica.is_durable() or len(client.replica.pending):
                yield f"{client.session.key} has commits or results that wait"
        frozen = {(session, entry.local_seq, entry.document.key.id) for session, entry in self.frozen}
        for entry in self.world.engine.changes().items:
            if entry.commit.provenance.derived:
                for operation in entry.commit.operations:
                    self.counts["results"] += 1
                    is_frozen = (entry.session, entry.commit.local_seq, operation.doc.id) in frozen
                    yield from self._wrong_result(operation.doc.id, entry.seq, is_frozen=is_frozen)
            elif entry.commit.provenance.node:
                self.counts["landed"] += 1
                yield from self._wrong_transaction(entry.commit, entry.seq)
        for client in self.world.clients:
            self.counts["superseded"] += client.replica.tier.superseded_count

    def _at(self, id: str, seq: int) -> int:
        return number(self.world.engine.read(doc(id), at=seq).value)

    def _wrong_result(self, id: str, seq: int, *, is_frozen: bool) -> Iterator[str]:
        """Compare a result with its function. That of a stopped node has the sources of the results that it read."""
        right = self._evaluated(id, seq) if is_frozen else {value_of(id, lambda id: self._at(id, seq))}
        value = self._at(id, seq)
        if value not in right:
            yield f"{id} became {value} at seq {seq}, where its function makes {right}"

    def _wrong_transaction(self, commit: Commit, seq: int) -> Iterator[str]:
        wrote = self.world.engine.read(commit.operations[0].doc, at=seq).value
        assert isinstance(wrote, dict)
        possible = self._possible(commit.provenance.node, seq)
        if wrote["value"] not in possible:
            yield f"a commit read {wrote} at seq {seq}, where {commit.provenance.node} is one of {possible}"

    def _possible(self, id: str, seq: int) -> set[int]:
        """The values that follow from documents at a seq, if each result is read from the log or evaluated."""
        return {self._at(id, seq)} | (set() if id in CELLS else self._evaluated(id, seq))

    def _evaluated(self, id: str, seq: int) -> set[int]:
        inputs = ["x", "y", "z", *[each for each in FUNCTIONS if each < id]]
        each_possible = [self._possible(each, seq) for each in inputs]
        combined = [dict(zip(inputs, values, strict=True)) for values in product(*each_possible)]
        return {value_of(id, values.__getitem__) for values in combined}


def play(seed: int, steps: int = 120) -> Counter[str]:
    story = Story(seed)
    for _ in range(steps):
        story.step()
    story.finish()
    problems = list(story.problems())
    assert problems == [], f"seed {seed}: {problems}"
    return story.counts


@pytest.mark.random
def test_results_in_the_log_are_the_values_of_their_functions() -> None:
    counts: Counter[str] = Counter()
    cases = scaled(1_000)
    for seed in range(cases):
        counts += play(seed)
    assert counts["results"] > 4 * cases
    assert counts["landed"] * 4 > cases or cases < 20
    assert counts["superseded"] * 4 > cases or cases < 20
