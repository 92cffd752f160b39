"""`@simulated`: which seeds run, that each is the same whenever it runs, and what is said of one that fails."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from headwater.errors import AuthoringError, LimitError
from headwater.testing import Simulation, simulated
from headwater.testing.author.faults import FAULTS
from headwater.testing.author.seeds import Simulated, run_seed
from tests.counts import scaled
from tests.unit.testing.author_pieces import Shop

pytestmark = pytest.mark.thorough

USERS = ("ann", "bob", "cy")


@pytest.fixture(autouse=True)
def nothing_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HEADWATER_SEED", "HEADWATER_SEEDS", "HEADWATER_RANDOM_SCALE"):
        monkeypatch.delenv(name, raising=False)


def simulated_of(test: Callable[[], None]) -> Simulated:
    found: Simulated = test.__simulated__  # type: ignore[attr-defined]
    return found


async def storm(sim: Simulation) -> None:
    """Three users who collide, one of whom is away for a while."""
    shops = [sim.runtime(user).space("street").piece(Shop, "corner") for user in USERS]
    await asyncio.gather(*(each.sell.send("tea", n) for each in shops for n in range(2)))
    with sim.offline("ann"):
        late = asyncio.ensure_future(shops[0].sell.send("late", 1))
        await shops[1].sell.send("meanwhile", 1)
        await sim.advance(seconds=2)
    await late
    await sim.settle()
    assert [await each.stock.pull() for each in shops] == [2] * 3


@pytest.mark.random
def test_the_same_seed_gives_the_same_trace() -> None:
    digests = [run_seed(storm, seed, FAULTS) for seed in range(scaled(50))]
    gc.collect()
    litter = [object() for _ in range(10_000)]  # What else there is in memory decides nothing.
    assert [run_seed(storm, seed, FAULTS) for seed in range(scaled(50))] == digests
    del litter
    assert len(set(digests)) == len(digests)


def test_a_seed_is_the_same_in_every_process() -> None:
    """Otherwise the command for a seed that failed would run another one."""
    code = (
        "from tests.unit.testing.test_author_seeds import FAULTS, run_seed, storm; "
        "print([run_seed(storm, seed, FAULTS) for seed in range(4)])"
    )
    root = Path(__file__).parents[3]

    def digests(hash_seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
        return subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120, check=True
        ).stdout

    # In processes that imported the same: a worker asks about the topics of all classes that are here.
    assert digests("1") == digests("2") == digests("3")


def test_another_seed_gives_another_trace() -> None:
    assert len({run_seed(storm, seed, ()) for seed in range(5)}) == 5


def test_every_seed_runs_once_in_a_world_of_its_own() -> None:
    seen: list[int] = []
    worlds: list[Simulation] = []

    @simulated(seeds=7, faults=())
    async def test_it(sim: Simulation) -> None:
        seen.append(sim.seed)
        worlds.append(sim)

    test_it()
    assert seen == list(range(7))
    assert len(set(map(id, worlds))) == 7


def test_the_environment_chooses_one_seed_or_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    test = Simulated(storm, 200, ())
    assert test.chosen() == range(200)
    monkeypatch.setenv("HEADWATER_RANDOM_SCALE", "0.1")
    assert test.chosen() == range(20)
    monkeypatch.setenv("HEADWATER_SEEDS", "3")
    assert test.chosen() == range(3)
    monkeypatch.setenv("HEADWATER_SEED", "17")
    assert list(test.chosen()) == [17]


def test_a_seed_that_fails_is_named_with_how_to_run_it_alone() -> None:
    @simulated(seeds=50, faults=("delay",))
    async def test_it(sim: Simulation) -> None:
        await sim.runtime("ann").space("street").piece(Shop, "corner").sell.send("tea", 1)
        assert sim.seed != 3, "an odd one"

    with pytest.raises(AssertionError, match="an odd one") as caught:
        test_it()
    notes = caught.value.__notes__
    assert notes[0] == "seed 3. To run only this one: HEADWATER_SEED=3 pytest"
    assert "what happened last:" in notes[-1]
    assert "server: to connection" in notes[-1]


def test_a_failing_seed_tells_what_was_told_on_the_error_channel() -> None:
    async def test(sim: Simulation) -> None:
        rt = sim.runtime("ann")
        rt.core.report("somebody", ValueError("something"))
        raise AssertionError("no")

    with pytest.raises(AssertionError, match="no") as caught:
        run_seed(test, 0, ())
    assert "told on the error channel:\n  somebody: something" in caught.value.__notes__


def test_progress_is_told_from_none_to_all() -> None:
    told: list[tuple[int, int]] = []

    async def test(sim: Simulation) -> None:
        return None

    assert Simulated(test, 3, ()).run(lambda done, total: told.append((done, total))) == 3
    assert told == [(0, 3), (1, 3), (2, 3), (3, 3)]


def test_a_simulated_test_asks_for_no_argument_and_keeps_its_name() -> None:
    @simulated()
    async def test_something(sim: Simulation) -> None:
        """Says what it is about."""

    assert test_something.__name__ == "test_something"
    assert test_something.__doc__ == "Says what it is about."
    assert test_something.__code__.co_argcount == 0
    assert not hasattr(test_something, "__wrapped__")
    assert (simulated_of(test_something).seeds, simulated_of(test_something).faults) == (200, FAULTS)


def test_what_cannot_be_simulated_is_refused_where_it_is_declared() -> None:
    def plain(sim: Simulation) -> Awaitable[None]:
        raise NotImplementedError

    with pytest.raises(AuthoringError, match="write async def"):
        simulated()(plain)

    async def nothing() -> None:
        raise NotImplementedError

    with pytest.raises(AuthoringError, match="which takes nothing: write async def test_it"):
        simulated()(nothing)  # type: ignore[arg-type]
    with pytest.raises(AuthoringError, match="write how many, 1 or more"):
        simulated(seeds=0)
    with pytest.raises(AuthoringError, match="'delay', 'drop', 'partition', 'duplicate', 'crash', 'disk'"):
        simulated(faults=("rain",))
    with pytest.raises(AuthoringError, match="write a tuple"):
        simulated(faults="drop")  # type: ignore[arg-type]


def test_nothing_is_left_of_a_seed() -> None:
    async def test(sim: Simulation) -> None:
        await sim.runtime("ann").space("street").piece(Shop, "corner").sell.send("tea", 1)
        asyncio.get_running_loop().create_task(asyncio.sleep(10_000)).add_done_callback(ended.append)

    ended: list[object] = []
    run_seed(test, 0, FAULTS)
    assert len(ended) == 1
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()
    assert gc.isenabled()


@pytest.mark.parametrize("seconds", [0, 30])
def test_nothing_is_left_of_a_seed_that_waits_in_a_loop(seconds: float) -> None:
    async def test(sim: Simulation) -> None:
        asyncio.get_running_loop().create_task(asyncio.sleep(10_000)).add_done_callback(ended.append)
        while True:
            await asyncio.sleep(seconds)

    ended: list[object] = []
    with pytest.raises(LimitError, match="the test"):
        run_seed(test, 0, ())
    assert len(ended) == 1


@pytest.mark.random
@pytest.mark.parametrize("fault", FAULTS)
def test_every_kind_of_fault_happens_and_loses_nothing(fault: str) -> None:
    lines: list[str] = []

    async def test(sim: Simulation) -> None:
        try:
            await storm(sim)
        finally:
            lines.extend(sim.trace.lines)

    for seed in range(scaled(150)):
        run_seed(test, seed, (fault,))
    words = {
        "drop": "breaks",
        "partition": "is cut off for",
        "duplicate": "no answer comes back over connection",
        "crash": "dies: killed",
        "disk": "disk:",
    }
    assert fault == "delay" or any(words[fault] in line for line in lines)
