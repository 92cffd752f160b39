"""`space.open` waits for its own piece only. Every wait ends when the runtime closes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater import Cell, Piece, Runtime, Topic, cell, computed, each, effect, given, handler, reaction, topic
from headwater.errors import LimitError, SessionExpiredError


class Busy(Piece, name="waits.Busy"):
    """A piece that never comes to rest: its effect asks for its own next run."""

    turn: Cell[int] = cell(default=0)

    @effect
    def go_round(self) -> None:
        self.turn.get()

    @handler
    def turn_again(self) -> None:
        self.turn.increment(1)
        self.turn_again.post()


class Row(Piece, name="waits.Row"):
    number: Cell[int] = given()

    @computed
    def double(self) -> int:
        return self.number.get() * 2

    @effect
    def show(self) -> None:
        shown.append(self.double.get())


class Calm(Piece, name="waits.Calm"):
    numbers: Cell[Mapping[str, int]] = cell(default={"a": 1, "b": 2})

    @each(numbers)
    def rows(self, number: Cell[int]) -> Row:
        return Row(number=number)


shown: list[int] = []


def test_open_does_not_wait_for_other_pieces() -> None:
    """Its own rows are there, and their effects have run."""

    async def work() -> None:
        rt = Runtime(close_s=0.01)
        busy = await rt.space("s").open(Busy, "busy")
        busy.turn_again.post()
        await rt.until(lambda: busy.turn.get() > 3)
        shown.clear()
        async with asyncio.timeout(20):
            calm = await rt.space("s").open(Calm, "calm")
        assert sorted(shown) == [2, 4]
        assert sorted(row.double.get() for row in calm.rows.get().values()) == [2, 4]
        assert busy.turn.get() > 3
        with pytest.raises(headwater.errors.HeadwaterError):
            await rt.close()  # There is no end of the work of the other piece.

    headwater.run(work)


class Said(Piece, name="waits.Said"):
    text: Cell[str] = cell(default="")
    said: Topic[str] = topic()

    @computed
    def loud(self) -> str:
        return self.text.get().upper()

    @reaction(on=said)
    async def hear(self, text: str) -> None:
        """Nothing is done."""


async def follow(values: AsyncIterator[Any]) -> None:
    async for _ in values:
        pass


def test_every_wait_ends_when_the_runtime_closes(tmp_path: Any) -> None:
    async def work() -> None:
        rt = await headwater.open(tmp_path)
        space = rt.space("s")
        piece = await space.open(Said, "p")
        waits: dict[str, Coroutine[Any, Any, Any]] = {
            "drained": rt.reactions.drained(space="s", through=1_000),
            "until": rt.until(lambda: False),
            "watch": follow(piece.loud.watch()),
            "watch of an absent value": follow(space.cell("absent", str).watch()),
        }
        tasks = {name: asyncio.ensure_future(wait) for name, wait in waits.items()}
        await rt.settled()
        await rt.until(lambda: True)
        assert not any(task.done() for task in tasks.values())
        await rt.close()
        async with asyncio.timeout(20):
            for task in tasks.values():
                with pytest.raises(SessionExpiredError, match="closed"):
                    await task

    headwater.run(work)


def test_close_s_of_open_and_connect_bounds_closing(tmp_path: Path) -> None:
    """The guide and the error name `close_s=`: the two functions that an application calls accept it."""

    class Unreachable(Piece, name="waits.Unreachable"):
        n: Cell[int] = cell(default=0)

        @handler
        def up(self) -> None:
            self.n.increment(1)

    async def work() -> None:
        async with headwater.open(tmp_path, close_s=3) as rt:
            await rt.space("s").open(Calm, "calm")
        rt = await headwater.connect("ws://127.0.0.1:9", close_s=0.05)
        rt.space("s").piece(Unreachable, "p").up.post()
        with pytest.raises(LimitError, match=r"closing waited 0\.05 s"):
            await rt.close()

    headwater.run(work)


def test_transact_that_waits_at_closing_is_told_that_the_runtime_was_closed(tmp_path: Path) -> None:
    class Slow(Piece, name="waits.Slow"):
        n: Cell[int] = cell(default=0)

        @computed(throttle_ms=60_000)
        def value(self) -> int:
            return self.n.get()

    async def work() -> None:
        rt = await headwater.open(tmp_path, close_s=0.2)
        space = rt.space("s")
        slow = await space.open(Slow, "p")
        await slow.value.pull()
        slow.n.set(5)
        called: list[None] = []

        def read() -> int:
            called.append(None)
            return slow.value.get()

        waiting = asyncio.ensure_future(space.transact(read))
        await rt.until(lambda: bool(called))  # It found a value that a delay holds back, and waits for it.
        assert not waiting.done()
        await asyncio.gather(rt.close(), return_exceptions=True)
        with pytest.raises(SessionExpiredError, match="this runtime was closed"):
            await asyncio.wait_for(waiting, 30)

    headwater.run(work)


def test_runtime_that_is_closed_while_a_server_does_not_answer_leaves_no_error_behind() -> None:
    async def work() -> None:
        problems: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
        arrived = asyncio.Event()

        async def never_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            arrived.set()
            await reader.read()
            writer.close()

        async with await asyncio.start_server(never_answer, "127.0.0.1", 0) as server:
            host, port = server.sockets[0].getsockname()
            rt = await headwater.connect(f"ws://{host}:{port}", close_s=0.05)
            rt.space("s").piece(Calm, "c").numbers.sink(print)
            await arrived.wait()
            await rt.close()
            await asyncio.sleep(0.01)
        assert problems == []

    asyncio.run(asyncio.wait_for(work(), 20))
