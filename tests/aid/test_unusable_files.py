"""A space whose file cannot be used says so: `open` raises the reason, and `verify` tells a full disk from damage."""

from __future__ import annotations

import asyncio
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

import headwater
from headwater import Cell, CorruptionError, NewerVersionError, NotASpaceError, Piece, cell, handler
from headwater.errors import StorageError
from tests.aid.serving import WITHIN_S, serving

Spoil = Callable[[Path], None]


class Book(Piece, name="aid.Book"):
    pages: Cell[int] = cell(default=0)

    @handler
    def write(self) -> None:
        self.pages.update(lambda pages: pages + 1)


async def write_one_page(directory: Path | str) -> None:
    async with headwater.open(directory) as runtime:
        book = await runtime.space("books", user="ann").open(Book, "one")
        await book.write.send()


def damage(file: Path) -> None:
    """Overwrite the beginning of the file."""
    with file.open("r+b") as opened:
        opened.write(b"no database at all")


def mark_as_newer(file: Path) -> None:
    """Give the file the schema version of a later Headwater."""
    connection = apsw.Connection(str(file))
    connection.execute("PRAGMA user_version=1000")
    connection.close()


def mark_as_unborn(file: Path) -> None:
    """Give the file a schema version that no space has."""
    connection = apsw.Connection(str(file))
    connection.execute("PRAGMA user_version=0")
    connection.close()


def drop_a_table(file: Path) -> None:
    connection = apsw.Connection(str(file))
    connection.execute("DROP TABLE meta")
    connection.close()


def replace_by_another_program_s(file: Path) -> None:
    file.unlink()
    connection = apsw.Connection(str(file))
    connection.execute("CREATE TABLE users(id)")
    connection.close()


def replace_by_a_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


UNUSABLE = [
    pytest.param(damage, CorruptionError, "damaged", id="damaged"),
    pytest.param(mark_as_newer, NewerVersionError, "schema version 1000", id="newer"),
    pytest.param(mark_as_unborn, CorruptionError, "schema version 0", id="no version"),
    pytest.param(drop_a_table, CorruptionError, "no such table: meta", id="lacks a table"),
    pytest.param(replace_by_another_program_s, NotASpaceError, "not a Headwater space", id="another program's"),
    pytest.param(replace_by_a_folder, NotASpaceError, "is a folder", id="folder"),
]


@pytest.mark.parametrize(("spoil", "error", "reason"), UNUSABLE)
def test_open_of_a_damaged_or_newer_file_raises_with_the_reason(
    tmp_path: Path, spoil: Spoil, error: type[StorageError], reason: str
) -> None:
    asyncio.run(write_one_page(tmp_path))
    spoil(tmp_path / "books.space")
    with pytest.raises(error, match=reason):
        asyncio.run(asyncio.wait_for(write_one_page(tmp_path), WITHIN_S))


def write_plainly(book: Book) -> None:
    book.pages.set(1)


def write_by_update(book: Book) -> None:
    book.pages.update(lambda pages: pages + 1)


@pytest.mark.parametrize("write", [write_plainly, write_by_update])
def test_settled_returns_after_a_plain_write_to_a_space_that_cannot_be_opened(
    tmp_path: Path, write: Callable[[Book], None]
) -> None:
    settled: list[str] = []

    async def work() -> None:
        async with headwater.open(tmp_path) as runtime:
            runtime.on_error(lambda _: None)
            write(runtime.space("books", user="ann").piece(Book, "one"))
            await asyncio.wait_for(runtime.settled(), WITHIN_S)
            settled.append("books")
            other = await runtime.space("others", user="ann").open(Book, "one")
            other.pages.set(2)
            await asyncio.wait_for(runtime.settled(), WITHIN_S)
            settled.append("others")
            assert await other.pages.pull() == 2
            await asyncio.wait_for(runtime.durable(), WITHIN_S)

    asyncio.run(write_one_page(tmp_path))
    damage(tmp_path / "books.space")
    with pytest.raises(CorruptionError, match="damaged"):
        asyncio.run(work())
    assert settled == ["books", "others"]


def test_watch_of_a_value_in_a_space_that_cannot_be_opened_raises_the_reason(tmp_path: Path) -> None:
    async def watch(runtime: headwater.Runtime) -> None:
        async for _ in runtime.space("books", user="ann").piece(Book, "one").pages.watch():
            break

    async def work() -> None:
        async with headwater.open(tmp_path) as runtime:
            runtime.on_error(lambda _: None)
            await asyncio.wait_for(watch(runtime), WITHIN_S)

    asyncio.run(write_one_page(tmp_path))
    damage(tmp_path / "books.space")
    with pytest.raises(CorruptionError, match="damaged"):
        asyncio.run(work())


@pytest.mark.parametrize(("spoil", "error", "reason"), UNUSABLE)
def test_open_over_a_connection_raises_with_the_reason_too(
    tmp_path: Path, spoil: Spoil, error: type[StorageError], reason: str
) -> None:
    async def visit() -> None:
        async with serving(tmp_path) as server:
            await write_one_page(f"ws://127.0.0.1:{server.address[1]}")

    asyncio.run(write_one_page(tmp_path))
    spoil(tmp_path / "books.space")
    with pytest.raises(error, match=reason):
        asyncio.run(visit())


def test_verify_on_a_full_disk_says_that_the_disk_is_full(tmp_path: Path) -> None:
    asyncio.run(write_one_page(tmp_path))

    def leave_no_room() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    command = [sys.executable, "-m", "headwater", "verify", str(tmp_path / "books.space")]
    told = subprocess.run(
        command, capture_output=True, text=True, check=False, preexec_fn=leave_no_room, timeout=WITHIN_S
    )
    assert "the disk is full" in told.stderr
    assert "damaged" not in told.stdout + told.stderr
    assert told.returncode == 2
