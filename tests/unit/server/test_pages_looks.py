"""Pages: every look is answered, whatever there is to see, and ends when the page looks away."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

import pytest
import websockets
from starlette.websockets import WebSocket
from websockets.asyncio.client import connect

import headwater
from headwater import Cell, Piece, cell, child, computed, each, given, handler, resource
from headwater.runtime.core.waiting import Tasks
from headwater.server.operation.limits import ServerLimits
from tests.unit.server.test_pages import Browser, World, run


class Row(headwater.Model):
    n: int = 0


class RowView(Piece, name="looks.RowView"):
    row: Cell[Row] = given()


class Sheet(Piece, name="looks.Sheet"):
    number: Cell[int] = cell(default=0)
    rows: Cell[Mapping[str, Row]] = cell(default={})
    tags: Cell[tuple[str, ...]] = cell(default=())

    @each(rows)
    def views(self, row: Cell[Row]) -> RowView:
        return RowView(row=row)

    @each(rows)
    def doubles(self, row: Cell[Row]) -> int:
        return row.get().n * 2

    @child
    def first(self) -> RowView | None:
        return RowView(row=self.rows.key("a")) if self.rows.key("a").exists() else None

    @computed
    def inverse(self) -> int:
        return 12 // self.number.get()

    @resource(number)
    async def fetched(self, number: int) -> int:
        if number > 10:
            raise LookupError("too much")
        return number + 100

    @handler
    def put(self, key: str, n: int) -> None:
        self.rows.key(key).set(Row(n=n))

    @handler
    def drop(self, key: str) -> None:
        self.rows.key(key).delete()


CLASSES = (Sheet, RowView)


def place(member: str, **rest: Any) -> dict[str, Any]:
    return {"space": "pads", "cls": "looks.Sheet", "name": "main", "member": member, **rest}


async def look(page: Browser, member: str, number: int = 100, **rest: Any) -> dict[str, Any]:
    await page.say(type="look", id=number, place=place(member, **rest))
    return await page.hear(id=number)


async def send(page: Browser, member: str, **args: Any) -> dict[str, Any]:
    return await page.ask("send", member, place={"cls": "looks.Sheet"}, args=args)


async def until(page: Browser, number: int, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    while True:
        heard = await page.hear(id=number)
        if holds(heard):
            return heard


def test_a_resource_is_shown_with_how_far_it_is(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        async with world.browser("ann") as ann:
            await ann.say(type="look", id=100, place=place("fetched"))
            ready = await until(ann, 100, lambda heard: heard["value"]["state"] == "ready")
            assert ready["value"] == {"state": "ready", "value": 100}
            await ann.ask("write", "number", place={"cls": "looks.Sheet"}, kind="set", value=11)
            failed = await until(ann, 100, lambda heard: heard["value"]["state"] == "failed")
            assert failed["value"] == {"state": "failed", "value": 100, "error": "LookupError: too much"}

    run(tmp_path, story, classes=CLASSES)


def test_an_each_is_shown_when_it_is_empty_and_when_it_makes_values(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        async with world.browser("ann") as ann:
            assert (await look(ann, "views"))["value"] == []
            assert (await look(ann, "doubles", 101))["value"] == []
            await send(ann, "put", key="a", n=4)
            shown = await until(ann, 100, lambda heard: len(heard["value"]) == 1)
            assert shown["value"][0]["key"] == "a"
            doubled = await until(ann, 101, lambda heard: len(heard["value"]) == 1)
            assert doubled["value"] == [{"key": "a", "value": 8}]
            await send(ann, "drop", key="a")
            assert (await until(ann, 100, lambda heard: not heard["value"]))["there"]

    run(tmp_path, story, classes=CLASSES)


def test_that_nothing_is_there_is_shown_too(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        async with world.browser("ann") as ann:
            assert not (await look(ann, "rows", path=["a"]))["there"]
            assert not (await look(ann, "first", 101))["there"]
            await send(ann, "put", key="a", n=4)
            assert (await until(ann, 100, lambda heard: heard["there"]))["value"] == {"n": 4}
            assert (await until(ann, 101, lambda heard: heard["there"]))["value"]["cls"] == "looks.RowView"
            await send(ann, "drop", key="a")
            assert (await until(ann, 100, lambda heard: not heard["there"]))["type"] == "shown"

    run(tmp_path, story, classes=CLASSES)


def test_what_cannot_be_computed_is_told_and_shown_once_it_can_be(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        async with world.browser("ann") as ann:
            told = await look(ann, "inverse")
            assert told["type"] == "failed"
            assert "inverse" in told["error"]
            await ann.ask("write", "number", place={"cls": "looks.Sheet"}, kind="set", value=3)
            assert (await until(ann, 100, lambda heard: heard["type"] == "shown"))["value"] == 4

    run(tmp_path, story, classes=CLASSES)


def test_a_page_that_looks_away_at_once_is_not_shown_anything_and_may_use_the_number_again(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        nodes = world.server.application().runtime.core.scheduler.registry
        async with world.browser("ann") as ann:
            await look(ann, "number")
            before = len(tuple(nodes))
            for _ in range(20):
                await ann.say(type="look", id=101, place=place("number"))
                await ann.say(type="look_away", id=101)
            await ann.say(type="look", id=102, place=place("number"))
            await ann.say(type="look", id=102, place=place("tags"))
            assert "there already" in (await ann.hear(type="failed", id=102))["error"]
            await ann.hear(type="shown", id=102)
            assert len(tuple(nodes)) == before + 1

    run(tmp_path, story, classes=CLASSES)


def test_a_look_counts_from_the_moment_it_is_asked_for(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        async with world.browser("ann") as ann:
            for number in range(10, 15):
                await ann.say(type="look", id=number, place=place("number"))
            kinds = [(await ann.hear(id=number))["type"] for number in range(10, 15)]
            assert sorted(kinds) == ["failed", "failed", "shown", "shown", "shown"]

    run(tmp_path, story, classes=CLASSES, limits=ServerLimits(page_looks=3))


@pytest.mark.parametrize("member", ["put", "views", "fetched", "first"])
def test_a_path_below_what_has_no_parts_is_answered(tmp_path: Path, member: str) -> None:
    async def story(world: World) -> None:
        async with world.browser("ann") as ann:
            assert "has no parts" in (await look(ann, member, path=["x"]))["error"]
            where = {"cls": "looks.Sheet", "path": ["x"]}
            assert "has no parts" in (await ann.ask("send", member, place=where, args={}))["error"]
            assert "has no parts" in (await ann.ask("write", member, place=where, kind="set", value=1))["error"]

    run(tmp_path, story, classes=CLASSES)


@pytest.mark.parametrize("message", [b"bytes", "[" * 5_000], ids=["bytes", "nested"])
def test_a_message_that_is_none_ends_the_connection_and_says_so(
    tmp_path: Path, message: str | bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    async def story(world: World) -> None:
        async with connect(f"ws://127.0.0.1:{world.server.address[1]}/v1/page") as socket:
            await socket.send(json.dumps({"type": "enter", "version": 1, "user": "ann"}))
            await socket.recv()
            await socket.send(message)
            told = json.loads(await socket.recv())
            assert (told["id"], "cannot be understood" in told["error"]) == (0, True)
            with pytest.raises(websockets.ConnectionClosed):
                await socket.recv()

    run(tmp_path, story, classes=CLASSES)
    assert "Traceback" not in capsys.readouterr().err


class Asked:
    """Counts the requests that the page of a user has under way, and those that were answered."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, user: str) -> None:
        self.most = self.answered = 0
        under_way = 0
        begin = Tasks.begin

        async def counted(work: Coroutine[Any, Any, object]) -> None:
            nonlocal under_way
            try:
                await work
            finally:
                under_way -= 1
                self.answered += 1

        def begun(tasks: Tasks, work: Coroutine[Any, Any, object], name: str) -> None:
            nonlocal under_way
            if name == f"page of {user!r}":
                under_way += 1
                self.most = max(self.most, under_way)
                work = counted(work)
            begin(tasks, work, name)

        monkeypatch.setattr(Tasks, "begin", begun)


def test_a_page_that_takes_no_answers_is_not_read_any_further(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch, "ann")
    waiting: list[int] = []
    slow: list[WebSocket] = []
    taken = 0
    send_text = WebSocket.send_text

    async def story(world: World) -> None:
        taking = asyncio.Event()

        async def held(socket: WebSocket, text: str) -> None:
            nonlocal taken
            if not slow:
                slow.append(socket)
            if socket is slow[0]:
                await taking.wait()
                waiting.append(asked.answered - taken)
                taken += 1
            await send_text(socket, text)

        async with world.browser("ann") as ann:
            monkeypatch.setattr(WebSocket, "send_text", held)
            for number in range(200):
                await ann.say(type="look", id=number, place=place("nothing"))
            async with world.browser("bob") as bob:
                for number in range(10):
                    assert (await look(bob, "number", number))["value"] == 0
            taking.set()
            for number in range(200):
                await ann.hear(type="failed", id=number)
        assert max(waiting) <= 5 + 8 + 1

    run(tmp_path, story, classes=CLASSES, limits=ServerLimits(page_answers=5, page_calls=8))


def test_what_a_page_asks_all_at_once_is_all_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after it was away: it looks at everything again, and says what had no answer."""
    asked = Asked(monkeypatch, "ann")

    async def story(world: World) -> None:
        async with world.browser("ann") as ann:
            for number in range(300):
                await ann.say(type="look", id=number, place=place("number"))
            for number in range(300):
                assert (await ann.hear(id=number))["value"] == 0
        assert asked.most == 8

    run(tmp_path, story, classes=CLASSES, limits=ServerLimits(page_calls=8))


def test_a_page_counts_as_a_connection(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        url = f"ws://127.0.0.1:{world.server.address[1]}/v1/page"
        async with world.browser("ann"):
            with pytest.raises(websockets.InvalidStatus) as refused:
                await connect(url)
            assert refused.value.response.status_code == 503
        async with world.browser("bob"):
            pass

    run(tmp_path, story, classes=CLASSES, limits=ServerLimits(connections=1))
