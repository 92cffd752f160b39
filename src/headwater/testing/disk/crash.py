"""The crash harness: an engine is killed at every point of a workload, and every answer that it gave must stay true.

    summary = run()
    assert not summary.violations, summary

A workload of several sessions, waves, groups, branches, leases and rejections runs once on a disk in memory, and
every operation is recorded. Then, for every operation of the disk, the machine stops before or after it and the
disk is rebuilt with its unsynced writes kept, dropped, torn, reordered or scattered (`crash_points`); and for every
operation, read and store call of every step, that operation fails under a running engine (`faults`).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from headwater.testing.disk.comparison import Tally
from headwater.testing.disk.crash_points import PointChecks, crash_points
from headwater.testing.disk.faults import Trials
from headwater.testing.disk.machine import Rig, harness
from headwater.testing.disk.tape import Tape, record

__all__ = ["Rig", "Suite", "Summary", "run"]

T = TypeVar("T")


class Suite(enum.Enum):
    """The kinds of trials."""

    CRASHES = "crashes"  # at every moment, from a recorded run
    FAULTS = "faults"  # errors, a full disk and kills in a running engine


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The trials and their findings. Sums over parts are made by adding summaries."""

    commits: int  # accepted by the workload
    operations: int  # of the disk, in the workload
    calls: int  # of the store, in the workload; a kill at a call leaves the disk of the operation before it
    crash_points: int  # all there are
    faults: int  # all there are
    crash_points_tried: int = 0
    faults_tried: int = 0
    acknowledged_checked: int = 0  # acknowledged commits looked for, summed over everything tried
    frames_resent: int = 0
    violations: tuple[str, ...] = ()

    def __str__(self) -> str:
        found = "".join(f"\n  {violation}" for violation in self.violations[:10])
        return (
            f"{self.crash_points_tried} of {self.crash_points} crash points and {self.faults_tried} of "
            f"{self.faults} faults, in {self.operations} disk operations and {self.calls} store calls of a workload "
            f"of {self.commits} commits; {self.acknowledged_checked} acknowledged commits checked, "
            f"{self.frames_resent} frames sent again; {len(self.violations)} violations{found}"
        )


def run(
    *,
    seed: int = 0,
    commits: int = 200,
    suites: Sequence[Suite] = tuple(Suite),
    chosen: Callable[[int], int] = lambda total: total,
    part: int = 0,
    parts: int = 1,
    rig: Rig | None = None,
) -> Summary:
    """Try everything, or as many as `chosen` says of so many, spread evenly; of these, one of so many parts."""
    rig = rig or Rig()
    with harness():
        tape = record(rig, seed=seed, commits=commits)
        points = crash_points(tape)
        trials = Trials(rig, tape, seed=seed)
        faults = list(trials.all())
        crashes = PointChecks(rig, tape, seed=seed)
        if Suite.CRASHES in suites:
            for point in evenly(points, chosen(len(points)))[part::parts]:
                crashes.check(point)
        if Suite.FAULTS in suites:
            for trial in evenly(faults, chosen(len(faults)))[part::parts]:
                trials.check(trial)
    return _summary(tape, len(points), len(faults), crashes.tally, trials.tally)


def evenly(items: Sequence[T], count: int) -> list[T]:
    """So many of them, the first and the last included, at equal distances."""
    if count >= len(items):
        return list(items)
    if count < 2:
        return list(items[:count])
    return [items[place * (len(items) - 1) // (count - 1)] for place in range(count)]


def _summary(tape: Tape, points: int, faults: int, crashes: Tally, trials: Tally) -> Summary:
    return Summary(
        commits=tape.commits,
        operations=tape.operations,
        calls=tape.calls,
        crash_points=points,
        faults=faults,
        crash_points_tried=crashes.checks,
        faults_tried=trials.checks,
        acknowledged_checked=crashes.acknowledged + trials.acknowledged,
        frames_resent=crashes.resent + trials.resent,
        violations=(*crashes.violations, *trials.violations),
    )
