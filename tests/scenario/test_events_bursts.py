"""Many events at once: in their order, everybody answered, no more held than there has to be; too many are refused."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from headwater import Cell, Piece, Refused, cell, handler
from headwater.engine import Engine
from headwater.engine.store.sqlite import SqliteStore
from headwater.errors import BacklogFullError
from headwater.replica import Document, Layer, Transaction
from headwater.runtime import LocalDirectory, Policy, Runtime
from headwater.testing import Simulation
from headwater.testing.author.stored import log_of
from tests.counts import scaled
from tests.scenario.events_kit import RECEIPTS, durable, outcome, outcomes, told

STREAMS = 100
SENDS = max(2_000, scaled(10_000))
IN_FLIGHT = 256
"""Commits of one session without a verdict, at most."""

COUNTED = ("headwater.replica", "headwater.runtime", "headwater.scheduler", "asyncio", "_asyncio")
HANDLED: list[int] = []


class Pile(Piece, name="bursts.Pile"):
    seen: Cell[tuple[int, ...]] = cell(default=())
    last: Cell[int] = cell(default=-1)

    @handler
    def add(self, n: int) -> int:
        HANDLED.append(n)
        self.seen.push(n)
        return n

    @handler
    def refuse(self) -> None:
        raise Refused("no")

    @handler
    def resend(self, n: int) -> None:
        self.add.post(n)

    @handler
    def count(self) -> None:
        self.last.set(self.last.get() + 1)

    @handler
    def launch_and_refuse(self) -> None:
        self.ctx.launch(Pile())
        raise Refused("no")

    @handler(coalesce="last")
    def show(self, n: int) -> int:
        HANDLED.append(n)
        self.last.set(n)
        return n


def _module_of(kind: type[Any]) -> str:
    return str(kind.__module__)  # A class of another library may have something else than a text there.


def living() -> Counter[type]:
    """How many objects there are of each class of the product, whoever holds them, and how many tasks."""
    gc.collect()
    kinds = Counter(map(type, gc.get_objects()))
    found = Counter({kind: n for kind, n in kinds.items() if _module_of(kind).startswith(COUNTED)})
    for package in COUNTED:
        assert in_package(found, package), f"no object of {package} was found"
    return found


def of_kind(found: Counter[type], *kinds: type) -> int:
    return sum(n for each, n in found.items() if issubclass(each, kinds))


def in_package(found: Counter[type], package: str) -> int:
    return sum(n for each, n in found.items() if _module_of(each).startswith(package))


class Peaks:
    """The most objects of each kind that there were at any look."""

    def __init__(self, rt: Runtime) -> None:
        self._rt = rt
        self._looked = 0
        self.most: Counter[type] = Counter()
        self.tasks = 0

    def look(self) -> None:
        if len(HANDLED) < self._looked:
            return
        self._looked = len(HANDLED) + SENDS // 10
        found = living()
        self.most |= Counter({kind: of_kind(found, kind) for kind in (Layer, Transaction, Document)})
        self.tasks = max(self.tasks, len(self._rt.tasks))


def results_in_log(folder: Path, name: str) -> list[int]:
    """What handlers answered, in the order of the log."""
    engine = Engine(SqliteStore(folder / f"{name}.space"))
    try:
        operations = [each for logged in log_of(engine) for each in logged.commit.operations]
        written: list[Any] = [each.patches[0].arg for each in operations if each.doc.id.startswith(RECEIPTS)]
        return [each["result"] for each in written]
    finally:
        engine.close()


@pytest.mark.random
def test_thousands_of_sends_over_a_hundred_streams_commit_in_send_order_and_all_are_answered(
    tmp_path: Path,
) -> None:
    async def play() -> None:
        HANDLED.clear()
        async with (
            LocalDirectory(tmp_path, synchronous="OFF") as data,
            Runtime(data, policy=Policy(backlog=SENDS)) as rt,
        ):
            piles = [rt.space("s").piece(Pile, f"p{n}") for n in range(STREAMS)]
            before = in_package(living(), "headwater.runtime")
            peaks = Peaks(rt)
            sent = [asyncio.ensure_future(piles[n % STREAMS].add.send(n)) for n in range(SENDS)]
            for each in sent[:: SENDS // 8]:
                await each
                peaks.look()
            assert await asyncio.gather(*sent) == list(range(SENDS))
            assert list(dict.fromkeys(HANDLED)) == list(range(SENDS))  # The first of each waits for its piece.
            assert 0 < peaks.most[Layer] <= IN_FLIGHT + 10, peaks.most
            assert peaks.most[Transaction] <= IN_FLIGHT + 10, peaks.most
            assert peaks.most[Document] >= STREAMS, peaks.most
            assert peaks.tasks <= 10  # An event has no task.
            for n in (0, 7, 99):
                assert await piles[n].seen.pull() == tuple(range(n, SENDS, STREAMS))
            assert all(row.ended_us is not None for row in rt.intents())
            assert len(rt.intents()) == Policy().intents_kept
            sent.clear()
            async with asyncio.timeout(60):  # Receipts are removed in the background, by commits of their own.
                while of_kind(living(), Layer, Transaction) > 10:
                    await asyncio.sleep(0.5)  # Counting all objects takes longer than removing some receipts.
            after = living()
            assert STREAMS <= of_kind(after, Document) <= 5 * STREAMS  # None is left of the receipts.
            # An event of each send would be more than this.
            most = before + Policy().intents_kept + 5 * STREAMS
            assert in_package(after, "headwater.runtime") <= most < before + SENDS, after
        assert results_in_log(tmp_path, "s") == list(range(SENDS))

    asyncio.run(play())


# ---- the lane of another space -----------------------------------------------------------------------------

BUSY = 1_000


async def an_event_of_another_space(sim: Simulation) -> list[str]:
    """It is sent behind many of a busy space: how many of those are handled until it is answered?"""
    HANDLED.clear()
    rt = sim.runtime("ann", policy=Policy(backlog=BUSY))
    busy, other = rt.space("busy").piece(Pile, "p"), rt.space("other").piece(Pile, "p")
    await other.add.send(-1)
    sent = [asyncio.ensure_future(busy.add.send(n)) for n in range(BUSY)]
    await sent[0]
    before = len(HANDLED)
    await other.add.send(-2)
    between = len(HANDLED) - before
    await asyncio.gather(*sent)
    return [] if between <= IN_FLIGHT * 2 else [f"{between} events of a busy space were handled first"]


def test_the_lane_of_another_space_is_not_slowed() -> None:
    assert told(an_event_of_another_space) == []


# ---- too many ----------------------------------------------------------------------------------------------


async def more_than_the_backlog_holds(sim: Simulation) -> list[str]:
    HANDLED.clear()
    pile = sim.runtime("ann").space("s").piece(Pile, "p")
    limit = Policy().backlog
    answers = await outcomes(*(pile.add.options(wait=False).send(n) for n in range(limit + 50)))
    await sim.settle()
    taken = [each for each in answers if isinstance(each, int)]
    refused = [each for each in answers if isinstance(each, BacklogFullError)]
    found = []
    if not limit <= len(taken) <= limit + 2 or len(taken) + len(refused) != limit + 50:
        found.append(f"{len(taken)} were taken and {len(refused)} refused")
    if durable(sim, pile, "seen") != tuple(taken) or taken != sorted(taken):
        found.append(f"{len(durable(sim, pile, 'seen') or ())} have landed")
    if refused and ("s/p:add" not in str(refused[0]) or str(limit) not in str(refused[0])):
        found.append(str(refused[0]))
    return found


def test_at_the_default_limit_the_surplus_is_refused_loudly_and_the_rest_lands_in_order() -> None:
    assert told(more_than_the_backlog_holds) == []


async def more_than_the_backlog_holds_with_time(sim: Simulation) -> list[str]:
    """Senders that wait for room get it in the order in which they called."""
    HANDLED.clear()
    pile = sim.runtime("ann", policy=Policy(backlog=10)).space("s").piece(Pile, "p")
    answers = await outcomes(*(pile.add.send(n) for n in range(100)))
    await sim.settle()
    wrong = [] if answers == list(range(100)) else [f"they were answered {answers}"]
    landed = durable(sim, pile, "seen")
    return wrong if landed == tuple(range(100)) else [*wrong, f"{landed} landed"]


def test_senders_wait_for_room_in_the_order_of_their_calls() -> None:
    assert told(more_than_the_backlog_holds_with_time) == []


async def one_stream_that_is_full(sim: Simulation) -> list[str]:
    """What is full is one handler of one piece: others of its space are sent to as always."""
    rt = sim.runtime("ann", policy=Policy(backlog=10))
    full, free = (rt.space("s").piece(Pile, name) for name in ("full", "free"))
    answers = await outcomes(
        *(full.add.options(wait=False).send(n) for n in range(20)), *(free.add.send(n) for n in range(5))
    )
    await sim.settle()
    refused = sum(isinstance(each, BacklogFullError) for each in answers)
    found = [] if 8 <= refused <= 10 else [f"{refused} were refused"]
    if durable(sim, free, "seen") != tuple(range(5)):
        found.append(f"the other one has {durable(sim, free, 'seen')}")
    return found


def test_a_full_stream_is_full_for_itself_alone() -> None:
    assert told(one_stream_that_is_full) == []


async def posts_beyond_the_limit(sim: Simulation) -> list[str]:
    pile = sim.runtime("ann", policy=Policy(backlog=10)).space("s").piece(Pile, "p")
    refused = 0
    for n in range(20):
        try:
            pile.add.post(n)
        except BacklogFullError:
            refused += 1
    await sim.settle()
    landed = durable(sim, pile, "seen")
    return [] if landed == tuple(range(20 - refused)) and refused else [f"{refused} refused, {landed} landed"]


def test_posting_beyond_the_limit_raises_at_once() -> None:
    assert told(posts_beyond_the_limit) == []


async def more_than_one_runtime_takes_on(sim: Simulation) -> list[str]:
    rt = sim.runtime("ann", policy=Policy(in_hand=30))
    piles = [rt.space("s").piece(Pile, f"p{n}") for n in range(40)]
    sends: list[Coroutine[Any, Any, Any]] = [each.add.options(wait=False).send(n) for n, each in enumerate(piles)]
    answers = await outcomes(*sends)
    refused = [each for each in answers if isinstance(each, BacklogFullError)]
    return [] if len(refused) == 10 and answers[:30] == list(range(30)) else [f"{len(refused)} were refused"]


def test_a_runtime_takes_on_so_many_events_in_all() -> None:
    assert told(more_than_one_runtime_takes_on) == []


class Ring(Piece, name="bursts.Ring"):
    turns: Cell[int] = cell(default=0)

    @handler
    def turn(self, left: int) -> None:
        self.turns.increment(1)
        if left:
            self.turn.post(left - 1)


async def a_long_chain(sim: Simulation) -> list[str]:
    """A chain that is too long is reported once, with its handlers, and goes on."""
    rt = sim.runtime("ann")
    errors: list[str] = []
    rt.on_error(lambda error: errors.append(str(error)))
    ring = rt.space("s").piece(Ring, "r")
    await ring.turn.send(1_050)
    await sim.settle()
    turns = durable(sim, ring, "turns")
    wrong = [] if turns == 1_051 else [f"{turns} turns"]
    if len(errors) != 1 or "1000 events" not in errors[0] or "s/r:turn -> s/r:turn" not in errors[0]:
        wrong.append(f"told {errors}")
    return wrong


def test_endless_chain_of_posts_is_reported_once_with_its_handlers() -> None:
    assert told(a_long_chain) == []


# ---- only the last one counts ------------------------------------------------------------------------------


async def many_of_which_the_last_counts(sim: Simulation) -> list[str]:
    HANDLED.clear()
    pile = sim.runtime("ann").space("s").piece(Pile, "p")
    answers = await outcomes(*(pile.show.send(n) for n in range(1_000)))
    await sim.settle()
    found = []
    if not all(isinstance(each, int) for each in answers) or answers[-1] != 999 or answers != sorted(answers):
        found.append(f"the answers are {sorted(set(map(str, answers)))[:5]}")
    if len(set(HANDLED)) > 5 or durable(sim, pile, "last") != 999:
        found.append(f"{len(set(HANDLED))} were handled, and the last one is {durable(sim, pile, 'last')}")
    states = Counter(row.state for row in sim.runtime("ann").intents())
    if set(states) - {"landed", "coalesced"}:
        found.append(f"the table says {states}")
    return found


def test_where_only_the_last_one_counts_all_are_answered_with_its_result() -> None:
    assert told(many_of_which_the_last_counts) == []


@pytest.mark.parametrize("seed", range(5))
def test_so_they_are_when_the_connection_breaks_meanwhile(seed: int) -> None:
    assert told(many_of_which_the_last_counts, seed=seed, faults=("delay", "drop", "duplicate", "crash")) == []


# ---- what is left in memory --------------------------------------------------------------------------------


def what_stays(act: Any) -> Any:
    """A story: doing this many times leaves no more behind than doing it a few times."""

    async def story(sim: Simulation) -> list[str]:
        few = Policy(unread_kept=10, intents_kept=10)  # Both stay for a while, so many at most.
        pile = await sim.runtime("ann", policy=few).space("s", user="ann", session="x").open(Pile, "p")
        other = await sim.runtime("bob", policy=few).space("s", user="ann", session="x").open(Pile, "p")
        counts = []
        for times in (30, 90):
            for n in range(times):
                await act(pile, other, f"{times} {n}", n)
            await sim.settle()
            await sim.advance(seconds=10)
            await sim.settle()
            counts.append(living())
        grown = {
            kind: (counts[0][kind], counts[1][kind]) for kind in counts[1] if counts[1][kind] > counts[0][kind] + 8
        }
        return [f"{kind.__name__}: {before}, then {after}" for kind, (before, after) in grown.items()]

    return story


async def twice(pile: Pile, other: Pile, id: str, n: int) -> None:
    await pile.add.options(id=id).send(n)
    await other.add.options(id=id).send(n)


async def refused(pile: Pile, other: Pile, id: str, n: int) -> None:
    await outcome(pile.refuse.send())


async def kept(pile: Pile, other: Pile, id: str, n: int) -> None:
    await pile.add.options(durable=True).send(n)


async def posting(pile: Pile, other: Pile, id: str, n: int) -> None:
    await pile.resend.send(n)


async def launching(pile: Pile, other: Pile, id: str, n: int) -> None:
    await outcome(pile.launch_and_refuse.send())


async def colliding(pile: Pile, other: Pile, id: str, n: int) -> None:
    await outcomes(pile.count.send(), other.count.send())


@pytest.mark.parametrize("act", [twice, refused, kept, posting, launching, colliding])
def test_events_that_have_their_end_leave_nothing_in_memory(act: Any) -> None:
    assert told(what_stays(act)) == []
