"""`./dev sim --fuzz`: a short run finds nothing, and a defect of the product is a finding."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from headwater.engine.engine import Engine
from tools.fuzz import Draw, EngineFuzz, Finding, play


def test_short_run_finds_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    play(1_500, 4, tmp_path, verify_every=20, say=said.append)
    assert "no 5xx" in said[0]
    assert "verify held" in said[-1]


def test_error_that_is_no_refusal_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("a defect")

    fuzz = EngineFuzz(tmp_path, Draw(random.Random(1)), 100)
    monkeypatch.setattr(Engine, "submit_group", broken)

    def run() -> None:
        for _ in range(200):
            fuzz.step()

    with pytest.raises(Finding, match="KeyError"):
        run()
