"""Ways in: opening a directory, connecting to a server, running a program."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

import headwater
from headwater import AuthoringError, Cell, Piece, cell, handler
from tests.scenario.pieces_kit import run, serving


class Note(Piece):
    text: Cell[str] = cell(default="")

    @handler
    def write(self, text: str) -> str:
        self.text.set(text)
        return text.upper()


def test_a_directory_can_be_entered_or_awaited(tmp_path: Path) -> None:
    async def work() -> None:
        async with headwater.open(tmp_path / "data") as rt:
            note = await rt.space("s").open(Note, "n")
            assert await note.write.send("a") == "A"
        opened = await headwater.open(tmp_path / "data")
        again = await opened.space("s").open(Note, "n")
        assert again.text.get() == "a"
        again.write.post("b")
        await opened.close()
        async with headwater.open(str(tmp_path / "data")) as rt:
            assert (await rt.space("s").open(Note, "n")).text.get() == "b"

    run(work)


def test_what_was_opened_is_not_opened_twice(tmp_path: Path) -> None:
    async def work() -> None:
        opening = headwater.open(tmp_path)
        rt = await opening
        with pytest.raises(AuthoringError, match=r"call open\(\) again"):
            await opening
        await rt.close()

    run(work)


def test_a_server_is_connected_to_by_any_form_of_its_address(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path) as where:
            async with headwater.connect(where, token="") as one:
                note = await one.space("s").open(Note, "n")
                assert await note.write.send("a") == "A"
            async with headwater.connect(where.replace("ws://", "http://"), token="") as two:
                assert (await two.space("s").open(Note, "n")).text.get() == "a"

    run(work)


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(AuthoringError, match=r"like wss://example\.org"):
        _ = headwater.connect("./data", token="")


def test_a_program_runs_to_its_end_with_or_without_a_loop(tmp_path: Path) -> None:
    async def main() -> str:
        async with headwater.open(tmp_path / "data") as rt:
            return await (await rt.space("s").open(Note, "n")).write.send("x")

    assert headwater.run(main) == "X"

    async def in_a_notebook() -> str:
        return headwater.run(main)

    assert asyncio.run(in_a_notebook()) == "X"

    async def wrong() -> None:
        raise KeyError("lost")

    async def wrong_in_a_notebook() -> None:
        headwater.run(wrong)

    with pytest.raises(KeyError, match="lost"):
        headwater.run(wrong)
    with pytest.raises(KeyError, match="lost"):
        asyncio.run(wrong_in_a_notebook())


def test_a_program_that_fails_is_told_once_and_one_that_was_called_is_told_what_to_write() -> None:
    async def main() -> None:
        raise LookupError("no tea")

    with pytest.raises(LookupError) as failed:
        headwater.run(main)
    assert failed.value.__context__ is None
    with pytest.raises(AuthoringError, match=r"write headwater\.run\(main\)"):
        headwater.run(main())  # type: ignore[arg-type]
    with pytest.raises(AuthoringError, match="write async def main"):
        headwater.run(lambda: 3)  # type: ignore[arg-type, return-value]


def test_interrupt_in_a_notebook_ends_the_program_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began = threading.Event()
    interrupts = [KeyboardInterrupt()]
    join = threading.Thread.join

    async def main() -> None:
        async with headwater.open(tmp_path / "data") as rt:
            await rt.space("s").open(Note, "n")
            began.set()
            await asyncio.get_running_loop().create_future()

    def interrupted(thread: threading.Thread, timeout: float | None = None) -> None:
        if thread.name == "headwater.run" and interrupts:  # The first join, whether the program has begun or not.
            assert began.wait(20)
            raise interrupts.pop()
        join(thread, timeout)

    async def notebook() -> None:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "join", interrupted)
            with pytest.raises(KeyboardInterrupt):
                headwater.run(main)
        async with headwater.open(tmp_path / "data"):  # Nobody has it any more.
            pass

    asyncio.run(notebook())
