"""What an outbox holds is sent after a restart: all of it, as soon as that can be done, and never twice."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

import headwater
from headwater import BacklogFullError, Cell, Piece, Policy, cell, each, given, handler
from headwater.clock import VirtualClock
from headwater.data.value import freeze
from headwater.errors import HeadwaterError
from headwater.protocol.commit import SentEvent
from headwater.runtime import outbox as module
from headwater.runtime.attachment import Remote
from headwater.runtime.outbox import Outbox
from headwater.runtime.runtime import Runtime
from tests.scenario.runtime_kit import Cable
from tests.unit.binding.kit import run
from tests.unit.runtime.kit import address, serving


class Row(Piece, name="mended.Row"):
    n: Cell[int] = given()

    @handler
    def bump(self) -> None:
        self.n.set(self.n.get() + 1)


class Book(Piece, name="mended.Book"):
    lines: Cell[tuple[str, ...]] = cell(default=())
    counts: Cell[Mapping[str, int]] = cell(default={})

    @each(counts)
    def rows(self, n: Cell[int]) -> Row:
        return Row(n=n)

    @handler
    def write(self, text: str) -> str:
        self.lines.push(text)
        return text

    @handler
    def add(self, key: str) -> None:
        self.counts.key(key).set(0)


def left_in(box: Path) -> int:
    outbox = Outbox(str(box))
    found = len(outbox)
    outbox.close()
    return found


async def moments(count: int = 50) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_what_was_let_in_before_a_restart_is_not_refused_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = tmp_path / "client.outbox"

    async def work() -> None:
        async with serving(tmp_path / "data", insecure_local=True) as server:
            cable = Cable(Remote(address(server)))
            client = Runtime(cable, outbox=box, close_s=0.01, policy=Policy(backlog=50))
            book = await client.space("s").open(Book, "b")
            await client.durable()
            cable.unplug()
            for n in range(20):
                book.write.post(str(n))
            await moments()
            with pytest.raises(HeadwaterError):
                await client.close()
            monkeypatch.setattr(module, "MOST", 20)  # It is full, and what is in it goes on all the same.
            errors: list[BaseException] = []
            async with Runtime(address(server), outbox=box, policy=Policy(backlog=5, in_hand=5)) as rt:
                rt.on_error(errors.append)
                again = rt.space("s").piece(Book, "b")
                with pytest.raises(BacklogFullError):
                    again.write.post("overtaking")
                await rt.durable()
                assert await again.lines.pull() == tuple(str(n) for n in range(20))
                assert errors == []
        assert left_in(box) == 0

    run(work)


def test_an_event_for_a_child_is_sent_once_its_parent_is_open(tmp_path: Path) -> None:
    box = tmp_path / "client.outbox"

    async def work() -> None:
        async with serving(tmp_path / "data", insecure_local=True) as server:
            where = address(server)
            cable = Cable(Remote(where))
            client = Runtime(cable, outbox=box, close_s=0.01)
            book = await client.space("s").open(Book, "b")
            await book.add.send("k")
            row = (await book.rows.pull())["k"]
            cable.unplug()
            row.bump.post()
            await moments()
            with pytest.raises(HeadwaterError):
                await client.close()
            errors: list[BaseException] = []
            async with headwater.connect(where, token="", outbox=box) as rt:
                rt.on_error(errors.append)
                await rt.durable()
                (parked,) = rt.intents()
                assert (parked.state, parked.stream) == ("parked", "s/b/rows/k:bump")
                assert "is part of a piece that is not open here" in parked.error
                again = await rt.space("s").open(Book, "b")
                await rt.core.observing.until(lambda: all(each.ended_us for each in rt.intents()))
                await rt.durable()
                assert dict(await again.counts.pull()) == {"k": 1}
                assert [each.state for each in rt.intents()] == ["landed"]
            assert [str(each) for each in errors] == [
                "s/b/rows/k:bump waits: s/b/rows/k is part of a piece that is not open here"
            ]
        assert left_in(box) == 0

    run(work)


def test_what_an_outbox_kept_for_longer_than_receipts_are_kept_is_handled_all_the_same(tmp_path: Path) -> None:
    box, clock = tmp_path / "client.outbox", VirtualClock()

    async def work() -> None:
        async with Runtime(tmp_path / "data", clock=clock) as rt:
            await rt.space("s").open(Book, "b")
        outbox = Outbox(str(box))
        said = {"args": {"text": "old"}, "cls": "mended.Book", "name": "b", "user": "", "session": "", "at": 1}
        outbox.put("s", SentEvent("e1", "s/b:write", freeze(said), 0))
        outbox.close()
        clock.advance(1_000_000)
        async with Runtime(tmp_path / "data", clock=clock, outbox=box, policy=Policy(retention_ms=200)) as rt:
            await rt.durable()
            assert [each.state for each in rt.intents()] == ["landed"]
            assert await rt.space("s").piece(Book, "b").lines.pull() == ("old",)
        assert left_in(box) == 0

    run(work)


# ---- an id of the sender's own -----------------------------------------------------------------------------


def test_an_id_of_the_senders_own_is_the_same_event_after_a_restart_and_from_elsewhere(tmp_path: Path) -> None:
    async def write(session: str, *users: str) -> None:
        async with headwater.open(tmp_path / "data") as rt:
            for user in users:
                book = await rt.space("s", user=user, session=session).open(Book, "b")
                await book.write.options(id="order 17").send(f"{user} {session}".strip())

    async def work() -> None:
        for _ in range(2):
            await write("", "ann", "bob")
        await write("", "bob", "ann")  # Which of them has a session beside the runtime's own makes no difference.
        for session in ("one", "two", "one"):
            await write(session, "ann")
        async with headwater.open(tmp_path / "data") as rt:
            book = await rt.space("s").open(Book, "b")
            assert await book.lines.pull() == ("ann", "bob", "ann one", "ann two")

    run(work)
