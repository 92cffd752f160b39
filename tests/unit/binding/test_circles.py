"""Computeds that stand on each other say so, and name the way round."""

from __future__ import annotations

import pytest

from headwater import AbsentError, Cell, Piece, Runtime, UpstreamFailedError, cell, computed
from tests.unit.binding.kit import alone, run


class Ring(Piece):
    n: Cell[int] = cell(default=1)

    @computed
    def first(self) -> int:
        return self.n.get() + self.second.get()

    @computed
    def second(self) -> int:
        return self.third.get()

    @computed
    def third(self) -> int:
        return self.first.get()

    @computed
    def own(self) -> int:
        return self.own.get() + 1

    @computed
    def above(self) -> int:
        return self.first.get()

    @computed
    def patient(self) -> int:
        return min(self.impatient.get(0) + 1, 3)

    @computed
    def impatient(self) -> int:
        return self.patient.get(0)


def test_computeds_that_read_each_other_name_the_circle() -> None:
    async def work() -> None:
        async with alone() as (rt, _):
            ring = await rt.space("s").open(Ring, "r")
            with pytest.raises(UpstreamFailedError) as failed:
                await ring.first.pull()
            assert "because it stands on itself: " in str(failed.value)
            way = (
                str(failed.value).partition("stands on itself: ")[2].partition(". Let one of them")[0].split(" reads ")
            )
            assert way[0] == way[-1]
            assert sorted(way[1:]) == ["s/r:first", "s/r:second", "s/r:third"]
            assert isinstance(failed.value.__cause__, AbsentError)
            with pytest.raises(UpstreamFailedError, match="stands on itself"):
                await ring.above.pull()
            with pytest.raises(UpstreamFailedError, match=r"itself: s/r:own reads s/r:own\. Let"):
                await ring.own.pull()

    run(work)


def test_a_circle_that_says_where_it_begins_is_computed() -> None:
    async def work() -> None:
        async with alone() as (rt, _):
            ring = await rt.space("s").open(Ring, "r")
            assert await ring.patient.pull() == 3

    run(work)


def test_what_is_absent_and_in_no_circle_says_what_it_said() -> None:
    async def work() -> None:
        async with Runtime() as rt:
            missing = rt.cell("s", "missing", int)
            out = rt.cell("s", "out", int)
            rt.register(missing.get, id="reads it", output=out)
            with pytest.raises(UpstreamFailedError, match="nothing is at space:missing: write it first"):
                await out.pull()

    run(work)
