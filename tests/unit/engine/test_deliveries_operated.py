"""Records that are looked through later, passed over, replayed, reset: each is delivered as often as was asked for."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest

from headwater.engine.limits import DEFAULT_LIMITS, Limits
from headwater.errors import LimitError
from headwater.protocol.commit import TopicRecord
from headwater.protocol.reactions import DeliveryFailure, Grant, Outcome, QueryReactions, ReactionList
from tests.unit.engine.delivery_kit import LEASE_US, World, as_a, payloads


def small(page: int) -> World:
    return World(limits=replace(DEFAULT_LIMITS, page=page))


def delivered(world: World, rounds: int = 50) -> list[object]:
    """What a worker gets that does all there is."""
    found: list[object] = []
    for _ in range(rounds):
        claimed = world.claimed()
        for grant in claimed.grants:
            found += payloads(grant)
            world.done(grant)
        if not claimed.grants and claimed.next_us is None:
            break
    return found


def parked_third(world: World) -> World:
    """Five records of one key, of which the third was parked and the others are delivered."""
    world.subscribe()
    world.emit("a", 1, 2, 3, 4, 5)
    world.done(world.claim_one(records=2))
    world.fail(world.claim_one(records=1), "park")
    world.done(world.claim_one())
    return world


@pytest.mark.parametrize("page", range(1, 8))
def test_a_commit_of_many_records_is_looked_through_to_its_end(page: int) -> None:
    """Wherever a page ends: in the last commit before the subscription, too."""
    world = small(page)
    world.emit("a", 1, 2, 3)
    world.commit(*[TopicRecord("orders", key, key, "p") for key in "bcd"])
    world.subscribe(since="beginning")
    assert sorted(map(str, delivered(world))) == ["1", "2", "3", "b", "c", "d"]
    assert not world.reaction().is_filling


@pytest.mark.parametrize("page", range(1, 8))
def test_so_it_is_when_a_retired_one_is_declared_again(page: int) -> None:
    world = small(page)
    world.subscribe()
    world.operate("retire")
    world.commit(*[TopicRecord("orders", key, key, "p") for key in "bcd"])
    world.subscribe()
    assert sorted(map(str, delivered(world))) == ["b", "c", "d"]


def test_where_nothing_was_emitted_there_is_nothing_to_look_through() -> None:
    world = World()
    world.subscribe(since="beginning")
    assert not world.reaction().is_filling


@pytest.mark.parametrize("order", [("replay", "reset"), ("reset", "replay"), ("reset",)])
def test_a_target_that_was_reset_has_every_record_once_more(order: tuple[str, ...]) -> None:
    """Whatever was passed over is one of them, and is passed over no more."""
    world = parked_third(World())
    for does in order:
        world.operate(does, key="a")  # type: ignore[arg-type]
    assert delivered(world) == [1, 2, 3, 4, 5]
    assert (world.reaction().parked, world.failures().attempts, world.failures().parked) == (0, (), ())
    assert world.operate("replay").count == 0
    assert delivered(world) == []


def test_a_reset_goes_back_to_where_the_reaction_began() -> None:
    world = World()
    world.emit("a", "before", "before that")
    world.subscribe(since="now")
    world.emit("a", "after")
    assert delivered(world) == ["after"]
    world.operate("reset")
    assert delivered(world) == ["after"]


def test_a_crash_at_any_record_of_a_claim_costs_an_attempt() -> None:
    """The first is delivered together with what its handler wrote; the lease goes on, and the second is tried."""
    world = World()
    world.subscribe()
    world.emit("a", 1, 2, 3)
    world.deliver_with(world.claim_one(records=10), 0, keeps=True)
    for number in (1, 2, 3):
        world.clock.advance(LEASE_US + 1)
        grant: Grant = world.claim_one(records=10)
        assert (grant.attempt, grant.lost, payloads(grant)) == (number, number, [2])


@pytest.mark.parametrize("key", [None, "a"])
def test_however_many_were_passed_over_all_of_them_are_replayed(key: str | None) -> None:
    world = small(3)
    world.subscribe()
    world.emit("a", *range(8))
    world.emit("b", 100)
    for _ in range(8):
        for grant in world.claim(records=1):
            world.fail(grant, "park")
    changed, after, place = 0, None, None
    for asked in count():
        answer = world.operate("replay", key=key, after=after, place=place)
        changed, after, place = changed + answer.count, answer.next, answer.place
        if after is None:
            break
        assert asked < 9, "each call goes on behind the one before"
    assert changed == (9 if key is None else 8)
    assert sorted(map(str, delivered(world))) == sorted(map(str, [*range(8), *([100] if key is None else [])]))


def test_what_was_unblocked_and_is_delivered_leaves_nothing_in_the_list_of_failures() -> None:
    world = World()
    world.subscribe()
    world.emit("a", 1)
    world.fail(world.claim_one(), "block")
    world.operate("unblock")
    world.done(world.claim_one())
    assert world.failures().attempts == ()


def test_nobody_can_say_that_more_was_delivered_than_there_is() -> None:
    """A position beyond the last record, or at another key's, would pass over what comes without a trace."""
    world = World()
    world.subscribe()
    world.emit("a", 1)
    seq = world.emit("b", 2)
    grant = next(grant for grant in world.claim() if grant.hold.key == "a")
    for place in ((1_000_000, 0), (seq, 0), (grant.records[0].seq, 1)):
        assert world.finish(Outcome(grant.hold, place)).late == (grant.hold,)
        failure = DeliveryFailure(*place, "ValueError", "boom", "boom", "park")
        assert world.finish(Outcome(grant.hold, None, failure)).late == (grant.hold,)
    assert world.done(grant).late == ()
    world.emit("a", 3)
    assert payloads(world.claim_one()) == [3]


def test_how_long_a_target_waits_is_the_age_of_its_next_record() -> None:
    world = World()
    world.subscribe()
    world.emit("a", 0)
    for number in range(1, 10):
        world.clock.advance(1_000_000)
        world.emit("a", number)
        world.done(world.claim_one(records=1))
    world.clock.advance(500_000)
    assert world.targets()["a"].age_us == 500_000
    assert world.reaction().oldest_us == 500_000


def test_a_question_about_too_many_topics_is_refused_and_the_others_say_which_have_records() -> None:
    world = World(limits=Limits(subscriptions=2))
    world.emit("a", 1)
    assert as_a(ReactionList, world.engine.deliver(QueryReactions(1, ("orders", "none")))).emitted == ("orders",)
    with pytest.raises(LimitError, match="at most 2 topics"):
        world.engine.deliver(QueryReactions(1, ("a", "b", "c")))
