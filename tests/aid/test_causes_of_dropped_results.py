"""I8: the causes of a result that is dropped unsent are causes of the next one."""

from __future__ import annotations

from headwater import Cell, Piece, cell, computed, handler
from headwater.protocol.commit import parts_of
from headwater.testing import Simulation, simulated
from headwater.testing.author.stored import log_of


class Sum(Piece, name="aid.Sum"):
    x: Cell[int] = cell(default=0)
    y: Cell[int] = cell(default=0)

    @computed
    def sum(self) -> int:
        return self.x.get() + self.y.get()

    @handler
    def put(self, x: int) -> None:
        self.x.set(x)


@simulated(seeds=2, faults=())
async def test_result_after_a_dropped_one_names_the_causes_of_both(sim: Simulation) -> None:
    ann = sim.runtime("ann")
    piece = await ann.space("s").open(Sum, "p")
    await piece.put.send(1)
    assert await piece.sum.pull() == 1
    await sim.settle()
    with sim.offline("ann"):
        piece.x.set(10)
        assert await piece.sum.pull() == 10
        piece.y.set(1)  # Now the result is out of date, and nothing demands another one.
    await sim.settle()
    assert await piece.sum.pull() == 11
    await sim.settle()
    made = sim.server.read(lambda engines: [each.commit for each in log_of(engines["s"])])
    parts = [part.provenance for commit in made for part in parts_of(commit)]
    last = [each for each in parts if each.node.endswith("p:sum")][-1]
    assert {doc.id for doc, _ in last.causes} == {"p:x", "p:y"}
