"""Events on their way: order, backlog, coalescing, ids, withdrawal, and the table in which each of them is seen."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from headwater import (
    AuthoringError,
    BacklogFullError,
    Cell,
    CommitConvergenceError,
    HandlerFailed,
    IntentRow,
    Piece,
    Policy,
    Refused,
    Runtime,
    SessionExpiredError,
    cell,
    computed,
    handler,
    materializer,
)
from headwater.clock import VirtualClock
from headwater.testing import Simulation, simulated
from tests.scenario.pieces_kit import alone, at, run

CALLED: list[str] = []


class Desk(Piece, name="sent.Desk"):
    n: Cell[int] = cell(default=0)
    log: Cell[tuple[str, ...]] = cell(default=())

    @computed(debounce_ms=100)
    def slow(self) -> int:
        return self.n.get()

    @handler
    def note(self, text: str) -> str:
        CALLED.append(text)
        self.log.push(text)
        return text

    @handler(coalesce="last")
    def look(self, text: str) -> str:
        CALLED.append(text)
        self.log.push(text)
        return text

    @handler
    def wait(self, text: str) -> None:
        self.log.push(f"{text} {self.slow.get()}")

    @handler(reads=(slow,))
    def declared(self, text: str) -> int:
        CALLED.append(text)
        return self.slow.get()

    @handler
    def count(self) -> int:
        CALLED.append("count")
        self.n.set(self.n.get() + 1)
        return self.n.get()

    @handler
    def many(self, n: int) -> None:
        for each in range(n):
            self.note.post(f"{each}")

    @handler
    def no(self) -> None:
        raise Refused("no")


async def parked(rt: Runtime, desk: Desk) -> None:
    """Something in front of the lane that waits for a time."""
    await desk.slow.pull()
    desk.slow.sink(lambda _: None)
    await rt.idle()
    desk.n.set(7)
    desk.wait.post("first")
    for _ in range(5):
        await asyncio.sleep(0)


def later(rt: Runtime, clock: VirtualClock) -> None:
    clock.advance(200_000)
    rt.wake()


# ---- how many wait -----------------------------------------------------------------------------------------


def test_a_handler_s_backlog_is_bounded_and_the_surplus_is_refused_loudly() -> None:
    async def work() -> None:
        clock = VirtualClock()
        async with Runtime(clock=clock, policy=Policy(backlog=3)) as rt:
            desk = rt.space("s").piece(Desk, "d")
            await parked(rt, desk)
            sends = [asyncio.ensure_future(desk.note.options(wait=False).send(f"{n}")) for n in range(5)]
            desk.count.post()  # another handler of the same piece has room of its own
            other = rt.space("t").piece(Desk, "d")
            assert await other.note.send("elsewhere") == "elsewhere"  # another space's lane is not held up
            later(rt, clock)
            ends = await asyncio.gather(*sends, return_exceptions=True)
            assert ends[:3] == ["0", "1", "2"]
            for end in ends[3:]:
                assert isinstance(end, BacklogFullError)
                assert "3 events wait for s/d:note, which is the limit" in str(end)
            await rt.durable()
            assert desk.log.get() == ("first 7", "0", "1", "2")
            assert await desk.note.send("again") == "again"

    run(work)


def test_follow_ups_beyond_the_backlog_fail_the_handler_that_posts_them() -> None:
    async def work() -> None:
        async with Runtime(policy=Policy(backlog=10)) as rt:
            desk = rt.space("s").piece(Desk, "d")
            await desk.many.send(10)
            await rt.durable()
            assert len(desk.log.get()) == 10
            with pytest.raises(HandlerFailed, match="which is the limit"):
                await desk.many.send(11)
            await rt.durable()
            assert len(desk.log.get()) == 10

    run(work)


def test_of_those_that_wait_only_the_last_is_handled_where_the_handler_says_so_and_all_are_answered() -> None:
    async def work() -> None:
        CALLED.clear()
        clock = VirtualClock()
        async with Runtime(clock=clock, policy=Policy(backlog=1)) as rt:
            desk = rt.space("s", user="ann").piece(Desk, "d")
            await parked(rt, desk)
            ann = [asyncio.ensure_future(desk.look.send(f"{n}")) for n in range(300)]
            others = rt.space("s", user="bob").piece(Desk, "d")
            bob = asyncio.ensure_future(others.look.options(wait=False).send("bob's"))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert bob.done()
            assert isinstance(bob.exception(), BacklogFullError)  # Somebody else's is another one.
            later(rt, clock)
            assert await asyncio.gather(*ann) == ["299"] * 300
            assert CALLED == ["299"]
            assert [row.state for row in rt.intents() if row.stream == "s/d:look"] == ["coalesced"] * 299 + ["landed"]

    run(work)


# ---- order -------------------------------------------------------------------------------------------------


def test_an_event_that_is_sent_while_its_piece_still_loads_has_its_place(tmp_path: Path) -> None:
    async def work() -> None:
        async with at("embedded", tmp_path) as site:
            one = site.runtime().space("s").piece(Desk, "d")
            await one.note.send("before")
            rt = site.runtime()
            desk = rt.space("s").piece(Desk, "d")  # Nothing of it is here yet.
            for n in range(5):
                (desk.note if n % 2 else desk.wait).post(f"{n}")
            await rt.durable()
            assert await desk.log.pull() == ("before", "0 0", "1", "2 0", "3", "4 0")
            assert site.errors == []

    run(work)


def test_rejected_events_have_their_turns_in_the_order_of_their_sending_again(tmp_path: Path) -> None:
    async def work() -> None:
        async with at("embedded", tmp_path) as site:
            runtimes = [site.runtime() for _ in range(3)]
            desks = [rt.space("s").piece(Desk, "d") for rt in runtimes]
            for desk in desks:
                await desk.log.pull()

            async def append(desk: Desk, who: int) -> None:
                await asyncio.gather(*(desk.count.send() for _ in range(10)))
                await desk.note.send(f"{who}")

            counts = await asyncio.gather(*(asyncio.gather(*(desk.count.send() for _ in range(20))) for desk in desks))
            assert all(list(each) == sorted(each) for each in counts)  # Each runtime's own are in its order.
            assert sorted(n for each in counts for n in each) == list(range(1, 61))
            assert site.errors == []

    run(work, too_long_s=60)


class Shelf(Piece, name="events.Shelf"):
    n: Cell[int] = cell(default=0)
    items: Cell[Mapping[str, int]] = cell(default={"z": 0})

    @handler
    def count(self) -> None:
        self.n.set(self.n.get() + 1)

    @handler
    def fill(self, name: str) -> None:
        self.items.set({name: self.n.get()})  # All of it, on something that others change.

    @handler
    def put(self, name: str) -> None:
        self.items.key(name).set(1)  # It reads nothing.

    @handler
    def add(self) -> None:
        self.n.increment()


@simulated(seeds=60, faults=("delay",))
async def test_what_is_sent_later_is_not_overwritten_by_what_was_sent_before_and_met_a_conflict(
    sim: Simulation,
) -> None:
    ann, bob = (sim.runtime(user).space("s").piece(Shelf, "x") for user in ("ann", "bob"))
    await ann.count.send()
    for each in (ann, bob):
        await each.items.pull()
        await each.n.pull()
    work = [asyncio.ensure_future(bob.count.send()) for _ in range(3)]
    for name in "abc":
        ann.fill.post(name)
        ann.put.post(f"{name} and more")
    await asyncio.gather(*work)
    await sim.settle()
    assert set(await ann.items.pull()) == {"c", "c and more"}


@simulated(seeds=20)
async def test_intents_of_several_runtimes_meet_no_conflict(sim: Simulation) -> None:
    runtimes = [sim.runtime(user) for user in ("ann", "bob", "cy")]
    shelves = [rt.space("s").piece(Shelf, "x") for rt in runtimes]
    await asyncio.gather(*(shelf.add.send() for shelf in shelves))
    await sim.settle()
    before = sum(row.conflicts for rt in runtimes for row in rt.intents())
    await asyncio.gather(*(shelf.add.send() for shelf in shelves for _ in range(10)))
    assert sum(row.conflicts for rt in runtimes for row in rt.intents()) == before
    await sim.settle()
    assert await shelves[0].n.pull() == 33


# ---- ids ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["detached", "embedded"])
def test_the_same_event_sent_twice_at_once_is_one(place: str, tmp_path: Path) -> None:
    async def work() -> None:
        CALLED.clear()
        async with at(place, tmp_path) as site:
            rt = site.runtime()
            desk = rt.space("s", user="ann", session="x").piece(Desk, "d")
            keyed = desk.note.options(id="k")
            assert await asyncio.gather(*(keyed.send("a") for _ in range(3))) == ["a"] * 3
            intent = keyed.post("b")
            assert await keyed.send("c") == "a"  # It was handled; whatever is sent under its id now is the same.
            await rt.durable()
            assert intent.withdraw() is False
            assert await desk.log.pull() == ("a",)
            assert site.errors == []

    run(work)


# ---- how it ends -------------------------------------------------------------------------------------------


def test_a_window_of_zero_fails_at_the_first_conflict_loudly(tmp_path: Path) -> None:
    async def work() -> None:
        async with at("embedded", tmp_path) as site:
            patient = site.runtime().space("s").piece(Desk, "d")
            hasty = site.runtime(policy=Policy(retry_window_ms=0)).space("s").piece(Desk, "d")
            await patient.count.send()
            await hasty.n.pull()
            lost: list[BaseException] = []
            sent = 1
            while not lost and sent < 2_000:  # Until one is faster than the other.
                ends = await asyncio.gather(
                    *(desk.count.send() for _ in range(10) for desk in (patient, hasty)), return_exceptions=True
                )
                sent += len(ends)
                lost = [end for end in ends if isinstance(end, BaseException)]
            assert lost
            assert all(isinstance(end, CommitConvergenceError) and end.attempts == 1 for end in lost)
            assert len(site.errors) == len(lost)
            assert await site.agreed(patient.n, hasty.n) == sent - len(lost)

    run(work)


def test_events_that_wait_are_told_when_their_runtime_is_closed() -> None:
    async def work() -> None:
        clock = VirtualClock()
        rt = Runtime(clock=clock, close_s=0.01)
        desk = rt.space("s").piece(Desk, "d")
        await parked(rt, desk)
        waiting = [asyncio.ensure_future(desk.note.send(f"{n}")) for n in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(Exception, match="closing waited"):
            await rt.close()
        for each in waiting:
            with pytest.raises(SessionExpiredError, match="was closed"):
                await each

    run(work)


def test_what_is_withdrawn_before_its_turn_is_not_handled() -> None:
    async def work() -> None:
        clock = VirtualClock()
        async with alone(clock) as (rt, errors):
            desk = rt.space("s").piece(Desk, "d")
            await parked(rt, desk)
            intent, other = desk.note.post("never"), desk.note.post("always")
            assert intent.withdraw() is True
            assert intent.withdraw() is True
            later(rt, clock)
            await rt.durable()
            assert other.withdraw() is False
            assert desk.log.get() == ("first 7", "always")
            assert errors == []

    run(work)


def test_what_a_handler_says_it_reads_has_run_before_it_is_called() -> None:
    async def work() -> None:
        CALLED.clear()
        async with alone() as (rt, _):
            desk = rt.space("s").piece(Desk, "d")
            assert await desk.declared.send("x") == 0
            assert CALLED == ["x"]  # once: it had not to be stopped

    run(work)


class Copied(Piece, name="events.Copied"):
    n: Cell[int] = cell(default=1)
    big: Cell[Mapping[str, int]] = cell(default={})

    @materializer(envelope=(big,), debounce_ms=100)
    def copy(self) -> None:
        self.big.key("n").set(self.n.get() * 10)

    @computed
    def shown(self) -> int:
        return self.big.get().get("n", 0) + 1

    @handler
    def read(self) -> int:
        return self.big.key("n").get(0)

    @handler
    def read_shown(self) -> int:
        return self.shown.get()


@pytest.mark.parametrize("kind", ["read", "read_shown"])
def test_a_materializer_that_may_write_what_is_read_runs_first(kind: str) -> None:
    async def work() -> None:
        clock = VirtualClock()
        async with alone(clock) as (rt, errors):
            piece = await rt.space("s").open(Copied, "c")
            later(rt, clock)
            await rt.idle()
            piece.n.set(4)
            sent = asyncio.ensure_future(getattr(piece, kind).send())
            for _ in range(20):
                await asyncio.sleep(0)
            assert not sent.done()  # Its time has not come, and what it will write is not there yet.
            assert [row.state for row in rt.intents()] == ["parked"]
            later(rt, clock)
            assert await sent == (40 if kind == "read" else 41)
            assert errors == []

    run(work)


# ---- looking -----------------------------------------------------------------------------------------------


def test_the_table_shows_every_intent_from_its_sending_to_its_end() -> None:
    async def work() -> None:
        clock = VirtualClock()
        async with Runtime(clock=clock, policy=Policy(intents_kept=4)) as rt:
            desk = rt.space("s", user="ann").piece(Desk, "d")
            await parked(rt, desk)
            desk.note.post("second")
            states = {row.stream: (row.state, row.user, row.ended_us) for row in rt.intents()}
            assert states == {"s/d:wait": ("parked", "ann", None), "s/d:note": ("queued", "ann", None)}
            later(rt, clock)
            await rt.durable()
            with pytest.raises(Refused):
                await desk.no.send()
            rows = rt.intents()
            assert [(row.state, row.attempts) for row in rows] == [("landed", 1), ("landed", 1), ("refused", 0)]
            assert rows[-1].error == "Refused: no"
            assert rows[0].as_json()["stream"] == "s/d:wait"
            for _ in range(10):
                await desk.note.send("more")
            assert len(rt.intents()) == 4  # Those with an end are kept up to a count.

    run(work)


def test_a_conflict_is_seen_with_its_winner_and_with_advice(tmp_path: Path) -> None:
    async def work() -> None:
        async with at("embedded", tmp_path) as site:
            runtimes = [site.runtime() for _ in range(2)]
            ledgers = [rt.space("s").piece(Ledger, "l") for rt in runtimes]
            await ledgers[0].start.send()
            rows: list[IntentRow] = []
            for _ in range(50):  # Until one is faster than the other.
                await asyncio.gather(*(ledgers[n % 2].whole.send("ab"[n % 2]) for n in range(20)))
                rows = [row for rt in runtimes for row in rt.intents() if row.conflict and row.advice]
                if any("instead of .get()" in row.advice for row in rows):
                    break
            for row in rows:
                assert row.state == "landed"
                assert row.conflict.startswith("space:l:accounts#")
                assert row.winner
            narrower = ("read .key('a') instead of .get()", "read .key('b') instead of .get()")  # whoever lost
            assert any(each in row.advice for row in rows for each in narrower)
            assert site.errors == []

    run(work)


class Ledger(Piece, name="events.Ledger"):
    accounts: Cell[Mapping[str, int]] = cell(default={})

    @handler
    def start(self) -> None:
        self.accounts.set({"a": 0, "b": 0})

    @handler
    def whole(self, name: str) -> None:
        self.accounts.key(name).set(self.accounts.get()[name] + 1)


def test_the_trace_says_what_became_of_each_attempt(tmp_path: Path) -> None:
    async def work() -> None:
        async with at("embedded", tmp_path) as site:
            runtimes = [site.runtime() for _ in range(2)]
            for rt in runtimes:
                rt.introspection.traces.switch("EventAttempted", "EventRejected", "EventEnded", on=True)
            desks = [rt.space("s").piece(Desk, "d") for rt in runtimes]
            await asyncio.gather(*(desks[n % 2].count.send() for n in range(20)))
            heard: list[Any] = [each for rt in runtimes for each in rt.introspection.traces.events()]
            attempted, rejected, ended = (
                [each for each in heard if type(each).__name__ == kind]
                for kind in ("EventAttempted", "EventRejected", "EventEnded")
            )
            assert len(attempted) == 20 + len(rejected) == sum(each.attempts for each in ended)
            assert {each.end for each in ended} == {"landed"}
            assert {each.outcome for each in rejected} <= {"stale basis", "unsent"}
            assert all(each.backing_off for each in rejected)

    run(work)


def test_a_moment_before_1970_is_no_moment_to_come() -> None:
    async def work() -> None:
        async with alone() as (rt, _):
            desk = rt.space("s").piece(Desk, "d")
            with pytest.raises(AuthoringError, match="is before 1970"):
                desk.note.post_at(datetime(1969, 1, 1, tzinfo=UTC), "x")

    run(work)
