"""An application run with `--owner` writes only where that user may; with keys, only that user founds spaces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater import Cell, Piece, Policy, Runtime, Topic, cell, handler, reaction, topic
from headwater.cli.app import run
from headwater.errors import HeadwaterError, RuleRefusedError
from headwater.server import Server, new_key, new_token

DELIVERED: list[str] = []


class Note(Piece):
    text: Cell[str] = cell(default="")
    written: Topic[str] = topic()

    @handler
    def write(self, text: str) -> None:
        self.text.set(text)
        self.written.emit(text)

    @reaction(on=written)
    async def deliver(self, text: str) -> None:
        DELIVERED.append(text)


def story(work: Callable[[], Awaitable[None]]) -> None:
    """Run `work` on an event loop of its own. A hang is a failure."""

    async def bounded() -> None:
        async with asyncio.timeout(60):
            await work()

    asyncio.run(bounded())


@asynccontextmanager
async def serving(folder: Path, **options: Any) -> AsyncIterator[Server]:
    server = Server(folder, port=0, **options)
    task = asyncio.get_running_loop().create_task(server.run_until_stopped())
    try:
        while not server.started:
            await asyncio.sleep(0)
        yield server
    finally:
        server.stop()
        await task


def client(server: Server, folder: Path, user: str) -> AbstractAsyncContextManager[Runtime]:
    """A runtime of a user that connects with a token."""
    return headwater.connect(
        f"ws://127.0.0.1:{server.address[1]}", token=new_token(folder, user), policy=Policy(connect_ms=1)
    )


async def write(rt: Runtime, user: str, space: str, text: str) -> None:
    await (await rt.space(space, user=user).open(Note, "n")).write.send(text)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory with keys."""
    new_key(tmp_path)
    return tmp_path


def test_application_run_with_an_owner_refuses_to_write_to_a_space_that_another_user_founded(folder: Path) -> None:
    async def work() -> None:
        DELIVERED.clear()
        async with serving(folder, owner="ann", classes=(Note,), anyone_founds=True) as server:
            app = server.application().runtime
            async with client(server, folder, "mallory") as mallory:
                await write(mallory, "mallory", "team", "come in")
                note = app.space("team").piece(Note, "n")
                assert await note.text.pull() == "come in", "it still may read"
                with pytest.raises(RuleRefusedError, match=r"runs for 'ann' .*it belongs to 'mallory'"):
                    await note.write.send("secret")
                with pytest.raises(RuleRefusedError, match=r"runs for 'ann' .*it belongs to 'mallory'"):
                    await app.space("team").open(Note, "other")
                await write(mallory, "mallory", "team", "mine")
                assert await note.text.pull() == "mine"
            own = await app.space("hall").open(Note, "n")
            await own.write.send("hello")
            await app.reactions.drained(space="hall")
            assert DELIVERED == ["hello"], "records of another user's space are not delivered"

    story(work)


def test_application_writes_to_a_space_whose_owners_let_its_user_write(folder: Path) -> None:
    async def work() -> None:
        async with serving(folder, owner="bob", anyone_founds=True) as server, client(server, folder, "bob") as bob:
            await write(bob, "bob", "team", "come in")
        access = '{"owners": ["bob"], "writers": ["ann"], "readers": []}'
        assert (
            await asyncio.to_thread(run, ["set", str(folder), "team", "space:$access", access, "--app", __file__]) == 0
        )
        async with serving(folder, owner="ann", classes=(Note,)) as server:
            note = await server.application().runtime.space("team").open(Note, "n")
            await note.write.send("thanks")
            assert await note.text.pull() == "thanks"

    story(work)


def test_owner_of_a_space_lets_the_application_write_by_a_command_to_it(folder: Path) -> None:
    """What the refusal advises can be done while the application runs; nothing else is written for that user."""

    async def work() -> None:
        async with serving(folder, owner="ann", classes=(Note,), anyone_founds=True) as server:
            note = server.application().runtime.space("team").piece(Note, "n")

            async def command(user: str, place: str, value: str) -> int:
                url, token = f"http://127.0.0.1:{server.address[1]}", new_token(folder, user)
                return await asyncio.to_thread(run, ["set", url, "team", place, value, "--token", token])

            async with client(server, folder, "mallory") as mallory:
                await write(mallory, "mallory", "team", "come in")
            access = '{"owners": ["mallory"], "writers": ["ann"], "readers": []}'
            assert await command("ann", "space:$access", access) != 0
            assert await command("mallory", "n.text", '"changed"') != 0
            assert await note.text.pull() == "come in"
            assert await command("mallory", "space:$access", access) == 0
            await note.write.send("thanks")
            assert await note.text.pull() == "thanks"

    story(work)


def test_founding_by_any_token_holder_is_off_where_there_are_keys(folder: Path) -> None:
    async def work() -> None:
        async with serving(folder, owner="ann") as server:
            async with client(server, folder, "mallory") as mallory:
                with pytest.raises(HeadwaterError, match=r"'mallory' may not .*--anyone-founds"):
                    await write(mallory, "mallory", "team", "mine")
            async with client(server, folder, "ann") as ann:
                await write(ann, "ann", "team", "ours")
        assert [each.name for each in folder.glob("*.space")] == ["team.space"]

    story(work)


def test_space_without_an_owner_is_closed_to_token_holders(folder: Path) -> None:
    """A program without a server made it, so that it has no access document."""

    async def work() -> None:
        async with headwater.open(folder) as rt:
            await (await rt.space("team").open(Note, "n")).write.send("private")
        async with serving(folder, owner="ann") as server:
            async with client(server, folder, "mallory") as mallory:
                with pytest.raises(HeadwaterError, match="'mallory' may not"):
                    await mallory.space("team", user="mallory").piece(Note, "n").text.pull()
            async with client(server, folder, "ann") as ann:
                assert await ann.space("team", user="ann").piece(Note, "n").text.pull() == "private"

    story(work)


def test_founding_by_any_token_holder_is_a_setting(folder: Path) -> None:
    async def work() -> None:
        async with serving(folder, anyone_founds=True) as server, client(server, folder, "mallory") as mallory:
            await write(mallory, "mallory", "team", "mine")

    story(work)


def test_commands_that_serve_have_the_setting(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("run", "serve"):
        assert run([command, "--help"]) == 0
        told = capsys.readouterr().out
        assert "--anyone-founds" in told
        assert "--owner" in told
