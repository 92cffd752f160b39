"""A plain `set` of a Model or a Mapping merges by field with the value that its caller saw, also if it is sent later.

Bob has no connection and changes one field. Ann's change of other fields is acknowledged before his write lands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from headwater import Cell, Model, Piece, Refused, cell, handler
from headwater.testing import Simulation, simulated


class Card(Model):
    title: str = "A"
    colour: str = "white"


class Box(Model):
    card: Card = Card()
    count: int = 0


class Note(Piece, name="aid.SetWithoutConnection"):
    card: Cell[Card] = cell(default=Card())
    counts: Cell[Mapping[str, int]] = cell(default={})
    boxes: Cell[Mapping[str, Box]] = cell(default={})
    either: Cell[Card | int] = cell(default=0)
    cards: Cell[Mapping[str, Card]] = cell(default={"k": Card()})
    box: Cell[Box] = cell(default=Box())
    is_locked: Cell[bool] = cell(default=False)

    @handler
    def clear(self) -> None:
        if self.is_locked.get():
            raise Refused("locked")
        for key in self.counts.get():
            self.counts.key(key).delete()
        self.card.at(lambda card: card.title).set("cleared")

    @handler
    def lock(self) -> None:
        self.is_locked.set(True)
        self.counts.key("c").set(8)
        self.card.at(lambda card: card.colour).set("red")

    @handler
    def counted(self) -> int:
        box = self.boxes.key("k").get(None)
        return -1 if box is None else box.count

    @handler
    def begin(self) -> None:
        self.card.set(Card())
        self.counts.set({"a": 1, "b": 1, "d": 1})
        self.boxes.set({"k": Box()})
        self.either.set(Card())

    @handler
    def count(self) -> None:
        self.counts.key("b").set(7)
        self.counts.key("c").set(8)

    @handler
    def paint(self) -> None:
        self.cards.key("k").at(lambda card: card.colour).set("red")
        self.box.at(lambda box: box.card.colour).set("red")

    @handler
    def change(self) -> None:
        self.card.at(lambda card: card.colour).set("red")
        self.counts.key("a").delete()
        self.counts.key("b").set(7)
        self.counts.key("c").set(8)
        self.boxes.key("k").at(lambda box: box.card.colour).set("red")
        self.either.set(5)


@simulated(seeds=10)
async def test_fields_that_others_changed_meanwhile_stay(sim: Simulation) -> None:
    """Also if a write has to be made again: Bob's new value of the key that Ann removed has nothing to replace."""
    ann = await sim.runtime("ann").space("s").open(Note, "n")
    bob = await sim.runtime("bob").space("s").open(Note, "n")
    await ann.begin.send()
    await sim.settle()
    with sim.offline("bob"):
        await ann.change.send()
        bob.card.set(Card(title="B"))
        bob.counts.set({"a": 2, "b": 1})
        bob.boxes.key("k").set(Box(card=Card(title="B"), count=3))
    await sim.settle()
    for piece in (ann, bob):
        assert await piece.card.pull() == Card(title="B", colour="red")
        assert await piece.counts.pull() == {"a": 2, "b": 7, "c": 8}
        assert await piece.boxes.pull() == {"k": Box(card=Card(title="B", colour="red"), count=3)}


@simulated(seeds=10)
async def test_value_of_another_type_is_replaced_as_a_whole(sim: Simulation) -> None:
    ann = await sim.runtime("ann").space("s").open(Note, "n")
    bob = await sim.runtime("bob").space("s").open(Note, "n")
    await ann.begin.send()
    await sim.settle()
    with sim.offline("bob"):
        await ann.change.send()
        bob.either.set(Card(title="B"))
    await sim.settle()
    assert await ann.either.pull() == Card(title="B")
    assert await bob.either.pull() == Card(title="B")


@simulated(seeds=10)
async def test_keys_of_a_mapping_that_had_its_default_are_merged(sim: Simulation) -> None:
    ann = await sim.runtime("ann").space("s").open(Note, "n")
    bob = await sim.runtime("bob").space("s").open(Note, "n")
    await sim.settle()
    with sim.offline("bob"):
        await ann.count.send()
        bob.counts.set({"a": 2})
    await sim.settle()
    assert await ann.counts.pull() == {"a": 2, "b": 7, "c": 8}
    assert await bob.counts.pull() == {"a": 2, "b": 7, "c": 8}


@simulated(seeds=10)
async def test_fields_of_parts_of_a_default_are_merged(sim: Simulation) -> None:
    ann = await sim.runtime("ann").space("s").open(Note, "n")
    bob = await sim.runtime("bob").space("s").open(Note, "n")
    await sim.settle()
    with sim.offline("bob"):
        await ann.paint.send()
        bob.cards.key("k").set(Card(title="B"))
        bob.box.at(lambda box: box.card).set(Card(title="B"))
    await sim.settle()
    for piece in (ann, bob):
        assert await piece.cards.pull() == {"k": Card(title="B", colour="red")}
        assert await piece.box.pull() == Box(card=Card(title="B", colour="red"))


@simulated(seeds=5, faults=())
async def test_transactions_and_plain_writes_of_one_model_all_land_after_a_reconnect(sim: Simulation) -> None:
    """A plain write that is made again is in the view of a transaction that begins after it."""
    ann = await sim.runtime("ann").space("s").open(Note, "n")
    space = sim.runtime("bob").space("s")
    bob = await space.open(Note, "n")

    def count() -> None:
        bob.boxes.key("k").at(lambda box: box.count).increment()

    def begin() -> None:
        bob.boxes.key("k").set(Box())

    await space.transact(begin)
    await sim.settle()
    with sim.offline("bob"):
        landing = [asyncio.ensure_future(space.transact(lambda: bob.card.at(lambda card: card.title).set("B")))]
        await sim.advance(seconds=0.05)
        bob.card.at(lambda card: card.colour).set("blue")
        landing += [asyncio.ensure_future(space.transact(count))]
        landing += [asyncio.ensure_future(space.transact(lambda: bob.card.at(lambda card: card.title).set("C")))]
    await asyncio.gather(*landing)
    await sim.settle()
    assert await ann.card.pull() == Card(title="C", colour="blue")
    assert await ann.boxes.pull() == {"k": Box(count=1)}


@pytest.mark.parametrize("write", ["set", "set of a part", "delete", "delete of a part"])
@simulated(faults=("delay",), seeds=20)
async def test_write_that_waits_for_an_earlier_one_of_its_runtime_has_the_last_word(
    sim: Simulation, write: str
) -> None:
    """Bob's update met a conflict and is made again, so that he does not see his next write when he makes the last."""
    ann, bob = [await sim.runtime(user).space("s").open(Note, "n") for user in ("ann", "bob")]
    ann.box.set(Box(card=Card(colour="red"), count=1))
    await sim.settle()
    ann.box.at(lambda box: box.count).set(2)
    bob.box.update(lambda box: Box(card=box.card, count=box.count + 10))
    await sim.advance(seconds=sim.seed / 1_000)
    bob.box.at(lambda box: box.card.title).set("B")
    match write:
        case "set":
            bob.box.set(Box(card=Card(colour="red"), count=bob.box.get().count))
        case "set of a part":
            bob.box.at(lambda box: box.card).set(Card(colour="red"))
        case "delete":
            bob.box.delete()
        case _:
            bob.box.at(lambda box: box.card).delete()
    await sim.settle()
    card = (await bob.box.pull()).card
    assert card == await ann.box.at(lambda box: box.card).pull()
    assert card == Card(colour="white" if "delete" in write else "red")


@pytest.mark.parametrize("write", ["set", "set of a part", "delete", "delete of a part"])
@simulated(faults=("delay",), seeds=20)
async def test_write_that_waits_keeps_fields_that_others_change_meanwhile(sim: Simulation, write: str) -> None:
    ann, bob = [await sim.runtime(user).space("s").open(Note, "n") for user in ("ann", "bob")]
    ann.box.set(Box(card=Card(title="T"), count=1))
    await sim.settle()
    ann.box.at(lambda box: box.count).set(2)
    bob.box.update(lambda box: Box(card=box.card, count=box.count + 10))
    await sim.advance(seconds=sim.seed / 1_000)
    with sim.offline("bob"):
        match write:
            case "set":
                bob.box.set(Box(card=Card(title="B"), count=bob.box.get().count))
            case "set of a part":
                bob.box.at(lambda box: box.card).set(Card(title="B"))
            case "delete":
                bob.box.delete()
            case _:
                bob.box.at(lambda box: box.card).delete()
        ann.box.at(lambda box: box.card.colour).set("red")
        await sim.runtime("ann").durable()
    await sim.settle()
    for piece in (ann, bob):
        assert (await piece.box.pull()).card == Card(title="A" if "delete" in write else "B", colour="red")


@simulated(seeds=10)
async def test_keys_of_others_stay_if_two_writes_in_a_row_are_made_again(sim: Simulation) -> None:
    ann, bob = [await sim.runtime(user).space("s").open(Note, "n") for user in ("ann", "bob")]
    await sim.settle()
    with sim.offline("bob"):
        ann.boxes.key("a").set(Box(count=1))
        await sim.runtime("ann").durable()
        bob.boxes.key("c").set(Box(count=2))
        bob.boxes.set({"b": Box(count=3)})
    await sim.settle()
    for piece in (ann, bob):
        assert await piece.boxes.pull() == {"a": Box(count=1), "b": Box(count=3)}


@pytest.mark.parametrize("write", ["set", "delete"])
@simulated(seeds=10)
async def test_fields_that_an_undecided_handler_wrote_are_written_again(sim: Simulation, write: str) -> None:
    """Bob's handler is refused after all, and his update before it is made again: neither may show in his last write.

    His caller saw no key when he wrote that there is none, and the title that he wrote.
    """
    ann, bob = [await sim.runtime(user).space("s").open(Note, "n") for user in ("ann", "bob")]
    await ann.begin.send()
    await sim.settle()
    with sim.offline("bob"):
        await ann.lock.send()
        bob.counts.update(lambda counts: {**counts, "z": 1})
        bob.card.update(lambda card: card)
        clearing = asyncio.ensure_future(bob.clear.send())
        await sim.advance(seconds=0.01)
        assert (bob.counts.get(), bob.card.get().title) == ({}, "cleared")
        bob.card.set(Card(title="cleared"))
        if write == "set":
            bob.counts.set({})
        else:
            bob.counts.delete()
    with pytest.raises(Refused):
        await clearing
    await sim.settle()
    for piece in (ann, bob):
        assert await piece.counts.pull() == {"c": 8}
        assert await piece.card.pull() == Card(title="cleared", colour="red")


@pytest.mark.parametrize("reader", ["transact", "handler"])
@simulated(seeds=20, faults=("delay",))
async def test_reader_sees_a_write_of_its_runtime_that_does_not_fit_a_removal_until_it_is_made_again(
    sim: Simulation, reader: str
) -> None:
    """Ann has removed the key in which Bob changes a field. He hears of that before his write has a verdict."""
    ann, bob = [await sim.runtime(user).space("s").open(Note, "n") for user in ("ann", "bob")]
    await ann.begin.send()
    await sim.settle()
    with sim.offline("bob"):
        ann.boxes.key("k").delete()
        await sim.runtime("ann").durable()
        bob.boxes.key("k").set(Box(count=3))
    for _ in range(40):
        if reader == "transact":
            seen = await sim.runtime("bob").space("s").transact(lambda: bob.boxes.key("k").get(None))
            assert seen == Box(count=3)
        else:
            assert await bob.counted.send() == 3
        await sim.advance(seconds=0.005)
    await sim.settle()
    assert await ann.boxes.pull() == {"k": Box(count=3)}


@pytest.mark.parametrize("write", ["set", "delete"])
@simulated(seeds=10)
async def test_default_that_an_undecided_write_stored_on_its_way_is_not_written_again(
    sim: Simulation, write: str
) -> None:
    """Bob's first write stores the whole default with its key. His second one changes nothing of the key `k`."""
    ann, bob = [await sim.runtime(user).space("s").open(Note, "n") for user in ("ann", "bob")]
    await sim.settle()
    with sim.offline("bob"):
        ann.cards.key("k").at(lambda card: card.title).set("T")
        await sim.runtime("ann").durable()
        bob.cards.key("c").set(Card(title="C"))
        if write == "set":
            bob.cards.set({"k": Card()})
        else:
            bob.cards.delete()
    await sim.settle()
    for piece in (ann, bob):
        assert await piece.cards.pull() == {"k": Card(title="T")}


@pytest.mark.parametrize("moment", range(0, 60, 2))
@simulated(seeds=2)
async def test_set_over_an_undecided_first_value_keeps_keys_that_another_writer_stored_before(
    sim: Simulation, moment: int
) -> None:
    """At some moments Ann's value is here, and Bob's first write, which will be made again, still covers it."""
    ann, bob = [await sim.runtime(user).space("s").open(Note, "n") for user in ("ann", "bob")]
    await sim.settle()
    with sim.offline("bob"):
        ann.counts.set({"a": 1})
        await sim.runtime("ann").durable()
        bob.counts.set({"y": 1})
    await sim.advance(seconds=0.001 * moment)
    bob.counts.set({**bob.counts.get(), "z": 1})
    await sim.settle()
    assert await ann.counts.pull() == {"a": 1, "y": 1, "z": 1}


@simulated(seeds=5)
async def test_event_that_waits_for_a_write_that_is_not_shown_names_its_document(sim: Simulation) -> None:
    """The connection is lost again between the removal by Ann and the verdict on Bob's write."""
    ann, bob = [await sim.runtime(user).space("s").open(Note, "n") for user in ("ann", "bob")]
    await ann.begin.send()
    await sim.settle()
    with sim.offline("bob"):
        ann.boxes.key("k").delete()
        await sim.runtime("ann").durable()
        bob.boxes.key("k").set(Box(count=3))
    while bob.boxes.key("k").exists():
        await sim.advance(seconds=0.0005)
    with sim.offline("bob"):
        counted = asyncio.ensure_future(bob.counted.send())
        await sim.advance(seconds=1)
        (row,) = [row for row in sim.runtime("bob").intents() if row.ended_us is None]
        assert row.state == "parked"
        assert row.waits.startswith("earlier plain writes to ")
        assert row.waits.endswith("n:boxes")
    assert await counted == 3
