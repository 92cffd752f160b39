"""Pieces of a space: opening, making, finding, stopping and deleting them; names, and classes that changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from headwater import (
    AuthoringError,
    Cell,
    HandlerFailed,
    Input,
    Json,
    Link,
    Model,
    Piece,
    Policy,
    cell,
    child,
    computed,
    each,
    effect,
    field,
    fold,
    given,
    handler,
    link,
    materializer,
)
from tests.scenario.pieces_kit import PLACES, Ranned, alone, at, live_objects, node_count, run

EVERYWHERE = pytest.mark.parametrize("place", PLACES)
LOG: list[str] = []


class Cart(Piece):
    lines: Cell[tuple[str, ...]] = cell(default=())
    mine: Cell[str] = cell(default="", scope="user")

    @computed
    def size(self) -> int:
        return len(self.lines.get())

    @effect
    def show(self) -> Callable[[], object]:
        name = self.ctx.name
        LOG.append(f"{name} {self.size.get()}")
        return lambda: LOG.append(f"{name} over")

    @handler
    def add(self, line: str) -> int:
        self.lines.push(line)
        return len(self.lines.get())


class Other(Piece):
    n: Cell[int] = cell(default=0)

    @handler
    def add(self, line: str) -> None:
        self.n.increment(1)


@EVERYWHERE
def test_a_piece_is_set_up_once(place: str, tmp_path: Path) -> None:
    async def work() -> None:
        LOG.clear()
        async with at(place, tmp_path) as site:
            space = site.runtime().space("s")
            cart = await space.open(Cart, "a", setup=lambda cart: cart.lines.set(("x",)))
            assert cart.lines.get() == ("x",)
            again = await space.open(Cart, "a", setup=lambda cart: cart.lines.set(("never",)))
            assert again is cart
            assert cart.lines.get() == ("x",)
            assert LOG == ["a 1"]
            with pytest.raises(AuthoringError, match="has a piece 'a' already"):
                await space.create(Cart, "a")
            made = await space.create(Cart)
            assert made.ctx.name != "a"
            assert await made.add.send("y") == 1
            assert site.errors == []

    run(work)


def test_of_two_runtimes_one_sets_a_piece_up(tmp_path: Path) -> None:
    async def work() -> None:
        async with at("embedded", tmp_path) as site:
            spaces = [site.runtime().space("s") for _ in range(3)]
            carts = await asyncio.gather(
                *(space.open(Cart, "a", setup=lambda c: c.lines.push("x")) for space in spaces)
            )
            assert await site.agreed(*(cart.lines for cart in carts)) == ("x",)
            ends = await asyncio.gather(*(space.create(Cart, "b") for space in spaces), return_exceptions=True)
            assert sum(isinstance(end, AuthoringError) for end in ends) == 2
            assert site.errors == []

    run(work)


@EVERYWHERE
def test_a_piece_by_name_starts_nothing_and_can_be_used(place: str, tmp_path: Path) -> None:
    async def work() -> None:
        LOG.clear()
        async with at(place, tmp_path) as site:
            rt = site.runtime()
            ran = Ranned(rt)
            space = rt.space("s")
            cart = space.piece(Cart, "a")
            await rt.idle()
            assert (ran.taken().totals, LOG) == ((0, 0), [])
            assert await cart.add.send("x") == 1
            assert await cart.size.pull() == 1
            sizes: list[int] = []
            async for size in cart.size.watch():
                sizes.append(size)
                if size == 2:
                    break
                cart.add.post("y")
            assert sizes == [1, 2]
            assert LOG == []
            assert space.piece(Cart, "a") is cart
            assert [found.ctx.name for found in (await space.find(Cart)).items] == ["a"]
            assert site.errors == []

    run(work)


@EVERYWHERE
def test_pieces_are_found_page_by_page(place: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with at(place, tmp_path) as site:
            space = site.runtime().space("s")
            names = [f"cart {number:02}" for number in range(7)]
            for name in names:
                await space.open(Cart, name)
            await space.open(Other, "cart 03b")
            found, after, pages = [], None, 0
            while True:
                page = await space.find(Cart, after=after, limit=3)
                found += [piece.ctx.name for piece in page.items]
                pages += 1
                after = page.next
                if after is None:
                    break
            assert (found, pages) == (names, 3)
            assert [piece.ctx.name for piece in (await space.find(Other)).items] == ["cart 03b"]
            with pytest.raises(AuthoringError, match="1 to 1000"):
                await space.find(Cart, limit=0)

    run(work)


@EVERYWHERE
def test_a_stopped_piece_runs_nothing_and_can_be_opened_again(place: str, tmp_path: Path) -> None:
    async def work() -> None:
        LOG.clear()
        async with at(place, tmp_path) as site:
            rt = site.runtime()
            space = rt.space("s")
            cart = await space.open(Cart, "a")
            await cart.add.send("x")
            await rt.settled()
            assert LOG == ["a 0", "a over", "a 1"]
            await space.stop(cart)
            assert LOG[3:] == ["a over"]
            assert node_count(rt) == 0
            await cart.add.send("y")
            assert await cart.size.pull() == 2
            assert len(LOG) == 4
            again = await space.open(Cart, "a")
            await rt.settled()
            assert again is cart
            assert LOG[4:] == ["a 2"]
            assert site.errors == []

    run(work)


@EVERYWHERE
def test_a_deleted_piece_leaves_nothing(place: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with at(place, tmp_path) as site:
            rt = site.runtime()
            space = rt.space("s", user="local")
            cart = await space.open(Cart, "a")
            near = await space.open(Cart, "a b")
            await cart.add.send("x")
            await near.add.send("x")
            cart.mine.set("secret")
            await rt.durable()
            await space.delete(cart)
            assert [piece.ctx.name for piece in (await space.find(Cart)).items] == ["a b"]
            again = await space.open(Cart, "a")
            assert (again.lines.get(), again.mine.get()) == ((), "")
            assert near.lines.get() == ("x",)
            assert site.errors == []

    run(work)


@EVERYWHERE
def test_what_is_sent_to_a_deleted_piece_makes_it_anew(place: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with at(place, tmp_path) as site:
            space = site.runtime().space("s", user="local")
            cart = await space.open(Cart, "a")
            await cart.add.send("x")
            others = [] if place == "detached" else [site.runtime().space("s", user="local").piece(Cart, "a")]
            for other in others:
                await other.add.send("y")
            await space.delete(cart)
            for each in (*others, cart):
                await each.add.send("z")
                assert [piece.ctx.name for piece in (await space.find(Cart)).items] == ["a"]
            with pytest.raises(AuthoringError, match="already"):
                await space.create(Cart, "a")
            assert set(await cart.lines.pull()) == {"z"}
            assert site.errors == []

    run(work)


class Shown(Piece, name="spaces.Shown"):
    mine: Cell[int] = cell(default=0, scope="user")
    here: Cell[int] = cell(default=0, scope="session")
    points: Cell[Link[Cell[int]] | None] = cell(default=None)

    @computed(scope="session")
    def both(self) -> int:
        return self.mine.get() * 10 + self.here.get()

    @effect
    def show(self) -> None:
        SHOWN.append(self.both.get())

    @handler
    def point(self, at: Link[Cell[int]]) -> None:
        self.points.set(at)

    @handler
    def read(self) -> int:
        at = self.points.get()
        return 0 if at is None else self.ctx.follow(at).get()


SHOWN: list[int] = []


@EVERYWHERE
def test_one_runtime_opens_a_piece_for_several_users(place: str, tmp_path: Path) -> None:
    async def work() -> None:
        if place == "websocket":
            return  # There a runtime is one user's.
        SHOWN.clear()
        async with at(place, tmp_path) as site:
            rt = site.runtime()
            ann = await rt.space("s", user="ann").open(Shown, "p")
            bob = await rt.space("s", user="bob").open(Shown, "p")
            ann.mine.set(1)
            bob.mine.set(2)
            ann.here.set(3)
            bob.here.set(4)
            await site.settled()
            assert (await ann.both.pull(), await bob.both.pull()) == (13, 24)
            assert {13, 24} <= set(SHOWN)
            assert site.errors == []

    run(work)


def test_a_link_to_what_is_one_user_s_leads_that_user_there_and_nobody_else() -> None:
    async def work() -> None:
        async with alone() as (rt, _):
            ann, bob = (rt.space("s", user=user).piece(Shown, "p") for user in ("ann", "bob"))
            bob.mine.set(5)
            await bob.point.send(link(bob.mine))
            assert await bob.read.send() == 5
            with pytest.raises(HandlerFailed, match="only a run for that scope may follow it"):
                await ann.read.send()

    run(work)


def test_another_space_or_runtime_cannot_stop_a_piece() -> None:
    async def work() -> None:
        async with alone() as (rt, _):
            cart = await rt.space("s").open(Cart, "a")
            with pytest.raises(AuthoringError, match="is not a piece of"):
                await rt.space("t").stop(cart)
            with pytest.raises(AuthoringError, match="is not a piece of"):
                await rt.space("s").delete(Cart())

    run(work)


# ---- names -------------------------------------------------------------------------------------------------

ODD = ["a/b", "a:b", "a%2Fb", "ü 🍵", "a b", ":@", "/", "x" * 300, "x" * 299 + "y", "\t", "a;", "A"]


@EVERYWHERE
def test_a_piece_may_have_any_name(place: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with at(place, tmp_path) as site:
            space = site.runtime().space("s")
            for number, name in enumerate(ODD):
                cart = await space.open(Cart, name)
                for _ in range(number + 1):
                    await cart.add.send(name[:5])
            found = (await space.find(Cart)).items
            assert sorted(piece.ctx.name for piece in found) == sorted(ODD)
            for piece in found:
                assert len(await piece.lines.pull()) == ODD.index(piece.ctx.name) + 1
            assert site.errors == []

    run(work)


def test_what_is_no_name_is_refused() -> None:
    async def work() -> None:
        async with alone() as (rt, _):
            for wrong in ("", None, 3):
                with pytest.raises(AuthoringError, match="cannot name a piece"):
                    rt.space("s").piece(Cart, wrong)  # type: ignore[arg-type]
            with pytest.raises(AuthoringError, match=r"write space\.open\(Cart"):
                await rt.space("s").open(3, "a")  # type: ignore[call-overload]
            with pytest.raises(AuthoringError, match=r"is not a (piece|class of pieces)"):
                rt.space("s").piece(int, "a")  # type: ignore[type-var]

    run(work)


def test_a_name_that_is_of_another_class_is_refused(tmp_path: Path) -> None:
    async def work() -> None:
        async with at("embedded", tmp_path) as site:
            space = site.runtime().space("s")
            await space.open(Cart, "a")
            with pytest.raises(AuthoringError, match=r"is a .*Cart here, not a .*Other"):
                space.piece(Other, "a")
            other = site.runtime().space("s")
            with pytest.raises(AuthoringError, match=r"is a .*\.Cart, not a .*\.Other: .* was='"):
                await other.open(Other, "a")
            fresh = site.runtime().space("s")
            with pytest.raises(AuthoringError, match=r"is a .*\.Cart, not a .*\.Other"):
                await fresh.piece(Other, "a").add.send("x")

    run(work)


# ---- classes that changed ----------------------------------------------------------------------------------


class Old(Piece, name="shop.Basket"):
    class Item(Model):
        sku: str
        extra: int = 7

    things: Cell[tuple[Item, ...]] = cell(default=())

    @computed
    def count(self) -> int:
        return len(self.things.get())


class NewItem(Model):
    name: str = field(was="sku")


class New(Piece, name="shop.Cart", was="shop.Basket", version=2):
    items: Cell[tuple[NewItem, ...]] = cell(default=(), was="things")

    @computed(was="count")
    def size(self) -> int:
        return len(self.items.get())


def test_a_renamed_class_member_and_field_find_what_was_stored(tmp_path: Path) -> None:
    async def work() -> None:
        async with at("embedded", tmp_path) as site:
            old = await site.runtime().space("s").open(Old, "b", setup=lambda b: b.things.push(Old.Item(sku="tea")))
            assert await old.count.pull() == 1
            await site.settled()
            rt = site.runtime()
            space = rt.space("s")
            assert [piece.ctx.name for piece in (await space.find(New)).items] == ["b"]
            new = await space.open(New, "b")
            assert await new.size.pull() == 1
            assert new.items.get() == (NewItem(name="tea"),)
            assert await rt.cell("s", "b:@", Json).key("cls").pull() == "shop.Cart"

    run(work)


# ---- nothing stays behind ----------------------------------------------------------------------------------


class Row(Piece):
    text: Input[str] = given()
    note: Cell[str] = cell(default="")

    @computed
    def upper(self) -> str:
        return self.text.get().upper()

    @effect
    def show(self) -> None:
        self.upper.get()


class Full(Piece):
    rows: Cell[Mapping[str, str]] = cell(default={"a": "x", "b": "y"})
    copy: Cell[str] = cell(default="")
    total = fold(rows, start=0, add=lambda n, x: n + len(x), remove=lambda n, x: n - len(x))

    @each(rows)
    def views(self, text: Cell[str]) -> Row:
        return Row(text=text)

    @child
    def first(self) -> Row:
        return Row(text=self.copy)

    @computed
    def all(self) -> str:
        return " ".join(view.upper.get() for view in self.views.get().values())

    @materializer(envelope=(copy,))
    def copied(self) -> None:
        self.copy.set(self.all.get())

    @effect
    def show(self) -> None:
        self.all.get()
        self.total.get()

    @handler
    def touch(self) -> str:
        self.rows.key("a").set("z")
        return self.all.get()


@pytest.mark.parametrize("place", ["detached", "embedded"])
def test_opening_and_stopping_many_pieces_leaves_nothing_behind(place: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with at(place, tmp_path) as site:
            rt = site.runtime(policy=Policy(intents_kept=0))
            space = rt.space("s")

            async def once(name: str) -> None:
                piece = await space.open(Full, name)
                await piece.touch.send()
                await piece.views.get()["a"].upper.pull()
                await rt.settled()
                assert piece.copy.get() == "Z Y"
                await space.stop(piece)

            async def quiet() -> None:
                await rt.durable()
                await rt.until(lambda: not len(rt.tasks))  # Old receipts are looked for now and then.

            for _ in range(20):
                await once("first")
            await quiet()
            nodes, before = node_count(rt), live_objects()
            rounds = 24 if place == "embedded" else 80
            for number in range(rounds):
                await once("first" if place == "detached" else f"p{number}")
            await quiet()
            assert node_count(rt) == nodes
            more = live_objects() - before
            assert {name: count for name, count in more.items() if count >= rounds // 2} == {}
            assert site.errors == []

    run(work, too_long_s=120)


def test_hundreds_of_pieces_are_opened_and_stopped_and_nothing_is_left() -> None:
    async def work() -> None:
        async with alone(policy=Policy(intents_kept=0)) as (rt, errors):
            space = rt.space("s")
            await space.stop(await space.open(Cart, "first"))
            before = live_objects()
            carts = [await space.open(Cart, f"c{number}") for number in range(300)]
            for cart in carts:
                await space.stop(cart)
            del carts, cart
            await rt.durable()
            assert node_count(rt) == 0
            more = live_objects() - before
            assert {name: count for name, count in more.items() if count >= 150} == {}
            assert errors == []

    run(work, too_long_s=120)


@EVERYWHERE
def test_a_runtime_is_closed_with_pieces_open(place: str, tmp_path: Path) -> None:
    async def work() -> None:
        LOG.clear()
        async with at(place, tmp_path) as site:
            rt = site.runtime()
            cart = await rt.space("s").open(Cart, "a")
            full = await rt.space("s").open(Full, "f")
            cart.add.post("x")
            full.rows.key("c").set("w")
            await rt.close()
            assert LOG[-1] == "a over"
            assert node_count(rt) == 0
            assert site.errors == []
            with pytest.raises(AuthoringError, match="closed"):
                cart.lines.get()

    run(work)


@EVERYWHERE
def test_a_piece_is_stopped_while_runs_are_pending(place: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with at(place, tmp_path) as site:
            rt = site.runtime()
            space = rt.space("s")
            for _ in range(5):
                full = await space.open(Full, "f")
                full.rows.key("n").set("new")
                full.rows.key("a").delete()
                full.touch.post()
                await space.stop(full)
                full.rows.set({"a": "x", "b": "y"})
            await rt.durable()
            assert site.errors == []

    run(work)
