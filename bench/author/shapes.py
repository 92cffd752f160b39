"""Measurements of pieces through the public API: embedded, with FULL durability, in the process that calls them.

Time is that of the processor, of all threads, until everything is settled, idle and durable; latencies are by the
clock. Each function reports a figure as soon as it is known: if it is stopped, the earlier figures are not lost.
"""

from __future__ import annotations

import asyncio
import gc
import time
import tracemalloc
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final, TypeAlias

import headwater
from bench.author.pieces import Cart, Counter, Link, Table, rows, wide, wide_total
from bench.sync import resident_bytes, server
from headwater import Policy, Runtime, Space

Report: TypeAlias = Callable[[str, float], None]
"""Called with the name and the value of each figure."""

SPACE: Final = "bench"
OURS: Final = "headwater"
TEN: Final = 10  # computeds of a small piece
WARM: Final = 3
CHANGES: Final = 7
ROUNDS: Final = 3  # of events, of which the median counts
ENOUGH_S: Final = 8.0  # of repeating one measurement, by the clock
AT_A_TIME: Final = 50  # pieces that are made by one runtime


async def _quiet(rt: Runtime) -> None:
    await rt.settled()
    await rt.idle()
    await rt.durable()


async def _ready(rt: Runtime) -> Space:
    """A space that is connected and has its file."""
    space = rt.space(SPACE)
    await space.open(Cart, "warm")
    await _quiet(rt)
    return space


def _expect(found: object, expected: object) -> None:
    if found != expected:
        raise RuntimeError(f"it shows {found!r} instead of {expected!r}")


# ---- opening ---------------------------------------------------------------------------------------------


async def open_one_piece(report: Report, folder: Path, size: int, repeats: int) -> None:
    """A new piece of `size` computeds and their sum: the first of its class in this process, and further ones."""
    many = wide(size)
    async with headwater.open(folder) as rt:
        space = await _ready(rt)

        async def once(number: int) -> float:
            gc.collect()
            began = time.process_time()
            piece = await space.open(many, f"p{number}")
            found = await piece.total.pull()
            await _quiet(rt)
            took = time.process_time() - began
            _expect(found, wide_total(size, 1))
            await space.stop(piece)  # A session watches so many documents and no more.
            await _quiet(rt)
            return took * 1e3

        name = f"open.one_piece.{size}.{OURS}"
        report(f"{name}.first", await once(0))
        report(name, await _repeated(once, repeats))


async def open_pieces_of_ten(report: Report, folder: Path, size: int, repeats: int) -> None:
    """`size` computeds in new pieces of ten, one after the other."""
    small = wide(TEN - 1)
    async with headwater.open(folder) as rt:
        space = await _ready(rt)
        await space.open(small, "first of its class")

        async def once(turn: int) -> float:
            gc.collect()
            began = time.process_time()
            pieces = []
            for number in range(size // TEN):
                piece = await space.open(small, f"{turn}.{number}")
                pieces.append(piece)
                _expect(await piece.total.pull(), wide_total(TEN - 1, 1))
            await _quiet(rt)
            took = time.process_time() - began
            for piece in pieces:
                await space.stop(piece)
            await _quiet(rt)
            return took * 1e3

        report(f"open.pieces_of_ten.{size}.{OURS}", await _repeated(once, repeats))


async def _repeated(once: Callable[[int], Awaitable[float]], repeats: int) -> float:
    """The median of up to so many, fewer if they take long."""
    until = time.perf_counter() + ENOUGH_S
    took = [await once(1)]
    while len(took) < repeats and time.perf_counter() < until:
        took.append(await once(len(took) + 1))
    return median(took)


# ---- changing --------------------------------------------------------------------------------------------


async def change(report: Report, folder: Path, size: int) -> None:
    """Change the cell that `size` computeds read, while their sum is looked at."""
    many = wide(size)
    async with headwater.open(folder) as rt:
        piece = await (await _ready(rt)).open(many, "p")
        seen: list[int] = []
        look = piece.total.sink(seen.append)
        await _quiet(rt)

        async def by_set(value: int) -> None:
            piece.source.set(value)

        async def by_handler(value: int) -> None:
            await piece.change.send(value)

        value = 1
        for how, act in (("set", by_set), ("handler", by_handler)):
            took = []
            for turn in range(WARM + CHANGES):
                value += 1
                began = time.process_time()
                await act(value)
                await _quiet(rt)
                if turn >= WARM:
                    took.append((time.process_time() - began) * 1e3)
                _expect(seen[-1], wide_total(size, value))
            report(f"change.{size}.{how}", median(took))
        look.close()


async def change_remotely(report: Report, folder: Path, size: int) -> None:
    """The same where two clients share a served space: one changes the cell, the other has the computeds.

    The clients are in this process and the server in another one; the processor time of both is reported. Latency is
    from the write in one client to the value that the other one sees.
    """
    many = wide(size)
    with server(folder) as (port, pid):
        address = f"ws://127.0.0.1:{port}"
        async with headwater.connect(address, token="") as rt, headwater.connect(address, token="") as other:
            piece = await rt.space(SPACE).open(many, "p")
            news = asyncio.Event()
            seen: list[int] = []

            def see(value: int) -> None:
                seen.append(value)
                news.set()

            look = piece.total.sink(see)
            await _quiet(rt)
            source = other.space(SPACE).piece(many, "p").source
            await source.pull()
            await _quiet(other)
            took, served, late = [], [], []
            for turn in range(WARM + CHANGES):
                expected = wide_total(size, turn + 2)
                began, theirs, at = time.process_time(), _processor_of(pid), time.perf_counter()
                source.set(turn + 2)
                while seen[-1:] != [expected]:
                    news.clear()
                    await news.wait()
                seen_at = time.perf_counter()
                await _quiet(other)
                await _quiet(rt)
                if turn >= WARM:
                    took.append((time.process_time() - began) * 1e3)
                    served.append((_processor_of(pid) - theirs) * 1e3)
                    late.append((seen_at - at) * 1e3)
            report(f"change.{size}.remote", median(took))
            report(f"change.{size}.remote.server", median(served))
            report(f"change.{size}.remote.latency", median(late))
            look.close()


def _processor_of(pid: int) -> float:
    """Processor time of another process, in seconds: the clock that clock_getcpuclockid() names on Linux."""
    return time.clock_gettime((~pid << 3) | 2)


# ---- events ----------------------------------------------------------------------------------------------


async def event_alone(report: Report, folder: Path, count: int) -> None:
    """Events one after the other, each awaited: one computed and one effect follow from each."""
    async with headwater.open(folder) as rt:
        counter = await rt.space(SPACE).open(Counter, "one")
        for _ in range(WARM):
            await counter.add.send()
        await _quiet(rt)
        late: list[float] = []
        took = []
        for _ in range(ROUNDS):
            gc.collect()
            began = time.process_time()
            for _ in range(count):
                at = time.perf_counter()
                await counter.add.send()
                late.append((time.perf_counter() - at) * 1e3)
            await _quiet(rt)
            took.append((time.process_time() - began) * 1e6 / count)
        _expect(await counter.double.pull(), 2 * (WARM + ROUNDS * count))
        report(f"event.alone.{OURS}", median(took))
        report(f"event.alone.{OURS}.p50", median(late))
        report(f"event.alone.{OURS}.p99", quantiles(late, n=100)[98])


async def events_at_once(report: Report, folder: Path, count: int) -> None:
    """So many events, sent before any of them is handled, to one handler."""
    async with headwater.open(folder, policy=Policy(backlog=2 * count)) as rt:
        counter = await rt.space(SPACE).open(Counter, "one")
        await counter.add.send()
        await _quiet(rt)
        took, rates = [], []
        for _ in range(ROUNDS):
            gc.collect()
            began, at = time.process_time(), time.perf_counter()
            await asyncio.gather(*(counter.add.send() for _ in range(count)))
            await _quiet(rt)
            took.append((time.process_time() - began) * 1e6 / count)
            rates.append(count / (time.perf_counter() - at))
        _expect(await counter.double.pull(), 2 * (1 + ROUNDS * count))
        report(f"event.at_once.{count}.{OURS}", median(took))
        report(f"event.at_once.{count}.{OURS}.rate", median(rates))


# ---- rows ------------------------------------------------------------------------------------------------


async def each_rows(report: Report, folder: Path, size: int) -> None:
    """An `each` of so many rows, all looked at: made, one of them changed, one added."""
    async with headwater.open(folder) as rt:
        space = await _ready(rt)
        await space.open(Table, "first of its class")
        await _quiet(rt)
        gc.collect()
        began = time.process_time()
        table = await space.open(Table, "t", setup=lambda made: made.rows.set(rows(size)))
        seen: list[Any] = []
        look = table.priced.sink(seen.append)
        found = await table.priced.pull()
        await _quiet(rt)
        report(f"each.{size}.make.{OURS}", (time.process_time() - began) * 1e3)
        _expect(len(found), size)
        value = 0
        for how in ("change", "add"):
            took = []
            for turn in range(WARM + CHANGES):
                value += 1
                key = f"r{size // 2}" if how == "change" else f"new{turn}"
                began = time.process_time()
                table.rows.key(key).set(value)
                await _quiet(rt)
                if turn >= WARM:
                    took.append((time.process_time() - began) * 1e3)
                _expect(seen[-1][key], 2 * value)
            report(f"each.{size}.{how}.{OURS}", median(took))
        look.close()


# ---- many pieces -----------------------------------------------------------------------------------------


async def write_pieces(report: Report, folder: Path, size: int) -> None:
    """One transaction that writes a cell of each of so many pieces, all of them only named."""
    async with headwater.open(folder) as rt:
        space = await _ready(rt)

        def write(turn: int) -> None:
            for number in range(size):
                space.piece(Counter, f"{turn}.{number}").n.set(turn)

        took = []
        for turn in range(1, 4):
            gc.collect()
            began = time.process_time()
            await space.transact(write, turn)
            await _quiet(rt)
            took.append((time.process_time() - began) * 1e3)
        _expect(await space.piece(Counter, f"3.{size - 1}").double.pull(), 6)
        report(f"write.pieces.{size}.{OURS}", median(took))


async def look_at_chain(report: Report, folder: Path, size: int, is_ring: bool) -> None:
    """A chain of pieces, each found by the run of the one before.

    It is discovered from one look, and once more after a restart. All pieces are looked at; looks are closed together,
    or each in a turn of the event loop.
    """
    name = f"chain.{'ring' if is_ring else 'line'}.{size}"

    async def discover(space: Space, how: str) -> None:
        gc.collect()
        began = time.process_time()
        found = await space.piece(Link, "p0").total.pull()
        await _quiet(rt)
        report(f"{name}.{how}.{OURS}", (time.process_time() - began) * 1e3)
        _expect(found, 1 if is_ring else size)

    async with headwater.open(folder) as rt:
        space = await _ready(rt)

        def make() -> None:
            for number in range(size):
                piece = space.piece(Link, f"p{number}")
                last = "p0" if is_ring else ""
                piece.next.set(f"p{number + 1}" if number + 1 < size else last)
                piece.is_ring.set(is_ring)

        await space.transact(make)
        await _quiet(rt)
        await discover(space, "discover")
        for how in ("close", "close_each"):
            began = time.process_time()
            looks = [space.piece(Link, f"p{number}").total.sink(lambda _: None) for number in range(size)]
            await _quiet(rt)
            if how == "close":
                report(f"{name}.open.{OURS}", (time.process_time() - began) * 1e3)
            began = time.process_time()
            for look in looks:
                look.close()
                if how == "close_each":
                    await asyncio.sleep(0)
            await _quiet(rt)
            report(f"{name}.{how}.{OURS}", (time.process_time() - began) * 1e3)
    async with headwater.open(folder) as rt:
        await discover(await _ready(rt), "restart")


async def open_sinks(report: Report, folder: Path, size: int) -> None:
    """So many sinks on pieces that are only named, opened without awaiting anything."""
    async with headwater.open(folder) as rt:
        space = await _ready(rt)
        seen: list[int] = []
        gc.collect()
        began = time.process_time()
        looks = [space.piece(Counter, f"p{number}").double.sink(seen.append) for number in range(size)]
        await _quiet(rt)
        report(f"sinks.at_once.{size}.{OURS}", (time.process_time() - began) * 1e3)
        _expect(len(seen), size)
        for look in looks:
            look.close()


# ---- restart ---------------------------------------------------------------------------------------------


async def make_stored(folder: Path, nodes: int, pieces: int) -> None:
    """Store a program of so many nodes, all of them looked at, in so many tables."""

    def fill(made: Table) -> None:
        made.rows.set(rows(nodes // pieces - 2))

    for first in range(0, pieces, AT_A_TIME):
        async with headwater.open(folder) as rt:
            space = rt.space(SPACE)
            for number in range(first, min(first + AT_A_TIME, pieces)):
                table = await space.open(Table, f"t{number}", setup=fill)
                await table.priced.pull()
                await table.first.pull()
            await rt.settled()
            await rt.durable()


async def restart(report: Report, folder: Path, nodes: int, pieces: int, look: str, name: str) -> None:
    """Open the directory of `make_stored` until everything is settled. Closing is not part of the figure."""
    gc.collect()
    began, at = time.process_time(), time.perf_counter()
    async with headwater.open(folder) as rt:
        space = rt.space(SPACE)
        tables = [await space.open(Table, f"t{number}") for number in range(pieces)]
        if look != "nothing":
            _expect(await tables[0].first.pull(), 2)
        if look == "everything":
            for table in tables:
                _expect(len(await table.priced.pull()), nodes // pieces - 2)
                await table.first.pull()
        await rt.settled()
        took, wall = time.process_time() - began, time.perf_counter() - at
        report(name, took * 1e3)
        report(f"{name}.wall", wall * 1e3)


# ---- memory ----------------------------------------------------------------------------------------------


async def memory_of_nodes(report: Report, folder: Path, count: int) -> None:
    """Bytes that Python holds for a computed that is looked at, with everything that belongs to it."""
    few, many = wide(TEN), wide(count)
    async with headwater.open(folder) as rt:
        space = await _ready(rt)
        await (await space.open(few, "few")).total.pull()
        await _quiet(rt)
        gc.collect()
        tracemalloc.start()
        piece = await space.open(many, "many")
        look = piece.total.sink(lambda _: None)
        await _quiet(rt)
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        report(f"memory.node.{OURS}", held / count)
        look.close()


async def memory_of_pieces(report: Report, folder: Path, count: int) -> None:
    """Bytes that Python holds for an open piece of one cell, one computed and one effect."""
    async with headwater.open(folder) as rt:
        space = rt.space(SPACE)
        await space.open(Counter, "first")
        await _quiet(rt)
        gc.collect()
        tracemalloc.start()
        pieces = [await space.open(Counter, f"p{number}") for number in range(count)]
        await _quiet(rt)
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        report(f"memory.piece.{OURS}", held / len(pieces))


async def memory_of_sessions(report: Report, folder: Path, count: int) -> None:
    """Bytes of a connected client that looked at one cell: in the server (resident), and in the client's process."""
    with server(folder) as (port, pid):
        address = f"ws://127.0.0.1:{port}"

        async def connected() -> Runtime:
            rt = await headwater.connect(address, token="")
            await rt.space(SPACE).piece(Counter, "one").n.pull()
            return rt

        clients = [await connected() for _ in range(TEN)]
        await clients[0].space(SPACE).piece(Counter, "one").add.send()
        gc.collect()
        before = resident_bytes(pid)
        tracemalloc.start()
        clients += [await connected() for _ in range(count)]
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        report(f"memory.session.{OURS}.server", (resident_bytes(pid) - before) / count)
        report(f"memory.session.{OURS}.client", held / count)
        for client in clients:
            await client.close()
