"""The walks on the architecture page: each is traced, and passes the listed functions in the listed order."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

import headwater
from headwater import Cell, Piece, cell, computed, effect, handler
from tests.scenario.pieces_kit import serving

PAGE = Path(__file__).resolve().parents[2] / "docs" / "ARCHITECTURE.md"
PACKAGE = Path(headwater.__file__).parent
SPACE = "shop"


class Cart(Piece, name="docs.walks.Cart"):
    lines: Cell[tuple[str, ...]] = cell(default=())

    @computed
    def count(self) -> int:
        return len(self.lines.get())

    @effect
    def show(self) -> None:
        self.count.get()

    @handler
    def add(self, line: str) -> None:
        self.lines.push(line)


def walks() -> list[tuple[str, list[str]]]:
    """Each list of hops of the page, with the name of its walk."""
    parts = re.split(r"<!-- walk: (.+) -->\n", PAGE.read_text())[1:]
    found = []
    for name, text in zip(parts[::2], parts[1::2], strict=True):
        steps = re.match(r"(?:\d+\. .+\n(?: +.+\n)*)+", text)
        assert steps, name
        found.append((name, re.findall(r"^\d+\. `([\w.]+)`", steps[0], re.MULTILINE)))
    return found


@contextmanager
def traced() -> Iterator[list[str]]:
    """Record the functions of the package that are called, in all threads that are started meanwhile, in order."""
    calls: list[str] = []
    prefix = f"{PACKAGE}/"

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(prefix):
            module = code.co_filename[len(prefix) : -len(".py")].replace("/", ".")
            calls.append(f"{module}.{code.co_qualname}")

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


async def click(folder: Path, calls: list[str]) -> list[str]:
    async with headwater.open(folder) as rt:
        cart = await rt.space(SPACE).open(Cart, "ann")
        shown: list[int] = []
        cart.count.sink(shown.append)
        await cart.add.send("tea")
        await rt.settled()
        await rt.durable()
        calls.clear()
        await cart.add.send("milk")
        await rt.settled()
        await rt.durable()
        assert shown[-1] == 2
        return calls.copy()


async def remote_commit(folder: Path, calls: list[str]) -> list[str]:
    async with (
        serving(folder) as address,
        headwater.connect(address, token="") as ann,
        headwater.connect(address, token="") as bob,
    ):
        cart = await ann.space(SPACE).open(Cart, "ann")
        await cart.add.send("tea")
        await ann.settled()
        await ann.durable()
        other = bob.space(SPACE).piece(Cart, "ann")
        await other.lines.pull()
        calls.clear()
        other.lines.push("milk")
        async for count in cart.count.watch():
            if count == 2:
                break
        await ann.settled()
        await ann.durable()
        return calls.copy()


async def cold_start(folder: Path, calls: list[str]) -> list[str]:
    async with headwater.open(folder) as rt:
        cart = await rt.space(SPACE).open(Cart, "ann")
        await cart.add.send("tea")
        await rt.settled()
        await rt.durable()
    calls.clear()
    async with headwater.open(folder) as rt:
        cart = await rt.space(SPACE).open(Cart, "ann")
        assert await cart.count.pull() == 1
        return calls.copy()


WALKS = {"click": click, "remote commit": remote_commit, "cold start": cold_start}


def missing(hops: list[str], calls: list[str]) -> list[str]:
    """The hops from the first one on that is not called after the ones before it; empty if the order holds."""
    rest = iter(calls)
    for number, hop in enumerate(hops):
        if hop not in rest:
            return hops[number:]
    return []


@pytest.mark.parametrize(("name", "hops"), walks(), ids=[f"{name}-{hops[0]}-{len(hops)}" for name, hops in walks()])
def test_walk_passes_the_functions_of_the_page_in_order(name: str, hops: list[str], tmp_path: Path) -> None:
    assert len(hops) > 5
    with traced() as calls:
        found = asyncio.run(asyncio.wait_for(WALKS[name](tmp_path, calls), 60))
    assert missing(hops, found) == []
