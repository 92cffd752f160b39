"""What a second outside attack found about looking between two slices: a pull sees no half of a pass."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from headwater.runtime.api.runtime import Runtime
from headwater.scheduler.limits import SchedulerLimits
from tests.unit.runtime.kit import run


@pytest.mark.parametrize("is_live", [True, False])
def test_a_pull_waits_for_a_materializer_that_is_above_what_it_looks_at(is_live: bool) -> None:
    async def work() -> None:
        async with Runtime(None, limits=SchedulerLimits(slice_runs=1)) as rt:
            n = rt.cell("shop", "n", int, default=1)
            spread = rt.cell("shop", "spread", Mapping[str, int], default={})
            result = rt.cell("shop", "result", int)
            rt.register(lambda: spread.key("k").set(n.get() * 10), kind="materializer", envelope=(spread,), id="spread")
            rt.register(lambda: spread.key("k").get(0) + 1, output=result, id="result")
            if is_live:
                result.sink(lambda _: None)
            assert await result.pull() == 11
            await rt.idle()
            n.set(2)
            assert await result.pull() == 21

    run(work)
