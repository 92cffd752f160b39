"""Limits fail where they are written."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.data.limits import DEFAULT_VALUE_LIMITS, MAX_DEPTH, STORED_VALUE_LIMITS, ValueLimits
from headwater.errors import InvalidValueError


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"depth": 0}, "ValueLimits.depth is 0: write an integer of at least 1"),
        ({"container_items": 1.5}, "ValueLimits.container_items is 1.5: write an integer of at least 1"),
        ({"string_bytes": True}, "ValueLimits.string_bytes is True: write an integer of at least 1"),
        ({"depth": MAX_DEPTH + 1}, "ValueLimits.depth is 129: write at most 128"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidValueError) as refused:
        ValueLimits(**fields)
    assert str(refused.value) == message


def test_what_was_stored_is_read_under_limits_at_least_as_wide_as_any() -> None:
    for name in ("container_items", "string_bytes", "key_bytes", "total_bytes"):
        assert getattr(STORED_VALUE_LIMITS, name) >= getattr(DEFAULT_VALUE_LIMITS, name)
    assert STORED_VALUE_LIMITS.depth == MAX_DEPTH
