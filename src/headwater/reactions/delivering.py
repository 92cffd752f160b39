"""Delivering: what was claimed of one target, record after record, until it is done or one of them fails.

Outside any transaction. What a reaction's result is for is committed together with the position; otherwise the position
moves when the target is finished, with all that was delivered. Whoever lost the lease says nothing more.
"""

from __future__ import annotations

import asyncio

from headwater.clock import Clock, Random
from headwater.protocol.reactions import Grant, Granted, Outcome
from headwater.reactions.finishing import Finishing
from headwater.reactions.port import Batch, LeaseLostError, Reaction
from headwater.reactions.rules import Tried, judged
from headwater.reactions.traces import Attempt, Hears


class LostLeases(Exception):
    """Attempts that ended with their lease, one after the other, are all that the reaction has."""


class Delivering:
    """One target while this worker has it."""

    __slots__ = (
        "_began_us",
        "_clock",
        "_finishing",
        "_grant",
        "_hears",
        "_is_lost",
        "_is_terse",
        "_random",
        "_reaction",
        "_through",
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
        self._began_us = clock.monotonic_us()

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

    async def _run(self) -> None:
        grant, rules = self._grant, self._reaction.rules
        if grant.attempt > rules.max_retries and rules.on_exhausted != "never":
            # Nobody was left to say so: its attempts ended with their leases.
            why = f"{grant.lost} of {grant.attempt} attempts ended with their lease: does it stop its worker?"
            lost = LostLeases(why)
            await self._fail(grant.records[0], grant.attempt, lost)
            return
        for batch in self._batches():
            self._began_us = self._clock.monotonic_us()
            try:
                result = await self._reaction.run(batch)
                if self._reaction.lands:
                    await self._reaction.land(batch, result)
            except LeaseLostError:
                self._is_lost = True
                self._told(batch.records[0], batch.attempt, "lost")
                return
            except asyncio.CancelledError as error:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                await self._fail(
                    batch.records[0], batch.attempt, error
                )  # Nobody stops it: what it awaits was cancelled.
                return
            except Exception as error:  # Whatever a reaction raises is what failed.
                await self._fail(batch.records[0], batch.attempt, error)
                return
            if not self._is_terse:
                self._told(batch.records[0], batch.attempt, "delivered", records=len(batch.records))
            last = batch.records[-1]
            self._through = None if self._reaction.lands else (last.seq, last.ordinal)
        if not self._reaction.lands:
            await self._finishing.tell(Outcome(grant.hold, self._through))

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

    async def _fail(self, record: Granted, attempt: int, error: BaseException) -> None:
        tried = Tried(attempt=attempt, age_us=self._age_us(record), error=error)
        failure = judged(self._reaction.rules, record, tried, self._random)
        self._told(record, attempt, "failed", then=failure.then, error=failure.error)
        await self._finishing.tell(Outcome(self._grant.hold, self._through, failure))

    def _age_us(self, record: Granted) -> int:
        """How old a record is by the engine's clock, as far as this one can tell."""
        first = self._grant.records[0]
        return max(0, self._grant.age_us - (record.emitted_us - first.emitted_us))

    def _told(
        self, record: Granted, attempt: int, how: str, *, records: int = 1, then: str = "", error: str = ""
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
                then=then,
                error=error,
            )
        )
