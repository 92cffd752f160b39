"""Writes outside any run land or are told to have failed: late documents, lost connections, conflicts, refusals."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import pytest

from headwater.clock import VirtualClock
from headwater.data.address import Depth, DocKey
from headwater.data.value import ABSENT, MaybeValue
from headwater.errors import CommitConvergenceError, LimitError, LoadError, RuleRefusedError
from headwater.protocol.messages import Own, Sync, state_of
from headwater.protocol.verdict import Collision, Conflict, Rejection, RuleRefused
from headwater.replica.pending import Layer
from headwater.replica.replica import Replica
from headwater.runtime.core import local_space as space_module
from headwater.runtime.core.core import Core
from headwater.runtime.core.limits import RuntimeLimits
from headwater.scheduler.failures import Failure
from headwater.testing.scheduler.tick_loops import ManualTickLoop


class Scripted:
    """A channel in the test's hands: nothing arrives, and nothing is judged, until the test says so."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.core = Core(self.clock, ManualTickLoop())
        self.replica = Replica()
        self.asked: list[DocKey] = []
        self.left: list[DocKey] = []
        self.ready = True
        self.space = self.core.add_space("shop", self.replica, self)
        self.errors: list[Failure] = []
        self.core.on_error(self.errors.append)

    def watch(self, docs: Iterable[DocKey], *, is_ahead: bool = False) -> None:
        self.asked.extend(docs)

    def unwatch(self, doc: DocKey) -> bool:
        self.left.append(doc)
        return self.replica.let_go(doc)

    def flush(self) -> None: ...

    def is_ready(self, conflict: Conflict) -> bool:
        return self.ready

    def is_durable(self) -> bool:
        return not len(self.replica.pending)

    def arrive(self, id: str, value: MaybeValue = ABSENT) -> None:
        self.replica.arrive([state_of(DocKey("space", id), 0, value)], self.replica.confirmed.seq)
        self.core.heard()
        self.core.settle()

    def layers(self) -> list[Layer]:
        return list(self.replica.pending.live())

    def confirm(self) -> None:
        """Everything that was committed has landed."""
        for layer in self.layers():
            seq = self.replica.confirmed.seq + 1
            self.replica.accepted(layer.local_seq, seq)
            self.replica.integrate(Sync(seq, tuple(Own(doc, seq, layer.local_seq) for doc in layer.docs())))
        sent = self.replica.compose_wave()
        if sent is not None:
            seq = self.replica.confirmed.seq + 1
            self.replica.wave_judged(sent, seq, (), 0, {})
            docs = [operation.doc for operation in sent.commit.operations]
            self.replica.integrate(Sync(seq, tuple(Own(doc, seq, sent.local_seq) for doc in docs)))

    def judge_results(self, rejection: Rejection) -> None:
        """Send the results that are due, and reject them."""
        sent = self.replica.compose_wave()
        if sent is not None:
            places = range(len(sent.commit.results))
            if isinstance(rejection, Conflict):
                self.replica.wave_judged(sent, 0, places, 0, {})
            else:
                self.replica.wave_judged(sent, 0, (), 0, dict.fromkeys(places, rejection))

    def conflict(self, layer: Layer) -> None:
        """Somebody else was faster."""
        collision = Collision(DocKey("space", "n"), (), Depth.DEEP, 0, self.replica.confirmed.seq + 1, "them", "")
        self.replica.rejected(layer.local_seq, Conflict((collision,)))


def test_writes_before_a_document_is_here_are_made_in_order_when_it_arrives() -> None:
    shop = Scripted()
    n = shop.core.cell("shop", "n", int, default=0)
    n.set(5)
    n.increment()
    n.update(lambda value: value * 10)
    assert shop.layers() == []
    assert shop.space.deferred() == 3
    assert set(shop.asked) == {DocKey("space", "n")}
    shop.arrive("n", 100)
    assert n.get() == 60
    assert len(shop.layers()) == 3


def test_whoever_reads_a_document_that_arrives_sees_what_was_written_before() -> None:
    shop = Scripted()
    n = shop.core.cell("shop", "n", int)
    n.set(3)
    seen: list[int] = []
    n.sink(seen.append)
    shop.core.settle()
    shop.replica.arrive([state_of(DocKey("space", "n"), 0, 1)], 0)
    shop.core.tick()  # Before anybody said that something was heard.
    shop.core.settle()
    assert seen == [3]


def test_a_later_write_does_not_overtake_those_that_wait() -> None:
    shop = Scripted()
    n = shop.core.cell("shop", "n", int)
    n.set(1)
    shop.replica.arrive([state_of(DocKey("space", "n"), 0, 0)], 0)  # It is here, and those who wait do not know yet.
    n.set(2)
    shop.core.heard()
    shop.core.settle()
    assert n.get() == 2


def test_a_write_that_fails_when_its_turn_comes_is_told() -> None:
    shop = Scripted()
    n = shop.core.cell("shop", "n", int)
    n.update(lambda value: value // 0)
    n.set(3)
    shop.arrive("n", 1)
    assert [type(failure.error) for failure in shop.errors] == [ZeroDivisionError]
    assert n.get() == 3


def test_writes_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space_module, "RUNTIME_LIMITS", RuntimeLimits(deferred_writes=5))
    shop = Scripted()
    n = shop.core.cell("shop", "n", int)
    for _ in range(5):
        n.increment()
    with pytest.raises(LimitError, match="5 writes wait for document space:n to arrive: await them, or write less"):
        n.increment()


def test_a_document_that_is_refused_fails_the_writes_that_wait_for_it() -> None:
    shop = Scripted()
    n = shop.core.cell("shop", "n", int)
    n.set(1)
    n.set(2)
    shop.core.load_failed(shop.space, [DocKey("space", "n")], LoadError("not for you"))
    assert [failure.node for failure in shop.errors] == [
        "shop/space:n",
        "a write outside any run",
        "a write outside any run",
    ]
    assert shop.space.deferred() == 0


def test_writes_that_never_left_are_made_again_in_order_and_before_anything_newer() -> None:
    shop = Scripted()
    shop.arrive("n", 0)
    shop.arrive("log", ())
    n, log = shop.core.cell("shop", "n", int), shop.core.cell("shop", "log", tuple[str, ...])
    n.set(1)
    log.push("a")
    n.set(2)
    log.push("b")
    shop.replica.revert_unsent()
    assert shop.replica.visible(DocKey("space", "n")) == 0
    log.push("c")  # Newer: what was taken back comes first.
    assert n.get() == 2
    assert log.get() == ("a", "b", "c")
    assert len(shop.layers()) == 5
    assert not shop.errors


def test_a_conflicting_update_is_made_again_when_what_won_is_here() -> None:
    shop = Scripted()
    shop.arrive("n", 0)
    n = shop.core.cell("shop", "n", int)
    n.update(lambda value: value + 1)
    shop.ready = False
    shop.conflict(shop.layers()[0])
    shop.core.settle()
    assert shop.layers() == []
    shop.ready = True
    shop.arrive("n", 10)
    assert n.get() == 11
    assert not shop.errors


def test_what_was_written_after_a_write_that_conflicts_lands_after_it() -> None:
    shop = Scripted()
    shop.arrive("n", 0)
    n = shop.core.cell("shop", "n", int)
    n.update(lambda value: value + 1)
    n.set(50)  # It reads nothing by itself, and must not be overtaken by the update when that is made again.
    n.increment(5)
    assert n.get() == 55
    first = shop.layers()[0]
    assert all(before.local_seq in layer.named for before, layer in pairwise(shop.layers()))
    shop.ready = False
    shop.conflict(first)
    n.increment(1)  # Newer than all of them.
    shop.core.settle()
    shop.ready = True
    shop.arrive("n", 10)
    assert n.get() == 56
    assert len(shop.layers()) == 4
    assert not shop.core.plain_writes.waits()


def test_a_write_that_stands_on_nothing_doubtful_reads_nothing() -> None:
    shop = Scripted()
    shop.arrive("n", 0)
    n = shop.core.cell("shop", "n", int)
    n.set(1)
    n.set(2)
    n.increment()
    assert [layer.commit.reads for layer in shop.layers()] == [(), (), ()]


def test_a_conflict_without_end_is_told_after_the_window() -> None:
    shop = Scripted()
    shop.arrive("n", 0)
    n = shop.core.cell("shop", "n", int)
    n.update(lambda value: value + 1)
    for _ in range(40):
        layers = shop.layers()
        if not layers:
            break
        shop.conflict(layers[0])
        shop.clock.advance(1_000_000)
        shop.core.settle()
    assert [type(failure.error) for failure in shop.errors] == [CommitConvergenceError]
    assert "did not land in 30 s" in str(shop.errors[0].error)


def test_a_refusal_that_nobody_awaits_is_told_once_and_not_repeated() -> None:
    shop = Scripted()
    shop.arrive("n", 0)
    n = shop.core.cell("shop", "n", int)
    n.set(1)
    n.increment()
    for layer in shop.layers():
        shop.replica.rejected(layer.local_seq, RuleRefused("access", "you may not"))
    shop.core.settle()
    assert shop.layers() == []
    assert n.get() == 0
    assert [type(failure.error) for failure in shop.errors] == [RuleRefusedError, RuleRefusedError]


def test_documents_that_were_only_written_are_let_go_in_the_end() -> None:
    shop = Scripted()
    shop.space.kept_unread = 10
    for number in range(50):
        shop.core.cell("shop", f"d{number}", int).set(number)
        shop.arrive(f"d{number}")
        assert len(shop.layers()) == 1
        shop.confirm()
    assert len(shop.left) == 40
    assert len(shop.replica.documents.held()) == 10


def test_what_is_read_again_is_not_let_go() -> None:
    shop = Scripted()
    shop.space.kept_unread = 3
    kept = shop.core.cell("shop", "kept", int)
    kept.set(1)
    shop.arrive("kept")
    shop.confirm()
    seen: list[int] = []
    kept.sink(seen.append)
    shop.core.settle()
    for number in range(20):
        shop.core.cell("shop", f"d{number}", int).set(number)
        shop.arrive(f"d{number}")
        shop.confirm()
    assert DocKey("space", "kept") not in shop.left
    assert kept.get() == 1


def test_what_a_commit_is_on_top_of_is_let_go_when_it_has_landed() -> None:
    shop = Scripted()
    shop.space.kept_unread = 10
    for number in range(50):
        shop.core.cell("shop", f"d{number}", int).set(number)
        shop.arrive(f"d{number}")
    assert len(shop.replica.documents.held()) == 50
    shop.confirm()
    shop.core.heard()
    assert len(shop.replica.documents.held()) == 10
