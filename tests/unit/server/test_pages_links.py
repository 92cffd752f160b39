"""Pages: a link that is stored in a cell leads nobody to what is not for them, now or when it points elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater import Cell, Piece, cell
from headwater.cli.app import run as command
from headwater.data.address import Link
from headwater.engine.admission.access import ACCESS
from tests.unit.server.test_pages import Browser, World, run


class Pad(Piece, name="links.Pad"):
    board: Cell[headwater.Json] = cell(default={})
    shared: Cell[headwater.Json] = cell(default={"n": 1})
    secret: Cell[headwater.Json] = cell(default={"n": 0}, scope="user")


def place(member: str, *path: str) -> dict[str, Any]:
    return {"space": "pads", "cls": "links.Pad", "name": "main", "member": member, "path": path}


async def look(page: Browser, number: int, *path: str) -> dict[str, Any]:
    await page.say(type="look", id=number, place=place("board", *path))
    return await page.hear(id=number)


async def write(page: Browser, value: Any, *path: str) -> dict[str, Any]:
    return await page.ask("write", "board", place=place("board", *path), kind="set", value=value, key="")


def story(test: Callable[[World, Any], Any], folder: Path) -> None:
    async def work(world: World) -> None:
        rt = world.server.application().runtime
        roles = {"owners": ("cy",), "writers": ("ann", "bob"), "readers": ("dan",)}
        rt.cell("pads", ACCESS.id, headwater.Json).set(roles)
        rt.space("pads", user="ann").piece(Pad, "main").secret.set({"n": "ann's"})
        rt.cell("other", "x", headwater.Json).set({"n": "elsewhere"})
        pad: Any = rt.space("pads", user="").piece(Pad, "main")  # Links are values, too, whatever the types say.
        pad.shared.set({"n": 1})
        pad.board.set(
            {
                "shared": Link(None, "space", "main:shared"),
                "ann": Link(None, "user:ann", "main:secret"),
                "access": Link(None, "space", ACCESS.id),
                "other": Link("other", "space", "x"),
                "plain": {"n": 5},
            }
        )
        await rt.durable()
        await test(world, pad)

    run(folder, work, with_keys=True, classes=(Pad,))


def test_a_look_through_a_link_sees_what_is_shared_or_one_s_own(tmp_path: Path) -> None:
    async def test(world: World, pad: Any) -> None:
        async with world.browser("", token=world.token("ann")) as ann:
            assert (await look(ann, 1, "plain", "n"))["value"] == 5
            assert (await look(ann, 2, "shared", "n"))["value"] == 1
            assert (await look(ann, 3, "ann", "n"))["value"] == "ann's"
        for user in ("bob", "dan", "cy"):
            async with world.browser("", token=world.token(user)) as page:
                assert (await look(page, 1, "shared", "n"))["value"] == 1
                for number, way in enumerate(("ann", "access", "other"), 2):
                    heard = await look(page, number, way, "n" if way != "access" else "owners")
                    assert "may not see" in heard["error"], (user, way)

    story(test, tmp_path)


def test_a_link_that_comes_to_point_elsewhere_shows_nothing_of_it(tmp_path: Path) -> None:
    async def test(world: World, pad: Any) -> None:
        async with world.browser("", token=world.token("bob")) as bob:
            assert (await look(bob, 1, "shared", "n"))["value"] == 1
            pad.board.key("shared").set(Link(None, "user:ann", "main:secret"))
            assert "'bob' may not see" in (await bob.hear(id=1))["error"]

    story(test, tmp_path)


def test_nobody_writes_through_a_link_what_they_may_not(tmp_path: Path) -> None:
    async def test(world: World, pad: Any) -> None:
        rt = world.server.application().runtime
        async with world.browser("", token=world.token("bob")) as bob:
            assert (await write(bob, 2, "shared", "n"))["type"] == "done"
            assert "'bob' may not see" in (await write(bob, "HACKED", "ann", "n"))["error"]
            assert "'bob' may not see" in (await write(bob, ["bob"], "access", "owners"))["error"]
            assert "'bob' may not see" in (await write(bob, "HACKED", "other", "n"))["error"]
        assert (await pad.shared.pull())["n"] == 2
        assert (await rt.cell("pads", ACCESS.id, headwater.Json).pull())["owners"] == ("cy",)
        assert (await rt.cell("other", "x", headwater.Json).pull())["n"] == "elsewhere"

    story(test, tmp_path)


def test_nor_do_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    async def test(world: World, pad: Any) -> None:
        url = f"http://127.0.0.1:{world.server.address[1]}"
        monkeypatch.setenv("HEADWATER_TOKEN", world.token("bob"))
        for way in ("ann/n", "access/owners", "other/n"):
            words = ["set", url, "pads", f"main.board#/{way}", '"HACKED"']
            assert await asyncio.to_thread(command, words) == 1
            assert "'bob' may not see" in capsys.readouterr().err

    story(test, tmp_path)


def test_a_link_that_leads_nowhere_or_where_one_may_not_go_can_be_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def test(world: World, pad: Any) -> None:
        for name in ("round", "again"):
            pad.board.key(name).set(Link(None, "space", "main:board", (name,)))
        await world.server.application().runtime.durable()
        async with world.browser("", token=world.token("bob")) as bob:
            for number, way in enumerate(("round", "ann", "access", "other"), 101):
                assert (await write(bob, {"n": 4}, way))["type"] == "done", way
                assert (await look(bob, number, way, "n"))["value"] == 4
        monkeypatch.setenv("HEADWATER_TOKEN", world.token("cy"))
        url = f"http://127.0.0.1:{world.server.address[1]}"
        assert await asyncio.to_thread(command, ["set", url, "pads", "space:main:board#/again", "null"]) == 0
        assert await asyncio.to_thread(command, ["get", url, "pads", "main.board#/again"]) == 0
        assert capsys.readouterr().out.splitlines()[-1] == "null"
        rt = world.server.application().runtime
        assert (await rt.cell("pads", ACCESS.id, headwater.Json).pull())["owners"] == ("cy",)
        assert (await rt.cell("other", "x", headwater.Json).pull())["n"] == "elsewhere"

    story(test, tmp_path)
