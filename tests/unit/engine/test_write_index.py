"""The write index answers like a list of all touches, and where it is coarse, only upwards."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from random import Random

import pytest

from headwater.data.address import Depth
from headwater.data.change import overlaps
from headwater.data.patch import Touch
from headwater.data.path import Path
from headwater.engine.log.write_index import NO_SESSION_ID, WriteIndex
from tests.counts import scaled
from tests.unit.engine.kit import DEEP, SHAPE

ROOMY = 1_000_000


class Naive:
    """The definition: every touch is remembered, and a question looks at all of them."""

    def __init__(self) -> None:
        self.touches: list[tuple[Touch, int, int]] = []

    def record(self, touched: tuple[Touch, ...], seq: int, by: int) -> None:
        self.touches += [(touch, seq, by) for touch in touched]

    def latest(self, path: Path, depth: Depth, leave_out: int = NO_SESSION_ID) -> int:
        found = [seq for touch, seq, by in self.touches if by != leave_out and overlaps(touch, path, depth)]
        return max(found, default=0)


def random_path(random: Random) -> Path:
    steps = ("a", "b", "c", 0, 1)
    return tuple(random.choice(steps) for _ in range(random.randrange(4)))


def random_touches(random: Random) -> tuple[Touch, ...]:
    return tuple(Touch(random_path(random), random.random() < 0.3) for _ in range(random.choice((0, 1, 1, 1, 2, 3))))


def all_paths() -> Iterator[Path]:
    steps = ("a", "b", "c", 0, 1)
    yield ()
    for one in steps:
        yield (one,)
        for two in steps:
            yield (one, two)
            yield (one, two, "a")
            yield (one, two, 1, "c")  # deeper than anything that is written


PATHS = tuple(all_paths())


def test_an_empty_index_has_seen_nothing() -> None:
    marks = WriteIndex(0, ROOMY)
    assert [marks.latest(path, depth) for path in PATHS for depth in (DEEP, SHAPE)] == [0] * 2 * len(PATHS)


def test_a_deep_read_meets_writes_at_above_and_below_and_nothing_beside() -> None:
    marks = WriteIndex(0, ROOMY)
    marks.record((Touch(("a", "b"), False),), 5, 1)
    assert [marks.latest(path, DEEP) for path in ((), ("a",), ("a", "b"), ("a", "b", "c"))] == [5] * 4
    assert [marks.latest(path, DEEP) for path in (("b",), ("a", "c"), ("a", 0))] == [0] * 3


def test_a_shape_read_meets_writes_at_or_above_and_changes_of_its_own_keys() -> None:
    marks = WriteIndex(0, ROOMY)
    marks.record((Touch(("a", "b"), False),), 5, 1)
    assert [marks.latest(path, SHAPE) for path in ((), ("a",), ("a", "b"), ("a", "b", "c"))] == [0, 0, 5, 5]
    marks.record((Touch(("a", "c"), True),), 6, 1)
    assert [marks.latest(path, SHAPE) for path in ((), ("a",), ("a", "b"))] == [0, 6, 5]


def test_the_root_s_own_appearance_is_a_change_of_its_shape() -> None:
    marks = WriteIndex(0, ROOMY)
    marks.record((Touch((), True),), 3, 1)
    assert (marks.latest((), SHAPE), marks.latest(("x",), SHAPE), marks.latest(("x", "y"), DEEP)) == (3, 3, 3)


def test_one_session_s_writes_can_be_left_out_however_they_alternate() -> None:
    marks = WriteIndex(0, ROOMY)
    for seq, by in enumerate((1, 2, 2, 1, 1, 3, 1), 1):
        marks.record((Touch(("a",), False),), seq, by)
    assert [marks.latest(("a",), DEEP, leave_out) for leave_out in (NO_SESSION_ID, 1, 2, 3)] == [7, 6, 7, 7]


def test_an_index_key_and_a_text_key_are_different_steps() -> None:
    marks = WriteIndex(0, ROOMY)
    marks.record((Touch((0,), False),), 4, 1)
    assert (marks.latest((0,), DEEP), marks.latest(("0",), DEEP)) == (4, 0)


@pytest.mark.random
def test_after_every_step_of_a_random_run_the_answers_are_those_of_the_definition() -> None:
    for seed in range(scaled(300)):
        random = Random(seed)
        marks, naive = WriteIndex(0, ROOMY), Naive()
        for seq in range(1, random.randrange(5, 40)):
            touched, by = random_touches(random), random.randrange(1, 4)
            marks.record(touched, seq, by)
            naive.record(touched, seq, by)
            for path in random.sample(PATHS, 12):
                for depth in (DEEP, SHAPE):
                    for leave_out in (NO_SESSION_ID, 1, 2):
                        got = marks.latest(path, depth, leave_out)
                        assert got == naive.latest(path, depth, leave_out), (
                            seed,
                            seq,
                            path,
                            depth,
                            leave_out,
                        )


@pytest.mark.random
def test_a_merged_index_answers_with_more_never_with_less_and_never_beyond_the_last_write() -> None:
    """C2: over-approximated, never under-approximated."""
    coarse = 0
    for seed in range(scaled(300)):
        random = Random(seed)
        marks, naive = WriteIndex(0, random.choice((1, 2, 4, 8))), Naive()
        for seq in range(1, 40):
            touched, by = random_touches(random), random.randrange(1, 4)
            marks.record(touched, seq, by)
            naive.record(touched, seq, by)
            for path in random.sample(PATHS, 12):
                for depth in (DEEP, SHAPE):
                    for leave_out in (NO_SESSION_ID, 1):
                        got, true = (index.latest(path, depth, leave_out) for index in (marks, naive))
                        assert true <= got <= seq, (seed, seq, path, depth, leave_out)
                        coarse += got > true
    assert coarse  # otherwise nothing was merged and the test says nothing


def test_the_number_of_nodes_stays_within_the_limit_while_keys_keep_coming() -> None:
    marks = WriteIndex(0, 100)
    for seq in range(1, 2_000):
        marks.record((Touch((f"k{seq}", "x"), True),), seq, 1)
        assert marks.nodes <= 100 + 2
    assert marks.latest(("k1999",), DEEP) == 1999  # what is recent stays exact
    assert marks.latest(("k1998",), DEEP) == 1998
    assert 1 <= marks.latest(("k1",), DEEP) < 1999  # what is old is only bounded


def test_the_oldest_children_are_merged_first() -> None:
    marks = WriteIndex(0, 8)
    for seq in range(1, 12):
        marks.record((Touch((f"k{seq}",), True),), seq, 1)
    exact = [seq for seq in range(1, 12) if marks.latest((f"k{seq}",), DEEP) == seq]
    assert exact[-3:] == [9, 10, 11]
    assert 1 not in exact


def test_the_count_of_nodes_is_the_number_of_paths_seen() -> None:
    marks = WriteIndex(0, ROOMY)
    marks.record((Touch(("a", "b"), True), Touch(("a", "c"), True), Touch(("a",), False)), 1, 1)
    assert marks.nodes == 4  # the root, a, a/b and a/c


def test_touches_since_the_index_was_stored_are_counted() -> None:
    marks = WriteIndex(0, ROOMY)
    for seq in range(1, 4):
        marks.record((Touch(("a",), False), Touch(("b",), False)), seq, 1)
    assert marks.stale == 6
    marks.encode()
    assert marks.stale == 0


@pytest.mark.random
def test_a_stored_index_comes_back_with_every_answer_and_grows_on_alike() -> None:
    for seed in range(scaled(100)):
        random = Random(seed)
        marks = WriteIndex(0, random.choice((4, ROOMY)))
        seqs = count(1)
        for _ in range(20):
            marks.record(random_touches(random), next(seqs), random.randrange(1, 4))
        again = WriteIndex.decode(marks.encode(), ROOMY)
        assert again.nodes == marks.nodes
        questions = [(path, depth, out) for path in PATHS for depth in (DEEP, SHAPE) for out in (0, 1, 2, 3)]
        assert [again.latest(*each) for each in questions] == [marks.latest(*each) for each in questions]


def test_an_index_without_children_is_small_on_disk() -> None:
    assert len(WriteIndex(0, ROOMY).encode()) < 16


def test_the_index_stays_within_its_limit_however_a_document_grows() -> None:
    """A journal by month, day, hour and minute: no node is ever wide, and there are ever more of them."""
    limit = 500
    marks = WriteIndex(0, limit)
    seq = 0
    at: Path = ()
    for hour in range(24 * 40):
        seq += 1
        at = (f"m{hour // 720}", f"d{hour // 24}", f"h{hour}")
        marks.record((Touch(at, True), *(Touch((*at, minute), False) for minute in range(60))), seq, 1)
        assert marks.nodes <= limit + 70, hour
    assert marks.latest(at, DEEP) == seq
    assert marks.latest(("m0",), DEEP) >= 720
    assert marks.latest((*at, 59), DEEP) == seq
