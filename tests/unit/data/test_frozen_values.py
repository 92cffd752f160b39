"""`is_frozen`: the check of values that were frozen where they were made."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.data.address import Link
from headwater.data.limits import DEFAULT_VALUE_LIMITS, ValueLimits
from headwater.data.value import MAX_INT, equal, freeze, is_frozen, size_of
from headwater.errors import InvalidValueError

TINY = ValueLimits(string_bytes=8, key_bytes=4, container_items=3, depth=3, total_bytes=24)


class Text(str):
    """A text that is not exactly a `str`."""

    __slots__ = ()


leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**55), 2**55)
    | st.floats()
    | st.text(max_size=10)
    | st.binary(max_size=3)
    | st.sampled_from(["\ud800", Text("a"), b"x", Link("s", "space", "d", ()), object(), MAX_INT, -MAX_INT - 1])
)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=5) | st.integers() | st.just("\ud800"), inner, max_size=4)
    ),
    max_leaves=12,
)


@pytest.mark.parametrize("limits", [DEFAULT_VALUE_LIMITS, TINY], ids=["default", "tiny"])
@given(raw=values, level=st.integers(0, 3))
def test_frozen_value_is_what_freeze_returns_for_it(limits: ValueLimits, raw: Any, level: int) -> None:
    if is_frozen(raw, limits, level):
        assert equal(freeze(raw, limits, at=("x",) * level), raw)


@given(raw=values)
def test_value_that_freeze_made_is_frozen(raw: Any) -> None:
    try:
        made = freeze(raw)
    except InvalidValueError:
        return
    assert is_frozen(made, DEFAULT_VALUE_LIMITS)


def test_value_that_unfolds_without_end_is_not_frozen() -> None:
    value: Any = (1, 1)
    for _ in range(40):
        value = (value, value)
    assert not is_frozen(value, DEFAULT_VALUE_LIMITS)


@given(raw=values, most=st.integers(0, 40))
def test_bounded_size_is_exact_up_to_the_bound_and_above_it_otherwise(raw: Any, most: int) -> None:
    try:
        made = freeze(raw)
    except InvalidValueError:
        return
    exact = size_of(made)
    bounded = size_of(made, most)
    assert bounded == exact if exact <= most else most < bounded <= exact
