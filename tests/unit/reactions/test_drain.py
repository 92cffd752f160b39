"""The drain: what workers do with targets that are due, on the virtual clock."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from headwater.backoff import Backoff
from headwater.clock import VirtualClock
from headwater.errors import AuthoringError, Refused
from headwater.protocol.reactions import Claim, Granted
from headwater.protocol.verdict import Accepted
from headwater.reactions.drain import Drain, Pace
from headwater.reactions.port import Batch, LeaseLostError
from headwater.reactions.retry_rules import FailedAttempt, Rule, Rules, fingerprint, judge_failure, retry_after_us
from headwater.reactions.traces import Late
from tests.unit.reactions.kit import EngineDesk, Story, fails, played, takes

BOOM = ValueError("boom")


# --- liveness --------------------------------------------------------------------------------------------


def test_an_idle_retry_fires_by_itself() -> None:
    """No traffic comes: the stored due time alone brings the next attempt."""

    async def story(s: Story) -> None:
        stub = s.stub(fails(BOOM, None), backoff=Backoff.fixed(base_ms=200))
        await s.worker(stub)
        s.emit("a", 1)
        await s.passes(4_000)
        assert [at // 1_000 for at in stub.times] == [0, 200]
        assert stub.attempts == [0, 1]

    played(story)


def test_a_dead_workers_target_is_taken_over_within_one_lease_without_any_traffic() -> None:
    async def story(s: Story) -> None:
        dying, other = s.stub(takes(60_000)), s.stub()
        dies = await s.worker(dying, name="dies")
        await s.passes(1)
        s.emit("a", 1)
        await s.passes(99)
        await s.worker(other, name="lives")
        await s.passes(1)
        assert (len(dying.began), len(other.began)) == (1, 0)
        dies.kill()
        await s.passes(2_000)
        assert len(other.began) == 1
        assert other.times[0] <= 1_002_000
        assert other.attempts == [1], "the crash cost an attempt"

    played(story)


def test_a_handler_slower_than_its_lease_runs_once() -> None:
    async def story(s: Story) -> None:
        slow, other = s.stub(takes(5_000)), s.stub(takes(5_000))
        await s.worker(slow, name="slow")
        await s.worker(other, name="other")
        s.emit("a", 1)
        await s.passes(20_000)
        assert len(slow.began) + len(other.began) == 1
        assert s.world.targets()["a"].state == "idle"

    played(story)


def test_a_retry_that_its_worker_did_not_live_to_see_is_made_by_another_one() -> None:
    async def story(s: Story) -> None:
        one, two = s.stub(fails(BOOM), backoff=Backoff.fixed(base_ms=300)), s.stub()
        first = await s.worker(one, name="one")
        s.emit("a", 1)
        await s.passes(10)
        await s.worker(two, name="two")
        first.kill()
        await s.passes(1_000)
        assert [at // 1_000 for at in two.times] == [300]

    played(story)


# --- leases ----------------------------------------------------------------------------------------------


def test_an_ousted_handler_is_cancelled_and_what_it_would_have_said_changes_nothing() -> None:
    async def story(s: Story) -> None:
        desk = EngineDesk(s.world)
        cut, other = s.stub(takes(30_000)), s.stub(takes(10))
        await s.worker(cut, name="cut", desk=desk)
        await s.passes(1)
        s.emit("a", 1)
        await s.worker(other, name="other")
        await s.passes(100)
        desk.is_down = True
        await s.passes(5_000)
        assert cut.cancelled == 1
        assert len(other.began) == 1
        assert s.world.targets()["a"].state == "idle"

    played(story)


def test_an_acknowledgement_whose_answer_was_lost_is_told_again_and_counts_once() -> None:
    async def story(s: Story) -> None:
        desk = EngineDesk(s.world, latency_us=10_000)
        stub = s.stub()
        await s.worker(stub, desk=desk)
        s.emit("a", 1)
        await s.passes(33)  # claimed, delivered, told; the answer is on its way
        desk.is_down = True
        await s.passes(100)
        desk.is_down = False
        await s.passes(5_000)
        assert s.world.targets()["a"].state == "idle"
        assert stub.payloads == [1]

    played(story)


def test_a_store_that_does_not_answer_is_asked_again() -> None:
    async def story(s: Story) -> None:
        desk = EngineDesk(s.world)
        stub = s.stub()
        await s.worker(stub, desk=desk)
        desk.is_down = True
        s.emit("a", 1)
        await s.passes(20_000)
        assert stub.began == []
        desk.is_down = False
        await s.passes(6_000)
        assert stub.payloads == [1]

    played(story)


# --- retry -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("backoff", "waits_ms"),
    [
        (Backoff.none(), [0, 0, 0, 0]),
        (Backoff.fixed(base_ms=100), [100, 100, 100, 100]),
        (Backoff.linear(base_ms=100, max_ms=250), [100, 200, 250, 250]),
        (Backoff.exponential(base_ms=100, max_ms=500), [100, 200, 400, 500]),
    ],
)
def test_delays_follow_their_formulas_and_the_cap_is_last(backoff: Backoff, waits_ms: list[int]) -> None:
    async def story(s: Story) -> None:
        stub = s.stub(fails(BOOM), max_retries=4, backoff=backoff)
        await s.worker(stub)
        s.emit("a", 1)
        await s.passes(10_000)
        waits = [after - before for before, after in zip(stub.times, stub.times[1:], strict=False)]
        assert [round(wait / 1_000) for wait in waits] == waits_ms
        assert stub.attempts == [0, 1, 2, 3, 4]
        assert s.world.targets()["a"].state == "blocked"

    played(story)


def test_jitter_stays_in_its_bounds() -> None:
    async def story(s: Story) -> None:
        stub = s.stub(fails(BOOM), max_retries=50, backoff=Backoff.fixed(base_ms=100, jitter=0.5))
        await s.worker(stub)
        s.emit("a", 1)
        await s.passes(20_000)
        waits = [after - before for before, after in zip(stub.times, stub.times[1:], strict=False)]
        assert len(waits) == 50
        assert all(49_000 <= wait <= 151_000 for wait in waits)
        assert len(set(waits)) > 40

    played(story)


def test_a_permanent_error_blocks_on_the_first_attempt_even_with_backoff() -> None:
    async def story(s: Story) -> None:
        stub = s.stub(fails(Refused("the card was stolen")), backoff=Backoff.fixed(base_ms=100))
        await s.worker(stub)
        s.emit("a", 1)
        await s.passes(5_000)
        assert len(stub.began) == 1
        assert s.world.targets()["a"].state == "blocked"
        assert s.world.failures().attempts[0].message == "the card was stolen"

    played(story)


def test_never_wins_over_permanent_errors() -> None:
    async def story(s: Story) -> None:
        stub = s.stub(fails(Refused("no")), backoff=Backoff.fixed(base_ms=100), max_retries=1, on_exhausted="never")
        await s.worker(stub)
        s.emit("a", 1)
        await s.passes(1_050)
        assert len(stub.began) == 11

    played(story)


def test_parking_and_skipping_go_on_with_the_next_record() -> None:
    async def story(s: Story) -> None:
        for how in ("park", "skip"):
            stub = s.stub(fails(BOOM, BOOM, None), max_retries=1, on_exhausted=how, name=how)
            await s.worker(stub, name=how)
        s.emit("a", 1, 2)
        await s.passes(1_000)
        for how, shown in (("park", "parked"), ("skip", "skipped")):
            assert s.world.targets(how)["a"].state == "idle"
            assert [each.how for each in s.world.failures(how).parked] == [shown]

    played(story)


def test_a_rule_for_a_kind_of_error_counts_before_the_reactions_own() -> None:
    class Busy(Exception):
        pass

    async def story(s: Story) -> None:
        rules: dict[type[BaseException], Rule] = {Busy: Backoff.fixed(base_ms=700), KeyError: "permanent"}
        stub = s.stub(fails(Busy(), KeyError("k")), backoff=Backoff.fixed(base_ms=10), errors=rules)
        await s.worker(stub)
        s.emit("a", 1)
        await s.passes(5_000)
        assert [at // 1_000 for at in stub.times] == [0, 700]
        assert s.world.targets()["a"].state == "blocked"

    played(story)


def test_an_error_may_say_when_to_come_back() -> None:
    class RateLimited(Exception):
        retry_after = 2.5

    async def story(s: Story) -> None:
        stub = s.stub(fails(RateLimited(), None), backoff=Backoff.fixed(base_ms=10))
        await s.worker(stub)
        s.emit("a", 1)
        await s.passes(5_000)
        assert [at // 1_000 for at in stub.times] == [0, 2_500]

    played(story)


@pytest.mark.parametrize("said", [None, "soon", -1, True, float("nan"), 1e12])
def test_what_cannot_be_a_time_to_come_back_is_not_taken_for_one(said: object) -> None:
    error = ValueError()
    error.retry_after = said  # type: ignore[attr-defined]
    assert retry_after_us(error) is None


def test_a_time_to_come_back_may_be_a_duration() -> None:
    error = ValueError()
    error.retry_after = timedelta(milliseconds=1_500)  # type: ignore[attr-defined]
    assert retry_after_us(error) == 1_500_000


def test_a_budget_of_time_ends_before_the_attempts_do() -> None:
    async def story(s: Story) -> None:
        stub = s.stub(fails(BOOM), max_retries=100, backoff=Backoff.fixed(base_ms=300), budget_ms=1_000)
        await s.worker(stub)
        s.emit("a", 1)
        await s.passes(20_000)
        assert [at // 1_000 for at in stub.times] == [0, 300, 600, 900]
        assert s.world.targets()["a"].state == "blocked"

    played(story)


def test_attempts_that_only_end_with_their_leases_are_given_up_without_another_run() -> None:
    """A record that kills every worker that touches it is blocked, although nobody lives to say so."""

    async def story(s: Story) -> None:
        async def dies(batch: Batch) -> None:
            s.drains[-1].kill()
            await asyncio.sleep(3_600)

        runs = 0
        s.emit("a", 0)
        s.world.subscribe()
        s.emit("a", 1)
        for life in range(8):
            stub = s.stub(dies, max_retries=3)
            await s.worker(stub, name=f"life {life}")
            await s.passes(3_000)
            runs += len(stub.began)
        assert runs == 4
        target = s.world.targets()["a"]
        assert (target.state, target.lost, target.failures) == ("blocked", 4, 1)

    played(story)


def test_failures_that_failed_alike_have_one_fingerprint_whatever_they_say() -> None:
    def raised(message: str) -> BaseException:
        try:
            int(message)
        except ValueError as error:
            return error
        raise AssertionError

    assert fingerprint(raised("a")) == fingerprint(raised("b"))
    assert fingerprint(raised("a")) != fingerprint(KeyError("a"))


def test_the_text_of_an_error_is_bounded() -> None:
    record = Granted(1, 0, None, "", 0)
    tried = FailedAttempt(attempt=0, age_us=0, error=ValueError("x" * 10_000))
    assert len(judge_failure(Rules(), record, tried, VirtualClock().randomness("r")).message) == 2_000


def test_a_reaction_whose_own_work_was_cancelled_has_failed_and_spends_its_attempts() -> None:
    async def story(s: Story) -> None:
        async def does(_: Batch) -> None:
            inner = asyncio.get_running_loop().create_task(asyncio.sleep(10))
            inner.cancel()
            await inner

        stub = s.stub(does, max_retries=2)
        await s.worker(stub)
        s.emit("a", 1)
        await s.passes(1_000)
        assert len(stub.began) == 3
        assert s.world.targets()["a"].state == "blocked"

    played(story)


# --- order, slots and lanes ------------------------------------------------------------------------------


def test_slots_are_filled_again_as_targets_finish_with_no_barrier() -> None:
    async def story(s: Story) -> None:
        async def does(batch: Batch) -> None:
            await asyncio.sleep(10.0 if batch.hold.key == "slow" else 0.1)

        stub = s.stub(does)
        await s.worker(stub, slots=2)
        for key in ("slow", *[f"k{n}" for n in range(20)]):
            s.emit(key, key)
        await s.passes(3_000)
        assert len(stub.began) == 21, "one slot is busy for ten seconds, the other one did the rest"

    played(story)


def test_a_slow_lane_holds_up_no_other() -> None:
    async def story(s: Story) -> None:
        slow, fast = s.stub(takes(10_000), name="slow", lane="slow"), s.stub(name="fast", lane="fast")
        await s.worker(slow, fast, slots=1)
        for number in range(5):
            s.emit(f"k{number}", number)
        await s.passes(100)
        assert (len(slow.began), len(fast.began)) == (1, 5)

    played(story)


def test_one_target_sees_its_records_in_order_over_several_workers() -> None:
    async def story(s: Story) -> None:
        seen: list[object] = []

        async def does(batch: Batch) -> None:
            seen.append(batch.records[0].payload)
            await asyncio.sleep(0.01)

        for name in ("one", "two", "three"):
            await s.worker(s.stub(does), name=name, records=1)
        for number in range(30):
            s.emit("a", number)
        await s.passes(5_000)
        assert seen == list(range(30))

    played(story)


def test_a_batch_reaction_takes_many_at_once_all_or_nothing() -> None:
    async def story(s: Story) -> None:
        sizes: list[int] = []

        async def does(batch: Batch) -> None:
            sizes.append(len(batch.records))
            if len(sizes) == 1:
                raise BOOM

        s.world.subscribe()
        s.world.emit("a", *range(10))
        await s.worker(s.stub(does, batch=10))
        await s.passes(1_000)
        assert sizes[:2] == [10, 1], "what failed is tried again one by one, so that one bad record is found"
        assert sum(sizes[1:]) == 10
        assert s.world.targets()["a"].state == "idle"

    played(story)


def test_acknowledgements_travel_together() -> None:
    async def story(s: Story) -> None:
        desk = EngineDesk(s.world, latency_us=5_000)
        s.world.subscribe()
        for number in range(100):
            s.world.emit(f"k{number}", number)
        await s.worker(s.stub(), desk=desk, slots=100)
        await s.passes(1_000)
        assert sum(isinstance(question, Claim) for question in desk.asked) <= 4
        assert len(desk.asked) <= 8

    played(story)


def test_an_idle_worker_asks_for_nothing() -> None:
    async def story(s: Story) -> None:
        desk = EngineDesk(s.world)
        await s.worker(s.stub(), desk=desk)
        s.emit("a", 1)
        await s.passes(2_000)  # as long as what it had itself could have been left behind
        before = len(desk.asked)
        await s.passes(3_000_000)
        assert len(desk.asked) == before

    played(story)


# --- together with a commit ------------------------------------------------------------------------------


def test_what_it_returns_lands_with_the_position_record_by_record() -> None:
    async def story(s: Story) -> None:
        landed: list[object] = []

        async def land(batch: Batch, result: object) -> None:
            grant = type("G", (), {"hold": batch.hold, "records": batch.records})
            verdict = s.world.deliver_with(grant, 0, keeps=not batch.is_last)  # type: ignore[arg-type]
            if not isinstance(verdict, Accepted):
                raise LeaseLostError
            landed.append(result)

        async def does(batch: Batch) -> object:
            return f"paid {batch.records[0].payload}"

        stub = s.stub(does, lands=True, landing=land)
        await s.worker(stub)
        s.world.emit("a", 1, 2, 3)
        s.drains[0].notify()
        await s.passes(100)
        assert landed == ["paid 1", "paid 2", "paid 3"]
        assert s.world.targets()["a"].state == "idle"
        assert not [each for each in s.traced if isinstance(each, Late)]

    played(story)


def test_whoever_lost_the_lease_before_landing_says_nothing() -> None:
    async def story(s: Story) -> None:
        async def land(batch: Batch, result: object) -> None:
            raise LeaseLostError

        await s.worker(s.stub(lands=True, landing=land))
        s.emit("a", 1)
        await s.passes(10)
        assert ("lost", "") in s.ends
        assert s.world.targets()["a"].state == "leased"

    played(story)


# --- the end ---------------------------------------------------------------------------------------------


def test_stopping_waits_for_what_runs_and_gives_the_rest_back_unspent() -> None:
    async def story(s: Story) -> None:
        quick, endless = s.stub(takes(500), name="quick"), s.stub(takes(1e9), name="endless")
        drain = await s.worker(quick, endless, grace_ms=2_000)
        s.emit("a", 1)
        await s.passes(10)
        await drain.stop()
        assert s.clock.monotonic_us() <= 2_100_000
        assert s.world.targets("quick")["a"].state == "idle"
        target = s.world.targets("endless")["a"]
        assert (target.state, target.attempt, target.lost) == ("due", 0, 0)
        s.emit("b", 2)
        await s.passes(1_000)
        assert len(quick.began) == 1, "it claims nothing any more"

    played(story)


def test_what_is_claimed_while_it_stops_is_given_back_unspent() -> None:
    async def story(s: Story) -> None:
        stub = s.stub()
        drain = await s.worker(stub, desk=EngineDesk(s.world, latency_us=20_000))
        await s.passes(200)
        s.emit("a", 1)
        await s.passes(30)  # the answer is on its way
        await drain.stop()
        assert stub.began == []
        target = s.world.targets()["a"]
        assert (target.state, target.attempt) == ("due", 0)

    played(story)


def test_stopping_without_an_answer_takes_no_longer_than_it_may() -> None:
    async def story(s: Story) -> None:
        desk = EngineDesk(s.world, latency_us=10**12)
        stub = s.stub()
        s.world.subscribe()
        drain = Drain(desk, [stub], clock=s.clock, worker="w", pace=Pace(grace_ms=5_000))
        s.drains.append(drain)
        drain.notify()
        await s.passes(10)
        await drain.stop()
        assert s.clock.monotonic_us() <= 1_100_000

    played(story)


@pytest.mark.parametrize("wrong", [{"slots": 0}, {"lease_ms": 0}, {"records": -1}, {"lanes": {"slow": 0}}])
def test_a_pace_that_does_nothing_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(AuthoringError, match="write how many, 1 or more"):
        Pace(**wrong)  # type: ignore[arg-type]


def test_a_new_reaction_gets_what_was_emitted_before_if_it_wants_that() -> None:
    async def story(s: Story) -> None:
        s.world.emit("a", *range(5))
        all_of, new = s.stub(name="all", since="beginning"), s.stub(name="new")
        await s.worker(all_of, new)
        await s.passes(100)
        s.emit("a", "later")
        await s.passes(100)
        assert all_of.payloads == [0, 1, 2, 3, 4, "later"]
        assert new.payloads == ["later"]

    played(story)
