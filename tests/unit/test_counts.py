from __future__ import annotations

import pytest

from tests.counts import is_exploring, scaled


@pytest.mark.parametrize(
    ("scale", "seeds", "count", "exploring"),
    [
        (None, None, 2_000, False),
        ("0.1", None, 2_000, False),
        ("1.0", None, 20_000, True),
        ("0.00001", None, 1, False),
        ("1.0", "7", 7, True),
        (None, "0", 1, True),
    ],
)
def test_a_suite_of_20_000_runs_as_many_cases_as_it_is_asked_to(
    monkeypatch: pytest.MonkeyPatch, scale: str | None, seeds: str | None, count: int, exploring: bool
) -> None:
    for name, value in (("HEADWATER_RANDOM_SCALE", scale), ("HEADWATER_SEEDS", seeds)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    assert scaled(20_000) == count
    assert is_exploring() == exploring
