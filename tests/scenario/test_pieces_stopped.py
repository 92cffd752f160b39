"""A piece that is stopped while others read it: they see what is right, and nobody runs for an equal value."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from headwater import (
    Cell,
    Input,
    Link,
    Piece,
    Ready,
    Runtime,
    cell,
    child,
    computed,
    each,
    effect,
    fold,
    given,
    handler,
    link,
    resource,
)
from tests.scenario.pieces_kit import Ranned, alone, node_count, run


class Leaf(Piece):
    n: Input[int] = given()

    @computed
    def twice(self) -> int:
        return 2 * self.n.get()


class Tree(Piece):
    leaves: Cell[Mapping[str, int]] = cell(default={"a": 1})
    sum = fold(leaves, start=0, add=lambda n, x: n + x, remove=lambda n, x: n - x)

    @computed
    def size(self) -> int:
        return len(self.leaves.get())

    @computed
    def more(self) -> int:
        return self.size.get() + 1

    @each(leaves)
    def views(self, leaf: Input[int]) -> Leaf:
        return Leaf(n=leaf)

    @child
    def only(self) -> Leaf:
        return Leaf(n=self.leaves.key("a"))

    @resource(more)
    async def said(self, more: int) -> str:
        return f"{more} leaves"

    @computed(scope="session")
    def mine(self) -> str:
        return f"{self.size.get()} for {self.ctx.session}"

    @handler
    def grow(self, name: str, n: int) -> None:
        self.leaves.key(name).set(n)


class Reader(Piece):
    source: Input[int] = given()
    target: Cell[Link[Any] | None] = cell(default=None)

    @computed
    def above(self) -> int:
        return self.source.get() + 100

    @computed
    def higher(self) -> int:
        return self.above.get() + 1_000

    @computed
    def followed(self) -> int:
        found = self.target.get()
        return 0 if found is None else int(self.ctx.follow(found).get())


class Outer(Piece):
    target: Cell[Link[Any] | None] = cell(default=None)

    @computed
    def leaves(self) -> Mapping[str, int]:
        found = self.target.get()
        if found is None:
            return {}
        tree: Tree = self.ctx.follow(found)
        return {
            "only": tree.only.get().twice.get(),
            **{key: leaf.twice.get() for key, leaf in tree.views.get().items()},
        }


async def opened(rt: Runtime) -> tuple[Any, Any]:
    space = rt.space("s", user="ann")
    tree = await space.open(Tree, "t")
    reader: Any = await space.open(Reader(source=tree.more), "r", setup=lambda r: r.target.set(link(tree.sum)))
    return tree, reader


async def grown(rt: Runtime, name: str, n: int) -> None:
    await rt.space("s").piece(Tree, "t").grow.send(name, n)
    await rt.settled()


def test_sinks_watches_and_other_pieces_go_on_after_a_stop() -> None:
    async def work() -> None:
        async with alone() as (rt, errors):
            tree, reader = await opened(rt)
            seen: list[int] = []
            watched: list[int] = []

            async def watch() -> None:
                async for value in tree.sum.watch():
                    watched.append(value)

            tree.more.sink(seen.append)
            watching = asyncio.create_task(watch())
            assert [await reader.higher.pull(), await reader.followed.pull()] == [1_102, 1]
            await rt.space("s").stop(tree)
            await grown(rt, "b", 5)
            assert (seen, watched) == ([2, 3], [1, 6])
            assert [await reader.higher.pull(), await reader.followed.pull()] == [1_103, 6]
            watching.cancel()
            assert errors == []

    run(work)


def test_what_nobody_demands_looks_again_when_somebody_does() -> None:
    async def work() -> None:
        async with alone() as (rt, errors):
            tree, reader = await opened(rt)
            assert [await reader.higher.pull(), await reader.followed.pull()] == [1_102, 1]
            await rt.space("s").stop(tree)
            assert "s/t:more" not in [node.id for node in rt.graph().nodes]  # Nothing of it was made for them.
            await grown(rt, "b", 5)
            assert [await reader.higher.pull(), await reader.followed.pull()] == [1_103, 6]
            assert errors == []

    run(work)


def test_a_stop_runs_nobody_who_would_see_the_same() -> None:
    async def work() -> None:
        async with alone() as (rt, errors):
            tree, _ = await opened(rt)
            seen: list[int] = []
            tree.more.sink(seen.append)
            await rt.idle()
            ran = Ranned(rt)
            await rt.space("s").stop(tree)
            assert seen == [2]
            assert ran.taken().totals == (0, 0)
            await rt.space("s").open(Tree, "t")
            await grown(rt, "b", 1)
            assert seen == [2, 3]
            assert errors == []

    run(work)


def test_readers_of_rows_children_and_resources_go_on_after_a_stop() -> None:
    async def work() -> None:
        async with alone() as (rt, errors):
            space = rt.space("s")
            tree, _ = await opened(rt)
            outer: Any = await space.open(Outer, "o", setup=lambda o: o.target.set(link(tree)))
            seen: list[Any] = []
            said: list[str] = []
            outer.leaves.sink(lambda value: seen.append(dict(value)))
            tree.said.sink(lambda state: said.append(state.value) if isinstance(state, Ready) else None)
            await rt.until(lambda: bool(said))
            await space.stop(tree)
            await grown(rt, "a", 3)
            await grown(rt, "b", 4)
            await rt.until(lambda: said[-1] == "3 leaves")
            assert seen[0] == {"only": 2, "a": 2}
            assert seen[-1] == await outer.leaves.pull() == {"only": 6, "a": 6, "b": 8}
            assert errors == []

    run(work)


def test_what_nobody_reads_is_gone_after_a_stop() -> None:
    async def work() -> None:
        async with alone() as (rt, errors):
            before = node_count(rt)
            for _ in range(3):
                tree = await rt.space("s").open(Tree, "t")
                assert await tree.more.pull() == 2
                sink = tree.sum.sink(lambda _: None)
                sink.close()
                await rt.space("s").stop(tree)
                assert node_count(rt) == before
            assert errors == []

    run(work)


def test_whoever_looks_into_a_window_sees_it_when_it_becomes_somebody_s() -> None:
    async def work() -> None:
        async with alone() as (rt, errors):
            seen: list[str] = []
            rt.space("s", session="w1").piece(Tree, "t").mine.sink(seen.append)
            await rt.idle()
            anns = rt.space("s", user="ann", session="w1").piece(Tree, "t")
            await grown(rt, "b", 1)
            assert seen[-1] == await anns.mine.pull() == "2 for w1"
            assert errors == []

    run(work)


def test_effects_of_another_piece_hear_of_what_comes_after_a_stop() -> None:
    shown: list[int] = []

    class Shown(Piece, name="stopped.Shown"):
        source: Input[int] = given()

        @effect
        def show(self) -> None:
            shown.append(self.source.get())

    async def work() -> None:
        async with alone() as (rt, errors):
            tree, _ = await opened(rt)
            await rt.space("s").open(Shown(source=tree.sum), "shown")
            await rt.space("s").stop(tree)
            await grown(rt, "b", 4)
            assert shown == [1, 5]
            assert errors == []

    run(work)


def test_a_piece_that_two_users_have_open_stops_for_one_of_them() -> None:
    shown: list[str] = []

    class Kid(Piece, name="stopped.Kid"):
        n: Input[int] = given()

        @effect
        def show(self) -> None:
            shown.append(f"{self.ctx.user}: kid {self.n.get()}")

    class Both(Piece, name="stopped.Both"):
        n: Cell[int] = cell(default=0)

        @child
        def kid(self) -> Kid:
            return Kid(n=self.n)

        @effect
        def show(self) -> None:
            shown.append(f"{self.ctx.user}: {self.n.get()}")

    async def work() -> None:
        async with alone() as (rt, errors):
            ann, bob = rt.space("s", user="ann"), rt.space("s", user="bob")
            before = node_count(rt)
            anns = await ann.open(Both, "b")
            one = node_count(rt)
            bobs = await bob.open(Both, "b")
            shown.clear()
            await bob.stop(bobs)
            assert node_count(rt) == one
            anns.n.set(1)
            await rt.idle()
            assert sorted(shown) == ["ann: 1", "ann: kid 1"]
            await bob.stop(bobs)  # It is open for ann alone.
            assert node_count(rt) == one
            await rt.space("s").stop(bobs)
            assert node_count(rt) == before
            assert errors == []

    run(work)
