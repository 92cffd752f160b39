"""Pages: what is one user's or one window's is nobody else's, and a right that is gone is gone at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import websockets
from websockets.asyncio.client import connect

import headwater
from headwater import Cell, Piece, cell, given, handler
from headwater.data.address import DocKey
from headwater.engine.admission.access import ACCESS
from tests.unit.server.test_pages import Browser, World, run


class Desk(Piece, name="rights.Desk"):
    count: Cell[int] = cell(default=0)
    title: Cell[str] = cell(default="")
    tags: Cell[tuple[str, ...]] = cell(default=())
    chosen: Cell[str] = cell(default="", scope="user")
    search: Cell[str] = cell(default="", scope="session")

    @handler
    def grow(self) -> None:
        self.count.increment()


class Given(Piece, name="rights.Given"):
    chosen: Cell[str] = given()


CLASSES = (Desk, Given)


def place(member: str, **rest: Any) -> dict[str, Any]:
    return {"space": "pads", "cls": "rights.Desk", "name": "main", "member": member, **rest}


async def look(page: Browser, member: str, number: int = 100, **rest: Any) -> dict[str, Any]:
    await page.say(type="look", id=number, place=place(member, **rest))
    return await page.hear(id=number)


async def write(page: Browser, member: str, kind: str, value: Any, key: str = "", **rest: Any) -> dict[str, Any]:
    return await page.ask("write", member, place=place(member, **rest), kind=kind, value=value, key=key)


async def allow(world: World, **roles: list[str]) -> None:
    rt = world.server.application().runtime
    rt.cell("pads", ACCESS.id, headwater.Json).set({role: tuple(names) for role, names in roles.items()})
    await rt.durable()


def test_a_cell_of_one_user_is_nobody_else_s_through_a_piece_that_was_given_it(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        rt = world.server.application().runtime
        await allow(world, owners=["cy"], writers=["ann", "dan"], readers=["bob"])
        desk = rt.space("pads", user="ann").piece(Desk, "main")
        desk.chosen.set("ann's")
        await rt.space("pads", user="ann").open(Given(chosen=desk.chosen), "g")
        where: dict[str, Any] = {"cls": "rights.Given", "name": "g"}
        for user in ("bob", "dan"):
            async with world.browser("", token=world.token(user)) as page:
                assert "may not" in (await look(page, "chosen", **where))["error"]
                assert "may not" in (await write(page, "chosen", "set", "HACKED", **where))["error"]
        async with world.browser("", token=world.token("ann")) as ann:
            assert (await look(ann, "chosen", **where))["value"] == "ann's"
            assert (await write(ann, "chosen", "set", "mine", **where))["type"] == "done"

    run(tmp_path, story, with_keys=True, classes=CLASSES)


def test_who_loses_the_right_to_see_is_shown_nothing_any_more(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await allow(world, owners=["ann"], readers=["bob", "cy"])
        async with (
            world.browser("", token=world.token("ann")) as ann,
            world.browser("", token=world.token("bob")) as bob,
            world.browser("", token=world.token("cy")) as cy,
        ):
            for page in (ann, bob, cy):
                assert (await look(page, "count"))["value"] == 0
            await allow(world, owners=["ann"], readers=["cy"])
            assert "any more" in (await bob.hear(id=100))["error"]
            assert (await ann.ask("send", "grow", place=place("grow"), args={}))["type"] == "done"
            for page in (ann, cy):
                assert (await page.hear(id=100))["value"] == 1
            assert "may not" in (await look(bob, "count", 101))["error"]
            assert not [heard for heard in bob.heard if heard["type"] == "shown"]

    run(tmp_path, story, with_keys=True, classes=CLASSES)


def test_the_session_of_a_window_is_its_user_s_alone(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        async with world.browser("ann", session="s1") as ann:
            await write(ann, "search", "set", "secret")
        async with world.browser("bob", session="s1") as bob:
            assert (await look(bob, "search"))["value"] == ""
        known = world.server.application().session_of("ann", "s1")
        async with world.browser("bob", session=known) as bob:  # nor by the name that the log and others are told
            assert (await look(bob, "search"))["value"] == ""
        async with world.browser("ann", session="s1") as again:
            assert (await look(again, "search"))["value"] == "secret"

    run(tmp_path, story, classes=CLASSES)


def test_page_ends_with_its_token(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        address = f"ws://127.0.0.1:{world.server.address[1]}/v1/page"
        for ttl_s in (1, 4, 16):  # On a busy machine, a token may be over before the page has entered.
            async with connect(address) as socket:
                await socket.send(json.dumps({"type": "enter", "version": 1, "token": world.token("ann", ttl_s=ttl_s)}))
                if json.loads(await socket.recv())["type"] == "entered":
                    assert "your token is over" in json.loads(await socket.recv())["error"]
                    with pytest.raises(websockets.ConnectionClosed):
                        await socket.recv()
                    return
        pytest.fail("no page has entered within 16 s")

    run(tmp_path, story, with_keys=True, classes=CLASSES)


def test_a_write_that_comes_again_under_its_key_is_done_once(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        async with world.browser("ann", session="s1") as ann:
            assert (await write(ann, "count", "increment", 1, key="k1"))["type"] == "done"
            assert (await write(ann, "tags", "push", "x", key="k2"))["type"] == "done"
        async with world.browser("ann", session="s1") as again:  # whose answers were lost
            assert (await write(again, "count", "increment", 1, key="k1"))["type"] == "done"
            assert (await write(again, "tags", "push", "x", key="k2"))["type"] == "done"
            assert (await write(again, "count", "increment", 1, key="k3"))["type"] == "done"
            assert (await look(again, "count", 100))["value"] == 2
            assert (await look(again, "tags", 101))["value"] == ["x"]
        async with world.browser("ann", session="s2") as other:  # another window's keys are others
            assert (await write(other, "count", "increment", 1, key="k1"))["type"] == "done"
            assert (await look(other, "count", 100))["value"] == 3

    run(tmp_path, story, classes=CLASSES)


def test_what_is_done_is_durable_and_what_is_typed_lands_in_order(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        host = world.server.service.spaces.host_of("pads")
        tags = DocKey("space", "main:tags")
        async with world.browser("ann") as ann:
            for number in range(50):
                await ann.say(type="write", id=number + 1_000, place=place("tags"), kind="push", value=str(number))
            for number in range(50):
                assert (await ann.hear(id=number + 1_000))["type"] == "done"
                stored: Any = await asyncio.to_thread(host.call, lambda engine, _: engine.read(tags).value)
                assert str(number) in stored
            assert (await look(ann, "tags"))["value"] == [str(number) for number in range(50)]

    run(tmp_path, story, classes=CLASSES)


def test_what_was_said_before_a_page_goes_away_is_still_written(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        async with world.browser("ann") as ann:
            for number in range(20):
                await ann.say(type="write", id=number + 1, place=place("count"), kind="increment", value=1)
        desk = world.server.application().runtime.space("pads").piece(Desk, "main")
        async for count in desk.count.watch():
            if count == 20:
                break

    run(tmp_path, story, classes=CLASSES)


class Mirror:
    """What a page shows of one cell, by what it does itself and by what it is told, like the script of a browser."""

    def __init__(self, page: Browser, group: str | None) -> None:
        self.page = page
        self.group = group
        self.value: Any = None
        self.echoes: list[tuple[int, str, Any, bool]] = []  # number, kind, argument, whether it is made
        self.most = 0  # numbers of messages
        self.unanswered: set[int] = set()

    @property
    def shown(self) -> Any:
        value = self.value
        for _, kind, argument, _ in self.echoes:
            value = argument if kind == "set" else value + argument
        return value

    async def write(self, member: str, kind: str, argument: Any) -> None:
        self.most += 1
        number = 1_000 + self.most
        self.echoes.append((number, kind, argument, False))
        self.unanswered.add(number)
        said = {"kind": kind, "value": argument, "group": self.group, "key": f"{id(self)} {number}"}
        await self.page.say(type="write", id=number, place=place(member), **said)

    def hear(self, heard: dict[str, Any]) -> None:
        number = heard["id"]
        if heard["type"] == "shown":
            self.value = heard["value"]
            self.echoes = [each for each in self.echoes if not each[3]]
        elif heard["type"] == "made":
            for at, (known, kind, argument, _) in enumerate(self.echoes):
                if known == number and self.group is None:
                    self.echoes[at] = (known, kind, argument, True)
                elif known == number:
                    self.value = argument if kind == "set" else self.value + argument
                    del self.echoes[at]
                    break
        elif heard["type"] == "done":
            self.unanswered.discard(number)
        else:
            raise AssertionError(heard)


@pytest.mark.parametrize("group", [None, "own"])
@pytest.mark.parametrize(("member", "kind"), [("count", "increment"), ("title", "set")])
def test_two_pages_that_write_at_once_show_what_the_space_has(
    tmp_path: Path, group: str | None, member: str, kind: str
) -> None:
    async def story(world: World) -> None:
        handle = getattr(world.server.application().runtime.space("pads").piece(Desk, "main"), member)
        async with world.browser("ann") as ann, world.browser("bob") as bob:
            mirrors = [Mirror(ann, group and "g1"), Mirror(bob, group and "g2")]
            for mirror in mirrors:
                await mirror.page.say(type="look", id=1, place=place(member), group=mirror.group)
                mirror.hear(await mirror.page.hear(type="shown"))
            for number in range(40):
                for who, mirror in enumerate(mirrors):
                    await mirror.write(member, kind, 1 if kind == "increment" else f"{who} {number}")
                    if number % 3 == who:
                        await listen(mirror, lambda mirror=mirror: not mirror.unanswered)  # type: ignore[misc]
                        assert kind == "set" or mirror.shown <= 80
            for mirror in mirrors:
                await listen(mirror, lambda mirror=mirror: not mirror.unanswered)  # type: ignore[misc]
            last = await handle.pull()
            for mirror in mirrors:
                await listen(mirror, lambda mirror=mirror: mirror.shown == last)  # type: ignore[misc]

    async def listen(mirror: Mirror, holds: Callable[[], bool]) -> None:
        while not holds():
            async with asyncio.timeout(20):
                mirror.hear(json.loads(await mirror.page.socket.recv()))

    run(tmp_path, story, classes=CLASSES)
