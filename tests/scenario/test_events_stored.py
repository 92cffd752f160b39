"""Events that are stored: due later, durable before anything else, and taken up when their sender is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater import Cell, HandlerFailed, Input, Piece, Policy, Refused, cell, each, given, handler
from headwater.clock import VirtualClock
from headwater.protocol.commit import SentEvent
from headwater.protocol.messages import Query
from headwater.runtime import LocalDirectory, Runtime
from headwater.testing import Simulation, simulated
from tests.scenario.events_kit import stored
from tests.scenario.pieces_kit import alone, run

MINUTE = timedelta(minutes=1)


class Alarm(Piece, name="stored.Alarm"):
    rung: Cell[tuple[str, ...]] = cell(default=())

    @handler
    def ring(self, text: str) -> str:
        self.rung.push(f"{text} at {self.ctx.now():%H:%M:%S} for {self.ctx.user}")
        return text

    @handler
    def plan(self, text: str, ok: bool) -> str:
        intent = self.ring.post_at(MINUTE, text)
        if not ok:
            raise Refused("no")
        return intent.id

    @handler
    def no(self) -> None:
        raise Refused("never")

    @handler
    def broken(self) -> None:
        raise KeyError("broken")

    @handler
    def chain(self, kind: str) -> None:
        (self.no if kind == "no" else self.broken).post()

    @handler(allow="owner")
    def secret(self) -> None:
        self.rung.push("secret")


# ---- due later ---------------------------------------------------------------------------------------------


@simulated(seeds=20)
async def test_what_is_due_later_is_handled_then_and_once(sim: Simulation) -> None:
    alarm = await sim.runtime("ann").space("s").open(Alarm, "a")
    await sim.runtime("bob").space("s").open(Alarm, "a")
    alarm.ring.post_at(MINUTE, "one")
    await alarm.plan.send("two", True)
    with pytest.raises(Refused):
        await alarm.plan.send("never", False)
    await sim.settle()
    assert await alarm.rung.pull() == ()
    assert stored(sim) == ["s/a:ring", "s/a:ring"]
    await sim.advance(seconds=59 + 10)
    await sim.settle()
    rung = await alarm.rung.pull()
    assert sorted(text.split(" ")[0] for text in rung) == ["one", "two"]
    assert stored(sim) == []


@simulated(seeds=20)
async def test_what_is_due_later_survives_whoever_asked_for_it(sim: Simulation) -> None:
    alarm = await sim.runtime("ann").space("s").open(Alarm, "a")
    await alarm.plan.send("two", True)
    await sim.settle()
    await sim.crash("ann")
    await sim.advance(seconds=3_600)  # It is due while nobody is there.
    other = await sim.runtime("bob").space("s").open(Alarm, "a")
    await sim.advance(seconds=10)
    await sim.settle()
    assert [text.split(" ")[0] for text in await other.rung.pull()] == ["two"]
    assert stored(sim) == []


@simulated(seeds=20)
async def test_what_is_due_later_can_be_withdrawn_until_then(sim: Simulation) -> None:
    alarm = await sim.runtime("ann").space("s").open(Alarm, "a")
    taken, kept = alarm.ring.post_at(MINUTE, "taken"), alarm.ring.post_at(MINUTE, "kept")
    await sim.settle()
    assert taken.withdraw() is True
    await sim.settle()
    assert len(stored(sim)) == 1
    await sim.advance(seconds=90)
    await sim.settle()
    assert kept.withdraw() is False
    assert [text.split(" ")[0] for text in await alarm.rung.pull()] == ["kept"]


def test_where_nothing_is_stored_it_is_due_as_long_as_the_process_lives() -> None:
    async def work() -> None:
        clock = VirtualClock()
        async with alone(clock) as (rt, errors):
            alarm = await rt.space("s").open(Alarm, "a")
            alarm.ring.post_at(MINUTE, "one")
            gone = alarm.ring.post_at(MINUTE, "gone")
            assert gone.withdraw() is True
            await rt.durable()
            assert alarm.rung.get() == ()
            clock.advance(61_000_000)
            rt.wake()
            await rt.durable()
            assert [text.split(" ")[0] for text in alarm.rung.get()] == ["one"]
            assert errors == []

    run(work)


# ---- durable before anything else --------------------------------------------------------------------------


@simulated(seeds=30, faults=("delay",))
async def test_a_durable_event_is_handled_although_its_sender_died(sim: Simulation) -> None:
    await sim.runtime("bob").space("s").open(Alarm, "a")
    alarm = sim.runtime("ann").space("s").piece(Alarm, "a")
    sent = asyncio.ensure_future(alarm.ring.options(durable=True).send("sent"))
    while not stored(sim) and not sent.done():
        await asyncio.sleep(0.0005)
    await sim.crash("ann")
    await sim.advance(seconds=10)
    await sim.settle()
    with pytest.raises((headwater.SessionExpiredError, AssertionError)):
        assert await sent != "sent"
    other = sim.runtime("bob").space("s").piece(Alarm, "a")
    assert [text.split(" ")[0] for text in await other.rung.pull()] == ["sent"]
    assert stored(sim) == []


@simulated(seeds=10)
async def test_a_stored_event_that_says_no_or_fails_is_over_with_that(sim: Simulation) -> None:
    alarm = await sim.runtime("ann").space("s", session="x").open(Alarm, "a")
    with pytest.raises(Refused, match="never"):
        await alarm.no.options(durable=True, id="k").send()
    with pytest.raises(HandlerFailed, match="KeyError"):
        await alarm.broken.options(durable=True, id="k").send()
    await alarm.chain.send("no")
    await alarm.chain.send("broken")
    await sim.settle()
    assert stored(sim) == []
    # The same event again is told what came of the first.
    with pytest.raises(Refused, match="never"):
        await alarm.no.options(id="k").send()
    with pytest.raises(HandlerFailed, match="KeyError"):
        await alarm.broken.options(id="k").send()
    told = [str(failure.error) for failure in sim.failures() if failure.node.startswith("s/a")]
    assert told.count("never") == 1  # of the follow-up, which nobody awaits


# ---- taking up ---------------------------------------------------------------------------------------------


async def put(rt: Runtime, space: str, *events: SentEvent) -> None:
    """Store events in a space, as another program would."""
    channel = rt.channel(space)
    assert channel is not None
    await channel.land(lambda transaction: transaction.events.extend(events), node="another program")


def parked(rt: Runtime) -> dict[str, str]:
    """The stored events that a runtime cannot handle, and the reason of each."""
    return {row.id: row.error for row in rt.intents() if row.state == "parked"}


def payload(**said: Any) -> dict[str, Any]:
    return {"args": {"text": "x"}, "cls": "stored.Alarm", "name": "a", "user": "eve", "session": "", **said}


@simulated(seeds=10)
async def test_an_event_whose_class_is_not_imported_parks_and_says_what_to_import(sim: Simulation) -> None:
    ann = sim.runtime("ann")
    await ann.space("s").open(Alarm, "a")
    await put(ann, "s", SentEvent("e1", "s/z:go", payload(cls="shop.Unknown", name="z")))
    await put(ann, "s", SentEvent("e2", "s/a:gone", payload()), SentEvent("e3", "s/a:ring", {"args": 3}))
    await put(ann, "s", SentEvent("e4", "s/a:ring", payload()))
    bob = sim.runtime("bob")
    bob.space("s")
    await sim.settle()
    await sim.advance(seconds=12)
    await sim.settle()
    reasons = parked(bob)
    assert set(reasons) == {"e1", "e2", "e3"}
    assert "import shop first" in reasons["e1"]
    assert "has no handler 'gone' any more" in reasons["e2"]
    assert "was not stored by this version" in reasons["e3"]
    rung = await bob.space("s").piece(Alarm, "a").rung.pull()
    assert len(rung) == 1


@simulated(seeds=5, faults=())
async def test_event_that_fails_and_cannot_be_removed_is_not_retried_on_every_pass(sim: Simulation) -> None:
    ann = sim.runtime("ann")
    await ann.space("s").open(Alarm, "a")
    # The receipt of an event is a document that is named after it, and no document can have this name.
    await put(ann, "s", SentEvent("e1", "s/a:broken", {**payload(), "args": {}, "id": "no\nname"}))
    bob = sim.runtime("bob")
    bob.space("s")
    await sim.advance(seconds=600)
    failures = [failure for failure in sim.failures() if failure.node == "s/a:broken"]
    assert 1 <= len(failures) <= 4  # by each of the two, and by each once more if it was its own
    assert stored(sim) == ["s/a:broken"]
    assert [row.state for row in bob.intents()] == ["failed"]


def test_what_is_due_later_here_alone_is_bounded() -> None:
    async def work() -> None:
        async with Runtime(policy=Policy(in_hand=3)) as rt:
            alarm = await rt.space("s").open(Alarm, "a")
            intents = [alarm.ring.post_at(MINUTE, "x") for _ in range(3)]
            with pytest.raises(headwater.BacklogFullError, match="3 events are due later"):
                alarm.ring.post_at(MINUTE, "x")
            assert intents[0].withdraw() is True
            alarm.ring.post_at(MINUTE, "x")

    run(work)


class Bell(Piece, name="stored.Bell"):
    text: Input[str] = given()
    rung: Cell[int] = cell(default=0)

    @handler
    def ring(self) -> None:
        self.rung.increment()

    @handler
    def later(self) -> None:
        self.ring.post_at(MINUTE)


class Tower(Piece, name="stored.Tower"):
    names: Cell[Mapping[str, str]] = cell(default={"a": "A"})

    @each(names)
    def bells(self, name: Cell[str]) -> Bell:
        return Bell(text=name)


@simulated(seeds=10)
async def test_an_event_of_a_child_is_handled_where_its_piece_is_open(sim: Simulation) -> None:
    tower = await sim.runtime("ann").space("s").open(Tower, "t")
    await (await tower.bells.pull())["a"].later.send()
    await sim.settle()
    await sim.crash("ann")
    bob = sim.runtime("bob")
    bob.space("s")
    await sim.advance(seconds=200)
    assert len(stored(sim)) == 1
    (reason,) = parked(bob).values()
    assert "is part of a piece that is not open here" in reason
    tower = await bob.space("s").open(Tower, "t")
    await sim.advance(seconds=5)
    await sim.settle()
    assert await (await tower.bells.pull())["a"].rung.pull() == 1
    assert stored(sim) == []


# ---- how long it is remembered -----------------------------------------------------------------------------


DAY_US = 86_400_000_000
RECEIPT = "$result:"
"""Begins the id of the document that says that an event was handled."""


def test_old_receipts_are_deleted_and_their_events_stay_handled(tmp_path: Path) -> None:
    async def work() -> None:
        clock = VirtualClock()
        policy = Policy(retention_ms=DAY_US / 1_000)
        async with (
            LocalDirectory(tmp_path / "data", synchronous="OFF", clock=clock) as data,
            Runtime(data, clock=clock, policy=policy) as rt,
        ):
            alarm = await rt.space("s", user="ann", session="x").open(Alarm, "a")
            keyed = alarm.ring.options(id="k")
            await keyed.send("first")
            for n in range(9):
                await alarm.ring.send(f"{n}")
            before = await receipts(rt)
            assert len(before) == 10
            clock.advance(2 * DAY_US)
            for n in range(130):  # Receipts are looked at after some dozens of handlings.
                await alarm.ring.send(f"{n}")
            await rt.settled()
            await rt.until(lambda: not len(rt.tasks))
            assert not set(before) & set(await receipts(rt))
            with pytest.raises(headwater.EventExpiredError, match="its result is not kept"):
                await keyed.send("again")
            assert len(await alarm.rung.pull()) == 140

    run(work)


async def receipts(rt: Runtime) -> list[str]:
    channel = rt.channel("s")
    assert channel is not None
    found = await channel.driver.query(Query(0, "space", after=RECEIPT, limit=200))
    return [state.doc.id for state in found.documents if state.doc.id.startswith(RECEIPT)]


@simulated(seeds=1, faults=())
async def test_event_that_waited_longer_than_receipts_are_kept_is_refused_as_expired(sim: Simulation) -> None:
    """Whether it was handled before is not known any more."""
    with sim.offline("ann"):
        alarm = sim.runtime("ann").space("s").piece(Alarm, "a")
        alarm.ring.post("first")
        sent = asyncio.ensure_future(alarm.ring.options(id="k").send("late"))
        await sim.advance(seconds=8 * 86_400)
    with pytest.raises(headwater.EventExpiredError, match="168 hours ago"):
        await sent
    assert [text.split(" ")[0] for text in await alarm.rung.pull()] == ["first"]
