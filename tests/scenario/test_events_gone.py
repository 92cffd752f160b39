"""What waits for a piece that was deleted, or for a child whose key left, is refused: only a fresh send makes one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from headwater import Cell, Piece, cell, computed, each, effect, given, handler
from headwater.clock import VirtualClock
from headwater.data.value import freeze
from headwater.engine import Engine
from headwater.protocol.commit import SentEvent
from headwater.protocol.messages import FromReplica
from headwater.protocol.observations import QueryCleanPieces, QueryNodes, QueryObservations
from headwater.runtime import Runtime
from headwater.testing import Simulation
from tests.scenario.events_kit import durable, outcome, read, receipt_of, stored, told
from tests.scenario.pieces_kit import alone, run

LATER = timedelta(seconds=20)
GONE = "its piece is gone"


class Box(Piece, name="gone.Box"):
    seen: Cell[tuple[str, ...]] = cell(default=())

    @handler
    def put(self, text: str) -> str:
        self.seen.push(text)
        return text

    @handler
    def later(self, text: str) -> None:
        self.put.post_at(LATER, text)

    @handler
    def again(self, text: str) -> None:
        self.put.post(text)


class Ticking(Piece, name="gone.Ticking"):
    ticks: Cell[int] = cell(default=0)

    @handler(every_ms=1_000)
    def tick(self) -> None:
        self.ticks.set(self.ticks.get() + 1)

    @handler
    def restart(self) -> None:
        self.ticks.set(100)


class Leaf(Piece, name="gone.Leaf"):
    n: Cell[int] = given()
    own: Cell[int] = cell(default=0)

    @handler
    def bump(self) -> None:
        self.own.set(self.own.get() + 1)

    @handler
    def later(self) -> None:
        self.bump.post_at(LATER)

    source: Cell[int] = cell(default=0)

    @computed(debounce_ms=5_000)
    def slow(self) -> int:
        return self.source.get()

    @effect
    def keep_slow(self) -> None:
        self.slow.get()

    @handler
    def slow_bump(self) -> None:
        self.slow.get()
        self.own.set(self.own.get() + 1)

    @handler
    def slow_later(self) -> None:
        self.slow_bump.post_at(LATER)


class Tree(Piece, name="gone.Tree"):
    ns: Cell[Mapping[str, int]] = cell(default={})

    @each(ns)
    def leaves(self, n: Cell[int]) -> Leaf:
        if n.get() < 0:
            raise ValueError("no leaf can be made of this")
        return Leaf(n=n)

    @handler
    def add(self, key: str, n: int) -> None:
        self.ns.key(key).set(n)

    @handler
    def remove(self, key: str) -> None:
        self.ns.key(key).delete()


def receipt(sim: Simulation, id: str) -> Any:
    return read(sim, lambda engines: engines["s"].read(receipt_of(id)).value)


async def a_while(sim: Simulation, times: int = 4) -> None:
    for _ in range(times):
        await sim.advance(seconds=15)
        await sim.settle()


async def due_for_a_deleted_piece(sim: Simulation) -> list[str]:
    ann, bob = sim.runtime("ann"), sim.runtime("bob")
    space = ann.space("s")
    box = await space.open(Box, "b")
    await bob.space("s").open(Box, "b")
    await box.later.send("late")
    await space.delete(box)
    await a_while(sim)
    rows = [row for rt in (ann, bob) for row in rt.intents() if row.stream.endswith("put")]
    wrong = [f"{found} is there again" for found in (await space.find(Box)).items]
    wrong += [f"{left} is still stored" for left in stored(sim)]
    if "refused" not in {row.state for row in rows} or not all(GONE in row.error for row in rows):
        wrong.append(f"it ended as {rows}")
    told_of = receipt(sim, rows[0].id)
    if GONE not in str(told_of):
        wrong.append(f"its receipt is {told_of}")
    await box.put.send("fresh")
    return wrong if durable(sim, box, "seen") == ("fresh",) else [*wrong, "a fresh send made no piece"]


def test_what_is_due_for_a_deleted_piece_does_not_bring_it_back() -> None:
    assert told(due_for_a_deleted_piece) == []


async def a_follow_up_of_a_dead_process(sim: Simulation) -> list[str]:
    """It was stored; whoever takes it up finds that its piece was deleted meanwhile."""
    ann, bob = sim.runtime("ann"), sim.runtime("bob")
    box = await ann.space("s").open(Box, "b")
    there = await bob.space("s").open(Box, "b")
    await sim.settle()
    channel = ann.channel("s")
    assert channel is not None
    said = {"args": {"text": "x"}, "cls": "gone.Box", "user": "ann", "session": "gone", "at": 0}
    rows = [
        SentEvent("e1", "s/b:put", freeze({**said, "name": "b"}), 0),
        SentEvent("e2", "s/new:put", freeze({**said, "name": "new"}), 0),
        SentEvent("e3", "s/odd\n:put", freeze({**said, "cls": "gone.Nowhere", "name": "odd"}), 0),
        SentEvent("e4", "s/b/leaves/k:put", freeze({**said, "name": "b/leaves/k"}), 0),
    ]
    await channel.land(lambda made: made.events.extend(rows), node="as if its process had died")
    await sim.crash("ann")
    await bob.space("s").delete(there)
    await a_while(sim)
    space = bob.space("s")
    names = [piece.ctx.name for piece in (await space.find(Box)).items]
    wrong = [] if names == ["new"] else [f"{names} are there"]
    if stored(sim) != ["s/odd\n:put"]:
        wrong.append(f"{stored(sim)} are still stored")
    for id in ("e1", "e4"):
        if GONE not in str(receipt(sim, id)):
            wrong.append(f"the receipt of {id} is {receipt(sim, id)}")
    new = space.piece(Box, "new")
    return wrong if durable(sim, new, "seen") == ("x",) and box is not None else [*wrong, "the new one has nothing"]


def test_what_a_dead_process_left_makes_a_piece_that_never_was_and_none_that_was_deleted() -> None:
    assert told(a_follow_up_of_a_dead_process) == []


async def a_key_that_left(sim: Simulation) -> list[str]:
    ann = sim.runtime("ann")
    tree = await ann.space("s").open(Tree, "t")
    for key in ("gone", "stays", "broken"):
        await tree.add.send(key, 1)
    await sim.settle()
    leaves = await tree.leaves.pull()
    kept = leaves["gone"].own.document.key
    for leaf in leaves.values():
        await leaf.later.send()
    await tree.remove.send("gone")
    await tree.add.send("broken", -1)
    await sim.crash("ann")
    ann = sim.runtime("ann")
    tree = await ann.space("s").open(Tree, "t")
    await a_while(sim)
    left = stored(sim)
    states = {row.stream: row.state for row in ann.intents() if row.stream.endswith("bump")}
    wrong = [] if not left else [f"{left} are still stored"]
    # A row that cannot be made any more keeps the child that it had, as in a process that stayed.
    ends = {"s/t/leaves/gone:bump": "refused", "s/t/leaves/stays:bump": "landed", "s/t/leaves/broken:bump": "landed"}
    if states != ends:
        wrong.append(f"they ended as {states}")
    await tree.add.send("gone", 1)  # The next one under that key has nothing to do with it.
    await a_while(sim)
    own = read(sim, lambda engines: engines["s"].read(kept).value)
    return wrong if not isinstance(own, int) else [*wrong, f"the next one has {own}"]


def test_what_is_due_for_a_child_whose_key_left_is_refused() -> None:
    assert told(a_key_that_left) == []


async def a_key_whose_child_cannot_be_made(sim: Simulation) -> list[str]:
    """Nothing is known of the child that it had: it has not left, and what is due for it waits."""
    ann = sim.runtime("ann")
    tree = await ann.space("s").open(Tree, "t")
    await tree.add.send("broken", 1)
    await sim.settle()
    await (await tree.leaves.pull())["broken"].later.send()
    await tree.add.send("broken", -1)
    await sim.crash("ann")
    sim.server.front = without_answers
    ann = sim.runtime("ann")
    await ann.space("s").open(Tree, "t")
    await a_while(sim)
    states = {row.stream: row.state for row in ann.intents() if row.stream.endswith("bump")}
    wrong = [] if stored(sim) == ["s/t/leaves/broken:bump"] else [f"{stored(sim)} are still stored"]
    return wrong if states == {"s/t/leaves/broken:bump": "parked"} else [*wrong, f"they ended as {states}"]


def without_answers(engine: Engine, message: FromReplica) -> FromReplica | None:
    """Lose every question about what nodes did."""
    return None if isinstance(message, (QueryNodes, QueryObservations, QueryCleanPieces)) else message


def test_event_for_a_child_that_cannot_be_made_waits() -> None:
    assert told(a_key_whose_child_cannot_be_made) == []


async def a_root_that_was_stopped(sim: Simulation) -> list[str]:
    """Its children stop with it, and nothing left: what waits for one of them waits until it is open again."""
    ann, leaf = await parked_at_a_child(sim)
    space = ann.space("s")
    await space.stop(space.piece(Tree, "t"))
    await a_while(sim)
    left = stored(sim)
    wrong = [] if left == ["s/t/leaves/k:slow_bump"] and not sim.failures() else [f"{left} is stored, {sim.failures()}"]
    await space.open(Tree, "t")
    await a_while(sim)
    found = own(sim, leaf), stored(sim), {row.state for row in ann.intents() if row.stream.endswith("slow_bump")}
    return wrong if found == (1, [], {"left", "landed"}) else [*wrong, f"{found} in the end"]


def test_what_waits_for_a_child_whose_root_was_stopped_here_is_not_refused() -> None:
    assert told(a_root_that_was_stopped) == []


async def a_removal_that_falls(sim: Simulation) -> list[str]:
    """Without a connection the key is removed here, which loses: for everybody else it was there all the time."""
    there = sim.runtime("bob").space("s").piece(Tree, "t")  # It takes nothing up for children: it is not open there.
    await there.ns.pull()
    ann, leaf = await parked_at_a_child(sim)
    tree = ann.space("s").piece(Tree, "t")

    def remove() -> None:
        if tree.ns.key("other").get(0) == 0:
            tree.ns.key("k").delete()

    with sim.offline("ann"):
        removing = asyncio.ensure_future(outcome(ann.space("s").transact(remove)))
        await sim.advance(seconds=8)
        await there.add.send("other", 1)
    await a_while(sim)
    await removing
    keys = set(durable(sim, tree, "ns") or ())
    found = keys, own(sim, leaf), stored(sim)
    return [] if found == ({"k", "other"}, 1, []) else [f"{found} in the end"]


def test_a_removal_that_falls_takes_nobody_along() -> None:
    for seed in range(3):
        assert told(a_removal_that_falls, seed=seed) == []


async def parked_at_a_child(sim: Simulation) -> tuple[Runtime, Leaf]:
    """An event that was due is taken up, and waits for something that it reads."""
    ann = sim.runtime("ann")
    tree = await ann.space("s").open(Tree, "t")
    await tree.add.send("k", 1)
    await sim.settle()
    leaf = (await tree.leaves.pull())["k"]
    await leaf.slow.pull()
    await leaf.slow_later.send()
    await sim.settle()
    await sim.advance(seconds=17)
    leaf.source.set(leaf.source.get() + 1)
    await sim.advance(seconds=4)
    rows = [row.state for row in ann.intents() if row.stream.endswith("slow_bump")]
    assert rows[-1] == "parked", rows
    return ann, leaf


def own(sim: Simulation, leaf: Leaf) -> Any:
    return read(sim, lambda engines: engines["s"].read(leaf.own.document.key).value)


async def periods_of_a_deleted_piece(sim: Simulation) -> list[str]:
    """They are over without a commit and without noise, and go on with a piece that is made anew."""
    space = sim.runtime("ann").space("s")
    piece = await space.open(Ticking, "b")
    bob = sim.runtime("bob")
    there = await bob.space("s").open(Ticking, "b")
    await sim.advance(seconds=2)
    await space.delete(piece)
    await sim.settle()
    before = read(sim, lambda engines: engines["s"].last_seq)
    for _ in range(3):
        await sim.advance(seconds=2)
        await sim.settle()
    spent = read(sim, lambda engines: engines["s"].last_seq) - before
    wrong = [f"{found} is there again" for found in (await space.find(Ticking)).items]
    wrong += [f"{spent} commits were made for nothing"] if spent > 1 else []
    wrong += [str(failure) for failure in sim.failures()]
    last = bob.intents()[-1]
    if last.state != "refused" or GONE not in last.error:
        wrong.append(f"the last period ended as {last}")
    await there.restart.send()
    for _ in range(3):
        await sim.advance(seconds=1)
        await sim.settle()
    ticks = durable(sim, there, "ticks")
    return wrong if isinstance(ticks, int) and ticks >= 102 else [*wrong, f"{ticks} ticks of the new one"]


def test_periods_of_a_deleted_piece_cost_nothing_and_go_on_with_the_next() -> None:
    assert told(periods_of_a_deleted_piece) == []


def test_where_nothing_is_stored_it_is_the_same() -> None:
    async def work() -> None:
        clock = VirtualClock()
        async with alone(clock) as (rt, errors):
            space = rt.space("s")
            box = await space.open(Box, "b")
            await box.later.send("late")
            new = space.piece(Box, "new")
            new.put.post_at(LATER, "made by it")
            await rt.durable()
            await space.delete(box)
            clock.advance(30_000_000)
            rt.wake()
            await rt.durable()
            assert [piece.ctx.name for piece in (await space.find(Box)).items] == ["new"]
            assert [GONE in str(error) for error in errors] == [True]
            assert isinstance(await outcome(box.put.send("fresh")), str)
            assert box.seen.get() == ("fresh",)

    run(work)
