"""Random writes of a few runtimes to one value end as if they had been made one after the other.

Each runtime writes in its own order, by plain writes, handlers or transactions that it awaits. What everybody sees at
the end is what some merge of these orders makes of the value: plain Python tries all of them. Nothing but the value
itself orders the writes, so that a removal of something that is not there is in its place as well.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

import pytest

from headwater import Cell, Model, Piece, cell, handler
from headwater.testing import Simulation
from headwater.testing.author.seeds import run_seed
from tests.counts import scaled

FAULTS: Final = ((), ("delay",), ("delay", "drop"), ("delay", "duplicate", "partition"))
USERS: Final = ("ann", "bob", "cy")
IN_RUNS: Final = ("handler", "transact")
WAYS: Final = ("plain", "plain, then handler", *IN_RUNS)


class Card(Model):
    count: int = 5
    tags: frozenset[str] = frozenset({"a"})


class Shelf(Piece, name="orders.Shelf"):
    number: Cell[int] = cell(default=0)
    five: Cell[int] = cell(default=5)
    lines: Cell[tuple[int, ...]] = cell(default=())
    tags: Cell[frozenset[str]] = cell(default=frozenset())
    marks: Cell[frozenset[str]] = cell(default=frozenset({"a"}))
    rows: Cell[Mapping[str, int]] = cell(default={})
    prices: Cell[Mapping[str, int]] = cell(default={"a": 1})
    card: Cell[Card] = cell(default=Card())

    @handler
    def do(self, act: str, n: int) -> None:
        ACTS[act].write(self, n)


@dataclass(frozen=True)
class Act:
    """A write to a member, and what it makes of a plain value."""

    member: str
    write: Callable[[Shelf, int], None]
    naive: Callable[[Any, int], Any]
    is_merged: bool = False  # outside of handlers and transactions it is merged by field with the writes of others


def _numbers(member: str, default: int) -> dict[str, Act]:
    return {
        f"{member} set": Act(member, lambda s, n: getattr(s, member).set(n), lambda _, n: n),
        f"{member} up": Act(member, lambda s, n: getattr(s, member).increment(n), lambda v, n: v + n),
        f"{member} delete": Act(member, lambda s, _: getattr(s, member).delete(), lambda *_: default),
    }


def _sets(member: str, default: frozenset[str]) -> dict[str, Act]:
    return {
        f"{member} add": Act(member, lambda s, _: getattr(s, member).add("a"), lambda v, _: v | {"a"}),
        f"{member} discard": Act(member, lambda s, _: getattr(s, member).discard("a"), lambda v, _: v - {"a"}),
        f"{member} delete": Act(member, lambda s, _: getattr(s, member).delete(), lambda *_: default),
    }


def _rows(member: str, default: Mapping[str, int]) -> dict[str, Act]:
    def key(shelf: Shelf) -> Any:
        return getattr(shelf, member).key("a")

    return {
        f"{member} set": Act(member, lambda s, n: key(s).set(n), lambda v, n: {**v, "a": n}),
        f"{member} up": Act(member, lambda s, n: key(s).increment(n), lambda v, n: {**v, "a": v.get("a", 0) + n}),
        f"{member} delete": Act(member, lambda s, _: key(s).delete(), lambda v, _: {k: v[k] for k in v if k != "a"}),
        f"{member} other": Act(member, lambda s, n: getattr(s, member).key("b").set(n), lambda v, n: {**v, "b": n}),
        f"{member} clear": Act(member, lambda s, _: getattr(s, member).delete(), lambda *_: default, True),
        f"{member} whole": Act(member, lambda s, n: getattr(s, member).set({"b": n}), lambda _, n: {"b": n}, True),
        f"{member} empty": Act(member, lambda s, _: getattr(s, member).set({}), lambda *_: {}, True),
    }


def _up(card: Card, n: int) -> Card:
    return Card(count=card.count + n, tags=card.tags)


ACTS: Final[dict[str, Act]] = {
    **_numbers("number", 0),
    **_numbers("five", 5),
    **_sets("tags", frozenset()),
    **_sets("marks", frozenset({"a"})),
    **_rows("rows", {}),
    **_rows("prices", {"a": 1}),
    "lines push": Act("lines", lambda s, n: s.lines.push(n), lambda v, n: (*v, n)),
    "lines delete": Act("lines", lambda s, _: s.lines.delete(), lambda *_: ()),
    "lines set": Act("lines", lambda s, n: s.lines.set((n,)), lambda _, n: (n,)),
    "card up": Act("card", lambda s, n: s.card.at(lambda c: c.count).increment(n), _up),
    "card reset": Act(
        "card", lambda s, _: s.card.at(lambda c: c.count).delete(), lambda v, _: Card(count=5, tags=v.tags)
    ),
    "card discard": Act(
        "card",
        lambda s, _: s.card.at(lambda c: c.tags).discard("a"),
        lambda v, _: Card(count=v.count, tags=v.tags - {"a"}),
    ),
    "card clear": Act("card", lambda s, _: s.card.delete(), lambda *_: Card(), True),
    "card whole": Act("card", lambda s, n: s.card.set(Card(count=n)), lambda _, n: Card(count=n), True),
    "card add": Act(
        "card",
        lambda s, _: s.card.at(lambda c: c.tags).add("a"),
        lambda v, _: Card(count=v.count, tags=v.tags | {"a"}),
    ),
}
STARTS: Final[dict[str, Any]] = {
    "number": 0,
    "five": 5,
    "lines": (),
    "tags": frozenset(),
    "marks": frozenset({"a"}),
    "rows": {},
    "prices": {"a": 1},
    "card": Card(),
}
Writes = Sequence[tuple[str, int]]


@dataclass(frozen=True)
class Program:
    """The writes of each user to one member, and how each user makes them."""

    member: str
    before: Writes  # everybody has seen these
    writes: Mapping[str, Writes]
    ways: Mapping[str, str]
    offline: frozenset[str]
    faults: tuple[str, ...]


def drawn(seed: int) -> Program:
    draw = random.Random(seed)
    member = draw.choice(sorted(STARTS))
    acts = sorted(act for act in ACTS if ACTS[act].member == member)

    def writes(most: int) -> Writes:
        return [(draw.choice(acts), draw.randrange(10, 99)) for _ in range(draw.randint(1, most))]

    users = USERS[: draw.choice((2, 2, 3))]
    most = 4 if len(users) == 2 else 2
    before = writes(3) if draw.random() < 0.6 else []
    written = {user: writes(most) for user in users}
    is_merged = {user: any(ACTS[act].is_merged for act, _ in each) for user, each in written.items()}
    return Program(
        member,
        before,
        written,
        {user: draw.choice(IN_RUNS if is_merged[user] else WAYS) for user in users},
        frozenset(user for user in users if draw.random() < 0.4),
        draw.choice(FAULTS),
    )


def merges(all_writes: Sequence[Writes]) -> Iterator[list[tuple[str, int]]]:
    """Every order of all writes that keeps the order of each user."""
    if not any(all_writes):
        yield []
    for at, own in enumerate(all_writes):
        if own:
            for rest in merges([*all_writes[:at], own[1:], *all_writes[at + 1 :]]):
                yield [own[0], *rest]


def made_of(value: Any, writes: Writes) -> Any:
    for act, n in writes:
        value = ACTS[act].naive(value, n)
    return value


async def play(sim: Simulation, program: Program) -> None:
    shelves = {user: await sim.runtime(user).space("s").open(Shelf, "s") for user in program.writes}
    first = shelves["ann"]
    for act, n in program.before:
        await first.do.send(act, n)
    await sim.settle()
    start = made_of(STARTS[program.member], program.before)
    with ExitStack() as away:
        for user in sorted(program.offline):
            away.enter_context(sim.offline(user))
        tasks = [asyncio.ensure_future(_written(sim, user, shelf, program)) for user, shelf in shelves.items()]
        await sim.advance(seconds=0.02)
    await asyncio.gather(*tasks)
    await sim.settle()
    shown = [await getattr(shelf, program.member).pull() for shelf in shelves.values()]
    possible = [made_of(start, each) for each in merges(list(program.writes.values()))]
    assert shown[0] in possible, f"{program}: {shown[0]!r} is the result of no order of these writes"
    assert all(each == shown[0] for each in shown), f"{program}: {shown}"


async def _written(sim: Simulation, user: str, shelf: Shelf, program: Program) -> None:
    space, sent = sim.runtime(user).space("s"), []
    way = program.ways[user]
    for number, (act, n) in enumerate(program.writes[user]):
        if way == "transact":
            await space.transact(ACTS[act].write, shelf, n)
        elif way == "plain" or (way == "plain, then handler" and not number):
            ACTS[act].write(shelf, n)
        else:
            sent.append(asyncio.ensure_future(shelf.do.send(act, n)))
    await asyncio.gather(*sent)


@pytest.mark.random
def test_writes_of_several_runtimes_end_as_if_made_one_after_the_other() -> None:
    for seed in range(scaled(5_000)):
        program = drawn(seed)
        run_seed(lambda sim, program=program: play(sim, program), seed, program.faults)  # type: ignore[misc]
