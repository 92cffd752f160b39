"""Every limit is a named number that something obeys."""

from __future__ import annotations

import re
from dataclasses import FrozenInstanceError, fields, replace
from pathlib import Path
from typing import Any

import pytest

from headwater.data.limits import ValueLimits
from headwater.data.patch import append
from headwater.data.patch import replace as replaced
from headwater.engine.limits import DEFAULT_LIMITS, Limits
from headwater.errors import AuthoringError
from headwater.protocol.verdict import Accepted
from tests.unit.engine.kit import Writer, open_engine, value_of, write

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


@pytest.mark.parametrize("name", [name for name in NAMES if name != "values"])
@pytest.mark.parametrize("number", [0, -1, 1.5, True, None, "8"])
def test_a_limit_of_nothing_is_refused_where_it_is_written(name: str, number: object) -> None:
    """With a page of 0 compaction would give history up without keeping what stands on it."""
    expected = re.escape(f"Limits.{name} is {number!r}: write an integer of at least 1")
    change: dict[str, Any] = {name: number}
    with pytest.raises(AuthoringError, match=expected):
        Limits(**change)
    with pytest.raises(AuthoringError, match=expected):
        replace(DEFAULT_LIMITS, **change)


def test_a_space_works_with_every_limit_at_its_smallest() -> None:
    """None of the limits on memory, storage and effort changes what is correct."""
    names = [name for name in NAMES if name != "values" and not name.startswith(("commit_", "frame_", "document_"))]
    smallest: dict[str, Any] = dict.fromkeys(names, 1)
    engine = open_engine(limits=Limits(**smallest))
    writers = [Writer(engine, key) for key in ("ann", "bob", "cat")]
    for number in range(12):
        for writer in writers:
            writer.lands(write("d", append((), [f"{writer.key}{number}"])), write(writer.key, replaced((), number)))
    engine.fork("b")
    writers[0].lands(write("d", append((), ["b"])), branch="b")
    expected = tuple(f"{key}{number}" for number in range(12) for key in ("ann", "bob", "cat"))
    for _ in range(2):
        assert value_of(engine, "d") == expected
        assert value_of(engine, "d", at=18) == expected[:18]
        assert value_of(engine, "d", branch="b") == (*expected, "b")
        engine.drop_caches()
    for writer in writers:
        engine.acknowledge(writer.key, 12)
    engine.compact(20)
    assert value_of(engine, "d") == expected
    diff, verdict = engine.merge("b")
    assert (len(diff.changes), isinstance(verdict, Accepted)) == (1, True)
    assert value_of(engine, "d") == (*expected, "b")


@pytest.mark.parametrize("name", NAMES)
def test_every_limit_is_asked_for_somewhere(name: str) -> None:
    code = [path.read_text() for path in SOURCE.rglob("*.py") if path.name != "limits.py"]
    assert any(re.search(rf"limits\.{name}\b", text) for text in code), f"nothing obeys Limits.{name}"
