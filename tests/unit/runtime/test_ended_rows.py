"""The row of an element that has left is over: it does not fail, whoever hears of that first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headwater import Cell, Input, Piece, cell, each
from tests.scenario.pieces_kit import alone, run


class Book(Piece):
    numbers: Cell[Mapping[str, int]] = cell(default={"a": 1, "b": 2})

    @each(numbers)
    def tenths(self, number: Input[int]) -> int:
        return 10 // number.get()


def test_a_row_that_is_tried_before_its_child_set_is_up_to_date_waits_for_it() -> None:
    async def work() -> None:
        async with alone() as (rt, errors):
            book: Any = await rt.space("s").open(Book, "b", setup=lambda b: b.numbers.set({"a": 1, "b": 2}))
            assert dict(await book.tenths.pull()) == {"a": 10, "b": 5}
            loads, pass_ = rt.core.scheduler.loads, rt.core.scheduler.pass_
            child_set = rt.core.scheduler.registry.get("s/b:tenths")
            assert child_set is not None
            book.numbers.key("b").delete()
            loads.wait(child_set, loads.winner)  # As when its own document has yet to come, after a reconnection.
            await rt.idle()
            assert errors == []
            for node in loads.arrived(loads.winner):
                pass_.enqueue(node)
            await rt.idle()
            assert dict(await book.tenths.pull()) == {"a": 10}
            assert errors == []

    run(work)


def test_a_row_that_fails_by_itself_says_so_and_goes_on_when_it_can() -> None:
    async def work() -> None:
        async with alone() as (rt, errors):
            book: Any = await rt.space("s").open(Book, "b")
            book.numbers.key("a").set(0)
            await rt.idle()
            assert [type(each.error) for each in errors] == [ZeroDivisionError]
            book.numbers.key("a").set(5)
            assert dict(await book.tenths.pull()) == {"a": 2, "b": 5}
            assert len(errors) == 1

    run(work)
