"""I1: what a node computes is written by that node alone."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.errors import AuthoringError
from headwater.runtime.api.runtime import Runtime
from tests.unit.runtime.kit import run


def test_a_transaction_does_not_write_what_a_node_computes_either() -> None:
    async def work() -> None:
        async with Runtime() as rt:
            shop = rt.space("shop")
            x, o = shop.cell("x", int, default=1), shop.cell("o", int)
            rt.register(lambda: x.get() * 2, output=o, id="double")
            seen: list[int] = []
            o.sink(seen.append)
            assert await o.pull() == 2
            with pytest.raises(AuthoringError, match="computed by double"):
                o.set(77)
            with pytest.raises(AuthoringError, match="computed by double"):
                await shop.transact(lambda: o.set(77))
            await rt.settled()
            assert (await o.pull(), seen) == (2, [2])

    run(work)


@pytest.mark.parametrize("second", ["computation", "side write", "materializer"])
def test_what_a_node_computes_has_one_writer(second: str) -> None:
    async def work() -> None:
        async with Runtime() as rt:
            shop = rt.space("shop")
            x, o, p = shop.cell("x", int, default=1), shop.cell("o", int), shop.cell("p", int)
            rt.register(lambda: x.get() * 2, output=o, id="double")

            def other() -> int:
                o.set(55)
                return 1

            options: dict[str, dict[str, Any]] = {
                "computation": {"output": o},
                "side write": {"output": p, "writes": [o]},
                "materializer": {"kind": "materializer", "envelope": [o]},
            }
            with pytest.raises(AuthoringError, match="which is the result of 'double'"):
                rt.register(other, id="second", **options[second])

    run(work)
