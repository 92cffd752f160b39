"""Pieces that are only named: their nodes are bounded, and who looks again through any handle sees what is right."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any

from headwater import (
    Cell,
    Input,
    Piece,
    Policy,
    Ready,
    Runtime,
    cell,
    child,
    computed,
    each,
    fold,
    given,
    handler,
    resource,
)
from tests.scenario.pieces_kit import alone, run


class Leaf(Piece):
    n: Input[int] = given()

    @computed
    def twice(self) -> int:
        return 2 * self.n.get()


class Tree(Piece):
    leaves: Cell[Mapping[str, int]] = cell(default={"a": 1})
    word: Cell[str] = cell(default="tea")
    sum = fold(leaves, start=0, add=lambda n, x: n + x, remove=lambda n, x: n - x)

    @computed
    def size(self) -> int:
        return len(self.leaves.get())

    @computed
    def state(self) -> Mapping[str, int]:
        return {"size": self.size.get()}

    @each(leaves)
    def views(self, leaf: Input[int]) -> Leaf:
        return Leaf(n=leaf)

    @child
    def only(self) -> Leaf | None:
        return Leaf(n=self.leaves.key("a")) if self.size.get() else None

    @resource(word)
    async def shouted(self, word: str) -> str:
        return word.upper()

    @handler
    def grow(self, name: str, n: int) -> int:
        self.leaves.key(name).set(n)
        return self.size.get()


class Reader(Piece):
    size: Input[int] = given()

    @computed
    def more(self) -> int:
        return self.size.get() + 1


async def look_at_many(rt: Runtime, first: int, count: int) -> None:
    for number in range(first, first + count):
        tree = rt.space("s").piece(Tree, f"t{number}")
        assert await tree.size.pull() == 1
        assert [await leaf.twice.pull() for leaf in (await tree.views.pull()).values()] == [2]


def counted(rt: Runtime) -> tuple[int, int]:
    """Nodes, and pieces that have nodes."""
    nodes = rt.graph().nodes
    return len(nodes), len({re.split("[/:]", node.id)[1] for node in nodes})


def has_nodes(rt: Runtime, name: str) -> bool:
    """Whether there is a node that computes the size of a tree. Asking creates none."""
    return f"s/{name}:size" in [node.id for node in rt.graph().nodes]


def test_what_was_looked_at_is_let_go_beyond_a_number() -> None:
    async def work() -> None:
        async with alone(policy=Policy(named_pieces=20)) as (rt, errors):
            await look_at_many(rt, 0, 40)
            await rt.idle()
            nodes, pieces = counted(rt)
            await look_at_many(rt, 40, 160)
            await rt.idle()
            assert counted(rt) == (nodes, pieces)  # The same after 200 as after 40.
            assert pieces == 20
            assert errors == []

    run(work)


def test_a_handle_that_somebody_kept_is_right_after_its_piece_was_let_go() -> None:
    async def work() -> None:
        async with alone(policy=Policy(named_pieces=3)) as (rt, errors):
            tree = rt.space("s").piece(Tree, "kept")
            size, part, total, views = tree.size, tree.state.key("size"), tree.sum, tree.views
            only: Any = tree.only
            shouted: Any = tree.shouted
            for turn in range(1, 4):
                assert [await size.pull(), await part.pull(), await total.pull()] == [turn, turn, turn]
                assert {key: await leaf.twice.pull() for key, leaf in (await views.pull()).items()} == {
                    "a": 2,
                    **{f"k{n}": 2 for n in range(1, turn)},
                }
                assert await (await only.pull()).twice.pull() == 2
                async for state in shouted.watch():
                    if isinstance(state, Ready):
                        assert state.value == "TEA"
                        break
                await look_at_many(rt, turn * 10, 10)
                await rt.idle()
                assert not has_nodes(rt, "kept")  # It was let go.
                assert await rt.space("s").piece(Tree, "kept").grow.send(f"k{turn}", 1) >= turn
            assert errors == []

    run(work)


def test_what_somebody_watches_or_reads_stays() -> None:
    async def work() -> None:
        async with alone(policy=Policy(named_pieces=3)) as (rt, errors):
            space = rt.space("s")
            seen: list[int] = []
            watched = space.piece(Tree, "watched").size.sink(seen.append)
            reader = await space.open(Reader(size=space.piece(Tree, "read").size), "r")
            assert await reader.more.pull() == 2
            await look_at_many(rt, 0, 20)
            await rt.idle()
            assert has_nodes(rt, "watched")
            await space.piece(Tree, "watched").grow.send("b", 2)
            await space.piece(Tree, "read").grow.send("b", 2)
            await rt.idle()
            assert seen == [1, 2]
            assert await reader.more.pull() == 3
            watched.close()
            await look_at_many(rt, 20, 20)
            await rt.idle()
            assert not has_nodes(rt, "watched")
            assert errors == []

    run(work)


def test_an_open_piece_is_never_let_go() -> None:
    async def work() -> None:
        async with alone(policy=Policy(named_pieces=3)) as (rt, errors):
            space = rt.space("s")
            tree = await space.open(Tree, "open")
            assert await tree.size.pull() == 1
            await look_at_many(rt, 0, 20)
            await rt.idle()
            assert has_nodes(rt, "open")
            await space.stop(tree)
            assert await tree.size.pull() == 1
            await look_at_many(rt, 20, 20)
            await rt.idle()
            assert not has_nodes(rt, "open")
            assert errors == []

    run(work)


def test_events_to_pieces_that_are_let_go_meanwhile_all_land() -> None:
    async def work() -> None:
        async with alone(policy=Policy(named_pieces=2)) as (rt, errors):
            space = rt.space("s")
            sends = [space.piece(Tree, f"t{number % 12}").grow.send(f"k{number}", number) for number in range(120)]
            await asyncio.gather(*sends)
            assert [await space.piece(Tree, f"t{number}").size.pull() for number in range(12)] == [11] * 12
            assert errors == []

    run(work)
