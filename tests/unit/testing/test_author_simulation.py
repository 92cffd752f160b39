"""What a simulation offers to a test: users, time, faults on purpose, and counts of what happened."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import apsw
import pytest

from headwater.errors import AuthoringError, HeadwaterError, LimitError, SessionExpiredError
from headwater.testing import Simulation
from headwater.testing.author.faults import FAULTS
from headwater.testing.author.seeds import run_seed
from tests.unit.testing.author_pieces import Forgetful, Row, Sale, Shop, is_ready

pytestmark = pytest.mark.thorough

Test = Callable[[Simulation], Awaitable[None]]
CALM: tuple[str, ...] = ()


def shop(sim: Simulation, user: str) -> Shop:
    return sim.runtime(user).space("street").piece(Shop, "corner")


def shown(sim: Simulation) -> int:
    return sim.runs(Shop.shown)  # type: ignore[arg-type]  # To a type checker an effect has no name of its own.


def run(test: Test, *, seeds: int = 3, faults: tuple[str, ...] = CALM) -> None:
    for seed in range(seeds):
        run_seed(test, seed, faults)


def test_what_one_user_writes_the_others_read() -> None:
    async def test(sim: Simulation) -> None:
        await shop(sim, "ann").sell.send("tea", 450)
        await sim.settle()
        assert await shop(sim, "bob").total.pull() == 450

    run(test)


def test_a_runtime_is_its_users() -> None:
    async def test(sim: Simulation) -> None:
        assert sim.runtime("ann") is sim.runtime("ann") is not sim.runtime("bob")
        await shop(sim, "ann").note.send("mine")
        assert await shop(sim, "ann").mine.pull() == "ann: mine"
        assert await shop(sim, "bob").mine.pull() == ""
        other = sim.runtime("bob").space("street", user="ann").piece(Shop, "corner")
        assert await other.mine.pull() == "ann: mine"

    run(test)


def test_time_passes_by_advance_to_the_very_moment() -> None:
    async def test(sim: Simulation) -> None:
        began = sim.now()
        await sim.advance(seconds=90)
        assert sim.now() - began >= timedelta(seconds=90)
        until = sim.now() + timedelta(days=2)
        await sim.advance(until=until)
        assert sim.now() == until
        await sim.advance(until=began)
        assert sim.now() == until

    run(test)
    run(test, faults=("delay",))


def test_advance_refuses_what_means_nothing() -> None:
    async def test(sim: Simulation) -> None:
        with pytest.raises(AuthoringError, match="write one of them"):
            await sim.advance(seconds=-1)
        with pytest.raises(AuthoringError, match="time zone"):
            await sim.advance(until=sim.now().replace(tzinfo=None))

    run(test)


def test_whoever_is_offline_works_alone_and_catches_up() -> None:
    async def test(sim: Simulation) -> None:
        ann, bob = shop(sim, "ann"), shop(sim, "bob")
        await ann.sell.send("tea", 1)
        await sim.settle()
        assert (await ann.total.pull(), await bob.total.pull()) == (1, 1)
        with sim.offline("ann"):
            sent = asyncio.ensure_future(ann.sell.send("milk", 10))
            await bob.sell.send("bun", 100)
            await sim.advance(seconds=60)
            assert not sent.done()
            assert await bob.total.pull() == 101
        await sent
        await sim.settle()
        assert (await ann.total.pull(), await bob.total.pull()) == (111, 111)
        assert await ann.stock.pull() == 7

    run(test)


def test_a_server_that_crashes_forgets_nothing_that_was_durable() -> None:
    async def test(sim: Simulation) -> None:
        ann = shop(sim, "ann")
        for n in range(5):
            await ann.sell.send("tea", 1)
            await sim.crash()
            assert len(sim.records(Shop.sold)) == n + 1
        await sim.settle()
        assert await shop(sim, "bob").total.pull() == 5
        assert sim.lost() == 0

    run(test)
    run(test, faults=("disk",))


def test_a_runtime_that_crashes_is_made_anew_and_finds_what_was_durable() -> None:
    async def test(sim: Simulation) -> None:
        ann, old = shop(sim, "ann"), sim.runtime("ann")
        await ann.sell.send("tea", 1)
        sent = asyncio.ensure_future(ann.sell.send("milk", 2))
        await sim.crash("ann")
        with pytest.raises(SessionExpiredError, match="closed"):
            await sent
        with pytest.raises(HeadwaterError, match="closed"):
            old.space("street")
        assert sim.runtime("ann") is not old
        await sim.settle()
        assert await shop(sim, "ann").total.pull() in (1, 3)
        assert sim.lost() == 0

    run(test, seeds=10, faults=("delay",))


def test_crash_names_somebody() -> None:
    async def test(sim: Simulation) -> None:
        with pytest.raises(AuthoringError, match="no such runtime"):
            await sim.crash("zoe")
        with pytest.raises(AuthoringError, match="write who"):
            sim.offline()
        with pytest.raises(AuthoringError, match="write whose it is"):
            sim.runtime("server")

    run(test)


def test_runs_are_counted_by_member_over_all_runtimes() -> None:
    async def test(sim: Simulation) -> None:
        ann = await sim.runtime("ann").space("street").open(Shop, "corner")
        await sim.settle()
        assert (sim.runs(Shop.total), sim.runs(Shop.taxed), shown(sim)) == (1, 0, 1)
        await ann.sell.send("tea", 100)
        await sim.settle()
        assert (sim.runs(Shop.total), sim.runs(Shop.taxed), shown(sim)) == (2, 0, 2)
        assert await ann.taxed.pull() == 119
        assert (sim.runs(Shop.total), sim.runs(Shop.taxed)) == (2, 1)
        bob = await sim.runtime("bob").space("street").open(Shop, "corner")
        assert await bob.total.pull() == 100
        assert shown(sim) == 3

    run(test)


def test_an_each_counts_its_elements_and_a_child_its_own_members() -> None:
    async def test(sim: Simulation) -> None:
        ann = await sim.runtime("ann").space("street").open(Shop, "corner")
        for sku in ("tea", "milk", "bun"):
            await ann.price.send(sku, 100)
        await sim.settle()
        assert sim.runs(Shop.rows) == 3
        labels = [row.label.sink(lambda _: None) for row in ann.rows.get().values()]
        await sim.settle()
        assert sim.runs(Row.label) == 3
        await ann.price.send("milk", 200)
        await sim.settle()
        assert (sim.runs(Shop.rows), sim.runs(Row.label)) == (3, 4)
        for label in labels:
            label.close()

    run(test)


def test_attempts_of_a_handler_count_those_that_lost() -> None:
    async def test(sim: Simulation) -> None:
        shops = [shop(sim, user) for user in ("ann", "bob", "cy")]
        await asyncio.gather(*(each.sell.send("tea", 1) for each in shops for _ in range(3)))
        await sim.settle()
        assert await shops[0].stock.pull() == 1
        assert len(sim.records(Shop.sold)) == 9
        assert sim.attempts(Shop.sell) > 9

    run(test)


def test_records_are_what_was_emitted_and_is_durable_in_order() -> None:
    async def test(sim: Simulation) -> None:
        assert sim.records(Shop.sold) == []
        for n in range(3):
            await shop(sim, "ann").sell.send("tea", n)
        assert sim.records(Shop.sold) == [Sale(sku="tea", cents=n) for n in range(3)]

    run(test, faults=FAULTS, seeds=10)


def test_the_records_of_a_child_are_those_of_its_class() -> None:
    async def test(sim: Simulation) -> None:
        ann = await sim.runtime("ann").space("street").open(Shop, "corner")
        await ann.price.send("tea", 1)
        await sim.settle()
        await ann.rows.get()["tea"].sell.send()
        await ann.sell.send("bun", 2)
        assert sim.records(Row.sold) == ["tea"]
        assert sim.records(Shop.sold) == [Sale(sku="bun", cents=2)]

    run(test)


def test_counts_refuse_what_they_cannot_count() -> None:
    async def test(sim: Simulation) -> None:
        with pytest.raises(AuthoringError, match="Ask attempts"):
            sim.runs(Shop.sell)
        with pytest.raises(AuthoringError, match="write a topic, like"):
            sim.records(Shop.total)
        with pytest.raises(AuthoringError, match="not a member of a class"):
            sim.attempts("total")  # type: ignore[arg-type]

    run(test)


def test_settle_waits_for_work_outside_any_run() -> None:
    async def test(sim: Simulation) -> None:
        ann = shop(sim, "ann")
        looks: list[object] = []
        look = ann.weather.sink(looks.append)
        await sim.settle()
        assert is_ready(looks[-1])
        look.close()

    run(test)


def test_a_computed_that_is_not_idempotent_fails_its_test() -> None:
    async def test(sim: Simulation) -> None:
        await sim.runtime("ann").space("s").piece(Forgetful, "f").drifting.pull()

    with pytest.raises(AssertionError, match="not idempotent"):
        run(test)


def test_an_error_that_nobody_heard_fails_its_test() -> None:
    async def test(sim: Simulation) -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 // 0)
        await sim.advance(seconds=1)

    with pytest.raises(AssertionError, match=r"reached only the event loop.*ZeroDivisionError"):
        run(test)


def test_a_test_that_waits_for_ever_is_told_where() -> None:
    async def test(sim: Simulation) -> None:
        with sim.offline("ann"):
            await shop(sim, "ann").sell.send("tea", 1)

    with pytest.raises(LimitError, match=r"what line \d+ of test_author_simulation.py awaits: await shop\(sim"):
        run(test)


def test_arranged_fault_of_the_disk_is_not_reported_as_uncatchable(monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite goes on after some failures of a disk, and apsw then calls the hook for uncatchable exceptions."""
    reported: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: reported.append(unraisable.exc_value))
    mistake = ValueError("a mistake")

    async def test(sim: Simulation) -> None:
        hook: Callable[[Any], object] = sys.unraisablehook
        for error in (apsw.IOError("I/O error"), mistake):
            hook(SimpleNamespace(exc_value=error))

    run_seed(test, 1, ("disk",))
    assert reported == [mistake]


def test_two_spaces_are_two_logs_on_one_disk() -> None:
    async def test(sim: Simulation) -> None:
        for name in ("one", "two"):
            await sim.runtime("ann").space(name).piece(Shop, "corner").sell.send("tea", 1)
            await sim.crash()
        await sim.settle()
        assert await sim.runtime("bob").space("one").piece(Shop, "corner").total.pull() == 1
        assert await sim.runtime("bob").space("two").piece(Shop, "corner").total.pull() == 1
        assert len(sim.records(Shop.sold)) == 2

    run(test, seeds=5, faults=("disk",))


def test_settle_waits_for_everybody_to_notice_what_broke_just_before() -> None:
    async def test(sim: Simulation) -> None:
        ann = await sim.runtime("ann").space("street").open(Shop, "corner")
        await sim.settle()
        await sim.crash()
        await sim.settle()
        assert ann.total.get() == 0
        assert ann.rows.get() == {}

    run(test, seeds=20, faults=("delay",))
