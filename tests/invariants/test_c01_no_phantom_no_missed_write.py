"""C1: every read of an accepted commit saw exactly the accepted overlapping writes before it."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from headwater.data.address import Depth
from headwater.data.patch import Patch, add, append, increment, remove, replace
from headwater.data.path import Path as ValuePath
from headwater.data.value import ABSENT, MaybeValue, equal, lookup
from headwater.engine import Limits
from headwater.protocol.commit import Read
from headwater.protocol.verdict import Accepted, Collision
from tests.counts import scaled
from tests.unit.engine.kit import (
    DEEP,
    SHAPE,
    Writer,
    conflict_of,
    doc,
    open_engine,
    read,
    seq_of,
    value_of,
    write,
)


def test_a_write_that_was_missed_is_named_with_its_winner() -> None:
    engine = open_engine()
    ann, bob = Writer(engine, "ann"), Writer(engine, "bob")
    basis = ann.lands(write("cart", replace((), {"qty": 1})))
    winner = bob.lands(write("cart", replace(("qty",), 2)), node="Cart.set_qty")
    verdict = ann.send(write("cart", replace(("qty",), 3)), reads=[read("cart", ("qty",), seq=basis)])
    assert conflict_of(verdict).collisions == (
        Collision(doc("cart"), ("qty",), DEEP, basis, winner, "bob", "Cart.set_qty"),
    )
    assert value_of(engine, "cart") == {"qty": 2}


def test_read_that_held_for_a_commit_of_a_frame_is_compared_again_after_a_write() -> None:
    engine = open_engine()
    ann = Writer(engine, "ann")
    basis = ann.lands(write("d", replace((), {"x": 1, "y": 1})))
    ann.lands(write("d", replace(("y",), 2)))
    seen = read("d", ("x",), seq=basis)
    commits = [
        ann.commit(write("e", replace((), 1)), reads=[seen]),
        ann.commit(write("f", replace((), 1)), reads=[seen]),
        ann.commit(write("d", replace(("x",), 2))),
        ann.commit(write("g", replace((), 1)), reads=[seen]),
    ]
    first, second, third, last = engine.submit(ann.key, *commits)
    assert [isinstance(each, Accepted) for each in (first, second, third)] == [True] * 3
    assert conflict_of(last).collisions[0].doc == doc("d")


def test_something_that_appeared_where_nothing_was_read_is_a_missed_write() -> None:
    engine = open_engine()
    ann, bob = Writer(engine, "ann"), Writer(engine, "bob")
    bob.lands(write("d", replace((), {})))
    conflict_of(ann.send(write("e", replace((), 1)), reads=[read("d", seq=0, depth=SHAPE)]))
    basis = engine.last_seq
    bob.lands(write("d", add(("late",), 1)))
    conflict_of(ann.send(write("e", replace((), 1)), reads=[read("d", ("late",), seq=basis)]))


def test_something_that_vanished_and_came_back_equal_is_still_a_write() -> None:
    engine = open_engine()
    ann, bob = Writer(engine, "ann"), Writer(engine, "bob")
    basis = bob.lands(write("d", replace((), {"x": 1})))
    bob.lands(write("d", remove(())))
    bob.lands(write("d", replace((), {"x": 1})))
    conflict_of(ann.send(write("e", replace((), 1)), reads=[read("d", ("x",), seq=basis)]))


def test_every_collision_is_returned_and_not_only_the_first() -> None:
    engine = open_engine()
    ann, bob = Writer(engine, "ann"), Writer(engine, "bob")
    basis = bob.lands(write("a", replace((), {"x": 1, "y": 1, "z": 1})), write("b", replace((), 1)))
    first = bob.lands(write("a", replace(("x",), 2)))
    second = bob.lands(write("b", replace((), 2)), node="N")
    third = bob.lands(write("a", replace(("y",), 2)))
    reads = [
        read("a", ("x",), seq=basis),
        read("a", ("y",), seq=basis),
        read("a", ("z",), seq=basis),
        read("b", seq=basis),
    ]
    verdict = ann.send(write("a", replace(("z",), 9)), reads=reads)
    found = [(c.doc.id, c.path, c.seq, c.node) for c in conflict_of(verdict).collisions]
    assert found == [("a", ("x",), first, ""), ("a", ("y",), third, ""), ("b", (), second, "N")]


def test_a_commit_that_read_what_is_there_is_accepted_however_old_its_basis() -> None:
    engine = open_engine()
    ann, bob = Writer(engine, "ann"), Writer(engine, "bob")
    basis = bob.lands(write("d", replace((), {"mine": 1, "other": 1})))
    for number in range(200):
        bob.lands(write("d", replace(("other",), number + 2)))
    assert ann.lands(write("d", replace(("mine",), 2)), reads=[read("d", ("mine",), seq=basis)])


def test_a_write_that_changed_nothing_makes_no_read_stale() -> None:
    engine = open_engine()
    ann, bob = Writer(engine, "ann"), Writer(engine, "bob")
    basis = bob.lands(write("d", replace((), {"x": 1})))
    bob.lands(write("d", replace(("x",), 1)))
    assert ann.lands(write("d", replace(("x",), 2)), reads=[read("d", ("x",), seq=basis)])


def test_two_commits_of_one_wave_do_not_miss_each_other() -> None:
    """The later commit of a frame is judged as if the earlier one were already in the log, which it is."""
    engine = open_engine()
    ann = Writer(engine, "ann")
    wave = [
        ann.commit(write("d", replace((), {"x": 1})), node="first"),
        ann.commit(write("d", add(("y",), 1)), reads=[read("d", ("x",), seq=0)]),
    ]
    verdicts = engine.submit("ann", *wave)
    assert seq_of(verdicts[0]) == 1
    assert [(c.seq, c.session, c.node) for c in conflict_of(verdicts[1]).collisions] == [(1, "ann", "first")]
    assert value_of(engine, "d") == {"x": 1}


def test_two_frames_of_one_group_do_not_miss_each_other() -> None:
    engine = open_engine()
    ann, bob = Writer(engine, "ann"), Writer(engine, "bob")
    basis = ann.lands(write("d", replace((), {"x": 1})))
    reads = [read("d", ("x",), seq=basis)]
    outcomes = engine.submit_group(
        [(w.key, [w.commit(write("d", replace(("x",), w.key)), reads=reads)]) for w in (ann, bob)]
    )
    assert isinstance(outcomes[0], tuple)
    assert isinstance(outcomes[1], tuple)
    assert isinstance(outcomes[0][0], Accepted)
    assert [c.session for c in conflict_of(outcomes[1][0]).collisions] == ["ann"]


@pytest.mark.parametrize("restart", [False, True])
def test_what_is_no_longer_in_memory_is_not_missed(tmp_path: Path, restart: bool) -> None:
    """The write index of an evicted or reopened document comes from the disk and answers the same."""
    limits = Limits(cache_bytes=1, session_commits=1, snapshot_patches=3, marks_patches=3)
    engine = open_engine(tmp_path / "s.space", limits=limits)
    ann, bob = Writer(engine, "ann"), Writer(engine, "bob")
    bob.lands(write("d", replace((), {"x": 0, "y": 0})))
    for number in range(1, 30):
        bob.lands(write("d", replace((("x", "y")[number % 2],), number)))
    if restart:
        engine.close()
        engine = ann.engine = bob.engine = open_engine(tmp_path / "s.space", limits=limits)
    # Written at seqs 2..30: y at the even ones, x at the odd ones from 3 on.
    for key, last in (("x", 29), ("y", 30)):
        for basis in (1, 10, last - 1, last, 30):
            verdict = ann.send(reads=[read("d", (key,), seq=basis)])
            if basis >= last:
                seq_of(verdict)
            else:
                assert [c.seq for c in conflict_of(verdict).collisions] == [last]


class TestRandomRuns:
    """An accepted commit's reads looked the same at their basis and just before it: the rule, by values."""

    PATHS: tuple[ValuePath, ...] = ((), ("a",), ("b",), ("a", "p"), ("a", "q"), ("l",), ("l", 0), ("n",))

    def patches(self, random: Random, value: MaybeValue) -> tuple[Patch, ...]:
        """Something that fits the value its writer sees."""
        if value is ABSENT or random.random() < 0.05:
            return (replace((), {"a": {"p": 0}, "b": 0, "l": [], "n": 0}),)
        kind = random.randrange(7)
        if kind == 0:
            return (remove(()),)
        if kind == 1:
            return (append(("l",), [random.randrange(3)], keep=random.choice((None, 3))),)
        if kind == 2:
            return (increment(("n",), 1),)
        if kind == 3:
            return (add(("a", random.choice("pq")), random.randrange(3)),)
        if kind == 4 and lookup(value, ("a", "q")) is not ABSENT:
            return (remove(("a", "q")),)
        return (replace(("b",), random.randrange(3)),)

    @pytest.mark.random
    def test_reads_of_accepted_commits_look_the_same_at_their_basis_and_at_their_turn(self) -> None:
        accepted = rejected = 0
        for seed in range(scaled(300, least=15)):
            random = Random(seed)
            limits = Limits(
                cache_bytes=random.choice((1, 10**8)),
                snapshot_patches=random.choice((1, 4)),
                marks_patches=random.choice((1, 8)),
                marks_per_document=random.choice((2, 1_000)),
            )
            engine = open_engine(limits=limits)
            writers = [Writer(engine, f"w{n}") for n in range(3)]
            for _ in range(30):
                writer = random.choice(writers)
                basis = random.randrange(max(0, engine.last_seq - 6), engine.last_seq + 1)
                seen = value_of(engine, "d", at=basis)
                reads = [
                    Read(doc("d"), path, random.choice((DEEP, SHAPE)), basis) for path in random.sample(self.PATHS, 2)
                ]
                before = value_of(engine, "d")
                verdict = writer.send(write("d", *self.patches(random, seen)), reads=reads)
                if not isinstance(verdict, Accepted):
                    rejected += 1
                    continue
                accepted += 1
                for each in reads:
                    assert looks_alike(seen, before, each.path, each.depth), (seed, verdict, each)
        assert accepted > 100
        assert rejected > 100


def looks_alike(a: MaybeValue, b: MaybeValue, path: ValuePath, depth: Depth) -> bool:
    left, right = lookup(a, path), lookup(b, path)
    if depth == DEEP:
        return equal(left, right)
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys()
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right)
    return equal(left, right)
