"""A user without a right gets one answer, whatever a server has; and what it stores is for its own account alone."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from headwater.protocol.messages import Hello, Open, Opened, Problem
from headwater.server import DEFAULT_SERVER_LIMITS, Server, new_token
from tests.aid.serving import SPACE, page, place, serving
from tests.unit.server.test_budgets import question, replica

ABSENT = "nowhere"


def play(folder: Path, story: Callable[[Server], Awaitable[None]]) -> None:
    async def run() -> None:
        async with serving(folder, with_keys=True) as server:
            await story(server)

    asyncio.run(run())


@pytest.mark.parametrize(
    "asked",
    [
        {"what": what, "place": "Pad:main.title"}
        for what in ("log", "why", "graph", "nodes", "backlog", "reactions", "verify", "compact", "get", "set", "send")
    ]
    + [{"what": "branch", "value": "list"}, {"what": "get", "place": "space:x"}, {"what": "intents"}],
)
def test_commands_of_a_stranger_do_not_tell_whether_a_space_exists(tmp_path: Path, asked: dict[str, Any]) -> None:
    async def story(server: Server) -> None:
        bob = new_token(tmp_path, "bob")
        answers = [await question(server, bob, {**asked, "space": space}) for space in (SPACE, ABSENT)]
        status, there = answers[0]
        assert status == 403
        assert answers[1] == (403, {**there, "error": there["error"].replace(SPACE, ABSENT)})

    play(tmp_path, story)


def test_pages_of_a_stranger_do_not_tell_whether_a_space_exists(tmp_path: Path) -> None:
    async def story(server: Server) -> None:
        async with page(server, token=new_token(tmp_path, "bob")) as bob:
            for kind in (
                {"type": "look"},
                {"type": "send", "args": ["x"]},
                {"type": "write", "kind": "set", "value": 1},
            ):
                said = [
                    (await bob.ask(**kind, place=place("title", space=space)))["error"].replace(space, "SPACE")
                    for space in (SPACE, ABSENT)
                ]
                assert said[0] == said[1]

    play(tmp_path, story)


@pytest.mark.parametrize("branch", ["main", "b"])
def test_sessions_of_a_stranger_do_not_tell_whether_a_space_or_branch_exists(tmp_path: Path, branch: str) -> None:
    async def story(server: Server) -> None:
        server.call_in_space(SPACE, lambda engine: engine.fork("b"))
        bob = new_token(tmp_path, "bob")
        said = []
        for space in (SPACE, ABSENT):
            async with replica(server) as one:
                await one.say(Hello((1,), token=bob), Open(space, "s", "", "t", branch=branch))
                await one.hear()
                said.append(await one.hear())
        assert isinstance(said[0], Problem)
        assert said[0] == said[1]

    play(tmp_path, story)


def test_session_of_another_user_is_refused_like_a_wrong_token_for_an_own_one(tmp_path: Path) -> None:
    async def story(server: Server) -> None:
        access = {"owners": ["ann", "bob"]}
        ann, bob = new_token(tmp_path, "ann"), new_token(tmp_path, "bob")
        status, told = await question(
            server, ann, {"what": "set", "space": SPACE, "place": "space:$access", "value": access}
        )
        assert status == 200, told
        async with replica(server) as one, replica(server) as two:
            assert isinstance(await one.opened(SPACE, "of-ann", ann), Opened)
            assert isinstance(await two.opened(SPACE, "of-bob", bob), Opened)
        said = []
        for session in ("of-ann", "of-bob"):
            async with replica(server) as thief:
                await thief.say(Hello((1,), token=bob), Open(SPACE, session, "wrong", "t"))
                await thief.hear()
                said.append((await thief.hear()).message.replace(session, "SESSION"))
        assert said[0] == said[1]
        assert "ann" not in said[0]

    play(tmp_path, story)


def test_questions_of_a_stranger_open_no_space_for_good(tmp_path: Path) -> None:
    async def story(server: Server) -> None:
        bob = new_token(tmp_path, "bob")
        await question(
            server, new_token(tmp_path, "ann"), {"what": "set", "space": "other", "place": "space:x", "value": 1}
        )
        before = {each.name for each in server.application().runtime.core.spaces()}
        for space in (SPACE, ABSENT, "other"):
            await question(server, bob, {"what": "log", "space": space})
        assert {each.name for each in server.application().runtime.core.spaces()} == before
        assert ABSENT not in server.service.spaces.hosts()

    play(tmp_path, story)


def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    found: dict[str, int] = {}

    async def story(server: Server) -> None:
        async with page(server, token=new_token(folder, "ann")) as ann:
            await ann.send("rename", ["a"])
        found.update({each.name: stat.S_IMODE(each.stat().st_mode) for each in folder.iterdir() if each.is_file()})

    play(folder, story)
    assert f"{SPACE}.space" in found
    assert f"{SPACE}.space-wal" in found
    assert set(found.values()) == {0o600}


def test_messages_of_strangers_do_not_fill_the_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    most = 10 * DEFAULT_SERVER_LIMITS.refusals_logged

    async def story(server: Server) -> None:
        for number in range(3 * most):
            async with replica(server) as one:
                await one.say(Hello((1,), token=f"the secret {number}"))
                assert isinstance(await one.hear(), Problem)

    play(tmp_path, story)
    written = capsys.readouterr().err
    assert "secret" not in written
    assert written.count('"refused"') < 2 * most
