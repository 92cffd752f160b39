"""What nodes read of other spaces is asked there by `nodes`, `backlog` and `why`: none of them says clean unasked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater import Cell, Input, Piece, cell, computed, given
from headwater.cli.app import run as command
from headwater.cli.data.target import EmbeddedEngines
from headwater.engine.admission.access import Right
from headwater.errors import AccessError
from headwater.protocol.command_messages import CommandQuestion
from headwater.runtime.api.runtime import Runtime
from headwater.runtime.channel.backend import LocalDirectory
from headwater.server.commands.command_api import CommandApi


class Source(Piece, name="asked.Source"):
    x: Cell[int] = cell(default=1)
    aside: Cell[int] = cell(default=0)


class Reader(Piece, name="asked.Reader"):
    x: Input[int] = given()

    @computed
    def more(self) -> int:
        return self.x.get() + 1


Ask = Callable[..., str]


@pytest.fixture
def ask(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Ask:
    def call(what: str, *words: str) -> str:
        assert command([what, str(tmp_path), *words]) == 0
        return capsys.readouterr().out

    return call


@pytest.fixture(autouse=True)
def read(tmp_path: Path) -> None:
    """A node of space two has read a cell of space shop."""

    async def story() -> None:
        async with headwater.open(tmp_path) as rt:
            source = await rt.space("shop").open(Source, "a", setup=lambda made: made.x.set(3))
            reader = await rt.space("two").open(Reader(x=source.x), "b")
            assert await reader.more.pull() == 4

    asyncio.run(story())


def _write(folder: Path, name: str) -> None:
    async def story() -> None:
        async with headwater.open(folder) as rt:
            space = rt.space("shop")
            await space.transact(lambda: getattr(space.piece(Source, "a"), name).set(7))

    asyncio.run(story())


def test_the_space_that_was_read_says_that_it_holds(tmp_path: Path, ask: Ask) -> None:
    _write(tmp_path, "aside")
    assert " clean " in ask("nodes", "two")
    assert ask("backlog", "two") == "every node of two that is known is clean\n"
    assert "and still are, also in shop" in ask("why", "two", "b.more")


def test_and_that_it_was_written(tmp_path: Path, ask: Ask) -> None:
    _write(tmp_path, "x")
    nodes = ask("nodes", "two")
    assert "dirty" in nodes
    assert "shop/space:a:x at seq" in nodes
    backlog = ask("backlog", "two")
    assert "shop/space:a:x at seq" in backlog
    assert "1 node of 1 piece took" in backlog
    why = ask("why", "two", "b.more")
    assert "shop/space:a:x was written since, at seq" in why
    assert "still are" not in why


def test_nobody_says_clean_of_what_read_a_space_that_is_not_there(tmp_path: Path, ask: Ask) -> None:
    for file in tmp_path.glob("shop.*"):
        file.unlink()
    assert "unknown: read shop" in " ".join(ask("nodes", "two").split())
    backlog = ask("backlog", "two")
    assert "unknown: read shop" in backlog
    assert "clean\n" not in backlog
    assert "unknown: read shop, which could not be asked" in ask("why", "two", "b.more")


def test_a_space_is_asked_only_for_its_owners(tmp_path: Path) -> None:
    async def check(space: str, right: Right) -> None:
        if space == "shop":
            raise AccessError("'ann' may not own 'shop'")

    async def allowed(space: str, right: Right) -> None:
        """Everything is."""

    async def story() -> None:
        async with LocalDirectory(tmp_path) as data, Runtime(data) as rt:
            desk = CommandApi(rt, EmbeddedEngines(tmp_path, data))
            for checked, state, unasked in ((check, "unknown", ["shop"]), (allowed, "clean", [])):
                nodes: Any = await desk.answer(CommandQuestion("nodes", "two"), "ann", checked)
                assert [(each["state"], each["unasked"]) for each in nodes["nodes"]] == [(state, unasked)]
                backlog: Any = await desk.answer(CommandQuestion("backlog", "two"), "ann", checked)
                assert [each["unasked"] for each in backlog["pieces"]] == ([["shop"]] if unasked else [])
                why: Any = await desk.answer(CommandQuestion("why", "two", "space:b:more"), "ann", checked)
                assert (why["last_run"]["elsewhere"], why["last_run"]["unasked"]) == (["shop"], unasked)

    asyncio.run(story())
