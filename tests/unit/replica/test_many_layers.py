"""Ten thousand pending layers cost as much per step as a hundred: writing, reading, confirming, falling."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest

from headwater.data.address import Depth
from headwater.data.patch import add, append, replace
from headwater.data.reader_trie import Spot
from headwater.errors import LimitError
from headwater.protocol.commit import encode_commit
from headwater.protocol.messages import Ack, Own, Sync
from headwater.protocol.verdict import Conflict, RuleRefused
from headwater.replica.limits import LAYER_LIMITS, ReplicaLimits
from headwater.replica.pending import Fate, Layer, Pending
from headwater.replica.replica import Replica
from headwater.replica.transaction import Transaction
from tests.unit.replica.kit import Told, World, bump, doc, holding

pytestmark = pytest.mark.thorough

D, E = doc("d"), doc("e")
NO = RuleRefused("rule", "no")
FEW, MANY = 100, 10_000
KEYS = 20
Step = Callable[[Replica, int], object]


class Count:
    """How many layers were looked at: each look goes through one of these."""

    def __init__(self) -> None:
        self.looks = 0

    @contextmanager
    def going_on(self) -> Iterator[None]:
        def counted(method: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any) -> Any:
                self.looks += 1
                return method(*args)

            return call

        names = ("apply", "written", "fits", "says_all", "docs", "stands")
        patches = [patch.object(Layer, name, counted(getattr(Layer, name))) for name in names]
        for each in patches:
            each.start()
        try:
            yield
        finally:
            for each in patches:
                each.stop()


def set_whole(replica: Replica, number: int) -> None:
    replica.write_whole(replica.documents.of(D), number, ())


def read_and_set_whole(replica: Replica, number: int) -> None:
    transaction = replica.begin()
    transaction.read(D)
    transaction.write(D, replace((), number))
    replica.commit(transaction)


def set_a_key(replica: Replica, number: int) -> None:
    transaction = replica.begin()
    transaction.write(D, add((f"k{number % KEYS}",), number))
    replica.commit(transaction)


def look_and_set_a_key(replica: Replica, number: int) -> None:
    transaction = replica.begin()
    transaction.read(D, (f"k{number % KEYS}",), Depth.SHAPE)
    transaction.write(D, add((f"k{number % KEYS}",), number))
    replica.commit(transaction)


def push(replica: Replica, number: int) -> None:
    transaction = replica.begin()
    transaction.write(D, append(("l",), [number], keep=KEYS))
    replica.commit(transaction)


def set_and_derive(replica: Replica, number: int) -> None:
    """What a node does that reads a cell, while nobody answers."""
    document = replica.documents.of(D)
    replica.write_whole(document, number, ())
    replica.write_whole(replica.documents.of(E), number, (Spot(document, (), Depth.DEEP),))


STEPS: dict[str, tuple[Step, Any]] = {
    "whole sets": (set_whole, -1),
    "whole sets of what was read": (read_and_set_whole, -1),
    "keys of one map": (set_a_key, {}),
    "keys of one map that were looked at": (look_and_set_a_key, {}),
    "pushes": (push, {"l": []}),
    "a cell and what is derived of it": (set_and_derive, -1),
}
EVERY = pytest.mark.parametrize("name", STEPS)


def filled(name: str, count: int) -> Replica:
    step, value = STEPS[name]
    replica = holding(d=value, e=-1)
    for number in range(count):
        step(replica, number)
    return replica


def send_all(replica: Replica) -> None:
    for layer in replica.pending.live():
        layer.fate = Fate.SENT
        replica.pending.sent(layer)


def looks(work: Callable[[], object]) -> int:
    count = Count()
    with count.going_on():
        work()
    return count.looks


@EVERY
def test_a_write_looks_at_as_many_layers_and_says_as_much_whatever_is_pending(name: str) -> None:
    step, _ = STEPS[name]
    cost: list[tuple[int, int]] = []
    for pending in (FEW, MANY):
        replica = filled(name, pending)
        looked = looks(lambda replica=replica: [step(replica, number) for number in range(KEYS)])  # type: ignore[misc]
        cost.append((looked, max(len(encode_commit(layer.commit)) for layer in replica.pending.live()[-2 * KEYS :])))
        check_a_read(replica)
    (few, small), (many, large) = cost
    assert many <= few + 2 * KEYS
    assert large <= small + 300, "a bounded number of ranges"


def check_a_read(replica: Replica) -> None:
    """It looks at no layer that was looked at before, and names every one that had a say."""
    replica.begin().stood_on(D, ())
    transaction = replica.begin()
    assert looks(lambda: (transaction.read(D), transaction.reads())) <= 2
    (said,) = transaction.reads()
    named = {number for first, last in said.layers for number in range(first, last + 1)}
    assert named >= {layer.local_seq for layer in replica.documents.of(D).layers}
    assert len(said.layers) <= 2 * LAYER_LIMITS.separate_spans


@EVERY
def test_confirming_in_order_looks_at_what_is_confirmed_only(name: str) -> None:
    cost = []
    for pending in (FEW, MANY):
        replica = filled(name, pending)
        send_all(replica)
        shown = replica.visible(D)
        seq = replica.confirmed.seq

        def confirm(replica: Replica = replica, seq: int = seq) -> None:
            for place, layer in enumerate(replica.pending.live()[:FEW], 1):
                replica.accepted(layer.local_seq, seq + place)
                replica.integrate(Sync(seq + place, (Own(layer.docs()[0], seq + place, layer.local_seq),)))

        cost.append(looks(confirm))
        assert replica.visible(D) == shown
    assert cost[1] <= cost[0] + KEYS


def test_a_cascade_looks_at_each_of_those_who_fall_a_few_times() -> None:
    each = []
    for pending in (FEW, MANY):
        replica = filled("whole sets of what was read", pending)
        send_all(replica)
        each.append(looks(lambda replica=replica: replica.rejected(1, NO)) / pending)  # type: ignore[misc]
        assert replica.visible(D) == -1
        assert replica.pending.live() == ()
        assert len(replica.pending) == pending - 1, "their verdicts are owed"
    assert each[1] <= each[0] + 1


def test_rejections_that_came_together_make_what_is_shown_once() -> None:
    replica = holding(d={})
    tolds = [Told() for _ in range(FEW)]
    for number, told in enumerate(tolds):
        transaction = replica.begin()
        transaction.write(D, add((f"k{number}",), number))
        replica.commit(transaction, told)
    send_all(replica)
    heard: list[object] = []
    replica.feed.subscribe(heard.append)
    replica.all_rejected(dict.fromkeys(range(1, FEW), NO))
    assert replica.visible(D) == {f"k{FEW - 1}": FEW - 1}
    assert len(heard) == 1
    assert [told.rejection for told in tolds[:-1]] == [NO] * (FEW - 1)
    assert tolds[-1].calls == []


def test_what_never_left_is_taken_back_at_once_each_for_what_it_stood_on() -> None:
    replica = holding(d=0, e=0)
    for id, reads in ((D, ()), (E, (D,)), (D, ())):
        transaction = replica.begin()
        for read in reads:
            transaction.read(read)
        transaction.write(id, replace((), replica.next_local_seq))
        replica.commit(transaction)
    fallen = replica.revert_unsent()
    assert [(layer.local_seq, layer.rejection) for layer in fallen] == [
        (1, Conflict(dead_layers=(1,))),
        (2, Conflict(dead_layers=(1,))),
        (3, Conflict(dead_layers=(3,))),
    ]
    assert (replica.visible(D), replica.visible(E)) == (0, 0)


def test_a_writer_who_never_waits_is_told_to() -> None:
    replica = filled("whole sets", 3)
    replica.check_room()
    replica.limits = ReplicaLimits(pending=3)
    with pytest.raises(LimitError, match=r"3 commits .*durable\(\)"):
        replica.check_room()


def test_a_transaction_goes_on_with_the_layers_it_saw_when_they_are_confirmed() -> None:
    replica = filled("whole sets", FEW)
    send_all(replica)
    older: Transaction = replica.begin()
    seq = replica.confirmed.seq
    for place, layer in enumerate(replica.pending.live(), 1):
        replica.accepted(layer.local_seq, seq + place)
        replica.integrate(Sync(seq + place, (Own(D, seq + place, layer.local_seq),)))
    assert older.read(D) == FEW - 1
    (read,) = older.reads()
    assert (read.seq, read.layers) == (seq, ((1, FEW),))


def test_what_waits_is_looked_at_seldom_while_documents_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each answer is acknowledged; that must not cost a look at all commits which have no verdict yet."""
    looked = 0
    first_named = Pending.first_named

    def counted(self: Pending) -> int | None:
        nonlocal looked
        looked += len(self.live_layers)
        return first_named(self)

    monkeypatch.setattr(Pending, "first_named", counted)
    world, commits = World("a"), 500
    (client,) = world.clients
    client.watch("n", *[f"d{number}" for number in range(commits)])
    world.settle()
    client.write("n", replace((), {"n": 0}))
    world.settle()
    looked = 0
    for number in range(commits):
        client.do(bump("n"))
        client.write(f"d{number}", replace((), 1))
    news = Sync(client.replica.confirmed.seq, ())
    for _ in range(commits):  # As each change that arrives meanwhile is.
        client.session.receive(news)
    assert looked <= 30 * commits
    world.settle()
    acked = [message.local_seq for message in client.sent if isinstance(message, Ack)]
    assert acked == sorted(acked), "in the end all of it is let go"
    assert acked[-1] >= 2 * commits
