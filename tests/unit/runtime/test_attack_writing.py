"""What an outside attack found about writes: none may vanish, and none may come in another order."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import AuthoringError
from headwater.runtime.api.runtime import Runtime
from headwater.runtime.channel.backend import LocalDirectory
from tests.unit.runtime.kit import run
from tests.unit.runtime.test_core_writing import Scripted


def test_a_write_of_what_is_shown_has_its_turn_after_one_that_is_tried_again() -> None:
    shop = Scripted()
    n = shop.core.cell("shop", "n", int, default=0)
    shop.arrive("n", 100)
    n.update(lambda value: value + 10)
    shop.ready = False
    shop.conflict(shop.layers()[0])
    shop.core.settle()
    assert n.get() == 100  # It was taken back, and is tried again as soon as what won is here.
    n.set(100)
    shop.ready = True
    shop.core.heard()
    shop.core.settle()
    assert n.get() == 100


def test_an_entry_of_a_default_can_be_deleted() -> None:
    shop = Scripted()
    flags = shop.core.cell("shop", "flags", Mapping[str, int], default={"d": 1, "e": 2})
    shop.arrive("flags")
    assert flags.key("d").exists()
    flags.key("d").delete()
    assert not flags.key("d").exists()
    assert dict(flags.get()) == {"e": 2}


def test_a_write_after_the_end_is_refused(tmp_path: Path) -> None:
    async def work() -> None:
        rt = Runtime(tmp_path)
        n = rt.cell("shop", "n", int, default=0)
        n.set(1)
        await rt.close()
        with pytest.raises(AuthoringError, match="closed"):
            n.set(2)
        with pytest.raises(AuthoringError, match="closed"):
            n.increment()
        with pytest.raises(AuthoringError, match="closed"):
            n.sink(lambda _: None)

    run(work)


def test_a_write_that_fails_when_it_is_tried_again_leaves_no_open_transaction(tmp_path: Path) -> None:
    async def work() -> None:
        where = LocalDirectory(tmp_path, synchronous="OFF")
        async with where, Runtime(where) as one, Runtime(where) as two:
            failures: list[Exception] = []
            two.core.on_error(lambda failure: failures.append(failure.error))
            a, b = (each.cell("shop", "n", int, default=0) for each in (one, two))
            a.set(1)
            await one.durable()
            b.sink(lambda _: None)
            await b.pull()
            for _ in range(100):
                calls: list[int] = []

                def once(value: int, calls: list[int] = calls) -> int:
                    calls.append(value)
                    if len(calls) > 1:
                        raise ValueError("not again")
                    return value + 10

                a.update(lambda value: value + 1)
                b.update(once)
                await one.durable()
                await two.durable()
                if failures:
                    break
            assert [str(each) for each in failures] == ["not again"]
            assert two.core.space("shop").replica.open_transactions.count == 0

    run(work)


def test_an_editor_hears_of_what_it_wrote_only_if_that_was_taken_back_in_between(tmp_path: Path) -> None:
    async def work() -> None:
        where = LocalDirectory(tmp_path, synchronous="OFF")
        async with where, Runtime(where) as one, Runtime(where) as two:
            a, b = (each.cell("shop", "n", tuple[str, ...], default=()) for each in (one, two))
            a.set(())
            await one.durable()
            await b.pull()
            editor, heard = object(), list[tuple[str, ...]]()
            b.sink(heard.append, group=editor)
            await two.settled()
            for turn in range(100):
                heard.clear()
                calls: list[int] = []

                def edit(value: tuple[str, ...], turn: int = turn, calls: list[int] = calls) -> tuple[str, ...]:
                    calls.append(turn)
                    return (*value, f"b{turn}")

                a.push(f"a{turn}")
                b.update(edit, group=editor)
                await one.durable()
                await two.durable()
                await two.settled(through=one.space("shop").seq, space="shop")
                if len(calls) > 1:
                    break
            # What others did, what was taken back and what is there again is news. What it did itself is not.
            assert heard[-1] == b.get()
            assert heard[0][-1:] != (f"b{turn}",)

    run(work)


def test_equal_groups_are_the_same_group() -> None:
    shop = Scripted()
    n = shop.core.cell("shop", "n", int, default=0)
    shop.arrive("n", 1)
    heard: list[int] = []
    n.sink(heard.append, group="-".join(["editor", "7"]))
    shop.core.settle()
    n.set(5, group="-".join(["editor", "7"]))
    shop.core.settle()
    assert heard == [1]


def test_what_is_computed_is_not_written_from_outside() -> None:
    async def work() -> None:
        async with Runtime() as rt:
            source, out = rt.cell("shop", "n", int, default=1), rt.cell("shop", "out", int)
            rt.register(lambda: source.get() * 2, output=out)
            assert await out.pull() == 2
            with pytest.raises(AuthoringError):
                out.set(99)
            assert await out.pull() == 2

    run(work)


def test_a_write_that_is_tried_again_may_need_a_document_of_another_space(tmp_path: Path) -> None:
    """It was looked for in the space of the write, again and again, and nothing else had its turn."""

    async def work() -> None:
        where = LocalDirectory(tmp_path, synchronous="OFF")
        async with where, Runtime(where) as one, Runtime(where) as two:
            failures: list[Exception] = []
            two.core.on_error(lambda failure: failures.append(failure.error))
            a, b = (each.cell("shop", "n", int, default=0) for each in (one, two))
            one.cell("far", "step", int).set(1_000)
            a.set(1)
            await one.durable()
            await b.pull()
            tries = 0
            for turn in range(100):
                step = two.cell("far", "step" if turn == 0 else f"step{turn}", int, default=1_000)
                calls: list[int] = []

                def again(value: int, step: Any = step, calls: list[int] = calls) -> int:
                    calls.append(value)
                    return value + (10 if len(calls) == 1 else int(step.get()))

                a.update(lambda value: value + 1)
                b.update(again)
                await one.durable()
                await two.durable()
                tries = len(calls)
                if tries > 1:
                    break
            assert tries > 1
            assert failures == []
            assert await b.pull() >= 1_000

    run(work)
