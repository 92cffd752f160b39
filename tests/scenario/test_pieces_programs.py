"""The programs of the design run as they are written: alone, over a directory, and behind a server."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from headwater import Refused, between
from tests.programs import b_kanban as kanban
from tests.programs import design_block as carts
from tests.programs import design_block2 as boards
from tests.scenario.pieces_kit import PLACES, Ranned, at, run

EVERYWHERE = pytest.mark.parametrize("place", PLACES)
SHARED = pytest.mark.parametrize("place", PLACES[1:])


def someone(place: str) -> str:
    """Who a program may act for: whom it authenticated, or behind a server only itself."""
    return "local" if place == "websocket" else "ann"


@EVERYWHERE
def test_a_cart_is_filled_and_checked_out(place: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with at(place, tmp_path) as site:
            shop = site.runtime().space("shop", user="ann")
            cart = await shop.open(carts.Cart, "ann")
            await cart.add.send(carts.Line(sku="tea", cents=450))
            assert await cart.total.pull() == 450
            order = await cart.checkout.send()
            assert order.cents == 450
            assert await cart.lines.pull() == ()
            with pytest.raises(Refused, match="the cart is empty"):
                await cart.checkout.send()
            assert site.errors == []

    run(work)


def test_the_first_program_runs_as_a_script(tmp_path: Path) -> None:
    source = Path(carts.__file__).read_text()
    (tmp_path / "shop.py").write_text(source)
    for _ in range(2):  # Made on first use, resumed afterwards.
        done = subprocess.run(
            [sys.executable, "shop.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "data").is_dir()


@EVERYWHERE
def test_the_board_of_the_design_moves_finds_and_adds_up(place: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with at(place, tmp_path) as site:
            team = site.runtime().space("team", user=someone(place))

            def fill(board: boards.Board) -> None:
                for number, column in enumerate(("todo", "todo", "doing")):
                    card = boards.Card(title=f"card {number}", column=column, rank=f"m{number}", points=number + 1)
                    board.cards.key(f"c{number}").set(card)

            board = await team.open(boards.Board, "main", setup=fill)
            assert await board.points.pull() == {"todo": 3, "doing": 3}
            assert list(await board.views.pull()) == ["c0", "c1", "c2"]
            await board.move.send("c0", "doing", "m2", None)
            assert await board.points.pull() == {"todo": 2, "doing": 4}
            assert list(await board.views.pull()) == ["c1", "c2", "c0"]
            board.search.set("card 1")
            assert await board.found.pull() == ("c1",)
            views = await board.views.pull()
            await views["c1"].rename.send("tea")
            assert (await board.cards.pull())["c1"].title == "tea"
            with pytest.raises(Refused, match="deleted"):
                await board.move.send("c9", "doing", None, None)
            board.frozen_from.set(datetime(2020, 1, 1, tzinfo=UTC))
            with pytest.raises(Refused, match="frozen"):
                await board.move.send("c1", "doing", None, None)
            board.cards.key("c2").at(lambda c: c.column).set("bin")
            await board.sweep.send()
            assert sorted(await board.cards.pull()) == ["c0", "c1"]
            assert site.errors == []

    run(work)


@EVERYWHERE
def test_the_kanban_program_runs(place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def work() -> None:
        async with at(place, tmp_path) as site:
            rt = site.runtime()
            board = await rt.space("team", user=someone(place)).open(kanban.Board, "main")
            first = await board.add.send("todo", "Write the guide")
            await board.move.send(first, "doing", after=None, before=None)
            assert await board.views.get()[first].label.pull() == "Write the guide (1)"
            ids = [await board.add.send("todo", f"card {number}") for number in range(5)]
            views = await board.views.pull()
            assert list(views) == [first, *ids]
            assert await board.points.pull() == {"doing": 1, "todo": 5}
            await views[ids[2]].rename.send("new")
            assert await views[ids[2]].label.pull() == "new (1)"
            await board.select.send(ids[2])
            assert await views[ids[2]].highlighted.pull() is True
            assert await views[ids[1]].highlighted.pull() is False
            await views[ids[1]].archive.send()
            await rt.durable()
            assert list(await board.views.pull()) == [first, ids[0], *ids[2:]]
            assert await board.finish.send("todo") == 4
            for view in (await board.views.pull()).values():
                await view.label.pull()
            await board.points.pull()
            kanban.show(board)
            with pytest.raises(Refused, match="no column"):
                await board.add.send("nowhere", "x")
            assert site.errors == []

    run(work)
    assert "Write the guide (1)" in capsys.readouterr().out


@SHARED
def test_a_card_dragged_by_everyone_is_in_one_column(place: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with at(place, tmp_path) as site:
            people = ("ann", "bob", "cy")
            boards_ = [site.runtime().space("team", user=user).piece(kanban.Board, "main") for user in people]
            card = await boards_[0].add.send("todo", "Write the guide")
            columns = ("doing", "done", "todo")
            await asyncio.gather(*(board.move.send(card, to, None, None) for board in boards_ for to in columns))
            agreed = await site.agreed(*(board.points for board in boards_))
            assert sum(agreed.values()) == 1
            assert site.errors == []

    run(work)


@EVERYWHERE
def test_one_renamed_card_runs_one_label(place: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with at(place, tmp_path) as site:
            rt = site.runtime()
            board = await rt.space("team", user=someone(place)).open(kanban.Board, "main")
            ids = [await board.add.send("todo", f"card {number}") for number in range(30)]
            views = await board.views.pull()
            labels = [view.label.sink(lambda _: None) for view in views.values()]
            await rt.settled()
            await site.settled()
            ran = Ranned(rt)
            await views[ids[7]].rename.send("new")
            await site.settled()
            assert ran.taken().of(":label") == 1
            for subscription in labels:
                subscription.close()
            assert site.errors == []

    run(work)


@pytest.mark.parametrize("place", ["embedded"])
def test_a_selection_is_of_one_user_and_a_search_of_one_window(place: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with at(place, tmp_path) as site:
            rt = site.runtime()
            one = rt.space("team", user="ann", session="s1").piece(kanban.Board, "main")
            two = rt.space("team", user="ann", session="s2").piece(kanban.Board, "main")
            bob = site.runtime().space("team", user="bob", session="s3").piece(kanban.Board, "main")
            card = await one.add.send("todo", "tea")
            await one.select.send(card)
            one.search.set("coffee")
            assert await two.selected.pull() == card
            assert await bob.selected.pull() is None
            assert await one.visible.pull() == ()
            assert await two.visible.pull() == (card,)
            assert site.errors == []

    run(work)


@SHARED
def test_several_runtimes_work_on_one_board_and_see_the_same(place: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with at(place, tmp_path) as site:
            people = ("local",) * 3 if place == "websocket" else ("ann", "bob", "cy")
            opened = [await site.runtime().space("team", user=user).open(kanban.Board, "main") for user in people]
            made = await asyncio.gather(
                *(board.add.send("todo", f"card {number}") for board in opened for number in range(10))
            )
            assert len(set(made)) == 30
            await asyncio.gather(*(opened[n % 3].move.send(id, "doing", None, None) for n, id in enumerate(made[:15])))
            agreed = await site.agreed(*(board.points for board in opened))
            assert agreed == {"todo": 15, "doing": 15}
            first = await opened[0].views.pull()
            await first[made[3]].rename.send("renamed")
            await site.settled()
            for board in opened:
                views = await board.views.pull()
                assert sorted(views) == sorted(made)
                await site.agreed(views[made[3]].label, first[made[3]].label)
            assert site.errors == []

    run(work, too_long_s=60)


def test_ranks_put_a_card_between_others() -> None:
    assert "a" < between("a", "b") < "b"
