"""Time that is read like data: moments and steps wake whoever read them, while somebody looks, and leave nothing."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.clock import VirtualClock
from headwater.errors import AuthoringError
from headwater.replica.detached import Detached
from headwater.replica.replica import Replica
from headwater.runtime.core import Core
from headwater.runtime.loops import ByVirtualClock
from headwater.scheduler.node import Node, NodeKind
from headwater.scheduler.registry import NodeSpec

SECOND = 1_000_000


class Timed:
    """A runtime on a virtual clock that moves it."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        loop = ByVirtualClock(self.clock)
        self.core = Core(self.clock, loop)
        self.replica = Replica()
        self.core.add_space("shop", self.replica, Detached(self.replica))
        self.time = self.core.time
        loop.drive(self.core)
        self.start_us = self.clock.now_us()

    def seen(self, look: Any) -> tuple[list[Any], Node]:
        seen: list[Any] = []
        node = self.core.register(
            NodeSpec(
                id=f"e{len(self.core.scheduler.registry)}",
                kind=NodeKind.EFFECT,
                fn=lambda: seen.append(look()),
                home=self.replica,
                returns=False,
            )
        )
        self.clock.advance(0)
        return seen, node

    def timers(self) -> int | None:
        return self.clock.next_timer_us()


def test_a_moment_wakes_its_reader_once() -> None:
    timed = Timed()
    when = timed.start_us + 5 * SECOND
    seen, _ = timed.seen(lambda: timed.time.past(when))
    timed.clock.advance(4_999_999)
    assert seen == [False]
    timed.clock.advance(1)
    assert seen == [False, True]
    timed.clock.advance(100 * SECOND)
    assert seen == [False, True]
    assert timed.timers() is None


def test_a_moment_in_the_past_is_no_read() -> None:
    timed = Timed()
    seen, node = timed.seen(lambda: timed.time.past(timed.start_us))
    assert seen == [True]
    assert [spot for spot in node.reads if spot is not None] == []


def test_a_step_wakes_its_readers_together_and_is_one_value_for_all() -> None:
    timed = Timed()
    one, _ = timed.seen(lambda: (timed.time.now(SECOND) - timed.start_us) // SECOND)
    two, _ = timed.seen(lambda: (timed.time.now(SECOND) - timed.start_us) // SECOND)
    timed.clock.advance(3 * SECOND)
    assert one == two == [0, 1, 2, 3]


def test_time_that_is_read_late_says_the_step_of_the_moment() -> None:
    timed = Timed()
    timed.clock.advance(2_500_000)
    seen, _ = timed.seen(lambda: (timed.time.now(SECOND) - timed.start_us) / SECOND)
    timed.clock.advance(600_000)
    assert seen == [2.0, 3.0]


def test_nobody_looks_and_no_timer_waits() -> None:
    timed = Timed()
    cell = timed.core.cell("shop", "tick", int)
    runs = [0]

    def compute() -> int:
        runs[0] += 1
        return timed.time.now(SECOND)

    node = timed.core.register(
        NodeSpec(id="c", kind=NodeKind.COMPUTATION, fn=compute, home=timed.replica, outputs=(cell.document,))
    )
    subscription = cell.sink(lambda _: None)
    timed.clock.advance(3 * SECOND)
    assert runs[0] == 4
    subscription.close()
    timed.clock.advance(100 * SECOND)
    assert runs[0] == 4
    assert timed.timers() is None
    assert not node.live
    seen: list[int] = []
    cell.sink(seen.append)
    timed.clock.advance(0)
    assert seen == [timed.start_us + 103 * SECOND]
    assert runs[0] == 5  # Once, although the time changed under it meanwhile.
    timed.clock.advance(SECOND)
    assert runs[0] == 6


def test_removed_readers_leave_no_timer_and_no_document() -> None:
    timed = Timed()
    nodes = [timed.seen(lambda n=n: timed.time.past(timed.start_us + n * SECOND))[1] for n in range(1, 101)]
    assert timed.time.moments() == 100
    timed.clock.advance(50 * SECOND)
    for node in nodes:
        timed.core.remove(node)
    timed.clock.advance(1_000 * SECOND)
    assert timed.time.moments() == 0
    assert timed.timers() is None
    assert timed.time.replica.documents.held() == []


def test_a_step_of_nothing_is_refused() -> None:
    with pytest.raises(AuthoringError, match="write how often it changes, more than 0"):
        Timed().time.now(0)


def test_time_outside_a_run_is_read_and_nobody_is_woken() -> None:
    timed = Timed()
    assert not timed.time.past(timed.start_us + SECOND)
    assert timed.time.now(SECOND) == timed.start_us
    timed.clock.advance(10 * SECOND)
    assert timed.time.past(timed.start_us + SECOND)
    assert timed.time.now(SECOND) == timed.start_us + 10 * SECOND
    timed.clock.advance(10 * SECOND)
    assert timed.time.replica.documents.held() == []
