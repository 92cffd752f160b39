"""Children, what they are given, scopes through them, and links to other pieces and other spaces."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from headwater import (
    AbsentError,
    AuthoringError,
    Cell,
    Handler,
    Input,
    Link,
    Model,
    Piece,
    cell,
    child,
    computed,
    each,
    effect,
    given,
    handler,
    link,
)
from tests.scenario.pieces_kit import Ranned, alone, at, run

LOG: list[str] = []


class Panel(Piece):
    n: Input[int] = given()
    kept: Cell[str] = cell(default="")

    @computed
    def text(self) -> str:
        return f"panel {self.n.get()}"

    @effect
    def show(self) -> Callable[[], object]:
        LOG.append(self.text.get())
        return lambda: LOG.append("gone")


class Chart(Piece):
    n: Input[int] = given()

    @computed
    def text(self) -> str:
        return f"chart {self.n.get()}"


class Page(Piece):
    n: Cell[int] = cell(default=1)
    kind: Cell[str] = cell(default="panel")

    @child
    def body(self) -> Panel | Chart | None:
        match self.kind.get():
            case "panel":
                return Panel(n=self.n)
            case "chart":
                return Chart(n=self.n)
            case _:
                return None

    @computed
    def text(self) -> str:
        body = self.body.get(None)
        return "nothing" if body is None else body.text.get()


def test_a_child_is_of_whatever_class_its_method_returns() -> None:
    async def work() -> None:
        LOG.clear()
        async with alone() as (rt, errors):
            page = await rt.space("s").open(Page, "p")
            first = page.body.get()
            assert isinstance(first, Panel)
            first.kept.set("mine")
            assert await page.text.pull() == "panel 1"
            page.n.set(2)
            assert await page.text.pull() == "panel 2"
            assert page.body.get() is first
            page.kind.set("chart")
            assert await page.text.pull() == "chart 2"
            assert isinstance(page.body.get(), Chart)
            await rt.idle()
            assert LOG == ["panel 1", "gone", "panel 2", "gone"]
            page.kind.set("none")
            assert await page.text.pull() == "nothing"
            with pytest.raises(AbsentError, match="keeps no child"):
                page.body.get()
            page.kind.set("panel")
            await rt.idle()
            again = page.body.get()
            assert isinstance(again, Panel)
            assert again.kept.get() == "mine"
            assert errors == []

    run(work)


# ---- what is given -----------------------------------------------------------------------------------------


class Row(Piece):
    item: Input[str] = given()
    chosen: Cell[str | None] = given()
    on_pick: Handler[[str], str] = given()

    @computed(scope="user")
    def is_chosen(self) -> bool:
        return self.chosen.get() == self.item.get()

    @computed
    def wrong(self) -> bool:
        return self.chosen.get() is None

    @handler
    def pick(self) -> None:
        self.on_pick.post(self.item.get())

    @handler
    def choose(self) -> None:
        self.chosen.set(self.item.get())

    @handler
    def scribble(self) -> None:
        self.item.set("x")  # type: ignore[attr-defined]


class Shelf(Piece):
    items: Cell[Mapping[str, str]] = cell(default={"a": "apple", "b": "bread"})
    chosen: Cell[str | None] = cell(default=None, scope="user")
    picked: Cell[tuple[tuple[str, str], ...]] = cell(default=())

    @handler
    def pick(self, item: str) -> str:
        self.picked.push((item, self.ctx.user))
        return item.upper()

    @each(items)
    def rows(self, item: Cell[str]) -> Row:
        return Row(item=item, chosen=self.chosen, on_pick=self.pick)


def test_a_callback_is_sent_for_whoever_sent_the_event() -> None:
    async def work() -> None:
        async with alone() as (rt, errors):
            shelf = await rt.space("s", user="ann").open(Shelf, "s")
            bob = rt.space("s", user="bob").piece(Shelf, "s")
            await shelf.rows.get()["a"].pick.send()
            await (await bob.rows.pull())["b"].pick.send()
            await rt.durable()
            assert await shelf.picked.pull() == (("apple", "ann"), ("bread", "bob"))
            assert await bob.rows.get()["a"].on_pick.send("tea") == "TEA"
            assert (await shelf.picked.pull())[-1] == ("tea", "bob")
            assert errors == []

    run(work)


def test_what_is_of_one_user_passes_through_a_child_of_all() -> None:
    async def work() -> None:
        async with alone() as (rt, errors):
            ann = await rt.space("s", user="ann").open(Shelf, "s")
            bob = rt.space("s", user="bob").piece(Shelf, "s")
            await ann.rows.get()["a"].choose.send()
            rows = (await ann.rows.pull(), await bob.rows.pull())
            assert [await each["a"].is_chosen.pull() for each in rows] == [True, False]
            await rows[1]["b"].choose.send()
            assert (await ann.chosen.pull(), await bob.chosen.pull()) == ("apple", "bread")
            assert errors == []
            with pytest.raises(Exception, match=r"this run is for all users alike"):
                await rows[0]["a"].wrong.pull()

    run(work)


def test_an_input_cannot_be_written() -> None:
    async def work() -> None:
        async with alone() as (rt, errors):
            shelf = await rt.space("s", user="ann").open(Shelf, "s")
            with pytest.raises(Exception, match="is a handle, not a value, and has no 'set'"):
                await shelf.rows.get()["a"].scribble.send()
            assert len(errors) == 1

    run(work)


class Reader(Piece):
    n: Cell[int] = given()


class Mistaken(Piece):
    n: Cell[int] = cell(default=1)

    @computed
    def twice(self) -> int:
        return self.n.get() * 2

    @child
    def part(self) -> Reader:
        return Reader(n=self.twice)  # type: ignore[arg-type]


def test_a_computed_cannot_be_given_where_a_cell_is_wanted() -> None:
    async def work() -> None:
        async with alone() as (rt, _):
            piece = await rt.space("s").open(Mistaken, "m")
            with pytest.raises(AuthoringError, match="declare an Input"):
                _ = piece.part.get().n

    run(work)


# ---- scopes ------------------------------------------------------------------------------------------------


class Scoped(Piece):
    shared: Cell[int] = cell(default=1)
    mine: Cell[int] = cell(default=2, scope="user")
    here: Cell[int] = cell(default=3, scope="session")

    @computed(scope="user")
    def both(self) -> int:
        return self.shared.get() + self.mine.get()

    @computed(scope="session")
    def all(self) -> int:
        return self.both.get() + self.here.get()

    @computed
    def wide(self) -> int:
        return self.mine.get()

    @computed(scope="user")
    def still_wide(self) -> int:
        return self.here.get()

    @computed(scope="user")
    def who(self) -> str:
        return self.ctx.user

    @computed
    def nobody(self) -> str:
        return self.ctx.user


def test_a_run_reads_its_own_scope_and_wider_ones() -> None:
    async def work() -> None:
        async with alone() as (rt, _):
            one = rt.space("s", user="ann", session="s1").piece(Scoped, "p")
            two = rt.space("s", user="ann", session="s2").piece(Scoped, "p")
            bob = rt.space("s", user="bob", session="s3").piece(Scoped, "p")
            one.mine.set(20)
            one.here.set(30)
            assert [await each.all.pull() for each in (one, two, bob)] == [51, 24, 6]
            assert await bob.who.pull() == "bob"
            for wrong, says in (
                (one.wide, "scope='user'"),
                (one.still_wide, "scope='session'"),
                (one.nobody, "ctx.user"),
            ):
                with pytest.raises(Exception, match=says):
                    await wrong.pull()

    run(work)


def test_what_is_of_a_user_needs_one() -> None:
    async def work() -> None:
        async with alone() as (rt, _):
            piece = rt.space("s").piece(Scoped, "p")
            with pytest.raises(AuthoringError, match=r"rt\.space\('s', user=\.\.\.\)"):
                _ = piece.mine
            assert await piece.here.pull() == 3  # A runtime is a session by itself.

    run(work)


# ---- links -------------------------------------------------------------------------------------------------


class Note(Model):
    text: str


class Book(Piece):
    notes: Cell[Mapping[str, Note]] = cell(default={})
    title: Cell[str] = cell(default="untitled")

    @computed
    def size(self) -> int:
        return len(self.notes.get())

    @handler
    def name(self, title: str) -> None:
        self.title.set(title)


class Desk(Piece):
    book: Cell[Link[Book] | None] = cell(default=None)
    note: Cell[Link[Input[Note]] | None] = cell(default=None)

    @computed
    def shown(self) -> str:
        found = self.book.get()
        if found is None:
            return "no book"
        book: Book = self.ctx.follow(found)
        return f"{book.title.get()}: {book.size.get()}"

    @computed
    def read(self) -> str:
        found = self.note.get()
        return "" if found is None else str(self.ctx.follow(found).get().text)

    @handler
    def rename(self, title: str) -> None:
        found = self.book.get()
        assert found is not None
        self.ctx.follow(found).name.post(title)


@pytest.mark.parametrize("place", ["detached", "embedded"])
@pytest.mark.parametrize("other", ["s", "library"])
def test_a_link_leads_to_a_piece_or_a_cell_of_any_space(place: str, other: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with at(place, tmp_path) as site:
            rt = site.runtime()
            book = await rt.space(other).open(Book, "b/1: odd")
            desk = await rt.space("s").open(Desk, "d")
            assert await desk.shown.pull() == "no book"
            book.notes.key("x").set(Note(text="hello"))
            desk.book.set(link(book))
            desk.note.set(link(book.notes.key("x")))
            assert await desk.shown.pull() == "untitled: 1"
            assert await desk.read.pull() == "hello"
            await desk.rename.send("tea")
            await rt.durable()
            assert await desk.shown.pull() == "tea: 1"
            book.notes.key("x").at(lambda note: note.text).set("bye")
            assert await desk.read.pull() == "bye"
            assert site.errors == []

    run(work)


def test_a_link_is_followed_by_a_runtime_that_has_not_opened_it(tmp_path: Path) -> None:
    async def work() -> None:
        async with at("embedded", tmp_path) as site:
            first = site.runtime()
            book = await first.space("s").open(Book, "b")
            desk = await first.space("s").open(Desk, "d", setup=lambda desk: desk.book.set(link(book)))
            assert await desk.shown.pull() == "untitled: 0"
            other = site.runtime().space("s").piece(Desk, "d")
            assert await other.shown.pull() == "untitled: 0"
            await other.rename.send("tea")
            await site.settled()
            assert await site.agreed(desk.shown, other.shown) == "tea: 0"
            assert site.errors == []

    run(work)


class Copy(Piece):
    source: Input[str] = given()
    target: Cell[str] = given()

    @computed
    def text(self) -> str:
        return self.source.get().upper()

    @handler
    def write(self, text: str) -> None:
        self.target.set(text)


def test_a_piece_may_be_opened_with_cells_of_other_pieces_and_opened_again_without_them(tmp_path: Path) -> None:
    async def work() -> None:
        async with at("embedded", tmp_path) as site:
            space = site.runtime().space("s")
            book = await space.open(Book, "b")
            copy = await space.open(Copy(source=book.title, target=book.title), "copy")
            assert await copy.text.pull() == "UNTITLED"
            await copy.write.send("tea")
            assert await copy.text.pull() == "TEA"
            again = site.runtime().space("s").piece(Copy, "copy")
            await again.write.send("coffee")
            assert await again.text.pull() == "COFFEE"
            assert await site.agreed(copy.text, again.text) == "COFFEE"
            with pytest.raises(AuthoringError, match="Copy needs 'source'"):
                await space.open(Copy, "another")  # type: ignore[arg-type]
            assert site.errors == []

    run(work)


def test_a_handle_of_another_runtime_cannot_be_given(tmp_path: Path) -> None:
    async def work() -> None:
        async with at("embedded", tmp_path) as site:
            book = await site.runtime().space("s").open(Book, "b")
            with pytest.raises(AuthoringError, match="another runtime"):
                await site.runtime().space("s").open(Copy(source=book.title, target=book.title), "copy")

    run(work)


def test_a_link_to_nothing_says_so() -> None:
    async def work() -> None:
        async with alone() as (rt, _):
            desk = await rt.space("s").open(Desk, "d", setup=lambda d: d.book.set(Link(None, "space", "nobody:@")))
            with pytest.raises(Exception, match="has no piece 'nobody'"):
                await desk.shown.pull()

    run(work)


class Even(Piece):
    n: Input[int] = given()

    @computed
    def text(self) -> str:
        return f"even {self.n.get()}"


class Odd(Piece):
    n: Input[int] = given()

    @computed
    def text(self) -> str:
        return f"odd {self.n.get()}"


class Parity(Piece):
    n: Cell[int] = cell(default=2)

    @child
    def which(self) -> Even | Odd:
        return Odd(n=self.n) if self.n.get() % 2 else Even(n=self.n)

    @computed
    def text(self) -> str:
        return self.which.get().text.get()


def test_whoever_reads_a_child_of_another_class_waits_for_what_that_makes() -> None:
    """Both classes keep their text in the same place: what the one before left there is not fresh."""

    async def work() -> None:
        async with alone() as (rt, errors):
            piece = await rt.space("s").open(Parity, "p")
            seen: list[str] = []
            look = piece.text.sink(seen.append)
            await rt.idle()
            ran = Ranned(rt)
            for n in (3, 4, 5):
                piece.n.set(n)
                await rt.idle()
                assert ran.taken().of("/p:text") == 1
            assert seen == ["even 2", "odd 3", "even 4", "odd 5"]
            look.close()
            assert errors == []

    run(work)


class Base(Piece):
    n: Cell[int] = cell(default=7)
    rows: Cell[Mapping[str, int]] = cell(default={"a": 1})

    @computed
    def double(self) -> int:
        return self.n.get() * 2


class Gatherer(Piece):
    n: Input[int] = given()
    double: Input[int] = given()
    part: Cell[int] = given()

    @computed
    def all(self) -> tuple[int, int, int]:
        return self.n.get(), self.double.get(), self.part.get()


def test_what_was_given_is_the_same_when_the_piece_is_found_again(tmp_path: Path) -> None:
    async def work() -> None:
        async with at("embedded", tmp_path) as site:
            space = site.runtime().space("s")
            base = await space.open(Base, "b")
            made = Gatherer(n=base.n, double=base.double, part=base.rows.key("a"))
            await (await space.open(made, "r")).all.pull()
            await site.settled()
            other = site.runtime().space("s")
            found = other.piece(Gatherer, "r")
            assert await found.all.pull() == (7, 14, 1)
            other.piece(Base, "b").n.set(8)
            assert await found.all.pull() == (8, 16, 1)
            assert site.errors == []
        async with at("embedded", tmp_path) as site:
            (found,) = (await site.runtime().space("s").find(Gatherer)).items
            assert await found.all.pull() == (8, 16, 1)
            assert site.errors == []

    run(work)
