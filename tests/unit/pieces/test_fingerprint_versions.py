"""Another version of Python, of a package or of our own rules makes what stands on it run again, and a preview says so.

What of an application's own code can change is told in tests/unit/cli/test_preview.py, on files.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

from headwater import Backoff, Cell, Piece, cell, computed
from headwater.pieces.fingerprints import change_kinds, fingerprint, origin
from headwater.pieces.fingerprints.origin import Packages
from headwater.runtime.pieces.classes import fingerprints, forget_fingerprints
from tests.scenario.pieces_kit import run
from tests.scenario.preview_kit import previewed
from tests.scenario.resume_kit import process
from tests.unit.pieces.fingerprint_kit import digest


class Versioned(Piece, name="versions.Versioned"):
    n: Cell[int] = cell(default=1)

    @computed
    def packaged(self) -> str:
        return msgspec.json.encode(self.n.get()).decode()

    @computed
    def plain(self) -> int:
        return self.n.get()


async def _pulled(folder: Path) -> set[str]:
    """Which of them ran, in a process of its own."""
    async with process(folder) as one:
        piece: Any = await one.open("v", Versioned)
        assert (await piece.packaged.pull(), await piece.plain.pull()) == ("1", 1)
        return one.taken()


def _another_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprint, "PYTHON", "cpython 3.99.0")


def _another_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Packages, "versions", lambda self, top: f"{top}==99.0")


def _other_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (fingerprint, origin, change_kinds):
        monkeypatch.setattr(module, "RULES", 99)


@pytest.mark.parametrize(
    ("change", "runs", "because"),
    [
        (_another_python, {"v:packaged", "v:plain"}, ("the version of Python",)),
        (_another_package, {"v:packaged"}, ("the version of a package",)),
        (_other_rules, {"v:packaged", "v:plain"}, ("the rules of Headwater",)),
    ],
)
def test_what_stands_on_it_runs_again_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Any, runs: set[str], because: tuple[str, ...]
) -> None:
    async def story() -> None:
        assert await _pulled(tmp_path) == {"v:packaged", "v:plain"}
        assert await _pulled(tmp_path) == set()
        change(monkeypatch)
        forget_fingerprints(fingerprints((Versioned,)))  # as in another process
        again = (await previewed(tmp_path)).of("rerun")
        assert {each.node for each in again} == runs
        assert {each.details[:1] for each in again} == {because}
        assert await _pulled(tmp_path) == runs
        assert await _pulled(tmp_path) == set()

    try:
        run(story)
    finally:
        monkeypatch.undo()
        forget_fingerprints(fingerprints((Versioned,)))


def test_moving_a_public_class_of_headwater_inside_the_package_changes_no_fingerprint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shop = "from headwater import Backoff\n\ndef total(n):\n    return Backoff\n"
    before = digest(shop)
    moved = ModuleType("headwater.moved")
    moved.Backoff = Backoff  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, moved.__name__, moved)
    monkeypatch.setattr(Backoff, "__module__", moved.__name__)
    assert digest(shop) == before
