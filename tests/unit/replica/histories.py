"""Random histories of a few replicas on one hub, and what must hold of every one of them.

Each transaction writes down what it saw: it appends to the journal document of its client which places it read and what
was there. So the log itself says what every accepted commit believed, and folding the log says what was true.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from headwater.data.address import DocKey, Link
from headwater.data.patch import (
    PatchError,
    add,
    add_unique,
    append,
    apply,
    increment,
    remove,
    remove_value,
    replace,
    splice,
)
from headwater.data.path import Path
from headwater.data.value import ABSENT, MaybeValue, equal, lookup
from headwater.engine import Hub, Limits
from headwater.replica import NotHere, Transaction
from tests.unit.replica.kit import Client, Told, World, doc

DOCS = ("d", "e", "f")
ROOT = "root"
PLACES: tuple[Path, ...] = (("x",), ("y",), ("l",), ("m", "k"), ("l", 0), ())
KEPT_US = 30_000_000
GONE = "absent"


@dataclass
class Made:
    """One transaction: its name in the journal, and what its callback heard."""

    name: str
    told: Told


class History:
    """One random run. `step` does something; `finish` heals everything; `problems` says what is wrong."""

    def __init__(self, seed: int, *, clients: int = 2, limits: Limits | None = None, following: bool = False) -> None:
        self.random = Random(seed)
        self.following = following  # the documents come by links from one root, which change
        self.limits = limits or Limits(
            sync_patches=self.random.choice((1, 2, 16)), sync_window=self.random.choice((1, 2, 8))
        )
        self.world = World(limits=self.limits)
        self.made: list[Made] = []
        self.found: list[str] = []
        self.clients = [
            self.world.join(f"c{number}", encoding=self.random.choice(("msgpack", "json"))) for number in range(clients)
        ]
        self.world.settle()
        for client in self.clients:
            client.watch(*DOCS, ROOT, self.journal(client))
        self.world.settle()
        self.clients[0].do(self.founding)
        self.world.settle()
        if following:
            for client in self.clients[1:]:
                for id in DOCS:
                    assert client.session.unwatch(doc(id))
                client.watch(ROOT, follow=True)
            self.world.settle()

    @staticmethod
    def founding(transaction: Transaction) -> None:
        for id in DOCS:
            transaction.write(doc(id), replace((), {"x": 0, "y": 0, "l": ("s",), "m": {}}))
        transaction.write(doc(ROOT), replace((), [Link(id=id) for id in DOCS]))

    @staticmethod
    def journal(client: Client) -> DocKey:
        return doc(f"journal-{client.session.key}")

    # ---- what can happen ---------------------------------------------------------------------------

    def step(self) -> None:
        client = self.random.choice(self.clients)
        action = self.random.choices(
            (
                self.transact,
                self.send,
                self.hear,
                self.lose,
                self.connect,
                self.look_elsewhere,
                self.wait,
                self.restart,
            ),
            (6, 6, 6, 0.8, 2.5, 1, 0.2, 0.15),
        )[0]
        action(client)
        self.found += [f"{client.session.key}: {problem}" for problem in client.mirror.differences()]

    def transact(self, client: Client) -> None:
        transaction = client.replica.begin(derived=self.random.random() < 0.4)
        if self.random.random() < 0.15:
            self.run(client, client.replica.begin(derived=self.random.random() < 0.4))  # one inside another
        self.run(client, transaction)
        if self.random.random() < 0.5:
            client.session.flush()

    def run(self, client: Client, transaction: Transaction) -> None:
        made = Made(f"t{len(self.made)}", Told())
        try:
            seen = [self.look(transaction) for _ in range(self.random.randrange(3))]
            for _ in range(self.random.randrange(3)):
                self.write(transaction, made.name)
            transaction.write(self.journal(client), append((), [{"name": made.name, "saw": tuple(seen)}]))
        except (NotHere, PatchError):
            return
        self.made.append(made)
        client.replica.commit(transaction, made.told)

    def look(self, transaction: Transaction) -> tuple[str, Path, object]:
        id, path = self.random.choice(DOCS), self.random.choice(PLACES)
        before = len(transaction.read_set())
        value = transaction.read(doc(id), path)
        recorded = len(transaction.read_set()) > before or (doc(id), path, 0) in transaction.read_set()
        return (id if recorded else "", path, GONE if value is ABSENT else value)

    def write(self, transaction: Transaction, name: str) -> None:
        if self.following and self.random.random() < 0.3:
            targets = self.random.sample(DOCS, self.random.randrange(len(DOCS) + 1))
            transaction.write(doc(ROOT), replace((), [Link(id=id) for id in targets]))
            return
        key = doc(self.random.choice(DOCS))
        number = self.random.randrange(3)
        patch = self.random.choice(
            (
                replace(("x",), number),
                replace(("y",), number),
                increment(("y",)),
                append(("l",), [name]),
                append(("l",), [name], keep=2),
                add_unique(("l",), "s"),
                remove_value(("l",), "s"),
                add(("m", "k"), number),
                add(("m",), {"k": number}),
                remove(("m",)),
                replace(("l", 0), name),
                splice(("l",), 0, 1, [name]),
                replace((), {"x": number, "y": 0, "l": ("s",), "m": {"k": number}}),
            )
        )
        transaction.write(key, patch)

    def send(self, client: Client) -> None:
        client.send(self.random.choice((1, None)))

    def hear(self, client: Client) -> None:
        client.hear(self.random.choice((1, None)))

    def lose(self, client: Client) -> None:
        if client.peer is not None:
            (client.down if self.random.random() < 0.7 else client.drop)()

    def connect(self, client: Client) -> None:
        if client.peer is None:
            client.up()

    def look_elsewhere(self, client: Client) -> None:
        key = doc(self.random.choice(DOCS))
        if self.random.random() < 0.4:
            if client.replica.let_go(key):
                client.mirror.values.pop(key, None)
        elif self.random.random() < 0.4:
            if client.session.unwatch(key):
                client.mirror.values.pop(key, None)
        else:
            client.session.watch([key])

    def wait(self, client: Client) -> None:
        self.world.later(self.random.choice((1, KEPT_US + 1)))

    def restart(self, client: Client) -> None:
        """The engine's process starts again: what was on the disk is there, every connection is gone."""
        self.world.engine.drop_caches()
        self.world.hub = Hub(self.world.engine, self.world.clock, self.limits)
        for each in self.clients:
            if each.peer is not None:
                each.drop()

    # ---- the end -----------------------------------------------------------------------------------

    def finish(self) -> None:
        """Everybody connects, everything is delivered and everything is watched."""
        for client in self.clients:
            if client.peer is None:
                client.up()
        self.world.settle()
        for client in self.clients:
            client.session.flush()
            client.watch(*DOCS, ROOT, self.journal(client))
        self.world.settle()

    def problems(self) -> list[str]:
        return [*self.found, *self.fates(), *self.disagreements(), *self.untrue_views()]

    def fates(self) -> list[str]:
        """C6: every callback fires once, and says landed exactly for what is in the log, where it is once."""
        logged = [entry["name"] for client in self.clients for entry in self.entries(client)]
        wrong = [f"{name} is in the log {logged.count(name)} times" for name in set(logged) if logged.count(name) > 1]
        for made in self.made:
            if len(made.told.calls) != 1:
                wrong.append(f"{made.name} was told {len(made.told.calls)} times")
            elif made.told.landed != (made.name in logged):
                wrong.append(f"{made.name} was told {made.told.calls[0][1]}, in the log: {made.name in logged}")
        return wrong

    def entries(self, client: Client) -> list[dict[str, object]]:
        value = self.world.value(self.journal(client))
        return [] if value is ABSENT else list(value)  # type: ignore[arg-type]

    def disagreements(self) -> list[str]:
        """After healing every replica shows what the log says, and nothing is left over."""
        wrong = []
        for client in self.clients:
            key = client.session.key
            wrong += [f"{key}: {error!r}" for error in (*client.errors, *client.raised)]
            wrong += [f"{key}: {docs} could not be loaded: {error}" for docs, error in client.failed_loads]
            if not client.replica.is_confirmed():
                wrong.append(f"{key} still has commits without confirmation: {client.replica.layers()}")
            if client.session.is_loading():
                wrong.append(f"{key} is still loading")
            for name in (*map(doc, DOCS), doc(ROOT), self.journal(client)):
                if not client.replica.is_here(name):
                    wrong.append(f"{key} does not have {name.id}")
                elif not equal(client.shows(name), self.world.value(name)):
                    wrong.append(f"{key} shows {name.id} as {client.shows(name)!r}, it is {self.world.value(name)!r}")
            wrong += [f"{key}: {problem}" for problem in client.mirror.differences()]
        return wrong

    def untrue_views(self) -> list[str]:
        """C1: what an accepted commit saw is what the log held right before it."""
        wrong = []
        state: dict[DocKey, MaybeValue] = {}
        for change in self.world.engine.changes(limit=10_000).items:
            for operation in change.commit.operations:
                if operation.doc.id.startswith("journal-"):
                    for patch in operation.patches:
                        for entry in patch.arg[0]:  # type: ignore[index, union-attr]
                            wrong += self.untrue(change.seq, entry, state)  # type: ignore[arg-type]
            for operation in change.commit.operations:
                value = state.get(operation.doc, ABSENT)
                for patch in operation.patches:
                    value = apply(value, patch)[0]
                state[operation.doc] = value
        return wrong

    @staticmethod
    def untrue(seq: int, entry: dict[str, object], state: dict[DocKey, MaybeValue]) -> list[str]:
        wrong = []
        for id, path, saw in entry["saw"]:  # type: ignore[attr-defined]
            if id:
                true = lookup(state.get(doc(id), ABSENT), path)
                if not equal(GONE if true is ABSENT else true, saw):
                    wrong.append(f"seq {seq}, {entry['name']}: saw {saw!r} at {id}{path}, where {true!r} was")
        return wrong


def play(seed: int, steps: int = 60, *, clients: int = 2, following: bool = False) -> list[str]:
    """One history from its seed: everything that was wrong with it."""
    history = History(seed, clients=clients, following=following)
    for _ in range(steps):
        history.step()
        if history.found:
            break
    history.finish()
    return history.problems()
