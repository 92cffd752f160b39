"""`fold`: costs the changed elements only, and what it keeps always belongs together."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from random import Random

import pytest

from headwater import (
    AuthoringError,
    Cell,
    Computed,
    Input,
    Model,
    Piece,
    UpstreamFailedError,
    cell,
    computed,
    fold,
    given,
)
from tests.counts import scaled
from tests.scenario.pieces_kit import alone, at, run

CALLS: list[str] = []


class Card(Model):
    column: str
    points: int = 1


def put(n: int, x: int) -> int:
    CALLS.append(f"+{x}")
    if x == 13:
        raise ValueError("unlucky")
    return n + x


def take(n: int, x: int) -> int:
    CALLS.append(f"-{x}")
    return n - x


class Tally(Piece):
    numbers: Cell[tuple[int, ...]] = cell(default=())
    entries: Cell[Mapping[str, int]] = cell(default={})
    cards: Cell[Mapping[int, Card]] = cell(default={})
    total = fold(numbers, start=0, add=put, remove=take)
    sum = fold(entries, start=100, add=put, remove=take)
    points = fold(
        cards, by=lambda c: c.column, start=0, add=lambda n, c: n + c.points, remove=lambda n, c: n - c.points
    )
    longest: Computed[tuple[int, ...]] = fold(
        numbers, start=(), add=lambda n, x: tuple(sorted((*n, x))), remove=lambda n, x: without(n, x)
    )

    @computed
    def evens(self) -> tuple[int, ...]:
        return tuple(x for x in self.numbers.get() if x % 2 == 0)

    even = fold(evens, start=0, add=lambda n, x: n + x, remove=lambda n, x: n - x)


def without(numbers: tuple[int, ...], x: int) -> tuple[int, ...]:
    at = numbers.index(x)
    return numbers[:at] + numbers[at + 1 :]


def calls() -> list[str]:
    taken = CALLS[:]
    CALLS.clear()
    return taken


def test_an_entry_that_changes_costs_one_removal_and_one_addition() -> None:
    async def work() -> None:
        async with alone() as (rt, errors):
            tally = await rt.space("s").open(
                Tally, "t", setup=lambda t: t.entries.set({f"k{n:03}": 1_000 + n for n in range(500)})
            )
            calls()
            assert await tally.sum.pull() == 100 + sum(1_000 + n for n in range(500))
            assert calls() == [f"+{1_000 + n}" for n in range(500)]  # In the order of the source.
            tally.entries.key("k007").set(5)
            tally.entries.key("new").set(6)
            tally.entries.key("k009").delete()
            await tally.sum.pull()
            assert sorted(calls()) == ["+5", "+6", "-1007", "-1009"]
            tally.cards.set({1: Card(column="a")})
            await tally.sum.pull()
            assert calls() == []
            assert errors == []

    run(work)


def test_an_element_of_a_tuple_that_moves_costs_nothing() -> None:
    async def work() -> None:
        async with alone() as (rt, errors):
            numbers = tuple(range(1_000, 1_200))
            tally = await rt.space("s").open(Tally, "t", setup=lambda t: t.numbers.set(numbers))
            calls()
            assert await tally.total.pull() == sum(numbers)
            assert len(calls()) == 200
            tally.numbers.push(7)
            assert await tally.total.pull() == sum(numbers) + 7
            assert calls() == ["+7"]
            tally.numbers.set((8, *tally.numbers.get()))
            await tally.total.pull()
            assert calls() == ["+8"]
            now = tally.numbers.get()
            tally.numbers.set((*now[:50], *now[51:]))
            await tally.total.pull()
            assert calls() == [f"-{now[50]}"]
            now = tally.numbers.get()
            tally.numbers.set(tuple(reversed(now)))
            assert await tally.total.pull() == sum(now)
            assert len(calls()) == 0
            assert errors == []

    run(work)


def test_groups_come_with_their_first_element_and_go_with_their_last() -> None:
    async def work() -> None:
        async with alone() as (rt, errors):
            tally = await rt.space("s").open(Tally, "t")
            assert await tally.points.pull() == {}
            tally.cards.set({1: Card(column="a", points=2), 2: Card(column="b", points=3), 3: Card(column="a")})
            assert await tally.points.pull() == {"a": 3, "b": 3}
            tally.cards.key(2).at(lambda c: c.column).set("a")
            assert await tally.points.pull() == {"a": 6}
            tally.cards.set({})
            assert await tally.points.pull() == {}
            assert errors == []

    run(work)


def test_a_function_that_raises_changes_nothing_and_the_fold_recovers() -> None:
    async def work() -> None:
        async with alone() as (rt, errors):
            tally = await rt.space("s").open(Tally, "t", setup=lambda t: t.numbers.set((1, 2)))
            assert await tally.total.pull() == 3
            tally.numbers.set((1, 2, 5, 13, 7))
            with pytest.raises(UpstreamFailedError, match="unlucky"):
                await tally.total.pull()
            calls()
            tally.numbers.set((1, 2, 5, 7))
            assert await tally.total.pull() == 15
            assert calls() == ["+5", "+7"]
            assert len(errors) == 1

    run(work)


class Fickle(Piece):
    numbers: Cell[tuple[int, ...]] = cell(default=(1,))
    total: Computed[Mapping[str, int]] = fold(
        numbers, by=lambda x: f"g{len(CALLS)}", start=0, add=lambda n, x: n + x, remove=lambda n, x: n - x
    )


def test_a_group_that_depends_on_something_else_is_told() -> None:
    async def work() -> None:
        async with alone() as (rt, _):
            CALLS.clear()
            piece = await rt.space("s").open(Fickle, "f")
            await piece.total.pull()
            CALLS.append("x")
            piece.numbers.set((2,))
            with pytest.raises(UpstreamFailedError, match="by= named another group") as refused:
                await piece.total.pull()
            assert isinstance(refused.value.__cause__, AuthoringError)

    run(work)


def check(tally: Tally) -> None:
    numbers, cards = tally.numbers.get(), tally.cards.get()
    groups: dict[str, int] = {}
    for card in cards.values():
        groups[card.column] = groups.get(card.column, 0) + card.points
    assert tally.total.get() == sum(numbers)
    assert tally.longest.get() == tuple(sorted(numbers))
    assert tally.even.get() == sum(x for x in numbers if x % 2 == 0)
    assert tally.points.get() == groups
    assert tally.sum.get() == 100 + sum(tally.entries.get().values())


def change(random: Random, tally: Tally) -> None:
    """One change of any kind."""
    match random.randrange(8):
        case 0:
            tally.numbers.push(random.randrange(14, 30))
        case 1:
            now = list(tally.numbers.get())
            random.shuffle(now)
            tally.numbers.set(tuple(now[: random.randrange(len(now) + 1)]))
        case 2:
            now = list(tally.numbers.get())
            now.insert(random.randrange(len(now) + 1), random.randrange(14, 30))
            tally.numbers.set(tuple(now))
        case 3:
            tally.cards.key(random.randrange(6)).set(Card(column=random.choice("abc"), points=random.randrange(4)))
        case 4:
            tally.cards.key(random.randrange(6)).delete()
        case 5:
            tally.entries.key(random.choice("xyz")).set(random.randrange(14, 30))
        case 6:
            tally.entries.key(random.choice("xyz")).delete()
        case _:
            tally.numbers.discard(random.randrange(14, 30))


@pytest.mark.random
def test_a_fold_equals_going_over_everything_after_every_step() -> None:
    async def work(seed: int) -> None:
        random = Random(seed)
        async with alone() as (rt, errors):
            tally = await rt.space("s").open(Tally, "t")
            folds = (tally.total, tally.sum, tally.points, tally.longest, tally.even)
            looks = [each.sink(lambda _: None) for each in folds]
            for _ in range(40):
                for _ in range(random.randrange(1, 4)):
                    change(random, tally)
                await rt.idle()
                check(tally)
            for look in looks:
                look.close()
            assert errors == []

    for seed in range(scaled(100)):
        run(lambda seed=seed: work(seed))  # type: ignore[misc]


@pytest.mark.random
def test_what_a_fold_keeps_survives_conflicts_with_another_runtime(tmp_path: Path) -> None:
    async def work(seed: int) -> None:
        random = Random(seed)
        async with at("embedded", tmp_path / str(seed)) as site:
            tallies = [await site.runtime().space("s").open(Tally, "t") for _ in range(2)]
            looks = [
                each.sink(lambda _: None)
                for tally in tallies
                for each in (tally.total, tally.sum, tally.points, tally.longest, tally.even)
            ]
            for _ in range(12):
                for tally in tallies:
                    for _ in range(random.randrange(3)):
                        change(random, tally)
                for _ in range(random.randrange(3)):
                    await asyncio.sleep(0)
            for one, other in zip(
                (tallies[0].numbers, tallies[0].cards, tallies[0].entries),
                (tallies[1].numbers, tallies[1].cards, tallies[1].entries),
                strict=True,
            ):
                await site.agreed(one, other)
            await site.holds(check, tallies)
            for look in looks:
                look.close()
            assert [str(each.error) for each in site.errors] == []

    for seed in range(scaled(60)):
        run(lambda seed=seed: work(seed))  # type: ignore[misc]


class Sub(Piece):
    numbers: Input[tuple[int, ...]] = given()
    total = fold(numbers, start=0.0, add=lambda n, x: n + x, remove=lambda n, x: n - x)


def test_a_fold_may_go_over_what_is_given() -> None:
    async def work() -> None:
        async with alone() as (rt, errors):
            space = rt.space("s")
            tally = await space.open(Tally, "t", setup=lambda t: t.numbers.set((1, 2)))
            sub = await space.open(Sub(numbers=tally.numbers), "sub")
            assert await sub.total.pull() == 3.0
            tally.numbers.push(4)
            assert await sub.total.pull() == 7.0
            assert errors == []

    run(work)
