"""An event costs the same whatever the size of the value that it changes, but for two copies of that value."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import headwater
from headwater import Cell, Piece, cell, handler
from headwater.engine.limits import Limits
from headwater.runtime import LocalDirectory, Runtime
from headwater.runtime.channel import driver
from headwater.runtime.core.limits import RuntimeLimits

SMALL, LARGE = 10, 20_000


class Store(Piece, name="sizes.Store"):
    lines: Cell[tuple[int, ...]] = cell(default=())
    counts: Cell[Mapping[str, int]] = cell(default={})

    @handler
    def push(self, number: int) -> None:
        self.lines.push(number)

    @handler
    def count(self, number: int) -> None:
        self.counts.key("k3").set(number)

    @handler
    def rise(self, number: int) -> None:
        self.counts.key("k3").increment(number)


class Calls:
    """Calls of Python and C functions in all threads, and copies of objects among them."""

    def __init__(self) -> None:
        self.count = 0
        self.copies = 0
        self.is_on = False

    def __call__(self, _: FrameType, event: str, called: Any) -> None:
        if self.is_on and event in ("call", "c_call"):
            self.count += 1
            if event == "c_call" and getattr(called, "__qualname__", "") == "dict.copy":
                self.copies += len(called.__self__) > SMALL


def costs(folder: Path, size: int, name: str) -> tuple[int, int]:
    """The calls of one event, and the copies of large objects."""
    calls = Calls()

    async def work() -> None:
        # Without waits for a thread, so that the count is the same each time.
        async with LocalDirectory(folder, limits=Limits(slow_step_us=10**9)) as data, Runtime(data) as rt:
            store = await rt.space("s").open(Store, "x")
            store.lines.set(tuple(range(size)))
            store.counts.set({f"k{number}": number for number in range(size)})
            await rt.durable()
            counts = []
            for number in range(8):
                await rt.settled()
                calls.count = calls.copies = 0
                calls.is_on = True
                await getattr(store, name).send(1_000_000 + number)
                await rt.durable()
                calls.is_on = False
                counts.append((calls.count, calls.copies))
            least.append(min(counts))

    least: list[tuple[int, int]] = []
    threading.setprofile(calls)
    sys.setprofile(calls)
    try:
        headwater.run(work)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return least[0]


@pytest.mark.parametrize("name", ["push", "count", "rise"])
def test_event_on_a_large_value_makes_as_many_calls_as_on_a_small_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(driver, "RUNTIME_LIMITS", RuntimeLimits(ack_delay_s=60.0))  # It depends on real time.
    small, _ = costs(tmp_path / "small", SMALL, name)
    large, copies = costs(tmp_path / "large", LARGE, name)
    assert large <= 1.1 * small, (small, large)
    assert copies <= 2, "the transaction and the engine make a new value each"
