"""A frame that is made in the process of its engine is not validated, decoded or frozen again on its way there."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from pathlib import Path
from types import FrameType

import headwater
from headwater import Cell, Piece, cell, computed, handler


class Counted(Piece, name="trusted.Counted"):
    n: Cell[int] = cell(default=0)

    @computed
    def double(self) -> int:
        return self.n.get() * 2

    @handler
    def add(self, more: int) -> None:
        self.n.set(self.n.get() + more)


def test_embedded_frames_are_not_checked_again(tmp_path: Path) -> None:
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
    assert (calls["checked_commit"], calls["decode_frame"]) == (0, 0)
