"""`space.delete` and `space.find` wait for a connection, as `send` does."""

from __future__ import annotations

import asyncio

from headwater import Cell, Piece, cell
from headwater.testing import Simulation, simulated


class Note(Piece, name="waits.Note"):
    text: Cell[str] = cell(default="")


@simulated(seeds=20, faults=("delay",))
async def test_delete_and_find_continue_on_the_next_connection(sim: Simulation) -> None:
    space = sim.runtime("ann").space("s")
    for name in ("a", "b"):
        await space.open(Note, name, setup=lambda note: note.text.set("full"))
    await sim.settle()
    with sim.offline("ann"):
        deleting = asyncio.ensure_future(space.delete(space.piece(Note, "a")))
        finding = asyncio.ensure_future(space.find(Note))
        await sim.advance(seconds=20)
        assert not deleting.done()
        assert not finding.done()
    await sim.settle()
    await deleting
    await finding
    assert [note.text.get() for note in (await space.find(Note)).items] == ["full"]


@simulated(seeds=60, faults=("delay", "drop"))
async def test_delete_and_find_survive_lost_connections(sim: Simulation) -> None:
    space = sim.runtime("ann").space("s")
    for number in range(6):
        note = await space.open(Note, str(number))
        assert len((await space.find(Note)).items) == 1
        await space.delete(note)
    assert (await space.find(Note)).items == ()
