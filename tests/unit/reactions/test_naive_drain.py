"""The liveness of a drain, first shown failing on a naive one: it retries when traffic comes, and renews no lease.

That is how drains are often written: a wake-up sets a flag that the next record looks at, and a lease is as long as
handlers are hoped to be short. The same three stories hold for ours (`test_drain`).
"""

from __future__ import annotations

import asyncio

import pytest

from headwater.backoff import Backoff
from headwater.protocol.reactions import Claim, Claimed, Finish, Grant, Outcome, Subscribe
from headwater.reactions.drain import Drain
from headwater.reactions.port import Batch
from headwater.reactions.retry_rules import FailedAttempt, judge_failure
from tests.unit.reactions.kit import EngineDesk, Story, Stub, fails, played, takes

LEASE_US = 1_000_000


class NaiveDrain:
    """Claims when it is told that something was emitted, and hopes for the best."""

    def __init__(self, story: Story, stub: Stub, worker: str) -> None:
        self._desk = EngineDesk(story.world)
        self._stub = stub
        self._worker = worker
        self._random = story.clock.randomness("naive")
        self._tasks: set[asyncio.Task[None]] = set()
        self.has_work = False

    async def start(self) -> None:
        self._subscribed = await self._desk.ask(Subscribe(0, self._stub.name, self._stub.topic))
        self.notify()

    def notify(self) -> None:
        self._begin(self._claim())

    def kill(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _begin(self, work: object) -> None:
        self._tasks.add(asyncio.get_running_loop().create_task(work))  # type: ignore[arg-type]

    async def _claim(self) -> None:
        answer = await self._desk.ask(Claim(0, self._worker, (self._stub.name,), 16, 1, LEASE_US))
        assert isinstance(answer, Claimed)
        self.has_work = answer.next_us is not None  # a flag, and nobody who looks at it
        for grant in answer.grants:
            self._begin(self._deliver(grant))

    async def _deliver(self, grant: Grant) -> None:
        record = grant.records[0]
        outcome = Outcome(grant.hold, (record.seq, record.ordinal))
        try:
            await self._stub.run(Batch(hold=grant.hold, attempt=grant.attempt, records=grant.records, is_last=True))
        except Exception as error:
            tried = FailedAttempt(attempt=grant.attempt, age_us=grant.age_us, error=error)
            outcome = Outcome(grant.hold, None, judge_failure(self._stub.rules, record, tried, self._random))
        await self._desk.ask(Finish(0, (outcome,)))


async def worker(story: Story, stub: Stub, name: str, *, is_naive: bool) -> Drain | NaiveDrain:
    if not is_naive:
        return await story.worker(stub, name=name)
    drain = NaiveDrain(story, stub, name)
    story.drains.append(drain)  # type: ignore[arg-type]
    await drain.start()
    return drain


@pytest.mark.parametrize("is_naive", [True, False], ids=["naive", "ours"])
def test_an_idle_retry(is_naive: bool) -> None:
    async def story(s: Story) -> None:
        stub = s.stub(fails(ValueError(), None), backoff=Backoff.fixed(base_ms=200))
        await worker(s, stub, "w", is_naive=is_naive)
        s.emit("a", 1)
        await s.passes(4_000)
        assert len(stub.began) == (1 if is_naive else 2)

    played(story)


@pytest.mark.parametrize("is_naive", [True, False], ids=["naive", "ours"])
def test_a_takeover(is_naive: bool) -> None:
    async def story(s: Story) -> None:
        dying, other = s.stub(takes(1e9)), s.stub()
        dies = await worker(s, dying, "dies", is_naive=is_naive)
        await s.passes(1)
        s.emit("a", 1)
        await s.passes(100)
        await worker(s, other, "lives", is_naive=is_naive)
        await s.passes(10)
        dies.kill()
        await s.passes(60_000)
        assert len(other.began) == (0 if is_naive else 1)

    played(story)


@pytest.mark.parametrize("is_naive", [True, False], ids=["naive", "ours"])
def test_a_handler_slower_than_its_lease(is_naive: bool) -> None:
    async def story(s: Story) -> None:
        slow, other = s.stub(takes(10_000)), s.stub(takes(10_000))
        await worker(s, slow, "slow", is_naive=is_naive)
        await worker(s, other, "other", is_naive=is_naive)
        s.emit("a", 1)
        for number in range(5):
            await s.passes(1_500)
            s.emit("b", number)  # traffic
        runs = [payload for stub in (slow, other) for _, key, payload, _ in stub.began if key == "a"]
        assert (len(runs) > 1) == is_naive

    played(story)
