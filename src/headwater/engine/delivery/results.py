"""Results of deliveries: positions move, attempts are kept, the next due time is stored.

A worker that does not hold a target any more changes nothing and is told so. A record that cannot be delivered is
blocked, parked or skipped, as the worker says; the record stays, and an operator can have it tried again. Writes inside
the open store transaction.
"""

from __future__ import annotations

from collections.abc import Iterable

from headwater.data.value import MAX_INT
from headwater.engine.delivery.subscriptions import Subscriptions
from headwater.engine.delivery.targets import FAILED, NonDecreasingClock, Targets
from headwater.engine.limits import Limits
from headwater.engine.log.branches import MAIN_ID
from headwater.engine.store.port import (
    NEVER,
    ParkedRow,
    ParkedState,
    Place,
    Store,
    SubscriptionRow,
    TargetPhase,
    TargetRow,
)
from headwater.errors import InvariantViolation, LimitError, ProtocolError
from headwater.protocol.commit import Delivered
from headwater.protocol.reactions import DeliveryFailure, Finish, Hold, Outcome


class DeliveryResults:
    """Moves the targets of one space on."""

    __slots__ = ("_clock", "_limits", "_store", "_subscriptions", "_targets")

    def __init__(
        self, store: Store, subscriptions: Subscriptions, targets: Targets, clock: NonDecreasingClock, limits: Limits
    ) -> None:
        self._store = store
        self._subscriptions = subscriptions
        self._targets = targets
        self._clock = clock
        self._limits = limits

    def finish(self, question: Finish) -> tuple[Hold, ...]:
        """Record the results of targets. Return the targets that the worker did not hold any more."""
        if len(question.outcomes) > self._limits.claim_targets:
            raise LimitError(f"one message is about at most {self._limits.claim_targets} targets. Send several.")
        late: list[Hold] = []
        moved: list[TargetRow] = []
        for outcome in question.outcomes:
            target = self._targets.find_held(outcome.hold)
            row = self._subscriptions.all().get(outcome.hold.reaction)
            if row is None or target is None or not self._is_possible(row, target, outcome):
                late.append(outcome.hold)
            else:
                moved.append(self._moved(row, target, outcome))
        self._store.delivery.put_targets(moved)
        return tuple(late)

    def _is_possible(self, row: SubscriptionRow, target: TargetRow, outcome: Outcome) -> bool:
        """Whether it speaks of records that a target is still to deliver. One that does not takes no other along."""
        # fault+ delivering.failed_record_passed: return True
        failure, place = outcome.failure, outcome.through
        if place is not None and not (self._is_open(target, place) and self._is_of(row, target.key, place)):
            return False
        if failure is not None and not self._is_of(row, target.key, (failure.seq, failure.ordinal)):
            return False
        after = target.position if place is None else max(place, target.position)
        if failure is None:
            return True
        failed = (failure.seq, failure.ordinal)
        return failed > after or (place is None and self._is_open(target, failed))

    def _is_open(self, target: TargetRow, place: Place) -> bool:
        if place > target.position:
            return True
        passed = self._store.delivery.parked(target.reaction, target.key, place)
        return passed is not None and passed.state == ParkedState.REPLAY

    def is_given(self, each: Delivered) -> bool:
        """True if a worker can have been given this record: it is the target's, after its position or parked."""
        # fault+ targets.commit_ignores_lease: return True
        row = self._subscriptions.all().get(each.reaction)
        target = self._store.delivery.target(row.reaction, each.key) if row is not None else None
        if row is None or target is None:
            return False
        place = (each.seq, each.ordinal)
        return self._is_of(row, each.key, place) and self._is_open(target, place)

    def _is_of(self, row: SubscriptionRow, key: str, place: Place) -> bool:
        """Whether there is such a record, and it is the target's."""
        record = self._store.delivery.record(row.topic, place)
        return record is not None and record.key == key and record.branch == MAIN_ID

    def move_positions(self, records: Iterable[Delivered]) -> None:
        """C7: move positions in the transaction of the commit that delivers. A precondition checked their leases."""
        for each in records:
            row = self._subscriptions.get(each.reaction)
            target = self._store.delivery.target(row.reaction, each.key)
            if target is not None:
                outcome = Outcome(
                    Hold(each.reaction, each.key, target.token), (each.seq, each.ordinal), keeps=each.keeps
                )
                self._store.delivery.put_targets([self._moved(row, target, outcome)])

    def _moved(self, row: SubscriptionRow, target: TargetRow, outcome: Outcome) -> TargetRow:
        if outcome.through is not None:
            target = self._through(target, outcome.through)
        failure = outcome.failure
        if failure is not None:
            return self._failed(row, target, failure, was_first=outcome.through is None)
        if outcome.keeps:
            return target._replace(attempt=1)  # The next record is being tried already, by the same claim.
        if outcome.through is None:
            target = target._replace(attempt=max(0, target.attempt - 1))  # Given back: nothing was tried.
        return self.release(row, target)

    def _through(self, target: TargetRow, place: Place) -> TargetRow:
        """Delivered up to here; or that very record, if it was passed over before."""
        self._targets.tally(target.reaction).delivered += 1
        is_next = place > target.position
        target = target._replace(seq=place[0], ordinal=place[1]) if is_next else self.end_replay(target, place)
        if target.failures or target.lost or target.fingerprint or not is_next:
            self._store.delivery.drop_attempts(target.reaction, target.key, place)
        return target._replace(attempt=0, failures=0, lost=0, fingerprint="")

    def end_replay(self, target: TargetRow, place: Place) -> TargetRow:
        """Record that a parked record was delivered, or parked once more."""
        # fault+ targets.commit_ignores_lease: return target
        passed = self._store.delivery.parked(target.reaction, target.key, place)
        if passed is None or passed.state != ParkedState.REPLAY:
            raise InvariantViolation(f"{place} of target {target.key!r} is not to be delivered")
        self._store.delivery.drop_parked(passed)
        return target._replace(replays=target.replays - 1)

    def _failed(
        self, row: SubscriptionRow, target: TargetRow, failure: DeliveryFailure, *, was_first: bool
    ) -> TargetRow:
        now_us = self._clock.now_us()
        if not 0 <= failure.wait_us <= MAX_INT // 4:
            raise ProtocolError(f"a retry waits 0 to {MAX_INT // 4} microseconds, not {failure.wait_us}")
        if not (was_first and target.attempt):
            target = target._replace(attempt=1)  # Its claim was the one of records that were delivered since.
        target = target._replace(fingerprint=failure.fingerprint, failures=target.failures + 1)
        place = (failure.seq, failure.ordinal)
        self._targets.tally(target.reaction).failed += 1
        number = target.attempt - 1
        self._targets.record_attempt(target, place, number, FAILED, now_us, failure.message, failure.error)
        match failure.then:
            case "retry":
                return target._replace(
                    state=TargetPhase.DUE, due_us=now_us + failure.wait_us, holder="", began_us=now_us
                )
            case "block":
                return target._replace(state=TargetPhase.BLOCKED, due_us=NEVER, holder="")
            case "park":
                return self.park(row, target, place, ParkedState.PARKED)
            case "skip":
                return self.park(row, target, place, ParkedState.SKIPPED)

    def park(self, row: SubscriptionRow, target: TargetRow, place: Place, how: ParkedState) -> TargetRow:
        """Go on without a record, which is kept as one that was passed over."""
        if place <= target.position:
            target = self.end_replay(target, place)
        else:
            target = target._replace(seq=place[0], ordinal=place[1])
        self._store.delivery.put_parked(
            ParkedRow(target.reaction, target.key, *place, how, self._clock.now_us(), target.fingerprint)
        )
        return self.release(row, target._replace(attempt=0, failures=0, lost=0, fingerprint=""))

    def release(self, row: SubscriptionRow, target: TargetRow) -> TargetRow:
        """Release a target: it is due if there is more to deliver, after those that are due already."""
        next_us = self._store.delivery.next_emitted(row.topic, MAIN_ID, target.key, target.position)
        # fault outcomes.more_records_ignored: if True:
        if next_us is None and not target.replays:
            return target._replace(state=TargetPhase.IDLE, due_us=NEVER, holder="")
        now_us = self._clock.now_us()
        # By the clock of targets, as all times of a target: the log's may be ahead of it.
        since_us = target.since_us if next_us is None else now_us - self._clock.age_us(next_us)
        return target._replace(state=TargetPhase.DUE, due_us=now_us, holder="", since_us=since_us, began_us=now_us)
