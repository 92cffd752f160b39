"""The engine is killed at every point of a workload, and everything under it fails once.

`./dev sim` tries everything there is, `./dev test` an evenly chosen hundredth of it in a shorter workload. The parts
are for running side by side.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from headwater.clock import Clock
from headwater.engine import Engine
from headwater.engine.store.database import Database
from headwater.engine.store.port import HeadRow, Store
from headwater.engine.store.sqlite import SqliteStore
from headwater.testing.crash import Rig, Suite, Summary, run
from headwater.testing.disk_machine import FILE
from headwater.testing.disk_workload import LIMITS
from tests.counts import is_exploring
from tests.counts import seldom as chosen

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


def test_the_workload_is_large_enough_to_mean_something() -> None:
    summary = run(chosen=lambda total: 1)
    assert summary.commits >= 200
    assert summary.operations > 2_000
    assert summary.crash_points > 3 * summary.operations
    assert summary.faults > 4 * (summary.operations + summary.calls) // 2


def test_the_same_seed_tries_the_same() -> None:
    one, two = (run(commits=20, chosen=lambda total: 20) for _ in range(2))
    assert one == two


# ---- the harness finds what it is for -----------------------------------------------------------------------


def tried(rig: Rig, suite: Suite) -> Summary:
    return run(commits=60, suites=[suite], chosen=lambda total: total // 80, rig=rig)


def assert_found(summary: Summary, words: str) -> None:
    assert any(words in violation for violation in summary.violations), summary


def test_an_answer_before_the_sync_is_found() -> None:
    rig = Rig(store=lambda vfs: SqliteStore(FILE, vfs=vfs, synchronous="OFF"))
    assert_found(tried(rig, Suite.CRASHES), "is not in the log as it was sent")


def test_a_sync_at_checkpoints_only_is_found() -> None:
    rig = Rig(store=lambda vfs: SqliteStore(FILE, vfs=vfs, synchronous="NORMAL"))
    assert_found(tried(rig, Suite.CRASHES), "is not in the log as it was sent")


class AnswersEarly(SqliteStore):
    """Commits a transaction when the next one begins, after everybody was told."""

    __slots__ = ("_owed",)

    def commit(self) -> None:
        self._owed = True

    def begin(self, *, synced: bool = True) -> None:
        self._settle()
        super().begin(synced=synced)

    def close(self) -> None:
        self._settle()
        super().close()

    def _settle(self) -> None:
        if getattr(self, "_owed", False):
            super().commit()
        self._owed = False


def test_an_answer_before_the_commit_is_found() -> None:
    rig = Rig(store=lambda vfs: AnswersEarly(FILE, vfs=vfs))
    assert_found(tried(rig, Suite.CRASHES), "is not in the log as it was sent")


class HeadsApart(SqliteStore):
    """Writes heads in a transaction of their own, after the one that they belong to."""

    __slots__ = ("_late",)

    def put_heads(self, rows: Iterable[HeadRow]) -> None:
        self._late = [*getattr(self, "_late", ()), *rows]

    def commit(self) -> None:
        super().commit()
        late, self._late = getattr(self, "_late", []), []
        if late:
            super().begin()
            super().put_heads(late)
            super().commit()


def test_heads_written_outside_the_transaction_are_found() -> None:
    summary = tried(Rig(store=lambda vfs: HeadsApart(FILE, vfs=vfs)), Suite.CRASHES)
    assert_found(summary, "neither as answered nor as asked")


class Remembers(Engine):
    """Keeps what it has in memory when a transaction failed."""

    __slots__ = ()

    def _reload(self) -> None:
        self._broken = False


def remembering(store: Store, clock: Clock) -> Engine:
    return Remembers(store, clock=clock, limits=LIMITS)


def test_memory_kept_after_a_failed_commit_is_found() -> None:
    summary = tried(Rig(engine=remembering), Suite.FAULTS)
    assert_found(summary, "before it was Accepted")
    assert len(summary.violations) > summary.faults_tried // 10


def test_a_recovery_that_answers_for_what_was_never_synced_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    run_sql = Database.run

    def without_leaving_the_mode(self: Database, sql: str, values: tuple[object, ...] = ()) -> None:
        if sql != "PRAGMA journal_mode=DELETE":
            run_sql(self, sql, values)

    monkeypatch.setattr(Database, "run", without_leaving_the_mode)
    monkeypatch.setattr(Database, "_write_log_again", lambda self, **_: False)
    summary = run(commits=12, suites=[Suite.CRASHES], chosen=lambda total: total // 4)
    assert_found(summary, "asked again: table log lacks")
    assert all("process killed" in violation for violation in summary.violations)
