"""Snapshots keep every fold short, at a price proportional to what was written."""

from __future__ import annotations

import pytest

from headwater.clock import VirtualClock
from headwater.data.patch import append, remove, replace
from headwater.data.value import ABSENT
from headwater.engine.engine import Engine
from headwater.engine.limits import DEFAULT_LIMITS, Limits
from headwater.engine.store.sqlite import SqliteStore
from tests.unit.engine.kit import Writer, doc, value_of, write


class Space:
    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self.store = SqliteStore(":memory:")
        self.engine = Engine(self.store, clock=VirtualClock(), limits=limits)
        self.writer = Writer(self.engine, "ann")

    @property
    def taken(self) -> list[tuple[int, int]]:
        return self.store.snapshot_seqs(1, 1)

    def patch(self, times: int) -> None:
        for _ in range(times):
            self.writer.lands(write("d", replace(("k",), f"{self.engine.last_seq:08}")))


def test_one_is_taken_after_so_many_commits() -> None:
    space = Space(Limits(snapshot_patches=4, snapshot_share=1_000_000, snapshots_fresh=100))
    space.writer.lands(write("d", replace((), {"k": ""})))
    space.patch(19)
    assert [seq for seq, _ in space.taken] == [4, 8, 12, 16, 20]


def test_a_large_document_waits_until_the_patches_are_worth_a_share_of_it() -> None:
    space = Space(Limits(snapshot_patches=2, snapshot_share=4, snapshots_fresh=100))
    space.writer.lands(write("d", replace((), {"k": "", "big": "x" * 10_000})))
    space.patch(200)
    written = sum(len(row.body) for row in space.store.rows_after(0, 1_000))
    stored = 10_000 * len(space.taken)
    assert 1 <= len(space.taken) < 20
    assert stored <= 5 * written  # the first snapshot, and then at most 4 bytes for each one written


def test_older_ones_keep_half_and_the_newest_all() -> None:
    space = Space(Limits(snapshot_patches=1, snapshots_fresh=4, snapshot_share=1_000_000))
    space.writer.lands(write("d", replace((), {"k": ""})))
    space.patch(39)
    ordinals = [ordinal for _, ordinal in space.taken]
    assert ordinals[-4:] == [37, 38, 39, 40]
    assert all(ordinal % 2 == 0 for ordinal in ordinals[:-4])
    assert ordinals[:-4] == list(range(2, 37, 2))


@pytest.mark.parametrize("length", [100, 1_000, 3_000])
def test_a_read_at_any_age_folds_a_bounded_number_of_patches(length: int) -> None:
    space = Space()
    space.writer.lands(write("d", replace((), {"k": ""})))
    space.patch(length)
    bound = 4 * DEFAULT_LIMITS.snapshot_patches + 4
    for at in range(1, length, max(1, length // 40)):
        rows = space.store.visited.rows
        space.engine.read(doc("d"), at=at)
        assert space.store.visited.rows - rows <= bound, at


def test_a_cold_current_read_folds_at_most_one_period() -> None:
    space = Space()
    space.writer.lands(write("d", replace((), {"k": ""})))
    for _ in range(100):
        space.patch(1)
        space.engine.drop_caches()
        rows = space.store.visited.rows
        value_of(space.engine, "d")
        assert space.store.visited.rows - rows <= DEFAULT_LIMITS.snapshot_patches + 4


def test_absence_can_be_a_snapshot() -> None:
    space = Space(Limits(snapshot_patches=1, snapshots_fresh=100))
    space.writer.lands(write("d", replace((), 1)))
    space.writer.lands(write("d", remove(())))
    space.writer.lands(write("d", append((), [1])))
    rows = [space.store.snapshot_at_or_before(1, 1, seq) for seq in (1, 2, 3)]
    assert [row.present for row in rows if row is not None] == [True, False, True]
    assert [value_of(space.engine, "d", at=at) for at in (1, 2, 3)] == [1, ABSENT, (1,)]


def test_branches_have_snapshots_of_their_own() -> None:
    space = Space(Limits(snapshot_patches=2, snapshot_share=1_000_000))
    space.writer.lands(write("d", replace((), {"k": ""})))
    space.patch(3)
    space.engine.fork("b")
    for number in range(4):
        space.writer.lands(write("d", replace(("k",), number)), branch="b")
    assert [seq for seq, _ in space.store.snapshot_seqs(1, 1)] == [2, 4]
    assert [seq for seq, _ in space.store.snapshot_seqs(2, 1)] == [6, 8]


def test_several_periods_in_one_group_take_several_snapshots() -> None:
    """A fold stays short also when a document is written many times before the group is durable."""
    space = Space(Limits(snapshot_patches=4, snapshot_share=1_000_000, snapshots_fresh=100))
    batch = []
    for number in range(40):
        batch.append(("ann", [space.writer.commit(write("d", append((), [number])))]))
    space.engine.submit_group(batch)
    assert len(space.taken) == 10
    for at in range(1, 41):
        assert value_of(space.engine, "d", at=at) == tuple(range(at))


class TestTheStoredIndex:
    def test_it_is_stored_again_when_enough_was_written(self) -> None:
        space = Space(Limits(marks_patches=8))
        space.writer.lands(write("d", replace((), {"k": ""})))
        stored = []
        for _ in range(40):
            space.patch(1)
            row = space.store.marks(1, 1)
            stored.append(row.seq if row is not None else 0)
        assert len(set(stored)) == 6  # none at first, then one in eight commits

    def test_a_large_index_waits_longer(self) -> None:
        space = Space(Limits(marks_patches=1))
        space.writer.lands(write("d", replace((), {f"k{n}": 0 for n in range(400)} | {"k": ""})))
        for number in range(400):
            space.writer.lands(write("d", replace((f"k{number}",), 1)))
        row = space.store.marks(1, 1)
        assert row is not None
        first = row.seq
        space.patch(20)
        row = space.store.marks(1, 1)
        assert row is not None
        assert row.seq == first
