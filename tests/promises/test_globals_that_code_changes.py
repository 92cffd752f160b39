"""Changes of a global while the program runs count in no fingerprint: no member runs again because of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import itertools
import sys
import threading

import headwater
from headwater import Cell, Piece, cell, computed, effect

SHOWN = []
SEEN = {{}}
COUNT = 0
NUMBERS = itertools.count()
LOCK, CHANGED = threading.Lock(), threading.Condition()
RATES = {{"a": {rate}}}
RAN = []


class Box:
    made = 0
    shelf = []

    def __init__(self):
        self.n = 0

    def put(self, n):
        self.n += n


BOX = Box()


def note(log, text):
    log.append(text)


def change(n):
    global COUNT
    COUNT += n
    note(SHOWN, n)
    SEEN.setdefault("log", []).append(n)
    BOX.put(n)
    setattr(BOX, "latest_n", n)
    Box.made += n
    note(Box.shelf, n)
    next(NUMBERS)


class Opened(Piece, name="globals.Opened"):
    @effect(every_start=True)
    def change(self) -> None:
        for word in sys.argv:
            change(len(word))


class Till(Piece, name="globals.Till"):
    n: Cell[int] = cell(default=1)

    @computed
    def cents(self) -> int:
        note(RAN, "cents")
        return self.n.get() * RATES["a"]

    @effect
    def by_function(self) -> None:
        change(self.n.get())
        note(RAN, "by_function")

    @effect
    def by_argument(self) -> None:
        note(SHOWN, (self.n.get(), len(SHOWN)))
        note(RAN, "by_argument")

    @effect
    def by_item(self) -> None:
        SEEN["till"] = SEEN.get("till", 0) + self.n.get()
        note(RAN, "by_item")

    @effect
    def by_method(self) -> None:
        BOX.put(self.n.get() + BOX.n)
        note(RAN, "by_method")

    @effect
    def by_attribute(self) -> None:
        setattr(BOX, "latest_n", self.n.get())
        note(RAN, "by_attribute")

    @effect
    def by_class(self) -> None:
        Box.made += self.n.get()
        Box.shelf.append(self.n.get())
        note(RAN, "by_class")

    @effect
    def by_number(self) -> None:
        if next(NUMBERS) >= 0 and self.n.get():
            note(RAN, "by_number")

    @effect
    def by_name(self) -> None:
        global COUNT
        COUNT += self.cents.get()
        note(RAN, "by_name")

    @effect
    def by_lock(self) -> None:
        with LOCK, CHANGED:
            self.n.get()
            note(RAN, "by_lock")


async def main() -> None:
    async with headwater.open(sys.argv[1]) as rt:
        await rt.space("s").open(Opened, "first")
        await rt.settled()
        assert len(SHOWN) == len(sys.argv)
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
    effects = ["argument", "attribute", "class", "function", "item", "lock", "method", "name", "number"]
    assert start(tmp_path) == [*[f"by_{each}" for each in effects], "cents"]
    assert start(tmp_path, "one") == []
    assert start(tmp_path, "one", "two") == []


def test_content_of_globals_counts_as_the_program_begins_with_it(tmp_path: Path) -> None:
    """The effect reads the value of the member that reads the changed global."""
    start(tmp_path)
    assert start(tmp_path, rate=3) == ["by_name", "cents"]
