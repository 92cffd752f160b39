"""Nodes that come back in programs of servers: for users with different rights, and in the application itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater import Cell, Piece, cell, effect
from headwater.engine import ACCESS
from headwater.runtime import Runtime
from headwater.server import Server, new_key, new_token
from tests.invariants.i07_kit import Site
from tests.scenario.test_resume_elsewhere import HERE, RATES, STOCK, UNKNOWN, Goods, Rates, View


def _on_server(folder: Path, story: Callable[[Server], Awaitable[None]]) -> None:
    """Play a story with a server whose owner is cy."""

    async def play() -> None:
        new_key(folder)
        server = Server(folder, port=0, owner="cy", classes=(Goods, Rates, View))
        serving = asyncio.create_task(server.run_until_stopped())
        try:
            server.application()
            async with asyncio.timeout(60):
                await story(server)
        finally:
            server.stop()
            await serving

    asyncio.run(play())


@pytest.mark.parametrize("user", ["wes", "rob"])
def test_program_of_a_writer_or_reader_resumes_nodes_of_the_owner(tmp_path: Path, user: str) -> None:
    async def story(server: Server) -> None:
        rt = server.application().runtime
        roles = {"owners": ("cy",), "writers": ("wes",), "readers": ("rob",)}
        rt.cell(STOCK, ACCESS.id, headwater.Json).set(roles)
        goods: Any = await rt.space(STOCK).open(Goods, "s")
        assert await goods.twice.pull() == 2
        await rt.settled()
        await rt.durable()
        for n in (3, 5):
            await rt.space(STOCK).transact(goods.n.set, n)
            assert await goods.twice.pull() == 2 * n
            await rt.settled()
            await rt.durable()
            url = f"ws://127.0.0.1:{server.address[1]}"
            async with Runtime(url, token=new_token(tmp_path, user, ttl_s=600), close_s=5) as mine:
                one = Site(mine)
                theirs: Any = await one.space(STOCK).open(Goods, "s")
                assert await theirs.twice.pull() == 2 * n
                await one.settled()
                assert one.taken() == set()

    _on_server(tmp_path, story)


def test_clean_effect_of_an_application_does_not_run_when_its_server_starts_again(tmp_path: Path) -> None:
    shown: list[int] = []

    class Sign(Piece, name="rights.Sign"):
        n: Cell[int] = cell(default=1)

        @effect
        def show(self) -> None:
            shown.append(self.n.get())

    async def story(server: Server) -> None:
        rt = server.application().runtime
        sign = await rt.space("signs").open(Sign, "s")
        if is_changing and sign.n.get() == 1:
            await rt.space("signs").transact(sign.n.set, 2)
        await rt.settled()
        await rt.durable()

    is_changing = False
    _on_server(tmp_path, story)
    assert shown == [1]
    _on_server(tmp_path, story)
    assert shown == [1]
    is_changing = True
    _on_server(tmp_path, story)
    assert shown == [1, 2], "it is resumed, and runs for what is written"
    _on_server(tmp_path, story)
    assert shown == [1, 2]


def test_reader_of_another_space_resumes_what_did_not_change_there(tmp_path: Path) -> None:
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
                ran = one.taken()
                assert f"{HERE}/v:plain" in ran
                assert (f"{HERE}/v:priced" in ran) is (n == 0), "no rate was written since"
                assert one.counts[UNKNOWN] == 0
                assert n == 0 or one.counts["its code has no fingerprint"] == 1, "a local result has no seq"
                assert f"{HERE}/v:near" in one.order if n == 0 else f"{HERE}/v:near" not in one.order

    _on_server(tmp_path, story)
