"""/metrics waits for no space."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path

from headwater.clock import RealClock
from headwater.server import DEFAULT_SERVER_LIMITS, Server
from tests.aid.serving import SPACE, Pad, serving

LONG_S = 60
LIMITS = replace(DEFAULT_SERVER_LIMITS, metrics_s=0.1)


class StoppedClock(RealClock):
    """A clock that, once it is stopped, keeps the first thread waiting that reads it beside the event loop's."""

    def __init__(self) -> None:
        self._loop = threading.current_thread()
        self.is_stopped = False
        self.is_read, self.may_go_on = threading.Event(), threading.Event()
        self.went_on_alone: list[bool] = []

    def now_us(self) -> int:
        if self.is_stopped and threading.current_thread() is not self._loop and not self.is_read.is_set():
            self.is_read.set()
            self.went_on_alone.append(not self.may_go_on.wait(LONG_S))
        return super().now_us()


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
        clock = StoppedClock()
        async with serving(tmp_path, limits=LIMITS, clock=clock) as server:
            clock.is_stopped = True
            renamed = asyncio.create_task(server.application().runtime.space(SPACE).piece(Pad, "main").rename.send("x"))
            await asyncio.to_thread(clock.is_read.wait)
            for _ in range(3):
                assert "headwater_spaces_open 1.0" in await asyncio.to_thread(scrape, server)
            assert not renamed.done()
            clock.may_go_on.set()
            assert await renamed == "x"
            assert clock.went_on_alone == [False], "the space went on before the page came"

    asyncio.run(play())
