"""A bucket that refills with time: a burst at once, the rate in the long run."""

from __future__ import annotations

import pytest

from headwater.clock import VirtualClock
from headwater.server.operation.limits import RateLimit


def test_messages_after_a_burst_are_delayed() -> None:
    clock = VirtualClock()
    rate = RateLimit(100, 10, clock)
    assert [rate.admit() for _ in range(10)] == [0.0] * 10
    assert rate.admit() == pytest.approx(0.01)
    assert rate.admit() == pytest.approx(0.02)
    clock.advance(20_000)
    assert rate.admit() == pytest.approx(0.01)


def test_time_refills_it_up_to_the_burst_and_no_further() -> None:
    clock = VirtualClock()
    rate = RateLimit(100, 10, clock)
    clock.advance(3_600_000_000)
    assert [rate.admit() for _ in range(10)] == [0.0] * 10
    assert rate.admit() > 0


def test_charge_counts_as_several_messages() -> None:
    clock = VirtualClock()
    rate = RateLimit(100, 10, clock)
    assert rate.admit() == 0
    rate.charge(19)
    assert rate.admit() == pytest.approx(0.11)
