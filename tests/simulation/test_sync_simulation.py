"""Whole histories of a server and its replicas, with every fault on: no rule is ever broken.

`python -m headwater.testing.simulation.simulation --seed N` replays a failing seed and prints its trace. The bugs that
such seeds have found are kept as planted bugs in tests/planted.txt, because a seed gives another history as soon as the
simulation changes.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headwater.data.address import DocKey, Link
from headwater.data.patch import replace
from headwater.testing.simulation.simulation import NO_FAULTS, Load, RuleBroken, Simulation, Summary, run_seeds
from headwater.testing.simulation.trace import COVERED
from tests.counts import is_exploring, scaled, seldom

HISTORIES = 2_000
PARTS = 4


@pytest.mark.random
@pytest.mark.parametrize("part", range(PARTS))
def test_no_history_breaks_a_rule(part: int, covered: Callable[[Summary], None]) -> None:
    count = -(-(scaled(HISTORIES) if is_exploring() else scaled(HISTORIES) // 2) // PARTS)
    summary = run_seeds(count, part * count)
    covered(summary)
    print(summary)
    assert summary.seeds == count
    assert not summary.broken, summary


def test_the_same_seed_gives_the_same_trace() -> None:
    def trace(seed: int) -> list[str]:
        with Simulation(seed=seed) as sim:
            sim.play()
        return sim.trace.lines()

    for seed in (3, 5, 8):
        first, second = trace(seed), trace(seed)
        assert first == second
        assert len(first) > 100
    assert trace(3) != trace(5)


@pytest.mark.thorough
def test_the_histories_are_large_enough_to_mean_something() -> None:
    """Faults happen, commits land and are rejected, days pass: a calm history would prove nothing."""
    summary = run_seeds(40)
    assert summary.commits > 400
    assert summary.attempts > summary.commits
    assert summary.restarts > 20
    assert summary.virtual_us > 24 * 3_600_000_000
    kinds = set()
    for seed in range(40):
        with Simulation(seed=seed) as sim:
            sim.play()
        kinds |= {what for _, who, what, _ in sim.trace.entries if who == "fault"}
        kinds |= {type(details[0]).__name__ for _, _, what, details in sim.trace.entries if details and "->" in what}
    faults = {kind.split()[0] for kind in kinds}
    assert {"cut", "offline", "partition", "disk", "maintenance"} <= faults
    messages = {
        "Transact",
        "Watch",
        "Unwatch",
        "Query",
        "Ack",
        "Bye",
        "Opened",
        "Verdicts",
        "Watched",
        "Sync",
        "Answer",
    }
    assert messages <= kinds


@pytest.mark.random
@pytest.mark.skipif(not is_exploring(), reason="some mechanisms need hundreds of histories: ./dev sim looks at them")
def test_every_mechanism_is_reached() -> None:
    """A mechanism that no history reaches is not tested, whatever the histories say."""
    counts = run_seeds(max(scaled(HISTORIES), 240)).counts
    assert [what for what in COVERED if not counts[what]] == []


def test_a_document_that_is_asked_for_again_with_its_links_while_it_loads_brings_them() -> None:
    """What seed 3240 showed: the answer to the first question was taken for that to the second."""
    root, leaf = DocKey("space", "root"), DocKey("space", "leaf")
    with Simulation(seed=1, replicas=1, faults=NO_FAULTS) as sim:
        (process,) = sim.replicas
        process.watch(root)
        process.watch(leaf)
        sim.settle()
        process.transact("leaf", lambda t: t.write(leaf, replace((), {"n": 1})))
        process.transact("root", lambda t: t.write(root, replace((), {"to": Link(None, "space", "leaf")})))
        sim.settle()
        process.unwatch(root)
        process.unwatch(leaf)
        sim.settle()
        process.watch(root)
        process.watch(root, follow=True)
        sim.settle()
        assert process.replica.visible(leaf) == {"n": 1}


@pytest.mark.thorough
@pytest.mark.random
def test_a_long_and_busy_history_breaks_no_rule() -> None:
    load = Load(steps=(60, 120), pause_us=(0, 100_000))
    for seed in range(seldom(40)):
        try:
            with Simulation(seed=seed, replicas=4, load=load) as sim:
                sim.play()
        except RuleBroken as broken:
            pytest.fail(f"{broken} (with a long load and 4 replicas)")
