"""C9: notifications are differences of visible state, in causal order, never of hidden layers.

Notifying watchers is the replica's. What the engine promises already, and what notifications will be made of:
`changes` lists every accepted commit once, in the order of the log, and nothing else.
"""

from __future__ import annotations

from random import Random

import pytest

from headwater.data.address import DocKey
from headwater.data.patch import add, append, apply, increment, replace
from headwater.data.value import ABSENT, MaybeValue, equal
from headwater.engine.engine import Engine
from headwater.engine.reads import Logged
from headwater.protocol.verdict import Accepted
from tests.counts import scaled
from tests.unit.engine.kit import Writer, doc, open_engine, read, write


def all_changes(engine: Engine, *, since: int = 0, branch: str | None = None, limit: int = 7) -> list[Logged]:
    """Every page, joined."""
    found: list[Logged] = []
    cursor: int | None = since
    while cursor is not None:
        page = engine.changes(since=cursor, branch=branch, limit=limit)
        found += page.items
        cursor = int(page.next) if page.next is not None else None
    return found


def test_changes_come_once_each_and_in_the_order_of_the_log() -> None:
    engine = open_engine()
    writers = [Writer(engine, name) for name in "abc"]
    for number in range(30):
        writers[number % 3].lands(write("d", append((), [number])))
    changes = all_changes(engine)
    assert [change.seq for change in changes] == list(range(1, 31))
    assert [change.session for change in changes] == ["a", "b", "c"] * 10
    assert [change.commit.operations[0].patches[0].arg for change in changes] == [
        ((number,), None) for number in range(30)
    ]


def test_nothing_of_a_rejected_commit_is_ever_shown() -> None:
    engine = open_engine()
    ann, bob = Writer(engine, "ann"), Writer(engine, "bob")
    basis = ann.lands(write("d", replace((), {"x": 0})))
    bob.lands(write("d", replace(("x",), 1)))
    for _ in range(5):
        ann.send(write("d", replace(("x",), "hidden")), reads=[read("d", ("x",), seq=basis)])
    assert all("hidden" not in str(change.commit) for change in all_changes(engine))
    assert len(all_changes(engine)) == 2


def test_the_commits_of_a_wave_are_listed_one_by_one_also_from_its_middle() -> None:
    engine = open_engine()
    ann = Writer(engine, "ann")
    engine.submit("ann", *[ann.commit(write("d", append((), [n]))) for n in range(5)])
    engine.submit("ann", *[ann.commit(write("d", append((), [n]))) for n in range(5, 8)])
    for since in range(9):
        for limit in (1, 2, 3, 100):
            seqs = [change.seq for change in all_changes(engine, since=since, limit=limit)]
            assert seqs == list(range(since + 1, 9)), (since, limit)


def test_a_commit_comes_after_everything_it_stood_on() -> None:
    engine = open_engine()
    writers = [Writer(engine, name) for name in "ab"]
    random = Random(5)
    for _ in range(60):
        writer = random.choice(writers)
        basis = random.randrange(engine.last_seq + 1)
        writer.send(write("d", add((), {"n": 0})), reads=[read("e", seq=basis)])
        writer.send(write("e", increment(())))
    for change in all_changes(engine):
        assert all(each.seq < change.seq for each in change.commit.reads)


def test_a_branch_lists_its_own_commits_only() -> None:
    engine = open_engine()
    ann = Writer(engine, "ann")
    ann.lands(write("d", replace((), 1)))
    engine.fork("dev")
    on_dev = ann.lands(write("d", replace((), 2)), branch="dev")
    on_main = ann.lands(write("d", replace((), 3)))
    assert [change.seq for change in all_changes(engine, branch="dev")] == [on_dev]
    assert [change.seq for change in all_changes(engine, branch="main")] == [1, on_main]
    assert [change.seq for change in all_changes(engine)] == [1, on_dev, on_main]


def test_nothing_new_is_an_empty_page_without_a_continuation() -> None:
    engine = open_engine()
    assert engine.changes().items == ()
    assert engine.changes().next is None
    Writer(engine, "ann").lands(write("d", replace((), 1)))
    page = engine.changes(since=1)
    assert (page.items, page.next) == ((), None)


@pytest.mark.random
def test_following_the_changes_gives_the_visible_state_at_every_step() -> None:
    for seed in range(scaled(100)):
        random = Random(seed)
        engine = open_engine()
        writers = [Writer(engine, name) for name in "ab"]
        mirror: dict[DocKey, MaybeValue] = {}
        seen = 0
        for _ in range(20):
            writer = random.choice(writers)
            frame = [writer.commit(write(random.choice("de"), append((), [random.randrange(9)])))]
            if random.random() < 0.3:
                frame.append(writer.commit(write("f", increment(()))))
            assert all(isinstance(v, Accepted) for v in engine.submit(writer.key, *frame))
            if random.random() < 0.5:
                for change in all_changes(engine, since=seen, limit=random.choice((1, 2, 50))):
                    for operation in change.commit.operations:
                        value = mirror.get(operation.doc, ABSENT)
                        for patch in operation.patches:
                            value = apply(value, patch).value
                        mirror[operation.doc] = value
                    seen = change.seq
                for id in "def":
                    assert equal(mirror.get(doc(id), ABSENT), engine.read(doc(id)).value), seed
