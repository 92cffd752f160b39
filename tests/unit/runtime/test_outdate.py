"""A node whose code is another runs again; its readers only if its value is another."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from headwater.runtime.api.runtime import Runtime


def play(act: Callable[[Runtime], Awaitable[None]]) -> None:
    async def main() -> None:
        async with Runtime() as rt:
            await act(rt)

    asyncio.run(main())


def test_an_outdated_node_runs_and_an_equal_value_runs_nobody_else() -> None:
    async def act(rt: Runtime) -> None:
        number = rt.cell("s", "number", int, default=1)
        total, shown = rt.cell("s", "total", int), []
        factor = [2]
        node = rt.register(lambda: number.get() * factor[0], output=total, id="total")
        effect = rt.register(lambda: shown.append(total.get()), kind="effect", id="show")
        await rt.idle()
        rt.core.scheduler.outdate(node.node)
        await rt.idle()
        assert (node.node.runs, effect.node.runs, shown) == (2, 1, [2])
        factor[0] = 3
        rt.core.scheduler.outdate(node.node)
        await rt.idle()
        assert (node.node.runs, effect.node.runs, shown) == (3, 2, [2, 3])

    play(act)


def test_what_nobody_demands_runs_when_somebody_does() -> None:
    async def act(rt: Runtime) -> None:
        total: Any = rt.cell("s", "total", int)
        node = rt.register(lambda: 1, output=total, id="total")
        assert await total.pull() == 1
        rt.core.scheduler.outdate(node.node)
        await rt.idle()
        assert node.node.runs == 1
        assert await total.pull() == 1
        assert node.node.runs == 2

    play(act)


def test_a_node_that_never_ran_or_is_gone_is_left_alone() -> None:
    async def act(rt: Runtime) -> None:
        node = rt.register(lambda: 1, output=rt.cell("s", "total", int), id="total")
        rt.core.scheduler.outdate(node.node)
        await rt.idle()
        assert node.node.runs == 0
        rt.core.remove(node.node)
        rt.core.scheduler.outdate(node.node)
        await rt.idle()
        assert node.node.runs == 0

    play(act)
