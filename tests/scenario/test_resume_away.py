"""Writes while no process had a piece open: exactly the nodes that read a written document run afterwards."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from headwater import AbsentError, Cell, Input, Json, Piece, Runtime, cell, computed, effect, given
from headwater.engine import Limits
from headwater.runtime import LocalDirectory
from tests.scenario.pieces_kit import Ranned, run

SMALL_PAGES = Limits(page=3)
"""An engine with these limits answers every question about many commits in parts."""


class Chart(Piece, name="away.Chart"):
    data: Cell[Mapping[str, Json]] = cell(default={})
    other: Cell[int] = cell(default=0)

    @computed
    def whole(self) -> int:
        return len(str(sorted(self.data.get().items(), key=str)))

    @computed
    def x(self) -> str:
        return str(self.data.key("x").get(None))

    @computed
    def z(self) -> str:
        return str(self.data.key("z").get(None))

    @computed
    def later(self) -> str:
        return str(self.data.key("later").get(None))

    @computed
    def beside(self) -> int:
        return self.other.get()

    @effect
    def show(self) -> None:
        self.whole.get(), self.x.get(), self.z.get(), self.later.get(), self.beside.get()


MEMBERS = ("whole", "x", "z", "later", "beside")


def member_runs(ran: Ranned) -> set[str]:
    """The computeds that ran, as `piece:member`."""
    found = [re.fullmatch(r"s/([^ :]+:[^ ]+)", name) for name in ran.taken().runs]
    return {each[1] for each in found if each is not None}


async def ran_after(folder: Path, *names: str, write: Callable[[Runtime], object]) -> set[str]:
    """The computeds that run in a new process, after another one wrote while the pieces were not open."""
    async with LocalDirectory(folder, synchronous="OFF", limits=SMALL_PAGES) as data:
        async with Runtime(data, identity="one") as rt:
            for name in names:
                await rt.space("s").open(Chart, name)
            await rt.settled()
            await rt.durable()
        async with Runtime(data, observe=False) as rt:
            write(rt)
            await rt.durable()
        async with Runtime(data, identity="one") as rt:
            ran = Ranned(rt)
            charts: list[Any] = [await rt.space("s").open(Chart, name) for name in names]
            await rt.settled()
            for chart in charts:
                for member in MEMBERS:
                    await getattr(chart, member).pull()
            return member_runs(ran)


def in_data(rt: Runtime, name: str = "a") -> Any:
    return rt.cell("s", f"{name}:data", Mapping[str, Json])


async def prepare(folder: Path, *names: str) -> None:
    async with LocalDirectory(folder, synchronous="OFF") as data, Runtime(data) as rt:
        for name in names:
            chart = await rt.space("s").open(Chart, name)
            chart.data.set({"x": {"y": 1}, "z": 1})


WRITES: dict[str, tuple[Callable[[Runtime], object], set[str]]] = {
    "nothing": (lambda rt: None, set()),
    "a document that no node reads": (lambda rt: rt.cell("s", "none", int).set(1), set()),
    "a place below one that is read": (
        lambda rt: in_data(rt).key("x").set({"y": 2}),
        {"a:whole", "a:x"},
    ),
    "a place that was absent": (lambda rt: in_data(rt).key("later").set(1), {"a:whole", "a:later"}),
    "a document that did not exist": (lambda rt: rt.cell("s", "a:other", int).set(5), {"a:beside"}),
    "all of a document": (lambda rt: in_data(rt).set({"x": {"y": 3}, "z": 2}), {"a:whole", "a:x", "a:z"}),
}


@pytest.mark.parametrize("what", WRITES)
def test_exactly_the_readers_of_a_written_place_run(tmp_path: Path, what: str) -> None:
    write, expected = WRITES[what]

    async def work() -> None:
        await prepare(tmp_path, "a", "b")
        assert await ran_after(tmp_path, "a", "b", write=write) == expected

    run(work)


def test_one_write_is_found_among_many_commits(tmp_path: Path) -> None:
    def write(rt: Runtime) -> None:
        in_data(rt).key("z").set(7)
        for number in range(40):
            rt.cell("s", "none", int, default=0).set(number)

    async def work() -> None:
        await prepare(tmp_path, "a", "b")
        assert await ran_after(tmp_path, "a", "b", write=write) == {"a:whole", "a:z"}

    run(work)


def test_of_many_pieces_those_run_that_read_a_written_document(tmp_path: Path) -> None:
    names = [f"p{number}" for number in range(30)]

    def write(rt: Runtime) -> None:
        for name in ("p3", "p17", "p29"):
            in_data(rt, name).key("z").set(7)

    async def work() -> None:
        await prepare(tmp_path, *names)
        found = await ran_after(tmp_path, *names, write=write)
        assert found == {f"{name}:{member}" for name in ("p3", "p17", "p29") for member in ("whole", "z")}

    run(work, too_long_s=60)


# ---- other spaces ------------------------------------------------------------------------------------------


class Price(Piece, name="away.Price"):
    rate: Input[int] = given()
    tax: Input[int] = given()

    @computed
    def total(self) -> int:
        try:
            return 10 * self.rate.get()
        except AbsentError:
            return -1

    @computed
    def taxed(self) -> int:
        return self.tax.get() + 1


async def opened(rt: Runtime) -> Price:
    price = Price(rate=rt.cell("rates", "rate", int), tax=rt.cell("taxes", "tax", int, default=0))
    return await rt.space("s").open(price, "p")


async def values(rt: Runtime) -> tuple[int, int]:
    price = await opened(rt)
    return await price.total.pull(), await price.taxed.pull()


def test_first_write_of_another_space_is_found_by_its_readers(tmp_path: Path) -> None:
    async def work() -> None:
        async with LocalDirectory(tmp_path, synchronous="OFF") as data:
            async with Runtime(data, identity="one") as rt:
                assert await values(rt) == (-1, 1)
                await rt.durable()
            async with Runtime(data, identity="one") as rt:
                ran = Ranned(rt)
                assert await values(rt) == (-1, 1)
                assert member_runs(ran) == set()
            async with Runtime(data, observe=False) as rt:
                rt.cell("rates", "rate", int).set(3)
                await rt.durable()
            async with Runtime(data, identity="one") as rt:
                ran = Ranned(rt)
                assert await values(rt) == (30, 1)
                assert member_runs(ran) == {"p:total"}

    run(work)


def test_readers_of_two_runtimes_are_all_found(tmp_path: Path) -> None:
    """Either runtime ran other nodes of the piece: neither forgets the reads of the other."""

    async def work() -> None:
        async with LocalDirectory(tmp_path, synchronous="OFF") as data:
            async with Runtime(data) as one, Runtime(data) as two:
                first, second = await opened(one), await opened(two)
                assert (await first.total.pull(), await second.taxed.pull()) == (-1, 1)
                await one.durable()
                await two.durable()
            async with Runtime(data, observe=False) as rt:
                rt.cell("rates", "rate", int).set(3)
                rt.cell("taxes", "tax", int).set(4)
                await rt.durable()
            async with Runtime(data) as rt:
                ran = Ranned(rt)
                assert await values(rt) == (30, 5)
                assert member_runs(ran) == {"p:total", "p:taxed"}

    run(work)
