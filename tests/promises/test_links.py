"""`ctx.follow` takes the value of a link. Anything else is a mistake of the author, and the message says so."""

from __future__ import annotations

from typing import Any

import pytest

import headwater
from headwater import (
    AuthoringError,
    Cell,
    HandlerFailed,
    Link,
    Piece,
    Runtime,
    UpstreamFailedError,
    cell,
    computed,
    handler,
)


class Target(Piece, name="links.Target"):
    n: Cell[int] = cell(default=1)


class Desk(Piece, name="links.Desk"):
    last: Cell[Link[Target] | None] = cell(default=None)

    @computed
    def n(self) -> int:
        empty: Any = self.last.get()
        return int(self.ctx.follow(empty).n.get())

    @handler
    def read(self) -> int:
        handle: Any = self.last
        return int(self.ctx.follow(handle).n.get())


def test_follow_of_something_else_than_a_link_says_what_to_write() -> None:
    async def work() -> None:
        async with Runtime() as rt:
            rt.on_error(lambda _: None)
            desk = await rt.space("s").open(Desk, "d")
            with pytest.raises(UpstreamFailedError, match=r"ctx.follow\(None\): write the value"):
                await desk.n.pull()
            with pytest.raises(HandlerFailed, match=r"ctx.follow\(<Cell space:d:last>\): write the value"):
                await desk.read.send()
            anything: Any = "s/d"
            with pytest.raises(AuthoringError, match=r"ctx.follow\('s/d'\): write the value of a link"):
                desk.ctx.follow(anything)

    headwater.run(work)
