"""A global that a member's own code changes is not part of its fingerprint: the member does not run at each start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import itertools
import sys

import headwater
from headwater import Cell, Piece, cell, computed, effect

SHOWN = []
SEEN = {{}}
COUNT = 0
LOG = {{"shown": []}}
NUMBERS = itertools.count()
RATES = {{"a": {rate}}}


class Box:
    pass


BOX = Box()
BOX.shelf, BOX.n = [], 0


class Till(Piece, name="globals.Till"):
    n: Cell[int] = cell(default=1)

    @computed
    def cents(self) -> int:
        RAN.append("cents")
        return self.n.get() * RATES["a"]

    @effect
    def by_method(self) -> None:
        SHOWN.append(self.n.get())
        RAN.append("by_method")

    @effect
    def by_item(self) -> None:
        if self.n.get() or True:
            SEEN["till"] = SEEN.get("till", 0) + 1
        SEEN["all"] = 0
        SEEN["all"] += len(RATES)
        RAN.append("by_item")

    @effect
    def by_alias(self) -> None:
        shown = SHOWN
        shown.append(self.n.get())
        RAN.append("by_alias")

    @effect
    def by_nested(self) -> None:
        LOG["shown"].append(self.n.get())
        RAN.append("by_nested")

    @effect
    def by_object(self) -> None:
        BOX.n += self.n.get()
        BOX.shelf.append(BOX.n)
        RAN.append("by_object")

    @effect
    def by_number(self) -> None:
        if next(NUMBERS) >= 0 and self.n.get():
            RAN.append("by_number")

    @effect
    def by_name(self) -> None:
        global COUNT
        COUNT += self.cents.get()
        RAN.append("by_name")


RAN = []


async def main() -> None:
    async with headwater.open(sys.argv[1]) as rt:
        # What the program does before it opens the piece differs from start to start.
        SHOWN.extend(sys.argv[2:])
        SEEN.update(dict.fromkeys(sys.argv[2:], 1))
        LOG["shown"].extend(sys.argv[2:])
        BOX.n = len(sys.argv)
        BOX.shelf.extend(sys.argv[2:])
        for _ in sys.argv:
            next(NUMBERS)
        globals()["COUNT"] = len(sys.argv)
        RAN.clear()
        await rt.space("s").open(Till, "main")
        await rt.settled()
        print(*sorted(RAN))


headwater.run(main)
"""


def start(folder: Path, *words: str, rate: int = 2) -> list[str]:
    """Start the program in a process of its own, and return the members that ran."""
    script = folder / "till.py"
    script.write_text(PROGRAM.format(rate=rate))
    command = [sys.executable, str(script), str(folder / "data"), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_effects_that_change_globals_do_not_run_at_each_start(tmp_path: Path) -> None:
    members = ["by_alias", "by_item", "by_method", "by_name", "by_nested", "by_number", "by_object", "cents"]
    assert start(tmp_path) == members
    assert start(tmp_path, "one") == []
    assert start(tmp_path, "one", "two") == []


def test_globals_that_are_only_read_still_count(tmp_path: Path) -> None:
    """The effect that changes one global reads another one."""
    start(tmp_path)
    assert start(tmp_path, rate=3) == ["by_item", "by_name", "cents"]
