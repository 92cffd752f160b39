"""`rt.pull(fn)`: the result of any function of reads, with everything that it reads up to date."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

import headwater
from headwater import AuthoringError, Cell, Piece, cell, computed
from tests.scenario.pieces_kit import run


class Sum(Piece, name="promises.PulledSum"):
    n: Cell[int] = cell(default=1)

    @computed
    def double(self) -> int:
        return self.n.get() * 2


def test_a_function_of_two_pieces_in_two_spaces_is_pulled(tmp_path: Path) -> None:
    async def work() -> None:
        async with headwater.open(tmp_path) as rt:
            one, two = rt.space("one").piece(Sum, "s"), await rt.space("two").open(Sum, "s")
            assert await rt.pull(lambda: one.double.get() + two.double.get()) == 4
            one.n.set(5)
            two.n.set(7)
            assert await rt.pull(lambda: (one.double.get(), two.double.get())) == (10, 14)

    run(work)


def test_an_error_of_the_function_is_the_callers(tmp_path: Path) -> None:
    async def work() -> None:
        async with headwater.open(tmp_path) as rt:
            one = rt.space("one").piece(Sum, "s")
            with pytest.raises(ZeroDivisionError):
                await rt.pull(lambda: one.double.get() // 0)
            assert await rt.pull(lambda: one.double.get()) == 2

    run(work)


def test_a_pulled_function_writes_nothing(tmp_path: Path) -> None:
    async def work() -> None:
        async with headwater.open(tmp_path) as rt:
            one = rt.space("one").piece(Sum, "s")
            with pytest.raises(AuthoringError):
                await rt.pull(lambda: one.n.set(3))
            assert await one.n.pull() == 1

    run(work)


def test_a_coroutine_that_a_pulled_function_returns_is_refused(tmp_path: Path) -> None:
    async def work() -> None:
        async with headwater.open(tmp_path) as rt:
            with pytest.raises(AuthoringError, match="returned a coroutine"):
                await rt.pull(cast("Any", lambda: _not_plain()))

    run(work)


async def _not_plain() -> int:
    return 1


@pytest.mark.parametrize("wrong", [_not_plain, 3, None])
def test_an_argument_that_is_not_a_plain_function_is_refused(wrong: Any) -> None:
    async def work() -> None:
        async with headwater.Runtime() as rt:
            with pytest.raises(AuthoringError, match="plain function that reads"):
                await rt.pull(wrong)

    run(work)


@pytest.mark.parametrize("name", ["s", "tea, milk"])
def test_function_that_writes_is_refused_with_its_name_and_the_address(name: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with headwater.open(tmp_path) as rt:
            one = rt.space("one").piece(Sum, name)

            def raises_n() -> None:
                one.n.set(3)

            with pytest.raises(AuthoringError) as raised:
                await rt.pull(raises_n)
            refused = f"pull({raises_n.__qualname__}) writes space:{name}:n: a pulled function"
            assert str(raised.value).startswith(refused)
            assert "effect" not in str(raised.value)

    run(work)


@pytest.mark.parametrize("wrong", [3, None, "print"])
def test_sink_without_a_function_is_refused_where_it_is_written(wrong: Any, tmp_path: Path) -> None:
    async def work() -> None:
        async with headwater.open(tmp_path) as rt:
            one = rt.space("one").piece(Sum, "s")
            with pytest.raises(AuthoringError, match=r"write the function to call, as in sink\(print\)"):
                one.n.sink(wrong)

    run(work)
