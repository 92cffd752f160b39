"""Results of computeds in the log: each matches its inputs, none is lost, and none is made again after a restart.

These hold for every way in which results are told to an engine: one by one, together, or again after a lost connection.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import headwater
from headwater import Cell, Piece, Runtime, cell, computed, each, effect, handler
from headwater.data.address import DocKey
from headwater.data.patch import append
from headwater.data.value import ABSENT
from headwater.engine import ACCESS, Directory, Engine
from headwater.runtime import RemoteServer
from headwater.server import new_key, new_token
from headwater.testing import Simulation, simulated
from headwater.testing.author.stored import log_of
from tests.scenario.events_kit import read
from tests.scenario.pieces_kit import Ranned, run, serving
from tests.scenario.runtime_kit import Cable

MANY = 600
"""More nodes than fit into one frame, and more runs than wait for a frame."""


class Sheet(Piece, name="derived.Sheet"):
    a: Cell[int] = cell(default=0)
    b: Cell[int] = cell(default=0)

    @computed
    def total(self) -> int:
        return self.a.get() + self.b.get()

    @computed
    def twice(self) -> int:
        return 2 * self.total.get()

    @computed
    def both(self) -> Mapping[str, int]:
        return {"total": self.total.get(), "twice": self.twice.get()}

    @effect
    def show(self) -> None:
        self.both.get()

    @handler
    def grow(self, by: int) -> int:
        """Reads and writes, so that two of them at once conflict."""
        self.a.set(self.a.get() + by)
        return self.a.get()

    @handler
    def move(self) -> None:
        self.b.set(self.a.get())


def wrong_results(engine: Engine) -> list[str]:
    """Logged results that differ from a computation over the documents as they were at their seq."""

    def value(member: str, seq: int) -> Any:
        found = engine.read(DocKey("space", f"p:{member}"), at=seq).value
        return 0 if found is ABSENT else found

    wrong = []
    for logged in log_of(engine):
        if not logged.commit.provenance.derived:
            continue
        expected = {
            "p:total": value("a", logged.seq) + value("b", logged.seq),
            "p:twice": 2 * value("total", logged.seq),
            "p:both": {"total": value("total", logged.seq), "twice": value("twice", logged.seq)},
        }
        for operation in logged.commit.operations:
            found = value(operation.doc.id.removeprefix("p:"), logged.seq)
            if found != expected[operation.doc.id]:
                wrong.append(f"{operation.doc.id} is {found} at {logged.seq}, not {expected[operation.doc.id]}")
    return wrong


@simulated(seeds=60)
async def test_every_logged_result_matches_its_inputs_at_its_seq(sim: Simulation) -> None:
    users = ("ann", "bob", "cy")
    sheets = [await sim.runtime(user).space("s").open(Sheet, "p") for user in users]
    sends = [
        asyncio.ensure_future(sheet.grow.send(place + 1) if turn % 3 else sheet.move.send())
        for turn in range(6)
        for place, sheet in enumerate(sheets)
    ]
    await sim.advance(seconds=0.05)
    sheets[0].b.set(7)  # A write outside any run, over results that may have no verdict yet.
    await asyncio.gather(*sends)
    await sim.settle()
    assert read(sim, lambda engines: wrong_results(engines["s"])) == []
    (both,) = {str(dict(await sheet.both.pull())) for sheet in sheets}
    a, b = await sheets[0].a.pull(), await sheets[0].b.pull()
    assert both == str({"total": a + b, "twice": 2 * (a + b)})


@simulated(seeds=20)
async def test_results_of_a_runtime_that_was_offline_match_the_state_they_land_on(sim: Simulation) -> None:
    ann, bob = [await sim.runtime(user).space("s").open(Sheet, "p") for user in ("ann", "bob")]
    await ann.grow.send(1)
    with sim.offline("ann"):
        sent = [asyncio.ensure_future(ann.grow.send(10)) for _ in range(3)]
        await bob.grow.send(100)
        await sim.advance(seconds=2)
    assert [await each for each in sent][-1] == 131
    await sim.settle()
    assert read(sim, lambda engines: wrong_results(engines["s"])) == []
    assert [dict(await each.both.pull()) for each in (ann, bob)] == [{"total": 131, "twice": 262}] * 2


@simulated(seeds=20)
async def test_results_of_a_runtime_that_died_are_made_by_the_next_one(sim: Simulation) -> None:
    sheet = await sim.runtime("ann").space("s").open(Sheet, "p")
    await sheet.grow.send(1)
    sheet.grow.post(10)
    sheet.b.set(5)
    await sim.advance(seconds=0.002)
    await sim.crash("ann")
    again = await sim.runtime("ann").space("s").open(Sheet, "p")
    await sim.settle()
    total = await again.a.pull() + await again.b.pull()
    assert dict(await again.both.pull()) == {"total": total, "twice": 2 * total}
    assert read(sim, lambda engines: wrong_results(engines["s"])) == []


# ---- many of them, and restarts ----------------------------------------------------------------------------


class Row(Piece, name="derived.Row"):
    n: headwater.Input[int] = headwater.given()

    @computed
    def is_odd(self) -> bool:
        return self.n.get() % 2 == 1


class Table(Piece, name="derived.Table"):
    numbers: Cell[Mapping[str, int]] = cell(default={})

    @each(numbers)
    def rows(self, n: Cell[int]) -> Row:
        return Row(n=n)

    @computed
    def odd(self) -> int:
        return sum(row.is_odd.get() for row in self.rows.get().values())

    @handler
    def fill(self, count: int, offset: int) -> None:
        self.numbers.set({f"k{number}": number + offset for number in range(count)})


def test_more_results_than_fit_into_a_frame_all_survive_a_restart(tmp_path: Path) -> None:
    async def work() -> None:
        async with headwater.open(tmp_path) as rt:
            table = await rt.space("s").open(Table, "t")
            await table.fill.send(MANY, 0)
            assert await table.odd.pull() == MANY // 2
        assert await runs_after_restart(tmp_path, MANY // 2) == 0

    run(work, too_long_s=120)


def test_runs_that_changed_nothing_are_not_repeated_after_a_restart(tmp_path: Path) -> None:
    """There is no commit with which the engine could be told of such a run."""

    async def work() -> None:
        async with headwater.open(tmp_path) as rt:
            table = await rt.space("s").open(Table, "t")
            await table.fill.send(MANY, 0)
            assert await table.odd.pull() == MANY // 2
            await rt.durable()
            ran = Ranned(rt)
            await table.fill.send(MANY, 2)
            assert await table.odd.pull() == MANY // 2
            spent = ran.taken()
            odd = [name for name in spent.runs if name.endswith(":is_odd")]
            assert [(spent.runs[name], spent.commits[name]) for name in odd] == [(1, 0)] * MANY
        assert await runs_after_restart(tmp_path, MANY // 2) == 0

    run(work, too_long_s=120)


async def runs_after_restart(folder: Path, odd: int) -> int:
    """How many nodes run in a new process that looks at the table and at every row."""
    async with headwater.open(folder) as rt:
        ran = Ranned(rt)
        table = await rt.space("s").open(Table, "t")
        assert await table.odd.pull() == odd
        assert sum([await row.is_odd.pull() for row in (await table.rows.pull()).values()]) == odd
        return node_runs(ran)


def node_runs(ran: Ranned) -> int:
    """Runs of members of pieces. A pull is a run of its own, and so is that a piece is open."""
    return sum(count for name, count in ran.taken().runs.items() if re.match("s/(?!.* while it is open)[^ :]+:", name))


def test_results_whose_verdict_was_lost_are_not_repeated_after_a_restart(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path / "data") as where:
            cable = Cable(RemoteServer(where))
            async with Runtime(cable, identity="one") as rt:
                sheet = await rt.space("s").open(Sheet, "p")
                for number in range(10):
                    sheet.a.set(number)
                    await rt.idle()
                    cable.cut()  # Commits, results and observations were sent, or were not.
                await rt.durable()
                assert await sheet.twice.pull() == 18
                await rt.durable()
            async with Runtime(where, identity="one") as rt:
                ran = Ranned(rt)
                sheet = await rt.space("s").open(Sheet, "p")
                assert dict(await sheet.both.pull()) == {"total": 9, "twice": 18}
                assert await sheet.twice.pull() == 18
                assert node_runs(ran) == 0

    run(work)


def test_result_that_another_process_outdated_is_made_again_after_a_restart(tmp_path: Path) -> None:
    async def work() -> None:
        async with headwater.open(tmp_path) as rt:
            sheet = await rt.space("s").open(Sheet, "p")
            await sheet.grow.send(3)
            assert await sheet.twice.pull() == 6
        async with Runtime(tmp_path, observe=False) as rt:
            rt.cell("s", "p:b", int).set(1)
        async with headwater.open(tmp_path) as rt:
            ran = Ranned(rt)
            sheet = await rt.space("s").open(Sheet, "p")
            assert await sheet.twice.pull() == 8
            assert ran.taken().of(":total") == 1

    run(work)


# ---- without the right to write ----------------------------------------------------------------------------


class Plain(Piece, name="derived.Plain"):
    a: Cell[int] = cell(default=0)

    @computed
    def total(self) -> int:
        return self.a.get() + 1

    @computed
    def twice(self) -> int:
        return 2 * self.total.get()


def test_results_of_a_reader_are_fresh_and_stay_in_its_process(tmp_path: Path) -> None:
    new_key(tmp_path)

    async def work() -> None:
        async with serving(tmp_path, insecure_local=False) as where:
            ann = await headwater.connect(where, token=new_token(tmp_path, "ann"))
            mine = await ann.space("s", user="ann").open(Plain, "p")
            mine.a.set(1)
            channel = ann.channel("s")
            assert channel is not None
            await channel.land(lambda made: made.write(ACCESS, append(("readers",), ["rita"])), node="grant")
            await ann.durable()
            rita = await headwater.connect(where, token=new_token(tmp_path, "rita"))
            hers = rita.space("s", user="rita").piece(Plain, "p")
            seen: list[int] = []
            hers.twice.sink(seen.append)
            for number in (1, 2, 3):
                mine.a.set(number)
                await ann.durable()
                await rita.until(lambda number=number: seen[-1:] == [2 * number + 2])  # type: ignore[misc]
                assert await hers.total.pull() == number + 1
            await rita.close()
            await ann.close()
        with Directory(tmp_path) as directory:
            assert not [each for each in log_of(directory.space("s")) if each.commit.provenance.derived]

    run(work)


class Ledger(Piece, name="derived.Ledger"):
    amounts: Cell[Mapping[str, int]] = cell(default={})

    @computed
    def total(self) -> int:
        return sum(self.amounts.key(f"k{number}").get(0) for number in range(10_000))


def test_a_result_of_ten_thousand_reads_that_all_changed_is_stored(tmp_path: Path) -> None:
    async def work() -> None:
        async with headwater.open(tmp_path) as rt:
            ledger = await rt.space("s").open(Ledger, "l")
            ledger.total.sink(lambda _: None)
            for amount in (1, 2):
                ledger.amounts.set({f"k{number}": amount for number in range(10_000)})
                await rt.durable()
                assert await ledger.total.pull() == 10_000 * amount
        async with headwater.open(tmp_path) as rt:
            ran = Ranned(rt)
            assert await (await rt.space("s").open(Ledger, "l")).total.pull() == 20_000
            assert node_runs(ran) == 0

    run(work)
