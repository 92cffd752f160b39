"""A fold goes on from what is stored: after a restart only elements that changed meanwhile cost calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headwater import Cell, Computed, Input, Model, Piece, cell, computed, fold, given, handler
from headwater.testing import Simulation, simulated
from tests.counts import scaled
from tests.scenario.pieces_kit import PLACES, Ranned, Site, alone, at, run

CALLS: list[str] = []


class Card(Model):
    column: str
    points: int = 1


def calls() -> list[str]:
    taken = sorted(CALLS)
    CALLS.clear()
    return taken


def plus(n: int, x: int) -> int:
    CALLS.append(f"+{x}")
    return n + x


def minus(n: int, x: int) -> int:
    CALLS.append(f"-{x}")
    return n - x


class Book(Piece, name="folds.Book"):
    entries: Cell[Mapping[str, int]] = cell(default={})
    numbers: Cell[tuple[int, ...]] = cell(default=())
    cards: Cell[Mapping[str, Card]] = cell(default={})
    notes: Cell[int] = cell(default=0)
    sum = fold(entries, start=0, add=plus, remove=minus)
    total = fold(numbers, start=0, add=plus, remove=minus)
    points = fold(
        cards,
        by=lambda c: c.column,
        start=0,
        add=lambda n, c: plus(n, c.points),
        remove=lambda n, c: minus(n, c.points),
    )

    @computed
    def doubled(self) -> tuple[int, ...]:
        return tuple(2 * x for x in self.numbers.get())

    twice = fold(doubled, start=0, add=plus, remove=minus)

    @handler
    def note(self) -> None:
        self.notes.increment(1)


def fill(book: Book) -> None:
    book.entries.set({f"k{n:02}": n for n in range(10)})
    book.numbers.set(tuple(range(100, 110)))
    book.cards.set({f"c{n}": Card(column="ab"[n % 2], points=n) for n in range(6)})


async def look(book: Any) -> list[Any]:
    return [await each.pull() for each in (book.sum, book.total, book.points, book.twice)]


def right(book: Any) -> list[Any]:
    columns: dict[str, int] = {}
    for card in book.cards.get().values():
        columns[card.column] = columns.get(card.column, 0) + card.points
    numbers = book.numbers.get()
    return [sum(book.entries.get().values()), sum(numbers), columns, 2 * sum(numbers)]


async def restarted(site: Site, cls: type[Any] = Book) -> Any:
    """The piece, in another runtime than before."""
    for each in site.runtimes:
        await each.close()
    site.runtimes.clear()
    return await site.runtime().space("s").open(cls, "b")


def stored(test: Callable[[Site], Any], place: str, folder: Path) -> None:
    """A test that begins with a book that somebody filled, folded and left."""

    async def work() -> None:
        async with at(place, folder) as site:
            book = await site.runtime().space("s").open(Book, "b", setup=fill)
            assert await look(book) == right(book)
            await site.settled()
            calls()
            await test(site)
            assert site.errors == []

    run(work)


@pytest.mark.parametrize("place", [each for each in PLACES if each != "detached"])
def test_what_is_unchanged_costs_no_call_after_a_restart(place: str, tmp_path: Path) -> None:
    async def test(site: Site) -> None:
        book = await restarted(site)
        assert await look(book) == right(book)
        assert calls() == []
        await book.note.send()
        assert await look(book) == right(book)
        assert calls() == []
        book.entries.key("k03").set(50)
        book.numbers.push(60)
        book.cards.key("c1").at(lambda c: c.points).set(70)
        assert await look(book) == right(book)
        assert calls() == ["+120", "+50", "+60", "+70", "-1", "-3"]

    stored(test, place, tmp_path)


@pytest.mark.parametrize("place", [each for each in PLACES if each != "detached"])
def test_only_what_others_changed_meanwhile_costs_calls(place: str, tmp_path: Path) -> None:
    async def test(site: Site) -> None:
        for each in site.runtimes:
            await each.close()
        site.runtimes.clear()
        other = site.runtime()  # It writes what the folds go over, and folds nothing.
        entries: Any = other.cell("s", "b:entries", Mapping[str, int])
        numbers: Any = other.cell("s", "b:numbers", tuple[int, ...])
        cards: Any = other.cell("s", "b:cards", Mapping[str, Card])
        await other.space("s").transact(
            lambda: (
                entries.key("k00").set(20),
                entries.key("k01").delete(),
                entries.key("new").set(21),
                numbers.set((109, *range(100, 109), 22)),
                cards.key("c4").at(lambda c: c.column).set("b"),
            )
        )
        book = await restarted(site)
        assert await look(book) == right(book)
        assert calls() == ["+20", "+21", "+22", "+4", "+44", "-0", "-1", "-4"]
        book = await restarted(site)
        assert await look(book) == right(book)
        assert calls() == []

    stored(test, place, tmp_path)


def other_code(**functions: Any) -> type[Any]:
    """The same class as it is written in another version of the program."""
    said: dict[str, Any] = {"start": 0, "add": plus, "remove": minus, "by": None, **functions}

    class Other(Piece, name="folds.Book"):
        entries: Cell[Mapping[str, int]] = cell(default={})
        sum = fold(entries, start=said["start"], add=said["add"], remove=said["remove"], by=said["by"])

    return Other


@pytest.mark.parametrize(
    ("functions", "expected"),
    [
        ({"add": lambda n, x: plus(n, x) + 1000}, 10_045),
        ({"remove": lambda n, x: minus(n, x) - 1000}, 45),
        ({"start": 5}, 50),
        ({"by": lambda x: "odd" if x % 2 else "even"}, {"even": 20, "odd": 25}),
    ],
    ids=["add", "remove", "start", "by"],
)
def test_other_code_goes_over_everything_again(functions: dict[str, Any], expected: Any, tmp_path: Path) -> None:
    async def test(site: Site) -> None:
        book = await restarted(site, other_code())
        await book.sum.pull()
        calls()
        book = await restarted(site, other_code())
        assert await book.sum.pull() == 45
        assert calls() == []
        changed = other_code(**functions)
        book = await restarted(site, changed)
        assert await book.sum.pull() == expected
        assert len(calls()) == 10
        book = await restarted(site, changed)
        assert await book.sum.pull() == expected
        assert calls() == []

    stored(test, "embedded", tmp_path)


class One(Model):
    name: str
    points: int = 1


class Two(Model):
    name: str
    points: int = 2


def sheet_of(row: type[Any]) -> type[Any]:
    class Sheet(Piece, name="folds.Sheet"):
        rows: Cell[Mapping[str, row]] = cell(default={})  # type: ignore[valid-type]
        sum: Computed[int] = fold(
            rows,
            start=0,
            add=lambda n, r: plus(n, r.points),  # type: ignore[attr-defined]
            remove=lambda n, r: minus(n, r.points),  # type: ignore[attr-defined]
        )

    return Sheet


def test_elements_that_read_otherwise_are_gone_over_again(tmp_path: Path) -> None:
    async def work() -> None:
        async with at("embedded", tmp_path) as site:
            rows: Any = site.runtime().cell("s", "b:rows", Mapping[str, Mapping[str, str]], default={})
            rows.set({"a": {"name": "x"}, "b": {"name": "y"}})  # What is not written reads as the default says.
            sheet = await restarted(site, sheet_of(One))
            assert await sheet.sum.pull() == 2
            sheet = await restarted(site, sheet_of(Two))
            calls()
            assert await sheet.sum.pull() == 4
            assert calls() == ["+2", "+2"]

    run(work)


def test_code_that_cannot_be_known_goes_over_everything_again(tmp_path: Path) -> None:
    class Odd:
        """Nobody can say what it is."""

        def __reduce__(self) -> str:
            raise TypeError("not me")

    odd = Odd()
    cls = other_code(add=lambda n, x: plus(n, x) if odd is not None else 0)

    async def test(site: Site) -> None:
        for _ in range(2):
            book = await restarted(site, cls)
            assert await book.sum.pull() == 45
            assert len(calls()) == 10

    stored(test, "embedded", tmp_path)


def test_a_value_that_somebody_else_wrote_is_no_ground(tmp_path: Path) -> None:
    async def test(site: Site) -> None:
        for each in site.runtimes:
            await each.close()
        site.runtimes.clear()
        other = site.runtime()
        other.cell("s", "b:sum", int).set(7)
        await other.written()
        book = await restarted(site)
        assert await book.sum.pull() == 45
        assert len(calls()) == 10

    stored(test, "embedded", tmp_path)


def test_a_fold_that_is_stopped_and_opened_again_goes_on(tmp_path: Path) -> None:
    async def test(site: Site) -> None:
        rt = site.runtimes[0]
        space = rt.space("s")
        book: Book = space.piece(Book, "b")
        # What is durable is confirmed as soon as this runtime has heard of it.
        channel = rt.channel("s")
        assert channel is not None
        await rt.until(channel.replica.is_confirmed)
        await space.stop(book)
        book.entries.key("k05").set(15)
        book = await space.open(Book, "b")
        assert await look(book) == right(book)
        assert calls() == ["+15", "-5"]

    stored(test, "embedded", tmp_path)


class Sub(Piece, name="folds.Sub"):
    numbers: Input[tuple[int, ...]] = given()
    total = fold(numbers, start=0, add=plus, remove=minus)


@pytest.mark.parametrize("where", ["s", "t"])
def test_a_fold_over_what_is_given_goes_on_in_its_own_space(where: str, tmp_path: Path) -> None:
    async def test(site: Site) -> None:
        rt = site.runtimes[0]
        book = rt.space("s").piece(Book, "b")
        sub = await rt.space(where).open(Sub(numbers=book.numbers), "sub")
        assert await sub.total.pull() == sum(range(100, 110))
        await site.settled()
        await rt.close()
        site.runtimes.clear()
        calls()
        again: Any = Sub
        rt = site.runtime()
        book = rt.space("s").piece(Book, "b")  # Of which class it is: tests before this one may have left others.
        sub = await rt.space(where).open(again, "sub")
        assert await sub.total.pull() == sum(range(100, 110))
        assert calls() == []  # It comes back, wherever what it was given is.

    stored(test, "embedded", tmp_path)


def test_a_fold_commits_once_for_a_change_and_never_for_none(tmp_path: Path) -> None:
    async def test(site: Site) -> None:
        book = await restarted(site)
        ran = Ranned(site.runtimes[0])
        await look(book)
        spent = ran.taken()
        assert spent.commits.total() == 0
        look_at = [each.sink(lambda _: None) for each in (book.sum, book.points)]
        book.entries.key("k00").set(1)
        await site.settled()
        spent = ran.taken()
        assert (spent.runs["s/b:sum"], spent.commits["s/b:sum"]) == (1, 1)
        book.cards.key("c0").at(lambda c: c.points).set(0)  # It is 0 already.
        book.entries.set({**book.entries.get(), "k00": 0, "k01": 2})  # Another sum would be news.
        await site.settled()
        spent = ran.taken()
        assert spent.commits["s/b:sum"] == 0
        for each in look_at:
            each.close()

    stored(test, "embedded", tmp_path)


def test_without_a_log_a_fold_goes_over_everything_when_it_is_opened_again() -> None:
    async def work() -> None:
        async with alone() as (rt, errors):
            space = rt.space("s")
            book = await space.open(Book, "b", setup=fill)
            await look(book)
            await space.stop(book)
            calls()
            book = await space.open(Book, "b")
            assert await look(book) == right(book)
            assert len(calls()) == 36
            assert errors == []

    run(work)


def change(random: Random, book: Any) -> None:
    match random.randrange(7):
        case 0:
            book.numbers.push(random.randrange(10))
        case 1:
            now = list(book.numbers.get())
            random.shuffle(now)
            book.numbers.set(tuple(now[: random.randrange(len(now) + 1)]))
        case 2:
            book.entries.key(random.choice("xyz")).set(random.randrange(10))
        case 3:
            book.entries.key(random.choice("xyz")).delete()
        case 4:
            book.cards.key(random.choice("pqr")).set(Card(column=random.choice("abc"), points=random.randrange(4)))
        case 5:
            book.cards.key(random.choice("pqr")).delete()
        case _:
            book.numbers.discard(random.randrange(10))


@pytest.mark.random
def test_folds_are_right_over_any_restarts_and_writes_between_them(tmp_path: Path) -> None:
    async def work(seed: int) -> None:
        random = Random(seed)
        async with at("embedded", tmp_path / str(seed)) as site:
            await site.runtime().space("s").open(Book, "b", setup=fill)
            for _ in range(8):
                book = await restarted(site)
                beside = site.runtime().space("s").piece(Book, "b")  # Folds nothing, unless somebody looks.
                looks = [each.sink(lambda _: None) for each in (book.sum, book.total, book.points, book.twice)]
                for _ in range(random.randrange(4)):
                    change(random, book)
                await look(beside) if random.random() < 0.3 else None
                if random.random() < 0.5:
                    await site.settled()
                assert await look(book) == right(book)
                for each in looks:
                    each.close()
                await site.runtimes[0].close()
                site.runtimes.pop(0)
                for each in (beside.numbers, beside.entries, beside.cards):
                    await each.pull()
                for _ in range(random.randrange(4)):
                    change(random, beside)
                await site.settled()
            book = await restarted(site)
            calls()
            assert await look(book) == right(book)
            assert site.errors == []

    for seed in range(scaled(100)):
        run(lambda seed=seed: work(seed))  # type: ignore[misc]


class Pure(Piece, name="folds.Pure"):
    """The same without a list that counts the calls: what a function names is part of its fingerprint."""

    entries: Cell[Mapping[str, int]] = cell(default={})
    numbers: Cell[tuple[int, ...]] = cell(default=())
    cards: Cell[Mapping[str, Card]] = cell(default={})
    sum = fold(entries, start=0, add=lambda n, x: n + x, remove=lambda n, x: n - x)
    total = fold(numbers, start=0, add=lambda n, x: n + x, remove=lambda n, x: n - x)
    points = fold(
        cards, by=lambda c: c.column, start=0, add=lambda n, c: n + c.points, remove=lambda n, c: n - c.points
    )

    @computed
    def doubled(self) -> tuple[int, ...]:
        return tuple(2 * x for x in self.numbers.get())

    twice = fold(doubled, start=0, add=lambda n, x: n + x, remove=lambda n, x: n - x)


@simulated(seeds=15)
async def test_folds_are_right_whatever_dies_and_comes_back(sim: Simulation) -> None:
    random = Random(sim.seed)
    users = ("ann", "bob", "cy")
    books = {user: await sim.runtime(user).space("s").open(Pure, "b") for user in users}
    for _ in range(6):
        user = random.choice(users)
        book = books[user]
        for _ in range(random.randrange(1, 4)):
            change(random, book)
        if random.random() < 0.5:
            await look(books[random.choice(users)])
        if random.random() < 0.4:
            await sim.crash(user)
            books[user] = await sim.runtime(user).space("s").open(Pure, "b")
            for each in (books[user].numbers, books[user].entries, books[user].cards):
                await each.pull()
    await sim.settle()
    for book in books.values():
        assert await look(book) == right(book)
