"""The policy of a runtime is clamped to where it makes sense, and refused where it is no number."""

from __future__ import annotations

import math

import pytest

from headwater import AuthoringError, Policy


def test_a_policy_is_patient_by_default() -> None:
    policy = Policy()
    assert (policy.base_delay_ms, policy.max_delay_ms, policy.retry_window_ms) == (25 / 32, 1_000, 30_000)
    assert (policy.backlog, policy.grace_ms, policy.retention_ms) == (256, 5_000, 7 * 86_400_000)
    assert policy.retry.window_ms == 30_000


def test_what_is_outside_is_taken_for_the_nearest_that_makes_sense() -> None:
    policy = Policy(
        base_delay_ms=0,
        max_delay_ms=0,
        jitter=7,
        retry_window_ms=0,
        backlog=0,
        in_hand=0,
        intents_kept=0,
        retention_ms=math.inf,
        grace_ms=0,
    )
    assert (policy.base_delay_ms, policy.max_delay_ms, policy.jitter, policy.retry_window_ms) == (0, 0, 1, 0)
    assert (policy.backlog, policy.in_hand, policy.intents_kept, policy.grace_ms) == (1, 1, 0, 0)
    assert policy.retention_ms < math.inf
    assert policy.retry.backoff.base_ms == 0


def test_a_cap_is_no_lower_than_the_first_delay() -> None:
    policy = Policy(base_delay_ms=500, max_delay_ms=10)
    assert policy.max_delay_ms == 500
    assert policy.retry.backoff.max_ms == 500


@pytest.mark.parametrize("value", ["30", None, True, math.nan])
def test_what_is_no_number_is_refused(value: object) -> None:
    with pytest.raises(AuthoringError, match=r"Policy\(retry_window_ms=.*\): write a number"):
        Policy(retry_window_ms=value)  # type: ignore[arg-type]
