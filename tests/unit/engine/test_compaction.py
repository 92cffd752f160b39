"""Compaction gives up what nobody needs, and nothing that a branch, a moment or a session still does."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.clock import VirtualClock
from headwater.data.patch import add, append, remove, replace
from headwater.data.value import ABSENT
from headwater.engine.engine import Engine
from headwater.engine.limits import DEFAULT_LIMITS, Limits
from headwater.engine.store.sqlite import SqliteStore
from headwater.errors import AbsentError, ProtocolError
from headwater.protocol.commit import Commit
from headwater.protocol.verdict import Accepted
from tests.unit.engine.kit import Writer, conflict_of, doc, open_engine, read, seq_of, value_of, write


class Space:
    """A space whose one session acknowledges everything, so that only what else is needed holds history."""

    def __init__(self, path: Path | str = ":memory:", *, commits: int = 30, limits: Limits = DEFAULT_LIMITS) -> None:
        self.path = path
        self.limits = limits
        self.open()
        self.writer = Writer(self.engine, "ann")
        for number in range(commits):
            self.writer.lands(write("d", append((), [number])), write(f"e{number % 3}", replace((), number)))

    def open(self) -> None:
        self.store = SqliteStore(self.path, synchronous="OFF")
        self.engine = Engine(self.store, clock=VirtualClock(), limits=self.limits)

    def compact(self, before: int) -> int:
        self.engine.acknowledge("ann", self.writer.next - 1)
        return self.engine.compact(before)

    @property
    def rows(self) -> list[int]:
        return [row.seq for row in self.store.rows_after(0, 1_000)]


def test_current_values_and_every_kept_moment_stay() -> None:
    space = Space()
    before = {at: value_of(space.engine, "d", at=at) for at in range(19, 31)}
    assert space.compact(20) == 20
    assert space.rows == list(range(20, 31))
    assert {at: value_of(space.engine, "d", at=at) for at in range(19, 31)} == before
    assert value_of(space.engine, "d") == tuple(range(30))
    assert value_of(space.engine, "e0") == 27


def test_the_given_up_past_says_so() -> None:
    space = Space()
    space.compact(20)
    with pytest.raises(AbsentError, match="history before seq 19 was compacted away; seq 10 cannot be read"):
        space.engine.read(doc("d"), at=10)
    with pytest.raises(
        AbsentError, match=r"history before seq 20 was compacted away\. Ask for changes since 19, after reading"
    ):
        space.engine.changes(since=5)
    assert [change.seq for change in space.engine.changes(since=19).items] == list(range(20, 31))


def test_the_past_cannot_be_forked() -> None:
    space = Space()
    space.compact(20)
    with pytest.raises(AbsentError, match="was compacted away"):
        space.engine.fork("b", at=5)
    space.engine.fork("b", at=19)
    assert value_of(space.engine, "d", branch="b") == tuple(range(19))


@pytest.mark.parametrize("snapshot_patches", [1, 3, 16, 1_000])
def test_a_reopened_space_and_an_index_from_the_disk_answer_the_same(tmp_path: Path, snapshot_patches: int) -> None:
    space = Space(tmp_path / "s.space", limits=Limits(snapshot_patches=snapshot_patches, marks_patches=5))
    space.compact(20)
    space.engine.close()
    space.open()
    bob = Writer(space.engine, "bob")
    assert value_of(space.engine, "d") == tuple(range(30))
    assert value_of(space.engine, "d", at=25) == tuple(range(25))
    stale = bob.send(reads=[read("d", seq=3)])  # a basis that lies before what was kept
    assert [c.seq for c in conflict_of(stale).collisions] == [30]
    assert seq_of(bob.send(reads=[read("d", (0,), seq=3)]))  # nobody wrote element 0 since


def test_a_winner_that_was_compacted_away_is_named_by_its_seq() -> None:
    space = Space()
    space.compact(30)
    verdict = Writer(space.engine, "bob").send(reads=[read("e0", seq=1)])
    (collision,) = conflict_of(verdict).collisions
    assert collision.seq == 28
    assert "28" in str(collision)


def test_an_open_session_keeps_what_it_may_still_replay() -> None:
    space = Space()
    bob = Writer(space.engine, "bob")
    kept = bob.commit(write("d", append((), ["bob"])))
    space.engine.submit("bob", kept)
    for number in range(10):
        space.writer.lands(write("e0", replace((), number)))
    assert space.compact(41) == 41
    assert space.rows == [31, 41]  # bob's one commit, and the last row of all
    assert space.engine.submit("bob", kept)[0] == Accepted(1, 31, replayed=True)


def test_a_closed_session_keeps_nothing() -> None:
    space = Space()
    bob = Writer(space.engine, "bob")
    bob.lands(write("d", append((), ["bob"])))
    space.engine.close_session("bob", 0)
    space.writer.lands(write("e0", replace((), 1)))
    space.compact(32)
    assert space.rows == [32]


def test_replaying_what_was_acknowledged_and_dropped_is_outside_the_protocol() -> None:
    space = Space()
    space.compact(30)
    with pytest.raises(ProtocolError, match="is replayed although the client said, up to 30, that it has the verdicts"):
        space.engine.submit("ann", Commit(1, (write("d", append((), [0])), write("e0", replace((), 0)))))
    assert value_of(space.engine, "d") == tuple(range(30))


def test_a_branch_keeps_everything_from_its_fork_on() -> None:
    space = Space()
    space.engine.fork("b", at=12)
    assert space.compact(25) == 13
    assert value_of(space.engine, "d", branch="b") == tuple(range(12))
    assert value_of(space.engine, "d", branch="b", at=12) == tuple(range(12))
    space.engine.delete_branch("b")
    assert space.compact(25) == 25


def test_a_deleted_branch_s_commits_go_with_the_rest() -> None:
    space = Space(commits=5)
    space.engine.fork("b")
    for number in range(5):
        space.writer.lands(write("d", append((), [number])), branch="b")
    space.engine.delete_branch("b")
    space.writer.lands(write("d", append((), ["last"])))
    assert space.compact(11) == 11
    assert value_of(space.engine, "d") == (0, 1, 2, 3, 4, "last")


def test_a_wave_is_kept_or_given_up_whole() -> None:
    space = Space(commits=0)
    for first in (0, 3, 6):
        wave = [space.writer.commit(write("d", append((), [first + n]))) for n in range(3)]
        space.engine.submit("ann", *wave)
    assert space.compact(6) == 4  # seq 6 is in the middle of the wave of 4, 5 and 6
    assert [value_of(space.engine, "d", at=at) for at in (3, 4, 5)] == [(0, 1, 2), (0, 1, 2, 3), (0, 1, 2, 3, 4)]


def test_compacting_less_or_the_same_again_changes_nothing() -> None:
    space = Space()
    assert space.compact(20) == 20
    rows = space.rows
    assert space.compact(20) == 20
    assert space.compact(5) == 20
    assert space.rows == rows


@pytest.mark.parametrize("before", [-5, 0, 1])
def test_compacting_nothing_is_allowed(before: int) -> None:
    space = Space(commits=3)
    assert space.compact(before) == 1
    assert space.rows == [1, 2, 3]
    assert Space(commits=0).compact(before) == 1


def test_the_last_row_always_stays_whatever_is_asked_for() -> None:
    space = Space(commits=3)
    assert space.compact(10**9) == 3
    assert space.rows == [3]
    assert space.writer.lands(write("d", append((), ["next"]))) == 4


def test_deleted_documents_stay_deleted_and_stay_created() -> None:
    space = Space(commits=3)
    space.writer.lands(write("gone", replace((), 1)))
    space.writer.lands(write("gone", remove(())))
    space.writer.lands(write("d", append((), [9])))
    space.compact(6)
    assert value_of(space.engine, "gone") is ABSENT
    space.engine.drop_caches()
    assert value_of(space.engine, "gone") is ABSENT
    assert space.engine.read(doc("gone")).seq == 5


def test_compacting_in_steps_while_writing_goes_on_never_loses_a_value() -> None:
    space = Space(commits=0, limits=Limits(snapshot_patches=2, marks_patches=3, cache_bytes=1, heads_commits=3))
    for number in range(60):
        space.writer.lands(write("d", append((), [number])))
        if number % 7 == 6:
            space.compact(number - 2)
            space.engine.drop_caches()
        assert value_of(space.engine, "d") == tuple(range(number + 1))
    assert len(space.rows) < 15


def test_a_pending_read_whose_own_past_is_gone_is_told_that_its_basis_expired() -> None:
    """Which of its own commits came after the basis can no longer be said, so the answer is no."""
    space = Space(commits=10, limits=Limits(session_commits=1))
    space.compact(9)
    verdict = space.writer.send(reads=[read("d", (0,), seq=2, layers=((10, 10),))])
    conflict = conflict_of(verdict)
    assert conflict.basis_expired


def test_an_engine_without_compaction_keeps_everything() -> None:
    engine = open_engine()
    ann = Writer(engine, "ann")
    for number in range(100):
        ann.lands(write("d", replace((), number)))
    assert [value_of(engine, "d", at=at) for at in (1, 50, 100)] == [0, 49, 99]


def test_the_base_of_what_is_kept_is_never_thinned_although_a_snapshot_was_there_already() -> None:
    engine = open_engine(limits=Limits(snapshot_patches=1, snapshots_fresh=1))
    ann, bob = Writer(engine, "ann"), Writer(engine, "bob")
    ann.lands(write("a", replace((), 1)))
    bob.lands()
    engine.acknowledge("ann", 1)
    assert engine.compact(2) == 2
    for number in range(2, 8):
        bob.lands(write("a", replace((), number)))
        engine.drop_caches()
        assert (value_of(engine, "a"), value_of(engine, "a", at=2)) == (number, 1)
    engine.fork("b", at=2)
    assert value_of(engine, "a", branch="b") == 1


def test_a_document_whose_snapshot_lies_before_what_is_kept_is_still_built_from_it(tmp_path: Path) -> None:
    """A large snapshot waits for patches worth a share of it; compaction may come first."""
    limits = Limits(snapshot_patches=2)
    engine = open_engine(tmp_path / "s.space", limits=limits)
    ann = Writer(engine, "ann")
    ann.lands(write("d", replace((), {})))
    ann.lands(write("d", *(add((f"k{n}",), n) for n in range(500))))
    for number in range(6):
        ann.lands(write("d", replace(("k0",), -number)))
    expected = {f"k{n}": n for n in range(500)} | {"k0": -5}
    engine.acknowledge("ann", 8)
    assert engine.compact(8) > 1
    for _ in range(2):
        engine.drop_caches()
        assert value_of(engine, "d") == expected
        engine.close()
        engine = open_engine(tmp_path / "s.space", limits=limits)
    assert value_of(engine, "d") == expected
