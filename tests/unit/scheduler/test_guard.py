"""Guards: a condition beside the reads of a node, which is checked before its runs and named by its results."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.data.address import Depth
from headwater.data.reader_trie import Spot
from headwater.errors import AuthoringError
from headwater.replica import TierEntry
from headwater.replica.document import NOT_HERE, Document
from headwater.scheduler.node import Node
from headwater.testing.scheduler.kit import Handle, World


class Version:
    """Passes as long as a document has a value of at most `most`. `is_known` is False: there is no condition."""

    def __init__(self, place: Handle, most: int) -> None:
        self.document: Document = place.document
        self.most = most
        self.is_known = True
        self._spot = Spot(place.document, (), Depth.DEEP)

    @property
    def spot(self) -> Spot | None:
        return self._spot if self.is_known else None

    def awaited(self) -> Document | None:
        return self.document if self.is_known and self.document.value is NOT_HERE else None

    def is_passed(self) -> bool:
        value: Any = self.document.value
        return type(value) is not int or value <= self.most

    def refusal(self) -> Exception:
        return AuthoringError("a newer version runs it")


def guarded(world: World, version: Handle, source: Handle, **options: Any) -> tuple[Handle, Version]:
    handle = world.computed(lambda: source.get() * 2, id="c", **options)
    guard = Version(version, 1)
    world.node("c").guard = guard
    return handle, guard


def entries_of(world: World) -> list[TierEntry]:
    """Return the list to which each result of a run is added from now on."""
    made: list[TierEntry] = []

    def keep(_: Node, result: object) -> None:
        if isinstance(result, TierEntry):
            made.append(result)

    world.scheduler.runner.on_ran = keep
    return made


def test_result_names_the_place_of_its_guard_and_the_node_does_not_read_it() -> None:
    world = World()
    version, source = world.cell(1), world.cell(5)
    handle, guard = guarded(world, version, source)
    made = entries_of(world)
    assert world.look(handle) == []
    world.settle()
    assert [spot for spot in made[0].spots if spot is not None][-1] is guard.spot
    assert guard.spot not in world.node("c").reads
    assert world.ran_after(lambda: version.set(0)) == []
    source.set(6)
    world.settle()
    assert made[1].spots is made[0].spots


def test_guard_without_a_place_is_not_named() -> None:
    world = World()
    version, source = world.cell(1), world.cell(5)
    handle, guard = guarded(world, version, source)
    guard.is_known = False
    made = entries_of(world)
    world.look(handle)
    world.settle()
    assert [spot.document for spot in made[0].spots if spot is not None] == [source.document]
    guard.is_known = True
    source.set(6)
    world.settle()
    assert [spot.document for spot in made[1].spots if spot is not None] == [source.document, version.document]


def test_side_writes_name_the_place_of_the_guard_of_their_node() -> None:
    world = World()
    version, source, target = world.cell(1), world.cell(5), world.cell(0)

    def both() -> object:
        target.set(source.get())
        return 0

    handle = world.computed(both, id="c", writes=(target,))
    world.node("c").guard = Version(version, 1)
    world.look(handle)
    world.scheduler.tick()
    (layer,) = world.layers_of(world.node("c"))
    assert version.document.key in [read.doc for read in layer.commit.reads]


def test_run_that_the_guard_refuses_fails_and_its_former_result_is_not_sent() -> None:
    world = World()
    version, source = world.cell(1), world.cell(5)
    handle, _ = guarded(world, version, source)
    world.look(handle)
    world.scheduler.tick()
    node = world.node("c")
    assert world.replica.tier.is_current(node)
    version.set(2)
    assert not world.replica.tier.is_current(node)
    source.set(6)
    world.settle()
    assert isinstance(node.error, AuthoringError)
    with pytest.raises(AuthoringError, match="a newer version"):
        raise node.error


def test_node_waits_for_the_document_of_its_guard() -> None:
    world = World(lazy=True)
    version, source = world.absent_cell(), world.cell(5)
    handle, _ = guarded(world, version, source, output=world.document("c"))
    world.look(handle)
    world.settle()
    assert world.node("c").runs == 0
    assert version.document in world.driver.asked
    world.arrive(version, 1)
    world.settle()
    assert handle.peek() == 10
