"""What a handler launches lives and dies with the attempt that lands: the fixtures of the lineage text."""

from __future__ import annotations

from headwater import Cell, Handler, HeadwaterError, Input, Link, Piece, Policy, cell, effect, given, handler, link
from headwater.testing import Simulation
from tests.scenario.events_kit import Front, commits, durable, forbidden, outcome, stored, told

CALLS: list[str] = []
SHOWN: list[int] = []


class Sub(Piece, name="lineage.Sub"):
    n: Input[int] = given()

    @effect
    def show(self) -> None:
        SHOWN.append(self.n.get())


class Chain(Piece, name="lineage.Chain"):
    tries: Cell[int] = cell(default=0)
    n: Cell[int] = cell(default=0)
    seen: Cell[tuple[str, ...]] = cell(default=())
    far: Cell[Link[Chain] | None] = cell(default=None)

    @handler
    def first(self) -> None:
        """Posts a follow-up that says which attempt it is of."""
        CALLS.append("first")
        attempt = CALLS.count("first")
        self.tries.set(attempt)
        self.second.post(f"of attempt {attempt}")

    @handler
    def second(self, text: str) -> None:
        """Knows its payload and nothing else: no read ties it to what posted it."""
        CALLS.append("second")
        self.seen.push(text)

    @handler
    def reading(self) -> None:
        CALLS.append("reading")
        self.tries.set(self.tries.get() + 1)
        self.looking.post()

    @handler
    def looking(self) -> None:
        CALLS.append("looking")
        self.seen.push(f"tries {self.tries.get()}")

    @handler
    def starting(self) -> None:
        CALLS.append("starting")
        self.tries.increment()
        self.ctx.launch(Sub(n=self.n))

    @handler
    def away(self) -> None:
        CALLS.append("away")
        self.tries.set(CALLS.count("away"))
        there = self.far.get()
        assert there is not None
        self.ctx.follow(there).second.post(f"of attempt {CALLS.count('away')}")


async def begun(sim: Simulation) -> Chain:
    """A piece that everybody has seen."""
    CALLS.clear()
    SHOWN.clear()
    chain = await sim.runtime("ann").space("s").open(Chain, "c")
    await sim.settle()
    return chain


def once(what: str, found: object, expected: object) -> list[str]:
    return [] if found == expected else [f"{what} is {found!r}, not {expected!r}"]


# ---- duplication -----------------------------------------------------------------------------------------


async def a_parent_that_is_tried_twice(sim: Simulation) -> list[str]:
    with Front(sim) as front:
        chain = await begun(sim)
        front.reject("first", 1)
        await chain.first.send()
        await sim.settle()
        return [
            *once("attempts of the parent", CALLS.count("first"), 2),
            *once("what follow-ups have written", durable(sim, chain, "seen"), ("of attempt 2",)),
            *once("commits of follow-ups", len(commits(sim, "s", ":second")), 1),
            *once("what is stored", stored(sim), []),
        ]


def test_a_retried_parent_has_one_follow_up_with_the_payload_of_the_attempt_that_landed() -> None:
    assert told(a_parent_that_is_tried_twice) == []


async def a_follow_up_that_reads_what_its_parent_wrote(sim: Simulation) -> list[str]:
    with Front(sim) as front:
        chain = await begun(sim)
        front.reject("reading", 2)
        await chain.reading.send()
        await sim.settle()
        return [
            *once("what follow-ups have written", durable(sim, chain, "seen"), ("tries 1",)),
            *once("the counter", durable(sim, chain, "tries"), 1),
        ]


def test_a_follow_up_that_reads_its_parents_writes_is_handled_once() -> None:
    assert told(a_follow_up_that_reads_what_its_parent_wrote) == []


# ---- permanent failure -----------------------------------------------------------------------------------


async def a_parent_that_fails_for_good(sim: Simulation) -> list[str]:
    with Front(sim) as front:
        chain = await begun(sim)
        front.reject("first", 100, forbidden)
        answer = await outcome(chain.first.send())
        await sim.settle()
        rt = sim.runtime("ann")
        ends = {row.stream.rpartition(":")[2]: row.state for row in rt.intents()}
        return [
            *once("attempts of the parent", CALLS.count("first"), 1),
            *once("the sender's answer", isinstance(answer, HeadwaterError), True),
            *once("what follow-ups have written", durable(sim, chain, "seen"), None),
            *once("commits of follow-ups", len(commits(sim, "s", ":second")), 0),
            *once("the end of the parent", ends.get("first"), "failed"),
            *once("the end of the follow-up", ends.get("second", "dropped"), "dropped"),
            *once("what is stored", stored(sim), []),
        ]


def test_nothing_that_a_failed_parent_posted_is_handled() -> None:
    assert told(a_parent_that_fails_for_good) == []


async def a_parent_that_does_not_converge(sim: Simulation) -> list[str]:
    sim.runtime("ann", policy=Policy(retry_window_ms=200))
    with Front(sim) as front:
        chain = await begun(sim)
        front.reject("first", 10_000)
        answer = await outcome(chain.first.send())
        await sim.settle()
        return [
            *once("the sender's answer", type(answer).__name__, "CommitConvergenceError"),
            *once("what follow-ups have written", durable(sim, chain, "seen"), None),
            *once("what is stored", stored(sim), []),
        ]


def test_nothing_that_a_parent_which_does_not_converge_posted_is_handled() -> None:
    assert told(a_parent_that_does_not_converge) == []


async def a_parent_that_is_sent_with_no_retries(sim: Simulation) -> list[str]:
    with Front(sim) as front:
        chain = await begun(sim)
        front.reject("first", 1)
        answer = await outcome(chain.first.options(retries=0).send())
        await sim.settle()
        return [
            *once("the sender's answer", type(answer).__name__, "ConflictError"),
            *once("attempts of the parent", CALLS.count("first"), 1),
            *once("what follow-ups have written", durable(sim, chain, "seen"), None),
        ]


def test_with_no_retries_a_conflict_is_the_end_of_an_event_and_of_what_it_posted() -> None:
    assert told(a_parent_that_is_sent_with_no_retries) == []


# ---- pieces ------------------------------------------------------------------------------------------------


async def a_launch_that_fails_for_good(sim: Simulation) -> list[str]:
    with Front(sim) as front:
        chain = await begun(sim)
        front.reject("starting", 100, forbidden)
        answer = await outcome(chain.starting.send())
        await sim.settle()
        before = len(SHOWN)
        chain.n.set(7)
        await sim.settle()
        return [
            *once("the sender's answer", isinstance(answer, HeadwaterError), True),
            *once("what the launched piece showed afterwards", SHOWN[before:], []),
        ]


def test_a_piece_that_was_launched_by_a_failed_attempt_is_stopped() -> None:
    assert told(a_launch_that_fails_for_good) == []


async def a_launch_that_is_tried_twice(sim: Simulation) -> list[str]:
    with Front(sim) as front:
        chain = await begun(sim)
        front.reject("starting", 3)
        await chain.starting.send()
        await sim.settle()
        before = len(SHOWN)
        chain.n.set(7)
        await sim.settle()
        return [
            *once("attempts", front.judged["starting"], 4),
            *once("what the launched piece showed afterwards", SHOWN[before:], [7]),
        ]


def test_a_piece_whose_launch_is_tried_again_runs_once() -> None:
    assert told(a_launch_that_is_tried_twice) == []


async def a_duplicate_that_loses(sim: Simulation) -> list[str]:
    """Two runtimes are sent the same event; the loser's launch is the winner's piece, which goes on."""
    chain = await begun(sim)
    ann = sim.runtime("ann").space("s", user="cy", session="x").piece(Chain, "c")
    bob = sim.runtime("bob").space("s", user="cy", session="x").piece(Chain, "c")
    await ann.tries.pull()
    await bob.tries.pull()
    answers = [await outcome(each.starting.options(id="k").send()) for each in (ann, bob)]
    await sim.settle()
    before = len(SHOWN)
    chain.n.set(7)
    await sim.settle()
    return [
        *once("answers", answers, [None, None]),
        *once("handlings that landed", len(commits(sim, "s", ":starting")), 1),
        *once("whether the winner's piece goes on", 7 in SHOWN[before:], True),
    ]


def test_a_losing_duplicate_never_stops_the_winners_piece() -> None:
    assert told(a_duplicate_that_loses) == []


# ---- across spaces -----------------------------------------------------------------------------------------


async def two_spaces(sim: Simulation) -> tuple[Chain, Chain]:
    here = await begun(sim)
    there = await sim.runtime("ann").space("t").open(Chain, "d")
    here.far.set(link(there))
    await sim.settle()
    CALLS.clear()
    return here, there


async def a_follow_up_in_another_space(sim: Simulation) -> list[str]:
    with Front(sim) as front:
        here, there = await two_spaces(sim)
        front.reject("away", 1_000)
        here.away.post()
        await sim.advance(seconds=3)
        before = CALLS.count("second")
        front.reject("away", 0)
        await sim.settle()
        seen = durable(sim, there, "seen", "t")
        return [
            *once("whether the parent was tried again", front.rejected["away"] > 5, True),
            *once("dispatches before the origin was confirmed", before, 0),
            *once("what the follow-up has written", seen, (f"of attempt {CALLS.count('away')}",)),
            *once("what is stored", stored(sim), []),
        ]


def test_a_follow_up_in_another_space_waits_until_its_origin_is_confirmed() -> None:
    assert told(a_follow_up_in_another_space) == []


async def a_parent_in_another_space_that_fails(sim: Simulation) -> list[str]:
    with Front(sim) as front:
        here, there = await two_spaces(sim)
        front.reject("away", 100, forbidden)
        answer = await outcome(here.away.send())
        await sim.settle()
        return [
            *once("the sender's answer", isinstance(answer, HeadwaterError), True),
            *once("dispatches of the follow-up", CALLS.count("second"), 0),
            *once("what the follow-up has written", durable(sim, there, "seen", "t"), None),
        ]


def test_a_follow_up_in_another_space_is_never_dispatched_if_its_origin_fails() -> None:
    assert told(a_parent_in_another_space_that_fails) == []


async def an_idle_that_waits_for_a_follow_up_elsewhere(sim: Simulation) -> list[str]:
    """It is parked on a commit, which always has an end: waiting for it cannot go on for ever."""
    here, there = await two_spaces(sim)
    here.away.post()
    await sim.settle()
    return once("how much the follow-up has written", len(durable(sim, there, "seen", "t") or ()), 1)


def test_settling_waits_for_a_follow_up_in_another_space() -> None:
    assert told(an_idle_that_waits_for_a_follow_up_elsewhere) == []


# ---- a sender that dies ------------------------------------------------------------------------------------


async def a_sender_that_dies_after_its_commit(sim: Simulation) -> list[str]:
    """The origin is durable in one space; before its follow-up is handled in the other one, the process is gone."""
    here, there = await two_spaces(sim)
    keeper = sim.runtime("bob")
    for name in ("s", "t"):
        keeper.space(name)
    await sim.settle()
    with Front(sim) as front:
        front.reject("second", 1_000)
        here.away.post()
        await sim.advance(seconds=1)
        landed, attempts = len(commits(sim, "s", ":away")), CALLS.count("away")
        await sim.crash("ann")
    await sim.advance(seconds=20)
    await sim.settle()
    return [
        *once("commits of the origin", landed, 1),
        *once("what the follow-up has written", durable(sim, there, "seen", "t"), (f"of attempt {attempts}",)),
        *once("what is stored", stored(sim), []),
    ]


def test_another_runtime_takes_up_what_a_dead_one_has_stored() -> None:
    assert told(a_sender_that_dies_after_its_commit) == []


class Caller(Piece, name="lineage.Caller"):
    """A handler as an input: posting to it is a follow-up like any other."""

    done: Handler[[str], None] = given()

    @handler
    def call(self, text: str) -> None:
        self.done.post(text)


async def a_handler_that_was_given(sim: Simulation) -> list[str]:
    with Front(sim) as front:
        chain = await begun(sim)
        caller = await sim.runtime("ann").space("s").open(Caller(done=chain.second), "caller")
        front.reject("call", 2)
        await caller.call.send("x")
        await sim.settle()
        return once("what the follow-up has written", durable(sim, chain, "seen"), ("x",))


def test_posting_to_a_given_handler_is_a_follow_up() -> None:
    assert told(a_handler_that_was_given) == []
