"""The same event, sent twice under an id of its sender's, is handled once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import headwater
from headwater import Cell, Piece, Refused, Runtime, cell, handler
from headwater.runtime import LocalDirectory


class Till(Piece, name="receipts.Till"):
    taken: Cell[tuple[int, ...]] = cell(default=())
    is_open: Cell[bool] = cell(default=True)

    @handler
    def take(self, cents: int) -> str:
        if not self.is_open.get():
            raise Refused("closed")
        self.taken.push(cents)
        return self.ctx.new_id()

    @handler
    def give(self, cents: int) -> None:
        self.taken.push(-cents)


def test_a_second_sending_gets_the_first_ones_result(tmp_path: Path) -> None:
    async def play() -> None:
        async with headwater.open(tmp_path) as rt:
            till = await rt.space("shop", user="ann", session="s").open(Till, "one")
            first = await till.take.options(id="k1").send(5)
            assert await till.take.options(id="k1").send(5) == first
            assert await till.take.options(id="k2").send(5) != first
            await till.give.options(id="k1").send(5)  # another handler: another event
            assert await till.taken.pull() == (5, 5, -5)
        async with headwater.open(tmp_path) as rt:  # and after a restart
            till = await rt.space("shop", user="ann", session="s").open(Till, "one")
            assert await till.take.options(id="k1").send(5) == first
            other = rt.space("shop", user="bob", session="s").piece(Till, "one")
            assert await other.take.options(id="k1").send(7) != first  # somebody else's is another one
            assert await till.taken.pull() == (5, 5, -5, 7)

    asyncio.run(play())


def test_of_many_at_once_from_several_runtimes_one_is_handled(tmp_path: Path) -> None:
    async def play() -> None:
        async with LocalDirectory(tmp_path) as data, Runtime(data) as one, Runtime(data) as two:
            tills = [rt.space("shop", user="ann", session="s").piece(Till, "one") for rt in (one, two)]
            sent = [till.take.options(id="k").send(5) for till in tills * 5]
            assert len(set(await asyncio.gather(*sent))) == 1
            assert await tills[0].taken.pull() == (5,)

    asyncio.run(play())


def test_a_refusal_leaves_no_receipt(tmp_path: Path) -> None:
    async def play() -> None:
        async with headwater.open(tmp_path) as rt:
            till = await rt.space("shop", user="ann", session="s").open(Till, "one")
            till.is_open.set(False)
            with pytest.raises(Refused, match="closed"):
                await till.take.options(id="k").send(5)
            till.is_open.set(True)
            await till.take.options(id="k").send(5)
            assert await till.taken.pull() == (5,)

    asyncio.run(play())


def test_id_of_a_sender_is_the_same_event_after_a_restart_and_in_other_sessions(tmp_path: Path) -> None:
    async def take(cents: int, session: str, *users: str) -> None:
        async with headwater.open(tmp_path / "data") as rt:
            for place, user in enumerate(users):
                till = await rt.space("s", user=user, session=session).open(Till, "b")
                await till.take.options(id="order 17").send(cents + place)

    async def play() -> None:
        await take(1, "", "ann", "bob")
        await take(10, "", "ann", "bob")
        await take(20, "", "bob", "ann")  # Which of them has a session beside the runtime's own makes no difference.
        await take(30, "one", "ann")
        await take(40, "two", "ann")
        await take(50, "one", "ann")
        async with headwater.open(tmp_path / "data") as rt:
            till = await rt.space("s").open(Till, "b")
            assert await till.taken.pull() == (1, 2, 30, 40)

    asyncio.run(play())
