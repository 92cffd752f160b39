"""Events under contention: eight runtimes that send to one piece, over real sockets, to a server of its own process.

An event counts when its handling is durable. `hot` is fifty events at once that each read a number and write the next
one; what is lost is counted in the end. `transfers` takes from one account and gives to another, where either all
accounts are equally likely or a few are nearly always meant.
"""

from __future__ import annotations

import asyncio
import resource
import tempfile
import time
from bisect import bisect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import accumulate
from pathlib import Path
from random import Random
from statistics import median, quantiles
from typing import Final

import uvloop

import headwater
from bench.figures import Figures, note
from bench.sync import server
from headwater import Cell, Piece, Policy, Runtime, cell, handler

RUNTIMES: Final = 8
AT_ONCE: Final = 50  # events without an end, in all
ROUNDS: Final = 3
SECONDS: Final = 4.0
ACCOUNTS: Final = 1_000
IN_FLIGHT: Final = 8  # transfers of one runtime without an end
BURST: Final = 10_000
STREAMS: Final = 100
ALONE: Final = 200  # events in a round, one after the other
POLICY: Final = Policy(intents_kept=1_000_000, backlog=BURST, in_hand=2 * BURST)


class Counter(Piece, name="bench.Counter"):
    n: Cell[int] = cell(default=0)

    @handler
    def bump(self) -> None:
        self.n.set(self.n.get() + 1)

    @handler
    def add(self) -> None:
        self.n.increment(1)


class Bank(Piece, name="bench.Bank"):
    accounts: Cell[Mapping[str, int]] = cell(default={})

    @handler
    def found(self, count: int) -> None:
        self.accounts.set({str(number): 0 for number in range(count)})

    @handler
    def transfer(self, source: str, target: str, cents: int) -> None:
        taken, given = self.accounts.key(source), self.accounts.key(target)
        taken.set(taken.get() - cents)
        given.set(given.get() + cents)


def run(figures: Figures) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="headwater-bench-") as name,
        server(Path(name) / "data") as (port, _),
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(hot(figures, port))
        runner.run(transfers(figures, port))
    with (
        tempfile.TemporaryDirectory(prefix="headwater-bench-") as name,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(alone(figures, Path(name) / "alone"))
        runner.run(burst(figures, Path(name) / "burst"))


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[list[Runtime]]:
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(headwater.connect(f"ws://127.0.0.1:{port}", token="", policy=POLICY))
            for _ in range(RUNTIMES)
        ]


# ---- one hot document ------------------------------------------------------------------------------------


async def hot(figures: Figures, port: int) -> None:
    """Fifty events at once, again and again: read-modify-write, and then intents."""
    async with connected(port) as runtimes:
        counters = [runtime.space("hot").piece(Counter, "one") for runtime in runtimes]
        await asyncio.gather(*(counter.bump.send() for counter in counters))
        sent = RUNTIMES
        for name, sends in (
            ("read_modify_write", [counter.bump.send for counter in counters]),
            ("intents", [counter.add.send for counter in counters]),
        ):
            tried = attempts(runtimes)
            times: list[float] = []
            began = time.perf_counter()
            for turn in range(ROUNDS):
                note(f"  hot, {name}: round {turn + 1} of {ROUNDS}")
                await together(sends, times)
            rate = len(times) / (time.perf_counter() - began)
            tried = attempts(runtimes) - tried
            sent += len(times)
            figures.report(f"events.hot.{name}", rate, "/s")
            figures.report(f"events.hot.{name}.attempts", tried / len(times), "attempts/landed")
            figures.report(f"events.hot.{name}.land_p50", median(times) * 1_000, "ms")
            figures.report(f"events.hot.{name}.land_p99", quantiles(times, n=100)[98] * 1_000, "ms")
            if name == "intents":
                figures.report("events.hot.intents.conflicts", tried - len(times), "conflicts", at_most=0)
        shown = await counters[0].n.pull()
        figures.report("events.hot.lost", sent - shown, "events", at_most=0)


async def together(sends: Sequence[Callable[[], Awaitable[None]]], times: list[float]) -> None:
    """Fifty senders, spread over the runtimes, each of which sends ten events, one after the other."""

    async def sender(send: Callable[[], Awaitable[None]]) -> None:
        for _ in range(10):
            began = time.perf_counter()
            await send()
            times.append(time.perf_counter() - began)

    await asyncio.gather(*(sender(sends[number % len(sends)]) for number in range(AT_ONCE)))


def attempts(runtimes: Sequence[Runtime]) -> int:
    return sum(row.attempts for runtime in runtimes for row in runtime.intents())


# ---- transfers between accounts ----------------------------------------------------------------------------


class Accounts:
    """Draws accounts: number k with a weight of k to the power of minus `skew`."""

    def __init__(self, skew: float, seed: int) -> None:
        self._random = Random(seed)
        self._sums = list(accumulate((k + 1) ** -skew for k in range(ACCOUNTS)))

    def two(self) -> tuple[str, str]:
        one = other = self._one()
        while other == one:
            other = self._one()
        return str(one), str(other)

    def _one(self) -> int:
        return min(bisect(self._sums, self._random.random() * self._sums[-1]), ACCOUNTS - 1)


async def transfers(figures: Figures, port: int) -> None:
    async with connected(port) as runtimes:
        banks = [runtime.space("bank").piece(Bank, "one") for runtime in runtimes]
        await banks[0].found.send(ACCOUNTS)
        for bank in banks:
            await bank.accounts.pull()
        rates: dict[str, list[float]] = {"uniform": [], "zipf": []}
        tried: dict[str, int] = dict.fromkeys(rates, 0)
        landed: dict[str, int] = dict.fromkeys(rates, 0)
        for turn in range(ROUNDS):
            for name, skew in (("uniform", 0.0), ("zipf", 1.5)):
                note(f"  transfers, {name}: round {turn + 1} of {ROUNDS}")
                before = attempts(runtimes)
                began = time.perf_counter()
                counts = await asyncio.gather(
                    *(
                        transferring(bank, Accounts(skew, 100 * turn + number), began + SECONDS)
                        for number, bank in enumerate(banks)
                        for _ in range(IN_FLIGHT)
                    )
                )
                rates[name].append(sum(counts) / (time.perf_counter() - began))
                tried[name] += attempts(runtimes) - before
                landed[name] += sum(counts)
        sums = sum((await banks[0].accounts.pull()).values())
    uniform, zipf = max(rates["uniform"]), max(rates["zipf"])
    figures.report("events.transfers.uniform", uniform, "/s")
    figures.report("events.transfers.zipf", zipf, "/s", against="uniform", ratio=zipf / uniform, at_least=0.5)
    for name in rates:
        figures.report(f"events.transfers.{name}.attempts", tried[name] / landed[name], "attempts/landed")
    figures.report("events.transfers.sum", abs(sums), "cents made or lost", at_most=0)


async def transferring(bank: Bank, accounts: Accounts, until: float) -> int:
    done = 0
    while time.perf_counter() < until:
        source, target = accounts.two()
        await bank.transfer.send(source, target, 1)
        done += 1
    return done


# ---- one at a time, and very many at once ------------------------------------------------------------------


async def alone(figures: Figures, folder: Path) -> None:
    """From sending to durable, beside one bare commit of the same session. They take turns."""
    async with headwater.open(folder, policy=POLICY) as runtime:
        space = runtime.space("alone")
        counter = space.piece(Counter, "one")
        bare = runtime.cell("alone", "bare", int, default=0)
        await counter.bump.send()
        best = {"send": float("inf"), "commit": float("inf")}
        for turn in range(ROUNDS):
            note(f"  one at a time: round {turn + 1} of {ROUNDS}")
            for name, act in (("send", counter.bump.send), ("commit", lambda: space.transact(bare.increment, 1))):
                began = time.perf_counter()
                for _ in range(ALONE):
                    await act()
                best[name] = min(best[name], (time.perf_counter() - began) / ALONE)
    ratio = best["send"] / best["commit"]
    figures.report("events.send", best["send"] * 1e6, "us", against="one bare commit", ratio=ratio)


async def burst(figures: Figures, folder: Path) -> None:
    """Ten thousand events over a hundred streams, all sent before any of them is handled."""
    async with headwater.open(folder, policy=POLICY) as runtime:
        space = runtime.space("burst")
        counters = [space.piece(Counter, f"c{number}") for number in range(STREAMS)]
        await asyncio.gather(*(counter.add.send() for counter in counters))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began = time.perf_counter()
        await asyncio.gather(*(counters[number % STREAMS].bump.send() for number in range(BURST)))
        took = time.perf_counter() - began
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        shown = sum([await counter.n.pull() for counter in counters])
    figures.report("events.burst", BURST / took, "/s")
    figures.report("events.burst.memory", (after - before) / BURST, "KiB/event at most")
    figures.report("events.burst.lost", STREAMS + BURST - shown, "events", at_most=0)
