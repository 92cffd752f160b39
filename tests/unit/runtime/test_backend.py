"""An embedded directory: what is being opened when its runtime ends is closed with it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import headwater
from headwater.engine.limits import Limits
from headwater.engine.sync.hub import Hub
from headwater.runtime.api.runtime import Runtime
from headwater.runtime.channel.backend import LocalDirectory
from tests.unit.runtime.kit import run


def test_a_space_that_is_being_opened_while_its_runtime_ends_is_let_go(tmp_path: Path) -> None:
    async def work() -> None:
        for number in range(8):
            async with headwater.open(tmp_path) as rt:
                rt.cell("shop", "n", int).set(number)
            async with headwater.open(tmp_path) as rt:
                rt.space("shop")  # Connecting has begun, and nobody waits for it.
                for _ in range(number % 5):
                    await asyncio.sleep(0)
            async with headwater.open(tmp_path) as rt:
                assert await rt.cell("shop", "n", int).pull() == number

    run(work)


def test_whoever_stops_waiting_for_a_host_leaves_nothing_open(tmp_path: Path) -> None:
    async def work() -> None:
        for _ in range(5):
            data = LocalDirectory(tmp_path)
            waiting = [asyncio.ensure_future(data.host("shop")) for _ in range(3)]
            await asyncio.sleep(0)
            for each in waiting[:2]:
                each.cancel()
            host = await waiting[2]
            assert await data.host("shop") is host
            late = asyncio.ensure_future(data.host("late"))
            await asyncio.sleep(0)
            late.cancel()
            await data.close()
            assert host.failed is None

    run(work)


@pytest.mark.parametrize("disk", ["quick", "slow"])
def test_the_loop_does_the_engine_s_work_while_the_disk_is_quick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disk: str
) -> None:
    """Waking a thread costs as much as the work. A slow disk must not stop an event loop, though."""
    limits = Limits(slow_step_us=10**9) if disk == "quick" else Limits(slow_step_us=1, message_us=1)
    threads: list[int] = []
    process: Callable[..., None] = Hub.process

    def processed(hub: Hub, batch: Sequence[object]) -> None:
        threads.append(threading.get_ident())
        process(hub, batch)

    monkeypatch.setattr(Hub, "process", processed)

    async def work() -> None:
        async with LocalDirectory(tmp_path, limits=limits) as data, Runtime(data) as rt:
            found: list[bool] = []  # whether the loop did it
            for number in range(50):  # What comes while the host's thread ends its last step is done by that thread.
                threads.clear()
                rt.cell("shop", "n", int).set(number)
                await rt.durable()
                assert threads
                found.append(set(threads) == {threading.get_ident()})
            assert any(found[1:]) == (disk == "quick")

    run(work)
