"""/metrics waits for no space."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path

from headwater.server import DEFAULT_SERVER_LIMITS, Server
from tests.aid.serving import SPACE, serving

LONG_S = 8
LIMITS = replace(DEFAULT_SERVER_LIMITS, metrics_s=0.1)


def scrape(server: Server) -> str:
    connection = HTTPConnection("127.0.0.1", server.address[1], timeout=2 * LONG_S)
    try:
        connection.request("GET", "/metrics")
        response = connection.getresponse()
        assert response.status == 200
        return response.read().decode()
    finally:
        connection.close()


def test_metrics_are_answered_while_a_space_is_busy(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path, limits=LIMITS) as server:
            host = server.service.spaces.host_of(SPACE)
            is_busy, may_end = threading.Event(), threading.Event()
            ended_alone: list[bool] = []

            def work() -> None:
                is_busy.set()
                ended_alone.append(not may_end.wait(LONG_S))

            busy = asyncio.create_task(asyncio.to_thread(host.call, lambda engine, hub: work()))
            await asyncio.to_thread(is_busy.wait)
            for _ in range(3):
                assert "headwater_spaces_open 1.0" in await asyncio.to_thread(scrape, server)
            may_end.set()
            await busy
            assert ended_alone == [False], "the work was over before the page came"

    asyncio.run(play())
