"""A write that somebody meant lands or fails loudly: the fixtures of the backpressure text.

An engine in front of which somebody says no stands for contention.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

import headwater
from headwater import (
    Cell,
    CommitConvergenceError,
    ConflictError,
    Piece,
    Policy,
    PreconditionFailedError,
    RuleRefusedError,
    cell,
    handler,
)
from headwater.data.address import DocKey
from headwater.data.patch import replace
from headwater.engine import Engine
from headwater.protocol.commit import Commit, LeaseHeld, Operation
from headwater.testing import Simulation
from tests.scenario.events_kit import Front, Spoil, durable, forbidden, outcome, outcomes, read, told

BURST = 20


class Home(headwater.Model):
    churn: int = 0
    names: tuple[str, ...] = ()


class Profiles(Piece, name="backpressure.Profiles"):
    names: Cell[tuple[str, ...]] = cell(default=())
    home: Cell[Home] = cell(default=Home())

    @handler
    def join(self, name: str) -> None:
        """All of the home is read and written, as a form that was filled in does."""
        home = self.home.get()
        self.home.set(Home(churn=home.churn, names=(*home.names, name)))

    @handler
    def append(self, name: str) -> int:
        self.names.set((*self.names.get(), name))
        return len(self.names.get())


async def begun(sim: Simulation, user: str = "ann") -> Profiles:
    piece = await sim.runtime(user).space("s").open(Profiles, "p")
    await sim.settle()
    return piece


def row_of(sim: Simulation, user: str = "ann") -> Any:
    """What the table of intents says of the last event."""
    return sim.runtime(user).intents()[-1]


# ---- a long burst ------------------------------------------------------------------------------------------


async def a_burst_of_conflicts(sim: Simulation) -> list[str]:
    with Front(sim) as front:
        piece = await begun(sim)
        front.reject("append", BURST)
        answer = await outcome(piece.append.send("ann"))
        row = row_of(sim)
        await sim.settle()
        found = []
        if answer != 1:
            found.append(f"the sender got {answer!r}")
        if durable(sim, piece, "names") != ("ann",):
            found.append(f"the write was lost: {durable(sim, piece, 'names')}")
        if (row.state, row.attempts, row.conflicts) != ("landed", BURST + 1, BURST):
            found.append(f"the table says {row.state} after {row.attempts} attempts and {row.conflicts} conflicts")
        if row.conflict != "space:rival#" or "the rival's handler" not in row.winner:
            found.append(f"the table says {row.conflict!r} was lost to {row.winner!r}")
        return found


def test_a_burst_of_conflicts_that_is_longer_than_any_fixed_budget_lands() -> None:
    assert told(a_burst_of_conflicts) == []


# ---- permanent ---------------------------------------------------------------------------------------------


def fenced(engine: Engine, commit: Commit) -> Commit:
    """The commit, under the condition of a lease that nobody has."""
    return msgspec.structs.replace(commit, preconditions=(*commit.preconditions, LeaseHeld("a lease", 1)))


def a_permanent_rejection(spoil: Spoil, error: type[Exception], kind: str) -> Any:
    async def story(sim: Simulation) -> list[str]:
        with Front(sim) as front:
            piece = await begun(sim)
            rt = sim.runtime("ann")
            rt.introspection.traces.switch("EventRejected", "EventEnded", on=True)
            front.reject("append", 3, spoil)
            got = await outcome(piece.append.send("ann"))
            row = row_of(sim)
            await sim.settle()
        found = []
        if not isinstance(got, error):
            found.append(f"the sender got {got!r}")
        if front.judged["append"] != 1 or sim.attempts(Profiles.append) != 1:
            found.append(f"it was tried {front.judged['append']} times")
        if durable(sim, piece, "names") is not None:
            found.append("it landed")
        if (row.state, row.attempts) != ("failed", 1) or not row.error:
            found.append(f"the table says {row.state} after {row.attempts} attempts: {row.error!r}")
        traced: list[Any] = rt.introspection.traces.events()
        said = [each.outcome if type(each).__name__ == "EventRejected" else each.end for each in traced]
        if said != [kind, "failed"]:
            found.append(f"the trace says {said}")
        return found

    return story


PERMANENT = [
    pytest.param(forbidden, RuleRefusedError, "terminal", id="a rule"),
    pytest.param(fenced, PreconditionFailedError, "permanent", id="a precondition"),
]


@pytest.mark.parametrize(("spoil", "error", "kind"), PERMANENT)
def test_a_permanent_rejection_is_not_retried_and_can_be_seen(spoil: Spoil, error: type[Exception], kind: str) -> None:
    assert told(a_permanent_rejection(spoil, error, kind)) == []


# ---- never converging --------------------------------------------------------------------------------------

WINDOW_S = 30
MOST_ATTEMPTS = 100


async def a_conflict_that_never_clears(sim: Simulation) -> list[str]:
    with Front(sim) as front:
        piece = await begun(sim)
        front.reject("append", 1_000_000)
        began = sim.now()
        sent = asyncio.ensure_future(outcome(piece.append.send("ann")))
        await sim.advance(seconds=2 * WINDOW_S)
        attempts = front.judged["append"]
        found = []
        if attempts > MOST_ATTEMPTS:
            found.append(f"{attempts} attempts")
        if not sent.done():
            found.append(f"no end after {(sim.now() - began).total_seconds():g} s")
            front.reject("append", 0)
            await sent
            return found
        error = sent.result()
        if not isinstance(error, CommitConvergenceError):
            return [*found, f"the sender got {error!r}"]
        if error.attempts != attempts or not WINDOW_S * 900 <= error.elapsed_ms <= WINDOW_S * 1_100:
            found.append(f"{error.attempts} attempts in {error.elapsed_ms} ms")
        if not isinstance(error.__cause__, ConflictError):
            found.append(f"its cause is {error.__cause__!r}")
        loud = [each.error for each in sim.failures() if isinstance(each.error, CommitConvergenceError)]
        if len(loud) != 1:
            found.append(f"the error channel was told {len(loud)} times")
        row = row_of(sim)
        if row.state != "failed" or row.next_try_us is not None:
            found.append(f"the table says {row.state}")
        front.reject("append", 0)
        await piece.append.send("bob")
        await sim.settle()
        if durable(sim, piece, "names") != ("bob",):
            found.append(f"afterwards there is {durable(sim, piece, 'names')}")
        return found


def test_a_conflict_that_never_clears_fails_loudly_after_a_window_and_tens_of_attempts() -> None:
    assert told(a_conflict_that_never_clears) == []


async def a_window_of_zero(sim: Simulation) -> list[str]:
    sim.runtime("ann", policy=Policy(retry_window_ms=0))
    with Front(sim) as front:
        piece = await begun(sim)
        front.reject("append", 1)
        error = await outcome(piece.append.send("ann"))
        if not isinstance(error, CommitConvergenceError) or error.attempts != 1:
            return [f"the sender got {error!r}"]
        return [] if sim.failures() else ["nobody heard of it"]


def test_with_a_window_of_zero_the_first_conflict_is_a_loud_end() -> None:
    assert told(a_window_of_zero) == []


async def those_who_wait_behind(sim: Simulation) -> list[str]:
    """While one backs off those behind it wait; then they go on, in their order."""
    with Front(sim) as front:
        piece = await begun(sim)
        front.reject("append", 25)
        answers = await outcomes(*(piece.append.send(f"n{i}") for i in range(6)))
        await sim.settle()
        names = tuple(f"n{i}" for i in range(6))
        if answers != [1, 2, 3, 4, 5, 6] or durable(sim, piece, "names") != names:
            return [f"{answers}: {durable(sim, piece, 'names')}"]
        return []


def test_those_who_wait_behind_a_conflict_land_in_the_order_of_their_sending() -> None:
    assert told(those_who_wait_behind) == []


# ---- three appends -----------------------------------------------------------------------------------------


class Rival:
    """Writes the same document right before each of the next commits arrives, as a home that comes to life does."""

    def __init__(self, sim: Simulation, user: str, document: DocKey, times: int) -> None:
        self._sim = sim
        self._document = document
        self._number = 0
        self.left = times
        read(sim, lambda engines: engines["s"].open_session("rival"))
        runtime: Any = sim.runtime(user)
        runtime.client.ambush = self._sees

    def _sees(self, connection: Any, message: Any) -> None:
        nodes = [each.provenance.node for each in getattr(message, "commits", ())]
        if self.left and any(node.endswith(":join") for node in nodes):
            self.left -= 1
            self._number += 1
            churned = Operation(self._document, (replace(("churn",), self._number),))
            read(self._sim, lambda engines: engines["s"].submit("rival", Commit(self._number, (churned,))))


async def three_appends_in_a_storm(sim: Simulation) -> list[str]:
    piece = await begun(sim)
    await piece.join.send("zero")
    rival = Rival(sim, "ann", piece.home.document.key, 19)
    answers = await outcomes(*(piece.join.send(name) for name in ("one", "two", "three")))
    await sim.settle()
    found = durable(sim, piece, "home")["names"][1:]
    wrong = [] if rival.left == 0 else [f"{rival.left} writes of the rival are left"]
    if found != ("one", "two", "three"):
        wrong.append(f"{len(found or ())} of 3 are there: {found}; the senders got {answers}")
    return wrong


def test_three_appends_survive_a_conflict_storm() -> None:
    assert told(three_appends_in_a_storm) == []


async def three_appends_of_three_runtimes(sim: Simulation) -> list[str]:
    pieces = [await begun(sim, user) for user in ("ann", "bob", "cy")]
    answers = await outcomes(*(piece.append.send(f"n{i}") for i, piece in enumerate(pieces)))
    await sim.settle()
    found = sorted(durable(sim, pieces[0], "names") or ())
    return [] if found == ["n0", "n1", "n2"] and sorted(answers) == [1, 2, 3] else [f"{answers}: {found}"]


@pytest.mark.parametrize("seed", range(5))
def test_three_runtimes_that_append_at_once_end_as_three(seed: int) -> None:
    assert told(three_appends_of_three_runtimes, seed=seed) == []


# ---- one hot document --------------------------------------------------------------------------------------

RUNTIMES, EACH = 8, 7


async def one_hot_document(sim: Simulation) -> list[str]:
    users = [f"user{i}" for i in range(RUNTIMES)]
    pieces = {user: await begun(sim, user) for user in users}
    names = {user: [f"{user} {n}" for n in range(EACH)] for user in users}
    answers = await outcomes(*(pieces[user].append.send(name) for user in users for name in names[user]))
    attempts = sum(row.attempts for user in users for row in sim.runtime(user).intents())
    await sim.settle()
    there = durable(sim, pieces[users[0]], "names")
    found = [] if sorted(answers, key=str) == sorted(range(1, RUNTIMES * EACH + 1), key=str) else [f"told {answers}"]
    if any([name for name in there if name.startswith(user)] != names[user] for user in users):
        found.append(f"{len(set(there))} of {RUNTIMES * EACH} are there, or not in their order: {there}")
    if attempts > RUNTIMES * len(there):
        found.append(f"{attempts} attempts for {len(there)} events")
    return found


@pytest.mark.parametrize("faults", [(), ("delay", "drop", "duplicate", "crash")], ids=["calm", "stormy"])
@pytest.mark.parametrize("seed", range(3))
def test_eight_runtimes_on_one_hot_document_lose_nothing_and_keep_their_order(
    seed: int, faults: tuple[str, ...]
) -> None:
    assert told(one_hot_document, seed=seed, faults=faults) == []
