"""Attacks by pages: somebody else's session, rights that were taken away, messages that nobody expects."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest
import websockets
from starlette.websockets import WebSocket, WebSocketDisconnect
from websockets.asyncio.client import connect
from websockets.typing import Subprotocol

import headwater
from headwater.engine.admission.access import ACCESS
from headwater.protocol.messages import Answer, Hello, Open, Problem, Query, decode_from_engine, encode
from headwater.runtime.channel.websocket import PATH
from headwater.server.application.page import OpenPage
from headwater.server.operation.limits import ServerLimits
from tests.unit.server.test_pages import Browser, World, place, run


async def shared(world: World, *writers: str) -> None:
    """Let these write beside the owner, and nobody else do anything."""
    runtime = world.server.application().runtime
    access = runtime.cell("pads", ACCESS.id, headwater.Json)
    await access.pull()
    access.set({"owners": ("ann",), "writers": writers, "readers": ()})
    await runtime.durable()


async def ends_with(page: Browser, why: str) -> None:
    """A page is told what was wrong, by number 0, and closed in good order."""
    assert why in (await page.hear(id=0))["error"]
    with pytest.raises(websockets.ConnectionClosed) as closed:
        await page.hear(type="nothing more")
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1008


async def raw(page: Browser, message: str | bytes) -> None:
    await page.socket.send(message)


def test_a_page_does_not_see_or_write_what_is_of_a_session_of_somebody_else(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await shared(world, "bob")
        ann_token, bob_token = world.token("ann"), world.token("bob")
        async with world.browser("", token=ann_token, session="s1") as ann:
            assert (await ann.ask("write", "cursor", kind="set", value=77))["type"] == "done"
            seen: list[Any] = []
            with suppress(websockets.ConnectionClosed):  # Being refused at the door is as good.
                async with world.browser("", token=bob_token, session="s1") as bob:
                    seen.append((await bob.ask("look", "cursor")).get("value"))
                    await bob.ask("write", "cursor", kind="set", value=5)
            assert 77 not in seen
            assert (await ann.ask("look", "cursor"))["value"] == 77

    run(tmp_path, story, with_keys=True)


def test_whoever_loses_the_right_to_read_is_shown_nothing_more(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await shared(world, "bob")
        async with (
            world.browser("", token=world.token("ann")) as ann,
            world.browser("", token=world.token("bob")) as bob,
        ):
            await bob.say(type="look", id=100, place=place("title"))
            await bob.hear(type="shown", id=100)
            await shared(world)
            assert (await ann.ask("write", "title", kind="set", value="secret"))["type"] == "done"
            heard: dict[str, Any] = {}
            with suppress(websockets.ConnectionClosed):
                heard = await bob.hear(id=100)
            assert heard.get("value") != "secret"

    run(tmp_path, story, with_keys=True)


def test_a_look_that_is_taken_back_at_once_is_over(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        async with world.browser("ann") as ann:
            for number in range(100, 105):
                await ann.say(type="look", id=number, place=place("title"))
                await ann.say(type="look_away", id=number)
            await ann.say(type="look", id=200, place=place("title"))
            await ann.hear(type="shown", id=200)
            await ann.ask("write", "title", kind="set", value="B")
            await ann.hear(type="shown", id=200, value="B")
            await ann.ask("write", "title", kind="set", value="C")
            await ann.hear(type="shown", id=200, value="C")
            assert not [each for each in ann.heard if each["id"] in range(100, 105) and each.get("value") == "B"]

    run(tmp_path, story)


@pytest.mark.parametrize(
    "message",
    [b"\x00\x01", '{"type":"write","value":' + "[" * 5_000 + "]" * 5_000 + "}"],
    ids=["bytes", "nested"],
)
def test_a_message_of_another_kind_ends_the_connection_with_a_word(tmp_path: Path, message: str | bytes) -> None:
    async def story(world: World) -> None:
        async with world.browser("ann") as ann:
            await raw(ann, message)
            await ends_with(ann, "cannot be understood")

    run(tmp_path, story)


@pytest.mark.parametrize("what", ["send", "look", "write"])
def test_a_path_on_a_handler_is_answered(tmp_path: Path, what: str) -> None:
    async def story(world: World) -> None:
        of_kind: dict[str, dict[str, Any]] = {"send": {"args": {}}, "look": {}, "write": {"kind": "set", "value": 1}}
        async with world.browser("ann") as ann, asyncio.timeout(10):
            answer = await ann.ask(what, "write", place={"path": ["x"]}, **of_kind[what])
            assert answer["type"] == "failed"

    run(tmp_path, story)


def test_a_look_at_what_is_not_there_says_so(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        async with world.browser("ann") as ann, asyncio.timeout(10):
            await ann.say(type="look", id=100, place=place("notes", path=["nobody"]))
            assert (await ann.hear(id=100)) == {"type": "shown", "id": 100, "there": False, "value": None}
            await ann.send("write", key="nobody", text="tea")
            assert json.dumps("tea") in json.dumps(await ann.hear(type="shown", id=100, there=True))

    run(tmp_path, story)


def test_a_replica_cannot_take_up_the_session_of_somebody_elses_page(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await shared(world, "bob")
        async with world.browser("", token=world.token("ann"), session="s1") as ann:
            assert (await ann.ask("write", "cursor", kind="set", value=77))["type"] == "done"
            await world.server.application().runtime.durable()
        key = world.server.application().session_of("ann", "s1")
        url = f"ws://127.0.0.1:{world.server.address[1]}{PATH}"
        async with connect(url, subprotocols=[Subprotocol("headwater.v1.msgpack")]) as socket, asyncio.timeout(20):
            for message in (
                Hello((1,), (), world.token("bob")),
                Open("pads", key, resume="", following="t1"),
                Query(1, f"session:{key}", "", None, "", 10),
            ):
                await socket.send(encode(message))
            with suppress(websockets.ConnectionClosed):
                while True:
                    heard = decode_from_engine(await socket.recv(decode=False))
                    assert not isinstance(heard, Answer), heard.documents
                    if isinstance(heard, Problem):
                        return

    run(tmp_path, story, with_keys=True)


class Gone:
    """A browser's socket that says some things, takes nothing, and is gone."""

    def __init__(self, *says: dict[str, Any]) -> None:
        self._says = [{"type": "websocket.receive", "text": json.dumps(each)} for each in says]

    async def accept(self) -> None:
        """It is there."""

    async def receive(self) -> dict[str, Any]:
        return self._says.pop(0) if self._says else {"type": "websocket.disconnect", "code": 1006}

    async def send_text(self, _: str) -> None:
        raise WebSocketDisconnect(1006)

    async def close(self, code: int, reason: str) -> None:
        """It is closed."""


def test_a_page_that_takes_nothing_and_goes_away_is_let_go(tmp_path: Path) -> None:
    looks = [{"type": "look", "id": 1, "place": place("title")}] * 9

    async def story(world: World) -> None:
        socket = Gone({"type": "enter", "version": 1, "user": "ann"}, *looks)
        async with asyncio.timeout(30):
            await OpenPage(world.server.application(), cast("WebSocket", socket)).run()

    run(tmp_path, story, limits=ServerLimits(page_answers=3))
