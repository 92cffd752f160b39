"""What the replay keeps of each document equals the naive definition: differences, and values where branches begin."""

from __future__ import annotations

import pytest

from headwater.clock import Random, VirtualClock
from headwater.data.address import Depth
from headwater.data.change import changed_touches, overlaps
from headwater.data.patch import add, apply, increment
from headwater.data.value import ABSENT, MaybeValue
from headwater.engine.store.port import BranchRow
from headwater.engine.verify.document_history import DocumentHistories, DocumentHistory, DocumentWrite, differences
from headwater.engine.verify.naive import NaiveSpace
from headwater.protocol.commit import Commit
from headwater.testing.differential import draws
from tests.counts import scaled
from tests.unit.engine.kit import doc, write

A = doc("a")


def value_of(rng: Random) -> MaybeValue:
    return ABSENT if rng.random() < 0.1 else draws.document(rng, rng.choice(draws.DOCS))


@pytest.mark.random
def test_differences_are_the_changes_of_the_naive_definition() -> None:
    rng = VirtualClock(seed=1).randomness("differences")
    for _ in range(scaled(20_000)):
        before = value_of(rng)
        after = before
        if rng.random() < 0.7:
            for _ in range(rng.randrange(4)):
                after = apply(after, draws.patch(rng, after, A))[0]
        else:
            after = value_of(rng)
        assert set(differences(before, after)) == set(changed_touches(before, after)), (before, after)


def test_equal_parts_that_are_not_shared_are_no_difference() -> None:
    assert differences({"a": (1, {"b": 2})}, {"a": (1.0, {"b": 2})}) == ()


def branch(number: int, parent: int, fork_seq: int) -> BranchRow:
    return BranchRow(number, f"b{number}" if parent else "main", parent, fork_seq, 0, False, 0)


@pytest.mark.random
def test_a_branch_shows_what_folding_shows() -> None:
    """Any tree of branches, forked anywhere in the past of their parents, written in any order."""
    for seed in range(scaled(500)):
        rng = VirtualClock(seed=seed).randomness("branches")
        rows = {1: branch(1, 0, 0)}
        naive = NaiveSpace()
        last = rng.randrange(1, 20)
        for number in range(2, rng.randrange(2, 7)):
            parent = rng.choice(list(rows.values()))
            row = branch(number, parent.branch, rng.randrange(parent.fork_seq, last + 1))
            rows[number] = row
            naive.fork(row.name, parent.name, row.fork_seq)
        lines = DocumentHistories(rows)
        for seq in range(1, last + 1):
            row = rng.choice([row for row in rows.values() if row.fork_seq < seq])
            before, _ = lines.value(row.branch, A)
            patch = add((), seq) if before is ABSENT else increment((), 1)
            after = apply(before, patch)[0]
            line = lines.find(row.branch, A)
            if line is None:
                line = DocumentHistory(1, before, 0)
                lines.begin(row.branch, A, line)
            lines.record(row.branch, line, DocumentWrite(seq, 1, seq, 10, 10, differences(before, after)), after)
            naive.accept("s", Commit(seq, (write("a", patch),), branch=row.name))
        for row in rows.values():
            assert lines.value(row.branch, A) == (naive.value(A, row.name), naive.written(A, row.name)), seed
            for basis in range(last):
                shown = [past.seq for past in naive.line(row.name) if past.seq > basis]
                assert [each.seq for each in lines.after(row.branch, A, basis, (), Depth.DEEP)] == shown[::-1]
            for past in naive.history:
                home = next(each.branch for each in rows.values() if each.name == past.commit.branch)
                assert lines.shows(row.branch, home, past.seq) == (past in naive.line(row.name))


@pytest.mark.random
def test_what_changed_last_at_a_path_is_the_last_overlapping_write() -> None:
    for seed in range(scaled(500)):
        rng = VirtualClock(seed=seed).randomness("paths")
        line = DocumentHistory(1, ABSENT, 0)
        for seq in range(1, 15):
            after = apply(line.value, draws.patch(rng, line.value, A))[0]
            line.add(DocumentWrite(seq, 1, seq, 10, 10, differences(line.value, after)), after)
        for _ in range(20):
            path, depth = draws.place(rng, line.value)
            overlapping = [
                each.seq for each in line.writes if any(overlaps(touch, path, depth) for touch in each.changed)
            ]
            assert line.changed_at(path, depth) == max(overlapping, default=0), (seed, path, depth)
