"""The drain under reactions, errors and desks that behave worse than one would think, on the virtual clock."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headwater.backoff import Backoff
from headwater.errors import AccessError, LoadError, Refused, StorageError
from headwater.protocol.reactions import Delivering, Delivers, Finish, Hold, Outcome
from headwater.reactions.limits import DrainLimits
from headwater.reactions.port import Batch, StillRunsError, is_refusal
from headwater.reactions.retry_rules import error_text, retry_after_us
from headwater.reactions.target_delivery import OutcomeReporter
from headwater.reactions.traces import Unheard
from tests.unit.reactions.kit import Does, EngineDesk, Story, fails, played, takes


class SaysNothing(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class KnowsNoTime(Exception):
    @property
    def retry_after(self) -> float:
        raise RuntimeError("no time")


def poison(*payloads: object, error: BaseException) -> tuple[Does, list[object]]:
    """Fails where one of these is among the records; and all that was delivered."""
    delivered: list[object] = []

    async def does(batch: Batch) -> None:
        found = [record.payload for record in batch.records]
        if any(payload in payloads for payload in found):
            raise error
        delivered.extend(found)

    return does, delivered


# --- what cannot be told -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("bad \ud800"), "bad \\ud800"),
        (SaysNothing(), "its message cannot be shown: its __str__ raised RuntimeError"),
        (KnowsNoTime("later"), "later"),
    ],
)
def test_an_error_that_cannot_be_told_as_it_is_costs_its_record_and_no_other(error: Exception, message: str) -> None:
    async def story(s: Story) -> None:
        does, delivered = poison("bad", error=error)
        stub = s.stub(does, max_retries=2, backoff=Backoff.fixed(base_ms=10))
        await s.worker(stub)
        s.emit("a", "bad")
        s.emit("b", "good")
        await s.passes(100)
        assert delivered == ["good"]
        assert (s.world.targets()["a"].state, s.world.targets()["b"].state) == ("blocked", "idle")
        assert [each.message for each in s.world.failures().attempts] == [message] * 3, "no lease had to end for that"

    played(story)


def test_what_an_error_says_is_cut_and_has_no_half_characters() -> None:
    assert len(error_text(ValueError("\ud800" * 5_000), 2_000)) == 2_000
    assert retry_after_us(KnowsNoTime()) is None


class RefusingDesk(EngineDesk):
    """Has something against what came of one target."""

    def __init__(self, story: Story, error: Exception, *keys: str) -> None:
        super().__init__(story.world)
        self.error = error
        self.keys = keys

    async def ask(self, question: Delivers) -> Delivering:
        if isinstance(question, Finish) and any(each.hold.key in self.keys for each in question.outcomes):
            raise self.error
        return await super().ask(question)


@pytest.mark.parametrize(
    "error", [LoadError("reactions cannot be read: no", code="protocol"), AccessError("no"), UnicodeError("cannot")]
)
def test_an_outcome_that_is_refused_takes_no_other_along_and_is_not_told_for_ever(error: Exception) -> None:
    async def story(s: Story) -> None:
        desk = RefusingDesk(s, error, "b")
        stub = s.stub(takes(10), max_retries=1)
        await s.worker(stub, desk=desk, lease_ms=1_000)
        for key in "abc":
            s.emit(key, key)
        await s.passes(100)
        assert {key: each.state for key, each in s.world.targets().items()} == {"a": "idle", "b": "leased", "c": "idle"}
        assert [(each.key, type(error).__name__ in each.error) for each in s.traced if isinstance(each, Unheard)] == [
            ("b", True)
        ]
        desk.keys = ()
        await s.passes(1_000)
        assert s.world.targets()["b"].state == "idle", "its lease ended, and it was tried again"
        assert [attempt for _, key, _, attempt in stub.began if key == "b"] == [0, 1]

    played(story)


def test_what_was_not_answered_may_be_asked_again_and_what_was_refused_not() -> None:
    assert not is_refusal(LoadError("no connection"))
    assert not is_refusal(LoadError("the disk", code="storage"))
    assert not is_refusal(StorageError("the disk"))
    assert is_refusal(LoadError("no", code="limit"))
    assert is_refusal(AccessError("no"))


def test_unacknowledged_outcomes_are_bounded() -> None:
    limits = DrainLimits(outcomes_waiting=3)

    async def story(s: Story) -> None:
        desk = EngineDesk(s.world)
        desk.is_down = True
        unheard: list[str] = []
        random = s.clock.randomness("x")
        telling = OutcomeReporter(desk, random, lambda *_: None, lambda hold, _: unheard.append(hold.key), limits)
        tasks = [asyncio.ensure_future(telling.report(Outcome(Hold("r", str(n), n)))) for n in range(5)]
        await s.passes(10)
        assert (len(telling), unheard) == (3, ["0", "1"])
        assert [task.done() and task.result() for task in tasks] == [False] * 5
        assert [task.done() for task in tasks] == [True, True, False, False, False]
        telling.stop()

    played(story)


# --- batches -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "options", "kept"),
    [
        (Refused("poison"), {"on_exhausted": "park"}, "parked"),
        (ValueError("poison"), {"on_exhausted": "skip", "max_retries": 0}, "skipped"),
    ],
)
def test_a_hopeless_record_of_a_batch_is_found_and_its_neighbours_are_delivered(
    error: Exception, options: dict[str, Any], kept: str
) -> None:
    async def story(s: Story) -> None:
        does, delivered = poison(5, error=error)
        stub = s.stub(does, batch=10, **options)
        s.world.subscribe(lane="default")
        s.world.emit("a", *range(10))
        await s.worker(stub)
        await s.passes(100)
        assert delivered == [0, 1, 2, 3, 4, 6, 7, 8, 9]
        assert [(each.seq, each.how) for each in s.world.failures().parked] == [(6, kept)]
        assert ("failed", "retry") in s.ends, "the batch as a whole is told, too"

    played(story)


def test_a_batch_that_blocks_names_the_record_that_is_at_fault() -> None:
    async def story(s: Story) -> None:
        does, delivered = poison(2, error=Refused("poison"))
        s.world.subscribe(lane="default")
        s.world.emit("a", *range(4))
        await s.worker(s.stub(does, batch=10))
        await s.passes(100)
        assert delivered == [0, 1]
        assert s.world.targets()["a"].state == "blocked"
        assert [each.seq for each in s.world.failures().attempts] == [3]

    played(story)


# --- leases ------------------------------------------------------------------------------------------------


class HangingDesk(EngineDesk):
    """Takes a question, and never answers."""

    async def ask(self, question: Delivers) -> Delivering:
        if self.is_down:
            await asyncio.sleep(1_000)
        return await super().ask(question)


def test_a_worker_that_nobody_answers_has_ended_when_another_one_takes_over() -> None:
    async def story(s: Story) -> None:
        ended: list[int] = []

        async def long(_: Batch) -> None:
            try:
                await asyncio.sleep(100)
            finally:
                ended.append(s.clock.monotonic_us())

        desk = HangingDesk(s.world)
        cut, other = s.stub(long), s.stub(takes(100))
        await s.worker(cut, name="cut", desk=desk, lease_ms=3_000)
        s.emit("a", 1)
        await s.passes(950)
        s.emit("b", 2)
        await s.passes(10)
        desk.is_down = True
        await s.worker(other, name="other", lease_ms=3_000)
        await s.passes(8_000)
        assert len(ended) == len(other.times) == 2
        assert all(over <= began for over, began in zip(ended, other.times, strict=True)), (ended, other.times)

    played(story)


# --- budgets -----------------------------------------------------------------------------------------------


def test_a_budget_counts_the_time_that_an_attempt_takes() -> None:
    async def story(s: Story) -> None:
        async def slow(_: Batch) -> None:
            await asyncio.sleep(5)
            raise ValueError("boom")

        stub = s.stub(slow, max_retries=10, budget_ms=6_000)
        await s.worker(stub)
        s.emit("a", 1)
        await s.passes(60_000)
        assert [at // 1_000_000 for at in stub.times] == [0, 5]
        assert s.world.targets()["a"].state == "blocked"

    played(story)


def test_after_its_budget_nothing_is_tried_again_and_what_was_never_tried_once() -> None:
    async def story(s: Story) -> None:
        stub = s.stub(fails(ValueError("boom")), max_retries=10, budget_ms=6_000, backoff=Backoff.fixed(base_ms=5_000))
        worker = await s.worker(stub)
        s.emit("a", 1)
        await s.passes(10)
        worker.kill()
        await s.passes(60_000)
        s.world.emit("b", 2)
        await s.passes(60_000)
        await s.worker(stub)
        await s.passes(60_000)
        assert [payload for _, _, payload, _ in stub.began] == [1, 2]
        assert {each.state for each in s.world.targets().values()} == {"blocked"}
        assert [each.error for each in s.world.failures("r", "a").attempts if each.key == "a"] == [
            "ValueError",
            "BudgetSpent",
        ]

    played(story)


def test_whoever_never_gives_up_and_has_no_backoff_does_not_try_without_end_at_once() -> None:
    async def story(s: Story) -> None:
        stub = s.stub(fails(ValueError("boom")), max_retries=2, on_exhausted="never")
        await s.worker(stub)
        s.emit("a", 1)
        await s.passes(3_500)
        assert [at // 1_000_000 for at in stub.times] == [0, 0, 0, 1, 2, 3]

    played(story)


# --- stopping ----------------------------------------------------------------------------------------------


def test_a_worker_that_stops_ends_with_the_record_that_runs_and_gives_the_rest_back() -> None:
    async def story(s: Story) -> None:
        stub = s.stub(takes(4_000))
        s.world.subscribe(lane="default")
        s.world.emit("a", *range(10))
        worker = await s.worker(stub, lease_ms=30_000)
        await s.passes(1_000)
        before = s.clock.monotonic_us()
        await worker.stop()
        assert s.clock.monotonic_us() - before == 3_000_000
        assert (stub.payloads, stub.cancelled) == ([0], 0)
        target = s.world.targets()["a"]
        assert (target.state, target.position, target.attempt) == ("due", (1, 0), 0)
        assert s.ends == [("delivered", ""), ("given back", "")]

    played(story)


def test_what_cannot_be_stopped_is_not_given_to_others_while_it_runs() -> None:
    """A plain function goes on in its thread: what was delivered before it is said, and its lease ends by itself."""

    async def story(s: Story) -> None:
        async def hangs(batch: Batch) -> None:
            if batch.records[0].payload == 1:
                try:
                    await asyncio.sleep(100)
                except asyncio.CancelledError as error:
                    raise StillRunsError from error

        s.world.subscribe(lane="default")
        s.world.emit("a", 0, 1, 2)
        worker = await s.worker(s.stub(hangs), lease_ms=30_000, grace_ms=2_000)
        await s.passes(1_000)
        await worker.stop()
        target = s.world.targets()["a"]
        assert (target.state, target.position) == ("leased", (1, 0))
        other = s.stub()
        await s.worker(other, name="other")
        await s.passes(31_000)
        assert [(at // 1_000_000, payload) for at, _, payload, _ in other.began] == [(30, 1), (30, 2)]

    played(story)


def test_whoever_knows_that_the_lease_is_lost_begins_nothing_more_of_the_target() -> None:
    async def story(s: Story) -> None:
        async def stubborn(batch: Batch) -> None:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                await asyncio.sleep(3)  # It cleans up, and returns as if nothing had been.

        landed: list[object] = []

        async def landing(batch: Batch, _: object) -> None:
            landed.append(batch.records[0].payload)

        desk = EngineDesk(s.world)
        s.world.subscribe(lane="default")
        s.world.emit("a", 1, 2)
        cut = s.stub(stubborn, lands=True, landing=landing)
        await s.worker(cut, name="cut", desk=desk)
        await s.passes(100)
        desk.is_down = True
        other = s.stub()
        await s.worker(other, name="other")
        await s.passes(20_000)
        assert (cut.payloads, landed) == ([1], [])
        assert other.payloads == [1, 2]

    played(story)


@pytest.mark.parametrize("does", ["skip", "reset"])
def test_a_handler_whose_target_an_operator_takes_away_is_cancelled_when_the_next_one_begins(does: Any) -> None:
    async def story(s: Story) -> None:
        stub = s.stub(takes(20_000))
        s.world.subscribe(lane="default")
        s.world.emit("a", 1, 2)
        worker = await s.worker(stub, lease_ms=30_000)
        await s.passes(500)
        s.world.operate(does, key="a")
        worker.notify()
        await s.passes(10)
        assert (len(stub.began), stub.cancelled) == (2, 1)
        await s.passes(60_000)
        assert ("lost", "") in s.ends
        assert s.world.targets()["a"].state == "idle"

    played(story)
