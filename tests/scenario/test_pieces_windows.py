"""One runtime that acts for several users, and for nobody in particular: whose window is whose, and what stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater import AuthoringError, Cell, Piece, Runtime, UpstreamFailedError, cell, computed, effect, handler
from tests.scenario.pieces_kit import alone, at, run

SHOWN: list[str] = []


class Desk(Piece):
    title: Cell[str] = cell(default="")
    chosen: Cell[str] = cell(default="", scope="user")
    search: Cell[str] = cell(default="", scope="session")

    @computed(scope="session")
    def found(self) -> str:
        is_found = bool(self.search.get()) and self.search.get() in self.title.get()
        return f"{'yes' if is_found else 'no'} {self.chosen.get()}"

    @effect
    def show(self) -> None:
        SHOWN.append(self.title.get())

    @handler
    def look_for(self, text: str) -> str:
        self.search.set(text)
        return self.ctx.user


def desk(rt: Runtime, user: str) -> Desk:
    return rt.space("s", user=user).piece(Desk, "d")


@pytest.mark.parametrize("order", [("", "ann", "bob"), ("ann", "", "bob"), ("ann", "bob", "")])
def test_nobody_and_the_first_user_are_one_window_and_a_second_user_has_another(order: tuple[str, ...]) -> None:
    async def work() -> None:
        async with alone() as (rt, errors):
            desks = {user: desk(rt, user) for user in order}
            for user in order:
                if user or order[0]:  # Before there is a user it cannot be had.
                    await desks[user].found.pull()
            nobody, ann, bob = desks[""], desks["ann"], desks["bob"]
            assert await nobody.look_for.send("tea") == ""
            assert (await ann.search.pull(), await bob.search.pull()) == ("tea", "")
            assert await ann.look_for.send("cake") == "ann"
            assert (await nobody.search.pull(), await bob.search.pull()) == ("cake", "")
            assert await bob.look_for.send("rye") == "bob"
            assert (await nobody.search.pull(), await ann.search.pull()) == ("cake", "cake")
            nobody.title.set("rye bread")
            ann.chosen.set("x")
            assert [await each.found.pull() for each in (nobody, ann, bob)] == ["no x", "no x", "yes "]
            assert errors == []

    run(work)


def test_what_is_computed_for_a_window_is_computed_for_its_user_as_soon_as_there_is_one() -> None:
    async def work() -> None:
        async with alone() as (rt, _):
            nobody = rt.space("s", session="w").piece(Desk, "d")
            with pytest.raises(UpstreamFailedError, match="no user is named"):
                await nobody.found.pull()
            ann = rt.space("s", user="ann", session="w").piece(Desk, "d")
            assert await ann.found.pull() == "no "
            assert await rt.space("s", session="w").piece(Desk, "d").found.pull() == "no "
            ann.chosen.set("x")
            assert await nobody.found.pull() == "no x"

    run(work)


def test_a_window_is_one_user_s_alone() -> None:
    async def work() -> None:
        async with alone() as (rt, _):
            ann = rt.space("s", user="ann", session="w").piece(Desk, "d")
            bob = rt.space("s", user="bob", session="w").piece(Desk, "d")
            for look in (lambda: bob.search, lambda: bob.found):
                with pytest.raises(AuthoringError, match="session 'w' is a window of 'ann'"):
                    look()
            assert await bob.title.pull() == ""
            assert await ann.search.pull() == ""

    run(work)


def test_what_is_a_user_s_own_is_not_nobody_s() -> None:
    async def work() -> None:
        async with alone() as (rt, _):
            ann, nobody = desk(rt, "ann"), desk(rt, "")
            ann.chosen.set("mine")
            with pytest.raises(AuthoringError, match=r"one value for each user, and no user is named: write rt\.space"):
                nobody.chosen.get()
            assert await desk(rt, "bob").chosen.pull() == ""
            assert await ann.chosen.pull() == "mine"

    run(work)


def test_a_piece_that_is_open_for_nobody_and_for_a_user_shows_to_both() -> None:
    async def work() -> None:
        async with alone() as (rt, errors):
            SHOWN.clear()
            nobody = await rt.space("s").open(Desk, "d")
            await rt.space("s", user="ann").open(Desk, "d")
            assert SHOWN == ["", ""]
            nobody.title.set("x")
            await rt.idle()
            assert SHOWN[2:] == ["x", "x"]
            assert errors == []

    run(work)


def test_deleting_a_piece_leaves_what_other_users_keep_of_it(tmp_path: Path) -> None:
    async def work() -> None:
        async with at("embedded", tmp_path) as site:
            rt = site.runtime()
            space = rt.space("s", user="ann")
            ann = await space.open(Desk, "d")
            bob = desk(rt, "bob")
            await bob.chosen.pull()
            ann.chosen.set("ann's")
            bob.chosen.set("bob's")
            ann.title.set("shared")
            ann.search.set("ann's window")
            await rt.durable()
            await space.delete(ann)
            assert (await space.find(Desk)).items == ()
            again = await space.open(Desk, "d")
            values = [await each.pull() for each in (again.title, again.chosen, again.search)]
            assert values == ["", "", ""]
            assert await desk(rt, "bob").chosen.pull() == "bob's"
            assert site.errors == []

    run(work)
