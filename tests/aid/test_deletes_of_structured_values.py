"""A handler or transaction that deletes a Mapping or a Model does so where it lands, whatever others wrote."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest

from headwater import Cell, Model, Piece, cell, handler
from headwater.testing import Simulation, simulated

SPACE = "shelf"
PIECES = 20


class Inner(Model):
    left: int = 1
    right: int = 2


class Card(Model):
    count: int = 5
    inner: Inner = Inner()


class Shelf(Piece, name="aid.Deletes"):
    rows: Cell[Mapping[str, int]] = cell(default={})
    prices: Cell[Mapping[str, int]] = cell(default={"a": 1})
    card: Cell[Card] = cell(default=Card())
    log: Cell[tuple[str, ...]] = cell(default=())

    @handler
    def do(self, what: str) -> None:
        ACTS[what](self)
        self.log.push(what)


ACTS: dict[str, Callable[[Shelf], None]] = {
    "put": lambda shelf: shelf.rows.key("a").set(7),
    "clear": lambda shelf: shelf.rows.delete(),
    "price": lambda shelf: shelf.prices.key("c").set(9),
    "no prices": lambda shelf: shelf.prices.delete(),
    "count": lambda shelf: shelf.card.at(lambda card: card.count).set(9),
    "new card": lambda shelf: shelf.card.delete(),
    "right": lambda shelf: shelf.card.at(lambda card: card.inner.right).set(9),
    "new inner": lambda shelf: shelf.card.at(lambda card: card.inner).delete(),
}
CASES = [
    ("put", "clear", lambda shelf: dict(shelf.rows.get()), {}),
    ("price", "no prices", lambda shelf: dict(shelf.prices.get()), {"a": 1}),
    ("count", "new card", lambda shelf: shelf.card.get(), Card()),
    ("right", "new inner", lambda shelf: shelf.card.get(), Card()),
]


@pytest.mark.parametrize(("write", "delete", "shown", "default"), CASES)
@pytest.mark.parametrize("is_stored", [False, True], ids=["new", "stored"])
@simulated(seeds=12, faults=("delay",))
async def test_nothing_is_left_of_a_value_that_is_deleted_after_a_write(
    sim: Simulation, is_stored: bool, write: str, delete: str, shown: Callable[[Shelf], object], default: object
) -> None:
    ann = await sim.runtime("ann").space(SPACE).open(Shelf, "s")
    bob = await sim.runtime("bob").space(SPACE).open(Shelf, "s")
    if is_stored:
        await ann.do.send(delete)
    await sim.settle()
    await asyncio.gather(bob.do.send(write), ann.do.send(delete))
    await sim.settle()
    if ann.log.get()[-1] == delete:
        assert shown(ann) == shown(bob) == default
    else:
        assert shown(ann) == shown(bob) != default


@pytest.mark.parametrize(("write", "delete", "shown", "default"), CASES)
@simulated(seeds=4, faults=())
async def test_transaction_that_deletes_an_equal_default_is_made_again(
    sim: Simulation, write: str, delete: str, shown: Callable[[Shelf], object], default: object
) -> None:
    ann = await sim.runtime("ann").space(SPACE).open(Shelf, "s")
    bob = await sim.runtime("bob").space(SPACE).open(Shelf, "s")
    await ann.do.send(delete)
    await sim.settle()
    with sim.offline("ann"):
        await bob.do.send(write)
        deleting = asyncio.ensure_future(sim.runtime("ann").space(SPACE).transact(ACTS[delete], ann))
        await sim.advance(seconds=1)
    await deleting
    await sim.settle()
    assert shown(ann) == shown(bob) == default


@pytest.mark.parametrize(("write", "delete", "shown", "default"), CASES)
@pytest.mark.parametrize("is_stored", [False, True], ids=["new", "stored"])
@simulated(seeds=4, faults=("delay",))
async def test_plain_delete_of_a_default_keeps_the_fields_of_others(
    sim: Simulation, is_stored: bool, write: str, delete: str, shown: Callable[[Shelf], object], default: object
) -> None:
    ann = await sim.runtime("ann").space(SPACE).open(Shelf, "s")
    bob = await sim.runtime("bob").space(SPACE).open(Shelf, "s")
    if is_stored:
        await ann.do.send(delete)
    await sim.settle()
    with sim.offline("ann"):
        await bob.do.send(write)
        ACTS[delete](ann)
    await sim.settle()
    assert shown(ann) == shown(bob) != default


@pytest.mark.parametrize("plain", ["delete", "set"])
@simulated(seeds=12, faults=("delay",))
async def test_plain_write_on_top_of_an_undecided_one_keeps_keys_that_its_caller_did_not_see(
    sim: Simulation, plain: str
) -> None:
    """Bob's key lands between two writes of Ann: the first one creates the value, and the second one is late.

    There are many pieces, so that one of her messages is late in about half of the seeds.
    """
    anns, bobs = [
        [await sim.runtime(user).space(SPACE).open(Shelf, f"s{n}") for n in range(PIECES)] for user in ("ann", "bob")
    ]
    await sim.settle()
    for shelf in anns:
        shelf.rows.set({"x": 1})
    putting = [asyncio.ensure_future(shelf.do.send("put")) for shelf in bobs]
    for shelf in anns:
        write_plainly(shelf, plain)
    await asyncio.gather(*putting)
    await sim.settle()
    for ann, bob in zip(anns, bobs, strict=True):
        assert dict(ann.rows.get()) == dict(bob.rows.get()) == {"a": 7}


@pytest.mark.parametrize("plain", ["delete", "set"])
@simulated(seeds=4, faults=("delay",))
async def test_plain_write_on_top_of_an_accepted_one_keeps_keys_that_its_caller_did_not_see(
    sim: Simulation, plain: str
) -> None:
    ann = await sim.runtime("ann").space(SPACE).open(Shelf, "s")
    bob = await sim.runtime("bob").space(SPACE).open(Shelf, "s")
    await sim.settle()
    await ann.do.send("clear")
    with sim.offline("ann"):
        await bob.do.send("put")
        write_plainly(ann, plain)
    await sim.settle()
    assert dict(ann.rows.get()) == dict(bob.rows.get()) == {"a": 7}


def write_plainly(shelf: Shelf, plain: str) -> None:
    if plain == "delete":
        shelf.rows.delete()
    else:
        shelf.rows.set({})
