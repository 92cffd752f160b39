"""What is visible outside a run, and whoever waits for something: a question that fails is heard by nobody else."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headwater.data.address import DocKey
from headwater.errors import HeadwaterError, LoadError, NotReadyError
from headwater.runtime.api.runtime import Runtime
from tests.unit.runtime.kit import run
from tests.unit.runtime.test_core_writing import Scripted


def test_after_a_gap_what_was_shown_is_visible_outside_a_run_and_runs_wait() -> None:
    shop = Scripted()
    n = shop.core.cell("shop", "n", int)
    shop.arrive("n", 1)
    shop.replica.gap()
    assert n.get() == 1
    assert n.exists()
    seen: list[int] = []
    n.sink(seen.append)
    shop.core.settle()
    assert seen == []
    n.update(lambda value: value + 1)
    assert n.get() == 1  # The write waits, too.
    shop.arrive("n", 5)
    assert (n.get(), seen) == (6, [6])


def test_after_a_gap_what_will_not_arrive_is_not_visible() -> None:
    shop = Scripted()
    n = shop.core.cell("shop", "n", int)
    shop.arrive("n", 1)
    shop.replica.gap()
    shop.core.load_failed(shop.space, [DocKey("space", "n")], LoadError("not for you"))
    with pytest.raises(NotReadyError):
        n.get()


def test_a_question_that_fails_is_its_waiter_s_failure_and_nobody_else_s(tmp_path: Path) -> None:
    async def work() -> None:
        async with Runtime(tmp_path) as rt:
            n = rt.cell("shop", "n", int, default=0)
            asked: list[None] = []

            def fails() -> bool:
                asked.append(None)
                if len(asked) > 1:
                    raise NotReadyError("not here any more")
                return False

            first = asyncio.ensure_future(rt.core.observers.until(fails))
            second = asyncio.ensure_future(rt.core.observers.until(lambda: n.document.value == 3))
            await asyncio.sleep(0)
            n.set(3)
            await rt.durable()
            with pytest.raises(NotReadyError, match="not here any more"):
                await first
            await second
            assert rt.core.space("shop").ended is None
            assert await n.pull() == 3

    run(work)


def test_one_who_raises_where_nobody_waits_for_it_takes_nobody_else_along() -> None:
    shop = Scripted()
    acted: list[str] = []
    is_open = [False]

    def fails() -> bool:
        if is_open[0]:
            raise ValueError("what it asks is gone")
        return False

    shop.core.observers.when(fails, lambda: acted.append("failed"))
    shop.core.observers.when(lambda: is_open[0], lambda: acted.append("went on"))
    is_open[0] = True
    with pytest.raises(ValueError, match="what it asks is gone"):
        shop.core.observers.check_conditions()
    shop.core.observers.check_conditions()
    assert acted == ["went on"]
    assert not shop.core.observers.is_awaited()


def test_a_bug_while_something_is_taken_in_breaks_the_runtime_and_is_no_end_of_a_space(tmp_path: Path) -> None:
    async def work() -> None:
        rt = Runtime(tmp_path, close_s=0.1)
        told: asyncio.Queue[BaseException] = asyncio.Queue()
        rt.on_error(told.put_nowait)
        n = rt.cell("shop", "n", int, default=0)
        await n.pull()

        def heard() -> None:
            raise HeadwaterError("a bug of ours")

        rt.core.heard = heard  # type: ignore[method-assign]
        n.set(1)
        assert str(await told.get()) == "a bug of ours"
        assert rt.core.space("shop").ended is None
        with pytest.raises(HeadwaterError, match="this runtime broke"):
            await n.pull()
        with pytest.raises(HeadwaterError):
            await rt.close()
        assert told.empty()

    run(work)
