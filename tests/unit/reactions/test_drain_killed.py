"""A worker that is killed at any step, and whoever comes after it: in order, at least once, and what lands lands once.

A step is a question to the desk, before it is asked and after it was answered without being heard; the beginning and
the end of a reaction; and the commit of its result, before and after it. Each is tried with records of two keys.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headwater.protocol.reactions import Delivering, Delivers
from headwater.protocol.verdict import Accepted
from headwater.reactions.drain import Drain, Pace
from headwater.reactions.port import Batch, LeaseLostError
from tests.unit.reactions.kit import EngineDesk, Story, Stub, played

RECORDS = (1, 2, 3)
LEASE_MS = 1_000


class Death:
    """Comes at one step, and never again."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.steps = 0
        self.drain: Drain | None = None

    async def may_come(self) -> None:
        self.steps += 1
        if self.steps == self.at and self.drain is not None:
            self.drain.kill()
            await asyncio.sleep(0)  # Nothing comes after this.
            raise AssertionError("it was killed, and goes on")


class MortalDesk(EngineDesk):
    def __init__(self, story: Story, death: Death) -> None:
        super().__init__(story.world, latency_us=1_000)
        self.death = death

    async def ask(self, question: Delivers) -> Delivering:
        await self.death.may_come()
        answer = await super().ask(question)
        await self.death.may_come()
        return answer


def reaction(s: Story, kind: str, death: Death, landed: list[tuple[str, object]]) -> Stub:
    async def does(_: Batch) -> None:
        await death.may_come()
        await asyncio.sleep(0.01)
        await death.may_come()

    async def landing(batch: Batch, _: Any) -> None:
        await death.may_come()
        grant = next(grant for grant in GRANTS if grant.hold == batch.hold and batch.records[0] in grant.records)
        place = grant.records.index(batch.records[0])
        verdict = s.world.deliver_with(grant, place, keeps=not batch.is_last)
        if not isinstance(verdict, Accepted):
            raise LeaseLostError
        landed.append((batch.hold.key, batch.records[0].payload))
        await death.may_come()

    return s.stub(
        does,
        batch=2 if kind == "batch" else 1,
        lands=kind == "lands",
        landing=landing,
        max_retries=5,
        since="beginning",
    )


GRANTS: list[Any] = []


class Noting(EngineDesk):
    """Notes what was given, for whoever lands it."""

    async def ask(self, question: Delivers) -> Delivering:
        answer = await super().ask(question)
        GRANTS.extend(getattr(answer, "grants", ()))
        return answer


class MortalNoting(MortalDesk):
    async def ask(self, question: Delivers) -> Delivering:
        answer = await super().ask(question)
        GRANTS.extend(getattr(answer, "grants", ()))
        return answer


def told(kind: str, at: int) -> bool:
    """Whether there was a step at which it was killed."""
    GRANTS.clear()
    landed: list[tuple[str, object]] = []
    death = Death(at)

    async def story(s: Story) -> None:
        for key in "ab":
            s.world.emit(key, *RECORDS[:2])
        dying = reaction(s, kind, death, landed)
        dies = Drain(
            MortalNoting(s, death),
            [dying],
            clock=s.clock,
            worker="dies",
            pace=Pace(lease_ms=LEASE_MS, records=2),
            on_trace=s.traced.append,
        )
        s.drains.append(dies)
        death.drain = dies
        starting = asyncio.ensure_future(dies.start())
        await s.passes(50)
        s.emit("a", RECORDS[2])
        s.emit("b", RECORDS[2])
        await s.passes(5_000)
        starting.cancel()
        death.drain = None
        lives = reaction(s, kind, death, landed)
        await s.worker(lives, name="lives", lease_ms=LEASE_MS, desk=Noting(s.world))
        before = s.clock.monotonic_us()
        await s.passes(3 * LEASE_MS)
        assert all(each.state == "idle" for each in s.world.targets().values()), s.world.targets()
        assert all(at_us - before <= 2 * LEASE_MS * 1_000 for at_us in lives.times)
        for key in "ab":
            began = [payload for stub in (dying, lives) for _, of, payload, _ in stub.began if of == key]
            assert set(began) == set(RECORDS), began
            firsts = list(dict.fromkeys(began))
            assert firsts == list(RECORDS), began
            if kind == "lands":
                assert began == sorted(began, key=str), "what landed is not delivered again"
                assert [payload for of, payload in landed if of == key] == list(RECORDS), landed

    played(story)
    return death.steps >= at


@pytest.mark.parametrize("kind", ["plain", "batch", "lands"])
def test_a_worker_that_is_killed_at_any_step_leaves_everything_to_the_next(kind: str) -> None:
    at = 1
    while told(kind, at):
        at += 1
    assert at > 20, "there are so many steps at least"
