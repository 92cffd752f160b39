"""A reaction that was declared, not answered, and declared again: what was emitted since is for it, and no more."""

from __future__ import annotations

from headwater.engine.limits import Limits
from headwater.protocol.reactions import Claim, Subscribe, Subscribed, TargetsDue, WatchTargets
from tests.unit.engine.delivery_kit import LEASE_US, World, as_a, payloads
from tests.unit.engine.hub_kit import Raw
from tests.unit.engine.test_offers import emits
from tests.unit.replica.kit import World as Hub


def again(world: World, after: int) -> Subscribed:
    return as_a(Subscribed, world.engine.deliver(Subscribe(1, "r", "orders", after=after)))


def delivered(world: World) -> dict[str, list[object]]:
    """All that there is to deliver, by key."""
    found: dict[str, list[object]] = {}
    while (claimed := world.claimed(limit=2, records=2)).grants or claimed.next_us == 0:
        for grant in claimed.grants:
            found.setdefault(grant.hold.key, []).extend(payloads(grant))
            world.done(grant)
    return found


def test_it_hears_of_what_was_emitted_since_it_was_declared_first_and_of_nothing_before() -> None:
    world = World(limits=Limits(page=2))
    world.emit("a", "before")
    after = world.emit("b", "before")
    for number in range(3):
        world.emit("a", number)
        world.emit("c", number)
    assert again(world, after).is_new
    assert world.reaction().is_filling
    world.emit("a", "later")
    assert delivered(world) == {"a": [0, 1, 2, "later"], "c": [0, 1, 2]}
    assert not world.reaction().is_filling


def test_where_nothing_was_emitted_since_there_is_nothing_to_look_through() -> None:
    world = World()
    after = world.emit("a", "before")
    again(world, after)
    assert not world.reaction().is_filling
    world.emit("a", 1)
    assert delivered(world) == {"a": [1]}


def test_of_a_log_that_does_not_go_so_far_it_hears_from_its_end_on() -> None:
    world = World()
    world.emit("a", "before")
    again(world, 1_000)
    world.emit("a", 1)
    assert delivered(world) == {"a": [1]}


def test_one_that_somebody_else_declared_meanwhile_hears_of_the_same() -> None:
    world = World()
    after = world.emit("a", "before")
    world.emit("a", "unheard")
    world.subscribe()
    world.emit("b", "heard")
    assert again(world, after).is_new, "others are told"
    assert not again(world, after).is_new, "once"
    assert delivered(world) == {"a": ["unheard"], "b": ["heard"]}


def test_one_that_was_heard_before_does_not_change() -> None:
    world = World()
    world.subscribe()
    world.emit("a", 1)
    after = world.emit("b", 2)
    assert not again(world, after).is_new
    assert delivered(world) == {"a": [1], "b": [2]}


def test_with_since_beginning_it_hears_of_everything_in_any_case() -> None:
    world = World()
    after = world.emit("a", "before")
    world.emit("a", "since")
    as_a(Subscribed, world.engine.deliver(Subscribe(1, "r", "orders", "beginning", after=after)))
    assert delivered(world) == {"a": ["before", "since"]}


def test_whoever_watches_is_told_at_once_that_there_may_be_something() -> None:
    world = Hub()
    emitter, worker = Raw(world, "emitter"), Raw(world, "worker")
    worker.say(WatchTargets(7))
    emits(emitter, 1, "a")
    worker.heard.clear()
    emitter.say(Subscribe(2, "r", "orders", after=0))
    (due,) = [each for each in worker.heard if isinstance(each, TargetsDue)]
    assert (due.subscriptions, due.is_more) == (1, True)
    worker.say(Claim(8, "worker", ("r",), 5, 5, LEASE_US))
