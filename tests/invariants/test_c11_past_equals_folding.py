"""C11: point-in-time reads equal folding the log, on every branch."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from headwater.data.address import DocKey
from headwater.data.patch import Patch, add, append, apply, increment, remove, replace, splice
from headwater.data.value import ABSENT, MaybeValue, equal, lookup
from headwater.engine import Engine, Limits
from headwater.errors import AbsentError
from tests.counts import scaled
from tests.unit.engine.kit import Writer, doc, open_engine, value_of, write

DOCS = ("d", "e", "f")


class Folded:
    """The definition: every commit of the log, applied from the beginning, as far as a branch sees it."""

    def __init__(self, engine: Engine) -> None:
        self.changes = [
            change for start in range(0, engine.last_seq, 50) for change in engine.changes(since=start, limit=50).items
        ]
        self.branches = {branch.name: branch for branch in engine.branches().items}

    def visible(self, branch: str, on: str, seq: int, at: int) -> bool:
        """Whether a commit made on one branch at `seq` is part of another branch at moment `at`."""
        if seq > at:
            return False
        if branch == on:
            return True
        here = self.branches[branch]
        return here.parent is not None and self.visible(here.parent.name, on, seq, min(at, here.fork_seq))

    def value(self, key: DocKey, branch: str, at: int) -> tuple[MaybeValue, int]:
        value: MaybeValue = ABSENT
        written = 0
        for change in self.changes:
            if not self.visible(branch, change.commit.branch, change.seq, at):
                continue
            for operation in change.commit.operations:
                if operation.doc == key:
                    for patch in operation.patches:
                        value, touched = apply(value, patch)
                        written = change.seq if touched else written  # What changes nothing is no write.
        return value, written


def patches_for(random: Random, value: MaybeValue) -> tuple[Patch, ...]:
    if value is ABSENT or random.random() < 0.1:
        return (replace((), {"l": [], "n": 0, "m": {}}),)
    kind = random.randrange(6)
    if kind == 0:
        return (remove(()),)
    if kind == 1:
        return (append(("l",), [random.randrange(9)], keep=5), increment(("n",), 2))
    if kind == 2:
        return (increment(("n",)),)
    array = lookup(value, ("l",))
    if kind == 3 and isinstance(array, tuple) and array:
        return (splice(("l",), 0, 1, ["s"]),)
    return (add(("m", random.choice("xyz")), random.randrange(9)),)


def random_space(random: Random, engine: Engine, steps: int) -> None:
    writer = Writer(engine, "w")
    names = ["main"]
    for step in range(steps):
        if random.random() < 0.1 and len(names) < 4:
            parent = random.choice(names)
            forks = {branch.name: branch.fork_seq for branch in engine.branches().items}
            at = random.randrange(forks[parent], engine.last_seq + 1)
            engine.fork(f"b{step}", parent=parent, at=at)
            names.append(f"b{step}")
        branch = random.choice(names)
        id = random.choice(DOCS)
        value = value_of(engine, id, branch=branch)
        writer.lands(write(id, *patches_for(random, value)), branch=branch)


def assert_past_equals_folding(engine: Engine, *, since: int = 0) -> None:
    folded = Folded(engine)
    for name, branch in folded.branches.items():
        for at in range(max(branch.fork_seq, since), engine.last_seq + 1):
            for id in DOCS:
                document = engine.read(doc(id), branch=name, at=at)
                value, written = folded.value(doc(id), name, at)
                assert equal(document.value, value), (name, at, id)
                assert (document.seq, document.as_of) == (written, at), (name, at, id)
        for id in DOCS:
            document = engine.read(doc(id), branch=name)
            assert equal(document.value, folded.value(doc(id), name, engine.last_seq)[0]), (name, id)


@pytest.mark.random
def test_the_past_of_any_document_on_any_branch_is_the_fold_of_the_log() -> None:
    for seed in range(scaled(60)):
        random = Random(seed)
        limits = Limits(
            snapshot_patches=random.choice((1, 2, 5)),
            snapshots_fresh=random.choice((1, 2, 4)),
            snapshot_share=random.choice((1, 100)),
            cache_bytes=random.choice((1, 10**8)),
        )
        engine = open_engine(limits=limits)
        random_space(random, engine, 50)
        assert_past_equals_folding(engine)


def test_the_past_is_the_same_for_an_engine_that_has_just_opened_the_file(tmp_path: Path) -> None:
    engine = open_engine(tmp_path / "s.space", limits=Limits(snapshot_patches=2, snapshots_fresh=2))
    random_space(Random(11), engine, 60)
    engine.close()
    assert_past_equals_folding(open_engine(tmp_path / "s.space"))


@pytest.mark.random
def test_what_compaction_keeps_still_equals_the_fold_it_had_before() -> None:
    for seed in range(scaled(100)):
        random = Random(seed)
        limits = Limits(
            snapshot_patches=random.choice((1, 2, 5)),
            snapshots_fresh=2,
            marks_patches=random.choice((1, 50)),
            snapshot_share=random.choice((1, 100)),
        )
        engine = open_engine(limits=limits)
        random_space(random, engine, 40)
        engine.acknowledge("w", 40)
        folded = Folded(engine)
        first = engine.compact(random.randrange(1, 45))
        kept_from = engine.compact(random.randrange(1, 45))
        assert kept_from >= first
        moments = 0
        for name, branch in folded.branches.items():
            for at in range(branch.fork_seq, engine.last_seq + 1):
                for id in DOCS:
                    try:
                        document = engine.read(doc(id), branch=name, at=at)
                    except AbsentError:
                        assert at < kept_from
                        continue
                    moments += 1
                    assert equal(document.value, folded.value(doc(id), name, at)[0]), (seed, name, at, id)
        assert moments


def test_a_child_sees_its_parent_only_up_to_the_fork() -> None:
    engine = open_engine()
    ann = Writer(engine, "ann")
    first = ann.lands(write("d", replace((), "first")))
    ann.lands(write("d", replace((), "second")))
    engine.fork("b", at=first)
    ann.lands(write("d", replace((), "third")))
    assert value_of(engine, "d", branch="b") == "first"
    engine.fork("c", parent="b")
    assert value_of(engine, "d", branch="c") == "first"


def test_a_branch_cannot_be_read_before_it_began() -> None:
    engine = open_engine()
    ann = Writer(engine, "ann")
    ann.lands(write("d", replace((), 1)))
    ann.lands(write("d", replace((), 2)))
    engine.fork("b")
    with pytest.raises(AbsentError, match=r"branch 'b' begins at seq 2\. Read 'main' for seq 1\."):
        engine.read(doc("d"), branch="b", at=1)


def test_absence_has_a_past_too() -> None:
    engine = open_engine()
    ann = Writer(engine, "ann")
    made = ann.lands(write("d", replace((), 1)))
    gone = ann.lands(write("d", remove(())))
    again = ann.lands(write("d", replace((), 2)))
    assert [value_of(engine, "d", at=at) for at in (0, made, gone, again)] == [ABSENT, 1, ABSENT, 2]
