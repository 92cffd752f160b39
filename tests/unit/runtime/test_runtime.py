"""The shell on asyncio's loop: opening, registering, waiting, threads, and an end that waits."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headwater.backoff import Backoff
from headwater.clock import RealClock
from headwater.errors import (
    AuthoringError,
    HeadwaterError,
    InvalidValueError,
    LimitError,
    NotReadyError,
    NotSettlingError,
)
from headwater.runtime.api.runtime import Runtime
from headwater.runtime.channel.backend import LocalDirectory
from headwater.scheduler.failures import Failure
from headwater.scheduler.limits import SchedulerLimits
from tests.unit.runtime.kit import run


def test_a_computation_follows_its_cells() -> None:
    async def work() -> None:
        async with Runtime() as rt:
            shop = rt.space("shop")
            prices, total = shop.cell("prices", tuple[int, ...], default=()), shop.cell("total", int)
            node = rt.register(lambda: sum(prices.get()), output=total)
            assert await total.pull() == 0
            prices.push(450)
            prices.push(50)
            assert await total.pull() == 500
            assert node.runs == 2

    run(work)


def test_a_registered_node_does_not_run_before_somebody_looks() -> None:
    async def work() -> None:
        async with Runtime() as rt:
            source, out = rt.cell("shop", "n", int, default=1), rt.cell("shop", "out", int)
            node = rt.register(lambda: source.get() * 2, output=out)
            source.set(5)
            await rt.idle()
            assert (node.runs, node.status, node.is_live) == (0, "never-ran", False)
            with pytest.raises(NotReadyError):
                out.get()

    run(work)


def test_effects_and_materializers_run_by_themselves() -> None:
    async def work() -> None:
        async with Runtime() as rt:
            source = rt.cell("shop", "n", int, default=1)
            copies = rt.cell("shop", "copies", dict_of_int(), default={})
            seen: list[int] = []
            rt.register(lambda: seen.append(source.get()), kind="effect")
            rt.register(
                lambda: copies.key(f"k{source.get()}").set(source.get()), kind="materializer", envelope=[copies]
            )
            await rt.idle()
            source.set(2)
            await rt.idle()
            assert seen == [1, 2]
            assert dict(copies.get()) == {"k1": 1, "k2": 2}

    run(work)


def dict_of_int() -> Any:
    from collections.abc import Mapping  # noqa: PLC0415 (only this test needs it)

    return Mapping[str, int]


def test_a_result_of_another_type_fails_its_node() -> None:
    async def work() -> None:
        async with Runtime() as rt:
            errors: list[Failure] = []
            rt.core.on_error(errors.append)
            out = rt.cell("shop", "out", int)
            rt.register(lambda: "text", output=out, id="wrong")
            with pytest.raises(HeadwaterError):
                await out.pull()
            assert [(failure.node, type(failure.error)) for failure in errors] == [("wrong", InvalidValueError)]

    run(work)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "computed"}, "write 'computation', 'effect' or 'materializer'"),
        ({}, "has no output: say which document its result goes to"),
        ({"kind": "materializer"}, "has no envelope"),
    ],
)
def test_a_registration_that_makes_no_sense_says_what_to_write(options: Any, message: str) -> None:
    async def work() -> None:
        async with Runtime() as rt:
            with pytest.raises(AuthoringError, match=message):
                rt.register(lambda: 1, **options)

    run(work)


def test_an_output_is_a_whole_document_and_a_run_never_awaits() -> None:
    async def work() -> None:
        async with Runtime() as rt:
            part = rt.cell("shop", "m", dict_of_int(), default={}).key("a")
            with pytest.raises(AuthoringError, match="declare the whole document"):
                rt.register(lambda: 1, output=part)

            async def later() -> int:
                return 1

            with pytest.raises(AuthoringError, match="a run never awaits"):
                rt.register(later, output=rt.cell("shop", "x", int))

    run(work)


def test_a_removed_node_runs_no_more_and_cannot_be_changed() -> None:
    async def work() -> None:
        async with Runtime() as rt:
            source = rt.cell("shop", "n", int, default=1)
            seen: list[int] = []
            node = rt.register(lambda: seen.append(source.get()), kind="effect")
            await rt.idle()
            node.remove()
            node.remove()
            source.set(2)
            await rt.idle()
            assert seen == [1]
            with pytest.raises(AuthoringError, match="was removed: register it again"):
                node.set_debounce(5)

    run(work)


def test_the_same_function_may_be_registered_twice() -> None:
    async def work() -> None:
        async with Runtime() as rt:
            seen: list[int] = []

            def look() -> None:
                seen.append(1)

            one, two = rt.register(look, kind="effect"), rt.register(look, kind="effect")
            await rt.idle()
            assert seen == [1, 1]
            assert one.id != two.id
            with pytest.raises(AuthoringError, match="there is a node"):
                rt.register(look, kind="effect", id=one.id)

    run(work)


def test_a_debounce_is_set_and_cleared_while_it_waits() -> None:
    async def work() -> None:
        async with Runtime() as rt:
            source = rt.cell("shop", "n", int, default=1)
            seen: list[int] = []
            node = rt.register(lambda: seen.append(source.get()), kind="effect")
            await rt.idle()
            node.set_debounce(60_000)
            source.set(2)
            await rt.idle()
            assert seen == [1]
            node.clear_debounce()
            await turns(5)
            assert seen == [1, 2]
            with pytest.raises(AuthoringError, match="more than 0"):
                node.set_throttle(0)

    run(work)


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_a_node_created_by_a_run_is_the_child_of_that_node() -> None:
    async def work() -> None:
        async with Runtime() as rt:
            made: list[Any] = []

            def parent() -> None:
                if not made:
                    made.append(rt.register(lambda: None, kind="effect", id="child"))

            node = rt.register(parent, kind="effect", id="parent")
            await rt.idle()
            assert made[0].runs == 1
            node.remove()
            assert rt.core.scheduler.registry.get("child") is None

    run(work)


# ---- time --------------------------------------------------------------------------------------------


def test_reader_of_a_moment_runs_again_when_it_comes() -> None:
    async def work() -> None:
        async with Runtime() as rt:
            seen: list[bool] = []
            delay_ms = 5
            while False not in seen:  # On a busy machine a near moment is over before the first look.
                assert delay_ms < 60_000, "a moment a minute away was over before the first look"
                seen.clear()
                await until_past(rt, timedelta(milliseconds=delay_ms), seen)
                delay_ms *= 4
            assert seen == [False, True]
            with pytest.raises(AuthoringError, match="has no time zone"):
                rt.past(datetime(2026, 1, 1))  # noqa: DTZ001
            assert rt.now(every_ms=3_600_000).minute == 0

    run(work)


async def until_past(rt: Runtime, delay: timedelta, seen: list[bool]) -> None:
    """Look at a moment that is to come until it has come."""
    when = datetime.fromtimestamp(RealClock().now_us() / 1e6, UTC) + delay
    woken = asyncio.Event()

    def look() -> None:
        seen.append(rt.past(when))
        if seen[-1]:
            woken.set()

    rt.register(look, kind="effect")
    await woken.wait()
    assert rt.past(when)


# ---- threads -----------------------------------------------------------------------------------------


def test_another_thread_goes_through_call() -> None:
    async def work() -> None:
        async with Runtime() as rt:
            cell = rt.cell("shop", "n", int, default=1)
            cell.set(3)
            answers: list[Any] = []

            def elsewhere() -> None:
                try:
                    cell.get()
                except AuthoringError as error:
                    answers.append(str(error))
                answers.append(rt.call(cell.get))
                rt.call(cell.set, 4)
                try:
                    rt.call(lambda: 1 // 0)
                except ZeroDivisionError:
                    answers.append("raised")

            thread = threading.Thread(target=elsewhere)
            thread.start()
            await asyncio.to_thread(thread.join)
            assert "call rt.call(fn)" in answers[0]
            assert answers[1:] == [3, "raised"]
            assert cell.get() == 4
            assert rt.call(cell.get) == 4

    run(work)


# ---- slices ------------------------------------------------------------------------------------------


def test_a_pass_yields_so_that_a_timer_waits_for_at_most_a_thousand_runs() -> None:
    async def work() -> None:
        async with Runtime() as rt:
            count = 10_000
            source = rt.cell("shop", "n", int, default=0)
            ran = [0]

            def make(number: int) -> None:
                def look() -> None:
                    source.get()
                    ran[0] += 1

                rt.register(look, kind="effect", id=f"e{number}")

            for number in range(count):
                make(number)
            await rt.idle()
            ran[0] = 0
            source.set(1)
            gaps: list[int] = []
            last = 0
            while ran[0] < count:
                await asyncio.sleep(0)
                gaps.append(ran[0] - last)
                last = ran[0]
            assert max(gaps) <= 1_000
            assert sum(gaps) == count

    run(work)


def test_a_pull_never_sees_a_half_settled_graph() -> None:
    async def work() -> None:
        async with Runtime(limits=SchedulerLimits(slice_runs=3)) as rt:
            source = rt.cell("shop", "n", int, default=0)
            cells = [rt.cell("shop", f"c{i}", int) for i in range(50)]
            above: Any = source
            for number, out in enumerate(cells):
                rt.register(lambda a=above: a.get() + 1, output=out, id=f"n{number}")  # type: ignore[misc]
                above = out
            rt.register(cells[-1].get, kind="effect")
            assert await cells[-1].pull() == 50
            source.set(100)
            await asyncio.sleep(0)
            assert cells[-1].get() == 50  # Between slices a read outside a run may see this,
            assert await cells[-1].pull() == 150  # a pull may not.
            source.set(200)
            await rt.settled()
            assert cells[-1].get() == 250

    run(work)


def test_idle_is_held_by_a_node_that_does_not_settle_through_two_waits_and_not_for_ever() -> None:
    async def work() -> None:
        limits = SchedulerLimits(exhausted=Backoff.exponential(base_ms=2, max_ms=16))
        async with Runtime(limits=limits) as rt:
            errors: list[Failure] = []
            rt.core.on_error(errors.append)
            a, b = rt.cell("shop", "a", int, default=0), rt.cell("shop", "b", int, default=0)
            rt.register(lambda: b.get() + 1, output=a, id="a")
            rt.register(lambda: a.get() + 1, output=b, id="b")
            look = rt.register(a.get, kind="effect", id="look")
            await rt.idle()
            gates = [node.gate for node in rt.core.scheduler.registry if node.gate is not None]
            assert max(gate.exhaustions for gate in gates) == 3
            assert [type(failure.error) for failure in errors] == [NotSettlingError]
            look.remove()

    run(work)


# ---- opening and closing -----------------------------------------------------------------------------


def test_what_was_written_is_there_after_a_restart(tmp_path: Path) -> None:
    async def work() -> None:
        async with Runtime(tmp_path / "data") as rt:
            rt.cell("shop", "n", int).set(7)
            rt.space("shop").cell("log", tuple[str, ...], default=()).push("a")
        async with Runtime(tmp_path / "data") as rt:
            assert await rt.cell("shop", "n", int).pull() == 7
            assert await rt.cell("shop", "log", tuple[str, ...]).pull() == ("a",)

    run(work)


def test_closing_twice_is_harmless_and_nothing_waits_for_ever() -> None:
    async def work() -> None:
        rt = Runtime()
        cell = rt.cell("shop", "n", int)
        watching = cell.watch()
        waiting: asyncio.Future[Any] = asyncio.ensure_future(anext(watching))
        await turns(3)
        await rt.close()
        await rt.close()
        with pytest.raises(HeadwaterError, match="this runtime was closed"):
            await waiting
        with pytest.raises(AuthoringError, match="this runtime was closed"):
            rt.space("other")

    run(work)


def test_closing_is_bounded_and_says_what_was_left(tmp_path: Path) -> None:
    async def work() -> None:
        rt = Runtime("ws://127.0.0.1:9", close_s=0.05)
        rt.cell("shop", "n", int).set(1)
        with pytest.raises(LimitError, match="left 1 commits without a verdict"):
            await rt.close()

    run(work)


def test_two_runtimes_share_one_directory(tmp_path: Path) -> None:
    async def work() -> None:
        async with LocalDirectory(tmp_path / "data") as data, Runtime(data) as one, Runtime(data) as two:
            one.cell("shop", "n", int).set(1)
            await one.durable()
            cell = two.cell("shop", "n", int)
            assert await cell.pull() == 1

    run(work)


def test_scopes_need_somebody_whose_they_are() -> None:
    async def work() -> None:
        async with Runtime() as rt:
            with pytest.raises(AuthoringError, match=r"write rt\.space\('shop', user=\.\.\.\)"):
                rt.space("shop").cell("x", int, scope="user")
            mine = rt.space("shop", user="ann", session="s1")
            assert repr(mine.cell("x", int, scope="user")) == "<Cell user:ann:x>"
            assert repr(mine.cell("x", int, scope="session")) == "<Cell session:window s1:x>"

    run(work)


# ---- transactions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["detached", "embedded"])
def test_a_transaction_reads_and_writes_several_cells_at_once(where: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with Runtime(tmp_path / "data" if where == "embedded" else None) as rt:
            shop = rt.space("shop")
            a, b = shop.cell("a", int, default=10), shop.cell("b", int, default=0)

            def move(by: int) -> Any:
                a.set(a.get() - by)
                b.set(b.get() + by)
                return a.get()

            assert await shop.transact(move, 3) == 7
            assert (a.get(), b.get()) == (7, 3)

            def refuse() -> None:
                a.set(0)
                raise ValueError("no")

            with pytest.raises(ValueError, match="no"):
                await shop.transact(refuse)
            assert a.get() == 7

    run(work)


def test_a_transaction_writes_one_space_only(tmp_path: Path) -> None:
    async def work() -> None:
        async with Runtime() as rt:
            one, two = rt.cell("shop", "a", int, default=1), rt.cell("stock", "b", int, default=1)
            rt.space("shop")

            def both() -> None:
                one.set(2)
                two.set(2)

            with pytest.raises(AuthoringError, match="is of another space: a transaction writes one space only"):
                await rt.space("shop").transact(both)
            assert await one.pull() == 1

    run(work)


def test_transaction_computes_a_value_that_was_never_computed() -> None:
    async def work() -> None:
        async with Runtime() as rt:
            out = rt.cell("shop", "out", int)
            rt.register(lambda: 1, output=out)
            with pytest.raises(NotReadyError, match="was never computed"):
                out.get()
            assert await rt.space("shop").transact(out.get) == 1

    run(work)


def test_why_and_the_graph_can_be_asked() -> None:
    async def work() -> None:
        async with Runtime() as rt:
            source, out = rt.cell("shop", "n", int, default=1), rt.cell("shop", "out", int)
            node = rt.register(lambda: source.get() * 2, output=out, id="double")
            out.sink(lambda _: None)
            await rt.idle()
            source.set(2)
            await rt.idle()
            assert "space:n" in str(rt.why(node))
            assert "double" in str(rt.graph().as_json())

    run(work)


def test_time_is_read_on_the_thread_of_its_runtime_and_in_steps_that_make_sense() -> None:
    async def work() -> None:
        async with Runtime() as rt:
            for wrong in (0, -1, float("nan"), float("inf")):
                with pytest.raises(AuthoringError, match="write how often it changes, more than 0"):
                    rt.now(every_ms=wrong)
            when = datetime(2100, 1, 1, tzinfo=UTC)
            for look in (lambda: rt.past(when), lambda: rt.now(every_ms=1)):
                with pytest.raises(AuthoringError, match=r"call rt\.call\(fn\)"):
                    await asyncio.to_thread(look)

    run(work)
