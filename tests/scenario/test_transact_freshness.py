"""`transact` and `update` read fresh computeds, and land only if the cells behind these did not change (I4, C1)."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

import headwater
from headwater import (
    AbsentError,
    Cell,
    LimitError,
    NotSettlingError,
    Piece,
    UpstreamFailedError,
    cell,
    computed,
    handler,
)
from headwater.runtime import LocalDirectory, Runtime
from headwater.testing import Simulation, simulated


class Sheet(Piece, name="transact.Sheet"):
    x: Cell[int] = cell(default=1)
    copied: Cell[int] = cell(default=0)
    taken: Cell[str] = cell(default="")
    log: Cell[tuple[str, ...]] = cell(default=())

    @computed
    def double(self) -> int:
        return self.x.get() * 2

    @computed
    def quadruple(self) -> int:
        return self.double.get() * 2

    @computed(debounce_ms=20)
    def later(self) -> int:
        return self.x.get() * 10

    @computed
    def inverse(self) -> float:
        return 1 / self.x.get()

    def read_twice(self) -> tuple[str, ...]:
        seen = []
        for _ in range(2):
            try:
                seen.append(str(self.inverse.get()))
            except UpstreamFailedError:
                seen.append("failed")
        return tuple(seen)

    @computed
    def read_in_computed(self) -> tuple[str, ...]:
        return self.read_twice()

    @handler
    def read_in_handler(self) -> tuple[str, ...]:
        return self.read_twice()

    @computed
    def is_free(self) -> bool:
        return not self.taken.get()

    @handler
    def note_failure(self, who: str) -> bool:
        """Act on the failure of a computed."""
        try:
            self.inverse.get()
        except UpstreamFailedError:
            self.log.push(f"{who} saw a failure")
            return True
        return False

    @handler
    def set_copied(self, copied: int) -> None:
        self.copied.set(copied)

    @handler
    def set_x(self, x: int) -> None:
        self.x.set(x)
        self.log.push(f"x is {x}")


def copy(sheet: Sheet, member: str) -> tuple[int, int]:
    value = getattr(sheet, member).get()
    sheet.copied.set(value)
    return sheet.x.get(), value


@pytest.mark.parametrize(("member", "times"), [("double", 2), ("quadruple", 4), ("later", 10)])
@pytest.mark.parametrize("is_open", [True, False])
@simulated(seeds=2)
async def test_transaction_reads_fresh_computeds(sim: Simulation, member: str, times: int, is_open: bool) -> None:
    space = sim.runtime("ann").space("s")
    sheet = await space.open(Sheet, "p") if is_open else space.piece(Sheet, "p")
    assert await space.transact(copy, sheet, member) == (1, times)  # It was never computed before.
    for x in (5, 7):
        sheet.x.set(x)
        assert await space.transact(copy, sheet, member) == (x, x * times)
    await sim.settle()
    assert await sheet.copied.pull() == 7 * times


@simulated(seeds=2)
async def test_update_reads_fresh_computeds(sim: Simulation) -> None:
    space = sim.runtime("ann").space("s")
    sheet = await space.open(Sheet, "p")
    sheet.x.set(5)
    sheet.copied.update(lambda _: sheet.quadruple.get())
    assert sheet.copied.get() == 20
    sheet.copied.update(lambda _: sheet.later.get())  # It is held back, and so is the write.
    sheet.copied.update(lambda n: n + 1)
    await sim.settle()
    assert await sheet.copied.pull() == 51


@simulated(faults=(), seeds=12)
async def test_transaction_is_made_again_if_a_cell_behind_its_computed_changed(sim: Simulation) -> None:
    """Two sessions take a seat if a computed says that it is free. The engine must not accept both."""
    spaces = [sim.runtime(user).space("s", user=user) for user in ("ann", "bob")]
    sheets = [await space.open(Sheet, "p") for space in spaces]
    await sim.settle()

    def take(sheet: Sheet, who: str) -> bool:
        if not sheet.is_free.get():
            return False
        sheet.taken.set(who)
        return True

    calls = [space.transact(take, sheet, who) for space, sheet, who in zip(spaces, sheets, "ab", strict=True)]
    assert sorted(await asyncio.gather(*calls)) == [False, True]


@simulated(faults=(), seeds=12)
async def test_handler_that_catches_a_failure_depends_on_the_cells_behind_it(sim: Simulation) -> None:
    ann = await sim.runtime("ann").space("s", user="ann").open(Sheet, "p")
    bob = await sim.runtime("bob").space("s", user="bob").open(Sheet, "p")
    await ann.set_x.send(0)
    await sim.settle()
    _, acted = await asyncio.gather(bob.set_x.send(1), ann.note_failure.send("ann"))
    await sim.settle()
    expected = ("x is 0", "ann saw a failure", "x is 1") if acted else ("x is 0", "x is 1")
    assert await ann.log.pull() == expected


@simulated(faults=(), seeds=2)
async def test_results_computed_for_a_transaction_that_fails_are_sent(sim: Simulation) -> None:
    runtime = sim.runtime("ann")
    sheet = await runtime.space("s").open(Sheet, "p")
    assert await sheet.double.pull() == 2
    sheet.x.set(5)  # Without an observer, `double` is not computed again.
    await sim.settle()
    await asyncio.sleep(60)  # No timer of the runtime is left that would send the result.

    def fail() -> None:
        assert sheet.double.get() == 10
        raise ValueError("as intended")

    with pytest.raises(ValueError, match="as intended"):
        await runtime.space("s").transact(fail)
    await asyncio.wait_for(runtime.durable(), 1)


@pytest.mark.parametrize("where", ["transact", "handler", "computed"])
@simulated(seeds=2)
async def test_failure_of_a_computed_is_raised_at_each_read(sim: Simulation, where: str) -> None:
    space = sim.runtime("ann").space("s")
    sheet = await space.open(Sheet, "p")
    assert await sheet.inverse.pull() == 1
    for x in (0, 0, 2, 0):
        sheet.x.set(x)
        match where:
            case "transact":
                seen = await space.transact(sheet.read_twice)
            case "handler":
                seen = await sheet.read_in_handler.send()
            case _:
                seen = await sheet.read_in_computed.pull()
        assert seen == (("failed", "failed") if x == 0 else ("0.5", "0.5"))


@pytest.mark.parametrize("later", ["set", "transact", "handler"])
@simulated(seeds=2)
async def test_writes_have_their_turn_after_an_update_that_waits(sim: Simulation, later: str) -> None:
    space = sim.runtime("ann").space("s")
    sheet = await space.open(Sheet, "p")
    assert await sheet.later.pull() == 10
    sheet.x.set(5)
    sheet.copied.update(lambda _: sheet.later.get())
    match later:
        case "set":
            sheet.copied.set(7)
        case "transact":
            await space.transact(lambda: sheet.copied.set(7))
        case _:
            await sheet.set_copied.send(7)
    await sim.settle()
    assert await sheet.copied.pull() == 7


@pytest.mark.parametrize("how", ["transact", "update"])
@simulated(seeds=2)
async def test_waiting_write_fails_if_the_piece_of_its_computed_is_deleted(sim: Simulation, how: str) -> None:
    runtime = sim.runtime("ann")
    errors: list[BaseException] = []
    runtime.on_error(errors.append)
    space = runtime.space("s")
    sheet, other = await space.open(Sheet, "p"), await space.open(Sheet, "other")
    assert await sheet.later.pull() == 10
    sheet.x.set(5)
    if how == "transact":
        waiting = asyncio.ensure_future(space.transact(lambda: other.copied.set(sheet.later.get())))
        await asyncio.sleep(0.001)
        await space.delete(sheet)
        with pytest.raises(AbsentError, match="of a piece that was stopped or deleted meanwhile"):
            await waiting
    else:
        other.copied.update(lambda _: sheet.later.get())
        await space.delete(sheet)
    await runtime.durable()
    assert await other.copied.pull() == 0
    refused = [error for error in errors if isinstance(error, AbsentError)]
    assert len(refused) == (how == "update")


def test_update_that_waits_does_not_land_on_an_old_value_when_the_runtime_closes(tmp_path: Path) -> None:
    async def work() -> None:
        async with LocalDirectory(tmp_path) as data:
            with suppress(LimitError):  # On a slow machine, there may be nothing left to wait for.
                async with Runtime(data, close_s=0.01) as runtime:
                    sheet = await runtime.space("s").open(Sheet, "p")
                    assert await sheet.later.pull() == 10
                    sheet.x.set(5)
                    await runtime.durable()
                    sheet.copied.update(lambda _: sheet.later.get())
        async with headwater.open(tmp_path) as again:
            assert await again.space("s").piece(Sheet, "p").copied.pull() in (0, 50)

    headwater.run(work)


def test_sink_whose_update_reads_a_stale_computed_is_bounded(tmp_path: Path) -> None:
    """I6: the write of a sink is caused by the sink, also if a computed runs for it."""

    async def work() -> None:
        async with headwater.open(tmp_path) as rt:
            failed = asyncio.Event()
            rt.on_error(lambda error: failed.set() if isinstance(error, NotSettlingError) else None)
            sheet = await rt.space("s").open(Sheet, "p")
            calls = []

            def grow(double: int) -> None:
                calls.append(double)
                sheet.x.update(lambda x: sheet.quadruple.get() - 3 * x + 1)

            look = sheet.double.sink(grow)
            await asyncio.wait_for(failed.wait(), 30)
            look.close()
            assert len(calls) < 100

    headwater.run(work)


class Circle(Piece, name="transact.Circle"):
    """Two computeds that never settle."""

    start: Cell[int] = cell(default=0)
    copied: Cell[int] = cell(default=0)

    @computed
    def one(self) -> int:
        return self.start.get() + self.two.get(0) + 1

    @computed
    def two(self) -> int:
        return self.one.get(0) + 1


def test_transaction_over_computeds_that_do_not_settle_fails_and_names_them(tmp_path: Path) -> None:
    async def work() -> None:
        policy = headwater.Policy(retry_window_ms=200)
        async with headwater.open(tmp_path, policy=policy) as rt:
            errors: list[object] = []
            rt.on_error(errors.append)
            space = rt.space("s")
            circle = await space.open(Circle, "c")

            def copy() -> None:
                circle.copied.set(circle.one.get())

            with pytest.raises(NotSettlingError, match=r"transact\(copy\) reads .*c:one, which did not settle"):
                await space.transact(copy)

    headwater.run(work)
