"""Receipts that are over are deleted page by page, and what is remembered for that is bounded."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater import Cell, Piece, Policy, cell, handler
from headwater.clock import VirtualClock
from headwater.runtime import LocalDirectory, Runtime
from headwater.runtime.events.receipts import narrowest
from tests.scenario.events_kit import RECEIPTS, documents
from tests.scenario.pieces_kit import run

DAY_US = 86_400_000_000


class Note(Piece, name="retention.Note"):
    draft: Cell[str] = cell(default="", scope="session")
    mine: Cell[str] = cell(default="", scope="user")

    @handler
    def write(self, text: str) -> str:
        self.draft.set(text)
        return text

    @handler
    def keep(self, text: str) -> str:
        self.mine.set(text)
        return text

    @handler
    def plain(self, text: str) -> str:
        return text


async def results(data: LocalDirectory) -> list[object]:
    """The results that receipts of space `s` hold."""
    host = await data.host("s")
    return [each["result"] for each in host.call(lambda engine, _: documents(engine, RECEIPTS)).values()]


@pytest.mark.parametrize("is_given", [False, True])
def test_sweep_continues_behind_deleted_receipts(tmp_path: Path, is_given: bool) -> None:
    async def work() -> None:
        clock = VirtualClock()
        async with LocalDirectory(tmp_path / "data", synchronous="OFF", clock=clock) as data:
            for days in range(3):  # Each time another process, which does not know where the last one was.
                policy = Policy(retention_ms=DAY_US / 1_000, sweep_every=1, sweep_page=3)
                async with Runtime(data, clock=clock, policy=policy) as rt:
                    note = rt.space("s").piece(Note, "n")
                    for day in range(3):
                        for n in range(12):
                            options = note.plain.options(id=f"{days} {day} {n}") if is_given else note.plain
                            await options.send(f"{days} {day}")
                            await rt.core.observers.until(lambda: not len(rt.tasks))
                        clock.advance(2 * DAY_US)
                    left = await results(data)
                    assert left.count(f"{days} 2") == 12
                    assert len(left) < 24 if is_given else len(left) == 12  # Those go round and round.

    run(work)


def test_scopes_that_are_tracked_are_bounded(tmp_path: Path) -> None:
    async def work() -> None:
        policy = Policy(sweep_scopes=3)
        async with LocalDirectory(tmp_path / "data", synchronous="OFF") as data, Runtime(data, policy=policy) as rt:
            for n in range(10):
                await rt.space("s", user=f"u{n}", session="x").piece(Note, "n").keep.options(id="k").send("x")
                await rt.space("s", user="ann", session=f"w{n}").piece(Note, "n").write.options(id="k").send("x")
            counted, narrow = rt.events.retention.tracked
            assert counted == [("s", "user:u9"), ("s", "space"), ("s", "session:window w9")]
            assert narrow == [("s", "session:window w8"), ("s", "user:u9"), ("s", "session:window w9")]

    run(work)


def test_narrow_scopes_are_forgotten_with_their_receipts(tmp_path: Path) -> None:
    async def work() -> None:
        clock = VirtualClock()
        async with (
            LocalDirectory(tmp_path / "data", synchronous="OFF", clock=clock) as data,
            Runtime(data, clock=clock, policy=Policy(retention_ms=DAY_US / 1_000)) as rt,
        ):
            await rt.space("s", user="ann", session="w").piece(Note, "n").write.options(id="k").send("x")
            assert rt.events.retention.tracked[1] == [("s", "session:window w")]
            clock.advance(2 * DAY_US)
            await rt.space("s", user="ann", session="other").piece(Note, "n").plain.send("x")
            await rt.core.observers.until(lambda: not len(rt.tasks))
            assert rt.events.retention.tracked[1] == []

    run(work)


def test_user_comes_before_one_of_their_sessions() -> None:
    assert narrowest(["space", "session:a", "user:ann"]) == "user"
    assert narrowest(["space", "session:a"]) == "session"
    assert narrowest(["space"]) is None
