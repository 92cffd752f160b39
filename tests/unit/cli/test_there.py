"""Whoever names what is not there is told what is; what cannot start leaves nothing behind."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

import headwater
from headwater import Cell, Piece, cell, computed
from headwater.cli.app import run as command
from headwater.cli.data.target import EmbeddedEngines
from headwater.engine.admission.access import Right
from headwater.engine.directory import Directory
from headwater.errors import AbsentError, DirectoryInUseError, StorageError
from headwater.protocol.command_messages import CommandQuestion
from headwater.runtime.api.runtime import Runtime
from headwater.runtime.channel.backend import LocalDirectory
from headwater.server.commands.command_api import CommandApi
from headwater.server.server import Server


class List(Piece, name="there.List"):
    items: Cell[tuple[str, ...]] = cell(default=())
    note: Cell[str] = cell(default="")

    @computed
    def left(self) -> int:
        return len(self.items.get())


@pytest.fixture
def data(tmp_path: Path) -> Path:
    async def story() -> None:
        async with headwater.open(tmp_path / "data") as rt:
            for name in ("main", "ann"):
                made = await rt.space("groceries").open(List, name)
                await rt.space("groceries").transact(lambda made=made: made.note.set("tea"))  # type: ignore[misc]
                await made.left.pull()

    asyncio.run(story())
    return tmp_path / "data"


@pytest.mark.parametrize("what", ["get", "why"])
def test_a_member_that_is_not_there_is_told_with_those_that_are(
    data: Path, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    assert command([what, str(data), "groceries", "main.lef"]) == 1
    told = capsys.readouterr().err
    assert "It keeps left, note; a cell that still has its default, and a computed that never ran, are known" in told
    assert "are known to the application only: --app" in told
    assert command([what, str(data), "groceries", "mian.left"]) == 1
    assert "Pieces there: main, ann." in capsys.readouterr().err
    assert command([what, str(data), "groceries", "space:none:x"]) == 1
    assert "there:" not in capsys.readouterr().err, "an address is not guessed at"


def test_a_process_that_has_the_directory_tells_which_pieces_there_are(data: Path) -> None:
    async def allowed(space: str, right: Right) -> None:
        """Everything is."""

    async def story() -> None:
        async with LocalDirectory(data) as backend, Runtime(backend) as rt:
            desk = CommandApi(rt, EmbeddedEngines(data, backend))
            with pytest.raises(AbsentError, match=r"has no piece 'an'\. Pieces there: ann, main\. To make one"):
                await desk.answer(CommandQuestion("get", "groceries", "an.left"), "ann", allowed)

    asyncio.run(story())


def test_a_server_whose_port_is_taken_makes_no_directory(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(StorageError, match="cannot listen on"):
            Server(tmp_path / "data", port=port, insecure_local=True)
        assert not (tmp_path / "data").exists()
        with Directory(tmp_path / "data"), pytest.raises(DirectoryInUseError):
            Server(tmp_path / "data", port=port, insecure_local=True)
    with Directory(tmp_path / "data"), pytest.raises(DirectoryInUseError):
        Server(tmp_path / "data", port=port, insecure_local=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", port))  # Who could not have the directory does not keep the port.
