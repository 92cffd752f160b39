"""What came of an event is for whoever may see what it stood on: a receipt tells nobody else."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater import Cell, EventExpiredError, HandlerFailed, Piece, Policy, Refused, cell, computed, handler
from headwater.clock import VirtualClock
from headwater.data.patch import append
from headwater.data.value import freeze
from headwater.engine import ACCESS
from headwater.protocol.commit import SentEvent
from headwater.protocol.messages import Query
from headwater.runtime import LocalDirectory, Runtime
from headwater.server import new_key, new_token
from headwater.testing import Simulation, simulated
from tests.scenario.events_kit import RECEIPTS
from tests.scenario.test_events_costs import Spent
from tests.unit.runtime.kit import address, run, serving

SECRET = "my secret"
SWEPT = 70
"""Events after which receipts that are over have been looked for, wherever the count began."""


class Diary(Piece, name="private.Diary"):
    mine: Cell[tuple[str, ...]] = cell(default=(), scope="user")
    draft: Cell[str] = cell(default="", scope="session")
    shared: Cell[tuple[str, ...]] = cell(default=())

    @computed(scope="user")
    def newest(self) -> str:
        return self.mine.get()[-1]

    @handler
    def write(self, text: str) -> str:
        self.mine.push(text)
        return text

    @handler
    def last(self) -> str:
        return self.mine.get()[-1]

    @handler
    def computed_last(self) -> str:
        return self.newest.get()

    @handler
    def no(self) -> None:
        raise Refused(f"not after {self.mine.get()[-1]}")

    @handler
    def broken(self) -> None:
        raise KeyError(self.mine.get()[-1])

    @handler
    def keep_draft(self, text: str) -> str:
        self.draft.set(text)
        return self.draft.get()

    n: Cell[int] = cell(default=0)

    @computed(debounce_ms=20_000)
    def slow(self) -> int:
        return self.n.get()

    @handler
    def take_slow(self) -> int:
        return self.slow.get()

    @handler
    def show_draft(self) -> None:
        self.shared.push(f"{self.ctx.user}: {self.draft.get()}")

    @handler
    def publish(self, text: str) -> str:
        self.shared.push(text)
        return text


async def receipts(rt: Runtime, scope: str = "space", space: str = "s") -> list[Any]:
    """What this connection can read of them."""
    channel = rt.channel(space)
    assert channel is not None
    answer = await channel.driver.query(Query(0, scope, after=RECEIPTS, limit=100))
    return [state.get() for state in answer.documents if state.doc.id.startswith(RECEIPTS)]


def test_what_a_handler_returned_of_what_is_one_users_alone_is_read_by_nobody_else(tmp_path: Path) -> None:
    new_key(tmp_path)

    async def work() -> None:
        async with serving(tmp_path, anyone_founds=True) as server:
            where = address(server)
            ann = await headwater.connect(where, token=new_token(tmp_path, "ann"))
            diary = await ann.space("s", user="ann").open(Diary, "d")
            channel = ann.channel("s")
            assert channel is not None
            await channel.land(lambda made: made.write(ACCESS, append(("readers",), ["rita"])), node="grant")
            assert await diary.write.send(SECRET) == SECRET
            assert await diary.last.options(id="a").send() == SECRET
            assert await diary.computed_last.options(id="a").send() == SECRET
            for refused in (diary.no, diary.broken):
                with pytest.raises((Refused, HandlerFailed), match=SECRET):
                    await refused.options(id="a", durable=True).send()
            assert await diary.publish.send("for all") == "for all"
            rita = await headwater.connect(where, token=new_token(tmp_path, "rita"))
            rita.space("s", user="rita")
            seen = await receipts(rita)
            assert len(seen) == 6
            assert SECRET not in str(seen)
            assert [each["result"] for each in seen if each.get("result")] == ["for all"]
            with pytest.raises(headwater.LoadError, match="is not for 'rita'"):
                await receipts(rita, "user:ann")
            await rita.close()
            await ann.close()
            # Whoever sends it again gets what came of it, in whatever session.
            async with headwater.connect(where, token=new_token(tmp_path, "ann")) as again:
                other = again.space("s", user="ann").piece(Diary, "d")
                assert await other.last.options(id="a").send() == SECRET
                assert await other.computed_last.options(id="a").send() == SECRET
                with pytest.raises(Refused, match=f"not after {SECRET}"):
                    await other.no.options(id="a").send()
                with pytest.raises(HandlerFailed, match=f"failed before: HandlerFailed.*{SECRET}"):
                    await other.broken.options(id="a").send()
                assert {row.state for row in again.intents()} == {"handled before"}

    run(work)


def test_what_stood_on_one_session_is_for_that_session_alone(tmp_path: Path) -> None:
    new_key(tmp_path)

    async def work() -> None:
        async with serving(tmp_path, anyone_founds=True) as server:
            where = address(server)
            async with headwater.connect(where, token=new_token(tmp_path, "ann")) as ann:
                diary = ann.space("s", user="ann").piece(Diary, "d")
                assert await diary.keep_draft.options(id="a").send(SECRET) == SECRET
                assert await diary.keep_draft.options(id="a").send("other") == SECRET
                assert SECRET not in str(await receipts(ann))
            async with headwater.connect(where, token=new_token(tmp_path, "ann")) as again:
                other = again.space("s", user="ann").piece(Diary, "d")
                with pytest.raises(EventExpiredError, match="only to the session for which it was handled"):
                    await other.keep_draft.options(id="a").send("third")

    run(work)


@pytest.mark.parametrize("taker", ["ann", "the application"])
def test_whoever_stores_an_event_is_in_nobody_elses_session(tmp_path: Path, taker: str) -> None:
    new_key(tmp_path)
    soon = Policy(grace_ms=1)

    def row(id: str, session: str) -> SentEvent:
        said = {"args": {}, "cls": "private.Diary", "name": "d", "user": "eve", "session": session, "at": 0}
        return SentEvent(id, "s/d:show_draft", freeze(said), 0)

    async def shown(rt: Runtime, count: int) -> tuple[str, ...]:
        diary = rt.space("s").piece(Diary, "d")
        await rt.until(lambda: sum(each.ended_us is not None for each in rt.intents()) >= count)
        await rt.durable()
        found: tuple[str, ...] = await diary.shared.pull()
        return found

    async def work() -> None:
        async with serving(tmp_path, anyone_founds=True) as server:
            where = address(server)
            ann = await headwater.connect(where, token=new_token(tmp_path, "ann"), policy=soon)
            await ann.space("s", user="ann").piece(Diary, "d").keep_draft.send(SECRET)
            channel = ann.channel("s")
            assert channel is not None
            await channel.land(lambda made: made.write(ACCESS, append(("writers",), ["eve"])), node="grant")
            anns = channel.driver.session.key
            eve = await headwater.connect(where, token=new_token(tmp_path, "eve"), policy=Policy(grace_ms=1e6))
            theirs = (eve.space("s", user="eve"), eve.channel("s"))[1]
            assert theirs is not None
            await theirs.driver.opened()
            await theirs.land(lambda made: made.events.append(row("forged", anns)), node="as if it were ann's")
            if taker == "ann":
                await ann.until(lambda: len(ann.intents()) == 2 and ann.intents()[-1].ended_us is not None)
                assert SECRET not in str(await ann.space("s").piece(Diary, "d").shared.pull())
            else:
                await ann.close()
                await eve.space("s", user="eve").piece(Diary, "d").keep_draft.send("of eve's own")
                own = row("own", theirs.driver.session.key)
                await theirs.land(lambda made: made.events.append(own), node="eve's")
            await eve.close()
            await ann.close()
        if taker != "ann":
            async with headwater.open(tmp_path, policy=soon) as rt:
                assert sorted(await shown(rt, 2)) == ["eve: ", "eve: of eve's own"]

    run(work)


def test_in_a_space_that_is_nowhere_but_here_a_second_sending_gets_it_too() -> None:
    async def work() -> None:
        async with Runtime() as rt:
            diary = await rt.space("s", user="ann").open(Diary, "d")
            first = diary.write.options(id="a")
            assert [await first.send(SECRET), await first.send("other")] == [SECRET, SECRET]
            assert diary.mine.get() == (SECRET,)

    run(work)


def test_both_go_after_the_retention(tmp_path: Path) -> None:
    day_us = 86_400_000_000

    async def work() -> None:
        clock = VirtualClock()
        async with (
            LocalDirectory(tmp_path / "data", synchronous="OFF", clock=clock) as data,
            Runtime(data, clock=clock, policy=Policy(retention_ms=day_us / 1_000)) as rt,
        ):
            diary = await rt.space("s", user="ann", session="x").open(Diary, "d")
            first = diary.write.options(id="k")
            await first.send(SECRET)
            for n in range(9):
                await diary.write.options(id=f"k{n}").send(f"{SECRET} {n}")
            assert (len(await receipts(rt)), len(await receipts(rt, "user:ann"))) == (10, 10)
            await diary.keep_draft.send(SECRET)  # Nobody can send that again: no answer is kept for anybody.
            assert await receipts(rt, "session:window x") == []
            clock.advance(2 * day_us)
            for n in range(SWEPT):
                await diary.write.options(id=f"then {n}").send(f"{n}")
                await rt.settled()
                await rt.until(lambda: not len(rt.tasks))
            for scope in ("space", "user:ann"):
                left = await receipts(rt, scope)
                assert len(left) == SWEPT
                assert SECRET not in str(left)
            with pytest.raises(EventExpiredError, match="its result is not kept"):
                await first.send("again")

    run(work)


@simulated(seeds=5)
async def test_whoever_waits_for_a_durable_event_is_told_although_another_runtime_took_it_up(sim: Simulation) -> None:
    diary = await sim.runtime("ann").space("s", user="ann").open(Diary, "d")
    await sim.runtime("bob").space("s", user="ann").open(Diary, "d")
    await diary.slow.pull()
    diary.n.set(1)
    held = asyncio.ensure_future(diary.take_slow.send())  # It holds up what is sent behind it.
    await sim.advance(seconds=0)
    sent = asyncio.ensure_future(diary.write.options(durable=True).send(SECRET))
    await sim.advance(seconds=12)
    assert {row.state for row in sim.runtime("bob").intents()} == {"landed"}
    assert (await held, await sent) == (1, SECRET)
    assert await diary.mine.pull() == (SECRET,)


@simulated(seeds=5)
async def test_it_costs_one_transaction_all_the_same(sim: Simulation) -> None:
    spent = Spent(sim)
    diary = await sim.runtime("ann").space("s", user="ann").open(Diary, "d")
    await diary.write.send("x")
    await sim.settle()
    spent.clear()
    assert await diary.last.send() == "x"
    await sim.settle()
    assert (spent.transactions, spent.syncs) == (1, 1)
