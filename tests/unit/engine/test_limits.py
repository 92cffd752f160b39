"""Every limit is a named number that something obeys."""

from __future__ import annotations

import re
from dataclasses import FrozenInstanceError, fields, replace
from pathlib import Path

import pytest

from headwater.data.limits import ValueLimits
from headwater.engine.limits import DEFAULT_LIMITS, Limits

SOURCE = Path(__file__).resolve().parents[3] / "src" / "headwater"
NAMES = [field.name for field in fields(Limits)]


def test_limits_are_read_and_never_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        DEFAULT_LIMITS.page = 5  # type: ignore[misc]
    assert replace(DEFAULT_LIMITS, page=5).page == 5


def test_every_default_is_a_positive_number() -> None:
    for name in NAMES:
        value = getattr(DEFAULT_LIMITS, name)
        assert isinstance(value, ValueLimits) or (type(value) is int and value > 0), name


@pytest.mark.parametrize("name", NAMES)
def test_every_limit_is_asked_for_somewhere(name: str) -> None:
    code = [path.read_text() for path in SOURCE.rglob("*.py") if path.name != "limits.py"]
    assert any(re.search(rf"limits\.{name}\b", text) for text in code), f"nothing obeys Limits.{name}"
