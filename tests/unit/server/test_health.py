"""What an operator sees: readiness, holds of the event loop, broken spaces, and an end in bounded time."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from headwater.clock import VirtualClock
from headwater.engine.directory import Directory
from headwater.errors import StorageError
from headwater.server import DEFAULT_SERVER_LIMITS, Server, ServerLimits
from headwater.server.operation.loop_watch import LoopWatch
from tests.aid.serving import WITHIN_S, serving


async def get(server: Server, path: str) -> tuple[int, str]:
    reader, writer = await asyncio.open_connection(*server.address)
    writer.write(f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode())
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    body = await reader.readexactly(int(head.partition("content-length:")[2].split()[0]))
    writer.close()
    return int(head.split()[1]), body.decode()


def play(
    folder: Path, story: Callable[[Server], Awaitable[None]], limits: ServerLimits = DEFAULT_SERVER_LIMITS
) -> None:
    async def run() -> None:
        async with serving(folder, limits=limits) as server:
            await story(server)

    asyncio.run(run())


def test_server_is_not_ready_before_its_start_has_returned(tmp_path: Path) -> None:
    async def story(server: Server) -> None:
        assert await get(server, "/readyz") == (200, "ok\n")
        server.service.health.note_starting()
        status, told = await get(server, "/readyz")
        assert status == 503
        assert told.startswith("starting for 0 s")
        assert (await get(server, "/healthz"))[0] == 200
        server.service.health.note_started()
        assert (await get(server, "/readyz"))[0] == 200

    play(tmp_path, story)


def test_server_whose_disk_is_full_is_not_ready(tmp_path: Path) -> None:
    async def story(server: Server) -> None:
        status, told = await get(server, "/readyz")
        assert status == 503
        assert told.startswith("the disk is full: ")
        assert "headwater_disk_free_bytes" in (await get(server, "/metrics"))[1]

    play(tmp_path, story, replace(DEFAULT_SERVER_LIMITS, free_bytes=1 << 62))


def test_broken_space_is_counted_and_leaves_the_server_ready(tmp_path: Path) -> None:
    with Directory(tmp_path) as directory:
        directory.space("broken").fork("b")
    file = tmp_path / "broken.space"
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])

    async def story(server: Server) -> None:
        with pytest.raises(StorageError):
            await server.service.spaces.enter("broken", visits=True)
        status, told = await get(server, "/readyz")
        assert (status, told) == (200, "ok\nspaces that stopped and were not opened again: 1\n")
        assert "headwater_spaces_broken 1.0" in (await get(server, "/metrics"))[1]

    play(tmp_path, story)


def test_holds_of_the_event_loop_are_counted() -> None:
    async def run() -> None:
        clock = VirtualClock()
        watch = LoopWatch(clock, every_s=0.001, bound_s=0.05)
        watch.start()
        loop = asyncio.get_running_loop()
        for held_us in (40_000, 60_000, 80_000):
            loop.call_soon(clock.advance, held_us)  # Work that holds the loop for so long.
            while watch.longest_us < held_us - 1_000:
                await asyncio.sleep(0)
        assert watch.holds == 2
        assert watch.longest_us >= 79_000
        assert watch.longest_us >= 79_000  # It is shown to everyone who asks.
        watch.stop()

    asyncio.run(asyncio.wait_for(run(), WITHIN_S))


STUCK = """
import asyncio, sys, threading
from dataclasses import replace
from headwater.server import DEFAULT_SERVER_LIMITS, Server

async def run():
    server = Server(sys.argv[1], port=0, insecure_local=True, limits=replace(DEFAULT_SERVER_LIMITS, stop_s=0.5))
    await server.service.spaces.enter("stuck")
    never = threading.Event()
    server.service.spaces.host_of("stuck").ask(lambda engine, hub: never.wait(), print, print)
    task = asyncio.create_task(server.run_until_stopped(signals=True))
    while not server.started:
        await asyncio.sleep(0.01)
    print("serving", flush=True)
    await task

asyncio.run(run())
"""


def test_process_ends_in_bounded_time_with_exit_code_0_although_a_space_hangs(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STUCK, str(tmp_path)], stdout=subprocess.PIPE, text=True, env={**os.environ}
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "serving\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
