"""C2: overlap is over-approximated or exact, never under-approximated; disjoint keys do not collide."""

from __future__ import annotations

from random import Random

import pytest

from headwater.data.address import Depth
from headwater.data.patch import (
    Patch,
    add,
    add_sorted,
    add_unique,
    append,
    increment,
    remove,
    remove_value,
    replace,
    splice,
)
from headwater.data.path import Path
from headwater.engine import Limits
from headwater.protocol.verdict import Accepted
from tests.counts import scaled
from tests.unit.engine.kit import DEEP, SHAPE, Writer, open_engine, read, write

START = {"a": {"x": 1, "y": 1}, "b": 1, "l": [1, 2, 3], "n": 5}


def collides(patch: Patch, path: Path, depth: Depth) -> bool:
    """Whether a read of START is stale after somebody else made the patch."""
    engine = open_engine()
    ann, bob = Writer(engine, "ann"), Writer(engine, "bob")
    basis = ann.lands(write("d", replace((), START)))
    bob.lands(write("d", patch))
    return not isinstance(ann.send(reads=[read("d", path, seq=basis, depth=depth)]), Accepted)


@pytest.mark.parametrize(
    ("patch", "deep", "shape", "untouched"),
    [
        # the write; deep reads it meets; shape reads it meets; what it leaves alone at either depth
        (
            replace(("a", "x"), 2),
            [(), ("a",), ("a", "x")],
            [("a", "x"), ("a", "x", "z")],
            [("a", "y"), ("b",)],
        ),
        (
            add(("a", "new"), 2),
            [(), ("a",), ("a", "new")],
            [("a",), ("a", "new")],
            [("a", "x"), ("b",), ("n",)],
        ),
        (remove(("a", "x")), [(), ("a",), ("a", "x")], [("a",), ("a", "x")], [("a", "y"), ("b",)]),
        (replace(("a",), {}), [(), ("a",), ("a", "x")], [("a",), ("a", "x"), ("a", "y")], [("b",), ("l",)]),
        (
            append(("l",), [4]),
            [(), ("l",), ("l", 3)],
            [("l",), ("l", 3)],
            [("l", 0), ("l", 2), ("n",), ("a",)],
        ),
        (append(("l",), [4], keep=2), [(), ("l",), ("l", 0)], [("l",), ("l", 0)], [("n",), ("a",)]),
        (add_unique(("l",), 9), [(), ("l",), ("l", 3)], [("l",), ("l", 3)], [("l", 0), ("a",)]),
        (add_sorted(("l",), 0), [(), ("l",), ("l", 0), ("l", 3)], [("l",), ("l", 0)], [("n",), ("a",)]),
        (remove_value(("l",), 2), [(), ("l",), ("l", 1), ("l", 2)], [("l",), ("l", 2)], [("n",), ("a",)]),
        (splice(("l",), 0, 1, []), [(), ("l",), ("l", 0), ("l", 2)], [("l",), ("l", 2)], [("n",), ("a",)]),
        (replace(("l", 1), 7), [(), ("l",), ("l", 1)], [("l", 1)], [("l", 0), ("l", 2), ("n",)]),
        (increment(("n",)), [(), ("n",)], [("n",)], [("a",), ("l",), ("b",)]),
        (increment(("m",)), [(), ("m",)], [(), ("m",)], [("a",), ("l",), ("n",)]),
        (remove(()), [(), ("a",), ("l", 0)], [(), ("a",), ("l", 0)], []),
    ],
    ids=lambda each: f"{each.kind}{list(each.path)}" if isinstance(each, Patch) else "",
)
def test_a_write_meets_exactly_the_reads_that_could_see_it(
    patch: Patch, deep: list[Path], shape: list[Path], untouched: list[Path]
) -> None:
    assert [path for path in deep if not collides(patch, path, DEEP)] == []
    assert [path for path in shape if not collides(patch, path, SHAPE)] == []
    for depth in (DEEP, SHAPE):
        assert [path for path in untouched if collides(patch, path, depth)] == []


def test_a_shape_read_ignores_edits_of_values_below_it() -> None:
    assert not collides(replace(("a", "x"), 2), ("a",), SHAPE)
    assert not collides(replace(("a", "x"), 2), (), SHAPE)
    assert not collides(replace(("l", 0), 2), ("l",), SHAPE)


def test_documents_do_not_collide_and_scopes_keep_same_ids_apart() -> None:
    engine = open_engine()
    ann, bob = Writer(engine, "ann"), Writer(engine, "bob")
    bob.lands(write("d2", replace((), 1)))
    assert ann.lands(reads=[read("d", seq=0)])


@pytest.mark.random
def test_merging_the_write_index_rejects_more_and_never_less() -> None:
    """A tiny index answers for keys it has forgotten with every write up to its floor."""
    random = Random(2)
    for _ in range(scaled(50)):
        engine = open_engine(limits=Limits(marks_per_document=3))
        ann, bob = Writer(engine, "ann"), Writer(engine, "bob")
        basis = ann.lands(write("d", replace((), {f"k{n}": 0 for n in range(8)})))
        written = random.sample(range(8), 5)
        for number in written:
            bob.lands(write("d", replace((f"k{number}",), 1)))
        for number in range(8):
            verdict = ann.send(reads=[read("d", (f"k{number}",), seq=basis)])
            if number in written:
                assert not isinstance(verdict, Accepted)
