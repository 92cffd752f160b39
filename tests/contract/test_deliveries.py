"""The contract of delivery: what workers and operators rely on, whichever database holds the space.

Scenarios on the virtual clock, against an engine over each store. Another database joins by adding one to `BACKENDS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from headwater.clock import VirtualClock
from headwater.engine import Limits
from headwater.engine.store.port import NEVER, RecordRow, Store, TargetPhase, TargetRow
from headwater.engine.store.sqlite import SqliteStore
from headwater.engine.verify import verify_store
from headwater.protocol.commit import Delivered, LeaseHeld, TopicRecord
from headwater.protocol.reactions import Outcome, lease_name
from headwater.protocol.verdict import Accepted, PreconditionFailed, Rejected
from tests.unit.engine.delivery_kit import LEASE_US, World, payloads

BACKENDS: dict[str, Callable[[Path], Store]] = {
    "sqlite-file": lambda folder: SqliteStore(folder / "s.space", synchronous="OFF"),
    "sqlite-memory": lambda folder: SqliteStore(":memory:"),
}


@pytest.fixture(params=BACKENDS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    made = World(BACKENDS[request.param](tmp_path))
    yield made
    report = verify_store(made.store)
    assert report.ok, report
    made.engine.close()


# --- delivery and order ----------------------------------------------------------------------------------


class TestOrder:
    def test_one_target_sees_its_records_in_commit_order_with_any_number_of_workers(self, world: World) -> None:
        world.subscribe()
        world.emit("a", *range(10))
        seen: list[object] = []
        for turn in range(10):
            grants = [grant for name in ("w1", "w2", "w3") for grant in world.claim(worker=name, records=1)]
            assert len(grants) == 1, f"turn {turn}"
            seen += payloads(grants[0])
            world.done(grants[0])
        assert seen == list(range(10))
        assert world.claim() == []

    def test_records_of_one_commit_keep_their_order(self, world: World) -> None:
        world.subscribe()
        world.commit(*[TopicRecord("orders", key, n) for n, key in enumerate("abab")])
        assert {grant.hold.key: payloads(grant) for grant in world.claim()} == {"a": [0, 2], "b": [1, 3]}

    def test_a_crash_before_the_acknowledgement_redelivers_and_nothing_is_lost(self, world: World) -> None:
        world.subscribe()
        world.emit("a", 1, 2)
        world.claim(worker="dies")
        world.clock.advance(LEASE_US)
        grant = world.claim_one(worker="lives")
        assert payloads(grant) == [1], "what was tried before comes alone"
        world.done(grant)
        assert payloads(world.claim_one()) == [2]

    def test_two_reactions_on_one_record_have_positions_of_their_own(self, world: World) -> None:
        world.subscribe("r")
        world.subscribe("other")
        world.emit("a", 1, 2)
        first, second = world.claim("r", "other")
        assert {first.hold.reaction, second.hold.reaction} == {"r", "other"}
        world.fail(first, "block")
        world.done(second)
        world.emit("a", 3)
        assert [(grant.hold.reaction, payloads(grant)) for grant in world.claim("r", "other")] == [
            (second.hold.reaction, [3])
        ]

    def test_the_failure_of_one_target_holds_up_no_other(self, world: World) -> None:
        world.subscribe()
        world.emit("a", 1)
        world.emit("b", 2)
        grants = {grant.hold.key: grant for grant in world.claim()}
        world.fail(grants["a"], "block")
        world.done(grants["b"])
        world.emit("a", 3)
        world.emit("b", 4)
        assert [(grant.hold.key, payloads(grant)) for grant in world.claim()] == [("b", [4])]

    def test_topics_that_begin_alike_and_keys_that_look_alike_are_kept_apart(self, world: World) -> None:
        world.subscribe("r", topic="s1")
        for topic in ("s12", "S1", "s"):
            world.emit("k", topic, topic=topic)
        assert world.claim() == []
        for key in ("k", "K", "k ", "", "ä", "a\u0308"):
            world.emit(key, key, topic="s1")
        assert {grant.hold.key: payloads(grant) for grant in world.claim()} == {
            key: [key] for key in ("k", "K", "k ", "", "ä", "a\u0308")
        }

    def test_what_is_emitted_on_a_branch_is_delivered_to_nobody(self, world: World) -> None:
        world.subscribe()
        world.emit("a", 0)
        world.done(world.claim_one())
        world.engine.fork("side")
        world.emit("a", 1, branch="side")
        assert world.claim() == []
        world.emit("a", 2)
        assert payloads(world.claim_one()) == [2]

    def test_a_record_says_who_emitted_it_and_when(self, world: World) -> None:
        world.subscribe()
        world.clock.advance(5)
        world.emit("a", 1)
        at_us = world.clock.now_us()
        world.clock.advance(7)
        record = world.claim_one().records[0]
        assert (record.source, record.emitted_us) == ("piece a", at_us)

    def test_a_commit_that_is_refused_marks_nothing(self, world: World) -> None:
        world.subscribe()
        refused = world.commit(TopicRecord("orders", "a", 1), preconditions=(LeaseHeld("nobody's", 1),))
        assert isinstance(refused, Rejected)
        assert world.claimed().next_us is None


# --- subscriptions ---------------------------------------------------------------------------------------


class TestSubscriptions:
    def test_from_now_hears_only_of_what_comes_and_from_the_beginning_of_all(self, world: World) -> None:
        world.emit("a", 1)
        assert world.subscribe("now").is_new
        assert world.subscribe("all", since="beginning").is_new
        world.emit("a", 2)
        found = {grant.hold.reaction: payloads(grant) for grant in world.claim("now", "all")}
        assert found == {"now": [2], "all": [1, 2]}

    def test_filling_goes_by_pages_and_a_record_in_the_middle_of_it_keeps_the_order(self, tmp_path: Path) -> None:
        world = World(limits=Limits(page=3))
        for number in range(10):
            world.emit(f"k{number}", number)
        world.subscribe(since="beginning")
        world.emit("k9", "late")
        seen: dict[str, list[object]] = {}
        for _ in range(6):
            answer = world.claimed(limit=4)
            for grant in answer.grants:
                seen.setdefault(grant.hold.key, []).extend(payloads(grant))
                world.done(grant)
        assert seen == {**{f"k{n}": [n] for n in range(9)}, "k9": [9, "late"]}
        assert not world.reaction().is_filling
        assert verify_store(world.store).ok

    def test_while_it_is_filled_a_claim_says_come_again_at_once(self) -> None:
        world = World(limits=Limits(page=2))
        world.emit("a", *range(5))
        world.subscribe(since="beginning")
        assert world.claimed(limit=0).next_us == 0
        assert world.reaction().is_filling

    def test_subscribing_again_changes_nothing_but_lane_and_priority(self, world: World) -> None:
        world.subscribe()
        world.emit("a", 1)
        assert not world.subscribe(lane="slow", priority=2, since="beginning").is_new
        assert (world.reaction().lane, world.reaction().priority) == ("slow", 2)
        assert payloads(world.claim_one()) == [1]

    def test_a_paused_one_collects_and_delivers_nothing_until_it_is_resumed(self, world: World) -> None:
        world.subscribe()
        world.operate("pause")
        world.emit("a", 1)
        assert world.claimed().next_us is None
        assert world.reaction().state == "paused"
        world.operate("resume")
        assert payloads(world.claim_one()) == [1]

    def test_a_retired_one_is_listed_and_goes_on_where_it_was_when_it_is_declared_again(self, world: World) -> None:
        world.subscribe()
        world.emit("a", 1)
        world.done(world.claim_one())
        world.operate("retire")
        world.emit("a", 2)
        world.emit("b", 3)
        assert world.reaction().state == "retired"
        assert world.claim() == []
        assert world.subscribe().is_new, "it did not hear of anything before, and workers have to know"
        assert not world.subscribe().is_new
        assert {grant.hold.key: payloads(grant) for grant in world.claim()} == {"a": [2], "b": [3]}

    def test_work_exists_because_of_a_record_never_because_of_a_subscription(self, world: World) -> None:
        world.subscribe(since="beginning")
        world.claim()
        assert world.claimed().next_us is None
        assert world.targets() == {}


# --- leases ----------------------------------------------------------------------------------------------


class TestLeases:
    def test_a_held_target_is_invisible_to_others_and_they_are_told_when_it_is_over(self, world: World) -> None:
        world.subscribe()
        world.emit("a", 1)
        world.claim(worker="one")
        answer = world.claimed(worker="two")
        assert answer.grants == ()
        assert answer.next_us == LEASE_US

    def test_a_lease_that_is_over_goes_to_exactly_one_claimer(self, world: World) -> None:
        world.subscribe()
        world.emit("a", 1)
        world.claim(worker="dies")
        world.clock.advance(LEASE_US)
        assert [len(world.claim(worker=f"w{n}")) for n in range(5)] == [1, 0, 0, 0, 0]

    def test_the_first_attempt_is_number_0_each_reclaim_adds_one_and_an_acknowledgement_resets(
        self, world: World
    ) -> None:
        world.subscribe()
        world.emit("a", 1, 2)
        for number in range(4):
            grant = world.claim_one()
            assert (grant.attempt, grant.lost) == (number, number)
            world.clock.advance(LEASE_US)
        world.done(world.claim_one(records=1))
        assert world.claim_one().attempt == 0

    def test_a_renewed_lease_goes_on_and_a_lost_one_is_named(self, world: World) -> None:
        world.subscribe()
        world.emit("a", 1)
        grant = world.claim_one(worker="slow")
        for _ in range(5):
            world.clock.advance(LEASE_US - 1)
            assert world.renew(grant.hold) == ()
            assert world.claim(worker="other") == []
        world.clock.advance(LEASE_US)
        world.claim(worker="other")
        assert world.renew(grant.hold) == (grant.hold,)

    def test_a_late_acknowledgement_changes_nothing_and_is_reported(self, world: World) -> None:
        world.subscribe()
        world.emit("a", 1)
        late = world.claim_one(worker="slow")
        world.clock.advance(LEASE_US)
        now = world.claim_one(worker="other")
        assert world.done(late).late == (late.hold,)
        assert world.fail(late, "skip").late == (late.hold,)
        assert world.targets()["a"].state == "leased"
        assert world.done(now).late == ()

    def test_an_outcome_that_cannot_be_is_late_and_takes_no_other_along(self, world: World) -> None:
        world.subscribe()
        world.emit("a", 1, 2)
        world.emit("b", 3)
        first = {grant.hold.key: grant for grant in world.claim(records=1)}
        world.done(first["a"])
        again = world.claim_one()
        wrong = Outcome(again.hold, (first["a"].records[0].seq, 0))
        right = Outcome(first["b"].hold, (first["b"].records[0].seq, 0))
        assert world.finish(wrong, right).late == (again.hold,)
        assert (world.targets()["a"].state, world.targets()["b"].state) == ("leased", "idle")

    def test_whoever_is_late_but_was_not_replaced_is_still_the_holder(self, world: World) -> None:
        world.subscribe()
        world.emit("a", 1)
        grant = world.claim_one()
        world.clock.advance(10 * LEASE_US)
        assert world.done(grant).late == ()
        assert world.targets()["a"].state == "idle"

    def test_tokens_rise_and_no_restart_gives_one_twice(self, tmp_path: Path) -> None:
        clock = VirtualClock()
        tokens: list[int] = []
        for restart in range(4):
            world = World(SqliteStore(tmp_path / "s.space", synchronous="OFF"), clock=clock)
            world.subscribe()
            world.emit("a", restart)
            for _ in range(3):
                tokens.append(world.claim_one().hold.token)
                clock.advance(LEASE_US)
            world.engine.close()
        assert tokens == sorted(set(tokens))

    def test_a_target_that_is_given_back_has_spent_nothing(self, world: World) -> None:
        world.subscribe()
        world.emit("a", 1)
        world.give_back(world.claim_one())
        grant = world.claim_one()
        assert (grant.attempt, grant.lost) == (0, 0)


# --- retry -----------------------------------------------------------------------------------------------


class TestRetry:
    def test_nothing_runs_inside_the_window_from_any_worker(self, world: World) -> None:
        world.subscribe()
        world.emit("a", 1)
        answer = world.fail(world.claim_one(), wait_us=500)
        assert answer.next_us == 500
        world.clock.advance(499)
        assert [world.claimed(worker=name).next_us for name in ("w", "x")] == [1, 1]
        world.clock.advance(1)
        assert world.claim_one(worker="x").attempt == 1

    def test_a_due_time_and_the_attempts_survive_a_restart(self, tmp_path: Path) -> None:
        clock = VirtualClock()
        world = World(SqliteStore(tmp_path / "s.space", synchronous="OFF"), clock=clock)
        world.subscribe()
        world.emit("a", 1)
        world.fail(world.claim_one(), wait_us=5_000_000)
        world.engine.close()
        again = World(SqliteStore(tmp_path / "s.space", synchronous="OFF"), clock=clock)
        assert again.claimed().next_us == 5_000_000
        clock.advance(5_000_000)
        assert again.claim_one().attempt == 1
        assert [tried.message for tried in again.failures().attempts] == ["boom happened"]
        again.engine.close()

    def test_a_window_is_independent_of_the_lease(self, world: World) -> None:
        world.subscribe()
        world.emit("a", 1)
        world.fail(world.claim_one(), wait_us=10 * LEASE_US)
        world.clock.advance(2 * LEASE_US)
        assert world.claim() == []
        world.clock.advance(8 * LEASE_US)
        assert world.claim_one().attempt == 1

    def test_success_clears_what_was_kept_of_failures(self, world: World) -> None:
        world.subscribe()
        world.emit("a", 1, 2)
        world.fail(world.claim_one(records=1))
        assert len(world.failures().attempts) == 1
        world.done(world.claim_one())
        assert world.failures().attempts == ()
        target = world.targets()["a"]
        assert (target.failures, target.lost, target.attempt, target.fingerprint) == (0, 0, 0, "")

    def test_failures_and_lost_leases_are_counted_apart_and_both_spend_attempts(self, world: World) -> None:
        world.subscribe()
        world.emit("a", 1)
        world.fail(world.claim_one())
        world.claim_one()
        world.clock.advance(LEASE_US)
        grant = world.claim_one()
        target = world.targets()["a"]
        assert [tried.how for tried in world.failures().attempts] == ["failed", "lost"]
        assert (grant.attempt, target.failures, target.lost) == (2, 1, 1)
        world.done(grant)
        state = world.reaction()
        assert (state.delivered, state.failed, state.lost) == (1, 1, 1)

    def test_partial_progress_and_the_failure_behind_it_land_together(self, world: World) -> None:
        world.subscribe()
        world.emit("a", 1, 2, 3)
        world.fail(world.claim_one(), "block", after=2)
        target = world.targets()["a"]
        assert (target.state, target.position, target.attempt) == ("blocked", (2, 0), 1)

    def test_of_a_record_that_fails_for_ever_the_last_attempts_are_kept(self, world: World) -> None:
        world.subscribe()
        world.emit("a", 1)
        for _ in range(100):
            world.fail(world.claim_one())
        assert sorted(tried.attempt for tried in world.failures().attempts) == list(range(68, 100))

    def test_a_handler_that_kills_its_worker_is_blamed_on_its_own_record(self, world: World) -> None:
        """A batch of ten, the fifth of which brings everything down: the others are delivered all the same."""
        world.subscribe()
        world.emit("a", *range(10))
        delivered: list[object] = []
        attempts: dict[object, int] = {}
        for _ in range(40):
            grants = world.claim()
            if not grants:
                world.clock.advance(LEASE_US)
                continue
            (grant,) = grants
            first = grant.records[0].payload
            attempts[first] = grant.attempt
            if grant.attempt >= 3:
                world.fail(grant, "park")
            elif 5 not in payloads(grant):
                delivered += payloads(grant)
                world.done(grant)
        assert delivered == [0, 1, 2, 3, 4, 6, 7, 8, 9]
        assert [each.seq for each in world.failures().parked] == [6]
        assert attempts[5] == 3


# --- blocking and recovery -------------------------------------------------------------------------------


class TestRecovery:
    def test_a_blocked_target_is_never_claimed_and_unblocking_keeps_its_position(self, world: World) -> None:
        world.subscribe()
        world.emit("a", 1, 2)
        grant = world.claim_one(records=1)
        world.fail(grant, "block")
        world.clock.advance(10**12)
        assert world.claimed().next_us is None
        assert world.fail(grant, "block").late == (grant.hold,), "blocking twice is harmless"
        assert world.operate("unblock").count == 1
        assert world.operate("unblock").count == 0
        again = world.claim_one()
        assert (again.attempt, payloads(again)) == (0, [1, 2])

    def test_a_parked_record_is_passed_over_and_can_be_tried_again(self, world: World) -> None:
        world.subscribe()
        world.emit("a", 1, 2)
        world.fail(world.claim_one(), "park")
        world.done(world.claim_one())
        assert [(each.seq, each.how) for each in world.failures().parked] == [(1, "parked")]
        assert len(world.failures().attempts) == 1, "why it was parked is kept"
        world.emit("a", 3)
        assert world.operate("replay", key="a").count == 1
        again = world.claim_one()
        assert (again.replayed, payloads(again), again.attempt) == (True, [1], 0)
        world.done(again)
        assert world.failures() == type(world.failures())(8, (), ())
        assert payloads(world.claim_one()) == [3]

    def test_a_replayed_record_that_fails_again_is_parked_again(self, world: World) -> None:
        world.subscribe()
        world.emit("a", 1, 2)
        world.fail(world.claim_one(), "park")
        world.operate("replay")
        world.fail(world.claim_one(), "park")
        assert [each.how for each in world.failures().parked] == ["parked"]
        assert payloads(world.claim_one()) == [2]

    def test_records_that_failed_alike_are_tried_again_together(self, world: World) -> None:
        world.subscribe()
        for number, fingerprint in enumerate(["x", "y", "x"]):
            world.emit(f"k{number}", number)
            world.fail(world.claim_one(), "park", fingerprint=fingerprint)
        assert world.operate("replay", fingerprint="x").count == 2
        assert sorted(grant.hold.key for grant in world.claim()) == ["k0", "k2"]

    def test_an_operator_skips_what_blocks_and_can_have_it_back(self, world: World) -> None:
        world.subscribe()
        world.emit("a", 1, 2)
        world.fail(world.claim_one(), "block")
        assert world.operate("skip", key="a").count == 1
        assert payloads(world.claim_one()) == [2]
        assert [each.how for each in world.failures().parked] == ["skipped"]

    def test_skipping_takes_the_lease_from_whoever_has_it(self, world: World) -> None:
        world.subscribe()
        world.emit("a", 1, 2)
        grant = world.claim_one(records=1)
        world.operate("skip", key="a")
        assert world.done(grant).late == (grant.hold,)
        assert payloads(world.claim_one()) == [2]

    def test_resetting_replays_from_the_start(self, world: World) -> None:
        world.subscribe()
        world.emit("a", 1, 2)
        world.emit("b", 3)
        for grant in world.claim():
            world.done(grant)
        assert world.operate("reset", key="a").count == 1
        assert payloads(world.claim_one()) == [1, 2]
        assert world.operate("reset").count == 2

    def test_many_targets_are_changed_some_at_a_time(self) -> None:
        world = World(limits=Limits(page=4))
        world.subscribe()
        for number in range(10):
            world.emit(f"k{number}", number)
            world.fail(world.claim_one(), "block")
        counts, after = [], None
        while True:
            answer = world.operate("unblock", after=after)
            counts.append(answer.count)
            after = answer.next
            if after is None:
                break
        assert counts == [4, 4, 2]
        assert len(world.claim()) == 10

    def test_what_is_waiting_and_since_when_is_told(self, world: World) -> None:
        world.subscribe()
        world.emit("a", 1)
        world.clock.advance(300)
        world.emit("b", 2)
        state = world.reaction()
        assert (state.due, state.blocked, state.parked, state.oldest_us, state.next_us) == (2, 0, 0, 300, 0)
        assert state.unserved_us == 300
        world.claim(limit=1)
        assert world.reaction().unserved_us == 0


# --- priorities ------------------------------------------------------------------------------------------


class TestPriorities:
    def test_a_higher_priority_comes_first_and_the_default_never_starves(self, world: World) -> None:
        world.subscribe("low")
        world.subscribe("high", priority=5)
        world.emit("old", 0)
        for grant in world.claim("high"):
            world.done(grant)
        order: list[str] = []
        for number in range(20):
            world.clock.advance(1_000_000)
            world.emit(f"k{number}", number)
            (grant,) = world.claim("low", "high", limit=1)
            order.append(f"{grant.hold.reaction} {grant.hold.key}")
            world.done(grant)
        assert order[0] == "high k0"
        assert "low old" in order[:7]


# --- together with a commit ------------------------------------------------------------------------------


class TestWithACommit:
    def test_the_position_moves_with_the_commit_under_its_lease(self, world: World) -> None:
        world.subscribe()
        world.emit("a", 1, 2)
        grant = world.claim_one()
        assert isinstance(world.deliver_with(grant, 0, keeps=True), Accepted)
        assert world.targets()["a"].state == "leased"
        assert isinstance(world.deliver_with(grant, 1), Accepted)
        assert world.targets()["a"].state == "idle"
        assert world.done(grant).late == (grant.hold,)

    def test_whoever_lost_the_lease_commits_nothing(self, world: World) -> None:
        world.subscribe()
        world.emit("a", 1)
        late = world.claim_one(worker="slow")
        world.clock.advance(LEASE_US)
        now = world.claim_one(worker="other")
        verdict = world.deliver_with(late)
        assert isinstance(verdict, Rejected)
        assert isinstance(verdict.rejection, PreconditionFailed)
        assert isinstance(world.deliver_with(now), Accepted)
        verdict = world.deliver_with(now)
        assert isinstance(verdict, Rejected), "what was delivered is not delivered again"

    def test_what_it_emits_and_what_it_delivers_may_be_one_topic(self, world: World) -> None:
        world.subscribe()
        world.emit("a", 1)
        grant = world.claim_one()
        record = grant.records[0]
        verdict = world.commit(
            TopicRecord("orders", "a", "next"),
            preconditions=(LeaseHeld(lease_name("r", "a"), grant.hold.token),),
            delivered=(Delivered("r", "a", record.seq, record.ordinal),),
        )
        assert isinstance(verdict, Accepted)
        assert payloads(world.claim_one()) == ["next"]

    def test_a_replayed_record_can_be_delivered_with_a_commit(self, world: World) -> None:
        world.subscribe()
        world.emit("a", 1)
        world.fail(world.claim_one(), "park")
        world.operate("replay")
        assert isinstance(world.deliver_with(world.claim_one()), Accepted)
        assert world.failures().parked == ()


# --- what it costs ---------------------------------------------------------------------------------------


def crowd(store: Store, count: int) -> None:
    """So many targets, one in a hundred of them due, each with a record. Emitting them would take minutes."""
    due = [f"k{n}" for n in range(0, count, 100)]
    store.begin()
    store.delivery.add_targets([_target(f"k{n}", TargetPhase.IDLE, NEVER) for n in range(count) if n % 100])
    store.delivery.add_targets([_target(key, TargetPhase.DUE, 1) for key in due])
    store.put_records(RecordRow(place + 1, 0, "orders", key, b"\x01", "", 1, 1) for place, key in enumerate(due))
    store.commit()


def _target(key: str, state: TargetPhase, due_us: int) -> TargetRow:
    return TargetRow(1, key, 0, 0, state, due_us, 0, 0, 0, 0, 0, "", 1, 0, "")


def cost_of_a_claim(count: int) -> tuple[int, int, int]:
    """Statements, rows that were read, and steps of the database's machine: rows that it looked at count, too."""
    opened: list[apsw.Connection] = []
    apsw.connection_hooks.append(opened.append)
    try:
        store = SqliteStore(":memory:")
    finally:
        apsw.connection_hooks.remove(opened.append)
    world = World(store)
    world.subscribe()
    crowd(store, count)
    world.claim(limit=10)
    before = (store.visited.statements, store.visited.rows)
    steps: list[int] = []

    def step() -> bool:
        steps.append(1)
        return False

    [connection] = opened
    connection.set_progress_handler(step, 20)
    assert len(world.claim(limit=10)) == 10
    connection.set_progress_handler(None)
    return store.visited.statements - before[0], store.visited.rows - before[1], len(steps)


@pytest.mark.thorough
def test_a_claim_costs_the_same_with_a_million_targets_as_with_ten_thousand() -> None:
    few, many = cost_of_a_claim(10_000), cost_of_a_claim(1_000_000)
    assert few[:2] == many[:2]
    assert abs(few[2] - many[2]) <= 5, (few, many)
    assert few[0] < 30
    assert few[1] < 30


def test_given_back_with_progress_settles(world: World) -> None:
    world.subscribe()
    world.emit("a", 1, 2, 3)
    grant = world.claim_one()
    world.finish(Outcome(grant.hold, (grant.records[0].seq, 0), keeps=True))
    assert world.targets()["a"].state == "leased"
    world.finish(Outcome(grant.hold, (grant.records[1].seq, 0)))
    assert payloads(world.claim_one()) == [3]


def test_a_claim_holds_so_many_bytes_and_one_long_record_comes_all_the_same() -> None:
    world = World(limits=Limits(claim_bytes=100))
    world.subscribe()
    world.emit("a", "x" * 60, "y" * 60, "z" * 300)
    world.emit("b", "x" * 90)
    (grant,) = world.claim()
    assert payloads(grant) == ["x" * 60]
    world.done(grant)
    found = {grant.hold.key: payloads(grant) for grant in (*world.claim(), *world.claim())}
    assert found == {"b": ["x" * 90], "a": ["y" * 60]}
