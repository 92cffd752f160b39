"""A write that changes nothing in its writer's view is still a write.

Ann's commit is acknowledged, and Bob has not heard of it yet when he writes: his commit lands after hers, so that at
the end everything is as he wrote it, although he wrote what he saw.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import headwater
from headwater import Cell, Model, Piece, cell, computed, effect, handler
from headwater.cli.app import run as run_command
from headwater.runtime import Space
from headwater.testing import Simulation, simulated

SPACE = "notes"
ROUNDS = 20
MANY = {str(n): n for n in range(40)}
SHOWN: list[tuple[str, frozenset[str]]] = []


class Card(Model):
    title: str = "A"
    colour: str = "white"
    tags: frozenset[str] = frozenset({"old"})


class NewerCard(Model):
    title: str = "A"
    colour: str = "white"
    tags: frozenset[str] = frozenset({"old"})
    size: int = 0


class Note(Piece, name="aid.Note"):
    title: Cell[str] = cell(default="A")
    lines: Cell[tuple[int, ...]] = cell(default=(1,))
    tags: Cell[frozenset[str]] = cell(default=frozenset({"old"}))
    never: Cell[frozenset[str]] = cell(default=frozenset())
    card: Cell[Card] = cell(default=Card())
    cards: Cell[Mapping[str, Card]] = cell(default={})
    counts: Cell[Mapping[str, int]] = cell(default={})
    many: Cell[Mapping[str, int]] = cell(default={})
    copied: Cell[str] = cell(default="")

    @computed
    def label(self) -> str:
        return f"{self.title.get()} {sorted(self.tags.get())}"

    @effect
    def show(self) -> None:
        SHOWN.append((self.title.get(), self.tags.get()))

    @handler
    def begin(self) -> None:
        """Store every default, so that writes meet something that is there."""
        self.title.set("A")
        self.lines.set((1,))
        self.tags.set(frozenset({"old"}))
        self.card.set(Card())
        self.cards.set({"k": Card()})
        self.counts.set({"a": 1, "b": 2})
        self.many.set(MANY)
        self.never.delete()

    @handler
    def paint(self, colour: str) -> None:
        self.card.set(Card(colour=colour))

    @handler
    def paint_and_tag(self, colour: str) -> None:
        self.card.set(Card(colour=colour))
        self.card.at(lambda card: card.tags).add("new")

    @handler
    def tag_and_paint(self, colour: str) -> None:
        self.card.at(lambda card: card.tags).add("newest")
        self.card.set(Card(colour=colour, tags=frozenset({"old", "new", "newest"})))

    @handler
    def copy(self) -> None:
        self.copied.set(f"{self.title.get()} {sorted(self.tags.get())} {self.lines.get()} {self.ctx.new_id()}")

    @handler
    def do(self, what: str) -> None:
        CASES[what].change(self)

    @handler
    def do_equal(self, what: str) -> None:
        CASES[what].equal(self)


class NewerNote(Piece, name="aid.Note"):
    """The same pieces in a newer program, which knows a field more."""

    card: Cell[NewerCard] = cell(default=NewerCard())

    @handler
    def resize(self, size: int) -> None:
        self.card.at(lambda card: card.size).set(size)


Act = Callable[[Any], object]


class Case(NamedTuple):
    """Two writes, of which the second one changes nothing for a writer who has not seen the first one."""

    change: Act
    equal: Act
    handle: Callable[[Any], Any]  # where
    expected: Any  # after both


SIMPLE = {
    "scalar": Case(lambda n: n.title.set("B"), lambda n: n.title.set("A"), lambda n: n.title, "A"),
    "tuple": Case(lambda n: n.lines.push(2), lambda n: n.lines.set((1,)), lambda n: n.lines, (1,)),
    "add": Case(lambda n: n.tags.discard("old"), lambda n: n.tags.add("old"), lambda n: n.tags, {"old"}),
    "discard": Case(lambda n: n.tags.add("new"), lambda n: n.tags.discard("new"), lambda n: n.tags, {"old"}),
    "discard from nothing": Case(
        lambda n: n.never.add("new"), lambda n: n.never.discard("new"), lambda n: n.never, set()
    ),
    "field": Case(
        lambda n: n.card.at(lambda c: c.title).set("B"),
        lambda n: n.card.at(lambda c: c.title).set("A"),
        lambda n: n.card,
        Card(),
    ),
    "entry": Case(
        lambda n: n.counts.key("a").set(9), lambda n: n.counts.key("a").set(1), lambda n: n.counts.key("a"), 1
    ),
    "delete": Case(
        lambda n: n.counts.key("c").set(3), lambda n: n.counts.key("c").delete(), lambda n: n.counts, {"a": 1, "b": 2}
    ),
}
COMPOSED = {
    "there and back": Case(
        lambda n: n.title.set("B"), lambda n: (n.title.set("C"), n.title.set("A")), lambda n: n.title, "A"
    ),
    "made and deleted": Case(
        lambda n: n.counts.key("c").set(3),
        lambda n: (n.counts.key("c").set(4), n.counts.key("c").delete()),
        lambda n: n.counts,
        {"a": 1, "b": 2},
    ),
    "model": Case(
        lambda n: n.card.at(lambda c: c.title).set("B"), lambda n: n.card.set(Card()), lambda n: n.card, Card()
    ),
    "model with another field changed": Case(
        lambda n: n.card.at(lambda c: c.title).set("B"),
        lambda n: n.card.set(Card(colour="red")),
        lambda n: n.card,
        Card(colour="red"),
    ),
    "model there and back": Case(
        lambda n: n.card.at(lambda c: c.title).set("B"),
        lambda n: (n.card.set(Card(title="C")), n.card.set(Card())),
        lambda n: n.card,
        Card(),
    ),
    "model in a mapping": Case(
        lambda n: n.cards.key("k").at(lambda c: c.tags).add("new"),
        lambda n: n.cards.set({"k": Card(colour="red")}),
        lambda n: n.cards,
        {"k": Card(colour="red")},
    ),
    "mapping": Case(
        lambda n: n.counts.key("a").set(9),
        lambda n: n.counts.set({"a": 1, "b": 5}),
        lambda n: n.counts,
        {"a": 1, "b": 5},
    ),
    "mapping with a new key": Case(
        lambda n: n.counts.key("c").set(9),
        lambda n: n.counts.set({"a": 1, "b": 2}),
        lambda n: n.counts,
        {"a": 1, "b": 2},
    ),
    "large mapping": Case(
        lambda n: n.many.key("7").set(9),
        lambda n: n.many.set({**MANY, "8": 9}),
        lambda n: n.many,
        {**MANY, "8": 9},
    ),
}
CASES = {**SIMPLE, **COMPOSED}


async def in_handler(space: Space, note: Note, what: str) -> None:
    await note.do_equal.send(what)


async def in_transact(space: Space, note: Note, what: str) -> None:
    await space.transact(CASES[what].equal, note)


async def plainly(space: Space, note: Note, what: str) -> None:
    CASES[what].equal(note)


async def begun(sim: Simulation) -> list[Note]:
    ann = await sim.runtime("ann").space(SPACE).open(Note, "n")
    bob = await sim.runtime("bob").space(SPACE).open(Note, "n")
    await ann.begin.send()
    for each in (bob.title, bob.lines, bob.tags, bob.never, bob.card, bob.cards, bob.counts, bob.many):
        await each.pull()
    await sim.settle()
    return [ann, bob]


async def check(sim: Simulation, what: str, write: Callable[[Space, Note, str], Awaitable[None]]) -> None:
    """Ann's write, then Bob's, which changes nothing in his view if he has not heard of hers; until he had not."""
    ann, bob = await begun(sim)
    case = CASES[what]
    for _ in range(ROUNDS):
        before = await case.handle(bob).pull()
        await ann.do.send(what)
        is_unseen = case.handle(bob).get() == before
        await write(sim.runtime("bob").space(SPACE), bob, what)
        await sim.runtime("bob").durable()
        await sim.settle()
        assert [await case.handle(each).pull() for each in (ann, bob)] == [case.expected] * 2
        if is_unseen:
            return
        await ann.begin.send()
        await sim.settle()
    raise AssertionError(f"in {ROUNDS} rounds Bob had always heard of what Ann wrote")


@pytest.mark.parametrize("what", CASES)
@pytest.mark.parametrize("write", [in_handler, in_transact])
@simulated(seeds=2, faults=("delay",))
async def test_equal_write_of_a_handler_or_transact_that_lands_later_wins(
    sim: Simulation, write: Any, what: str
) -> None:
    await check(sim, what, write)


@pytest.mark.parametrize("what", SIMPLE)
@simulated(seeds=2, faults=("delay",))
async def test_equal_plain_write_that_lands_later_wins(sim: Simulation, what: str) -> None:
    await check(sim, what, plainly)


@simulated(seeds=4, faults=("delay",))
async def test_plain_set_of_a_structured_value_merges_by_field_with_the_value_its_caller_saw(sim: Simulation) -> None:
    ann, bob = await begun(sim)
    await ann.do.send("model")
    is_unseen = bob.card.get() == Card()
    bob.card.set(Card(colour="red"))
    await sim.settle()
    title = "B" if is_unseen else "A"
    assert [each.card.get() for each in (ann, bob)] == [Card(title=title, colour="red")] * 2


@simulated(seeds=4, faults=("delay",))
async def test_set_in_a_handler_is_not_made_again_for_a_field_that_it_does_not_know(sim: Simulation) -> None:
    _, bob = await begun(sim)
    newer = sim.runtime("cy").space(SPACE).piece(NewerNote, "n")
    await newer.resize.send(1)
    await sim.settle()
    attempts = sim.attempts(Note.paint)
    await newer.resize.send(2)
    await bob.paint.send("red")
    await sim.settle()
    assert sim.attempts(Note.paint) == attempts + 1
    assert await newer.card.pull() == NewerCard(colour="red", size=2)


@simulated(seeds=4)
async def test_fields_of_newer_programs_stay_when_a_value_is_set_and_counted(sim: Simulation) -> None:
    """A commit with an intent carries the fields that its handler set, and no field that this program does not know."""
    _, bob = await begun(sim)
    newer = sim.runtime("cy").space(SPACE).piece(NewerNote, "n")
    await newer.resize.send(1)
    await sim.settle()
    for size in range(2, 14, 2):  # In about half of the rounds, Bob has not heard of the size.
        await newer.resize.send(size)
        await bob.paint_and_tag.send("blue")
        await sim.settle()
        assert await newer.card.pull() == NewerCard(colour="blue", tags=frozenset({"old", "new"}), size=size)
        await newer.resize.send(size + 1)
        await bob.tag_and_paint.send("green")
        await sim.settle()
        tags = frozenset({"old", "new", "newest"})
        assert await newer.card.pull() == NewerCard(colour="green", tags=tags, size=size + 1)


@simulated(seeds=3)
async def test_equal_writes_wake_no_reader_and_conflict_with_no_commit(sim: Simulation) -> None:
    ann, bob = await begun(sim)
    for each in (ann, bob):
        await each.label.pull()
    await sim.settle()
    SHOWN.clear()
    runs, attempts = sim.runs(Note.label), sim.attempts(Note.copy)
    for what in ("scalar", "add", "discard", "tuple"):
        await ann.do_equal.send(what)
        CASES[what].equal(ann)
    sent = asyncio.gather(ann.do_equal.send("scalar"), bob.copy.send(), ann.do_equal.send("scalar"), bob.copy.send())
    await sent
    await sim.settle()
    assert (SHOWN, sim.runs(Note.label)) == ([], runs)
    assert sim.attempts(Note.copy) == attempts + 2
    await sim.crash("bob")
    again = await sim.runtime("bob").space(SPACE).open(Note, "n")
    assert await again.label.pull() == await ann.label.pull()
    await sim.settle()
    assert sim.runs(Note.label) == runs


def test_equal_writes_leave_a_log_that_verify_accepts(tmp_path: Path) -> None:
    data = tmp_path / "data"

    async def written() -> None:
        async with headwater.open(data) as rt:
            note = await rt.space(SPACE, user="ann").open(Note, "n")
            await note.begin.send()
            for what, case in CASES.items():
                await note.do_equal.send(what)
                case.equal(note)
            await note.label.pull()

    headwater.run(written)
    headwater.run(written)
    assert run_command(["verify", str(data / f"{SPACE}.space")]) == 0
    assert run_command(["verify", str(data), "--resume", "tests.aid.test_equal_writes"]) == 0
