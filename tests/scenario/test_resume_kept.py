"""What has to be here although its piece sleeps: children, and what the piece alone does not speak for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from headwater import (
    Cell,
    Delivery,
    Input,
    Link,
    Model,
    Piece,
    Ready,
    Topic,
    cell,
    child,
    computed,
    each,
    effect,
    fold,
    given,
    handler,
    link,
    reaction,
    resource,
    topic,
)
from headwater.protocol.observations import MOST_AWAKE
from tests.scenario.pieces_kit import run
from tests.scenario.resume_kit import Process, crashing, observed, process

CHARGED: list[int] = []
FETCHED: list[int] = []


class Leaf(Piece, name="kept.Leaf"):
    n: Cell[int] = given()
    seen: Cell[int] = cell(default=0)

    @computed
    def twice(self) -> int:
        return 2 * self.n.get()

    @computed(scope="user")
    def mine(self) -> int:
        return self.n.get() + 1

    @effect
    def show(self) -> None:
        self.twice.get()

    @handler
    def put(self, n: int) -> None:
        self.n.set(n)


class Branch(Piece, name="kept.Branch"):
    leaves: Cell[Mapping[str, int]] = given()

    @each(leaves)
    def all(self, n: Cell[int]) -> Leaf | None:
        return Leaf(n=n) if n.get() >= 0 else None

    @computed
    def sum(self) -> int:
        return sum(leaf.twice.get() for leaf in self.all.get().values())


class Tree(Piece, name="kept.Tree"):
    leaves: Cell[Mapping[str, int]] = cell(default={})
    unread: Cell[int] = cell(default=0)

    @child
    def branch(self) -> Branch:
        return Branch(leaves=self.leaves)

    @computed
    def doubled(self) -> int:
        return 2 * self.branch.get().sum.get()

    @effect
    def show(self) -> None:
        self.doubled.get()

    @handler
    def put(self, key: str, n: int) -> None:
        self.leaves.key(key).set(n)


class Sheet(Piece, name="kept.Sheet"):
    cells: Cell[Mapping[str, int]] = cell(default={})
    total = fold(cells, start=0, add=lambda n, x: n + x, remove=lambda n, x: n - x)

    @computed
    def more(self) -> int:
        return self.total.get() + 1

    @effect
    def show(self) -> None:
        self.more.get()

    @handler
    def put(self, key: str, n: int) -> None:
        self.cells.key(key).set(n)


async def _tree(folder: Path, **leaves: int) -> None:
    async with process(folder, identity="one") as first:
        await first.space.open(Tree, "t", setup=lambda made: made.leaves.set(leaves))
        await first.settled()


async def _asleep(one: Process, cls: type[Piece], name: str) -> Any:
    made: Any = await one.open(name, cls)
    assert (one.counts["asleep"], one.counts["woken"], one.taken()) == (1, 0, set())
    return made


class TestChildren:
    def test_they_are_there_and_what_they_compute_sleeps(self, tmp_path: Path) -> None:
        async def story() -> None:
            await _tree(tmp_path, a=1, b=2)
            async with process(tmp_path, identity="one") as again:
                tree = await _asleep(again, Tree, "t")
                leaves = tree.branch.get().all.get()
                assert sorted(leaves) == ["a", "b"]
                # The child and its row, the child set of its leaves, and a row for each of those.
                assert again.counts["clean"] == 5
                assert await leaves["b"].twice.pull() == 4
                assert await tree.doubled.pull() == 12
                assert (again.taken(), again.counts["woken"], again.errors) == (set(), 0, [])

        run(story)

    def test_what_is_sent_to_a_child_is_shown_by_it_and_by_the_piece_each_time(self, tmp_path: Path) -> None:
        async def story() -> None:
            await _tree(tmp_path, a=1, b=2)
            async with process(tmp_path, identity="one") as again:
                tree = await _asleep(again, Tree, "t")
                leaf = tree.branch.get().all.get()["a"]
                for n in (5, 6, 7):
                    await leaf.put.send(n)
                await again.settled()
                assert again.runs["t/branch//all/a:show"] == 3
                assert again.runs["t:show"] == 3
                assert again.counts["woken"] == 0

        run(story)

    def test_what_is_shown_through_a_fold_is_shown_each_time(self, tmp_path: Path) -> None:
        async def story() -> None:
            async with process(tmp_path, identity="one") as first:
                await first.space.open(Sheet, "s", setup=lambda made: made.cells.set({"a": 1, "b": 2}))
                await first.settled()
            async with process(tmp_path, identity="one") as again:
                sheet = await _asleep(again, Sheet, "s")
                for n in range(10, 14):
                    await sheet.put.send("a", n)
                await again.settled()
                assert again.runs["s:show"] == 4
                assert again.counts["woken"] == 0

        run(story)

    def test_one_that_comes_while_the_piece_sleeps_is_there_at_once(self, tmp_path: Path) -> None:
        async def story() -> None:
            await _tree(tmp_path, a=1)
            async with process(tmp_path, identity="one") as again:
                tree = await _asleep(again, Tree, "t")
                await tree.put.send("b", 2)
                await again.settled()
                assert sorted(tree.branch.get().all.get()) == ["a", "b"]
                assert {"t/branch//all/b:twice", "t/branch//all/b:show", "t:show"} <= again.taken()
                assert again.counts["woken"] == 0

        run(story)

    def test_an_element_that_leaves_takes_all_that_is_known_of_its_child_along(self, tmp_path: Path) -> None:
        async def story() -> None:
            await _tree(tmp_path, a=1, b=2)
            async with process(tmp_path, identity="one") as again:
                tree = await _asleep(again, Tree, "t")
                await tree.branch.get().all.get()["a"].mine.pull()
                await again.space.transact(lambda: tree.leaves.key("a").delete())
                await again.settled()
                assert sorted(tree.branch.get().all.get()) == ["b"]
                assert await tree.doubled.pull() == 8
                assert again.counts["woken"] == 0
            left = [each.node for each in await observed(tmp_path) if "all/a" in each.node.child]
            assert left == []
            async with process(tmp_path, identity="one") as third:
                again_there: Any = await third.open("t", Tree)
                third.taken()
                await third.space.transact(lambda: again_there.leaves.key("a").set(1))
                await third.settled()
                ran = third.taken()
                assert any(each.endswith("/a:twice") for each in ran), "it is another one of that name"
                assert any(each.endswith("/a:show") for each in ran)

        run(story)

    def test_one_that_left_while_nobody_was_there_is_forgotten_when_its_keeper_has_run(self, tmp_path: Path) -> None:
        async def story() -> None:
            await _tree(tmp_path, a=1, b=2)
            async with process(tmp_path) as other:
                there: Any = other.space.piece(Tree, "t")
                await other.space.transact(lambda: there.leaves.key("a").delete())
            async with process(tmp_path, identity="one") as again:
                tree: Any = await again.open("t", Tree)
                await again.settled()
                assert again.counts["asleep"] == 1
                assert sorted(tree.branch.get().all.get()) == ["b"]
                assert await tree.doubled.pull() == 8
            assert not [each.node for each in await observed(tmp_path) if "all/a" in each.node.child]

        run(story)

    def test_a_row_that_keeps_nothing_is_left_out(self, tmp_path: Path) -> None:
        async def story() -> None:
            await _tree(tmp_path, a=1, b=-1)
            async with process(tmp_path, identity="one") as again:
                tree = await _asleep(again, Tree, "t")
                assert sorted(tree.branch.get().all.get()) == ["a"]
                await tree.put.send("b", 4)
                await again.settled()
                assert sorted(tree.branch.get().all.get()) == ["a", "b"]
                assert await tree.doubled.pull() == 20

        run(story)


class Lamp(Piece, name="kept.Lamp"):
    watts: Input[int] = given()

    @computed
    def light(self) -> int:
        return 10 * self.watts.get()

    @effect
    def show(self) -> None:
        self.light.get()


class Room(Piece, name="kept.Room"):
    is_on: Cell[bool] = cell(default=True)
    watts: Cell[int] = cell(default=1)

    @child
    def lamp(self) -> Lamp | None:
        return Lamp(watts=self.watts) if self.is_on.get() else None


@pytest.mark.parametrize("is_asleep", [True, False])
def test_a_child_that_a_row_keeps_again_is_another_one(tmp_path: Path, is_asleep: bool) -> None:
    started = process if is_asleep else crashing

    async def story() -> None:
        async with started(tmp_path, identity="one") as first:
            room: Any = await first.open("r", Room)
            await first.space.transact(lambda: room.is_on.set(False))
            await first.settled()
        assert not [each for each in await observed(tmp_path) if each.node.child]
        async with process(tmp_path, identity="one") as again:
            room = await again.open("r", Room)
            assert again.taken() == set()
            await again.space.transact(lambda: room.is_on.set(True))
            await again.settled()
            assert again.taken() == {"r:lamp row", "r/lamp/:light", "r/lamp/:show"}

    run(story)


# ---- what a piece alone does not speak for -----------------------------------------------------------


class Sums(Piece, name="kept.Sums"):
    a: Cell[int] = cell(default=1)
    beside: Cell[int] = cell(default=0)

    @computed(writes=(beside,))
    def one(self) -> int:
        self.beside.set(10 * self.a.get())
        return self.a.get()

    @computed
    def two(self) -> int:
        return self.one.get() + 1

    @computed
    def of_beside(self) -> int:
        return self.beside.get() + 1

    @effect
    def show(self) -> None:
        self.two.get(), self.of_beside.get()


class Pages(Piece, name="kept.Pages"):
    number: Cell[int] = cell(default=1)

    @resource(number)
    async def page(self, n: int) -> str:
        FETCHED.append(n)
        return f"page {n}"

    @computed
    def text(self) -> str:
        state = self.page.get()
        return state.value if isinstance(state, Ready) else "..."

    @effect
    def show(self) -> None:
        self.text.get()


class Paid(Model):
    cents: int


class Till(Piece, name="kept.Till"):
    total: Cell[int] = cell(default=0)
    paid: Topic[Paid] = topic()

    @computed
    def shown(self) -> str:
        return f"{self.total.get()} cents"

    @effect
    def show(self) -> None:
        self.shown.get()

    @handler
    def pay(self, cents: int) -> None:
        self.total.increment(cents)
        self.paid.emit(Paid(cents=cents))

    @reaction(on=paid)
    async def charge(self, paid: Paid, delivery: Delivery) -> None:
        CHARGED.append(paid.cents)


class Other(Piece, name="kept.Other"):
    n: Cell[int] = cell(default=1)

    @computed
    def twice(self) -> int:
        return 2 * self.n.get()


class Follows(Piece, name="kept.Follows"):
    at: Cell[Link[Input[int]] | None] = cell(default=None)

    @computed
    def there(self) -> int:
        at = self.at.get()
        found: int = 0 if at is None else self.ctx.follow(at).get()
        return found

    @computed
    def more(self) -> int:
        return self.there.get() + 1

    @effect
    def show(self) -> None:
        self.more.get()


class Wide(Piece, name="kept.Wide"):
    keys: Cell[Mapping[str, int]] = cell(default={})
    at: Cell[Link[Input[int]] | None] = cell(default=None)

    @each(keys)
    def rows(self, n: Cell[int]) -> int:
        at = self.at.get()
        there: int = 0 if at is None else self.ctx.follow(at).get()
        return n.get() + there


async def _opened(folder: Path, cls: type[Piece]) -> None:
    async with process(folder, identity="one") as first:
        made: Any = await first.open("p", cls)
        if cls is Pages:
            await first.rt.until(lambda: made.text.get() == "page 1")
        await first.settled()
    FETCHED.clear()
    CHARGED.clear()


def test_one_that_writes_more_than_its_result_is_found_by_whoever_reads_that(tmp_path: Path) -> None:
    async def story() -> None:
        await _opened(tmp_path, Sums)
        async with process(tmp_path, identity="one") as again:
            sums = await _asleep(again, Sums, "p")
            assert again.counts["clean"] == 4, "that one, and who stands on it"
            await again.space.transact(lambda: sums.a.set(3))
            assert await sums.of_beside.pull() == 31
            await again.settled()
            assert again.taken() == {f"p:{each}" for each in ("one", "two", "of_beside", "show")}
            assert again.counts["woken"] == 0

    run(story)


def test_a_resource_is_not_fetched_again_and_goes_on_with_its_input(tmp_path: Path) -> None:
    async def story() -> None:
        await _opened(tmp_path, Pages)
        async with process(tmp_path, identity="one") as again:
            pages: Any = await again.open("p", Pages)
            assert (again.counts["asleep"], FETCHED) == (1, [])
            assert again.taken() <= {"p:page"}, "what it wants is looked at; nothing of the author's runs"
            await again.space.transact(lambda: pages.number.set(2))
            await pages.text.pull()  # From here on it is looked at.
            await again.rt.until(lambda: pages.text.get() == "page 2")
            assert FETCHED == [2]

    run(story)


def test_a_piece_with_reactions_sleeps(tmp_path: Path) -> None:
    async def story() -> None:
        await _opened(tmp_path, Till)
        async with process(tmp_path, identity="one") as again:
            till = await _asleep(again, Till, "p")
            await till.pay.send(5)
            await again.rt.reactions.drained()
            await again.settled()
            assert (CHARGED, again.taken()) == ([5], {"p:shown", "p:show"})
            assert again.counts["woken"] == 0

    run(story)


def test_what_was_read_through_a_link_is_heard_of(tmp_path: Path) -> None:
    async def story() -> None:
        async with process(tmp_path, identity="one") as first:
            other: Any = await first.space.open(Other, "o")
            at = link(other.twice)
            await first.space.open(Follows, "p", setup=lambda made: made.at.set(at))
            await first.settled()
        async with process(tmp_path, identity="one") as again:
            follows = await _asleep(again, Follows, "p")
            there: Any = again.space.piece(Other, "o")
            await again.space.transact(lambda: there.n.set(5))
            await again.settled()
            assert again.taken() == {"o:twice", "p:there", "p:more", "p:show"}
            assert await follows.more.pull() == 11

    run(story)


def test_where_too_many_have_to_be_here_all_of_it_is(tmp_path: Path) -> None:
    async def story() -> None:
        async with process(tmp_path, identity="one") as first:
            other: Any = await first.space.open(Other, "o")
            at, keys = link(other.twice), {f"k{n}": n for n in range(MOST_AWAKE + 1)}

            def begin(made: Any) -> None:
                made.at.set(at)
                made.keys.set(keys)

            wide: Any = await first.space.open(Wide, "p", setup=begin)
            await first.settled()
        async with process(tmp_path, identity="one") as again:
            wide = await again.open("p", Wide)
            assert again.counts["asleep"] == 0
            assert (again.taken(), (await wide.rows.pull())["k3"]) == (set(), 5)

    run(story)


@pytest.mark.parametrize("cls", [Sums, Pages, Till, Follows])
def test_it_is_said_again_by_whoever_had_it_asleep(tmp_path: Path, cls: type[Piece]) -> None:
    async def story() -> None:
        await _opened(tmp_path, cls)
        for _ in range(3):
            async with process(tmp_path, identity="one") as again:
                await again.open("p", cls)
                await again.settled()
                assert again.counts["asleep"] == 1
                assert not again.errors

    run(story)


class Choice(Piece, name="kept.Choice"):
    a: Cell[int] = cell(default=1)
    is_used: Cell[bool] = cell(default=True)

    @computed
    def twice(self) -> int:
        return 2 * self.a.get()

    @computed
    def picked(self) -> int:
        return self.twice.get() if self.is_used.get() else 0

    @effect
    def show(self) -> None:
        self.picked.get()


@pytest.mark.parametrize("is_asleep", [True, False])
def test_restart_runs_no_more_nodes_than_a_process_that_stayed(tmp_path: Path, is_asleep: bool) -> None:
    """`picked` reads `twice` no more. A process that stayed runs both, the lower one first. After a restart `picked`
    may run before the observation of `twice` has arrived, and then `twice` need not run."""
    started = process if is_asleep else crashing

    def change(made: Any) -> None:
        made.is_used.set(False)
        made.a.set(3)

    async def story() -> None:
        ran: list[set[str]] = []
        for place, is_down in (("stays", False), ("comes", True)):
            async with started(tmp_path / place, identity="one") as first:
                made: Any = await first.open("c", Choice)
                first.taken()
                if not is_down:
                    await first.space.transact(lambda made=made: change(made))  # type: ignore[misc]
                    await first.settled()
                    ran.append(first.taken())
            if is_down:
                async with process(tmp_path / place) as other:
                    there: Any = other.space.piece(Choice, "c")
                    await other.space.transact(lambda there=there: change(there))  # type: ignore[misc]
                async with process(tmp_path / place, identity="one") as again:
                    made = await again.open("c", Choice)
                    assert await made.picked.pull() == 0
                    ran.append(again.taken())
        stayed, came = ran
        assert stayed == {"c:twice", "c:picked", "c:show"}
        assert {"c:picked", "c:show"} <= came <= stayed

    run(story)


class Risky(Piece, name="kept.Risky"):
    cells: Cell[Mapping[str, int]] = cell(default={})

    @each(cells)
    def leaves(self, n: Cell[int]) -> Leaf:
        if n.get() < 0:
            raise ValueError("less than nothing")
        return Leaf(n=n)

    @each(cells)
    def doubled(self, n: Cell[int]) -> int:
        if n.get() < 0:
            raise ValueError("less than nothing")
        return 2 * n.get()


def test_a_row_that_fails_keeps_no_other_from_running(tmp_path: Path) -> None:
    async def story() -> None:
        async with process(tmp_path, identity="one") as one:
            risky: Any = await one.space.open(Risky, "r", setup=lambda made: made.cells.set({"a": -1}))
            await one.settled()
            one.taken()
            await one.space.transact(lambda: risky.cells.key("b").set(1))
            await one.settled()
            rows = {"r:leaves", "r:doubled", "r:leaves/b row", "r:doubled/b row"}
            assert one.taken() >= rows | {"r/leaves/b:twice", "r/leaves/b:show"}

    run(story)


def test_a_row_that_fails_after_a_restart_keeps_its_child_as_one_that_stayed_does(tmp_path: Path) -> None:
    async def story() -> None:
        async with process(tmp_path, identity="one") as first:
            await first.space.open(Risky, "r", setup=lambda made: made.cells.set({"a": 1}))
            await first.settled()
        for n in (-1, -2):
            async with process(tmp_path) as other:
                there: Any = other.space.piece(Risky, "r")
                await other.space.transact(lambda there=there, n=n: there.cells.key("a").set(n))  # type: ignore[misc]
            async with process(tmp_path, identity="one") as again:
                await again.open("r", Risky)
                assert again.taken() >= {"r:leaves/a row", "r/leaves/a:twice", "r/leaves/a:show"}

    run(story)


def test_a_child_set_that_was_brought_for_one_row_keeps_those_that_come(tmp_path: Path) -> None:
    async def story() -> None:
        async with process(tmp_path, identity="one") as first:
            await first.space.open(Risky, "r", setup=lambda made: made.cells.set({"a": 1, "b": 1}))
            await first.settled()
        async with process(tmp_path) as other:
            there: Any = other.space.piece(Risky, "r")
            await other.space.transact(lambda: there.cells.key("a").set(-1))
        async with process(tmp_path, identity="one") as again:
            risky: Any = await again.open("r", Risky)
            assert "r:doubled/a row" in again.taken()
            await again.space.transact(lambda: risky.cells.key("c").set(3))
            await again.settled()
            assert {"r:doubled", "r:doubled/c row"} <= again.taken()
            await again.space.transact(lambda: risky.cells.key("a").set(2))
            await again.settled()
            assert dict(await risky.doubled.pull()) == {"a": 4, "b": 2, "c": 6}

    run(story)
