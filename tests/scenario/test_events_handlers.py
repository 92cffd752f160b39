"""Handlers: fresh reads, refusals and defects, retries, follow-ups, what is launched, and what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path

import pytest

from headwater import (
    AuthoringError,
    BacklogFullError,
    Cell,
    ConflictError,
    HandlerFailed,
    Input,
    InvalidValueError,
    Piece,
    Policy,
    Refused,
    Runtime,
    Topic,
    UpstreamFailedError,
    cell,
    computed,
    each,
    effect,
    given,
    handler,
    topic,
)
from headwater.clock import VirtualClock
from headwater.errors import NotSettlingError, SessionExpiredError
from tests.scenario.pieces_kit import PLACES, Ranned, alone, at, run

EVERYWHERE = pytest.mark.parametrize("place", PLACES)
TRIED: list[object] = []


class Entry(Piece):
    n: Input[int] = given()

    @computed
    def doubled(self) -> int:
        return self.n.get() * 2


class Sums(Piece):
    n: Cell[int] = cell(default=1)
    rows: Cell[Mapping[str, int]] = cell(default={})
    log: Cell[tuple[int, ...]] = cell(default=())
    names: Cell[tuple[str, ...]] = cell(default=())

    @computed
    def a(self) -> int:
        return self.n.get() + 1

    @computed
    def b(self) -> int:
        return self.a.get() * 10

    @computed(debounce_ms=100)
    def slow(self) -> int:
        return self.n.get()

    @computed(debounce_ms=60_000)
    def hourly(self) -> int:
        return self.n.get()

    @computed
    def broken(self) -> int:
        if self.n.get() < 0:
            raise ValueError("below zero")
        return self.n.get()

    @each(rows)
    def entries(self, n: Cell[int]) -> Entry:
        return Entry(n=n)

    @handler
    def record(self) -> int:
        TRIED.append("record")
        self.log.push(self.b.get())
        return self.b.get()

    @handler
    def record_rows(self) -> int:
        TRIED.append("rows")
        return sum(entry.doubled.get() for entry in self.entries.get().values())

    @handler
    def record_hourly(self) -> int:
        return self.hourly.get()

    @handler
    def record_slow(self) -> int:
        return self.slow.get()

    @handler
    def record_broken(self) -> int:
        return self.broken.get()

    @handler
    def swallow(self) -> str:
        TRIED.append("swallow")
        try:
            return f"b is {self.b.get()}"
        except Exception:
            return "swallowed"

    @handler
    def swallow_all(self) -> str:
        try:
            return f"b is {self.b.get()}"
        except BaseException:
            return "swallowed"

    @handler
    def own(self, n: int) -> int:
        self.n.set(n)
        return self.n.get()

    @handler
    def refuse(self, why: str) -> None:
        self.n.set(99)
        raise Refused(why)

    @handler
    def fail(self) -> None:
        self.n.set(99)
        raise KeyError("lost")

    @handler
    def absent(self) -> None:
        self.rows.key("nowhere").get()

    @handler
    def lies(self) -> int:
        return "no number"  # type: ignore[return-value]

    @handler
    def many(self, a: int, b: str = "x", *, c: tuple[int, ...] = ()) -> str:
        return f"{a}{b}{c}"


@EVERYWHERE
def test_a_handler_reads_what_is_fresh(place: str, tmp_path: Path) -> None:
    async def work() -> None:
        TRIED.clear()
        async with at(place, tmp_path) as site:
            piece = site.runtime().space("s").piece(Sums, "p")
            assert await piece.record.send() == 20  # Nobody had looked: a chain of two ran for it.
            piece.n.set(4)
            assert await piece.record.send() == 50
            assert await piece.log.pull() == (20, 50)
            piece.rows.set({"x": 1, "y": 2})
            assert await piece.record_rows.send() == 6
            piece.rows.key("z").set(10)
            piece.rows.key("x").delete()
            assert await piece.record_rows.send() == 24
            assert site.errors == []

    run(work)


def test_what_is_missing_runs_together_and_nothing_stays_demanded() -> None:
    async def work() -> None:
        TRIED.clear()
        async with alone() as (rt, errors):
            piece = rt.space("s").piece(Sums, "p")
            piece.rows.set({f"r{n}": n for n in range(200)})
            assert await piece.record_rows.send() == 2 * sum(range(200))
            assert len(TRIED) <= 205  # One attempt for the order, one for the rows, one for each child's value.
            assert not [node for node in rt.graph().nodes if node.rooted]
            assert errors == []

    run(work)


def test_a_handler_waits_for_what_time_keeps_back() -> None:
    async def work() -> None:
        clock = VirtualClock()
        async with alone(clock) as (rt, errors):
            piece = rt.space("s").piece(Sums, "p")
            assert await piece.slow.pull() == 1
            look = piece.slow.sink(lambda _: None)
            await rt.idle()
            piece.n.set(5)
            sent = asyncio.ensure_future(piece.record_slow.send())
            for _ in range(20):
                await asyncio.sleep(0)
            assert not sent.done()
            clock.advance(200_000)
            rt.wake()
            assert await sent == 5
            look.close()
            assert errors == []

    run(work)


def test_event_waits_for_a_gate_beyond_the_retry_window() -> None:
    async def work() -> None:
        clock = VirtualClock()
        async with alone(clock) as (rt, errors):
            piece = rt.space("s").piece(Sums, "p")
            assert await piece.hourly.pull() == 1
            look = piece.hourly.sink(lambda _: None)
            await rt.idle()
            piece.n.set(5)
            sent = asyncio.ensure_future(piece.record_hourly.send())
            for seconds in (31, 31):
                for _ in range(20):
                    await asyncio.sleep(0)
                assert not sent.done()
                clock.advance(seconds * 1_000_000)
                rt.wake()
            assert await sent == 5
            look.close()
            assert errors == []

    run(work)


def test_an_upstream_that_failed_raises_in_the_handler() -> None:
    async def work() -> None:
        async with alone() as (rt, errors):
            piece = rt.space("s").piece(Sums, "p")
            piece.n.set(-1)
            with pytest.raises(HandlerFailed, match="below zero") as failed:
                await piece.record_broken.send()
            assert isinstance(failed.value.__cause__, UpstreamFailedError)
            assert any("below zero" in str(each.error) for each in errors)
            piece.n.set(3)
            assert await piece.record_broken.send() == 3

    run(work)


def test_the_signal_that_stops_an_attempt_cannot_be_swallowed() -> None:
    async def work() -> None:
        async with alone() as (rt, errors):
            piece = rt.space("s").piece(Sums, "p")
            assert await piece.swallow.send() == "b is 20"
            piece.n.set(2)
            assert await piece.swallow_all.send() == "b is 30"
            assert errors == []

    run(work)


def test_a_document_that_is_still_loading_is_waited_for(tmp_path: Path) -> None:
    async def work() -> None:
        async with at("embedded", tmp_path) as site:
            one = site.runtime().space("s").piece(Sums, "p")
            await one.own.send(7)
            other = site.runtime().space("s").piece(Sums, "p")
            assert await other.record.send() == 80
            assert await other.swallow.send() == "b is 80"
            assert site.errors == []

    run(work)


def test_a_handler_sees_its_own_writes() -> None:
    async def work() -> None:
        async with alone() as (rt, _):
            piece = rt.space("s").piece(Sums, "p")
            assert await piece.own.send(6) == 6
            assert piece.n.get() == 6

    run(work)


# ---- how it ends -------------------------------------------------------------------------------------------


@EVERYWHERE
def test_a_refusal_is_the_senders_and_writes_nothing(place: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with at(place, tmp_path) as site:
            rt = site.runtime()
            piece = rt.space("s").piece(Sums, "p")
            with pytest.raises(Refused, match="not now"):
                await piece.refuse.send("not now")
            assert await piece.n.pull() == 1
            assert site.errors == []
            piece.refuse.post("nobody waits")
            await rt.durable()
            assert [str(each.error) for each in site.errors] == ["nobody waits"]

    run(work)


@EVERYWHERE
def test_a_defect_is_loud_and_has_its_cause(place: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with at(place, tmp_path) as site:
            rt = site.runtime()
            piece = rt.space("s").piece(Sums, "p")
            with pytest.raises(HandlerFailed, match="s/p:fail failed: KeyError: 'lost'") as failed:
                await piece.fail.send()
            assert isinstance(failed.value.__cause__, KeyError)
            assert [type(each.error) for each in site.errors] == [KeyError]
            with pytest.raises(HandlerFailed, match="AbsentError"):
                await piece.absent.send()
            with pytest.raises(HandlerFailed, match="expected int, found 'no number'"):
                await piece.lies.send()
            piece.fail.post()
            await rt.durable()
            assert len(site.errors) == 4
            assert await piece.n.pull() == 1

    run(work)


def test_arguments_are_checked_where_they_enter() -> None:
    async def work() -> None:
        async with alone() as (rt, _):
            piece = rt.space("s").piece(Sums, "p")
            assert await piece.many.send(1, "y", c=(1, 2)) == "1y(1, 2)"
            assert await piece.many.send(2) == "2x()"
            for wrong in (
                lambda: piece.many.send(),  # type: ignore[call-arg]
                lambda: piece.many.send(1, d=3),  # type: ignore[call-arg]
                lambda: piece.many.post(1, "x", ()),  # type: ignore[call-arg]
            ):
                with pytest.raises(AuthoringError, match="it takes"):
                    wrong()
            with pytest.raises(InvalidValueError, match=r"argument a: .*expected int"):
                piece.many.post("1")  # type: ignore[arg-type]
            with pytest.raises(InvalidValueError, match="argument c"):
                piece.many.post(1, c=[1])  # type: ignore[arg-type]

    run(work)


# ---- what needs a store ------------------------------------------------------------------------------------


def test_what_cannot_be_kept_says_so() -> None:
    async def work() -> None:
        async with alone() as (rt, _):
            piece = rt.space("s").piece(Sums, "p")
            with pytest.raises(AuthoringError, match="no time zone"):
                piece.fail.post_at(datetime(2030, 1, 1))  # noqa: DTZ001
            with pytest.raises(AuthoringError, match="kept nowhere but here"):
                piece.fail.options(durable=True).post()

    run(work)


# ---- retries -----------------------------------------------------------------------------------------------


class Counter(Piece):
    n: Cell[int] = cell(default=0)
    placed: Topic[int] = topic(key=lambda n: f"k{n}")
    ids: Cell[tuple[str, ...]] = cell(default=())

    @handler
    def up(self) -> int:
        made = (self.ctx.new_id(), self.ctx.new_id(), self.ctx.random().random(), self.ctx.now(), self.ctx.now())
        TRIED.append(made)
        now = self.n.get() + 1
        self.n.set(now)
        return now

    @handler
    def tell(self, n: int) -> None:
        self.placed.emit(n)
        self.n.increment(1)

    @handler(retries=0)
    def once(self) -> None:
        self.n.set(self.n.get() + 1)


def test_nothing_is_lost_when_three_runtimes_count_at_once(tmp_path: Path) -> None:
    async def work() -> None:
        TRIED.clear()
        async with at("embedded", tmp_path) as site:
            counters = [site.runtime().space("s").piece(Counter, "c") for _ in range(3)]
            found = await asyncio.gather(*(counter.up.send() for counter in counters for _ in range(30)))
            assert sorted(found) == list(range(1, 91))
            assert await site.agreed(*(counter.n for counter in counters)) == 90
            assert len(set(TRIED)) == 90  # Whatever was tried again drew and minted the same.
            assert len(TRIED) >= 90
            assert site.errors == []

    run(work, too_long_s=60)


def test_without_retries_a_conflict_is_the_senders(tmp_path: Path) -> None:
    async def work() -> None:
        async with at("embedded", tmp_path) as site:
            counters = [site.runtime().space("s").piece(Counter, "c") for _ in range(3)]
            ends = await asyncio.gather(
                *(counter.once.send() for counter in counters for _ in range(10)), return_exceptions=True
            )
            lost = [end for end in ends if end is not None]
            assert lost
            assert all(isinstance(end, ConflictError) for end in lost)
            assert await site.agreed(*(counter.n for counter in counters)) == 30 - len(lost)
            up = await asyncio.gather(
                *(counter.up.options(retries=0).send() for counter in counters), return_exceptions=True
            )
            assert any(isinstance(end, ConflictError) for end in up)
            assert site.errors == []

    run(work)


def test_events_of_one_runtime_have_their_turns_in_order(tmp_path: Path) -> None:
    async def work() -> None:
        async with at("embedded", tmp_path) as site:
            piece = site.runtime().space("s").piece(Chain, "c")
            piece.slow.post("1")  # It has to wait for what it reads; the others do not overtake it.
            piece.quick.post("2")
            piece.slow.post("3")
            await piece.quick.send("4")
            assert await piece.log.pull() == ("1 at 1", "2", "3 at 1", "4")
            assert site.errors == []

    run(work)


# ---- follow-ups --------------------------------------------------------------------------------------------


class Chain(Piece):
    log: Cell[tuple[str, ...]] = cell(default=())
    n: Cell[int] = cell(default=1)

    @computed
    def same(self) -> int:
        return self.n.get()

    @computed
    def posting(self) -> int:
        self.quick.post("x")
        return 1

    @computed
    def sending(self) -> int:
        self.quick.send("x").close()
        return 1

    @computed
    def minting(self) -> str:
        return self.ctx.new_id()

    @computed
    def launching(self) -> int:
        self.ctx.launch(Job(n=self.n))
        return 1

    @handler
    def quick(self, text: str) -> None:
        self.log.push(text)

    @handler
    def slow(self, text: str) -> None:
        self.log.push(f"{text} at {self.same.get()}")

    @handler
    def first(self, ok: bool) -> str:
        intent = self.second.post("from first")
        self.log.push(f"first for {self.ctx.user}")
        if not ok:
            raise Refused("no")
        return intent.id

    @handler
    def second(self, text: str) -> None:
        self.log.push(f"second {text} for {self.ctx.user} {self.ctx.session}")

    @handler
    def taken_back(self) -> bool:
        return self.quick.post("never").withdraw()

    @handler
    def sends(self) -> None:
        self.quick.send("x").close()


@EVERYWHERE
def test_a_follow_up_lives_and_dies_with_the_commit(place: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with at(place, tmp_path) as site:
            rt = site.runtime()
            chain = rt.space("s", user="ann", session="s1").piece(Chain, "c")
            assert await chain.first.send(True)
            await rt.durable()
            assert await chain.log.pull() == ("first for ann", "second from first for ann s1")
            with pytest.raises(Refused):
                await chain.first.send(False)
            await rt.durable()
            assert len(await chain.log.pull()) == 2
            assert await chain.taken_back.send() is True
            await rt.durable()
            assert len(await chain.log.pull()) == 2
            assert site.errors == []

    run(work)


def test_what_is_repeated_posts_sends_mints_and_launches_nothing() -> None:
    async def work() -> None:
        async with alone() as (rt, _):
            chain = rt.space("s").piece(Chain, "c")
            for member, says in (
                (chain.posting, "Post it in a handler"),
                (chain.sending, r"write post\(\)"),
                (chain.minting, "make ids in a handler"),
                (chain.launching, "launch it in a handler"),
            ):
                with pytest.raises(UpstreamFailedError, match=says):
                    await member.pull()
            with pytest.raises(HandlerFailed, match=r"write post\(\)"):
                await chain.sends.send()
            assert await chain.log.pull() == ()

    run(work)


class Showy(Piece):
    n: Cell[int] = cell(default=1)
    out: Topic[int] = topic()
    kind: Cell[str] = cell(default="")

    @handler
    def add(self) -> None:
        self.n.increment(1)

    @effect
    def show(self) -> None:
        match self.kind.get():
            case "post":
                self.add.post()
            case "emit":
                self.out.emit(1)
            case "write":
                self.n.set(2)
            case _:
                pass


@pytest.mark.parametrize("kind", ["post", "emit", "write"])
def test_an_effect_changes_nothing(kind: str) -> None:
    async def work() -> None:
        async with alone() as (rt, errors):
            piece = await rt.space("s").open(Showy, "p")
            piece.kind.set(kind)
            await rt.idle()
            assert len(errors) == 1
            assert isinstance(errors[0].error, AuthoringError)
            assert piece.n.get() == 1

    run(work)


def test_records_are_emitted_with_the_commit_and_carry_their_key(tmp_path: Path) -> None:
    async def work() -> None:
        async with at("embedded", tmp_path) as site:
            rt = site.runtime()
            counter = rt.space("s").piece(Counter, "c")
            await counter.tell.send(3)
            assert await counter.n.pull() == 1
            with pytest.raises(AuthoringError, match="emitted in a handler"):
                counter.placed.emit(3)
            assert site.errors == []

    run(work)


# ---- waiting and taking back -------------------------------------------------------------------------------


def test_whoever_stops_waiting_does_not_withdraw(tmp_path: Path) -> None:
    async def work() -> None:
        async with at("embedded", tmp_path) as site:
            rt = site.runtime()
            counter = rt.space("s").piece(Counter, "c")
            sent = asyncio.ensure_future(counter.up.send())
            await asyncio.sleep(0)
            sent.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sent
            await rt.durable()
            assert await counter.n.pull() == 1
            assert site.errors == []

    run(work)


def test_an_intent_is_withdrawn_until_it_is_dispatched() -> None:
    async def work() -> None:
        async with alone() as (rt, errors):
            counter = rt.space("s").piece(Counter, "c")
            intent = counter.up.post()
            other = counter.up.post()
            assert other.withdraw() is True
            await rt.durable()
            assert intent.withdraw() is False
            assert await counter.n.pull() == 1
            assert errors == []

    run(work)


def test_what_is_sent_faster_than_it_can_be_handled_is_refused() -> None:
    async def work() -> None:
        async with Runtime(policy=Policy(in_hand=5)) as rt:
            counter = rt.space("s").piece(Counter, "c")
            for _ in range(5):
                counter.up.post()
            with pytest.raises(BacklogFullError, match="5 events wait to be handled"):
                counter.up.post()
            with pytest.raises(BacklogFullError, match="await some of them first"):
                await counter.up.options(wait=False).send()
            await rt.durable()
            assert await counter.up.send() == 6

    run(work)


def test_idle_and_durable_wait_for_what_was_posted() -> None:
    async def work() -> None:
        async with alone() as (rt, _):
            counter = rt.space("s").piece(Counter, "c")
            for _ in range(5):
                counter.up.post()
            await rt.idle()
            assert counter.n.get() == 5

    run(work)


def test_closing_waits_for_what_was_posted(tmp_path: Path) -> None:
    async def work() -> None:
        async with at("embedded", tmp_path) as site:
            rt = site.runtime()
            chain = rt.space("s", user="ann").piece(Chain, "c")
            chain.first.post(True)
            await rt.close()
            other = site.runtime().space("s").piece(Chain, "c")
            assert len(await other.log.pull()) == 2
            assert site.errors == []

    run(work)


# ---- launching ---------------------------------------------------------------------------------------------

SHOWN: list[str] = []


class Job(Piece):
    n: Input[int] = given()
    done: Cell[bool] = cell(default=False)

    @computed
    def text(self) -> str:
        return f"job {self.n.get()}"

    @effect
    def show(self) -> Callable[[], object]:
        SHOWN.append(self.text.get())
        return lambda: SHOWN.append("stopped")

    @handler
    def finish(self) -> None:
        self.done.set(True)


class Boss(Piece):
    n: Cell[int] = cell(default=1)
    jobs: Cell[tuple[str, ...]] = cell(default=())

    @handler
    def start(self, after_commit: bool, ok: bool) -> str:
        job = self.ctx.launch(Job(n=self.n), after_commit=after_commit)
        job.finish.post()
        self.jobs.push(job.ctx.name)
        if not ok:
            raise Refused("no")
        return job.ctx.name

    @handler
    def wrong(self) -> None:
        self.ctx.launch(self)


@EVERYWHERE
@pytest.mark.parametrize("after_commit", [False, True])
def test_a_launched_piece_lives_from_the_commit_on(place: str, after_commit: bool, tmp_path: Path) -> None:
    async def work() -> None:
        SHOWN.clear()
        async with at(place, tmp_path) as site:
            rt = site.runtime()
            space = rt.space("s")
            boss = await space.open(Boss, "b")
            name = await boss.start.send(after_commit, True)
            await rt.durable()
            await rt.settled()
            assert SHOWN == ["job 1"]
            job = space.piece(Job, name)
            assert await job.done.pull() is True
            assert [piece.ctx.name for piece in (await space.find(Job)).items] == [name]
            boss.n.set(2)
            await rt.idle()
            assert SHOWN == ["job 1", "stopped", "job 2"]
            await space.stop(job)
            assert SHOWN[-1] == "stopped"
            assert site.errors == []

    run(work)


@EVERYWHERE
def test_what_a_failed_commit_launched_was_never_there(place: str, tmp_path: Path) -> None:
    async def work() -> None:
        SHOWN.clear()
        async with at(place, tmp_path) as site:
            rt = site.runtime()
            space = rt.space("s")
            boss = await space.open(Boss, "b")
            with pytest.raises(Refused):
                await boss.start.send(False, False)
            await rt.durable()
            assert SHOWN == []
            assert (await space.find(Job)).items == ()
            with pytest.raises(HandlerFailed, match=r"as in ctx\.launch\(Job\(\.\.\.\)\)"):
                await boss.wrong.send()

    run(work)


class Both(Piece):
    n: Cell[int] = cell(default=0)

    @handler
    def start(self) -> int:
        now = self.n.get() + 1
        self.n.set(now)
        self.ctx.launch(Job(n=self.n))
        return now


def test_a_conflict_starts_what_was_launched_once_in_the_end(tmp_path: Path) -> None:
    async def work() -> None:
        SHOWN.clear()
        async with at("embedded", tmp_path) as site:
            pieces = [await site.runtime().space("s").open(Both, "b") for _ in range(3)]
            found = await asyncio.gather(*(piece.start.send() for piece in pieces for _ in range(4)))
            assert sorted(found) == list(range(1, 13))
            await site.settled()
            jobs = (await pieces[0].ctx.space.find(Job)).items
            assert len(jobs) == 12
            live = sum(1 for each in SHOWN if each.startswith("job")) - SHOWN.count("stopped")
            assert live == 12
            assert site.errors == []

    run(work)


# ---- the end -----------------------------------------------------------------------------------------------


class Cyclic(Piece):
    n: Cell[int] = cell(default=0)
    m: Cell[int] = cell(default=0)

    @computed(writes=(m,))
    def one(self) -> int:
        self.m.set(self.n.get() + self.two.get(0) + 1)
        return self.m.get()

    @computed
    def two(self) -> int:
        return self.m.get() + 1

    @handler
    def read(self) -> int:
        return self.one.get()


def test_an_upstream_that_does_not_settle_fails_the_send_loudly() -> None:
    async def work() -> None:
        clock = VirtualClock()
        async with alone(clock) as (rt, errors):
            piece = rt.space("s").piece(Cyclic, "c")
            sent = asyncio.ensure_future(piece.read.send())
            for _ in range(60):
                for _ in range(10):
                    await asyncio.sleep(0)
                clock.advance(1_000_000)
                rt.wake()
                if sent.done():
                    break
            with pytest.raises(NotSettlingError, match=r"did not settle in 30 s: look at s/c:one, s/c:two"):
                await sent
            assert errors

    run(work)


def test_a_send_is_told_when_its_runtime_is_closed() -> None:
    async def work() -> None:
        clock = VirtualClock()
        rt = Runtime(clock=clock, close_s=0.01)
        piece = rt.space("s").piece(Sums, "p")
        await piece.slow.pull()
        look = piece.slow.sink(lambda _: None)
        await rt.idle()
        piece.n.set(5)
        sent = asyncio.ensure_future(piece.record_slow.send())
        await asyncio.sleep(0)
        look.close()
        with pytest.raises(Exception, match="closing waited"):
            await rt.close()
        with pytest.raises(SessionExpiredError, match="was closed"):
            await sent

    run(work)


def test_a_handler_costs_one_commit_and_its_readers_one_run() -> None:
    async def work() -> None:
        async with alone() as (rt, _):
            piece = await rt.space("s").open(Sums, "p")
            look = piece.b.sink(lambda _: None)
            await rt.idle()
            ran = Ranned(rt)
            await piece.own.send(9)
            await rt.idle()
            taken = ran.taken()
            assert (taken.of(":a"), taken.of(":b")) == (1, 1)
            look.close()

    run(work)


def test_a_handle_that_is_called_says_what_to_write() -> None:
    async def work() -> None:
        async with alone() as (rt, _):
            sums = rt.space("s").piece(Sums, "p")
            with pytest.raises(AuthoringError, match=r"write await piece\.record\.send\(\.\.\.\)"):
                sums.record()  # type: ignore[operator]
            with pytest.raises(AuthoringError, match=r"write \.get\(\)"):
                sums.b()  # type: ignore[operator]

    run(work)
