from collections.abc import Mapping

import headwater
from headwater import Cell, Piece, cell, computed, fold, handler
from headwater.testing import Simulation, simulated


class Row(headwater.Model):
    name: str
    cents: int


class Ledger(Piece):
    rows: Cell[Mapping[str, Row]] = cell(default={})
    search: Cell[str] = cell(default="")

    @computed
    def names(self) -> tuple[str, ...]:
        """Reads names only, through a view: a changed price does not run it."""
        view = self.rows.view()
        return tuple(sorted(view[key].name for key in view))

    total = fold(rows, start=0, add=lambda n, row: n + row.cents, remove=lambda n, row: n - row.cents)

    @computed
    def text(self) -> str:
        return f"{len(self.names.get())} names, {self.total.get()} cents"

    @handler
    def put(self, key: str, name: str, cents: int) -> None:
        self.rows.key(key).set(Row(name=name, cents=cents))


@simulated(seeds=1)
async def test_a_changed_price_runs_what_reads_prices(sim: Simulation) -> None:
    ledger = await sim.runtime("ann").space("books").open(Ledger, "one")
    for number in range(50):
        await ledger.put.send(f"k{number}", f"name {number}", 1)
    look = ledger.text.sink(lambda _: None)
    await sim.settle()
    names, totals = sim.runs(Ledger.names), sim.runs(Ledger.total)
    await ledger.put.send("k7", "name 7", 100)
    await sim.settle()
    assert (sim.runs(Ledger.names) - names, sim.runs(Ledger.total) - totals) == (0, 1)
    look.close()


test_a_changed_price_runs_what_reads_prices()
