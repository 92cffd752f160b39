"""Time that is read like data: moments and steps wake whoever read them, while somebody looks, and leave nothing."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from headwater.clock import VirtualClock
from headwater.errors import AuthoringError
from headwater.replica.detached import Detached
from headwater.replica.replica import Replica
from headwater.runtime.core.core import Core
from headwater.scheduler.limits import SchedulerLimits
from headwater.scheduler.node import Node, NodeKind
from headwater.scheduler.registry import NodeSpec
from headwater.testing.scheduler.tick_loops import VirtualTickLoop
from tests.counts import scaled

SECOND = 1_000_000


class Jumping(VirtualClock):
    """A virtual clock whose wall time was set: the monotonic one does not know."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock
        self.ahead_us = 0

    def now_us(self) -> int:
        return self._clock.now_us() + self.ahead_us

    def monotonic_us(self) -> int:
        return self._clock.monotonic_us()


class Timed:
    """A runtime on a virtual clock that moves it."""

    def __init__(self, limits: SchedulerLimits | None = None) -> None:
        self.clock = VirtualClock()
        loop = VirtualTickLoop(self.clock)
        self.wall = Jumping(self.clock)  # what the core looks at; alarms and timers are of the clock itself
        self.core = Core(self.wall, loop, limits)
        self.replica = Replica()
        self.core.add_space("shop", self.replica, Detached(self.replica))
        self.time = self.core.time
        loop.drive(self.core)
        self.start_us = self.clock.now_us()

    def seen(self, look: Any) -> tuple[list[Any], Node]:
        seen: list[Any] = []
        node = self.core.register(
            NodeSpec(
                id=f"e{self.core.next_number()}",
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


# ---- a wall clock that is set, or a machine that slept -------------------------------------------------


def test_a_moment_that_came_while_the_machine_slept_is_noticed_soon() -> None:
    timed = Timed()
    clock = timed.wall
    seen, _ = timed.seen(lambda: timed.time.past(timed.start_us + 3_600 * SECOND))
    clock.ahead_us = 7_200 * SECOND
    timed.clock.advance(31 * SECOND)
    assert seen == [False, True]
    assert timed.timers() is None


def test_a_moment_is_waited_for_anew_when_the_clock_is_set_back() -> None:
    timed = Timed()
    clock = timed.wall
    seen, _ = timed.seen(lambda: timed.time.past(timed.start_us + 60 * SECOND))
    timed.clock.advance(10 * SECOND)
    clock.ahead_us = -3_600 * SECOND
    timed.clock.advance(600 * SECOND)
    assert seen == [False]
    timed.clock.advance(3_100 * SECOND)
    assert seen == [False, True]


@pytest.mark.parametrize("jump", [-7_200, 7_200])
def test_steps_follow_a_clock_that_is_set(jump: int) -> None:
    timed = Timed()
    clock = timed.wall
    seen, _ = timed.seen(lambda: (timed.time.now(600 * SECOND) - timed.start_us) // SECOND)
    clock.ahead_us = jump * SECOND
    timed.clock.advance(31 * SECOND)
    assert seen == [0, jump]
    late, _ = timed.seen(lambda: (timed.time.now(600 * SECOND) - timed.start_us) // SECOND)
    assert late == [jump]
    timed.clock.advance(600 * SECOND)
    assert seen == [0, jump, jump + 600]


def test_whoever_reads_a_step_after_the_clock_was_set_tells_the_others() -> None:
    timed = Timed()
    clock = timed.wall
    first, _ = timed.seen(lambda: (timed.time.now(600 * SECOND) - timed.start_us) // SECOND)
    clock.ahead_us = -7_200 * SECOND
    second, _ = timed.seen(lambda: (timed.time.now(600 * SECOND) - timed.start_us) // SECOND)
    timed.clock.advance(0)
    assert (first, second) == ([0, -7_200], [-7_200])


def test_the_time_is_one_value_for_the_whole_run_however_long_it_takes() -> None:
    timed = Timed()
    clock = timed.wall

    def look() -> list[int]:
        first = timed.time.now(SECOND)
        clock.ahead_us += 5 * SECOND
        return [first, timed.time.now(SECOND)]

    seen, _ = timed.seen(look)
    assert seen[0][0] == seen[0][1]


@pytest.mark.random
@pytest.mark.parametrize("seed", range(scaled(500)))
def test_every_reader_knows_the_time_whatever_happens_to_the_clock(seed: int) -> None:
    """I1: half a minute after a jump at the latest, whoever looks has seen what the wall clock says."""
    random = Random(seed)
    timed = Timed()
    clock = timed.wall
    readers: list[tuple[list[Any], Node, Any]] = []

    def read() -> None:
        if random.random() < 0.5:
            when = clock.now_us() + random.randrange(-10, 200) * SECOND
            readers.append((*timed.seen(lambda: timed.time.past(when)), lambda: clock.now_us() >= when))
        else:
            every = random.choice((1, 7, 60, 600)) * SECOND
            readers.append((*timed.seen(lambda: timed.time.now(every)), lambda: clock.now_us() // every * every))

    for _ in range(15):
        action = random.random()
        if action < 0.4 or not readers:
            read()
        elif action < 0.5:
            timed.core.remove(readers.pop(random.randrange(len(readers)))[1])
        elif action < 0.6:
            clock.ahead_us += random.randrange(0, 300) * SECOND  # It is set ahead, or the machine slept.
        elif action < 0.7 and all(look[-1] for look, _, now in readers if now() is True):
            back = random.randrange(0, 300) * SECOND
            readers = [each for each in readers if each[0][-1] is not True]  # What has come has come.
            clock.ahead_us -= back
        else:
            timed.clock.advance(random.randrange(31 * SECOND, 90 * SECOND))
            for seen, _, now in readers:
                assert seen[-1] == now()
    for _, node, _ in readers:
        timed.core.remove(node)
    for node in tuple(timed.core.scheduler.registry):
        timed.core.remove(node)
    timed.clock.advance(0)
    assert timed.time.moments() == 0
    assert timed.timers() is None


def test_a_transaction_reads_the_time_and_leaves_nothing() -> None:
    timed = Timed()
    n = timed.core.cell("shop", "n", int, default=0)
    n.update(lambda value: value + timed.time.past(timed.start_us + SECOND) + timed.time.now(SECOND) % SECOND)
    assert timed.time.moments() == 0
    assert timed.time.replica.documents.held() == []


def test_a_moment_that_only_a_stopped_attempt_looked_at_is_let_go() -> None:
    timed = Timed(SchedulerLimits(nested_depth=0))  # Otherwise it would not be stopped.
    slow = timed.core.cell("shop", "slow", int)
    timed.core.register(
        NodeSpec(id="slow", kind=NodeKind.COMPUTATION, fn=lambda: 1, home=timed.replica, outputs=(slow.document,))
    )
    tries: list[int] = []

    def look() -> int:
        tries.append(1)
        if len(tries) == 1:
            timed.time.past(timed.start_us + 3_600_000 * SECOND)
        return int(slow.get())

    seen, _ = timed.seen(look)
    assert seen == [1]
    timed.clock.advance(31 * SECOND)
    assert timed.time.moments() == 0
    assert timed.timers() is None
