"""A frame that is made in the process of its engine is not encoded and decoded on its way; its values are checked."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Literal

import pytest

import headwater
from headwater import Cell, LimitError, Piece, cell, computed, handler
from headwater.runtime import LocalDirectory, Runtime


class Counted(Piece, name="trusted.Counted"):
    n: Cell[int] = cell(default=0)

    @computed
    def double(self) -> int:
        return self.n.get() * 2

    @handler
    def add(self, more: int) -> None:
        self.n.set(self.n.get() + more)


def test_embedded_frames_are_not_decoded(tmp_path: Path) -> None:
    calls: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            calls[frame.f_code.co_qualname] += 1

    async def work() -> None:
        async with headwater.open(tmp_path) as rt:
            piece = await rt.space("s").open(Counted, "c")
            look = piece.double.sink(lambda _: None)
            await piece.add.send(1)
            await rt.durable()
            calls.clear()
            await piece.add.send(1)
            await rt.durable()
            look.close()

    threading.setprofile(count)  # The engine works on a thread of its own.
    sys.setprofile(count)
    try:
        headwater.run(work)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert calls["CommitGroup.judge_frame"] >= 1
    assert calls["decode_frame"] == 0


class Nested(Piece, name="trusted.Nested"):
    history: Cell[headwater.Json] = cell(default={})
    choice: Cell[Literal["a", "\ud800"]] = cell(default="a")
    n: Cell[int] = cell(default=0)


@pytest.mark.parametrize("content", ["depth", "text"])
def test_embedded_value_that_cannot_be_stored_is_refused(tmp_path: Path, content: str) -> None:
    """Each of these values passes the type of its cell. Other programs must be able to read the file afterwards."""

    async def write(data: LocalDirectory) -> None:
        refused = asyncio.Event()
        async with Runtime(data, close_s=0.01) as rt:
            rt.on_error(lambda _: refused.set())
            piece = await rt.space("s").open(Nested, "p")
            piece.n.set(1)
            await rt.durable()
            if content == "depth":
                for _ in range(70):
                    piece.history.update(lambda old: {"prev": old})
            else:
                piece.choice.set("\ud800")
            await asyncio.wait_for(refused.wait(), 30)

    async def work() -> None:
        async with LocalDirectory(tmp_path) as data:
            with pytest.raises(LimitError, match="without a verdict"):
                await write(data)
        async with headwater.open(tmp_path) as again:
            assert await again.space("s").piece(Nested, "p").n.pull() == 1

    headwater.run(work)
