"""Stories of reactions that were told against them: what an outside look found, each as it has to be."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

from headwater import Cell, Delivery, Piece, Topic, cell, child, handler, reaction, topic
from headwater.engine import Engine
from headwater.errors import StorageError
from headwater.protocol.messages import FromReplica
from headwater.protocol.reactions import QueryReactions, Subscribe
from headwater.runtime import Pace, Runtime
from headwater.testing import Simulation
from tests.scenario.events_kit import Front, told
from tests.scenario.outbox_kit import rows_in

BEGAN: list[tuple[str, float]] = []
HANDLING: list[Callable[[str], object]] = []
"""Called by some handlers below, with their names."""


class Slow(Piece):
    done: Cell[tuple[str, ...]] = cell(default=())
    said: Topic[str] = topic()

    @handler
    def say(self, texts: tuple[str, ...]) -> None:
        for text in texts:
            self.said.emit(text)

    @handler
    def heard(self, text: str) -> None:
        self.done.push(text)

    @reaction(on=said, then=heard)
    async def hear(self, text: str) -> str:
        BEGAN.append((text, asyncio.get_running_loop().time()))
        await asyncio.sleep(0.3)
        return text


def test_what_is_emitted_while_its_target_is_delivered_is_next() -> None:
    """The handler named by `then` lands, and the target is due at once, not when its lease would have ended."""
    BEGAN.clear()

    async def story(sim: Simulation) -> list[str]:
        piece = await sim.runtime("ann").space("s").open(Slow, "a")
        await piece.say.send(("1",))
        await sim.advance(seconds=0.15)
        await piece.say.send(("2",))
        await sim.advance(seconds=1)
        (first, one), (second, two) = BEGAN
        assert (first, second, round(two - one, 1)) == ("1", "2", 0.3), BEGAN
        assert piece.done.get() == ("1", "2")
        return []

    assert told(story) == []


def test_what_a_worker_has_no_room_for_is_taken_by_one_that_has() -> None:
    """One that is full says that a target has more; another one hears of it before any lease ends."""
    BEGAN.clear()

    async def story(sim: Simulation) -> list[str]:
        piece = await sim.runtime("ann").space("s").open(Slow, "a")
        await sim.runtime("bob").space("s").open(Slow, "b")
        await piece.say.send(tuple(map(str, range(70))))  # more than one claim brings
        await sim.runtime("ann").reactions.drained()
        await sim.settle()
        assert piece.done.get() == tuple(map(str, range(70)))
        took = BEGAN[-1][1] - BEGAN[0][1]
        assert took < 69 * 0.3 + 1, took
        return []

    assert told(story) == []


# --- declaring --------------------------------------------------------------------------------------------


class Row(Piece):
    said: Topic[str] = topic()

    @reaction(on=said)
    async def hear(self, text: str) -> None:
        BEGAN.append((text, asyncio.get_running_loop().time()))


class Table(Piece):
    said: Topic[str] = topic()
    count: Cell[int] = cell(default=0)

    @child
    def row(self) -> Row:
        return Row()

    @handler
    def say(self, text: str) -> None:
        self.row.get().said.emit(text)

    @handler
    def shout(self, text: str) -> None:
        self.said.emit(text)
        self.count.increment(1)

    @reaction(on=said)
    async def hear(self, text: str) -> None:
        BEGAN.append((text, asyncio.get_running_loop().time()))


def heard() -> list[str]:
    return [text for text, _ in BEGAN]


def test_what_a_parent_emits_to_its_childs_topic_is_the_childs_reactions() -> None:
    BEGAN.clear()

    async def story(sim: Simulation) -> list[str]:
        table = await sim.runtime("ann").space("s").open(Table, "a")
        await table.say.send("first")
        await sim.runtime("ann").reactions.drained()
        assert heard() == ["first"]
        return []

    assert told(story) == []


def test_a_childs_records_are_delivered_where_nobody_has_its_parent_open() -> None:
    BEGAN.clear()

    async def story(sim: Simulation) -> list[str]:
        table = await sim.runtime("ann").space("s").open(Table, "a")
        sim.runtime("ann").reactions.abandon()
        await table.say.send("first")
        sim.runtime("bob").space("s")
        await sim.runtime("bob").reactions.drained()
        assert heard() == ["first"]
        return []

    assert told(story) == []


def test_what_is_emitted_without_a_connection_by_a_class_that_is_new_is_delivered() -> None:
    BEGAN.clear()

    async def story(sim: Simulation) -> list[str]:
        rt = sim.runtime("ann")
        table = await rt.space("s").open(Table, "a")
        with sim.offline("ann"):
            table.shout.post("offline")
            await sim.advance(seconds=3)
            assert table.count.get() == 1, "it is handled here"
        await sim.advance(seconds=10)
        await rt.reactions.drained()
        assert heard() == ["offline"]
        return []

    assert told(story) == []


@contextmanager
def failing(sim: Simulation, kind: type[object], times: int = 1) -> Iterator[None]:
    """The disk of the server fails at the first questions of a kind, and goes on."""
    left = [kind] * times

    def arrived(engine: Engine, message: FromReplica) -> FromReplica:
        if isinstance(message, kind) and left:
            left.pop()
            raise StorageError("the disk is full (planted)")
        return message

    sim.server.front = arrived
    yield
    sim.server.front = None
    assert len(left) < times, "it was met"


def test_a_disk_that_fails_while_reactions_are_declared_costs_no_record() -> None:
    BEGAN.clear()

    async def story(sim: Simulation) -> list[str]:
        with failing(sim, Subscribe, 5):
            rt = sim.runtime("ann")
            table = await rt.space("s").open(Table, "a")
            await table.shout.send("1")
            await table.shout.send("2")
            await rt.reactions.drained()
        assert heard() == ["1", "2"]
        return []

    assert told(story) == []


def test_a_worker_whose_first_look_fails_looks_again() -> None:
    BEGAN.clear()

    async def story(sim: Simulation) -> list[str]:
        table = await sim.runtime("ann").space("s").open(Table, "a")
        sim.runtime("ann").reactions.abandon()
        await table.shout.send("1")
        await sim.advance(seconds=1)
        with failing(sim, QueryReactions):
            sim.runtime("bob").space("s")
            await sim.runtime("bob").reactions.drained()
        assert heard() == ["1"]
        return []

    assert told(story) == []


def test_one_that_was_retired_and_is_declared_again_is_served_by_those_who_are_there() -> None:
    BEGAN.clear()

    async def story(sim: Simulation) -> list[str]:
        ann, bob, cid = (sim.runtime(name) for name in ("ann", "bob", "cid"))
        table = await ann.space("s").open(Table, "a")
        await table.shout.send("1")
        await ann.reactions.drained()
        (name,) = [each.name for each in await ann.reactions.list()]
        await ann.reactions.retire(name)
        ann.reactions.abandon()
        bob.space("s")  # sees that it is retired
        await sim.advance(seconds=1)
        cid.space("s")
        cid.reactions.abandon()
        await (await cid.space("s").open(Table, "a")).shout.send("2")
        await bob.reactions.drained()
        assert heard() == ["1", "2"]
        return []

    assert told(story) == []


def test_a_paused_reaction_is_not_waited_for() -> None:
    BEGAN.clear()

    async def story(sim: Simulation) -> list[str]:
        rt = sim.runtime("ann")
        table = await rt.space("s").open(Table, "a")
        await table.shout.send("1")
        await rt.reactions.drained()
        (name,) = [each.name for each in await rt.reactions.list()]
        await rt.reactions.pause(name)
        await table.shout.send("2")
        await rt.reactions.drained()
        assert heard() == ["1"]
        return []

    assert told(story) == []


# --- landing ----------------------------------------------------------------------------------------------


class Counter(Piece):
    sum: Cell[int] = cell(default=0)
    users: Cell[tuple[str, ...]] = cell(default=())
    added: Topic[int] = topic(key=str)
    once: Topic[int] = topic()

    @handler
    def add(self, most: int) -> None:
        for number in range(most):
            self.added.emit(number)

    @handler(retries=0)
    def done(self, number: int) -> None:
        for look in HANDLING:
            look("done")
        self.sum.set(self.sum.get() + number + 1)

    @handler(coalesce="last")
    def last(self, number: int) -> None:
        self.sum.increment(1)

    @handler
    def by(self, number: int) -> None:
        self.users.push(f"<{self.ctx.user}>")

    @handler
    def add_once(self) -> None:
        for look in HANDLING:
            look("add_once")
        self.once.emit(1)

    @reaction(on=added, then=last)
    async def count(self, number: int) -> int:
        return number

    @reaction(on=once, then=done)
    async def charge(self, number: int, delivery: Delivery) -> int:
        BEGAN.append((delivery.id, delivery.attempt))
        return number

    @reaction(on=once, then=by)
    async def sign(self, number: int) -> int:
        return number


def test_conflicts_of_the_handler_spend_no_attempt_and_nothing_is_done_twice() -> None:
    BEGAN.clear()

    async def story(sim: Simulation) -> list[str]:
        rt = sim.runtime("ann")
        counter = await rt.space("s").open(Counter, "a")
        with Front(sim) as front:
            front.reject("done", 20)
            await counter.add_once.send()
            await rt.reactions.drained()
            await sim.settle()
        assert counter.sum.get() == 2
        assert [attempt for _, attempt in BEGAN] == [0]
        assert front.rejected["done"] == 20
        return []

    assert told(story) == []


def test_results_for_a_handler_that_coalesces_land_each_by_itself() -> None:
    async def story(sim: Simulation) -> list[str]:
        rt = sim.runtime("ann")
        counter = await rt.space("s").open(Counter, "a")
        await counter.add.send(12)
        await rt.reactions.drained()
        await sim.settle()
        assert counter.sum.get() == 12
        assert [each.lost for each in await rt.reactions.list()] == [0, 0, 0]
        return []

    assert told(story) == []


def test_the_handler_of_a_result_runs_for_nobody() -> None:
    """The record does not say whose event emitted it: whoever needs that puts it into the record."""

    async def story(sim: Simulation) -> list[str]:
        rt = sim.runtime("ann")
        counter = await rt.space("s", user="ann").open(Counter, "a")
        await counter.add_once.send()
        await rt.reactions.drained()
        await sim.settle()
        assert counter.users.get() == ("<>",)
        return []

    assert told(story) == []


# --- what is called ---------------------------------------------------------------------------------------


def logged(fn: Callable[..., Any]) -> Callable[..., Any]:
    """As decorators are that know nothing of coroutines."""

    @wraps(fn)
    def called(*arguments: Any) -> Any:
        return fn(*arguments)

    return called


class Batches(Piece):
    many: Topic[str] = topic()
    one: Topic[str] = topic()

    @handler
    def say(self, texts: tuple[str, ...]) -> None:
        for text in texts:
            self.many.emit(text)

    @handler
    def wrap(self, text: str) -> None:
        self.one.emit(text)

    @reaction(on=many, batch=10, max_retries=5)
    async def take(self, texts: tuple[str, ...], delivery: Delivery) -> None:
        TAKEN.append((texts, delivery))
        if len(TAKEN) == 1:
            raise ConnectionError("it was done, and nobody knows")

    @reaction(on=one)
    @logged
    async def wrapped(self, text: str) -> None:
        await asyncio.sleep(0)
        BEGAN.append((text, 0.0))


TAKEN: list[tuple[tuple[str, ...], Delivery]] = []


def test_another_batch_has_another_id_and_each_record_keeps_its_own() -> None:
    TAKEN.clear()

    async def story(sim: Simulation) -> list[str]:
        rt = sim.runtime("ann")
        piece = await rt.space("s").open(Batches, "a")
        await piece.say.send(("1", "2"))
        await rt.reactions.drained()
        (first, whole), (second, alone), (third, rest) = TAKEN
        assert (first, second, third) == (("1", "2"), ("1",), ("2",))
        assert len({whole.id, alone.id, rest.id}) == 3, "whoever did the first must not take the others for it"
        assert whole.ids == (alone.id, rest.id)
        assert alone.ids == (alone.id,)
        return []

    assert told(story) == []


def test_the_first_records_of_two_directories_have_different_ids() -> None:
    ids: list[str] = []

    async def story(sim: Simulation) -> list[str]:
        BEGAN.clear()
        await sim.advance(seconds=1 + len(ids))  # no two directories were made at the same microsecond
        rt = sim.runtime("ann")
        counter = await rt.space("s").open(Counter, "a")
        await counter.add_once.send()
        await rt.reactions.drained()
        ids.extend(id for id, _ in BEGAN)
        return []

    assert told(story) == told(story) == []
    assert len(set(ids)) == 2


def test_a_coroutine_function_under_a_plain_decorator_is_awaited() -> None:
    BEGAN.clear()

    async def story(sim: Simulation) -> list[str]:
        rt = sim.runtime("ann")
        await (await rt.space("s").open(Batches, "a")).wrap.send("x")
        await rt.reactions.drained()
        assert heard() == ["x"]
        return []

    assert told(story) == []


OPEN = threading.Event()
FULL = threading.Semaphore(0)
THREADS = min(32, (os.cpu_count() or 1) + 4)
"""That a loop has of its own."""


class Plain(Piece):
    slow: Topic[str] = topic(key=str)
    fast: Topic[str] = topic()

    @handler
    def go(self, most: int) -> None:
        for number in range(most):
            self.slow.emit(str(number))

    @handler
    def go_fast(self) -> None:
        self.fast.emit("fast")

    @reaction(on=slow, lane="slow")
    def waits(self, text: str) -> None:
        FULL.release()
        assert OPEN.wait(10)

    @reaction(on=fast, lane="fast")
    def goes(self, text: str) -> None:
        OPEN.set()


def test_plain_functions_of_a_slow_lane_hold_up_no_other(tmp_path: Path) -> None:
    """More of them wait than a loop has threads of its own, until the other lane lets them go."""
    OPEN.clear()

    async def main() -> None:
        async with Runtime(tmp_path / "data", pace=Pace(slots=40)) as rt:
            piece = await rt.space("s").open(Plain, "a")
            await piece.go.send(40)
            own = ThreadPoolExecutor(1)
            for _ in range(THREADS):  # So many wait, and hold up whoever needs one of those threads.
                assert await asyncio.get_running_loop().run_in_executor(own, FULL.acquire, True, 10)
            own.shutdown()
            await piece.go_fast.send()
            await rt.reactions.drained()
            assert [each.failed for each in await rt.reactions.list()] == [0, 0]

    asyncio.run(main())


# --- looking ----------------------------------------------------------------------------------------------


def test_the_result_of_a_reaction_is_kept_in_no_outbox(tmp_path: Path) -> None:
    """Sent again by it, it would be handled without its lease, and a second time by whoever has the target next."""
    path, kept = tmp_path / "outbox", dict[str, list[str]]()

    def look(handler: str) -> None:
        kept[handler] = [row.stream for row in rows_in(path)]

    async def main() -> None:
        async with Runtime(tmp_path / "data", outbox=path) as rt:
            counter = await rt.space("s").open(Counter, "a")
            await counter.add_once.send()
            await rt.reactions.drained()
            assert await counter.sum.pull() == 2

    HANDLING.append(look)
    try:
        asyncio.run(main())
    finally:
        HANDLING.clear()
    assert kept["add_once"] == ["s/a:add_once"]
    assert "s/a:done" not in kept["done"]


def test_whoever_listens_to_attempts_and_fails_keeps_nothing_from_being_acknowledged() -> None:
    BEGAN.clear()

    async def story(sim: Simulation) -> list[str]:
        rt = sim.runtime("ann")
        told_of: list[BaseException] = []
        rt.on_error(told_of.append)

        def fails(_: object) -> None:
            raise KeyError("the pipe is closed")

        rt.reactions.on_attempt(fails)
        await (await rt.space("s").open(Table, "a")).shout.send("1")
        await rt.reactions.drained()
        assert heard() == ["1"]
        assert [type(each) for each in told_of] == [KeyError]
        return []

    assert told(story) == []
