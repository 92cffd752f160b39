"""Work on many pieces at once costs a number of calls and messages in proportion to the pieces."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

import headwater
from headwater import Cell, Model, Piece, Refused, cell, computed, handler
from headwater.data.address import Link
from headwater.engine import Limits
from headwater.protocol.messages import FromReplica, Problem, Watch
from headwater.runtime import Heard, LocalDirectory, Runtime
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


@pytest.mark.parametrize(
    "limits",
    [Limits(backlog_frames=4), Limits(watches=10, watch_selectors=64)],
    ids=["few messages wait for a space", "a remote session watches few documents"],
)
def test_sinks_on_many_pieces_are_opened_at_once(tmp_path: Path, limits: Limits) -> None:
    """A runtime waits until a space of its own process has room; bounds of remote sessions are not its own."""

    async def work() -> None:
        async with LocalDirectory(tmp_path, limits=limits, synchronous="OFF") as data, Runtime(data) as rt:
            told: list[object] = []
            rt.on_error(told.append)
            space = rt.space("s")
            seen: list[str] = []

            def assign() -> None:
                for number in range(COUNT):
                    space.piece(Task, f"t{number}").owner.set("ann")

            for owner in ("", "ann"):
                looks = [space.piece(Task, f"t{number}").label.sink(seen.append) for number in range(COUNT)]
                await rt.settled()
                assert seen == [f"for {owner}"] * COUNT
                await space.transact(assign)
                for look in looks:
                    look.close()
                await rt.settled()
                await rt.durable()
                seen.clear()
            assert told == []

    run(work)


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


@pytest.mark.parametrize("is_new", [True, False], ids=["new", "after a restart"])
def test_transaction_that_reads_many_pieces_of_which_handles_are_kept_is_called_a_few_times(
    tmp_path: Path, is_new: bool
) -> None:
    """Each miss requests the members of more pieces: the calls grow with the logarithm of the pieces."""

    async def work() -> None:
        if not is_new:
            async with headwater.open(tmp_path) as rt:
                space = rt.space("s")
                written = [space.piece(Task, f"t{number}") for number in range(COUNT)]

                def assign() -> None:
                    for task in written:
                        task.owner.set("ann")

                await space.transact(assign)
        async with headwater.open(tmp_path) as rt:
            space = rt.space("s")
            tasks = [space.piece(Task, f"t{number}") for number in range(COUNT)]

            def mark() -> None:
                CALLS.append("mark")
                for task in tasks:
                    task.owner.set(f"{task.owner.get()}!")

            await space.transact(mark)
            assert len(CALLS) <= 10
            assert await tasks[-1].label.pull() == ("for !" if is_new else "for ann!")

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


class Rates(Model):
    """Rates of exchange."""

    eur: int = 0


class Bank(Piece):
    """Has rates."""

    rates: Cell[Rates] = cell(default=Rates())


class Order(Piece):
    """Converts, and does not expect that a rate has to be fetched."""

    total: Cell[int] = cell(default=100)

    @handler
    def convert(self, amount: int) -> int:
        CALLS.append("convert")
        bank = self.ctx.space.piece(Bank, "bank")

        def converted(_: int) -> int:
            try:
                eur: int = bank.rates.view().eur
                return amount * eur
            except Exception:
                return -1

        self.total.update(converted)
        return self.total.get()


def test_handler_that_catches_every_error_does_not_go_on_without_a_missing_document(tmp_path: Path) -> None:
    async def work() -> None:
        async with headwater.open(tmp_path) as rt:
            space = rt.space("s")
            await space.transact(lambda: space.piece(Bank, "bank").rates.set(Rates(eur=7)))
        async with headwater.open(tmp_path) as rt:
            space = rt.space("s")
            order = await space.open(Order, "o")
            await order.total.pull()
            assert await order.convert.send(10) == 70

            def convert() -> int:
                try:
                    return space.piece(Bank, "other").rates.get().eur
                except headwater.HeadwaterError:
                    raise
                except Exception:
                    return -1

            assert await space.transact(convert) == 0

    run(work)


async def _linked(folder: Path, value: int) -> None:
    """Store a cell and another one that is a link to it."""
    async with headwater.open(folder) as rt:
        space = rt.space("s")
        account = space.cell("account", int, default=0)
        await space.transact(lambda: account.set(value))
        await space.transact(lambda: space.cell("alias", Link).set(account.link()))


def test_transaction_does_not_read_after_a_write_that_was_left_out(tmp_path: Path) -> None:
    """The write goes through a link that has to be fetched, and the document behind it is here."""

    async def work() -> None:
        await _linked(tmp_path, 3)
        async with headwater.open(tmp_path) as rt:
            space = rt.space("s")
            account, alias = space.cell("account", int, default=0), space.cell("alias", int, default=0)
            assert await account.pull() == 3
            rounds = []

            def empty() -> int:
                while account.get() > 0:
                    rounds.append(account.get())
                    assert len(rounds) < 10
                    alias.increment(-1)
                left: int = account.get()
                return left

            assert await space.transact(empty) == 0
            assert await account.pull() == 0

    run(work)


def test_update_of_a_missing_document_calls_its_function_with_the_value(tmp_path: Path) -> None:
    async def work() -> None:
        async with headwater.open(tmp_path) as rt:
            space = rt.space("s")
            await space.transact(lambda: space.cell("queue", tuple[int, ...], default=()).set((1, 2)))
        async with headwater.open(tmp_path) as rt:
            space = rt.space("s")
            queue = space.cell("queue", tuple[int, ...], default=())

            def take() -> int:
                taken = []
                queue.update(lambda items: (taken.append(items[0]), items[1:])[1])  # type: ignore[func-returns-value]
                first: int = taken[0]
                return first

            assert await space.transact(take) == 1
            assert await queue.pull() == (2,)

    run(work)


class Refusing(Wire):
    """Refuses the document x, and does not answer before `answer` is called."""

    def __init__(self, data: LocalDirectory) -> None:
        super().__init__(data)
        self.is_answering = False
        self.asked = asyncio.Event()
        self.refused: list[Callable[[], object]] = []

    def said(self, space: str, message: FromReplica, heard: Heard) -> FromReplica | None:
        if isinstance(message, Watch) and any(each.doc.id == "x" for each in message.selectors):
            self.asked.set()
            self.refused.append(lambda: heard(Problem("access", "x is not for you", False, message.id)))
            if self.is_answering:
                asyncio.get_running_loop().call_soon(self.answer)
            return None
        return super().said(space, message, heard)

    def answer(self) -> None:
        self.is_answering = True
        while self.refused:
            self.refused.pop()()


@pytest.mark.parametrize("waits", ["pull", "durable"])
def test_refused_document_of_a_transaction_is_told_to_everything_that_waits_for_it(tmp_path: Path, waits: str) -> None:
    async def work() -> None:
        async with LocalDirectory(tmp_path, synchronous="OFF") as data:
            wire = Refusing(data)
            async with Runtime(wire) as rt:
                told: list[object] = []
                rt.on_error(told.append)
                space = rt.space("s")
                x, y = space.cell("x", int, default=0), space.cell("y", int, default=0)
                await y.pull()
                if waits == "durable":
                    x.set(5)
                waiting = asyncio.ensure_future(x.pull() if waits == "pull" else rt.durable())
                await wire.asked.wait()

                def both() -> None:
                    x.set(1)
                    y.set(1)
                    space.cell("z", int, default=0).set(1)

                writing = asyncio.ensure_future(space.transact(both))
                await wire.has_sent(lambda message: isinstance(message, Watch) and message.selectors[0].doc.id == "z")
                wire.answer()
                with pytest.raises(headwater.HeadwaterError, match="x is not for you"):
                    await writing
                if waits == "pull":
                    with pytest.raises(headwater.HeadwaterError, match="x is not for you"):
                        await waiting
                else:
                    await waiting
                    assert told

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
                # Each of them may begin a slice of work of its own, as quickly as the engine answers on its thread.
                assert len(watches) <= COUNT // 3

    run(work)
