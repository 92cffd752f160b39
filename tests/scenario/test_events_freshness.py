"""What a handler acts on is fresh (I4): the attempt that lands has read nothing that was changed before it landed."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from headwater import Cell, Piece, Policy, Refused, cell, computed, handler
from headwater.data.address import DocKey
from headwater.data.patch import replace
from headwater.errors import HandlerFailed, NotSettlingError
from headwater.protocol.commit import Commit, Operation
from headwater.testing import Simulation
from tests.scenario.events_kit import Front, durable, outcome, read, told

CALLED: list[object] = []


class Poll(Piece, name="freshness.Poll"):
    is_closed: Cell[bool] = cell(default=False)
    votes: Cell[tuple[str, ...]] = cell(default=())
    n: Cell[int] = cell(default=1)
    x: Cell[int] = cell(default=0)
    y: Cell[int] = cell(default=0)

    @computed
    def is_open(self) -> bool:
        return not self.is_closed.get()

    @computed
    def doubled(self) -> int:
        return self.n.get() * 2

    @computed
    def more(self) -> int:
        return self.doubled.get() + 1

    @computed(debounce_ms=500)
    def slow(self) -> int:
        return self.n.get() + 100

    @computed(writes=(x,))
    def ping(self) -> int:
        self.x.set(self.y.get() + 1)
        return self.y.get()

    @computed(writes=(y,))
    def pong(self) -> int:
        """Does not settle: it goes round with the other one."""
        self.y.set(self.x.get() + self.ping.get())
        return self.x.get()

    @handler
    def vote(self, who: str) -> None:
        """Writes nothing itself."""
        if self.is_closed.get():
            raise Refused("too late")
        self.count.post(who)

    @handler
    def vote_by_computed(self, who: str) -> None:
        if not self.is_open.get():
            raise Refused("too late")
        self.count.post(who)

    @handler
    def cast(self, who: str) -> None:
        if not self.is_open.get():
            raise Refused("too late")
        self.votes.push(who)

    @handler
    def cast_at_once(self, who: str) -> None:
        if self.is_closed.get():
            raise Refused("too late")
        self.votes.push(who)

    @handler
    def ask(self) -> bool:
        """Neither writes nor posts: its answer is all that it does."""
        return self.is_closed.get()

    @handler
    def count(self, who: str) -> None:
        self.votes.push(who)

    @handler
    def close(self) -> None:
        self.is_closed.set(True)

    @handler
    def take(self) -> int:
        CALLED.append("take")
        self.votes.push(str(self.more.get()))
        return self.more.get()

    @handler
    def take_slow(self) -> int:
        CALLED.append("take_slow")
        self.votes.push(str(self.slow.get()))
        return self.slow.get()

    @handler
    def take_never(self) -> int:
        return self.pong.get()


async def begun(sim: Simulation, user: str = "ann") -> Poll:
    CALLED.clear()
    poll = await sim.runtime(user).space("s").open(Poll, "p")
    await sim.settle()
    return poll


def written_elsewhere(sim: Simulation, document: DocKey, value: Any) -> None:
    """Somebody's write is durable, and nobody here has heard of it yet."""

    def write(engines: Any) -> None:
        engines["s"].open_session("rival")
        engines["s"].submit("rival", Commit(1, (Operation(document, (replace((), value),)),)))

    read(sim, write)


def a_vote_after_the_end(name: str) -> Any:
    async def story(sim: Simulation) -> list[str]:
        poll = await begun(sim)
        await poll.is_open.pull()
        await sim.settle()
        written_elsewhere(sim, poll.is_closed.document.key, True)
        answer = await outcome(getattr(poll, name).send("bob"))
        await sim.settle()
        votes = durable(sim, poll, "votes")
        return [] if isinstance(answer, Refused) and votes is None else [f"told {answer!r}, and there is {votes}"]

    return story


@pytest.mark.parametrize("name", ["vote", "vote_by_computed", "cast"])
def test_what_was_durable_before_an_event_was_sent_is_what_its_handler_acts_on(name: str) -> None:
    """Also if it writes nothing itself: what it posts is what it did."""
    assert told(a_vote_after_the_end(name)) == []


async def a_question_after_the_end(sim: Simulation) -> list[str]:
    poll = await begun(sim)
    written_elsewhere(sim, poll.is_closed.document.key, True)
    answer = await outcome(poll.ask.send())
    return [] if answer is True else [f"told {answer!r}"]


def test_an_answer_is_as_of_the_moment_at_which_it_is_durable() -> None:
    assert told(a_question_after_the_end) == []


async def a_chain_that_is_not_up_to_date(sim: Simulation) -> list[str]:
    poll = await begun(sim)
    assert await poll.more.pull() == 3
    poll.n.set(10)
    answer = await poll.take.send()
    await sim.settle()
    votes = durable(sim, poll, "votes")
    return [] if (answer, votes) == (21, ("21",)) else [f"told {answer}, and there is {votes}"]


def test_invalid_upstream_runs_before_the_attempt_that_lands() -> None:
    assert told(a_chain_that_is_not_up_to_date) == []


async def a_gated_upstream(sim: Simulation) -> list[str]:
    """It parks the event with its time: nothing is polled, and it is dispatched right then."""
    poll = await begun(sim)
    assert await poll.slow.pull() == 101
    poll.n.set(5)
    began = sim.now()
    sent = asyncio.ensure_future(poll.take_slow.send())
    behind = asyncio.ensure_future(poll.take.send())
    await sim.advance(seconds=0.1)
    parked = [row.state for row in sim.runtime("ann").intents() if row.stream.endswith("take_slow")]
    answers = [await sent, await behind]
    took_ms = (sim.now() - began).total_seconds() * 1_000
    await sim.settle()
    found = [] if answers == [105, 11] else [f"told {answers}"]
    if parked != ["parked"]:
        found.append(f"it was {parked}")
    if not 350 <= took_ms <= 700:
        found.append(f"it took {took_ms} ms")
    if durable(sim, poll, "votes") != ("105", "11"):
        found.append(f"the order was {durable(sim, poll, 'votes')}")
    return found


def test_a_gated_upstream_parks_the_head_of_its_lane_until_its_time() -> None:
    assert told(a_gated_upstream) == []


async def an_upstream_that_does_not_settle(sim: Simulation) -> list[str]:
    poll = await begun(sim)
    poll = sim.runtime("bob", policy=Policy(retry_window_ms=3_000)).space("s").piece(Poll, "p")
    began = sim.now()
    answer = await outcome(poll.take_never.send())
    took_s = (sim.now() - began).total_seconds()
    found = []
    if not isinstance(answer, (NotSettlingError, HandlerFailed)) or "p:p" not in str(answer):
        found.append(f"told {answer!r}")
    if took_s > 10:
        found.append(f"it took {took_s} s")
    return found


def test_an_upstream_that_does_not_settle_fails_the_send_and_names_it() -> None:
    assert told(an_upstream_that_does_not_settle) == []


async def a_no_to_what_never_was(sim: Simulation) -> list[str]:
    """The poll is closed here, and that is rejected: the vote that came behind it was refused for nothing."""
    with Front(sim) as front:
        poll = await begun(sim)
        front.reject("close", 1)
        closing = asyncio.ensure_future(outcome(poll.close.options(retries=0).send()))
        await asyncio.sleep(0)
        answer = await outcome(poll.cast_at_once.send("bob"))
        await closing
        await sim.settle()
        votes = durable(sim, poll, "votes")
        return [] if votes == ("bob",) else [f"told {answer!r}, and there is {votes}"]


def test_a_refusal_counts_only_if_it_stands_on_what_was_decided() -> None:
    assert told(a_no_to_what_never_was) == []


# ---- without a connection ----------------------------------------------------------------------------------

LONG_S = 100
"""Longer than any window, and longer than a session is kept."""


async def a_read_that_cannot_arrive(sim: Simulation) -> list[str]:
    """What is on its way parks an event without a timer: that nothing arrives without a connection is no failure."""
    await begun(sim)
    poll = sim.runtime("bob").space("s").piece(Poll, "p")
    await sim.advance(seconds=0.01)
    with sim.offline("bob"):
        sent = asyncio.ensure_future(outcome(poll.take.send()))
        await sim.advance(seconds=LONG_S)
        early = sent.result() if sent.done() else None
    answer = await sent
    return [] if (early, answer) == (None, 3) else [f"told {early!r} without a connection, {answer!r} in the end"]


def test_an_event_whose_reads_cannot_arrive_waits_until_there_is_a_connection() -> None:
    assert told(a_read_that_cannot_arrive) == []


def a_computed_that_cannot_run(name: str, expected: int) -> Any:
    """The same for what is computed and was never here, although all that it reads is: it is no cycle."""

    async def story(sim: Simulation) -> list[str]:
        await begun(sim)
        poll = await sim.runtime("bob").space("s").open(Poll, "p")
        with sim.offline("bob"):
            sent = asyncio.ensure_future(outcome(getattr(poll, name).send()))
            await sim.advance(seconds=LONG_S)
            early = sent.result() if sent.done() else None
        answer = await sent
        if (early, answer) == (None, expected):
            return []
        return [f"told {early!r} without a connection, {answer!r} in the end"]

    return story


@pytest.mark.parametrize(("name", "expected"), [("take", 3), ("take_slow", 101)])
def test_an_event_whose_upstream_waits_for_a_connection_waits_with_it(name: str, expected: int) -> None:
    assert told(a_computed_that_cannot_run(name, expected)) == []


async def a_no_that_cannot_be_decided(sim: Simulation) -> list[str]:
    """The poll was closed here without a connection, which loses in the end: the refusal behind it never counted."""
    with Front(sim) as front:
        poll = await begun(sim)
        front.reject("close", 1)
        with sim.offline("ann"):
            closing = asyncio.ensure_future(outcome(poll.close.options(retries=0).send()))
            await asyncio.sleep(0)
            sent = asyncio.ensure_future(outcome(poll.cast_at_once.send("bob")))
            await sim.advance(seconds=LONG_S)
        answer, _ = await sent, await closing
        await sim.settle()
        votes = durable(sim, poll, "votes")
        return [] if votes == ("bob",) else [f"told {answer!r}, and there is {votes}"]


def test_a_refusal_without_a_connection_waits_until_what_it_stands_on_is_decided() -> None:
    assert told(a_no_that_cannot_be_decided) == []


# ---- after a gap -------------------------------------------------------------------------------------------


class Sheet(Piece, name="freshness.Sheet"):
    """Several sources, which arrive one after the other when there is a connection again."""

    a: Cell[int] = cell(default=0)
    b: Cell[int] = cell(default=0)
    c: Cell[int] = cell(default=0)
    seen: Cell[tuple[int, ...]] = cell(default=())

    @computed
    def of_a(self) -> int:
        return self.a.get()

    @computed
    def of_b(self) -> int:
        return self.b.get()

    @computed
    def of_c(self) -> int:
        return self.c.get()

    @handler
    def change(self, n: int) -> None:
        for each in (self.a, self.b, self.c):
            each.set(n)

    @handler
    def take(self) -> None:
        self.seen.push(self.of_a.get())
        self.seen.push(self.of_b.get())
        self.seen.push(self.of_c.get())


async def reads_after_a_gap(sim: Simulation) -> list[str]:
    """What is derived from something that has not arrived again yet is not fresh, although it is here and valid."""
    ann = sim.runtime("ann").space("s").piece(Sheet, "p")
    bob = sim.runtime("bob").space("s").piece(Sheet, "p")
    await ann.change.send(1)
    await bob.take.send()
    draws = Random(sim.seed)
    for n in range(2, 6):
        sent = asyncio.ensure_future(bob.take.send())
        await asyncio.sleep(draws.choice((0.0005, 0.001, 0.003)))
        with sim.offline("bob"):
            await ann.change.send(n)
            await sim.advance(seconds=draws.choice((1, LONG_S)))
        await sent
    seen = durable(sim, ann, "seen")
    taken = [seen[at : at + 3] for at in range(0, len(seen), 3)]
    return [f"{each} was read in one attempt" for each in taken if len(set(each)) != 1]


@pytest.mark.parametrize("faults", [(), ("delay",)], ids=["calm", "slow"])
def test_what_is_derived_from_something_that_has_not_arrived_again_is_not_fresh(faults: tuple[str, ...]) -> None:
    assert [told(reads_after_a_gap, seed=seed, faults=faults) for seed in range(5)] == [[]] * 5
