"""Delivering: what was claimed of one target, record after record, until it is done or one of them fails.

Outside any transaction. What a reaction's result is for is committed together with the position; otherwise the position
moves when the target is finished, with all that was delivered. Whoever lost the lease says nothing more; whoever is to
stop comes to the end of the record that runs, and gives the rest back.

Finishing: what came of targets is told together, one message after the other, until it is heard or refused.

While one is on its way, what comes meanwhile is the next one. Without an answer it is told again: whatever was heard
before is late then, and changes nothing. What is refused, or cannot be said at all, is told one by one, and given up:
the lease of that target ends by itself. Owns the outcomes that were not heard yet, which are bounded.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Final

from headwater.backoff import Backoff
from headwater.clock import Clock, Random
from headwater.errors import HeadwaterError
from headwater.protocol.reactions import Failure, Finish, Finished, Grant, Granted, Hold, Outcome
from headwater.reactions.port import Batch, Desk, LeaseLostError, Reaction, StillRunsError, is_refusal
from headwater.reactions.retry_rules import Tried, judged, said
from headwater.reactions.traces import Attempt, Hears

AGAIN: Final = Backoff.exponential(base_ms=50, max_ms=5_000, jitter=0.2)
MOST: Final = 500
"""Outcomes in one message."""
KEPT: Final = 10 * MOST
"""Outcomes that wait to be heard. Beyond them the oldest is given up: its lease is over long since."""
OnFinished = Callable[[tuple[Outcome, ...], Finished], None]
OnUnheard = Callable[[Hold, str], None]


class Finishing:
    """The outcomes of one drain."""

    __slots__ = ("_desk", "_is_stopped", "_on_finished", "_on_unheard", "_random", "_task", "_waiting")

    def __init__(self, desk: Desk, random: Random, on_finished: OnFinished, on_unheard: OnUnheard) -> None:
        self._desk = desk
        self._random = random
        self._on_finished = on_finished
        self._on_unheard = on_unheard
        self._waiting: dict[Hold, tuple[Outcome, asyncio.Future[bool]]] = {}
        self._task: asyncio.Task[None] | None = None
        self._is_stopped = False

    def __len__(self) -> int:
        return len(self._waiting)

    def is_telling(self, hold: Hold) -> bool:
        """Whether what came of a target is on its way: whose it is by then is heard with that."""
        return hold in self._waiting

    async def tell(self, outcome: Outcome) -> bool:
        """Tell what came of a target, and wait until it is heard. False: it was somebody else's by then, or refused."""
        if self._is_stopped:
            raise asyncio.CancelledError
        loop = asyncio.get_running_loop()
        heard: asyncio.Future[bool] = loop.create_future()
        before = self._waiting.get(outcome.hold)
        if before is not None:
            await asyncio.shield(before[1])
        if len(self._waiting) >= KEPT:
            self._give_up(next(iter(self._waiting.values()))[0], f"{KEPT} others wait to be told")
        self._waiting[outcome.hold] = (outcome, heard)
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._run(), name="telling what came of targets")
        return await asyncio.shield(heard)

    async def _run(self) -> None:
        """Ends when all is told, refused or given up; while nobody answers, with the drain (`stop`)."""
        failures = 0
        alone = 0  # so many are told one by one: one of them was refused
        while self._waiting:
            told = tuple([outcome for outcome, _ in self._waiting.values()][: 1 if alone else MOST])
            try:
                answer = await self._desk.ask(Finish(0, told))
            except Exception as error:  # One that cannot even be said must take no other along.
                if isinstance(error, HeadwaterError) and not is_refusal(error):
                    await asyncio.sleep(AGAIN.delay_us(min(failures, 20), self._random) / 1e6)
                    failures += 1
                elif len(told) == 1:
                    self._give_up(told[0], f"{type(error).__qualname__}: {said(error)}")
                    alone = max(0, alone - 1)
                else:
                    alone = len(told)
                continue
            assert isinstance(answer, Finished)
            failures = 0
            alone = max(0, alone - 1)
            late = set(answer.late)
            for outcome in told:
                self._over(outcome, is_heard=outcome.hold not in late)
            self._on_finished(told, answer)

    def _give_up(self, outcome: Outcome, why: str) -> None:
        self._over(outcome, is_heard=False)
        self._on_unheard(outcome.hold, why)

    def _over(self, outcome: Outcome, *, is_heard: bool) -> None:
        waiting = self._waiting.get(outcome.hold)
        if waiting is not None and waiting[0] is outcome:  # Or it was given up, and there is another one by now.
            del self._waiting[outcome.hold]
            if not waiting[1].done():
                waiting[1].set_result(is_heard)

    def stop(self) -> None:
        """Nobody hears anything any more."""
        self._is_stopped = True
        if self._task is not None:
            self._task.cancel()
        for _, heard in self._waiting.values():
            heard.cancel()
        self._waiting.clear()


class LostLeases(Exception):
    """Attempts that ended with their lease, one after the other, are all that the reaction has."""


class BudgetSpent(Exception):
    """The time that a reaction gives to a record was over before it could be tried again."""


class TargetDelivery:
    """One target while this worker has it."""

    __slots__ = (
        "_began_us",
        "_claimed_us",
        "_clock",
        "_finishing",
        "_grant",
        "_hears",
        "_is_lost",
        "_is_terse",
        "_random",
        "_reaction",
        "_stops",
        "_through",
        "left",
    )

    def __init__(
        self,
        reaction: Reaction,
        grant: Grant,
        finishing: Finishing,
        clock: Clock,
        random: Random,
        hears: Hears,
        *,
        is_terse: bool = False,
    ) -> None:
        self._is_terse = is_terse
        self._reaction = reaction
        self._grant = grant
        self._finishing = finishing
        self._clock = clock
        self._random = random
        self._hears = hears
        self._is_lost = False
        self._through: tuple[int, int] | None = None  # delivered, and not said yet
        self._stops = False
        self.left: Future[object] | None = None  # what it did goes on, in a thread
        self._began_us = self._claimed_us = clock.monotonic_us()

    def stop(self) -> None:
        """Begin no further record."""
        self._stops = True

    def oust(self, task: asyncio.Task[None]) -> None:
        """The lease is somebody else's."""
        self._is_lost = True
        task.cancel()

    async def run(self) -> None:
        try:
            await self._run()
        except asyncio.CancelledError:
            if self._is_lost:
                self._told(self._grant.records[0], 0, "lost")
                return
            # The worker stops: what was not delivered is for others, unspent.
            self._told(self._grant.records[0], 0, "given back")
            await self._finishing.tell(Outcome(self._grant.hold, self._through))
            raise

    async def _leave(self) -> None:
        """What goes on here is nobody else's to begin: the lease ends by itself. What was delivered before is said."""
        self._told(self._grant.records[0], 0, "lost")
        if self._through is not None and not self._is_lost:
            await self._finishing.tell(Outcome(self._grant.hold, self._through, keeps=True))

    async def _run(self) -> None:
        grant = self._grant
        spent = self._spent()
        if spent is not None:
            first = grant.records[0]
            await self._failed(first, grant.attempt, self._judged(first, grant.attempt, spent))
            return
        batches = deque(self._batches())
        while batches:
            batch = batches.popleft()
            if self._stops:
                # The rest is for others, unspent; they are told so.
                self._told(batch.records[0], batch.attempt, "given back")
                await self._finishing.tell(Outcome(grant.hold, self._through))
                return
            try:
                error = await self._tried(batch)
            except StillRunsError as goes_on:
                self.left = goes_on.running
                await self._leave()
                return
            except LeaseLostError:
                self._is_lost = True
                self._told(batch.records[0], batch.attempt, "lost")
                return
            if error is not None:
                failure = self._judged(batch.records[0], batch.attempt, error)
                if len(batch.records) == 1 or failure.then == "retry":
                    await self._failed(batch.records[0], batch.attempt, failure)
                    return
                # Hopeless is one record of them, and not known which: none is given up that was not tried alone.
                self._told(batch.records[0], batch.attempt, "failed", len(batch.records), failure, "retry")
                batches.extendleft(reversed(_one_by_one(batch)))
                continue
            if not self._is_terse:
                self._told(batch.records[0], batch.attempt, "delivered", len(batch.records))
            last = batch.records[-1]
            self._through = None if self._reaction.lands else (last.seq, last.ordinal)
        if not self._reaction.lands and not await self._finishing.tell(Outcome(grant.hold, self._through)):
            self._told(grant.records[-1], 0, "lost")  # It was somebody else's by then, and did not count.

    def _spent(self) -> Exception | None:
        """Why there is no further attempt, though nobody said so: whoever would have was gone."""
        grant, rules = self._grant, self._reaction.rules
        if grant.attempt > rules.max_retries and rules.on_exhausted != "never":
            why = f"{grant.lost} of {grant.attempt} attempts ended with their lease: does it stop its worker?"
            return LostLeases(why)
        # What was never tried is tried at least once.
        if grant.attempt and rules.is_over(age_us := self._age_us(grant.records[0])):
            return BudgetSpent(f"{age_us / 1e6:.3g} s after it was emitted there is no further attempt")
        return None

    async def _tried(self, batch: Batch) -> BaseException | None:
        """Have it delivered; answers what was raised. LeaseLostError: somebody else has the target."""
        self._began_us = self._clock.monotonic_us()
        try:
            result = await self._reaction.run(batch)
            if self._is_lost:
                raise LeaseLostError  # It was told to end, and came to its end all the same.
            if self._reaction.lands:
                await self._reaction.land(batch, result)
        except (LeaseLostError, StillRunsError):
            raise
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return error  # Nobody stops it: what it awaits was cancelled.
        except Exception as error:  # Whatever a reaction raises is what failed.
            return error
        return None

    def _batches(self) -> list[Batch]:
        """One by one; or for a batch reaction so many at once. Only the first has been tried before."""
        records, size = self._grant.records, max(1, self._reaction.batch)
        return [
            Batch(
                hold=self._grant.hold,
                attempt=0 if at else self._grant.attempt,
                records=records[at : at + size],
                is_last=at + size >= len(records),
            )
            for at in range(0, len(records), size)
        ]

    def _judged(self, record: Granted, attempt: int, error: BaseException) -> Failure:
        tried = Tried(attempt=attempt, age_us=self._age_us(record), error=error)
        return judged(self._reaction.rules, record, tried, self._random)

    async def _failed(self, record: Granted, attempt: int, failure: Failure) -> None:
        # fault+ delivering.failed_record_passed: self._through = (record.seq, record.ordinal)
        self._told(record, attempt, "failed", failure=failure)
        await self._finishing.tell(Outcome(self._grant.hold, self._through, failure))

    def _age_us(self, record: Granted) -> int:
        """How old a record is by the engine's clock, as far as this one can tell."""
        first = self._grant.records[0]
        since_us = self._clock.monotonic_us() - self._claimed_us
        return max(0, self._grant.age_us - (record.emitted_us - first.emitted_us) + since_us)

    def _told(
        self, record: Granted, attempt: int, how: str, records: int = 1, failure: Failure | None = None, then: str = ""
    ) -> None:
        took_us = self._clock.monotonic_us() - self._began_us
        hold = self._grant.hold
        self._hears(
            Attempt(
                reaction=hold.reaction,
                key=hold.key,
                attempt=attempt,
                records=records,
                began_us=self._clock.now_us() - took_us,
                took_us=took_us,
                how=how,
                then=then or ("" if failure is None else failure.then),
                error="" if failure is None else failure.error,
                message="" if failure is None else failure.message,
            )
        )


def _one_by_one(batch: Batch) -> list[Batch]:
    last = len(batch.records) - 1
    return [
        replace(batch, records=(record,), attempt=0 if at else batch.attempt, is_last=batch.is_last and at == last)
        for at, record in enumerate(batch.records)
    ]
