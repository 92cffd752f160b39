"""What came of an event is no wider than what it stood on, in whatever space that was, and is kept for its time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater import Cell, EventExpiredError, Piece, Policy, Refused, cell, given, handler
from headwater.clock import VirtualClock
from headwater.data.patch import append
from headwater.data.value import freeze
from headwater.engine import ACCESS
from headwater.protocol.commit import SentEvent
from headwater.protocol.messages import Query
from headwater.runtime import LocalDirectory, Runtime
from headwater.server import new_key, new_token
from tests.scenario.events_kit import RECEIPTS, given_id
from tests.unit.runtime.kit import address, run, serving

SECRET = "vault code 1234"
PAGE = 100
"""How many receipts are looked at together."""


class Safe(Piece, name="results.Safe"):
    code: Cell[str] = cell(default="")

    @handler
    def put(self, text: str) -> None:
        self.code.set(text)


class Peek(Piece, name="results.Peek"):
    code: Cell[str] = given()
    looks: Cell[int] = cell(default=0)

    @handler
    def look(self) -> str:
        self.looks.increment()
        return self.code.get()

    @handler
    def say_no(self) -> None:
        raise Refused(f"not with {self.code.get()}")

    @handler
    def count(self) -> int:
        return self.looks.get()


class Note(Piece, name="results.Note"):
    draft: Cell[str] = cell(default="", scope="session")

    @handler
    def write(self, text: str) -> str:
        self.draft.set(text)
        return text

    @handler
    def plain(self, text: str) -> str:
        return text


async def receipts(rt: Runtime, scope: str = "space", space: str = "s") -> list[Any]:
    """What this connection can read of them."""
    channel = rt.channel(space)
    assert channel is not None
    found: list[Any] = []
    after: str | None = RECEIPTS
    while after is not None:  # A page may have nothing but what was deleted.
        answer = await channel.driver.query(Query(0, scope, after=after, limit=100))
        found += [state.get() for state in answer.documents if state.doc.id.startswith(RECEIPTS)]
        after = answer.next
    return found


async def grant(rt: Runtime, space: str, role: str, name: str) -> None:
    channel = rt.channel(space)
    assert channel is not None
    await channel.land(lambda made: made.write(ACCESS, append((role,), [name])), node="grant")


async def peeking(ann: Runtime) -> Peek:
    safe = await ann.space("vault", user="ann").open(Safe, "v")
    await safe.put.send(SECRET)
    return await ann.space("s", user="ann").open(Peek(code=safe.code), "p")


# ---- another space ---------------------------------------------------------------------------------------


def test_what_a_handler_returned_of_another_space_is_its_senders_alone(tmp_path: Path) -> None:
    new_key(tmp_path)

    async def work() -> None:
        async with serving(tmp_path, anyone_founds=True) as server:
            where = address(server)
            ann = await headwater.connect(where, token=new_token(tmp_path, "ann"))
            peek = await peeking(ann)
            assert await peek.look.send() == SECRET  # Before there is anybody else: they can read what was before them.
            await grant(ann, "s", "readers", "rita")
            assert await peek.look.options(id="a").send() == SECRET
            with pytest.raises(Refused, match=SECRET):
                await peek.say_no.options(id="a", durable=True).send()
            assert await peek.count.send() == 2
            rita = await headwater.connect(where, token=new_token(tmp_path, "rita"))
            rita.space("s", user="rita")
            seen = await receipts(rita)
            assert len(seen) == 4
            assert SECRET not in str(seen)
            assert [each["result"] for each in seen if each.get("result")] == [2]
            await rita.close()
            await ann.close()
            async with headwater.connect(where, token=new_token(tmp_path, "ann")) as again:
                peek = again.space("s", user="ann").piece(Peek, "p")
                assert await peek.look.options(id="a").send() == SECRET
                with pytest.raises(Refused, match=SECRET):
                    await peek.say_no.options(id="a").send()
                assert {row.state for row in again.intents()} == {"handled before"}

    run(work)


def test_what_is_read_of_a_space_that_everybody_may_read_is_for_all(tmp_path: Path) -> None:
    new_key(tmp_path)

    async def work() -> None:
        async with serving(tmp_path, anyone_founds=True) as server:
            ann = await headwater.connect(address(server), token=new_token(tmp_path, "ann"))
            peek = await peeking(ann)
            await grant(ann, "vault", "readers", "*")
            assert await peek.look.send() == SECRET
            assert [each["result"] for each in await receipts(ann)] == [SECRET]
            await ann.close()

    run(work)


def test_where_nobody_has_rights_of_their_own_a_second_sending_gets_it_after_a_restart(tmp_path: Path) -> None:
    async def work() -> None:
        for n in range(2):
            async with headwater.open(tmp_path) as rt:
                safe = await rt.space("vault").open(Safe, "v")
                if n == 0:
                    await safe.put.send(SECRET)
                peek = await rt.space("s").open(Peek(code=safe.code), "p")
                assert await peek.look.options(id="a").send() == SECRET
                assert await peek.looks.pull() == 1

    run(work)


def row_of(handler: str) -> SentEvent:
    """A stored event of ann's with an id that she gave."""
    id = given_id("ann", "", "a", f"s/p:{handler}")
    said = {"args": {}, "cls": "results.Peek", "name": "p", "user": "ann", "session": "", "at": 0, "id": id}
    return SentEvent(f"row of {handler}", f"s/p:{handler}", freeze(said), 0)


@pytest.mark.parametrize("taker", ["bob", "the application"])
def test_whoever_takes_it_up_leaves_an_answer_only_where_they_may(tmp_path: Path, taker: str) -> None:
    new_key(tmp_path)
    soon = Policy(grace_ms=1)

    async def taken_up(rt: Runtime, user: str) -> None:
        peek = rt.space("s", user=user).piece(Peek, "p")
        await rt.until(lambda: sum(each.ended_us is not None for each in rt.intents()) == 2)
        assert {each.stream: each.state for each in rt.intents()} == {"s/p:look": "landed", "s/p:say_no": "refused"}
        assert await peek.looks.pull() == 1
        await rt.durable()
        assert SECRET not in str(await receipts(rt))
        assert not await stored_in(rt)

    async def work() -> None:
        async with serving(tmp_path, anyone_founds=True) as server:
            where = address(server)
            ann = await headwater.connect(where, token=new_token(tmp_path, "ann"), policy=Policy(grace_ms=1e6))
            await peeking(ann)
            await grant(ann, "s", "writers", "bob")
            await grant(ann, "vault", "readers", "bob")
            channel = ann.channel("s")
            assert channel is not None
            rows = [row_of("look"), row_of("say_no")]
            await channel.land(lambda made: made.events.extend(rows), node="stored")
            await ann.close()
            if taker == "bob":
                async with headwater.connect(where, token=new_token(tmp_path, "bob"), policy=soon) as bob:
                    await taken_up(bob, "bob")
        if taker != "bob":
            async with headwater.open(tmp_path, policy=soon) as rt:
                await taken_up(rt, "")
        async with (
            serving(tmp_path, anyone_founds=True) as server,
            headwater.connect(address(server), token=new_token(tmp_path, "ann")) as again,
        ):
            peek = again.space("s", user="ann").piece(Peek, "p")
            if taker == "bob":
                for each in (peek.look, peek.say_no):
                    with pytest.raises(EventExpiredError, match="only to the user for which it was handled, or is not"):
                        await each.options(id="a").send()
            else:
                assert await peek.look.options(id="a").send() == SECRET
                with pytest.raises(Refused, match=SECRET):
                    await peek.say_no.options(id="a").send()

    run(work)


async def stored_in(rt: Runtime) -> list[str]:
    """The streams of what is still stored in the space."""
    channel = rt.channel("s")
    assert channel is not None
    return [each.stream for each in (await channel.driver.stored_events(limit=100)).events]


def test_whoever_says_that_they_are_somebody_else_is_handled_and_has_no_answer_kept(tmp_path: Path) -> None:
    new_key(tmp_path)

    async def work() -> None:
        async with serving(tmp_path, anyone_founds=True) as server:
            ann = await headwater.connect(address(server), token=new_token(tmp_path, "ann"))
            await peeking(ann)
            peek = ann.space("s", user="guest").piece(Peek, "p")
            sends = [peek.look.options(id=str(n)).send() for n in range(5)]
            assert await asyncio.gather(*sends) == [SECRET] * 5
            assert await peek.looks.pull() == 5
            with pytest.raises(EventExpiredError, match="only to the user for which it was handled, or is not kept"):
                await peek.look.options(id="0").send()
            assert SECRET not in str(await receipts(ann))
            assert await peek.looks.pull() == 5
            await ann.close()

    run(work)


# ---- windows that are closed -----------------------------------------------------------------------------


def test_what_is_kept_for_a_window_goes_after_its_time_although_the_window_is_closed(tmp_path: Path) -> None:
    day_us = 86_400_000_000

    async def work() -> None:
        clock = VirtualClock()
        async with (
            LocalDirectory(tmp_path / "data", synchronous="OFF", clock=clock) as data,
            Runtime(data, clock=clock, policy=Policy(retention_ms=day_us / 1_000)) as rt,
        ):

            async def left() -> list[int]:
                return [len(await receipts(rt, f"session:window w{window}")) for window in range(12)]

            counts = [PAGE + 3, *[2] * 11]
            for window in range(12):
                note = rt.space("s", user="ann", session=f"w{window}").piece(Note, "n")
                for n in range(counts[window]):
                    await note.write.options(id=str(n)).send(f"{window} {n}")
                    await note.write.send("Nobody sends this again.")
            assert await left() == counts
            clock.advance(day_us // 2)
            last = rt.space("s", user="ann", session="w11").piece(Note, "n")
            await last.write.options(id="young").send("young")
            clock.advance(day_us * 3 // 4)
            other = rt.space("s", user="ann", session="other").piece(Note, "n")
            for _ in range(2):  # As many as are swept at once, and the rest.
                await other.plain.send("x")
                await rt.until(lambda: not len(rt.tasks))
            assert await left() == [0] * 11 + [1]
            clock.advance(day_us * 2)
            await other.plain.send("x")
            await rt.until(lambda: not len(rt.tasks))
            assert await left() == [0] * 12

    run(work)
