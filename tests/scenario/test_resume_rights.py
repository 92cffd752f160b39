"""Who may read another space and not write it: what is derived from it is right, ends, and runs at each start."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import headwater
from headwater.engine import ACCESS
from headwater.runtime import Runtime
from headwater.server import Server, new_key, new_token
from tests.invariants.i07_kit import Site
from tests.scenario.test_resume_elsewhere import HERE, RATES, STOCK, UNKNOWN, Goods, Rates, View


def test_a_reader_of_another_space_runs_what_reads_it_at_each_start(tmp_path: Path) -> None:
    """Its derived values of that space stay here; nothing waits for a verdict that will not come."""

    async def story(server: Server) -> None:
        rt = server.application().runtime
        roles: dict[str, tuple[str, ...]] = {"owners": ("cy",), "writers": (), "readers": ("rob",)}
        for name in (STOCK, RATES):
            rt.cell(name, ACCESS.id, headwater.Json).set(roles)
        rt.cell(HERE, ACCESS.id, headwater.Json).set({"owners": ("rob",)})
        goods: Any = await rt.space(STOCK).open(Goods, "s")
        await rt.space(RATES).open(Rates, "r")
        await rt.durable()
        url = f"ws://127.0.0.1:{server.address[1]}"
        for n in range(3):
            await rt.space(STOCK).transact(goods.n.set, 10 * n)
            await rt.durable()
            async with Runtime(url, token=new_token(tmp_path, "rob", ttl_s=600), identity="one", close_s=5) as mine:
                one = Site(mine)
                stock: Any = one.space(STOCK).piece(Goods, "s")
                rates: Any = one.space(RATES).piece(Rates, "r")
                view: Any = await one.space(HERE).open(View(n=stock.n, twice=stock.twice, rate=rates.rate), "v")
                assert await view.all.pull() == (10 * n + 1) + (20 * n + 1) + 3
                await one.settled()
                assert {f"{HERE}/v:plain", f"{HERE}/v:priced"} <= one.taken()
                assert n == 0 or one.counts[UNKNOWN] + one.counts["its code has no fingerprint"] == 3
                assert f"{HERE}/v:near" in one.order if n == 0 else f"{HERE}/v:near" not in one.order

    async def play() -> None:
        new_key(tmp_path)
        server = Server(tmp_path, port=0, owner="cy", classes=(Goods, Rates, View))
        serving = asyncio.create_task(server.run_until_stopped())
        try:
            server.application()
            async with asyncio.timeout(60):
                await story(server)
        finally:
            server.stop()
            await serving

    asyncio.run(play())
