"""Which documents are watched: whatever a node reads, writes or waits for, and nothing else."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import cast

import pytest

from headwater.data.value import ABSENT
from headwater.replica.document import NOT_HERE, Document
from headwater.testing.scheduler import kit
from headwater.testing.scheduler.checks import check_world
from headwater.testing.scheduler.kit import Handle, StandInDriver, World
from tests.counts import scaled


class Counting(StandInDriver):
    """A driver that knows what it was asked to watch and was not told to let go."""

    def load(self, document: Document) -> None:
        self.watched[document] = None
        super().load(document)

    def release(self, document: Document) -> None:
        self.watched.pop(document, None)
        super().release(document)

    @property
    def watched(self) -> dict[Document, None]:
        return cast("dict[Document, None]", self.__dict__.setdefault("_watched", {}))


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Callable[[], World]:
    monkeypatch.setattr(kit, "StandInDriver", Counting)
    return lambda: World(lazy=True, traced=False)


def watched(world: World) -> set[str]:
    assert isinstance(world.driver, Counting)
    return {document.key.id for document in world.driver.watched}


def follow(handle: Handle) -> object:
    """What a link leads to: that it is not here is found before it is read."""
    run = handle.world.scheduler.current.run
    if run is not None and handle.document.value is NOT_HERE:
        run.tracker.absent(run, handle.document)
    return handle.get()


def test_what_a_link_led_to_is_let_go_when_the_link_leads_elsewhere_before_it_arrives(
    make: Callable[[], World],
) -> None:
    """Y17."""
    world = make()
    link, parts = world.absent_cell("link"), {name: world.absent_cell(name) for name in ("one", "two")}
    seen: list[object] = []
    node = world.effect(lambda: seen.append(follow(parts[link.get()])))
    world.settle()
    world.arrive(link, "one")
    world.settle()
    assert watched(world) == {"link", "one"}
    link.set("two")
    world.settle()
    assert watched(world) == {"link", "two"}
    world.arrive(parts["two"], 2)
    world.settle()
    assert seen == [2]
    assert watched(world) == {"link", "two"}
    world.scheduler.remove(node)
    assert watched(world) == set()


def test_what_arrived_and_is_of_no_use_any_more_is_let_go(make: Callable[[], World]) -> None:
    world = make()
    part = world.absent_cell("part")
    wanted = [True]
    world.effect(lambda: follow(part) if wanted[0] else None)
    world.settle()
    assert watched(world) == {"part"}
    wanted[0] = False  # Nobody hears of this: the attempt does not need it all the same.
    world.arrive(part, 1)
    world.settle()
    assert watched(world) == set()


def test_what_two_wait_for_is_let_go_with_the_second(make: Callable[[], World]) -> None:
    world = make()
    part = world.absent_cell("part")
    nodes = [world.effect(lambda: follow(part)) for _ in range(2)]
    world.settle()
    world.scheduler.remove(nodes[0])
    assert watched(world) == {"part"}
    world.scheduler.remove(nodes[1])
    assert watched(world) == set()


def test_what_is_only_written_is_let_go_with_the_last_materializer_that_may(make: Callable[[], World]) -> None:
    """Y14."""
    world = make()
    big = world.absent_cell("big")
    nodes = [world.materializer(lambda key=key: big.at(key).set(1), [big.at(key)]) for key in "ab"]  # type: ignore[misc]
    world.settle()
    world.arrive(big, {})
    world.settle()
    assert big.peek() == {"a": 1, "b": 1}
    world.scheduler.remove(nodes[0])
    assert watched(world) == {"big"}
    world.scheduler.remove(nodes[1])
    assert watched(world) == set()


class Rewired:
    """Nodes that follow links and write through envelopes, over documents that arrive when they like."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self.world, self.rng = world, rng
        self.parts = [world.absent_cell(f"part{index}") for index in range(5)]
        self.links = [world.absent_cell(f"link{index}") for index in range(3)]

    def register(self) -> None:
        world, rng = self.world, self.rng
        link, other = rng.choice(self.links), rng.choice(self.links)
        kind = rng.random()
        if kind < 0.4:
            world.effect(lambda: (self.led(link), self.led(other)))
        elif kind < 0.7:
            output = world.computed(lambda: (self.led(link), 1)[1])
            world.effect(output.get)
        else:
            inside = world.absent_cell(world.name("big"))
            world.materializer(lambda: inside.at("x").set(self.led(link)), [inside])

    def led(self, link: Handle) -> object:
        at = link.get()
        return 0 if at is ABSENT else follow(self.parts[at])

    def step(self) -> None:
        world, rng = self.world, self.rng
        choice = rng.random()
        if choice < 0.25:
            self.register()
        elif choice < 0.45 and world.nodes():
            world.scheduler.remove(rng.choice(world.nodes()))
        elif choice < 0.75 and world.driver.asked:
            document = rng.choice(list(world.driver.asked))
            handle = Handle(world, document)
            name = document.key.id
            world.arrive(handle, rng.randrange(5) if name.startswith("link") else {} if name[0] == "b" else 7)
        else:
            here = [link for link in self.links if link.document.value is not NOT_HERE]
            if here:
                rng.choice(here).set(rng.randrange(5))

    def used(self) -> set[str]:
        """By definition: what is read, may be written by whoever asked for it, or is waited for."""
        read = {
            spot.document.key.id  # type: ignore[attr-defined]
            for node in self.world.nodes()
            for spot in node.reads
            if spot is not None
        }
        awaited = {node.loading.key.id for node in self.world.nodes() if node.loading is not None}
        surface = {
            document.key.id
            for node in self.world.nodes()
            for document in (*node.outputs, *(each for each, _ in node.envelope))
        }
        return read | awaited | surface


@pytest.mark.random
def test_what_is_watched_is_what_is_used_whatever_happens(make: Callable[[], World]) -> None:
    for seed in range(scaled(5_000)):
        rng = random.Random(seed)
        world = make()
        rewired = Rewired(world, rng)
        for step in range(20):
            rewired.step()
            if rng.random() < 0.7:
                world.settle()
                assert watched(world) <= rewired.used(), f"seed {seed} step {step}"
                read = {
                    spot.document.key.id  # type: ignore[attr-defined]
                    for node in world.nodes()
                    for spot in node.reads
                    if spot is not None
                }
                assert read <= watched(world), f"seed {seed} step {step}"
                check_world(world)
        for node in world.nodes():
            world.scheduler.remove(node)
        assert watched(world) == set(), f"seed {seed}"
        assert not world.scheduler.loads.is_used, f"seed {seed}"
