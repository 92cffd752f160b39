"""One order of keys: the value that is shown is the value that the patches make, everywhere and after a restart."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import headwater
from headwater import Cell, Json, Model, Piece, cell, computed, effect, handler
from headwater.cli.app import run as run_command
from headwater.testing import Simulation, simulated

SPACE = "shelves"
COMPARED: list[tuple[str, str]] = []
"""The orders that computeds tell of what they read, each with that of what they read."""


class Label(Model):
    text: str
    notes: Mapping[str, int] = {}


class Shelf(Piece, name="aid.Shelf"):
    flat: Cell[Mapping[str, int]] = cell(default={})
    nested: Cell[Mapping[str, Mapping[str, Mapping[str, int]]]] = cell(default={})
    free: Cell[Json] = cell(default={})
    labels: Cell[tuple[Label, ...]] = cell(default=())

    @computed
    def listed(self) -> str:
        return in_order(self.flat.get(), self.nested.get(), self.free.get(), self.labels.get())

    @computed
    def keys(self) -> tuple[str, ...]:
        return tuple(self.flat.view())

    @computed
    def doubled(self) -> Mapping[str, Mapping[str, int]]:
        return {
            key: {"n": n, "twice": 2 * n} if n % 2 else {"twice": 2 * n, "n": n} for key, n in self.flat.get().items()
        }

    @computed
    def doubled_order(self) -> str:
        return in_order(self.doubled.get())

    @computed
    def swapped(self) -> Mapping[str, Mapping[str, int]]:
        """A derived Mapping whose keys come in another order each time that the sum changes."""
        items = list(self.flat.get().items())
        if sum(self.flat.get().values()) % 2:
            items.reverse()
        return {key: {"n": n, "m": n + 1} if n % 2 else {"m": n + 1, "n": n} for key, n in items}

    @computed
    def swapped_order(self) -> str:
        return in_order(self.swapped.get())

    @effect
    def compare(self) -> None:
        """Every point at which something is shown: computeds agree with what they read."""
        cells = in_order(self.flat.get(), self.nested.get(), self.free.get(), self.labels.get())
        COMPARED.append((self.listed.get(), cells))
        COMPARED.append((self.swapped_order.get(), in_order(self.swapped.get())))

    @handler
    def put(self, flat: Mapping[str, int]) -> tuple[str, ...]:
        self.flat.set(flat)
        return tuple(self.flat.get())

    @handler
    def put_all(self, nested: Mapping[str, Mapping[str, Mapping[str, int]]], free: Json) -> str:
        self.nested.set(nested)
        self.free.set(free)
        return in_order(self.nested.get(), self.free.get())

    @handler
    def count_again(self, key: str, by: int) -> tuple[str, ...]:
        self.flat.key(key).delete()
        self.flat.key(key).increment(by)
        return tuple(self.flat.get())

    @handler
    def write_again(self, key: str, more: int) -> tuple[str, ...]:
        """Remove a key and write it again in the same commit."""
        n = self.flat.get()[key]
        self.flat.key(key).delete()
        self.flat.key(key).set(n + more)
        return tuple(self.flat.get())

    @handler
    def replace_all(self, flat: Mapping[str, int]) -> tuple[str, ...]:
        self.flat.set({})
        self.flat.set(flat)
        return tuple(self.flat.get())

    @handler
    def move_to_end(self, key: str) -> None:
        n = self.flat.get().get(key)
        if n is not None:
            self.flat.key(key).delete()
            self.flat.key("moves").increment()
            self.flat.key(key).set(n)


def in_order(*values: Any) -> str:
    """Values as text that shows the order of their keys, at any depth."""
    return repr([_plain(value) for value in values])


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return (value.text, _plain(value.notes)) if isinstance(value, Label) else value


@simulated(seeds=3)
async def test_set_shows_the_same_order_of_keys_to_its_writer_to_others_and_after_a_restart(sim: Simulation) -> None:
    ann = await sim.runtime("ann").space(SPACE).open(Shelf, "s")
    bob = await sim.runtime("bob").space(SPACE).open(Shelf, "s")
    ann.flat.set({"b": 1})
    await sim.settle()
    ann.flat.set({"a": 1, "b": 1})
    shown = tuple(ann.flat.get())
    assert shown == ("b", "a")  # the order in which they were first written
    assert await ann.keys.pull() == shown
    listed = await ann.listed.pull()
    await sim.settle()
    assert (tuple(ann.flat.get()), tuple(bob.flat.get())) == (shown, shown)
    assert (await bob.listed.pull(), await bob.keys.pull()) == (listed, shown)
    await sim.crash("ann")
    ann = await sim.runtime("ann").space(SPACE).open(Shelf, "s")
    assert tuple(await ann.flat.pull()) == shown
    assert (await ann.listed.pull(), await ann.keys.pull()) == (listed, shown)
    assert await ann.put.send({"c": 1, "a": 1, "b": 1}) == ("b", "a", "c")
    await sim.settle()
    assert (tuple(ann.flat.get()), tuple(bob.flat.get())) == (("b", "a", "c"), ("b", "a", "c"))


@simulated(seeds=3)
async def test_change_of_order_alone_is_no_change(sim: Simulation) -> None:
    ann = await sim.runtime("ann").space(SPACE).open(Shelf, "s")
    await ann.put.send({"a": 1, "b": 2})
    listed = await ann.listed.pull()
    await sim.settle()
    runs = sim.runs(Shelf.listed)
    ann.flat.set({"b": 2, "a": 1})
    assert await ann.put.send({"b": 2, "a": 1}) == ("a", "b")
    await sim.settle()
    assert tuple(ann.flat.get()) == ("a", "b")
    assert await ann.listed.pull() == listed
    assert sim.runs(Shelf.listed) == runs


@simulated(seeds=3)
async def test_handler_sees_the_order_of_keys_that_lands(sim: Simulation) -> None:
    ann = await sim.runtime("ann").space(SPACE).open(Shelf, "s")
    await ann.put.send({"a": 1, "b": 2})
    for answer in (
        await ann.write_again.send("a", 0),
        await ann.write_again.send("a", 1),
        await ann.replace_all.send({"b": 2, "a": 5}),
    ):
        assert answer == ("a", "b")
        assert tuple(ann.flat.get()) == ("a", "b")
        await sim.settle()
        assert tuple(ann.flat.get()) == ("a", "b")
        assert await ann.keys.pull() == ("a", "b")


@simulated(seeds=3)
async def test_key_that_a_handler_removes_and_counts_again_stays_in_its_place(sim: Simulation) -> None:
    ann = await sim.runtime("ann").space(SPACE).open(Shelf, "s")
    bob = await sim.runtime("bob").space(SPACE).open(Shelf, "s")
    await ann.put.send({"a": 1, "b": 2})
    await ann.listed.pull()
    await sim.settle()
    runs = sim.runs(Shelf.listed)
    assert await ann.count_again.send("a", 1) == ("a", "b")
    await sim.settle()
    assert sim.runs(Shelf.listed) == runs
    assert await ann.count_again.send("a", 5) == ("a", "b")
    await sim.settle()
    assert await bob.keys.pull() == await ann.keys.pull() == ("a", "b")
    assert await bob.flat.pull() == {"a": 5, "b": 2}


@simulated(seeds=3)
async def test_key_removed_and_added_again_is_last_everywhere_and_computeds_follow(sim: Simulation) -> None:
    ann = await sim.runtime("ann").space(SPACE).open(Shelf, "s")
    bob = await sim.runtime("bob").space(SPACE).open(Shelf, "s")
    await ann.put.send({"moves": 0, "a": 1, "b": 2})
    await bob.keys.pull()
    await bob.listed.pull()
    await sim.settle()
    with sim.offline("bob"):
        ann.flat.key("a").delete()
        await sim.runtime("ann").durable()
        ann.flat.key("a").set(1)
        await sim.runtime("ann").durable()
    await sim.settle()
    assert (tuple(ann.flat.get()), tuple(bob.flat.get())) == (("moves", "b", "a"), ("moves", "b", "a"))
    assert [await each.keys.pull() for each in (ann, bob)] == [("moves", "b", "a")] * 2
    assert await bob.listed.pull() == await ann.listed.pull() == listed_of(ann)
    await ann.move_to_end.send("b")
    await sim.settle()
    assert [await each.keys.pull() for each in (ann, bob)] == [("moves", "a", "b")] * 2
    assert await bob.listed.pull() == await ann.listed.pull() == listed_of(ann)


@simulated(seeds=3, faults=("delay",))
async def test_derived_mapping_has_the_order_that_was_shown_also_if_results_in_between_were_not_stored(
    sim: Simulation,
) -> None:
    runtime = sim.runtime("ann")
    ann = await runtime.space(SPACE).open(Shelf, "s")
    seen: list[str] = []
    ann.doubled_order.sink(seen.append)
    await sim.settle()
    ann.flat.set({"a": 1, "b": 1})
    await runtime.idle()  # This result is on its way when the next ones are shown.
    for key, n in (("b", 3), ("a", 2)):
        ann.flat.key(key).delete()
        await runtime.idle()
        ann.flat.key(key).set(n)
        await runtime.idle()
    runs = sim.runs(Shelf.doubled), sim.runs(Shelf.doubled_order)
    shown = in_order(ann.doubled.get())
    assert shown == in_order({"b": {"n": 3, "twice": 6}, "a": {"twice": 4, "n": 2}})
    await sim.settle()
    assert in_order(ann.doubled.get()) == seen[-1] == shown
    assert (sim.runs(Shelf.doubled), sim.runs(Shelf.doubled_order)) == runs
    await sim.crash("ann")
    again = await sim.runtime("ann").space(SPACE).open(Shelf, "s")
    assert in_order(await again.doubled.pull()) == await again.doubled_order.pull() == shown
    assert sim.runs(Shelf.doubled_order) == runs[1]


def listed_of(shelf: Shelf) -> str:
    return in_order(shelf.flat.get(), shelf.nested.get(), shelf.free.get(), shelf.labels.get())


def test_clean_computed_agrees_with_its_cell_after_a_restart_and_verify_resume_finds_nothing(tmp_path: Path) -> None:
    data = tmp_path / "data"

    async def written() -> tuple[tuple[str, ...], str]:
        async with headwater.open(data) as rt:
            shelf = await rt.space(SPACE, user="ann").open(Shelf, "s")
            shelf.flat.set({"b": 1})
            await rt.durable()
            shelf.flat.set({"a": 1, "b": 1})
            shelf.free.set({"x": {"b": 1}})
            shelf.free.set({"y": 1, "x": {"a": 1, "b": 1}})
            await shelf.keys.pull()
            await shelf.swapped_order.pull()
            return tuple(shelf.flat.get()), await shelf.listed.pull()

    async def read() -> tuple[tuple[str, ...], str, str]:
        async with headwater.open(data) as rt:
            shelf = await rt.space(SPACE, user="ann").open(Shelf, "s")
            listed = await shelf.listed.pull()
            return tuple(await shelf.flat.pull()), listed, listed_of(shelf)

    shown, listed = headwater.run(written)
    assert run_command(["verify", str(data), "--resume", "tests.aid.test_key_order"]) == 0
    assert headwater.run(read) == (shown, listed, listed)
    assert run_command(["verify", str(data / f"{SPACE}.space")]) == 0


def drawn(draw: random.Random, depth: int) -> Any:
    """A Mapping with some of a few keys, in random order, of Mappings or numbers."""
    keys = draw.sample("abcd", draw.randrange(5))
    return {key: drawn(draw, depth - 1) if depth else draw.randrange(2) for key in keys}


def drawn_json(draw: random.Random, depth: int = 3) -> Any:
    kind = draw.randrange(4) if depth else 0
    if kind == 0:
        return draw.randrange(2)
    if kind == 1:
        return [drawn_json(draw, depth - 1) for _ in range(draw.randrange(3))]
    return {key: drawn_json(draw, depth - 1) for key in draw.sample("abcd", draw.randrange(5))}


@simulated(seeds=6, faults=("delay", "drop"))
async def test_random_sets_of_nested_mappings_have_one_order_everywhere_at_every_point(sim: Simulation) -> None:
    draw = random.Random(sim.seed)
    shelves = [await sim.runtime(user).space(SPACE).open(Shelf, "s") for user in ("ann", "bob")]
    COMPARED.clear()
    for _ in range(6):
        for _ in range(draw.randrange(1, 4)):
            shelf = draw.choice(shelves)
            match draw.randrange(7):
                case 0:
                    shelf.flat.set(drawn(draw, 0))
                case 1:
                    shelf.nested.set(drawn(draw, 2))
                case 2:
                    shelf.free.set(drawn_json(draw))
                case 3:
                    shelf.labels.set(tuple(Label(text=text, notes=drawn(draw, 0)) for text in draw.sample("xyz", 2)))
                case 4:
                    await shelf.put.send(drawn(draw, 0))
                case 5:
                    await shelf.put_all.send(drawn(draw, 2), drawn_json(draw))
                case _:
                    shelf.nested.key(draw.choice("abcd")).set(drawn(draw, 1))
        await sim.settle()
        ann, bob = shelves
        assert listed_of(ann) == listed_of(bob) == await ann.listed.pull() == await bob.listed.pull()
        assert in_order(ann.swapped.get()) == in_order(bob.swapped.get()) == await ann.swapped_order.pull()
    assert len(COMPARED) > 4
    assert [one for one, two in COMPARED if one != two] == []
    await sim.crash("ann")
    again = await sim.runtime("ann").space(SPACE).open(Shelf, "s")
    assert await again.listed.pull() == listed_of(shelves[1])
    for handle in (again.flat, again.nested, again.free, again.labels):
        await handle.pull()
    assert listed_of(again) == listed_of(shelves[1])
    assert await again.swapped_order.pull() == in_order(shelves[1].swapped.get())
