"""A data directory that is deleted or replaced while a process uses it: sends fail, and nothing is acknowledged."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import headwater
from headwater import Cell, MovedError, Piece, cell, handler
from tests.aid.serving import WITHIN_S, serving

Spoil = Callable[[Path], object]


class Shelf(Piece, name="aid.Shelf"):
    books: Cell[int] = cell(default=0)

    @handler
    def put(self) -> None:
        self.books.update(lambda books: books + 1)


def delete_directory(directory: Path) -> None:
    shutil.rmtree(directory)


def move_directory(directory: Path) -> None:
    directory.rename(directory.with_name("elsewhere"))


def replace_directory(directory: Path) -> None:
    """Put a copy where the directory was, as a backup that is restored too early."""
    shutil.copytree(directory, directory.with_name("backup"))
    directory.rename(directory.with_name("elsewhere"))
    directory.with_name("backup").rename(directory)


def delete_file(directory: Path) -> None:
    (directory / "shelves.space").unlink()


def replace_file(directory: Path) -> None:
    file = directory / "shelves.space"
    shutil.copy(file, directory / "backup")
    (directory / "backup").rename(file)


def delete_log(directory: Path) -> None:
    (directory / "shelves.space-wal").unlink()


SPOILS = [delete_log, delete_directory, move_directory, replace_directory, delete_file, replace_file]


@pytest.mark.parametrize("spoil", SPOILS)
def test_send_fails_after_the_data_directory_was_deleted_or_replaced(tmp_path: Path, spoil: Spoil) -> None:
    directory = tmp_path / "data"
    failed: list[str] = []

    async def main() -> None:
        async with headwater.open(directory) as runtime:
            shelf = await runtime.space("shelves", user="ann").open(Shelf, "one")
            await shelf.put.send()
            spoil(directory)
            for _ in range(2):
                try:
                    await shelf.put.send()
                except MovedError as error:
                    failed.append(str(error))

    with suppress(MovedError):  # Closing the runtime may say that what was sent is not durable.
        asyncio.run(asyncio.wait_for(main(), WITHIN_S))
    assert [text.count("moved, deleted or replaced") for text in failed] == [1, 1]


@pytest.mark.parametrize("spoil", [delete_directory, replace_directory])
def test_space_is_not_made_in_a_directory_that_was_deleted_or_replaced(tmp_path: Path, spoil: Spoil) -> None:
    directory = tmp_path / "data"
    failed: list[str] = []

    async def main() -> None:
        async with headwater.open(directory) as runtime:
            entered = await runtime.space("entered", user="ann").open(Shelf, "one")
            await entered.put.send()
            spoil(directory)
            try:
                later = await runtime.space("later", user="ann").open(Shelf, "one")
                await later.put.send()
            except MovedError as error:
                failed.append(str(error))

    with suppress(MovedError):  # Closing the runtime may say that what was sent is not durable.
        asyncio.run(asyncio.wait_for(main(), WITHIN_S))
    assert [text.count("moved, deleted or replaced") for text in failed] == [1]
    assert not (directory / "later.space").exists()


def test_send_over_a_connection_fails_after_the_data_directory_was_replaced(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    directory.mkdir()
    failed: list[str] = []

    async def main() -> None:
        async with serving(directory) as server, headwater.open(f"ws://127.0.0.1:{server.address[1]}") as runtime:
            shelf = await runtime.space("shelves", user="ann").open(Shelf, "one")
            await shelf.put.send()
            replace_directory(directory)
            try:
                await shelf.put.send()
            except MovedError as error:
                failed.append(str(error))

    with suppress(MovedError):  # Closing the runtime may say that what was sent is not durable.
        asyncio.run(main())
    assert [text.count("moved, deleted or replaced") for text in failed] == [1]
