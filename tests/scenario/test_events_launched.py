"""A launched piece and the receipt of its event are of one commit: a duplicate makes no second one and stops none."""

from __future__ import annotations

import asyncio

import pytest

from headwater import Cell, Input, Json, Piece, cell, effect, given, handler
from headwater.data.ids import minted_id
from headwater.testing import Simulation
from tests.scenario.events_kit import commits, given_id, outcome, read, receipt_of, told

SHOWN: list[str] = []
IDS = (given_id("cy", "x", "k", "s/m:start"), given_id("cy", "x", "k", "s/m:start_two"))


class Job(Piece, name="launched.Job"):
    n: Input[int] = given()
    done: Cell[int] = cell(default=0)

    @effect
    def show(self) -> None:
        SHOWN.append(f"{self.ctx.name} {self.n.get()}")

    @handler
    def work(self) -> int:
        self.done.set(self.done.get() + 1)
        return self.done.get()


class Maker(Piece, name="launched.Maker"):
    n: Cell[int] = cell(default=0)
    tries: Cell[int] = cell(default=0)

    @handler
    def start(self) -> str:
        self.tries.increment()
        return self.ctx.launch(Job(n=self.n)).ctx.name

    @handler
    def start_two(self) -> tuple[str, ...]:
        return tuple(self.ctx.launch(Job(n=self.n)).ctx.name for _ in range(2))


async def jobs(sim: Simulation, user: str) -> list[str]:
    return [piece.ctx.name for piece in (await sim.runtime(user).space("s").find(Job)).items]


async def begun(sim: Simulation, *users: str) -> list[Maker]:
    SHOWN.clear()
    opened = [await sim.runtime(user).space("s", user="cy", session="x").open(Maker, "m") for user in users]
    for each in opened:
        await each.tries.pull()
    await sim.settle()
    return opened


async def sent_again(sim: Simulation) -> list[str]:
    """From another runtime, after a restart, and after the piece was deleted: there is one, and then none."""
    ann, bob = await begun(sim, "ann", "bob")
    first = await ann.start.options(id="k").send()
    answers = [await bob.start.options(id="k").send()]
    await sim.crash("ann")
    again = sim.runtime("ann").space("s", user="cy", session="x")
    answers.append(await again.piece(Maker, "m").start.options(id="k").send())
    await sim.settle()
    wrong = [] if answers == [first, first] else [f"told {first} and then {answers}"]
    if await jobs(sim, "bob") != [first]:
        wrong.append(f"{await jobs(sim, 'bob')} are there")
    receipt = read(sim, lambda engines: engines["s"].read(receipt_of(IDS[0])).value)
    if not isinstance(receipt, dict) or receipt["launched"] != (first,):
        wrong.append(f"the receipt is {receipt}")
    made = {op.doc for logged in commits(sim, "s", ":start") for op in logged.commit.operations}
    if not {receipt_of(IDS[0]).id, f"{first}:@"} <= {doc.id for doc in made}:
        wrong.append(f"its commit made {made}")
    await again.delete(again.piece(Job, first))
    answers = [await outcome(each.start.options(id="k").send()) for each in (again.piece(Maker, "m"), bob)]
    await sim.settle()
    return wrong if await jobs(sim, "bob") == [] else [*wrong, f"{answers}, and it is there again"]


def test_an_event_that_is_sent_again_launches_nothing_a_second_time() -> None:
    assert told(sent_again) == []


async def several(sim: Simulation) -> list[str]:
    (ann,) = await begun(sim, "ann")
    first = await ann.start_two.options(id="k").send()
    receipt = read(sim, lambda engines: engines["s"].read(receipt_of(IDS[1])).value)
    is_named = isinstance(receipt, dict) and receipt["launched"] == tuple(first)
    return [] if is_named and sorted(await jobs(sim, "ann")) == sorted(first) else [f"{first} and {receipt}"]


def test_one_handling_may_launch_several_and_its_receipt_names_them() -> None:
    assert told(several) == []


async def named_before(sim: Simulation) -> list[str]:
    """Naming a piece is not having it: it is launched all the same, and whoever named it has it then."""
    (ann,) = await begun(sim, "ann")
    name = minted_id(IDS[0], 1)
    named = sim.runtime("ann").space("s").piece(Job, name)
    answer = await ann.start.options(id="k").send()
    await sim.settle()
    wrong = [] if (answer, await jobs(sim, "ann")) == (name, [name]) else [f"{await jobs(sim, 'ann')} are there"]
    if [await named.work.send(), await named.work.send()] != [1, 2]:
        wrong.append("whoever named it has another one")
    again = await ann.start.options(id="k").send()
    return wrong if again == name and named.done.get() == 2 else [*wrong, "it was launched again"]


def test_a_piece_that_is_named_already_is_launched_all_the_same() -> None:
    assert told(named_before) == []


async def opened_by_the_loser(sim: Simulation, *, is_loaded: bool) -> list[str]:
    """While the loser still shows its own launch, a program beside it opens the piece by its name."""
    ann, bob = await begun(sim, "ann", "bob")
    space = sim.runtime("bob").space("s", user="cy", session="x")
    name = minted_id(IDS[0], 1)
    record = sim.runtime("bob").cell("s", f"{name}:@", Json, default=None)
    if is_loaded:  # Then the launch is committed and shown before its verdict.
        assert await record.pull() is None
    with sim.offline("bob"):
        sent = asyncio.ensure_future(outcome(bob.start.options(id="k").send()))
        await sim.advance(seconds=0.1)
        opening = asyncio.ensure_future(outcome(space.open(Job, name)))
        await sim.advance(seconds=0.1)
        first = await ann.start.options(id="k").send()
    await sim.settle()
    mine = await opening
    wrong = [] if (first, await sent) == (name, name) else [f"told {first} and {await sent}"]
    if not isinstance(mine, Job):
        return [*wrong, f"it could not be opened: {mine!r}"]
    SHOWN.clear()
    ann.n.set(7)
    await sim.settle()
    if set(SHOWN) != {f"{name} 7"} or len(SHOWN) != 2:  # at the winner's, and here
        wrong.append(f"{SHOWN} was shown")
    if (await mine.work.send(), space.piece(Job, name).done.get()) != (1, 1):
        wrong.append("it cannot be sent to, or another one has its name")
    return wrong if await jobs(sim, "ann") == [name] else [*wrong, f"{await jobs(sim, 'ann')} are there"]


@pytest.mark.parametrize("is_loaded", [False, True])
def test_a_losing_duplicate_does_not_stop_what_was_opened_beside_it(is_loaded: bool) -> None:
    for seed in range(3):
        assert told(lambda sim: opened_by_the_loser(sim, is_loaded=is_loaded), seed=seed) == []
