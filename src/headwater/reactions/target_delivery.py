"""Delivering: what was claimed of one target, record after record, until it is done or one of them fails.

Outside any transaction. What a reaction's result is for is committed together with the position; otherwise the position
moves when the target is finished, with all that was delivered. Whoever lost the lease says nothing more; whoever is to
stop comes to the end of the record that runs, and gives the rest back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import Future
from dataclasses import replace

from headwater.clock import Clock, Random
from headwater.protocol.reactions import Failure, Grant, Granted, Outcome
from headwater.reactions.finishing import Finishing
from headwater.reactions.port import Batch, LeaseLostError, Reaction, StillRunsError
from headwater.reactions.retry_rules import Tried, judged
from headwater.reactions.traces import Attempt, Hears


class LostLeases(Exception):
    """Attempts that ended with their lease, one after the other, are all that the reaction has."""


class BudgetSpent(Exception):
    """The time that a reaction gives to a record was over before it could be tried again."""


class Delivering:
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
