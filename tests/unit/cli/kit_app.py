"""An application in a folder of its own, for the tests that run, reload and ask one."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SHOP = """
from __future__ import annotations

import headwater
from headwater import Cell, Piece, Refused, cell, computed, effect, fold, handler

RATE = 2


class Line(headwater.Model):
    sku: str
    cents: int


def scaled(number: int) -> int:
    return number * RATE


class Cart(Piece):
    lines: Cell[tuple[Line, ...]] = cell(default=())
    note: Cell[str] = cell(default="")
    mine: Cell[str] = cell(default="", scope="user")

    @computed
    def total(self) -> int:
        return sum(line.cents for line in self.lines.get())

    @computed
    def twice(self) -> int:
        return scaled(self.total.get())

    @computed
    def label(self) -> str:
        return f"{self.note.get()}: {self.twice.get()}"

    weight = fold(lines, start=0, add=lambda n, line: n + 1, remove=lambda n, line: n - 1)

    @effect
    def show(self) -> None:
        seen.append(self.label.get())

    @handler
    def add(self, line: Line) -> int:
        if line.cents < 0:
            raise Refused("a price is not negative")
        self.lines.push(line)
        return line.cents


seen: list[str] = []


async def start(rt: headwater.Runtime) -> None:
    await rt.space("shop", user="ann").open(Cart, "ann")
"""


def write_app(folder: Path, text: str = SHOP, *, name: str = "shop") -> Path:
    """The file of an application."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.py"
    file.write_text(text, encoding="utf-8")
    return file.resolve()


@contextmanager
def imported() -> Iterator[None]:
    """Modules of applications that a test imports are not there for the next test. Installed packages stay."""
    path, before, somewhere = list(sys.path), set(sys.modules), tempfile.gettempdir()
    try:
        yield
    finally:
        for name in sys.modules.keys() - before:  # Not those of before: all of this may itself be somewhere there.
            file = str(getattr(sys.modules[name], "__file__", None) or "")
            is_ours = name.partition(".")[0] == "headwater"  # The project itself may be in that place.
            if file.startswith(somewhere) and not file.startswith(sys.prefix) and not is_ours:
                del sys.modules[name]
        sys.path[:] = path
