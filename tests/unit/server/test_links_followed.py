"""A link that a writer put into a cell leads an author's run to nothing that the writer may not see or write."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater import Cell, Link, Piece, cell, computed, handler, link
from headwater.engine.admission.access import ACCESS
from headwater.errors import UpstreamFailedError
from headwater.runtime.api.runtime import Runtime
from tests.scenario.pieces_kit import alone
from tests.scenario.pieces_kit import run as play
from tests.unit.server.test_pages import Browser, World, run

ROLES: dict[str, tuple[str, ...]] = {"owners": ("cy",), "writers": ("ann", "bob"), "readers": ("dan",)}


class Pad(Piece, name="followed.Pad"):
    any: Cell[headwater.Json] = cell(default=None)
    shared: Cell[str] = cell(default="shared")
    target: Cell[Link[Any] | None] = cell(default=None)
    secret: Cell[str] = cell(default="nobody's", scope="user")

    @computed
    def seen(self) -> str:
        return str(self.any.get())

    @computed(scope="user")
    def mine(self) -> str:
        return str(self.any.get())

    @computed(scope="session")
    def window(self) -> str:
        return str(self.any.get())

    @computed
    def far(self) -> str:
        found = self.target.get()
        return "-" if found is None else str(self.ctx.follow(found).get())

    @handler
    def put(self, value: headwater.Json) -> None:
        self.any.set(value)

    @handler(allow="reader")
    def tell(self, place: Link[Any]) -> str:
        return str(self.ctx.follow(place).get())


class Safe(Piece, name="followed.Safe"):
    word: Cell[str] = cell(default="")


def fill(safe: Safe) -> None:
    safe.word.set("top secret")


def place(member: str, name: str) -> dict[str, Any]:
    return {"space": "pads", "cls": "followed.Pad", "name": name, "member": member, "path": []}


async def write(page: Browser, value: Any, name: str = "main", member: str = "any") -> dict[str, Any]:
    return await page.ask("write", member, place=place(member, name), kind="set", value=value, key="")


async def look(page: Browser, number: int, member: str, name: str = "main") -> Any:
    await page.say(type="look", id=number, place=place(member, name))
    heard = await page.hear(id=number)
    return heard["value"] if "value" in heard else heard["error"]


def to(scope: str, id: str, space: str | None = None) -> dict[str, Any]:
    where = {"scope": scope, "id": id, "path": []}
    return {"$link": where if space is None else {"space": space, **where}}


def story(test: Callable[[World, Runtime], Awaitable[None]], folder: Path) -> None:
    async def work(world: World) -> None:
        rt = world.server.application().runtime
        rt.cell("pads", ACCESS.id, headwater.Json).set(ROLES)
        rt.cell("private", ACCESS.id, headwater.Json).set({"owners": ("cy",), "readers": ("ann",)})
        rt.space("pads", user="ann").piece(Pad, "main").secret.set("ann's diary")
        await rt.space("private").open(Safe, "safe", setup=fill)
        await rt.durable()
        await test(world, rt)

    run(folder, work, with_keys=True, owner="cy", classes=(Pad, Safe))


def test_a_run_for_everybody_is_not_led_to_what_is_one_user_s(tmp_path: Path) -> None:
    async def test(world: World, rt: Runtime) -> None:
        async with world.browser("", token=world.token("bob")) as bob:
            assert (await write(bob, to("user:ann", "main:secret")))["type"] == "done"
            assert "diary" not in str(await look(bob, 101, "seen"))
            assert "diary" not in str(await look(bob, 102, "mine"))
            anns = rt.space("pads", user="ann").piece(Pad, "main")
            # For ann, and in her window, it is her own.
            assert await anns.mine.pull() == "ann's diary"
            assert await anns.window.pull() == "ann's diary"
            assert (await bob.ask("send", "put", place=place("put", "main"), args={"value": "mine"}))["type"] == "done"
            assert await anns.secret.pull() == "ann's diary"
            assert await anns.seen.pull() == "mine"  # The link is gone: it stood where he may write.

    story(test, tmp_path)


def test_nobody_becomes_an_owner_by_a_handler_that_sets_what_it_is_told(tmp_path: Path) -> None:
    async def test(world: World, rt: Runtime) -> None:
        async with world.browser("", token=world.token("bob")) as bob:
            assert (await write(bob, to("space", ACCESS.id)))["type"] == "done"
            stolen = {"owners": ["bob"], "writers": [], "readers": []}
            await bob.ask("send", "put", place=place("put", "main"), args={"value": stolen})
            assert "cy" not in str(await look(bob, 101, "seen"))
        assert (await rt.cell("pads", ACCESS.id, headwater.Json).pull())["owners"] == ("cy",)

    story(test, tmp_path)


def test_a_link_leads_into_another_space_only_where_all_who_may_write_it_may_read(tmp_path: Path) -> None:
    async def test(world: World, rt: Runtime) -> None:
        pad: Any = rt.space("pads").piece(Pad, "main")
        async with world.browser("", token=world.token("bob")) as bob:
            assert (await write(bob, to("space", "safe:word", "private")))["type"] == "done"
            assert (await write(bob, to("space", "safe:word", "private"), member="target"))["type"] == "done"
            for number, member in enumerate(("seen", "far"), 101):
                assert "top secret" not in str(await look(bob, number, member))
                with pytest.raises(UpstreamFailedError, match="leads into private"):
                    await getattr(pad, member).pull()
            # Whoever opens it to them changes what is shown, with nothing else to do.
            rt.cell("private", ACCESS.id, headwater.Json).set({"owners": ("cy",), "readers": ("ann", "bob")})
            assert await pad.seen.pull() == await pad.far.pull() == "top secret"

    story(test, tmp_path)


def test_a_reader_is_told_nothing_of_a_space_by_a_link_in_an_argument(tmp_path: Path) -> None:
    async def test(world: World, rt: Runtime) -> None:
        rt.cell("private", ACCESS.id, headwater.Json).set({"owners": ("cy",), "readers": ("ann", "bob")})
        await rt.durable()
        told = {}
        for user in ("dan", "bob"):
            async with world.browser("", token=world.token(user)) as page:
                args = {"place": to("space", "safe:word", "private")}
                told[user] = str(await page.ask("send", "tell", place=place("tell", "main"), args=args))
        assert "top secret" not in told["dan"]
        assert "top secret" in told["bob"]

    story(test, tmp_path)


def test_where_nobody_has_rights_links_lead_everywhere() -> None:
    async def work() -> None:
        async with alone() as (rt, errors):
            safe = await rt.space("private").open(Safe, "safe", setup=fill)
            pad: Any = await rt.space("pads").open(Pad, "main")
            pad.any.set(link(safe.word))
            pad.target.set(link(safe.word))
            assert await pad.seen.pull() == await pad.far.pull() == "top secret"
            assert await pad.tell.send(link(safe.word)) == "top secret"
            assert errors == []

    play(work)


def test_a_program_s_own_transaction_follows_with_its_own_rights() -> None:
    async def work() -> None:
        async with alone() as (rt, _):
            pad: Any = await rt.space("pads", user="ann").open(Pad, "main")
            pad.secret.set("ann's diary")
            pad.any.set(link(pad.secret))
            assert await rt.space("pads").transact(lambda: pad.any.get()) == "ann's diary"
            assert await pad.any.pull() == "ann's diary"
            with pytest.raises(UpstreamFailedError, match="data of user:ann"):
                await pad.seen.pull()

    play(work)
