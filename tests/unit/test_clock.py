from __future__ import annotations

import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.clock import Clock, RealClock, Timer, VirtualClock
from headwater.errors import AuthoringError, LimitError

CLOCKS: list[Clock] = [RealClock(), VirtualClock(seed=1)]


@pytest.mark.parametrize("clock", CLOCKS, ids=["real", "virtual"])
class TestEveryClock:
    def test_time_is_in_whole_microseconds(self, clock: Clock) -> None:
        assert type(clock.now_us()) is int
        assert type(clock.monotonic_us()) is int

    def test_wall_time_is_this_century(self, clock: Clock) -> None:
        assert 1_700_000_000_000_000 < clock.now_us() < 5_000_000_000_000_000

    def test_time_does_not_go_backwards(self, clock: Clock) -> None:
        walls = [clock.now_us() for _ in range(1_000)]
        ticks = [clock.monotonic_us() for _ in range(1_000)]
        assert walls == sorted(walls)
        assert ticks == sorted(ticks)

    def test_tokens_are_hexadecimal_of_the_asked_size_and_differ(self, clock: Clock) -> None:
        tokens = [clock.new_token(8) for _ in range(1_000)]
        assert len(set(tokens)) == 1_000
        assert {len(token) for token in tokens} == {16}
        assert set("".join(tokens)) <= set("0123456789abcdef")
        assert len(clock.new_token()) == 32

    def test_an_empty_token_is_refused(self, clock: Clock) -> None:
        with pytest.raises(AuthoringError, match=r"new_token\(nbytes=0\): a token needs at least 1 byte"):
            clock.new_token(0)

    def test_two_labels_draw_differently(self, clock: Clock) -> None:
        a, b = clock.randomness("a"), clock.randomness("b")
        assert [a.random() for _ in range(5)] != [b.random() for _ in range(5)]


class TestRealClock:
    def test_it_tells_the_system_s_time(self) -> None:
        before = time.time_ns() // 1_000
        assert before <= RealClock().now_us() <= time.time_ns() // 1_000

    def test_it_goes_on_while_the_system_s_clock_is_behind(self, monkeypatch: pytest.MonkeyPatch) -> None:
        first, second = RealClock(), RealClock()
        latest, at_ns = first.now_us(), time.monotonic_ns()
        monkeypatch.setattr(time, "time_ns", lambda: (latest - 3_600_000_000) * 1_000)
        monkeypatch.setattr(time, "monotonic_ns", lambda: at_ns + 5_000_000_000)
        assert 0 <= first.now_us() - latest - 5_000_000 < 1_000_000
        assert first.now_us() == second.now_us(), "another clock of the process agrees"

    def test_no_thread_sees_time_go_backwards(self) -> None:
        clock = RealClock()
        seen: list[int] = []  # Appended in the order of the readings: the lock makes each pair one step.
        lock = threading.Lock()

        def read() -> None:
            for _ in range(500):
                with lock:
                    seen.append(clock.now_us())

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert seen == sorted(seen)

    def test_its_draws_cannot_be_foretold(self) -> None:
        assert RealClock().randomness("a").random() != RealClock().randomness("a").random()


class TestVirtualTime:
    def test_time_moves_only_when_advanced(self) -> None:
        clock = VirtualClock(start_us=1_000)
        assert (clock.now_us(), clock.monotonic_us()) == (1_000, 0)
        clock.advance(250)
        assert (clock.now_us(), clock.monotonic_us()) == (1_250, 250)

    def test_the_same_seed_gives_the_same_draws_and_tokens(self) -> None:
        def history(seed: int) -> list[object]:
            clock = VirtualClock(seed=seed)
            return [clock.new_token(), clock.randomness("x").random(), clock.new_token(4)]

        assert history(7) == history(7)
        assert history(7) != history(8)

    def test_draws_are_the_same_on_every_machine_and_version(self) -> None:
        """Seeds of failures are kept; what they stand for must not move."""
        clock = VirtualClock(seed=42)
        assert clock.new_token(4) == "d06093f3"
        assert clock.randomness("network").randrange(1_000_000) == 727_654

    def test_draws_for_one_label_do_not_disturb_another(self) -> None:
        alone, shared = VirtualClock(seed=3), VirtualClock(seed=3)
        expected = [alone.randomness("a").random() for _ in range(3)]
        got = []
        for _ in range(3):
            shared.randomness("b").random()
            shared.new_token()
            got.append(shared.randomness("a").random())
        assert got == expected

    def test_asking_for_a_label_again_continues_its_draws(self) -> None:
        clock = VirtualClock()
        assert clock.randomness("a").random() != clock.randomness("a").random()

    def test_time_cannot_be_turned_back(self) -> None:
        with pytest.raises(AuthoringError, match=r"advance\(-1\): time does not go backwards"):
            VirtualClock().advance(-1)


class TestTimers:
    def test_a_timer_fires_when_its_time_is_reached_and_not_before(self) -> None:
        clock, fired = VirtualClock(start_us=0), list[int]()
        clock.call_at(100, lambda: fired.append(clock.now_us()))
        clock.advance(99)
        assert fired == []
        clock.advance(1)
        assert fired == [100]
        clock.advance(1_000)
        assert fired == [100], "once"

    def test_timers_fire_in_order_of_time_and_ties_in_order_of_registration(self) -> None:
        clock, fired = VirtualClock(start_us=0), list[str]()
        for name, when in (("c", 20), ("a", 10), ("d", 20), ("b", 10)):
            clock.call_at(when, lambda name=name: fired.append(name))  # type: ignore[misc]
        clock.advance(20)
        assert fired == ["a", "b", "c", "d"]

    def test_a_callback_sees_its_own_due_time(self) -> None:
        clock, seen = VirtualClock(start_us=0), list[int]()
        for when in (30, 10, 20):
            clock.call_at(when, lambda: seen.append(clock.now_us()))
        clock.advance(100)
        assert seen == [10, 20, 30]
        assert clock.now_us() == 100

    def test_a_cancelled_timer_never_fires(self) -> None:
        clock, fired = VirtualClock(start_us=0), list[str]()
        timer = clock.call_at(10, lambda: fired.append("cancelled"))
        clock.call_at(10, lambda: fired.append("kept"))
        assert not timer.cancelled
        timer.cancel()
        timer.cancel()
        clock.advance(10)
        assert fired == ["kept"]
        assert timer.cancelled

    def test_a_timer_may_cancel_one_that_is_due_at_the_same_moment(self) -> None:
        clock, fired = VirtualClock(start_us=0), list[str]()
        others: list[Timer] = []
        clock.call_at(10, lambda: others[0].cancel())
        others.append(clock.call_at(10, lambda: fired.append("second")))
        clock.advance(10)
        assert fired == []

    def test_a_timer_registered_by_a_timer_fires_in_the_same_advance_if_due(self) -> None:
        clock, seen = VirtualClock(start_us=0), list[int]()

        def again() -> None:
            seen.append(clock.now_us())
            clock.call_at(clock.now_us() + 10, again)

        clock.call_at(10, again)
        clock.advance(35)
        assert seen == [10, 20, 30]

    def test_a_moment_already_past_is_due_at_the_next_advance_and_time_does_not_turn_back(self) -> None:
        clock, seen = VirtualClock(start_us=0), list[int]()
        clock.advance(50)
        clock.call_at(10, lambda: seen.append(clock.now_us()))
        assert seen == [], "call_at itself calls nothing"
        clock.advance(0)
        assert seen == [50]

    def test_the_next_timer_is_known_and_skips_cancelled_ones(self) -> None:
        clock = VirtualClock(start_us=0)
        assert clock.next_timer_us() is None
        first = clock.call_at(10, lambda: None)
        clock.call_at(20, lambda: None)
        assert clock.next_timer_us() == 10
        first.cancel()
        assert clock.next_timer_us() == 20
        clock.advance(20)
        assert clock.next_timer_us() is None

    def test_a_failing_callback_leaves_time_there_and_the_rest_registered(self) -> None:
        clock, fired = VirtualClock(start_us=0), list[str]()

        def fail() -> None:
            raise RuntimeError("planted")

        clock.call_at(10, fail)
        clock.call_at(20, lambda: fired.append("after"))
        with pytest.raises(RuntimeError, match="planted"):
            clock.advance(100)
        assert clock.now_us() == 10
        clock.advance(10)
        assert fired == ["after"]

    def test_a_timer_cannot_advance_its_own_clock(self) -> None:
        clock = VirtualClock(start_us=0)
        clock.call_at(10, lambda: clock.advance(5))
        with pytest.raises(AuthoringError, match=r"advance\(5\) was called by a timer of the same clock"):
            clock.advance(10)
        clock.advance(1)
        assert clock.now_us() == 11, "the clock still works"

    def test_a_timer_that_re_arms_itself_for_the_same_moment_fails_instead_of_hanging(self) -> None:
        clock = VirtualClock(start_us=0, max_firings=50)

        def again() -> None:
            clock.call_at(clock.now_us(), again)

        again()
        with pytest.raises(LimitError, match=r"fired 50 timers and more are due at 0, .* max_firings=50"):
            clock.advance(0)

    @given(
        whens=st.lists(st.integers(0, 50), max_size=30),
        cancelled=st.sets(st.integers(0, 29)),
        steps=st.lists(st.integers(0, 20), max_size=10),
    )
    def test_every_timer_that_was_not_cancelled_fires_once_in_order(
        self, whens: list[int], cancelled: set[int], steps: list[int]
    ) -> None:
        clock, fired = VirtualClock(start_us=0), list[tuple[int, int]]()
        timers = [
            clock.call_at(when, lambda when=when, i=i: fired.append((when, i)))  # type: ignore[misc]
            for i, when in enumerate(whens)
        ]
        for i in cancelled & set(range(len(timers))):
            timers[i].cancel()
        for step in steps:
            clock.advance(step)
        due = [(when, i) for i, when in enumerate(whens) if i not in cancelled and steps and when <= sum(steps)]
        assert fired == sorted(due)
        assert clock.now_us() == sum(steps)
