"""A computed runs again when another writer changes its stored result: a peer, or a raw write to its document."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from headwater import Cell, Input, Piece, Runtime, cell, computed, given, handler
from headwater.clock import VirtualClock
from headwater.errors import NotSettlingError
from headwater.runtime import LocalDirectory
from headwater.scheduler import Failure
from headwater.testing import Simulation, simulated
from tests.scenario.pieces_kit import Ranned, run

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
START_US = 1_767_225_600_000_000


class Doubled(Piece, name="aid.Doubled"):
    n: Cell[int] = cell(default=0)

    @computed
    def double(self) -> int:
        return self.n.get() * 2

    @handler
    def put(self, n: int) -> None:
        self.n.set(n)

    @handler
    def look(self) -> int:
        return self.double.get()


@simulated(seeds=3, faults=())
async def test_computed_is_right_after_a_reconnect_that_shows_no_change_of_its_input(sim: Simulation) -> None:
    ann, bob = sim.runtime("ann"), sim.runtime("bob")
    of_ann = await ann.space("s").open(Doubled, "d")
    of_bob = await bob.space("s").open(Doubled, "d")
    await of_bob.put.send(5)
    shown: list[int] = []
    of_ann.double.sink(shown.append)
    await sim.settle()
    assert shown[-1] == 10
    with sim.offline("ann"):
        await of_bob.put.send(2)
        assert await of_bob.look.send() == 4
        await bob.durable()
        await of_bob.put.send(5)
        await bob.durable()
        await sim.settle()
    await sim.settle()
    assert of_ann.n.get() == 5
    assert shown[-1] == 10
    assert await of_ann.look.send() == 10
    assert await of_ann.double.pull() == 10
    assert await of_bob.double.pull() == 10


@simulated(seeds=3, faults=())
async def test_computed_is_right_after_a_raw_write_to_its_result(sim: Simulation) -> None:
    ann, bob = sim.runtime("ann"), sim.runtime("bob")
    live, dormant = [await ann.space("s").open(Doubled, name) for name in ("live", "dormant")]
    for piece in (live, dormant):
        await piece.put.send(5)
        assert await piece.look.send() == 10
    shown: list[int] = []
    live.double.sink(shown.append)
    await sim.settle()
    for value in (99, 100):
        for name in ("live", "dormant"):
            bob.cell("s", f"{name}:double", int).set(value)
        await bob.durable()
        await sim.settle()
        assert set(shown) == {10}
        assert await bob.cell("s", "live:double", int).pull() == 10
        runs = sim.runs(Doubled.double)
        assert await dormant.look.send() == 10
        await sim.settle()
        assert sim.runs(Doubled.double) == runs + 1
        assert await bob.cell("s", "dormant:double", int).pull() == 10


@simulated(seeds=3, faults=())
async def test_computed_that_came_back_without_a_run_is_right_after_a_raw_write_to_its_result(sim: Simulation) -> None:
    ann, bob = sim.runtime("ann"), sim.runtime("bob")
    piece = await ann.space("s").open(Doubled, "d")
    piece.double.sink(lambda _: None)
    await piece.put.send(5)
    await sim.settle()
    await sim.crash("ann")
    piece, runs = await sim.runtime("ann").space("s").open(Doubled, "d"), sim.runs(Doubled.double)
    shown: list[int] = []
    piece.double.sink(shown.append)
    await sim.settle()
    assert (shown, sim.runs(Doubled.double)) == ([10], runs)
    bob.cell("s", "d:double", int).set(99)
    await bob.durable()
    await sim.settle()
    assert (shown[-1], sim.runs(Doubled.double)) == (10, runs + 1)
    assert await bob.cell("s", "d:double", int).pull() == 10


@simulated(seeds=3, faults=())
async def test_peer_that_sends_its_result_with_its_input_costs_no_further_run(sim: Simulation) -> None:
    ann, bob = sim.runtime("ann"), sim.runtime("bob")
    of_ann = await ann.space("s").open(Doubled, "d")
    of_bob = await bob.space("s").open(Doubled, "d")
    for piece in (of_ann, of_bob):
        piece.double.sink(lambda _: None)
    await sim.settle()
    for n in range(1, 6):
        runs = sim.runs(Doubled.double)
        await of_bob.put.send(n)
        await sim.settle()
        assert sim.runs(Doubled.double) == runs + 2
    with sim.offline("ann"):
        runs = sim.runs(Doubled.double)
        await of_bob.put.send(9)
        await sim.settle()
    await sim.settle()
    assert sim.runs(Doubled.double) == runs + 2
    assert not [each for each in sim.failures() if isinstance(each.error, NotSettlingError)]


@simulated(seeds=3, faults=())
async def test_runtimes_whose_functions_disagree_slow_down_and_report_it(sim: Simulation) -> None:
    runs = {2: 0, 3: 0}
    for user, factor in (("ann", 2), ("bob", 3)):
        rt = sim.runtime(user)
        n, out = rt.cell("s", "n", int, default=5), rt.cell("s", "out", int)

        def times(n: Cell[int] = n, factor: int = factor) -> int:
            runs[factor] += 1
            return n.get() * factor

        rt.register(times, output=out, id="times")
        out.sink(lambda _: None)
    await sim.advance(seconds=20)
    assert 5 < runs[2] <= 30
    assert 5 < runs[3] <= 30
    told = [each for each in sim.failures() if isinstance(each.error, NotSettlingError)]
    assert {each.node for each in told} == {"times"}
    assert len(told) == 2


class Offer(Piece, name="aid.Offer"):
    closes: Cell[datetime] = cell(default=EPOCH)

    @computed
    def is_open(self) -> bool:
        return not self.ctx.past(self.closes.get())


def test_runtimes_whose_clocks_differ_answer_each_other_once(tmp_path: Path) -> None:
    async def work() -> None:
        ahead = VirtualClock(start_us=START_US + 1_000_000, seed=1)
        behind = VirtualClock(start_us=START_US, seed=2)
        failures: list[Failure] = []
        shown: dict[VirtualClock, list[bool]] = {ahead: [], behind: []}
        async with (
            LocalDirectory(tmp_path, synchronous="OFF") as data,
            Runtime(data, clock=ahead) as first,
            Runtime(data, clock=behind) as second,
        ):
            ran = [Ranned(first), Ranned(second)]
            for rt, clock in ((first, ahead), (second, behind)):
                rt.on_failure(failures.append)
                offer = await rt.space("s").open(Offer, "o")
                if rt is first:
                    offer.closes.set(EPOCH + timedelta(microseconds=START_US + 5_000_000))
                offer.is_open.sink(shown[clock].append)
            await rested(first, second)
            assert {each[-1] for each in shown.values()} == {True}
            for each in ran:
                each.taken()
            for _ in range(60):
                ahead.advance(100_000)
                behind.advance(100_000)
                first.wake()
                second.wake()
                await rested(first, second)
            assert {each[-1] for each in shown.values()} == {False}
            assert sum(each.taken().of("o:is_open") for each in ran) <= 5
            assert not failures

    run(work)


async def rested(*runtimes: Runtime) -> None:
    """Let each runtime do what is to be done, store it and hear of what the others stored."""
    for _ in range(3):
        for rt in runtimes:
            await rt.settled()
            await rt.durable()


class Source(Piece, name="aid.Source"):
    n: Cell[int] = cell(default=0)

    @handler
    def put(self, n: int) -> None:
        self.n.set(n)


class Elsewhere(Piece, name="aid.Elsewhere"):
    n: Input[int] = given()

    @computed
    def double(self) -> int:
        return self.n.get() * 2


@simulated(seeds=3, faults=())
async def test_result_that_arrives_before_its_input_of_another_space_costs_no_further_run(sim: Simulation) -> None:
    sources: list[Source] = []
    for user in ("ann", "bob"):
        rt = sim.runtime(user)
        sources.append(await rt.space("one").open(Source, "source"))
        reader = await rt.space("two").open(Elsewhere(n=sources[-1].n), "reader")
        reader.double.sink(lambda _: None)
    await sim.settle()
    runs = sim.runs(Elsewhere.double)
    for n in range(1, 11):
        await sources[n % 2].put.send(n)
        await sim.advance(seconds=0.05)
    await sim.settle()
    assert sim.runs(Elsewhere.double) == runs + 20
