"""Cases for `test_error_messages`: what is said about reactions, their targets and their leases."""

from __future__ import annotations

from pathlib import Path

from headwater.engine.limits import Limits
from headwater.engine.store.sqlite import SqliteStore
from headwater.protocol.commit import Declared, Delivered, LeaseHeld
from headwater.protocol.reactions import Operate, Outcome, QueryReactions, check_matched, lease_name
from tests.unit.engine.delivery_kit import World
from tests.unit.engine.messages import case, execute, raised, rejection


def with_order(limits: Limits | None = None) -> World:
    world = World(limits=limits) if limits is not None else World()
    world.subscribe()
    world.emit("a", 1)
    return world


@case("there is no reaction 'other' here", "`headwater reactions` lists those that there are")
def unknown_reaction(_: Path) -> str:
    return raised(lambda: World().operate("pause", "other"))


@case("one question is about at most 1 topics", "Ask several")
def too_many_topics(_: Path) -> str:
    world = World(limits=Limits(subscriptions=1))
    return raised(lambda: world.engine.deliver(QueryReactions(1, ("a", "b"))))


@case("reaction 'r' is for the records of 'orders', not of 'bills'", "Give the other one a name of its own")
def reaction_of_another_topic(_: Path) -> str:
    world = with_order()
    return raised(lambda: world.subscribe(topic="bills"))


@case("'a:b' cannot name a reaction", "without a colon")
def reaction_with_a_colon(_: Path) -> str:
    return raised(lambda: World().subscribe("a:b"))


@case("reaction 'r' names a topic of 513 characters and a lane of", "Give them shorter names.")
def reaction_of_a_long_topic(_: Path) -> str:
    return raised(lambda: World().subscribe("r", topic=513 * "t"))


@case("a space has at most 1 reactions, retired ones included")
def too_many_reactions(_: Path) -> str:
    world = with_order(Limits(subscriptions=1))
    return raised(lambda: world.subscribe("other"))


@case("one message is about at most 1 targets. Send several.")
def too_many_outcomes(_: Path) -> str:
    world = with_order(Limits(claim_targets=1))
    hold = world.claim_one().hold
    return raised(lambda: world.finish(Outcome(hold), Outcome(hold)))


@case("a target is leased for 1 to", "microseconds, not 0")
def lease_of_no_time(_: Path) -> str:
    return raised(lambda: World().claimed(lease_us=0))


@case("a retry waits 0 to", "microseconds, not 9007199254740991")
def retry_in_a_thousand_years(_: Path) -> str:
    world = with_order()
    grant = world.claim_one()
    return raised(lambda: world.fail(grant, wait_us=2**53 - 1))


@case("(1, 0) of target 'a' is not to be delivered")
def delivered_twice(_: Path) -> str:
    world = with_order()
    world.done(world.claim_one())
    target = world.store.delivery.target(1, "a")
    assert target is not None
    return raised(lambda: world.engine.delivery.results.end_replay(target, (1, 0)))


@case("skip one record of 'r': say the key of its target (key=, --key)")
def skip_of_everything(_: Path) -> str:
    world = with_order()
    return raised(lambda: world.operate("skip"))


@case("pause of 'r' is for the whole reaction and ignores a key: leave it out", "Nothing was changed")
def pause_of_one_target(_: Path) -> str:
    world = with_order()
    return raised(lambda: world.operate("pause", key="a"))


@case("unblock of 'r' selects by fingerprint and key and ignores a record: leave it out", "Nothing was changed")
def unblock_of_one_record(_: Path) -> str:
    world = with_order()
    return raised(lambda: world.operate("unblock", record=(1, 0)))


@case("reset of 'r' selects by an empty fingerprint", "name the fingerprint of an error, or leave it out. Nothing was")
def reset_by_an_empty_fingerprint(_: Path) -> str:
    world = with_order()
    return raised(lambda: world.operate("reset", fingerprint=""))


@case("skip r: no target is at a record with key 'b'. Nothing was changed; `targets` and `failures` show what there is")
def skip_of_an_unknown_key(_: Path) -> str:
    return raised(lambda: check_matched(Operate(1, "skip", "r", "b"), 0))


@case("replay r: no record was parked or skipped with record 1.0 and fingerprint 'abc'. Nothing was changed")
def replay_of_an_unknown_record(_: Path) -> str:
    return raised(lambda: check_matched(Operate(1, "replay", "r", None, (1, 0), "abc"), 0))


@case("reaction 'r' was retired: a worker that declares it takes it up again")
def resumed_after_it_was_retired(_: Path) -> str:
    world = with_order()
    world.operate("retire")
    return raised(lambda: world.operate("resume"))


@case("lease '$reaction:r:a' with token 1 is no longer held: no worker holds it", "Do not retry it.")
def ousted(_: Path) -> str:
    return rejection(with_order().commit(preconditions=(LeaseHeld(lease_name("r", "a"), 1),)))


@case("commit 2 delivers to a target twice, or without lease_held. Name the lease of each once.")
def delivered_without_a_lease(_: Path) -> str:
    return raised(lambda: with_order().commit(delivered=(Delivered("r", "a", 1, 0),)))


@case("commit 2 delivers records on a branch: only those of 'main' are")
def delivered_on_a_branch(_: Path) -> str:
    world = with_order()
    world.engine.fork("side")
    return raised(lambda: world.commit(branch="side", delivered=(Delivered("r", "a", 1, 0),)))


@case("commit 2 declares reactions on a branch: only 'main' is delivered")
def declared_on_a_branch(_: Path) -> str:
    world = with_order()
    world.engine.fork("side")
    return raised(lambda: world.commit(branch="side", declared=(Declared("r", "orders"),)))


@case("commit 2 declares a reaction twice. Declare each once.")
def declared_twice(_: Path) -> str:
    return raised(lambda: with_order().commit(declared=(Declared("r", "orders"), Declared("r", "orders"))))


@case("reaction 'r' is for the records of 'orders', not of 'others'. Give the other one a name of its own")
def declared_for_another_topic(_: Path) -> str:
    return rejection(with_order().commit(declared=(Declared("r", "others"),)))


@case("record 7.0 is not one that reaction 'r' is to deliver next to 'a'")
def delivered_what_there_is_not(_: Path) -> str:
    world = with_order()
    hold = world.claim_one().hold
    return rejection(
        world.commit(
            preconditions=(LeaseHeld(lease_name("r", "a"), hold.token),), delivered=(Delivered("r", "a", 7, 0),)
        )
    )


def _edited(folder: Path, statement: str) -> World:
    path = folder / "s.space"
    world = World(SqliteStore(path, synchronous="OFF"))
    world.subscribe()
    world.emit("a", 1)
    world.fail(world.claim_one(), "park")
    world.engine.close()
    execute(path, statement)
    return World(SqliteStore(path, synchronous="OFF"))


@case("the row of reaction 1 ('r') does not match its checksum")
def edited_subscription(folder: Path) -> str:
    return raised(lambda: _edited(folder, "UPDATE subscriptions SET lane='x'").claim())


@case("the row of target 'a' of reaction 1 does not match its checksum")
def edited_target(folder: Path) -> str:
    return raised(lambda: _edited(folder, "UPDATE targets SET attempt=7").targets())


@case("the row of the record of commit 1 that target 'a' of reaction 1 passed over does not match its checksum")
def edited_parked(folder: Path) -> str:
    return raised(lambda: _edited(folder, "UPDATE parked SET at_us=7").operate("replay"))


@case("the row of an attempt of target 'a' of reaction 1 at commit 1 does not match its checksum")
def edited_attempt(folder: Path) -> str:
    return raised(lambda: _edited(folder, "UPDATE attempts SET message='x'").failures())


@case("the lease of 'w' ended")
def lost_lease(_: Path) -> str:
    world = with_order()
    world.claim()
    world.clock.advance(2_000_000)
    world.claim()
    return world.failures().attempts[0].message
