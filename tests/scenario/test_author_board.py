from __future__ import annotations

import asyncio

from headwater.testing import Simulation, simulated
from tests.programs.b_kanban import Board, CardView


@simulated(seeds=500, faults=("delay", "drop", "partition"))
async def test_a_card_dragged_by_everyone_is_in_one_column(sim: Simulation) -> None:
    boards = [sim.runtime(u).space("team").piece(Board, "main") for u in ("ann", "bob", "cy")]
    card = await boards[0].add.send("todo", "Write the guide")
    await asyncio.gather(*(b.move.send(card, c, None, None) for b in boards for c in ("doing", "done", "todo")))
    await sim.settle()
    assert sum((await boards[0].points.pull()).values()) == 1
    assert [await b.points.pull() for b in boards[1:]] == [await boards[0].points.pull()] * 2


@simulated(seeds=50)
async def test_one_renamed_card_runs_one_label(sim: Simulation) -> None:
    board = await sim.runtime("ann").space("team").open(Board, "main")
    ids = [await board.add.send("todo", f"card {n}") for n in range(100)]
    labels = [v.label.sink(print) for v in board.views.get().values()]
    await sim.settle()
    before = sim.runs(CardView.label)
    await board.views.get()[ids[7]].rename.send("new")
    await sim.settle()
    assert sim.runs(CardView.label) == before + 1
    for subscription in labels:
        subscription.close()


@simulated(seeds=50)
async def test_selection_is_mine_and_search_is_this_window(sim: Simulation) -> None:
    rt = sim.runtime("ann")
    one = rt.space("team", session="s1").piece(Board, "main")
    two = rt.space("team", session="s2").piece(Board, "main")
    bob = sim.runtime("bob").space("team").piece(Board, "main")
    card = await one.add.send("todo", "tea")
    await one.select.send(card)
    one.search.set("coffee")
    assert await two.selected.pull() == card and await bob.selected.pull() is None
    assert await one.visible.pull() == () and await two.visible.pull() == (card,)
