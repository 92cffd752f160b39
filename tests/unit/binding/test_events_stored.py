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
from headwater.pieces.handles import Options
from headwater.protocol.commit import SentEvent
from headwater.runtime.attachment import Embedded
from headwater.runtime.binding import retention
from headwater.runtime.binding import stored as stored_events
from headwater.runtime.binding.offering import documents
from headwater.runtime.binding.receipts import PREFIX
from headwater.runtime.binding.storing import Storing
from headwater.runtime.runtime import Runtime
from headwater.testing import Simulation, simulated
from tests.unit.binding.kit import alone, run

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


def stored(sim: Simulation, space: str = "s") -> list[str]:
    """What the store of a space holds."""
    return sim._server.read(lambda engines: [each.stream for each in engines[space].events(limit=1_000).items])


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
            rt.core.wake()
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
    while "s" not in (spaces := sim._server.read(lambda engines: set(engines))) or not stored(sim):
        assert spaces
        await asyncio.sleep(0.0005)
        if sent.done():
            break
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
    """Store events as somebody else would."""
    await rt.pieces.handling.storing.commit(space, lambda transaction: transaction.events.extend(events))


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
    parked = {row.id: why for row, why in bob.pieces.handling.takeover.parked()}
    assert set(parked) == {"e1", "e2", "e3"}
    assert "import shop first" in parked["e1"]
    assert "has no handler 'gone' any more" in parked["e2"]
    assert "was not stored by this version" in parked["e3"]
    rung = await bob.space("s").piece(Alarm, "a").rung.pull()
    assert len(rung) == 1


@simulated(seeds=5, faults=())
async def test_what_failed_here_and_could_not_be_removed_is_not_tried_again_and_again(sim: Simulation) -> None:
    ann = sim.runtime("ann")
    await ann.space("s").open(Alarm, "a")

    async def refused(*_: object) -> bool:
        raise headwater.AccessError("not you")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Storing, "_bury", refused)
        await put(ann, "s", SentEvent("e1", "s/a:broken", {**payload(), "args": {}}))
        bob = sim.runtime("bob")
        bob.space("s")
        await sim.advance(seconds=600)
        assert 1 <= sim.attempts(Alarm.broken) <= 4  # by each of the two, and by each once more if it was its own
        assert [why for _, why in bob.pieces.handling.takeover.parked()] == [
            "it failed here: s/a:broken failed: KeyError: 'broken'"
        ]
    await sim.crash("bob")
    sim.runtime("bob").space("s")  # Another connection tries once more, and can remove it by now.
    await sim.advance(seconds=60)
    await sim.settle()
    assert stored(sim) == []


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
    ((_, why),) = bob.pieces.handling.takeover.parked()
    assert "is part of a piece that is not open here" in why
    tower = await bob.space("s").open(Tower, "t")
    await sim.advance(seconds=5)
    await sim.settle()
    assert await (await tower.bells.pull())["a"].rung.pull() == 1
    assert stored(sim) == []


def test_whoever_stores_an_event_is_nobody_else_and_has_no_other_rights(tmp_path: Path) -> None:
    async def work() -> None:
        async with Embedded(tmp_path / "data", synchronous="OFF") as data, Runtime(data) as rt:
            alarm = await rt.space("s").open(Alarm, "a")
            rt.cell("s", "$access", headwater.Json).set({"owners": ["ann"], "writers": ["eve"], "readers": []})
            await rt.durable()
            handling = rt.pieces.handling
            for id, stream in (("e1", "s/a:ring"), ("e2", "s/a:secret")):
                args = {"text": "x"} if stream.endswith("ring") else {}
                row = SentEvent(id, stream, {**payload(user="ann"), "args": args})
                await put(rt, "s", row)
                event = stored_events.read(rt.pieces, row.id, row.stream, row.payload, 0, "s")
                event.user = event.principal = "eve"
                handling.start(event)
            await rt.durable()
            rung = await alarm.rung.pull()
            assert [text.rpartition(" ")[2] for text in rung] == ["eve"]
            assert [row.state for row in rt.intents()] == ["landed", "failed"]
            assert "'eve' stored an event for s/a:secret, and may not send one" in rt.intents()[-1].error

    run(work)


# ---- how long it is remembered -----------------------------------------------------------------------------


def test_receipts_are_deleted_when_they_are_old_and_their_events_stay_handled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "EVERY", 5)
    day_us = 86_400_000_000

    async def work() -> None:
        clock = VirtualClock()
        policy = Policy(retention_ms=day_us / 1_000)
        async with (
            Embedded(tmp_path / "data", synchronous="OFF", clock=clock) as data,
            Runtime(data, clock=clock, policy=policy) as rt,
        ):
            alarm = await rt.space("s", user="ann", session="x").open(Alarm, "a")
            keyed = alarm.ring.options(id="k")
            await keyed.send("first")
            for n in range(9):
                await alarm.ring.send(f"{n}")
            before = await receipts(rt)
            assert len(before) == 10
            clock.advance(2 * day_us)
            for n in range(20):
                await alarm.ring.send(f"{n}")
                await rt.settled()
                await rt.core.observing.until(lambda: not len(rt.tasks))  # Old receipts are looked for now and then.
            after = await receipts(rt)
            assert not set(before) & set(after)
            assert len(after) == 20
            with pytest.raises(headwater.EventExpiredError, match="what came of it is not kept"):
                await keyed.send("again")
            assert len(await alarm.rung.pull()) == 30

    run(work)


async def receipts(rt: Runtime) -> list[str]:
    return [key.id async for key, _ in documents(rt.space("s"), after=PREFIX) if key.id.startswith(PREFIX)]


def test_an_event_that_is_sent_again_after_all_is_forgotten_is_refused_as_expired(tmp_path: Path) -> None:
    async def work() -> None:
        clock = VirtualClock()
        async with (
            Embedded(tmp_path / "data", synchronous="OFF", clock=clock) as data,
            Runtime(data, clock=clock) as rt,
        ):
            alarm = await rt.space("s").open(Alarm, "a")
            handle: Any = alarm.ring
            event = rt.pieces.handling.event(
                rt.pieces.known("s", "a").facet("session", "ann", ""),  # type: ignore[union-attr]
                handle.member,
                {"text": "late"},
                Options(),
            )
            event.is_known = True
            clock.advance(8 * 86_400_000_000)
            with pytest.raises(headwater.EventExpiredError, match="168 hours ago"):
                await rt.pieces.handling.sent(event)
            assert await alarm.rung.pull() == ()

    run(work)
