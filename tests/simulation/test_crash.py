"""The engine is killed at every point of a workload, and everything under it fails once.

`./dev sim` tries everything there is, `./dev check` an evenly chosen hundredth of it in a shorter workload, and
`./dev test` a tenth of that. The parts are for running side by side.
"""

from __future__ import annotations

import pytest

from headwater.testing.disk.crash import Rig, Suite, run
from tests.counts import is_exploring
from tests.counts import seldom as chosen

pytestmark = pytest.mark.thorough

COMMITS = 200 if is_exploring() else 60
CRASH_PARTS = 3 if is_exploring() else 1  # each records the workload
FAULT_PARTS = 6 if is_exploring() else 1


@pytest.mark.random
@pytest.mark.parametrize("part", range(CRASH_PARTS))
def test_nothing_acknowledged_is_lost_at_any_crash_point(part: int) -> None:
    summary = run(commits=COMMITS, suites=[Suite.CRASHES], chosen=chosen, part=part, parts=CRASH_PARTS)
    assert summary.crash_points_tried >= chosen(summary.crash_points) // CRASH_PARTS
    assert summary.acknowledged_checked or summary.crash_points_tried < 10
    print(summary)
    assert not summary.violations, summary


@pytest.mark.random
@pytest.mark.parametrize("part", range(FAULT_PARTS))
def test_an_engine_survives_every_fault_of_its_disk_and_of_its_store(part: int) -> None:
    summary = run(commits=COMMITS, suites=[Suite.FAULTS], chosen=chosen, part=part, parts=FAULT_PARTS)
    assert summary.faults_tried >= chosen(summary.faults) // FAULT_PARTS
    print(summary)
    assert not summary.violations, summary


@pytest.mark.random
def test_nothing_acknowledged_is_lost_on_a_disk_whose_torn_writes_destroy_their_sector() -> None:
    rig = Rig(sector_garbled=True)
    summary = run(seed=1, commits=60, suites=[Suite.CRASHES], chosen=chosen, rig=rig)
    assert not summary.violations, summary


@pytest.mark.random
def test_a_recovery_answers_only_for_what_it_has_synced() -> None:
    """A workload so short that all of its crash points can be tried, with a second crash after each recovery."""
    summary = run(commits=6, suites=[Suite.CRASHES], chosen=chosen)
    assert not summary.violations, summary


def test_the_workload_is_large_enough_to_mean_something() -> None:
    summary = run(chosen=lambda total: 1)
    assert summary.commits >= 200
    assert summary.operations > 2_000
    assert summary.crash_points > 3 * summary.operations
    assert summary.faults > 4 * (summary.operations + summary.calls) // 2


def test_the_same_seed_tries_the_same() -> None:
    one, two = (run(commits=20, chosen=lambda total: 20) for _ in range(2))
    assert one == two
