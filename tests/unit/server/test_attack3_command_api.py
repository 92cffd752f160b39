"""Attacks on the desk: questions of strangers, and of web sites that somebody's browser has open."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Origin

from tests.scenario.desk_kit import ask
from tests.unit.server.test_pages import World, run

ELSEWHERE = "https://elsewhere.example"


def test_a_stranger_who_sends_something_opens_no_space_and_learns_nothing(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        token = world.token("eve")
        sent = {"what": "send", "space": "made", "place": "pages.Pad:x.peek", "value": {}}
        status, _ = await ask(world.server, sent, token=token)
        assert status == 403
        runtime = world.server.application().runtime
        assert [name for name in ("made", "pads") if runtime.channel(name) is not None] == ["pads"]
        status, said = await ask(world.server, {**sent, "space": "pads", "place": "main.nothing"}, token=token)
        assert (status, "title" in said) == (403, False)

    run(tmp_path, story, with_keys=True)


def test_a_web_site_cannot_write_where_nobody_has_to_prove_who_they_are(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        sets = {"what": "set", "space": "pads", "place": "main.title", "value": "x"}
        assert (await ask(world.server, sets))[0] == 200
        assert (await ask(world.server, sets, origin=ELSEWHERE))[0] == 403

    run(tmp_path, story)


def test_a_web_site_cannot_look_where_nobody_has_to_prove_who_they_are(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        url = f"ws://127.0.0.1:{world.server.address[1]}/v1/page"
        with suppress(InvalidStatus, ConnectionClosed):
            async with connect(url, origin=Origin(ELSEWHERE)) as socket, asyncio.timeout(20):
                await socket.send(json.dumps({"type": "enter", "version": 1, "user": "ann"}))
                said = json.loads(await socket.recv())
                assert said["type"] != "entered"

    run(tmp_path, story)


def test_a_question_that_is_nested_too_deeply_is_answered(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        nested = b"[" * 5_000 + b"]" * 5_000
        asked = b'{"what":"set","space":"pads","place":"main.title","value":' + nested + b"}"
        assert (await ask(world.server, asked))[0] == 400

    run(tmp_path, story)
