"""Threads of lanes: as many as slots, for one lane only, and a process that ends does not wait for them."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import CancelledError

import pytest

from headwater.runtime.reactions.threads import LaneThreads, Threads


def test_as_many_are_called_at_once_as_there_are_slots_and_threads_are_used_again() -> None:
    threads, gate = LaneThreads(3, "test"), threading.Barrier(4, timeout=10)
    names: list[str] = []

    def meet() -> None:
        names.append(threading.current_thread().name)
        gate.wait()

    for _ in range(2):
        called = [threads.submit(meet) for _ in range(3)]
        gate.wait()
        for each in called:
            each.result(10)
    assert sorted(set(names)) == ["test 1", "test 2", "test 3"]
    threads.shutdown()


def test_what_a_function_raises_is_its_callers_and_the_thread_goes_on() -> None:
    threads = LaneThreads(1, "test")

    def fails() -> None:
        raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        threads.submit(fails).result(10)
    assert threads.submit(lambda: 7).result(10) == 7
    threads.shutdown()


def test_closed_threads_begin_nothing_more() -> None:
    threads, began, gate = LaneThreads(1, "test"), threading.Event(), threading.Event()

    def waits() -> bool:
        began.set()
        return gate.wait(10)

    running, waiting = threads.submit(waits), threads.submit(lambda: 1)
    assert began.wait(10)
    threads.shutdown()
    with pytest.raises(RuntimeError):
        threads.submit(lambda: 1)
    with pytest.raises(CancelledError):
        waiting.result(10)
    gate.set()
    assert running.result(10)


def test_each_lane_of_each_space_has_its_own() -> None:
    threads = Threads()
    made = [threads.of("s", "slow", 1), threads.of("s", "fast", 1), threads.of("t", "slow", 1)]
    assert len({id(each) for each in made}) == 3
    assert threads.of("s", "slow", 1) is made[0]
    threads.close()


def test_a_process_does_not_wait_for_a_function_that_hangs() -> None:
    program = (
        "import threading; from headwater.runtime.reactions.threads import LaneThreads; "
        "LaneThreads(1, 'x').submit(threading.Event().wait)"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=30, check=False).returncode == 0
