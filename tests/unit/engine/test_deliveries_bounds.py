"""Reactions at their bounds: a clock that is behind, more targets than a page, one key with more than a page of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from headwater.clock import VirtualClock
from headwater.engine.limits import DEFAULT_LIMITS
from headwater.engine.store.sqlite import SqliteStore
from headwater.protocol.messages import Problem
from headwater.protocol.reactions import (
    Claim,
    Claimed,
    Drained,
    Failures,
    Operate,
    Operated,
    QueryDrained,
    QueryFailures,
    QueryTargets,
    State,
    Subscribe,
    Subscribed,
    TargetPage,
)
from headwater.server.commands.reactions_json import reactions_form
from tests.unit.engine.delivery_kit import LEASE_US, World, as_a, payloads
from tests.unit.engine.test_queries_of_events import space

HOUR_US = 3_600_000_000
SMALL = replace(DEFAULT_LIMITS, page=5)


def at(hours: int) -> VirtualClock:
    clock = VirtualClock()
    clock.advance(hours * HOUR_US)
    return clock


class TestAClockThatIsBehind:
    """The space is opened again where it is an hour earlier, as on another machine or a restored one."""

    def again(self, world: World, folder: Path, hours: int = 9) -> World:
        world.engine.close()
        return World(SqliteStore(folder / "s.space"), clock=at(hours))

    def world(self, folder: Path) -> World:
        made = World(SqliteStore(folder / "s.space"), clock=at(10))
        made.subscribe()
        return made

    def test_what_was_leased_is_taken_over_within_one_lease(self, tmp_path: Path) -> None:
        world = self.world(tmp_path)
        world.emit("a", 1)
        world.emit("b", 2)
        world.claim()
        world = self.again(world, tmp_path)
        world.emit("c", 3)
        claimed = world.claimed()
        assert [grant.hold.key for grant in claimed.grants] == ["c"]
        assert claimed.next_us is not None
        assert claimed.next_us <= LEASE_US
        world.clock.advance(LEASE_US)
        assert sorted(grant.hold.key for grant in world.claim()) == ["a", "b", "c"]

    def test_a_retry_waits_as_long_as_it_was_to_wait(self, tmp_path: Path) -> None:
        world = self.world(tmp_path)
        world.emit("a", 1)
        grant = world.claim_one()
        world.clock.advance(LEASE_US // 2)
        world.fail(grant, "retry", wait_us=5 * LEASE_US)
        world = self.again(world, tmp_path)
        assert world.targets()["a"].wait_us == 5 * LEASE_US
        world.clock.advance(5 * LEASE_US - 1)
        assert world.claim() == []
        world.clock.advance(1)
        assert payloads(world.claim_one()) == [1]

    def test_what_is_due_can_be_claimed_at_once(self, tmp_path: Path) -> None:
        world = self.world(tmp_path)
        world.emit("a", 1, 2)
        world.done(world.claim_one(records=1))
        world = self.again(world, tmp_path)
        assert payloads(world.claim_one()) == [2]

    def test_the_age_of_what_is_emitted_then_is_its_own(self, tmp_path: Path) -> None:
        """A budget of time is not spent by the hour that the clocks differ."""
        world = self.world(tmp_path)
        world.emit("a", 1)
        world.claim()
        world = self.again(world, tmp_path)
        world.emit("b", 2)
        world.clock.advance(7)
        (grant,) = [grant for grant in world.claim() if grant.hold.key == "b"]
        assert grant.age_us == 7
        assert world.reaction().oldest_us is not None
        assert (world.reaction().oldest_us or 0) < LEASE_US
        assert world.targets()["b"].age_us == 7

    def test_time_goes_on_when_the_clock_is_right_again(self, tmp_path: Path) -> None:
        world = self.world(tmp_path)
        world.emit("a", 1)
        world.claim()
        world = self.again(world, tmp_path)
        world.clock.advance(LEASE_US)
        assert world.claim_one().lost == 1
        world = self.again(world, tmp_path, hours=10)
        world.clock.advance(2 * LEASE_US)
        assert world.claim_one().lost == 2


class TestDrained:
    def is_drained(self, world: World, through: int | None) -> bool:
        return as_a(Drained, world.engine.deliver(QueryDrained(1, through))).is_drained

    def test_up_to_a_commit_it_is_true_however_many_targets_have_later_work(self) -> None:
        world = World(limits=SMALL)
        world.subscribe()
        seq = world.emit("a", 1)
        for number in range(20):
            world.emit(f"k{number}", number)
        assert not self.is_drained(world, seq)
        (grant,) = [grant for grant in world.claim(limit=100) if grant.hold.key == "a"]
        world.done(grant)
        assert self.is_drained(world, seq)
        assert not self.is_drained(world, seq + 1)
        assert not self.is_drained(world, None)

    def test_what_is_replayed_is_not_drained(self) -> None:
        world = World()
        world.subscribe()
        seq = world.emit("a", 1)
        world.fail(world.claim_one(), "park")
        assert self.is_drained(world, seq)
        world.operate("replay")
        assert not self.is_drained(world, seq)

    def test_a_commit_that_is_not_there_yet_is_not(self) -> None:
        world = World()
        world.subscribe()
        seq = world.emit("a", 1)
        world.done(world.claim_one())
        assert self.is_drained(world, seq)
        assert not self.is_drained(world, seq + 1)
        world.emit("a", 2)
        assert not self.is_drained(world, seq + 1)
        world.done(world.claim_one())
        assert self.is_drained(world, seq + 1)


class TestPages:
    @pytest.mark.parametrize("state", ["due", "leased"])
    def test_the_few_that_are_due_are_found_among_many_that_are_not(self, state: State) -> None:
        world = World(limits=SMALL)
        world.subscribe()
        for number in range(30):
            world.emit(f"idle{number:02}", number)
        for _ in range(6):
            for grant in world.claim(limit=100):
                world.done(grant)
        for name in ("x", "y", "z"):
            world.emit(name, 1)
        if state == "leased":
            world.claim()
        found = as_a(TargetPage, world.engine.deliver(QueryTargets(1, "r", state, None, 5)))
        assert ([each.key for each in found.targets], found.next) == (["x", "y", "z"], None)
        page = as_a(TargetPage, world.engine.deliver(QueryTargets(1, "r", state, None, 2)))
        rest = as_a(TargetPage, world.engine.deliver(QueryTargets(1, "r", state, page.next, 2)))
        assert [each.key for each in (*page.targets, *rest.targets)] == ["x", "y", "z"]

    @pytest.mark.parametrize("key", [None, "a"])
    @pytest.mark.parametrize("limit", [1, 2, 3, 7, 1_000])
    def test_failures_of_one_key_are_all_reached_page_by_page(self, key: str | None, limit: int) -> None:
        world = World(limits=SMALL)
        world.subscribe()
        for name in ("0", "a", "b"):
            world.emit(name, *range(12))
        for _ in range(3 * 12):
            for grant in world.claim(limit=100, records=1):
                world.fail(grant, "retry" if grant.attempt < 2 else "park")
        pages, after, place = [], None, None
        while True:
            question = QueryFailures(1, "r", key, after, limit, place)
            page = as_a(Failures, world.engine.deliver(question))
            pages.append(page)
            after, place = page.next, page.place
            if after is None:
                break
            assert page.attempts, "each page is of some use"
        assert len(pages) > 1
        attempts = [(each.key, each.seq, each.attempt) for page in pages for each in page.attempts]
        parked = [(each.key, each.seq) for page in pages for each in page.parked]
        keys = 3 if key is None else 1
        assert len(attempts) == len(set(attempts)) == keys * 12 * 3
        assert len(parked) == len(set(parked)) == keys * 12
        assert attempts == sorted(attempts)
        assert {each[0] for each in attempts} == ({"0", "a", "b"} if key is None else {"a"})


class TestRights:
    def test_whoever_may_write_delivers_and_only_owners_operate(self) -> None:
        """To have everything delivered again, or nothing, is not for everybody who uses a page."""
        _, ann, will, rob = space()
        (made,) = will.say(Subscribe(1, "r", "orders"))
        (given,) = will.say(Claim(2, "w", ("r",)))
        assert (type(made), type(given)) == (Subscribed, Claimed)
        for does in ("pause", "resume", "retire", "unblock", "replay", "reset"):
            (told,) = will.say(Operate(3, does, "r"))
            assert isinstance(told, Problem)
            assert (told.code, told.fatal) == ("access", False)
            assert told.message == "only owners of this space may operate its reactions, and 'will' is not an owner"
        (told,) = rob.say(Operate(4, "pause", "r"))
        assert isinstance(told, Problem)
        (done,) = ann.say(Operate(5, "pause", "r"))
        assert isinstance(done, Operated)
        assert done.count == 1


def test_commands_reach_every_page_of_failures_and_of_groups() -> None:
    world = World(limits=SMALL)
    world.subscribe()
    world.emit("a", *range(12))
    for _ in range(12):
        world.fail(world.claim_one(records=1), "park")
    found: list[str] = []
    said: dict[str, object] = {"does": "failures", "reaction": "r"}
    while True:
        told = cast("dict[str, Any]", reactions_form(world.engine, said, 5))
        found += [each["seq"] for each in told["parked"]]
        if told["next"] is None:
            break
        said = {**said, "after": told["next"], "record": told["record"]}
    assert len(found) == len(set(found)) == 12
    (group,) = cast("dict[str, Any]", reactions_form(world.engine, {"does": "groups", "reaction": "r"}, 5))["groups"]
    assert (group["attempts"], group["keys"]) == (12, ["a"])
