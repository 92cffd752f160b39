"""A runtime without an event loop: errors, transactions, slices, and doors that lead nowhere yet."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.clock import VirtualClock
from headwater.data.value import Value
from headwater.errors import AuthoringError, HeadwaterError, InvalidValueError
from headwater.replica.detached import Detached
from headwater.replica.replica import Replica
from headwater.runtime.core.core import Core
from headwater.scheduler.failures import Failure
from headwater.scheduler.node import NodeKind
from headwater.scheduler.registry import NodeSpec
from headwater.testing.scheduler.tick_loops import VirtualTickLoop
from tests.unit.cells.handle_kit import Hand, Line

# ---- errors ------------------------------------------------------------------------------------------


def test_a_failure_from_before_somebody_listened_is_heard_once() -> None:
    core = Core(VirtualClock(), VirtualTickLoop(VirtualClock()))
    core.report("early", ValueError("x"))
    first: list[Failure] = []
    second: list[Failure] = []
    core.on_error(first.append)
    subscription = core.on_error(second.append)
    core.report("late", ValueError("y"))
    subscription.close()
    subscription.close()
    core.report("later", ValueError("z"))
    assert [failure.node for failure in first] == ["early", "late", "later"]
    assert [failure.node for failure in second] == ["late"]


def test_a_listener_that_would_have_to_be_awaited_is_refused() -> None:
    async def later(failure: Failure) -> None:
        raise AssertionError("nobody awaits this")

    core = Core(VirtualClock(), VirtualTickLoop(VirtualClock()))
    with pytest.raises(AuthoringError, match="write a plain function that starts a task"):
        core.on_error(later)
    core.on_error(lambda failure: later(failure))
    heard: list[Failure] = []
    core.on_error(heard.append)
    core.report("x", ValueError("y"))
    assert [failure.node for failure in heard] == ["a listener of errors", "x"]
    assert "returned a coroutine, which is never awaited" in str(heard[0].error)


def test_a_listener_that_raises_keeps_nobody_else_from_hearing() -> None:
    core = Core(VirtualClock(), VirtualTickLoop(VirtualClock()))
    heard: list[Failure] = []
    core.on_error(lambda failure: 1 // 0)
    core.on_error(heard.append)
    core.report("somebody", ValueError("x"))
    assert [failure.node for failure in heard] == ["a listener of errors", "somebody"]
    core.on_error(lambda failure: 1 // 0)
    core.report("again", ValueError("y"))  # Two that raise do not tell each other without end.
    assert [failure.node for failure in heard].count("again") == 1


def test_unheard_failures_are_bounded() -> None:
    core = Core(VirtualClock(), VirtualTickLoop(VirtualClock()))
    for number in range(3_000):
        core.report(str(number), ValueError())
    heard: list[Failure] = []
    core.on_error(heard.append)
    assert len(heard) == 1_000
    assert heard[-1].node == "2999"


# ---- structure ---------------------------------------------------------------------------------------


def test_a_space_has_one_name_and_one_that_nobody_opened_says_so() -> None:
    hand = Hand()
    with pytest.raises(AuthoringError, match="this runtime has a space 'shop' already"):
        hand.core.add_space("shop", Replica(), Detached(Replica()))
    with pytest.raises(AuthoringError, match="this runtime has no space 'stock': open it first"):
        hand.core.cell("stock", "x", int)
    with pytest.raises(InvalidValueError):
        hand.core.cell("shop", "", int)
    with pytest.raises(InvalidValueError, match="is not a scope"):
        hand.core.cell("shop", "x", int, scope="planet")


def test_nodes_are_not_registered_inside_a_transaction() -> None:
    hand = Hand()
    cell = hand.cell(int, 1)
    with pytest.raises(AuthoringError, match="nodes are registered and removed outside a transaction"):
        cell.update(lambda n: (hand.effect(lambda: None), n)[1])
    with pytest.raises(AuthoringError, match="nodes are registered and removed outside a transaction"):
        cell.update(lambda n: (cell.sink(print), n)[1])
    assert cell.get() == 1


def test_a_transaction_does_not_begin_inside_a_run() -> None:
    hand = Hand()
    cell, other = hand.cell(int, 1), hand.cell(int, 5)
    cell.update(lambda n: other.get() + n)
    assert cell.get() == 6

    def inner(n: int) -> Any:
        other.update(lambda m: m + 1)  # It belongs to the transaction that is open.
        return n + other.get()

    cell.update(inner)
    assert (cell.get(), other.get()) == (12, 6)


def test_what_does_not_settle_by_hand_is_an_error_and_not_a_hang() -> None:
    hand = Hand()

    def again() -> None:
        hand.core.afterwards(again)

    again()
    with pytest.raises(HeadwaterError, match="did not settle in 50 slices"):
        hand.core.settle(50)


def test_idle_waits_for_a_cycle_through_two_waits_and_not_for_ever() -> None:
    clock = VirtualClock()
    loop = VirtualTickLoop(clock)
    core = Core(clock, loop)
    replica = Replica()
    core.add_space("shop", replica, Detached(replica))
    errors: list[Failure] = []
    core.on_error(errors.append)
    a, b = core.cell("shop", "a", int, default=0), core.cell("shop", "b", int, default=0)
    for id, fn, write in (("one", lambda: b.get() + 1, a), ("two", lambda: a.get() + 1, b)):
        core.register(NodeSpec(id=id, kind=NodeKind.COMPUTATION, fn=fn, home=replica, outputs=(write.document,)))
    core.register(NodeSpec(id="look", kind=NodeKind.EFFECT, fn=a.get, home=replica, returns=False))
    loop.drive(core)
    clock.advance(0)
    assert not core.is_quiet()
    clock.advance(749_000)
    assert not core.is_quiet()
    clock.advance(2_000)
    assert core.is_quiet()
    runs = core.scheduler.registry.get("one")
    assert runs is not None
    before = runs.runs
    clock.advance(60_000_000)
    assert runs.runs > before  # It is still tried, slowly,
    assert runs.runs - before < 400  # and no faster.
    assert core.is_quiet()
    assert len([failure for failure in errors if "one" in failure.node or "two" in failure.node]) <= 2


# ---- doors -------------------------------------------------------------------------------------------


class Taken:
    def __init__(self) -> None:
        self.sent: list[tuple[str, Value]] = []

    def post(self, stream: Any, payload: Value) -> None:
        self.sent.append((repr(stream), payload))

    def emit(self, topic: Any, record: Value) -> None:
        self.sent.append((repr(topic), record))


def test_streams_and_topics_check_what_is_sent_and_hand_it_on() -> None:
    hand = Hand()
    stream, topic = hand.core.stream("shop", "orders", Line), hand.core.topic("shop", "placed", int)
    with pytest.raises(AuthoringError, match="this runtime has no handlers"):
        stream.post(Line(sku="a", cents=1))
    hand.core.record_port = taken = Taken()
    stream.post(Line(sku="a", cents=1))
    topic.emit(3)
    assert taken.sent == [
        ("<Stream space:orders>", {"sku": "a", "cents": 1, "qty": 1}),
        ("<Topic space:placed>", 3),
    ]
    with pytest.raises(InvalidValueError):
        topic.emit("x")


def test_a_computation_or_an_effect_cannot_post_or_emit() -> None:
    hand = Hand()
    hand.core.record_port = taken = Taken()
    stream, topic = hand.core.stream("shop", "orders", int), hand.core.topic("shop", "placed", int)
    hand.effect(lambda: stream.post(1))
    total = hand.computed(lambda: topic.emit(1))
    total.sink(print)
    hand.settle()
    messages = [str(failure.error) for failure in hand.errors]
    assert any("posts to <Stream space:orders>: an effect is repeated. Do it in a handler." in m for m in messages)
    assert any("emits to <Topic space:placed>: a computation is repeated. Do it in a handler." in m for m in messages)
    assert taken.sent == []
