"""Several runtimes derive the same graph over one space: messages take their time, commits conflict, connections go.

The engine, its hub, the sessions and the replicas are the real ones; every message is in the test's hands. At the end
everybody shows what a recomputation from the engine's cells makes (I1), and nothing is pending.
"""

from __future__ import annotations

import random

import pytest

from headwater.data.address import Depth
from headwater.data.patch import replace
from headwater.data.reader_trie import Spot
from headwater.data.value import ABSENT, equal, freeze
from headwater.replica import Kind, Notification
from headwater.scheduler import CLEAN, Node
from headwater.testing.scheduler.checks import check_world, unsettled
from headwater.testing.scheduler.graphs import KINDS, Built, Expected, Plan, random_plan
from headwater.testing.scheduler.kit import World
from headwater.testing.scheduler.watcher import Watcher, concerns
from tests.counts import seldom
from tests.unit.replica.kit import Client, doc
from tests.unit.replica.kit import World as Space

ROUNDS = 60


class Foreign(Watcher):
    """Where others write, too: a result that was found in place and not written counts as read."""

    def _called(self, node: Node, notification: Notification) -> tuple[Spot, ...]:
        called = super()._called(node, notification)
        is_found = self._seen.get(node) == CLEAN and not node.wrote and node.error is None
        if called or not is_found or notification.kind is Kind.COMMIT:
            return called
        places = [*((document, ()) for document in node.outputs), *node.found]
        spots = [Spot(document, path, Depth.DEEP) for document, path in places]
        changed = [spot for spot in spots if any(concerns(spot, change) for change in notification.changes)]
        told = {spot.document: spot for spot in node.causes or ()}
        return tuple(told.get(spot.document) or spot for spot in changed)


class Runtime:
    """A scheduler on a client's replica."""

    def __init__(self, client: Client, plan: Plan) -> None:
        self.client = client
        self.watcher = Foreign(client.replica)
        self.world = World(clock=client.world.clock, replica=client.replica, wire=client.session)
        self.watcher.join(self.world)
        self.world.driver.is_winner_here = client.session.ready
        self.plan = plan
        self.built: Built | None = None
        self.spread: list[object] = []

    def start(self, names: list[str]) -> None:
        self.built = Built(self.world, self.plan)
        for name in names:
            self.built.register(name)
        big, first = self.world.cell(id="big"), self.built.handles["n0"]
        self.world.materializer(lambda: big.at("n0").set(first.get()), [big], id="spread")
        self.world.effect(lambda: self.spread.append(big.at("n0").get()), id="eye big")

    def bump(self, name: str) -> None:
        """A handler's transaction: reads a cell and writes it, so that it can lose a race and be reverted."""
        replica = self.client.replica
        transaction = replica.begin()
        key = self.world.cell(id=name).document.key
        transaction.read(key)
        transaction.write(key, replace((), self.world.clock.monotonic_us() % 3))
        replica.commit(transaction)

    def pump(self) -> bool:
        moved = self.client.pump()
        self.world.scheduler.heard()
        return moved


class Shared:
    """One space, and the runtimes on it."""

    def __init__(self, rng: random.Random, runtimes: int, plan: Plan) -> None:
        self.rng = rng
        self.plan = plan
        self.space = Space(*[f"client{index}" for index in range(runtimes)])
        self.runtimes = [Runtime(client, plan) for client in self.space.clients]
        for client in self.space.clients:
            client.watch(*plan.cells, *plan.nodes, "big")
        self.space.settle()
        self.space.clients[0].write("big", replace((), {}))
        self.space.settle()
        for runtime in self.runtimes:
            names = [*plan.nodes, *plan.effects]
            rng.shuffle(names)
            runtime.start(names)

    def step(self) -> None:
        """One thing happens somewhere."""
        runtime = self.rng.choice(self.runtimes)
        client, choice = runtime.client, self.rng.random()
        assert runtime.built is not None
        if choice < 0.2:
            runtime.built.change(self.rng)
        elif choice < 0.25:
            name = self.rng.choice(list(self.plan.cells))
            if client.replica.is_here(doc(name)):
                self.space.clock.advance(1)
                runtime.bump(name)
        elif choice < 0.5:
            runtime.world.settle()
        elif choice < 0.7:
            client.send(self.rng.randint(1, 3))
        elif choice < 0.95:
            client.hear(self.rng.randint(1, 3))
            runtime.world.scheduler.heard()
        elif client.peer is None:
            client.up()
        else:
            client.down()

    def finish(self) -> None:
        """Everything arrives everywhere, and everybody comes to rest."""
        for runtime in self.runtimes:
            if runtime.client.peer is None:
                runtime.client.up()
        for _ in range(ROUNDS):
            moved = False
            for runtime in self.runtimes:
                runtime.world.settle()
                moved |= runtime.pump()
            if not moved and all(runtime.world.scheduler.is_quiet() for runtime in self.runtimes):
                return
        raise AssertionError(f"{ROUNDS} rounds and still talking")

    def check(self, note: str) -> None:
        for name in self.plan.cells:
            value = self.space.value(name)
            self.plan.cells[name] = value
        expected = Expected(self.plan)
        for runtime in self.runtimes:
            world, built = runtime.world, runtime.built
            assert built is not None
            check_world(world, heights=False)
            assert unsettled(world) == [], note
            assert world.replica.is_confirmed(), note
            assert world.driver.failures == [], note
            for node in world.nodes():
                if node.live and node.id in (self.plan.nodes | self.plan.effects):
                    should = expected.of(node.id)
                    shown = built.made[node.id] if node.id in self.plan.effects else node.outputs[0].value
                    assert equal(freeze(shown), freeze(should)), f"{note}: {node.id} shows {shown!r}, not {should!r}"
                    if node.outputs:
                        assert equal(self.space.value(node.id), freeze(should)), f"{note}: {node.id} in the engine"
            assert equal(freeze(runtime.spread[-1]), freeze(expected.of("n0"))), f"{note}: the materializer"
            assert runtime.watcher.problems == [], note
            assert runtime.watcher.unfounded == [], note
            assert runtime.client.raised == [], note
            assert runtime.client.errors == [], note


@pytest.mark.random
@pytest.mark.parametrize("runtimes", [1, 2, 3])
def test_everybody_comes_to_show_the_same(runtimes: int) -> None:
    rejected = 0
    for seed in range(seldom(2_000)):
        rng = random.Random(seed)
        shared = Shared(rng, runtimes, random_plan(rng, size=5, effects=2, kinds=KINDS))
        for _ in range(rng.choice((10, 40))):
            shared.step()
        shared.finish()
        shared.check(f"seed {seed}")
        rejected += sum(runtime.watcher.rejected for runtime in shared.runtimes)
        rejected += sum(runtime.client.replica.tier.superseded_count for runtime in shared.runtimes)
    assert rejected > seldom(2_000) // 4, "too few conflicts to mean anything"


def test_whoever_derived_from_an_old_cell_runs_again_and_the_present_value_stays() -> None:
    """Both derive one document from their own idea of a cell, at the same time."""
    space = Space("ann", "bob")
    for client in space.clients:
        client.watch("cell", "double")
    space.settle()
    worlds = []
    for client in space.clients:
        world = World(clock=space.clock, replica=client.replica, wire=client.session)
        world.driver.is_winner_here = client.session.ready
        cell = world.cell(id="cell")
        double = world.computed(lambda cell=cell: 0 if cell.get() is ABSENT else cell.get() * 2, id="double")  # type: ignore[misc]
        world.effect(double.get)
        worlds.append(world)
    worlds[0].cell(id="cell").set(5)
    for _ in range(10):
        for each, client in zip(worlds, space.clients, strict=True):
            each.settle()
            client.pump()
            each.scheduler.heard()
    assert space.value("double") == 10
    assert [each.cell(id="double").peek() for each in worlds] == [10, 10]
    assert all(each.replica.is_confirmed() for each in worlds)


def test_a_result_that_was_found_in_place_is_made_again_when_another_runtime_replaces_it() -> None:
    """Ann's sum comes out as it was, for a reason that is still on its way: what Bob makes without it lands before."""
    space = Space("ann", "bob")
    worlds = []
    for client in space.clients:
        client.watch("base", "triple", "sum")
        space.settle()
        world = World(clock=space.clock, replica=client.replica, wire=client.session)
        world.driver.is_winner_here = client.session.ready
        worlds.append(world)
    ann, bob = worlds
    at_ann, at_bob = space.clients
    bob.cell(0, id="base")
    space.settle()
    base = ann.cell(id="base")
    ann.computed(lambda: base.get() * 3, id="triple")
    for world in worlds:
        one, three = world.cell(id="base"), world.cell(id="triple")
        fn = lambda one=one, three=three: (2 * one.get() + (0 if three.get() is ABSENT else three.get())) % 5  # noqa: E731
        world.look(world.computed(fn, id="sum"), id="eye")
    for _ in range(4):
        for world in worlds:
            world.settle()
        space.settle()
    bob.cell(id="base").set(1)
    at_bob.send()
    at_ann.hear()
    ann.settle()
    assert ann.node("sum").wrote == 0, "(2 + 3) % 5 is 0, as before"
    bob.settle()
    at_bob.send()
    assert space.value("sum") == 2
    at_bob.down()
    for _ in range(4):
        at_ann.pump()
        ann.scheduler.heard()
        ann.settle()
    assert [ann.cell(id=name).peek() for name in ("triple", "sum")] == [3, 0]
    assert [space.value(name) for name in ("triple", "sum")] == [3, 0]
