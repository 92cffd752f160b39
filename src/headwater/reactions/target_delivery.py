"""Delivery of one claimed target, and the reports of outcomes to the space.

`TargetDelivery` calls the reaction for each record of a target, in order, until all are delivered or one fails. It runs
outside any transaction. The result of a reaction with `lands` is committed together with the position of the target;
otherwise the position moves when the target is reported. A worker that lost the lease reports nothing. A worker that
stops finishes the record that runs and gives the others back. Each attempt is traced once, as soon as it is known
whether it counts: with its commit, or with the answer to the report.

`OutcomeReporter` sends outcomes of all targets of a drain, many in one message, one message at a time. A message
without an answer is sent again; outcomes that the space had received already come too late then and change nothing.
After a refusal the outcomes are sent one by one, and a refused outcome is dropped: the lease of its target expires. The
number of waiting outcomes is bounded (`DrainLimits.outcomes_waiting`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace

import msgspec

from headwater.clock import Clock, Random
from headwater.errors import HeadwaterError
from headwater.protocol.reactions import DeliveryFailure, Finish, Finished, Grant, Granted, Hold, Outcome
from headwater.reactions.limits import DEFAULT_DRAIN_LIMITS, DrainLimits
from headwater.reactions.port import (
    Batch,
    Deliverable,
    LeaseLostError,
    StillRunsError,
    TargetSource,
    is_refusal,
)
from headwater.reactions.retry_rules import FailedAttempt, SourceGoneError, error_text, judge_failure
from headwater.reactions.traces import Attempt, OnTrace

OnReported = Callable[[tuple[Outcome, ...], Finished], None]
OnUnreported = Callable[[Hold, str], None]


class OutcomeReporter:
    """Outcomes of one drain on their way to the space."""

    __slots__ = ("_is_stopped", "_limits", "_on_reported", "_on_unreported", "_random", "_source", "_task", "_waiting")

    def __init__(
        self,
        source: TargetSource,
        random: Random,
        on_reported: OnReported,
        on_unreported: OnUnreported,
        limits: DrainLimits = DEFAULT_DRAIN_LIMITS,
    ) -> None:
        self._source = source
        self._random = random
        self._limits = limits
        self._on_reported = on_reported
        self._on_unreported = on_unreported
        self._waiting: dict[Hold, tuple[Outcome, asyncio.Future[bool]]] = {}
        self._task: asyncio.Task[None] | None = None
        self._is_stopped = False

    def __len__(self) -> int:
        return len(self._waiting)

    def is_reporting(self, hold: Hold) -> bool:
        """Return whether an outcome of this lease is on its way; its answer says whether the lease was still held."""
        return hold in self._waiting

    async def report(self, outcome: Outcome) -> bool:
        """Report an outcome and wait for the answer. Return False if the lease was lost before, or the space refused
        the outcome.
        """
        if self._is_stopped:
            raise asyncio.CancelledError
        loop = asyncio.get_running_loop()
        heard: asyncio.Future[bool] = loop.create_future()
        before = self._waiting.get(outcome.hold)
        if before is not None:
            await asyncio.shield(before[1])
        if len(self._waiting) >= self._limits.outcomes_waiting:
            self._give_up(
                next(iter(self._waiting.values()))[0],
                f"{self._limits.outcomes_waiting} other outcomes wait to be reported",
            )
        self._waiting[outcome.hold] = (outcome, heard)
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._run(), name="reporting outcomes")
        return await asyncio.shield(heard)

    async def _run(self) -> None:
        """Send until no outcome waits. Without answers it goes on until `stop`."""
        failures = 0
        alone = 0  # number of outcomes to send one by one, because one of them was refused
        while self._waiting:
            told = tuple(
                [outcome for outcome, _ in self._waiting.values()][: 1 if alone else self._limits.outcomes_at_once]
            )
            try:
                answer = await self._source.ask(Finish(0, told))
            except Exception as error:  # An outcome that cannot be encoded must not keep the others from being sent.
                if isinstance(error, HeadwaterError) and not is_refusal(error):
                    await asyncio.sleep(self._limits.asks.delay_us(failures, self._random) / 1e6)
                    failures += 1
                elif len(told) == 1:
                    why = error_text(error, self._limits.error_characters)
                    self._give_up(told[0], f"{type(error).__qualname__}: {why}")
                    alone = max(0, alone - 1)
                else:
                    alone = len(told)
                continue
            assert isinstance(answer, Finished)
            failures = 0
            alone = max(0, alone - 1)
            late = set(answer.late)
            for outcome in told:
                self._settle(outcome, is_heard=outcome.hold not in late)
            self._on_reported(told, answer)

    def _give_up(self, outcome: Outcome, why: str) -> None:
        self._settle(outcome, is_heard=False)
        self._on_unreported(outcome.hold, why)

    def _settle(self, outcome: Outcome, *, is_heard: bool) -> None:
        waiting = self._waiting.get(outcome.hold)
        if waiting is not None and waiting[0] is outcome:  # Otherwise a later one waits in its place.
            del self._waiting[outcome.hold]
            if not waiting[1].done():
                waiting[1].set_result(is_heard)

    def stop(self) -> None:
        """Send nothing more, and cancel every caller of `report`."""
        self._is_stopped = True
        if self._task is not None:
            self._task.cancel()
        for _, heard in self._waiting.values():
            heard.cancel()
        self._waiting.clear()


class LostLeases(Exception):
    """Every attempt that the reaction allows ended because the worker lost its lease."""


class BudgetSpent(Exception):
    """The time budget of the reaction was over before a further attempt could start."""


class TargetDelivery:
    """One claimed target while this worker holds its lease."""

    __slots__ = (
        "_began_us",
        "_claimed_us",
        "_clock",
        "_grant",
        "_is_lost",
        "_is_terse",
        "_limits",
        "_on_trace",
        "_random",
        "_reaction",
        "_reporter",
        "_stops",
        "_through",
        "_trying",
        "_unconfirmed",
        "left",
    )

    def __init__(
        self,
        reaction: Deliverable,
        grant: Grant,
        reporter: OutcomeReporter,
        clock: Clock,
        random: Random,
        on_trace: OnTrace,
        limits: DrainLimits = DEFAULT_DRAIN_LIMITS,
        *,
        is_terse: bool = False,
    ) -> None:
        self._limits = limits
        self._is_terse = is_terse
        self._reaction = reaction
        self._grant = grant
        self._reporter = reporter
        self._clock = clock
        self._random = random
        self._on_trace = on_trace
        self._is_lost = False
        self._through: tuple[int, int] | None = None  # delivered, and not reported yet
        self._unconfirmed: list[Attempt] = []  # attempts that delivered these records
        self._trying: Batch | None = None  # the batch whose attempt has begun and was not traced
        self._stops = False
        self.left: Future[object] | None = None  # a cancelled call that goes on in a thread
        self._began_us = self._claimed_us = clock.monotonic_us()

    def stop(self) -> None:
        """Start no further record."""
        self._stops = True

    def lose_lease(self, task: asyncio.Task[None]) -> None:
        """Cancel the delivery: another worker has the lease."""
        self._is_lost = True
        task.cancel()

    async def run(self) -> None:
        try:
            await self._run()
        except asyncio.CancelledError:
            if self._is_lost:
                self._trace_lost()
                return
            # The worker stops. Other workers get the undelivered records, and no attempt is counted.
            self._trace_tried("given back")
            await self._report(Outcome(self._grant.hold, self._through))
            raise

    async def _leave_running(self) -> None:
        """Report the records before a call that cannot be stopped. No other worker may start its record before the
        lease expires.
        """
        self._trace_tried("lost")
        if self._is_lost:
            self._trace_unconfirmed(is_heard=False)
        elif self._through is not None:
            await self._report(Outcome(self._grant.hold, self._through, keeps=True))

    async def _run(self) -> None:
        grant = self._grant
        spent = self._find_exhaustion()
        if spent is not None:
            none = Batch(hold=grant.hold, attempt=grant.attempt, records=grant.records[:1], is_last=False)
            try:
                failure = await self._hand_over(none, spent, self._judge(none, spent))
            except LeaseLostError:
                self._is_lost = True
                self._trace_lost()
                return
            if failure is None:  # The commit of the handler has passed the record: the rest is given back.
                await self._report(Outcome(grant.hold))
            else:
                await self._report_failure(none, failure)
            return
        batches = deque(self._make_batches())
        while batches:
            batch = batches.popleft()
            if self._stops:
                # Other workers get the remaining records, and no attempt is counted.
                self._trying = batch
                await self._report(Outcome(grant.hold, self._through))
                self._trace_tried("given back")
                return
            failure = None
            try:
                error = await self._try_batch(batch)
                if error is not None:
                    failure = self._judge(batch, error)
                    if len(batch.records) == 1:
                        failure = await self._hand_over(batch, error, failure)
            except StillRunsError as goes_on:
                self.left = goes_on.running
                await self._leave_running()
                return
            except LeaseLostError:
                self._is_lost = True
                self._trace_lost()
                return
            if failure is not None:
                if len(batch.records) == 1 or failure.then == "retry":
                    await self._report_failure(batch, failure)
                    return
                # One record of the batch is hopeless, and it is not known which. Only a record that failed alone is
                # given up.
                self._trace(batch, "failed", failure, "retry")
                batches.extendleft(reversed(_split_batch(batch)))
                continue
            if error is not None:  # Handed over: the commit of the handler has passed it, and the records before it.
                self._through = None
                continue
            if not (self._is_terse and self._reaction.lands):
                self._unconfirmed.append(self._attempt(batch, "delivered"))
            self._trying = None
            last = batch.records[-1]
            self._through = None if self._reaction.lands else (last.seq, last.ordinal)
            if self._reaction.lands:
                self._trace_unconfirmed(is_heard=True)  # Its commit was accepted under the lease.
        if not self._reaction.lands:
            await self._report(Outcome(grant.hold, self._through))

    async def _hand_over(self, batch: Batch, error: BaseException, failure: DeliveryFailure) -> DeliveryFailure | None:
        """Give up a record by its `otherwise` handler, if the reaction has one. Return the failure that is left.

        If that handler fails, too, the failure of the record says so.
        """
        is_given_up = failure.then != "retry" and not isinstance(error, SourceGoneError)
        if not is_given_up or not self._reaction.has_otherwise:
            return failure
        self._trying = batch
        # Without `then` the rest of the grant is reported after this: the lease is needed until then.
        held = batch if self._reaction.lands else replace(batch, is_last=False)
        try:
            await self._reaction.give_up(held, f"{failure.error}: {failure.message}")
        except (LeaseLostError, StillRunsError):
            raise
        except SourceGoneError as gone:
            return self._judge(batch, gone)
        except Exception as refused:  # The record is left to `on_exhausted`, with both reasons.
            told = error_text(refused, self._limits.error_characters)
            return msgspec.structs.replace(failure, message=f"{failure.message} (its otherwise handler: {told})")
        self._trace_unconfirmed(is_heard=True)  # The commit has passed the records before this one, too.
        self._trace(batch, "failed", failure, "otherwise", records=1)
        return None

    def _find_exhaustion(self) -> Exception | None:
        """Return why no attempt is left for a record whose earlier attempts reported nothing, or None."""
        grant, rules = self._grant, self._reaction.rules
        if grant.attempt > rules.max_retries and rules.on_exhausted != "never":
            why = f"{grant.lost} of {grant.attempt} attempts ended with their lease: does it stop its worker?"
            return LostLeases(why)
        # A record that was never tried is tried at least once.
        if grant.attempt and rules.is_over(age_us := self._age_us(grant.records[0])):
            return BudgetSpent(f"{age_us / 1e6:.3g} s after it was emitted there is no further attempt")
        return None

    async def _try_batch(self, batch: Batch) -> BaseException | None:
        """Deliver a batch and return the error that it raised. Raises LeaseLostError if another worker has the
        target.
        """
        self._began_us = self._clock.monotonic_us()
        self._trying = batch
        try:
            result = await self._reaction.run(batch)
            if self._is_lost:
                raise LeaseLostError  # It was cancelled, and finished all the same.
            if self._reaction.lands:
                await self._reaction.land(batch, result)
        except (LeaseLostError, StillRunsError):
            raise
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return error  # This task was not cancelled: an awaitable of the reaction was.
        except Exception as error:  # Any error of a reaction is a failed attempt.
            return error
        return None

    def _make_batches(self) -> list[Batch]:
        """Split the grant into single records, or into batches of a batch reaction. Only the first batch may have
        earlier attempts.
        """
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

    def _judge(self, batch: Batch, error: BaseException) -> DeliveryFailure:
        record = batch.records[0]
        tried = FailedAttempt(attempt=batch.attempt, age_us=self._age_us(record), error=error)
        return judge_failure(self._reaction.rules, record, tried, self._random, self._limits)

    async def _report_failure(self, batch: Batch, failure: DeliveryFailure) -> None:
        """Report that the first record of a batch failed. An attempt whose lease was lost meanwhile does not count."""
        # fault+ delivering.failed_record_passed: self._through = (batch.records[0].seq, batch.records[0].ordinal)
        self._trying = batch
        failed = self._attempt(batch, "failed", failure, records=1)
        is_heard = await self._report(Outcome(self._grant.hold, self._through, failure))
        self._trying = None
        self._on_trace(failed if is_heard else replace(failed, how="lost", then=""))

    async def _report(self, outcome: Outcome) -> bool:
        """Report an outcome, and trace the attempts that it confirms. Return whether the lease was held."""
        is_heard = await self._reporter.report(outcome)
        self._trace_unconfirmed(is_heard=is_heard)
        return is_heard

    def _age_us(self, record: Granted) -> int:
        """Return the age of a record by the engine's clock, estimated with the monotonic clock of this process."""
        first = self._grant.records[0]
        since_us = self._clock.monotonic_us() - self._claimed_us
        return max(0, self._grant.age_us - (record.emitted_us - first.emitted_us) + since_us)

    def _trace_unconfirmed(self, *, is_heard: bool) -> None:
        """Trace the attempts whose outcome is known now: they count, or another worker had the lease."""
        told, self._unconfirmed = self._unconfirmed, []
        for each in told:
            if not is_heard:
                self._on_trace(replace(each, how="lost"))
            elif not self._is_terse:
                self._on_trace(each)

    def _trace_tried(self, how: str) -> None:
        """Trace the end of the attempt that has begun. If none has, the grant as a whole."""
        grant = self._grant
        if self._trying is None and not self._unconfirmed:
            self._trying = Batch(hold=grant.hold, attempt=0, records=grant.records[:1], is_last=False)
        if self._trying is not None:
            self._trace(self._trying, how, records=1)

    def _trace_lost(self) -> None:
        self._trace_tried("lost")
        self._trace_unconfirmed(is_heard=False)

    def _trace(
        self,
        batch: Batch,
        how: str,
        failure: DeliveryFailure | None = None,
        then: str = "",
        *,
        records: int | None = None,
    ) -> None:
        self._trying = None
        self._on_trace(self._attempt(batch, how, failure, then, records=records))

    def _attempt(
        self,
        batch: Batch,
        how: str,
        failure: DeliveryFailure | None = None,
        then: str = "",
        *,
        records: int | None = None,
    ) -> Attempt:
        took_us = self._clock.monotonic_us() - self._began_us
        return Attempt(
            reaction=batch.hold.reaction,
            key=batch.hold.key,
            attempt=batch.attempt,
            records=len(batch.records) if records is None else records,
            began_us=self._clock.now_us() - took_us,
            took_us=took_us,
            how=how,
            then=then or ("" if failure is None else failure.then),
            error="" if failure is None else failure.error,
            message="" if failure is None else failure.message,
        )


def _split_batch(batch: Batch) -> list[Batch]:
    last = len(batch.records) - 1
    return [
        replace(batch, records=(record,), attempt=0 if at else batch.attempt, is_last=batch.is_last and at == last)
        for at, record in enumerate(batch.records)
    ]
