"""`@each(rows, forget=True)` erases what the child of a removed key kept, also if the process is killed meanwhile."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import headwater
from headwater import Cell, Piece, cell, each, given
from headwater.clock import Random, VirtualClock
from headwater.runtime import Runtime
from headwater.testing import Simulation, simulated

KEYS = ("a", "b", "c")
STEP_S = 0.002  # with delays, an erasure asks about 10 ms after the removal, and ends 15 ms later
Kept = tuple[str, tuple[int, ...]]


class Card(Piece, name="forget.Card"):
    title: Cell[str] = given()
    note: Cell[str] = cell(default="")
    marks: Cell[tuple[int, ...]] = cell(default=())


class Board(Piece, name="forget.Board"):
    titles: Cell[Mapping[str, str]] = cell(default={})

    @each(titles, forget=True)
    def cards(self, title: Cell[str]) -> Card:
        return Card(title=title)


async def filled(rt: Runtime) -> Board:
    """Open a board with two cards, each of which keeps something."""
    board = await rt.space("s").open(Board, "b", setup=lambda board: board.titles.set({"a": "A", "b": "B"}))
    for card in board.cards.get().values():
        card.note.set("mine")
        card.marks.push(1)
    await rt.durable()
    return board


async def kept_by(board: Board) -> dict[str, Kept]:
    return {key: (await card.note.pull(), await card.marks.pull()) for key, card in board.cards.get().items()}


async def pause(draws: Random) -> None:
    await asyncio.sleep(draws.choice((0, 0.001, 0.01, 0.1)) * draws.random())


KILLED = """
import asyncio, os, signal, sys
import headwater
from tests.aid.test_forget import filled

async def main():
    async with headwater.open(sys.argv[1]) as rt:
        board = await filled(rt)
        await rt.space("s").transact(lambda: board.titles.key("a").delete())
        await rt.settled()
        await rt.durable()
        os.kill(os.getpid(), signal.SIGKILL)

headwater.run(main)
"""


def test_forget_survives_kill_9(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    root = Path(__file__).parents[2]
    killed = subprocess.run(command, cwd=root, check=False, capture_output=True, text=True)
    assert killed.returncode == -9, killed.stderr

    async def start() -> None:
        async with headwater.open(tmp_path) as rt:
            board = await rt.space("s").open(Board, "b")
            board.titles.key("a").set("A")
            await rt.settled()
            assert await kept_by(board) == {"b": ("mine", (1,)), "a": ("", ())}

    headwater.run(start)


@simulated(seeds=100, faults=("delay",))
async def test_forget_survives_a_crash(sim: Simulation) -> None:
    ann = sim.runtime("ann")
    board = await filled(ann)
    board.titles.key("a").delete()
    await ann.settled()
    await ann.durable()
    await sim.crash("ann")
    await sim.crash()
    board = await sim.runtime("ann").space("s").open(Board, "b")
    board.titles.key("a").set("A")
    await sim.settle()
    assert await kept_by(board) == {"b": ("mine", (1,)), "a": ("", ())}


@simulated(seeds=200, faults=("delay",))
async def test_removed_key_is_forgotten_if_the_process_is_killed_at_any_moment(sim: Simulation) -> None:
    """A runtime that opens the piece goes on where the one that was killed stopped."""
    ann = sim.runtime("ann")
    board = await filled(ann)
    await ann.space("s").transact(lambda: board.titles.key("a").delete())
    await pause(VirtualClock(seed=sim.seed).randomness("moments"))
    await sim.crash("ann")
    ann = sim.runtime("ann")
    board = await ann.space("s").open(Board, "b")
    await ann.durable()
    board.titles.key("a").set("A")
    await sim.settle()
    assert await kept_by(board) == {"b": ("mine", (1,)), "a": ("", ())}


@simulated(seeds=200, faults=("delay", "drop"))
async def test_keys_removed_and_added_quickly_leave_no_error_and_no_old_data(sim: Simulation) -> None:
    """What is written to a child stays as long as its key, and is gone with it, with another runtime that erases."""
    draws = VirtualClock(seed=sim.seed).randomness("moments")
    ann, errors = sim.runtime("ann"), list[BaseException]()
    ann.on_error(lambda error: None if "connection was lost" in str(error) else errors.append(error))
    board = await ann.space("s").open(Board, "b")
    if draws.random() < 0.5:
        await sim.runtime("bob").space("s").open(Board, "b")

    async def shown(key: str) -> Card:
        found: dict[str, Card] = {}

        def is_shown() -> bool:
            found.update(board.cards.get())
            return key in found

        await ann.until(is_shown)
        return found[key]

    async def change(key: str, number: int) -> None:
        for turn in range(draws.randint(2, 4)):
            board.titles.key(key).set(key)
            if draws.random() < 0.7:
                await ann.durable()
                card, said = await shown(key), (f"{key}{turn}", (number, turn))
                card.note.set(said[0])
                card.marks.set(said[1])
                await pause(draws)
                await ann.durable()
                assert (await card.note.pull(), await card.marks.pull()) == said
            await pause(draws)
            board.titles.key(key).delete()
            await pause(draws)

    await asyncio.gather(*(change(key, number) for number, key in enumerate(KEYS)))
    await sim.settle()
    assert await kept_by(board) == {}
    for key in KEYS:
        board.titles.key(key).set(key)
    await sim.settle()
    assert await kept_by(board) == dict.fromkeys(KEYS, ("", ()))
    assert errors == []


@simulated(seeds=20, faults=("delay",))
async def test_key_removed_again_while_its_child_is_erased_leaves_no_old_data(sim: Simulation) -> None:
    """The erasure for the first removal has asked which documents there are, and another one is written after that."""
    ann = sim.runtime("ann")
    board = await ann.space("s").open(Board, "b", setup=lambda board: board.titles.set({"a": "A"}))
    board.cards.get()["a"].note.set("first")
    await ann.durable()
    board.titles.key("a").delete()
    await asyncio.sleep(sim.seed * STEP_S)
    board.titles.key("a").set("A")
    await ann.until(lambda: "a" in board.cards.get())
    board.cards.get()["a"].marks.push(1)
    board.titles.key("a").delete()
    await sim.settle()
    board.titles.key("a").set("A")
    await sim.settle()
    assert await kept_by(board) == {"a": ("", ())}


@simulated(seeds=6, faults=("delay",))
async def test_forget_survives_a_crash_of_the_server_right_after_the_removal(sim: Simulation) -> None:
    ann = sim.runtime("ann")
    board = await filled(ann)
    await sim.settle()
    await ann.space("s").transact(lambda: board.titles.key("a").delete())
    await sim.crash()
    await ann.durable()
    await sim.settle()
    board.titles.key("a").set("A")
    await sim.settle()
    assert await kept_by(board) == {"b": ("mine", (1,)), "a": ("", ())}
