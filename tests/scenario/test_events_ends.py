"""How events end: withdrawn, expired, closed, taken up; and what the table of intents and the sender are told."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from datetime import timedelta
from itertools import count
from typing import Any

import pytest

from headwater import Cell, Piece, Policy, Refused, SessionExpiredError, cell, handler
from headwater.data.value import freeze
from headwater.errors import EventExpiredError, HandlerFailed
from headwater.protocol.commit import SentEvent
from headwater.testing import Simulation
from tests.scenario.events_kit import (
    RECEIPTS,
    Front,
    commits,
    documents,
    durable,
    outcome,
    outcomes,
    read,
    stored,
    told,
)

LATER = timedelta(seconds=30)


class Box(Piece, name="ends.Box"):
    seen: Cell[tuple[str, ...]] = cell(default=())

    @handler
    def put(self, text: str) -> str:
        self.seen.push(text)
        return f"put {text}"

    @handler
    def put_later(self, text: str) -> None:
        self.put.post_at(LATER, text)

    @handler
    def post_and_withdraw(self, text: str) -> bool:
        return self.put.post(text).withdraw()

    @handler
    def no(self) -> None:
        raise Refused("no")

    @handler
    def broken(self) -> None:
        raise KeyError("lost")


async def begun(sim: Simulation) -> Box:
    box = await sim.runtime("ann").space("s").open(Box, "b")
    sim.runtime("bob").space("s")
    await sim.settle()
    return box


async def quiet(sim: Simulation) -> None:
    """Long enough for everything that was left behind to be taken up."""
    for _ in range(3):
        await sim.settle()
        await sim.advance(seconds=15)
    await sim.settle()


def finally_there(sim: Simulation, box: Box, expected: object) -> list[str]:
    found, left = durable(sim, box, "seen"), stored(sim)
    return [] if (found, left) == (expected, []) else [f"{found} is there, and {left} is stored"]


def receipts_of(sim: Simulation) -> int:
    """How many receipts there are."""
    found: int = read(sim, lambda engines: len(documents(engines["s"], RECEIPTS)))
    return found


# ---- withdrawn ---------------------------------------------------------------------------------------------


def withdrawn(pause_s: float | None, is_behind: bool, **options: Any) -> Any:
    async def story(sim: Simulation) -> list[str]:
        with Front(sim) as front:
            box = await begun(sim)
            front.reject("put", 5 if is_behind else 0)
            if is_behind:
                box.put.post("first")
            intent = box.put.options(**options).post("x")
            if pause_s is not None:
                await sim.advance(seconds=pause_s)
            is_withdrawn = intent.withdraw()
            await quiet(sim)
        first = ("first",) if is_behind else ()
        rows = [row.state for row in sim.runtime("ann").intents()]
        expected = sorted([*("landed" for _ in first), "withdrawn" if is_withdrawn else "landed"])
        wrong = [] if sorted(rows) == expected else [f"the table says {rows}"]
        seen = durable(sim, box, "seen") or ()
        if sorted(seen) != sorted(first if is_withdrawn else (*first, "x")) or stored(sim):
            wrong.append(f"{seen} is there, and {stored(sim)} is stored")
        return wrong

    return story


PAUSES = pytest.mark.parametrize("pause_s", [None, 0, 0.0005, 0.001, 0.002])
BEHIND = pytest.mark.parametrize("is_behind", [False, True], ids=["in front", "behind another one"])


@PAUSES
@BEHIND
def test_an_event_that_is_withdrawn_is_never_handled_and_one_that_is_not_is(
    pause_s: float | None, is_behind: bool
) -> None:
    assert told(withdrawn(pause_s, is_behind)) == []


@PAUSES
@BEHIND
def test_a_durable_event_that_is_withdrawn_is_never_handled(pause_s: float | None, is_behind: bool) -> None:
    assert told(withdrawn(pause_s, is_behind, durable=True)) == []


@pytest.mark.parametrize("pause_s", [None, 0.001, 5])
def test_what_is_due_later_can_be_withdrawn_until_then(pause_s: float | None) -> None:
    async def story(sim: Simulation) -> list[str]:
        box = await begun(sim)
        intent = box.put.post_at(LATER, "x")
        if pause_s is not None:
            await sim.advance(seconds=pause_s)
        is_withdrawn = intent.withdraw()
        await quiet(sim)
        return ([] if is_withdrawn else ["it could not be withdrawn"]) + finally_there(sim, box, None)

    assert told(story) == []


def test_a_follow_up_can_be_withdrawn_in_the_handler_that_posted_it() -> None:
    async def story(sim: Simulation) -> list[str]:
        box = await begun(sim)
        answer = await box.post_and_withdraw.send("x")
        await quiet(sim)
        return ([] if answer is True else [f"told {answer}"]) + finally_there(sim, box, None)

    assert told(story) == []


def test_cancelling_an_awaited_send_does_not_withdraw_it() -> None:
    async def story(sim: Simulation) -> list[str]:
        box = await begun(sim)
        sent = asyncio.ensure_future(box.put.send("x"))
        await asyncio.sleep(0)
        sent.cancel()
        await quiet(sim)
        return finally_there(sim, box, ("x",))

    assert told(story) == []


# ---- due later ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("crashes", ["", "ann", "server"])
@pytest.mark.parametrize("inside", [False, True])
def test_what_is_due_later_is_handled_then_and_once_whoever_is_there(crashes: str, inside: bool) -> None:
    async def story(sim: Simulation) -> list[str]:
        box = await begun(sim)
        began = sim.now()
        if inside:
            await box.put_later.send("x")
        else:
            box.put.post_at(LATER, "x")
            await sim.runtime("ann").durable()
        await sim.settle()
        if crashes:
            await sim.crash(crashes)
        await sim.advance(until=began + LATER - timedelta(seconds=1))
        early = durable(sim, box, "seen")
        await sim.advance(seconds=3)
        on_time = durable(sim, box, "seen")
        await quiet(sim)
        wrong = [] if (early, on_time) == (None, ("x",)) else [f"{early} before, {on_time} after it was due"]
        return wrong + finally_there(sim, box, ("x",))

    assert told(story) == []


# ---- receipts ----------------------------------------------------------------------------------------------


def test_a_redelivery_gets_the_first_result_from_any_runtime_and_after_any_restart() -> None:
    async def story(sim: Simulation) -> list[str]:
        box = await begun(sim)
        answers = []
        for who, crashes in (("ann", "ann"), ("bob", "server"), ("ann", ""), ("cy", "")):
            box = sim.runtime(who).space("s", user="dee", session="x").piece(Box, "b")
            answers.append(await box.put.options(id="k").send("x"))
            if crashes:
                await sim.crash(crashes)
        await quiet(sim)
        return ([] if answers == ["put x"] * 4 else [f"told {answers}"]) + finally_there(sim, box, ("x",))

    assert told(story) == []


# ---- no and failure ----------------------------------------------------------------------------------------


def test_a_refusal_reaches_the_sender_and_nobody_else_and_a_defect_both() -> None:
    async def story(sim: Simulation) -> list[str]:
        box = await begun(sim)
        no, broken = await outcomes(box.no.send(), box.broken.send())
        await sim.settle()
        loud = [type(each.error).__name__ for each in sim.failures()]
        wrong = [] if type(no) is Refused and no.reason == "no" else [f"told {no!r}"]
        if not isinstance(broken, HandlerFailed) or not isinstance(broken.__cause__, KeyError):
            wrong.append(f"told {broken!r}")
        if loud != ["KeyError"]:
            wrong.append(f"the error channel heard {loud}")
        states = [row.state for row in sim.runtime("ann").intents()]
        return wrong if states == ["refused", "failed"] else [*wrong, f"the table says {states}"]

    assert told(story) == []


@pytest.mark.parametrize("name", ["no", "broken"])
def test_a_stored_event_that_is_refused_or_fails_is_not_taken_up_again(name: str) -> None:
    async def story(sim: Simulation) -> list[str]:
        box = await begun(sim)
        await outcome(getattr(box, name).options(durable=True).send())
        before = sim.attempts(getattr(Box, name))
        await quiet(sim)
        after = sim.attempts(getattr(Box, name))
        return ([] if after == before else [f"it was tried {after - before} times more"]) + finally_there(
            sim, box, None
        )

    assert told(story) == []


# ---- closed ------------------------------------------------------------------------------------------------


def test_a_runtime_that_is_killed_answers_everybody_and_leaves_only_what_was_stored() -> None:
    async def story(sim: Simulation) -> list[str]:
        with Front(sim) as front:
            box = await begun(sim)
            front.reject("put", 1_000)
            plain = asyncio.ensure_future(outcome(box.put.send("plain")))
            stored_one = asyncio.ensure_future(outcome(box.put.options(durable=True).send("stored")))
            await sim.advance(seconds=0.5)
            await sim.crash("ann")
            answers = [await plain, await stored_one]
        await quiet(sim)
        wrong = [] if all(isinstance(each, SessionExpiredError) for each in answers) else [f"told {answers}"]
        return wrong + finally_there(sim, box, ("stored",))

    assert told(story) == []


def test_what_is_sent_without_a_connection_lands_when_there_is_one_on_what_is_there_then() -> None:
    async def story(sim: Simulation) -> list[str]:
        box = await begun(sim)
        with sim.offline("ann"):
            sent = [asyncio.ensure_future(box.put.send(text)) for text in ("a", "b", "c")]
            await sim.advance(seconds=40)
            if any(each.done() for each in sent):
                return [f"told {[each.result() for each in sent if each.done()]} without a connection"]
            await sim.runtime("bob").space("s").piece(Box, "b").put.send("of bob")
        answers = await asyncio.gather(*sent)
        await quiet(sim)
        wrong = [] if answers == ["put a", "put b", "put c"] else [f"told {answers}"]
        if len(commits(sim, "s", ":put")) != 4:
            wrong.append("not four landed")
        return wrong + finally_there(sim, box, ("of bob", "a", "b", "c"))

    assert told(story) == []


def test_a_conflict_is_tried_again_after_a_gap_that_is_longer_than_the_window() -> None:
    """Without a connection nobody is in the way, and nothing can be tried: that time does not count."""

    async def story(sim: Simulation) -> list[str]:
        with Front(sim) as front:
            box = await begun(sim)
            front.reject("put", 1_000)
            sent = asyncio.ensure_future(outcome(box.put.send("x")))
            await sim.advance(seconds=0.01)
            with sim.offline("ann"):
                front.reject("put", 0)
                await sim.advance(seconds=100)
            answer = await sent
        await quiet(sim)
        return ([] if answer == "put x" else [f"told {answer!r}"]) + finally_there(sim, box, ("x",))

    assert told(story) == []


# ---- long ago ----------------------------------------------------------------------------------------------

LONG = timedelta(days=8)
"""Longer than receipts are kept."""


async def years(sim: Simulation, until: timedelta) -> None:
    """Much time, an hour at a time."""
    end = sim.now() + until
    while sim.now() < end:
        await sim.advance(until=min(end, sim.now() + timedelta(hours=6)))


def test_what_is_due_after_the_retention_is_handled_then() -> None:
    async def story(sim: Simulation) -> list[str]:
        box = await begun(sim)
        box.put.post_at(LONG, "x")
        await sim.settle()
        await years(sim, LONG + timedelta(minutes=1))
        await quiet(sim)
        return finally_there(sim, box, ("x",)) + [str(each.error) for each in sim.failures()]

    assert told(story) == []


def test_what_was_stored_longer_ago_than_the_retention_is_handled_by_whoever_comes() -> None:
    async def story(sim: Simulation) -> list[str]:
        with Front(sim) as front:
            box = await begun(sim)
            front.reject("put", 1_000_000)
            sent = asyncio.ensure_future(outcome(box.put.options(durable=True).send("x")))
            await sim.advance(seconds=0.5)
            await sim.crash("ann")
            await sim.crash("bob")
            await sent
        await years(sim, LONG)
        sim.runtime("cy").space("s")
        await quiet(sim)
        return finally_there(sim, box, ("x",)) + [str(each.error) for each in sim.failures() if "no conn" in str(each)]

    assert told(story) == []


def test_receipts_go_after_the_retention_and_their_events_are_refused_as_expired() -> None:
    """What is deleted still counts: no event is handled again because nobody remembers it."""

    async def story(sim: Simulation) -> list[str]:
        rt = sim.runtime("ann", policy=Policy(retention_ms=60_000))
        box = await rt.space("s", user="dee", session="x").open(Box, "b")
        await box.put.options(id="k").send("x")
        for n in range(50):
            await box.put.send(f"{n}")
        await sim.advance(seconds=120)
        before = receipts_of(sim)
        await outcomes(*(box.put.send(f"late {n}") for n in range(200)))
        await sim.settle()
        kept = receipts_of(sim)
        again = await outcome(box.put.options(id="k").send("x"))
        await sim.settle()
        wrong = [] if (before, kept) == (51, 200) else [f"{before} receipts before, {kept} in the end"]
        if not isinstance(again, EventExpiredError):
            wrong.append(f"told {again!r}")
        handled = len(durable(sim, box, "seen"))
        return wrong if handled == 251 else [*wrong, f"{handled} were handled"]

    assert told(story) == []


# ---- a class that nobody has -------------------------------------------------------------------------------


IMPORTED = count()
"""Each class that is imported late has a name of its own: a class stays imported until the process ends."""


def import_late(name: str) -> type[Piece]:
    class Late(Piece, name=name):
        seen: Cell[tuple[str, ...]] = cell(default=())

        @handler
        def put(self, text: str) -> None:
            self.seen.push(text)

    return Late


def test_stored_event_of_a_class_that_is_not_imported_is_parked_until_it_is() -> None:
    async def story(sim: Simulation) -> list[str]:
        cls = f"ends.Late{next(IMPORTED)}"
        said = {"args": {"text": "x"}, "cls": cls, "name": "late", "user": "", "session": "", "at": 0}
        left = SentEvent("e1", "s/late:put", freeze(said), 0)
        ann = sim.runtime("ann")
        ann.space("s")
        await sim.settle()
        channel = ann.channel("s")
        assert channel is not None
        await channel.land(lambda made: made.events.append(left), node="left behind")
        await sim.crash("ann")
        rt = sim.runtime("cy")
        rt.space("s")
        await sim.advance(seconds=100)
        parked = [(row.stream, row.error or row.waits) for row in rt.intents() if row.state == "parked"]
        wrong = [] if stored(sim) == ["s/late:put"] else [f"{stored(sim)} is stored"]
        if [stream for stream, _ in parked] != ["s/late:put"] or "not imported" not in parked[0][1]:
            wrong.append(f"parked is {parked}")
        late = rt.space("s").piece(import_late(cls), "late")
        await sim.advance(seconds=100)
        await quiet(sim)
        found = durable(sim, late, "seen"), stored(sim)
        return wrong if found == (("x",), []) else [*wrong, f"{found} is there, and stored"]

    assert told(story) == []


# ---- withdrawn while it loads ------------------------------------------------------------------------------


async def withdraw(
    sim: Simulation, named: Box, pause_s: float, is_offline: bool, options: dict[str, Any]
) -> tuple[list[str], bool]:
    """What is wrong with it, and whether it was withdrawn."""
    intent = named.put.options(**options).post("x")
    named.put.post("behind")
    await sim.advance(seconds=pause_s)
    is_withdrawn = intent.withdraw()
    wrong = [] if is_withdrawn == intent.withdraw() else ["it is withdrawn and it is not"]
    if is_offline:
        await sim.advance(seconds=1)
        states = [row.state for row in sim.runtime("ann").intents() if row.id == intent.id]
        if not options and states != ["withdrawn"]:
            wrong.append(f"without a connection it is {states}")
    return wrong, is_withdrawn


def withdrawn_while_loading(pause_s: float, is_offline: bool, **options: Any) -> Any:
    async def story(sim: Simulation) -> list[str]:
        box = await sim.runtime("bob").space("s").open(Box, "b")
        await sim.settle()
        ann = sim.runtime("ann")
        named = ann.space("s").piece(Box, "b")  # Only named: what its handler reads has to come first.
        line = sim.offline("ann") if is_offline else nullcontext()
        with line:
            wrong, is_withdrawn = await withdraw(sim, named, pause_s, is_offline, options)
        await quiet(sim)
        expected_states = sorted(["landed", "withdrawn" if is_withdrawn else "landed"])
        states = sorted(row.state for row in ann.intents())
        if states != expected_states:
            wrong.append(f"the table says {states}")
        return wrong + finally_there(sim, box, ("behind",) if is_withdrawn else ("x", "behind"))

    return story


@pytest.mark.parametrize("options", [{}, {"durable": True}], ids=["plain", "durable"])
@pytest.mark.parametrize("is_offline", [False, True], ids=["connected", "offline"])
@pytest.mark.parametrize("pause_s", [0, 0.0002, 0.0005, 0.001, 0.002, 0.004])
def test_what_is_withdrawn_while_it_loads_is_never_handled_and_holds_up_nobody(
    pause_s: float, is_offline: bool, options: dict[str, Any]
) -> None:
    assert told(withdrawn_while_loading(pause_s, is_offline, **options)) == []


# ---- due soon ----------------------------------------------------------------------------------------------


def test_what_is_due_soon_is_handled_then_and_not_after_the_grace() -> None:
    async def story(sim: Simulation) -> list[str]:
        box = await begun(sim)
        box.put.post_at(timedelta(seconds=1), "soon")
        await sim.advance(seconds=0.9)
        early = durable(sim, box, "seen")
        await sim.advance(seconds=0.5)
        await sim.settle()
        return ([f"{early} is there before"] if early else []) + finally_there(sim, box, ("soon",))

    assert told(story) == []


def test_what_somebody_else_awaits_under_the_same_id_is_not_withdrawn() -> None:
    async def story(sim: Simulation) -> list[str]:
        await begun(sim)
        named = sim.runtime("bob").space("s").piece(Box, "b")
        sent = asyncio.ensure_future(named.put.options(id="k").send("x"))
        await asyncio.sleep(0)
        intent = named.put.options(id="k").post("x")
        is_withdrawn = intent.withdraw()
        await sim.settle()
        answer = await outcome(sent)
        return [] if (is_withdrawn, answer) == (False, "put x") else [f"{is_withdrawn}, and {answer}"]

    assert told(story) == []
