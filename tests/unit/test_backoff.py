from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import headwater
from headwater.backoff import LONGEST_MS, Backoff
from headwater.clock import Random
from headwater.errors import AuthoringError

attempts = st.integers(0, 60) | st.integers(0, 10**30)
milliseconds = st.floats(0, 100_000, allow_subnormal=False) | st.integers(0, 100_000)
jitters = st.floats(0, 1)


@st.composite
def capped(draw: st.DrawFn) -> tuple[float, float]:
    low, high = sorted((draw(milliseconds), draw(milliseconds)))
    return low, high


class FixedSource(Random):
    """Draws the same number every time."""

    def __init__(self, draw: float) -> None:
        super().__init__(0)
        self._draw = draw

    def random(self) -> float:
        return self._draw


class NoSource(Random):
    def random(self) -> float:
        raise AssertionError("a schedule without jitter draws nothing")


def is_close(got_us: int, expected_ms: Fraction) -> bool:
    """Within the microsecond of rounding and the 53 bits of the arithmetic."""
    expected_us = expected_ms * 1_000
    return abs(got_us - expected_us) <= 1 + expected_us / 2**50


class TestTheFormulas:
    @given(attempt=attempts)
    def test_none_never_waits(self, attempt: int) -> None:
        assert Backoff.none().delay_us(attempt, NoSource()) == 0

    @given(base=milliseconds, attempt=attempts)
    def test_fixed_waits_the_base_every_time(self, base: float, attempt: int) -> None:
        got = Backoff.fixed(base_ms=base).delay_us(attempt, NoSource())
        assert is_close(got, Fraction(base))

    @given(limits=capped(), attempt=attempts)
    def test_linear_waits_one_base_more_after_each_failure(self, limits: tuple[float, float], attempt: int) -> None:
        base, cap = limits
        got = Backoff.linear(base_ms=base, max_ms=cap).delay_us(attempt, NoSource())
        assert is_close(got, min(Fraction(base) * (attempt + 1), Fraction(cap)))

    @given(limits=capped(), attempt=st.integers(0, 5_000))
    def test_exponential_waits_twice_as_long_after_each_failure(
        self, limits: tuple[float, float], attempt: int
    ) -> None:
        base, cap = limits
        got = Backoff.exponential(base_ms=base, max_ms=cap).delay_us(attempt, NoSource())
        assert is_close(got, min(Fraction(base) * 2**attempt, Fraction(cap)))

    @given(limits=capped(), attempt=st.integers(0, 200), jitter=jitters, draw=st.floats(0, 1, exclude_max=True))
    def test_jitter_draws_between_two_ends_of_which_the_upper_one_is_capped(
        self, limits: tuple[float, float], attempt: int, jitter: float, draw: float
    ) -> None:
        base, cap = limits
        schedules = {
            Backoff.linear(base_ms=base, max_ms=cap, jitter=jitter): Fraction(base) * (attempt + 1),
            Backoff.exponential(base_ms=base, max_ms=cap, jitter=jitter): Fraction(base) * 2**attempt,
        }
        for schedule, raw in schedules.items():
            got = schedule.delay_us(attempt, FixedSource(draw))
            delay = min(raw, Fraction(cap))
            low, high = delay * (1 - Fraction(jitter)), min(delay * (1 + Fraction(jitter)), Fraction(cap))
            assert is_close(got, low + (high - low) * Fraction(draw))

    def test_jitter_at_the_cap_only_shortens(self) -> None:
        schedule = Backoff.exponential(base_ms=100, max_ms=1_000, jitter=0.5)
        delays = [schedule.delay_us(20, FixedSource(draw)) for draw in (0.0, 0.5, math.nextafter(1, 0))]
        assert delays == [500_000, 750_000, 1_000_000]

    @given(base=milliseconds, jitter=jitters, draw=st.floats(0, 1, exclude_max=True))
    def test_jitter_of_a_fixed_schedule_has_no_cap(self, base: float, jitter: float, draw: float) -> None:
        factor = 1 - Fraction(jitter) + 2 * Fraction(jitter) * Fraction(draw)
        got = Backoff.fixed(base_ms=base, jitter=jitter).delay_us(3, FixedSource(draw))
        assert abs(got - Fraction(base) * factor * 1_000) <= 1

    def test_a_sequence_one_can_check_by_hand(self) -> None:
        source = NoSource()
        schedule = Backoff.exponential(base_ms=200, max_ms=3_000)
        assert [schedule.delay_us(r, source) // 1_000 for r in range(6)] == [
            200,
            400,
            800,
            1_600,
            3_000,
            3_000,
        ]
        schedule = Backoff.linear(base_ms=200, max_ms=700)
        assert [schedule.delay_us(r, source) // 1_000 for r in range(5)] == [200, 400, 600, 700, 700]

    def test_a_base_below_a_millisecond_keeps_its_microseconds(self) -> None:
        schedule = Backoff.exponential(base_ms=25 / 32, max_ms=1_000)
        assert [schedule.delay_us(r, NoSource()) for r in range(4)] == [781, 1_562, 3_125, 6_250]

    def test_jitter_of_a_half_reaches_from_half_to_one_and_a_half(self) -> None:
        schedule = Backoff.fixed(base_ms=100, jitter=0.5)
        assert schedule.delay_us(0, FixedSource(0.0)) == 50_000
        assert schedule.delay_us(0, FixedSource(0.5)) == 100_000
        assert schedule.delay_us(0, FixedSource(math.nextafter(1, 0))) == pytest.approx(150_000, abs=1)


class TestPromises:
    @given(
        limits=capped(),
        attempt=st.integers(0, 10**400),
        jitter=jitters,
        draw=st.floats(0, 1, exclude_max=True),
    )
    @example(limits=(1.0, 2.0), attempt=10**400, jitter=1.0, draw=0.0)
    @example(limits=(0.0, 0.0), attempt=10**400, jitter=1.0, draw=0.0)
    @example(limits=(5e-324, 1.0), attempt=2**31, jitter=0.0, draw=0.0)
    def test_no_delay_exceeds_the_cap_or_overflows(
        self, limits: tuple[float, float], attempt: int, jitter: float, draw: float
    ) -> None:
        base, cap = limits
        for make in (Backoff.linear, Backoff.exponential):
            got = make(base_ms=base, max_ms=cap, jitter=jitter).delay_us(attempt, FixedSource(draw))
            assert type(got) is int
            assert 0 <= got <= round(cap * 1_000)

    @given(limits=capped(), attempt=st.integers(0, 10_000))
    def test_without_jitter_a_later_failure_never_waits_less(self, limits: tuple[float, float], attempt: int) -> None:
        base, cap = limits
        for make in (Backoff.linear, Backoff.exponential):
            schedule = make(base_ms=base, max_ms=cap)
            assert schedule.delay_us(attempt, NoSource()) <= schedule.delay_us(attempt + 1, NoSource())

    @given(seed=st.integers(0, 2**64), jitter=st.floats(0.01, 1))
    def test_the_same_source_gives_the_same_delays(self, seed: int, jitter: float) -> None:
        schedule = Backoff.exponential(base_ms=100, max_ms=10_000, jitter=jitter)
        first, second = Random(seed), Random(seed)
        assert [schedule.delay_us(r, first) for r in range(8)] == [schedule.delay_us(r, second) for r in range(8)]

    def test_jitter_spreads_evenly_over_its_range(self) -> None:
        source, schedule = Random(1), Backoff.fixed(base_ms=100, jitter=0.2)
        delays = [schedule.delay_us(0, source) for _ in range(10_000)]
        assert 80_000 <= min(delays) < 80_200
        assert 119_800 < max(delays) <= 120_000
        assert sum(delays) / len(delays) == pytest.approx(100_000, rel=0.01)

    def test_a_schedule_is_a_value(self) -> None:
        schedule = Backoff.exponential(base_ms=1, max_ms=2, jitter=0.5)
        assert schedule == Backoff.exponential(base_ms=1.0, max_ms=2.0, jitter=0.5)
        assert len({schedule, Backoff.exponential(base_ms=1, max_ms=2, jitter=0.5)}) == 1
        assert schedule != Backoff.linear(base_ms=1, max_ms=2, jitter=0.5)
        with pytest.raises(dataclasses.FrozenInstanceError):
            schedule.base_ms = 5  # type: ignore[misc]

    def test_it_is_the_public_backoff(self) -> None:
        assert headwater.Backoff is Backoff


BAD_NUMBERS = [-1, -0.001, math.nan, math.inf, -math.inf, True, "200", None, 1j, LONGEST_MS + 1]


class TestBadParametersFailWhereTheyAreWritten:
    @pytest.mark.parametrize("bad", BAD_NUMBERS, ids=repr)
    @pytest.mark.parametrize(
        ("kind", "make"),
        [
            ("fixed", lambda bad: Backoff.fixed(base_ms=bad)),
            ("linear", lambda bad: Backoff.linear(base_ms=bad, max_ms=1_000)),
            ("exponential", lambda bad: Backoff.exponential(base_ms=bad, max_ms=1_000)),
        ],
    )
    def test_a_bad_base_is_named_with_its_value_and_the_permitted_range(
        self, kind: str, make: Callable[[Any], Backoff], bad: object
    ) -> None:
        with pytest.raises(AuthoringError) as caught:
            make(bad)
        assert str(caught.value) == (
            f"Backoff.{kind}: base_ms={bad!r} must be a number from 0 to {LONGEST_MS} (milliseconds)"
        )

    @pytest.mark.parametrize("bad", [*BAD_NUMBERS, 199], ids=repr)
    @pytest.mark.parametrize("make", [Backoff.linear, Backoff.exponential], ids=["linear", "exponential"])
    def test_a_bad_or_too_small_cap_is_named_with_the_base_as_its_lower_bound(
        self, make: Callable[..., Backoff], bad: object
    ) -> None:
        with pytest.raises(AuthoringError) as caught:
            make(base_ms=200, max_ms=bad)
        assert str(caught.value) == (
            f"Backoff.{make.__name__}: max_ms={bad!r} must be a number from 200 to {LONGEST_MS} "
            "(milliseconds, and at least base_ms)"
        )

    @pytest.mark.parametrize("bad", [-0.1, 1.1, 50, math.nan, math.inf, True, "0.5", None], ids=repr)
    @pytest.mark.parametrize("make", [Backoff.linear, Backoff.exponential], ids=["linear", "exponential"])
    def test_a_bad_jitter_is_named_with_its_range(self, make: Callable[..., Backoff], bad: object) -> None:
        with pytest.raises(AuthoringError) as caught:
            make(base_ms=1, max_ms=2, jitter=bad)
        assert str(caught.value) == (
            f"Backoff.{make.__name__}: jitter={bad!r} must be a number from 0 to 1 (a fraction)"
        )

    def test_a_bad_jitter_of_a_fixed_schedule_is_found_too(self) -> None:
        with pytest.raises(AuthoringError, match=r"Backoff\.fixed: jitter=2 must be a number from 0 to 1"):
            Backoff.fixed(base_ms=1, jitter=2)

    @pytest.mark.parametrize(
        ("make", "arguments", "message"),
        [
            (
                Backoff.fixed,
                {},
                "Backoff.fixed: base_ms is missing. Write Backoff.fixed(base_ms=..., jitter=...)",
            ),
            (
                Backoff.exponential,
                {"base_ms": 200},
                "Backoff.exponential: max_ms is missing. "
                "Write Backoff.exponential(base_ms=..., max_ms=..., jitter=...)",
            ),
            (
                Backoff.linear,
                {"base_ms": 200, "max": 5},
                "Backoff.linear: there is no parameter max; max_ms is missing. "
                "Write Backoff.linear(base_ms=..., max_ms=..., jitter=...)",
            ),
            (
                Backoff.fixed,
                {"base_ms": 200, "max_ms": 5},
                "Backoff.fixed: there is no parameter max_ms. Write Backoff.fixed(base_ms=..., jitter=...)",
            ),
            (
                Backoff.none,
                {"base_ms": 1},
                "Backoff.none: there is no parameter base_ms. Write Backoff.none()",
            ),
        ],
    )
    def test_a_call_that_does_not_fit_shows_the_call_to_write(
        self, make: Callable[..., Backoff], arguments: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(AuthoringError) as caught:
            make(**arguments)
        assert str(caught.value) == message

    def test_an_argument_without_its_name_is_refused(self) -> None:
        make: Callable[..., Backoff] = Backoff.fixed
        with pytest.raises(AuthoringError) as caught:
            make(200)
        assert str(caught.value) == (
            "Backoff.fixed: 200 needs the name of its parameter. Write Backoff.fixed(base_ms=..., jitter=...)"
        )

    @pytest.mark.parametrize("bad", [-1, True, 1.0, "1", None], ids=repr)
    def test_a_bad_attempt_is_named(self, bad: Any) -> None:
        with pytest.raises(AuthoringError) as caught:
            Backoff.none().delay_us(bad, NoSource())
        expected = f"Backoff.delay_us: attempt={bad!r} must be an integer of 0 or more"
        assert str(caught.value) == expected
