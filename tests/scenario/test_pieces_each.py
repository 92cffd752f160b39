"""`each`: one child or value per element, by key; what a change costs does not depend on how many there are."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from headwater import (
    AbsentError,
    AuthoringError,
    Cell,
    GoneError,
    Input,
    Model,
    Piece,
    Runtime,
    cell,
    computed,
    each,
    effect,
    given,
    handler,
)
from headwater.errors import UpstreamFailedError
from tests.scenario.pieces_kit import Ranned, alone, run


class Card(Model):
    title: str
    rank: int = 0


class View(Piece):
    card: Cell[Card] = given()
    note: Cell[str] = cell(default="")

    @computed
    def label(self) -> str:
        return f"{self.card.get().title}!"

    @handler
    def rename(self, title: str) -> None:
        self.card.at(lambda c: c.title).set(title)


class Board(Piece):
    cards: Cell[Mapping[str, Card]] = cell(default={})

    @each(cards, order=lambda card: card.rank)
    def views(self, card: Cell[Card]) -> View:
        return View(card=card)


def fill(count: int) -> Callable[[Board], None]:
    cards = {f"c{number:05}": Card(title=f"card {number}", rank=number * 10) for number in range(count)}
    return lambda board: board.cards.set(cards)


async def spent(rt: Runtime, ran: Ranned, act: Callable[[], object]) -> dict[str, tuple[int, int]]:
    """What a change costs: runs and commits, by the part of the graph."""
    act()
    await rt.idle()
    taken = ran.taken()
    parts = {"order": ":views", "row": " row", "label": ":label", "look": "while it is open"}
    costs = {
        part: (
            sum(n for name, n in taken.runs.items() if name.endswith(end)),
            sum(n for name, n in taken.commits.items() if name.endswith(end)),
        )
        for part, end in parts.items()
    }
    costs["all"] = taken.totals
    return costs


def test_what_a_change_costs_is_the_same_for_ten_and_for_many() -> None:
    found: dict[int, list[dict[str, tuple[int, int]]]] = {}

    async def work(count: int) -> None:
        async with alone() as (rt, errors):
            board = await rt.space("team").open(Board, "main", setup=fill(count))
            views = board.views.get()
            assert len(views) == count
            looks = [views[key].label.sink(lambda _: None) for key in ("c00003", "c00004")]
            await rt.idle()
            ran = Ranned(rt)
            cards = board.cards
            costs = found[count] = []
            costs.append(await spent(rt, ran, lambda: cards.key("c00003").at(lambda c: c.title).set("new")))
            costs.append(await spent(rt, ran, lambda: cards.key("x").set(Card(title="x", rank=15))))
            costs.append(await spent(rt, ran, lambda: cards.key("c00009").at(lambda c: c.rank).set(5)))
            costs.append(await spent(rt, ran, lambda: cards.key("c00007").delete()))
            costs.append(await spent(rt, ran, lambda: cards.key("c00002").at(lambda c: c.title).set("unseen")))
            assert [*board.views.get()][:4] == ["c00000", "c00009", "c00001", "x"]
            for look in looks:
                look.close()
            assert errors == []

    for count in (10, 2_000):
        run(lambda count=count: work(count), too_long_s=120)  # type: ignore[misc]
    assert found[10] == found[2_000]
    changed, added, moved, removed, unseen = found[10]
    assert (changed["order"], changed["row"], changed["label"]) == ((0, 0), (0, 0), (1, 1))
    assert (added["order"], added["row"], added["label"]) == ((1, 1), (1, 1), (0, 0))
    assert (moved["order"], moved["row"], moved["label"]) == ((1, 1), (0, 0), (0, 0))
    assert (removed["order"], removed["row"], removed["label"]) == ((1, 1), (0, 0), (0, 0))
    assert unseen["all"] == (0, 0)


# ---- tuples ------------------------------------------------------------------------------------------------


class Line(Model):
    id: str
    qty: int = 1
    tags: tuple[str, ...] = ()


class LineView(Piece):
    line: Cell[Line] = given()
    note: Cell[str] = cell(default="")

    @computed
    def text(self) -> str:
        line = self.line.get()
        return f"{line.id}:{line.qty}"

    @handler
    def more(self) -> int:
        self.line.at(lambda line: line.qty).increment(1)
        return self.line.get().qty

    @handler
    def tag(self, tag: str) -> None:
        self.line.at(lambda line: line.tags).push(tag)

    @handler
    def replace(self, line: Line) -> None:
        self.line.set(line)

    @handler
    def drop(self) -> None:
        self.line.delete()


class Basket(Piece):
    lines: Cell[tuple[Line, ...]] = cell(default=())

    @each(lines, key=lambda line: line.id)
    def views(self, line: Cell[Line]) -> LineView:
        return LineView(line=line)


def lines(*ids: str) -> Callable[[Basket], None]:
    return lambda basket: basket.lines.set(tuple(Line(id=id) for id in ids))


def test_an_element_of_a_tuple_is_read_and_written_by_its_key() -> None:
    async def work() -> None:
        async with alone() as (rt, errors):
            basket = await rt.space("shop").open(Basket, "b", setup=lines("a", "b", "c"))
            views = await basket.views.pull()
            assert list(views) == ["a", "b", "c"]
            assert await views["b"].more.send() == 2
            assert await views["b"].text.pull() == "b:2"
            await views["b"].tag.send("new")
            views["c"].line.at(lambda line: line.qty).set(7)
            views["c"].line.at(lambda line: line.qty).increment(2)
            await rt.idle()
            assert basket.lines.get() == (Line(id="a"), Line(id="b", qty=2, tags=("new",)), Line(id="c", qty=9))
            await views["a"].replace.send(Line(id="a", qty=5))
            await views["b"].drop.send()
            assert basket.lines.get() == (Line(id="a", qty=5), Line(id="c", qty=9))
            await rt.idle()
            assert list(basket.views.get()) == ["a", "c"]
            assert [error.error for error in errors] == []

    run(work)


def test_an_element_is_written_where_it_is_now() -> None:
    async def work() -> None:
        async with alone() as (rt, errors):
            basket = await rt.space("shop").open(Basket, "b", setup=lines("a", "b"))
            view = (await basket.views.pull())["b"]
            basket.lines.set((Line(id="x"), *reversed(basket.lines.get())))
            view.line.at(lambda line: line.qty).set(3)  # Before anybody has projected the tuple again.
            await rt.idle()
            assert [(line.id, line.qty) for line in basket.lines.get()] == [("x", 1), ("b", 3), ("a", 1)]
            assert list(basket.views.get()) == ["x", "b", "a"]
            assert basket.views.get()["b"] is view
            assert errors == []

    run(work)


def test_an_element_is_written_before_anybody_has_projected_it() -> None:
    async def work() -> None:
        async with alone() as (rt, errors):
            basket = await rt.space("shop").open(Basket, "b", setup=lines("a", "b"))
            view = (await basket.views.pull())["b"]
            basket.lines.set((Line(id="a"),))
            await rt.idle()
            basket.lines.set((Line(id="a"), Line(id="b", qty=3)))  # It is back, and its projection is not.
            view.line.at(lambda line: line.qty).increment(1)
            assert basket.lines.get()[1] == Line(id="b", qty=4)
            basket.lines.set((Line(id="a"),))
            with pytest.raises(AbsentError, match="nothing is at"):
                view.line.at(lambda line: line.qty).set(1)
            await rt.idle()
            assert errors == []

    run(work)


def test_element_is_updated_outside_a_run() -> None:
    async def work() -> None:
        async with alone() as (rt, errors):
            basket = await rt.space("shop").open(Basket, "b", setup=lines("a", "b"))
            view = (await basket.views.pull())["b"]
            view.line.at(lambda line: line.qty).update(lambda qty: qty + 4)
            view.line.update(lambda line: Line(id=line.id, qty=line.qty * 2))
            assert basket.lines.get()[1] == Line(id="b", qty=10)
            await rt.idle()
            assert errors == []

    run(work)


def test_moving_elements_of_a_tuple_runs_no_row_and_no_child() -> None:
    async def work() -> None:
        async with alone() as (rt, _):
            basket = await rt.space("shop").open(Basket, "b", setup=lines(*(f"l{n}" for n in range(30))))
            looks = [view.text.sink(lambda _: None) for view in basket.views.get().values()]
            await rt.idle()
            ran = Ranned(rt)
            basket.lines.set(tuple(reversed(basket.lines.get())))
            await rt.idle()
            taken = ran.taken()
            assert (taken.of(" row"), taken.of(":text")) == (0, 0)
            assert next(iter(basket.views.get())) == "l29"
            basket.lines.set((*basket.lines.get()[:-1], Line(id="l0", qty=8)))
            await rt.idle()
            taken = ran.taken()
            assert (taken.of(" row"), taken.of(":text")) == (0, 1)
            for look in looks:
                look.close()

    run(work)


def test_a_repeated_key_is_named_with_both_positions_and_leaves_the_children() -> None:
    async def work() -> None:
        async with alone() as (rt, errors):
            basket = await rt.space("shop").open(Basket, "b", setup=lines("a", "b", "c"))
            before = dict(await basket.views.pull())
            shown: list[str] = []
            look = before["b"].text.sink(shown.append)
            basket.lines.set((Line(id="a"), Line(id="b", qty=2), Line(id="c"), Line(id="b", qty=3)))
            await rt.idle()
            assert errors
            assert all("'b' is the key of elements 1 and 3" in str(each.error) for each in errors)
            with pytest.raises(UpstreamFailedError, match="elements 1 and 3"):
                basket.views.get()
            await before["b"].note.pull()
            assert before["b"].text.get() == "b:1"
            basket.lines.set((Line(id="b", qty=4), Line(id="a")))
            await rt.idle()
            after = basket.views.get()
            assert list(after) == ["b", "a"]
            assert after["b"] is before["b"]
            assert shown[-1] == "b:4"
            look.close()

    run(work)


# ---- children ----------------------------------------------------------------------------------------------


def test_a_key_that_returns_finds_its_cells_again() -> None:
    async def work() -> None:
        async with alone() as (rt, errors):
            board = await rt.space("team").open(Board, "main", setup=fill(3))
            view = board.views.get()["c00001"]
            view.note.set("mine")
            card = board.cards.get()["c00001"]
            board.cards.key("c00001").delete()
            await rt.idle()
            assert "c00001" not in board.views.get()
            with pytest.raises(GoneError, match="has ended"):
                _ = view.label
            board.cards.key("c00001").set(card)
            await rt.idle()
            again = board.views.get()["c00001"]
            assert again is not view
            assert again.note.get() == "mine"
            assert await again.label.pull() == "card 1!"
            assert errors == []

    run(work)


class Forgetful(Piece):
    cards: Cell[Mapping[str, Card]] = cell(default={})

    @each(cards, forget=True)
    def views(self, card: Cell[Card]) -> View:
        return View(card=card)


def test_a_key_that_returns_finds_nothing_where_it_is_forgotten() -> None:
    async def work() -> None:
        async with alone() as (rt, errors):
            cards = {"a": Card(title="a"), "b": Card(title="b")}
            board = await rt.space("team").open(Forgetful, "main", setup=lambda board: board.cards.set(cards))
            for view in board.views.get().values():
                view.note.set("mine")
            board.cards.key("a").delete()
            for _ in range(5):
                await rt.idle()
                await rt.durable()
            board.cards.key("a").set(Card(title="a"))
            await rt.idle()
            assert {key: await view.note.pull() for key, view in board.views.get().items()} == {"b": "mine", "a": ""}
            assert errors == []

    run(work)


def test_a_key_that_returns_at_once_is_not_forgotten() -> None:
    async def work() -> None:
        async with alone() as (rt, errors):
            board = await rt.space("team").open(Forgetful, "m", setup=lambda b: b.cards.set({"a": Card(title="a")}))
            board.views.get()["a"].note.set("mine")
            board.cards.key("a").delete()
            board.cards.key("a").set(Card(title="a"))
            for _ in range(5):
                await rt.idle()
                await rt.durable()
            assert await board.views.get()["a"].note.pull() == "mine"
            assert errors == []

    run(work)


class Values(Piece):
    numbers: Cell[Mapping[int, int]] = cell(default={})

    @each(numbers)
    def odd(self, number: Cell[int]) -> int | None:
        value = number.get()
        return value * 10 if value % 2 else None

    @computed
    def total(self) -> int:
        return sum(self.odd.get().values())


def test_an_each_may_make_values_and_leave_elements_out() -> None:
    async def work() -> None:
        async with alone() as (rt, errors):
            piece = await rt.space("s").open(Values, "v", setup=lambda p: p.numbers.set({7: 1, 3: 2, -5: 3}))
            assert await piece.total.pull() == 40
            assert dict(piece.odd.get()) == {7: 10, -5: 30}
            piece.numbers.key(3).set(5)
            assert await piece.total.pull() == 90
            assert list(await piece.odd.pull()) == list(piece.numbers.get())
            piece.numbers.key(7).set(4)
            assert await piece.odd.pull() == {3: 50, -5: 30}
            assert errors == []

    run(work)


LOG: list[str] = []


class Loud(Piece):
    card: Input[Card] = given()

    @effect
    def show(self) -> Callable[[], object]:
        title = self.card.get().title
        LOG.append(f"+{title}")
        return lambda: LOG.append(f"-{title}")


class LoudBoard(Piece):
    cards: Cell[Mapping[str, Card]] = cell(default={})

    @each(cards)
    def views(self, card: Cell[Card]) -> Loud | None:
        return Loud(card=card) if card.at(lambda c: c.rank).get() >= 0 else None


def test_the_effects_of_children_come_and_go_with_them() -> None:
    async def work() -> None:
        LOG.clear()
        async with alone() as (rt, errors):
            space = rt.space("team")
            board = await space.open(LoudBoard, "m", setup=lambda b: b.cards.set({"a": Card(title="a")}))
            assert LOG == ["+a"]
            board.cards.key("b").set(Card(title="b"))
            board.cards.key("a").at(lambda c: c.title).set("A")
            await rt.idle()
            assert sorted(LOG) == ["+A", "+a", "+b", "-a"]
            LOG.clear()
            board.cards.key("a").delete()
            await rt.idle()
            assert LOG == ["-A"]
            board.cards.key("b").at(lambda c: c.rank).set(-1)
            await rt.idle()
            assert LOG == ["-A", "-b"]
            board.cards.key("b").at(lambda c: c.rank).set(1)
            await rt.idle()
            assert LOG == ["-A", "-b", "+b"]
            await space.stop(board)
            assert LOG == ["-A", "-b", "+b", "-b"]
            assert errors == []

    run(work)


class Column(Piece):
    cards: Cell[Mapping[str, Card]] = given()

    @each(cards)
    def views(self, card: Cell[Card]) -> View:
        return View(card=card)

    @computed
    def titles(self) -> tuple[str, ...]:
        return tuple(view.label.get() for view in self.views.get().values())


class Wall(Piece):
    columns: Cell[Mapping[str, Mapping[str, Card]]] = cell(default={})

    @each(columns)
    def rows(self, cards: Cell[Mapping[str, Card]]) -> Column:
        return Column(cards=cards)

    @computed
    def all(self) -> Mapping[str, tuple[str, ...]]:
        return {key: column.titles.get() for key, column in self.rows.get().items()}


def test_an_each_may_stand_in_an_each() -> None:
    async def work() -> None:
        async with alone() as (rt, errors):
            wall = await rt.space("team").open(
                Wall, "w", setup=lambda w: w.columns.set({"x": {"1": Card(title="a")}, "y": {}})
            )
            assert await wall.all.pull() == {"x": ("a!",), "y": ()}
            wall.columns.key("y").key("2").set(Card(title="b"))
            assert await wall.all.pull() == {"x": ("a!",), "y": ("b!",)}
            ran = Ranned(rt)
            look = wall.all.sink(lambda _: None)
            await rt.idle()
            ran.taken()
            await wall.rows.get()["y"].views.get()["2"].rename.send("c")
            await rt.idle()
            taken = ran.taken()
            assert (taken.of(":label"), taken.of(":titles"), taken.of(":all"), taken.of(" row")) == (1, 1, 1, 0)
            assert wall.all.get() == {"x": ("a!",), "y": ("c!",)}
            look.close()
            wall.columns.key("x").delete()
            await rt.idle()
            assert await wall.all.pull() == {"y": ("c!",)}
            assert errors == []

    run(work)


class Faulty(Piece):
    cards: Cell[Mapping[str, Card]] = cell(default={})

    @each(cards)
    def views(self, card: Cell[Card]) -> View:
        if card.get().rank < 0:
            raise ValueError("below zero")
        return View(card=card)


def test_a_method_that_raises_is_told_and_recovers() -> None:
    async def work() -> None:
        async with alone() as (rt, errors):
            board = await rt.space("team").open(Faulty, "f", setup=lambda b: b.cards.set({"a": Card(title="a")}))
            board.cards.key("a").at(lambda c: c.rank).set(-1)
            await rt.idle()
            assert any("below zero" in str(each.error) for each in errors)
            board.cards.key("a").at(lambda c: c.rank).set(1)
            await rt.idle()
            assert list(board.views.get()) == ["a"]

    run(work)


class Wrong(Piece):
    cards: Cell[Mapping[str, Card]] = cell(default={})
    kept: Cell[str] = cell(default="")

    @each(cards)
    def views(self, card: Cell[Card]) -> View:
        return self.kept.get()  # type: ignore[return-value]


def test_a_method_that_makes_no_piece_is_told_so() -> None:
    async def work() -> None:
        async with alone() as (rt, errors):
            await rt.space("team").open(Wrong, "w", setup=lambda b: b.cards.set({"a": Card(title="a")}))
            assert any("return a piece, or None" in str(each.error) for each in errors)

    run(work)


def test_a_row_is_no_place_for_key_and_at() -> None:
    async def work() -> None:
        async with alone() as (rt, _):
            board = await rt.space("team").open(Board, "main", setup=fill(1))
            with pytest.raises(AuthoringError, match=r"write \.get\(\)\['c00000'\]"):
                board.views.key("c00000")
            with pytest.raises(AuthoringError, match=r"\.get\(\)\[key\]"):
                board.views.at(lambda views: views)

    run(work)
