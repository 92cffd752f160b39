"""`headwater preview` says of each node whether the next version runs it, and which kind of change is the reason."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

LIMIT_S = 60
SHOP = """
from __future__ import annotations

import headwater
from headwater import Cell, Piece, cell, computed, fold

RATE = 2


class Line(headwater.Model):
    sku: str
    cents: int


def scaled(number: int) -> int:
    return number * RATE


def doubled(number: int) -> int:
    return number + number


class Cart(Piece, name="previewed.Cart"):
    lines: Cell[tuple[Line, ...]] = cell(default=())
    note: Cell[str] = cell(default="")
    size: Cell[int] = cell(default=3)

    @computed
    def own(self) -> int:
        return self.size.get() + 1

    @computed
    def constant(self) -> int:
        return scaled(self.size.get())

    @computed
    def called(self) -> int:
        return doubled(self.size.get())

    @computed
    def field(self) -> int:
        return sum(line.cents for line in self.lines.get())

    @computed
    def declared(self) -> str:
        return self.note.get()

    @computed
    def timed(self) -> int:
        return self.size.get()

    @computed
    def same(self) -> int:
        return self.size.get() - 1

    weight = fold(lines, start=0, add=lambda n, line: n + 1, remove=lambda n, line: n - 1)


MEMBERS = ("own", "constant", "called", "field", "declared", "timed", "same", "weight")


async def main() -> None:
    async with headwater.open("./data") as rt:
        cart = await rt.space("shop").open(Cart, "ann", setup=lambda cart: cart.lines.push(Line(sku="tea", cents=4)))
        for member in MEMBERS:
            await getattr(cart, member).pull()


if __name__ == "__main__":
    headwater.run(main)
"""
CHANGES = {
    "own": ("self.size.get() + 1", "1 + self.size.get()", "its own code"),
    "constant": ("RATE = 2", "RATE = 3", "a constant"),
    "called": ("return number + number", "return 2 * number", "a function that it calls"),
    "field": ("cents: int\n", "cents: int\n    qty: int = 1\n", "a field of a Model"),
    "declared": ('cell(default="")', 'cell(default="?")', "its default"),
    "timed": ("@computed\n    def timed", "@computed(debounce_ms=5)\n    def timed", "debounce"),
    "weight": ("lambda n, line: n + 1", "lambda n, line: n + 2", "its own code"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the program and with data on which it ran."""
    folder = tmp_path_factory.mktemp("shop")
    (folder / "shop.py").write_text(SHOP)
    command(folder, "shop.py")
    return folder


def command(folder: Path, *words: str, code: int = 0) -> str:
    """Run Python in a process of its own: a class of one name is imported from one file there."""
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def test_same_version_runs_nothing(folder: Path) -> None:
    out = command(folder, "-m", "headwater.cli", "preview", "shop.py", "--data", "data", "--check")
    assert out.startswith("of 8 nodes, 0 nodes would run again")


def test_changed_members_run_and_the_kind_of_change_is_named(folder: Path) -> None:
    text = SHOP
    for old, new, _ in CHANGES.values():
        assert old in text
        text = text.replace(old, new)
    (folder / "next").mkdir(exist_ok=True)
    (folder / "next" / "shop.py").write_text(text)
    out = command(folder, "-m", "headwater.cli", "preview", "next/shop.py", "--data", "data", "--json", "--all")
    nodes: dict[str, Any] = {each["node"]: each for each in json.loads(out)["nodes"]}
    assert {name.removeprefix("ann:") for name, each in nodes.items() if each["fate"] == "rerun"} == {*CHANGES}
    assert nodes["ann:same"]["fate"] == "clean"
    for member, (_, _, kind) in CHANGES.items():
        details = nodes[f"ann:{member}"]["details"]
        assert any(kind in detail for detail in details), (member, details)


def test_shadow_run_of_clean_nodes_finds_no_difference(folder: Path) -> None:
    out = command(folder, "-m", "headwater.cli", "verify", "data", "--resume", "shop.py")
    assert "8 clean nodes ran again on a copy, and every result equals its stored value" in out
