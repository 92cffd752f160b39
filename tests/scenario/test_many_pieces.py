"""Work on many pieces at once costs a number of calls and messages in proportion to the pieces."""

from __future__ import annotations

from pathlib import Path

import pytest

import headwater
from headwater import Cell, Piece, Refused, cell, computed, handler
from headwater.protocol.messages import Watch
from headwater.runtime import LocalDirectory, Runtime
from tests.scenario.pieces_kit import run
from tests.scenario.wire_kit import Wire

COUNT = 300
CALLS: list[str] = []


@pytest.fixture(autouse=True)
def no_calls() -> None:
    CALLS.clear()


class Task(Piece):
    """A task with an owner."""

    owner: Cell[str] = cell(default="")
    tags: Cell[frozenset[str]] = cell(default=frozenset())

    @computed
    def label(self) -> str:
        return f"for {self.owner.get()}"


class Planner(Piece):
    """Assigns tasks that are only named."""

    done: Cell[int] = cell(default=0)

    @handler
    def assign(self, who: str) -> int:
        CALLS.append("assign")
        for number in range(COUNT):
            self.ctx.space.piece(Task, f"t{number}").owner.set(who)
        self.done.update(lambda done: done + 1)
        return self.done.get()

    @handler
    def refuse(self) -> None:
        CALLS.append("refuse")
        self.ctx.space.piece(Task, "t0").owner.set("nobody")
        raise Refused("not now")


def test_transaction_that_writes_many_pieces_is_called_twice(tmp_path: Path) -> None:
    """The first call tells which documents are missing; they arrive together."""

    async def work() -> None:
        async with headwater.open(tmp_path) as rt:
            space = rt.space("s")

            def assign() -> None:
                CALLS.append("assign")
                for number in range(COUNT):
                    task = space.piece(Task, f"t{number}")
                    task.owner.set(f"user {number}")
                    task.tags.add("new")

            await space.transact(assign)
            assert len(CALLS) == 2
            for number in (0, COUNT // 2, COUNT - 1):
                assert await space.piece(Task, f"t{number}").label.pull() == f"for user {number}"
                assert space.piece(Task, f"t{number}").tags.get() == {"new"}

    run(work)


def test_handler_that_writes_many_pieces_is_called_twice(tmp_path: Path) -> None:
    async def work() -> None:
        async with headwater.open(tmp_path) as rt:
            space = rt.space("s")
            planner = await space.open(Planner, "p")
            assert await planner.assign.send("ann") == 1
            assert len(CALLS) <= 2
            assert await space.piece(Task, f"t{COUNT - 1}").label.pull() == "for ann"

    run(work)


def test_transaction_reads_its_write_to_a_document_that_was_missing(tmp_path: Path) -> None:
    async def work() -> None:
        async with headwater.open(tmp_path) as rt:
            space = rt.space("s")

            def move() -> str:
                first, second = space.piece(Task, "first"), space.piece(Task, "second")
                first.owner.set("ann")
                second.owner.set(first.owner.get() + "!")
                return second.owner.get()

            assert await space.transact(move) == "ann!"
            assert await space.piece(Task, "second").label.pull() == "for ann!"

    run(work)


def test_transaction_that_fails_writes_nothing_to_documents_that_were_missing(tmp_path: Path) -> None:
    async def work() -> None:
        async with headwater.open(tmp_path) as rt:
            space = rt.space("s")

            def fail() -> None:
                space.piece(Task, "t").owner.set("ann")
                raise ValueError("no")

            with pytest.raises(ValueError, match="no"):
                await space.transact(fail)
            planner = await space.open(Planner, "p")
            with pytest.raises(Refused, match="not now"):
                await planner.refuse.send()
            await rt.durable()
            assert await space.piece(Task, "t").label.pull() == "for "
            assert await space.piece(Task, "t0").label.pull() == "for "

    run(work)


def test_write_in_a_transaction_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    """Also if its document has to be fetched first."""

    async def work() -> None:
        async with headwater.open(tmp_path) as rt:
            space = rt.space("s")
            with pytest.raises(headwater.HeadwaterError, match="str"):
                await space.transact(lambda: space.piece(Task, "t").owner.set(3))  # type: ignore[arg-type]

    run(work)


def test_sinks_that_are_opened_at_once_need_few_messages(tmp_path: Path) -> None:
    async def work() -> None:
        async with LocalDirectory(tmp_path, synchronous="OFF") as data:
            wire = Wire(data)
            async with Runtime(wire) as rt:
                space = rt.space("s")
                seen: dict[str, str] = {}
                for number in range(COUNT):
                    name = f"t{number}"
                    space.piece(Task, name).label.sink(lambda label, name=name: seen.update({name: label}))  # type: ignore[misc]
                await rt.settled()
                assert set(seen.values()) == {"for "}
                assert len(seen) == COUNT
                watches = [message for _, message in wire.sent if isinstance(message, Watch)]
                assert len(watches) <= COUNT // 8

    run(work)
