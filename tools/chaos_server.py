"""The server of `tools.chaos`: spaces of a directory without keys, and faults that its parent asks for.

Lines on standard input ask for a fault: `slow SECONDS` holds the thread of every open space, as a slow disk does;
`clock SECONDS` sets the wall clock ahead or back.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import NoReturn

from headwater.clock import RealClock
from headwater.server import Server


class SteppedClock(RealClock):
    """A clock whose wall time can be set."""

    def __init__(self) -> None:
        super().__init__()
        self.step_us = 0

    def now_us(self) -> int:
        return super().now_us() + self.step_us


def hold(server: Server, seconds: float) -> None:
    """Hold the thread of every open space."""
    for host in server.service.spaces.hosts().values():
        if host.failed is None:
            host.ask(lambda engine, hub: time.sleep(seconds), lambda _: None, lambda _: None)


async def serve(directory: str, port: int) -> None:
    clock = SteppedClock()
    server = Server(directory, port=port, insecure_local=True, clock=clock, classes=())
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)

    async def obey() -> NoReturn:
        while True:
            line = (await lines.readline()).split()
            if not line:
                await asyncio.Event().wait()  # The parent is gone; it has killed this process, or a signal ends it.
            seconds = float(line[1])
            if line[0] == b"clock":
                clock.step_us = round(seconds * 1e6)
            else:
                hold(server, seconds)

    faults = asyncio.create_task(obey())
    await server.run_until_stopped(signals=True)
    faults.cancel()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2])))
