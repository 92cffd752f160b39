"""C9: notifications are differences of visible state, in causal order, never of hidden layers.

The engine's part: `changes` lists every accepted commit once, in the order of the log, and nothing else. The
replica's part: its feed tells every difference of what it shows, with before and after, and nothing else, so that
whoever follows it from the beginning knows what is visible at every moment.
"""

from __future__ import annotations

from functools import partial
from random import Random

import pytest

from headwater.data.address import DocKey
from headwater.data.patch import add, append, apply, increment, replace
from headwater.data.value import ABSENT, MaybeValue, equal
from headwater.engine import Engine, Logged
from headwater.protocol.verdict import Accepted
from headwater.replica import Kind, Notification
from tests.counts import scaled
from tests.unit.engine.kit import Writer, doc, open_engine, read, write
from tests.unit.replica.histories import play
from tests.unit.replica.kit import Told, World, bump, putting, reading, together


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
                            value = apply(value, patch)[0]
                        mirror[operation.doc] = value
                    seen = change.seq
                for id in "def":
                    assert equal(mirror.get(doc(id), ABSENT), engine.read(doc(id)).value), seed


# ---- the replica ---------------------------------------------------------------------------------------


def counter(*names: str) -> World:
    """Everybody watches d, which is {n: 0}."""
    world = World(*names)
    for client in world.clients:
        client.watch("d")
    world.settle()
    world.clients[0].write("d", replace((), {"n": 0}))
    world.settle()
    return world


def test_a_step_of_the_feed_is_told_before_the_call_that_caused_it_returns() -> None:
    world = counter("a")
    (a,) = world.clients
    a.heard.clear()
    a.do(bump("d"))
    assert [(n.kind, n.changes[0].before, n.changes[0].after) for n in a.heard] == [(Kind.COMMIT, {"n": 0}, {"n": 1})]


def test_a_rejected_commit_is_told_as_what_it_is_and_taken_back_once() -> None:
    world = counter("a", "b")
    a, b = world.clients
    b.do(bump("d"))
    b.send()
    a.heard.clear()
    a.do(together(reading("d"), putting("d", replace(("n",), 50))))
    world.settle()
    told = [(n.kind, n.changes[0].after) for n in a.heard]
    assert told[0] == (Kind.COMMIT, {"n": 50})
    assert told[-1][1] == {"n": 1}
    assert [kind for kind, _ in told].count(Kind.REVERT) == 1


def test_nothing_is_told_of_a_layer_that_another_hides() -> None:
    world = counter("a", "b")
    a, b = world.clients
    a.write("d", replace(("n",), 7))
    a.heard.clear()
    b.do(bump("d"))
    b.send()
    while a.hear(1):
        pass
    assert a.shows("d") == {"n": 7}
    assert a.heard == []
    world.settle()
    assert a.heard == []


def note_names(order: list[str], notification: Notification) -> None:
    order.extend(change.doc.id for change in notification.changes)


def test_a_cause_is_heard_before_its_effect_by_every_replica() -> None:
    """b answers what a wrote; nobody ever hears the answer without the question."""
    for seed in range(20):
        random = Random(seed)
        world = World("a", "b", "c")
        a, b, c = world.clients
        for client in world.clients:
            client.watch("question", "answer")
        world.settle()
        answered: list[Told] = []

        def answer(notification: Notification, to: list[Told] = answered, by: World = world) -> None:
            if any(change.doc == doc("question") for change in notification.changes) and not to:
                to.append(by.clients[1].write("answer", replace((), 42)))

        b.replica.feed.subscribe(answer)
        a.write("question", replace((), "?"))
        order: list[str] = []
        c.replica.feed.subscribe(partial(note_names, order))
        for _ in range(40):
            client = random.choice(world.clients)
            random.choice((client.send, client.hear))(1)
        world.settle()
        assert order == ["question", "answer"], seed


@pytest.mark.random
def test_following_the_feed_gives_the_visible_state_through_any_history() -> None:
    """Conflicts, lost connections, gaps, documents let go, restarts: `histories` checks the feed after every step."""
    for seed in range(scaled(500)):
        assert play(seed, clients=2 + seed % 2) == [], seed
