"""Targets: one reaction and one stream key, given to one worker at a time.

A record marks its targets in the commit that emits it: no scan, no gap. A claim takes due targets, counts the attempt,
and fences each with a token that was never given before; a lease that is over is due again, so that nothing has to
tick. The cost of a claim depends on the number of targets taken, not on the number there are. Writes inside the open
store transaction; `results` records the results.

Due times and the ends of leases are stored, so targets use a wall clock that does not go back over a restart
(`NonDecreasingClock`): on a machine whose clock is behind the former one's, all stored times would be off by the
difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from headwater.clock import Clock, Random
from headwater.data.codec import decode
from headwater.data.value import MAX_INT
from headwater.engine.delivery.idle_workers import IdleWorkers
from headwater.engine.delivery.subscriptions import Subscriptions
from headwater.engine.limits import Limits
from headwater.engine.log.branches import MAIN_ID
from headwater.engine.log.log import number_in_meta
from headwater.engine.store.port import (
    CLAIMS_EPOCH,
    NEVER,
    AttemptRow,
    ParkedState,
    Place,
    RecordRow,
    Store,
    SubscriptionRow,
    SubscriptionState,
    TargetPhase,
    TargetRow,
)
from headwater.errors import ProtocolError
from headwater.protocol.reactions import Claim, Grant, Granted, Hold, RenewLeases, target_of


class NonDecreasingClock:
    """A clock for durations that outlive the process."""

    __slots__ = ("_ahead_us", "_clock", "_last_known_us", "_opened_us")

    def __init__(self, clock: Clock, last_known_us: Callable[[], int]) -> None:
        """`last_known_us` is called once, on the first use: the latest time that is stored."""
        self._clock = clock
        self._opened_us = clock.now_us()
        self._last_known_us = last_known_us
        self._ahead_us: int | None = None

    def now_us(self) -> int:
        now_us = self._clock.now_us()
        if self._ahead_us is None:
            self._ahead_us = max(0, self._last_known_us() - self._opened_us)
        return now_us + self._ahead_us

    def age_us(self, since_us: int) -> int:
        """How long ago that was, by whichever of both clocks it was stored."""
        now_us = self._clock.now_us()
        return now_us - since_us if since_us <= now_us else max(0, self.now_us() - since_us)

    def monotonic_us(self) -> int:
        return self._clock.monotonic_us()

    def randomness(self, label: str) -> Random:
        return self._clock.randomness(label)

    def new_token(self, nbytes: int = 16) -> str:
        return self._clock.new_token(nbytes)


FAILED: Final = 0
LOST: Final = 1
_COUNT: Final = 2**32
"""Targets that are given away between two openings of a space."""


@dataclass(slots=True)
class DeliveryTally:
    """Counts of claimed targets of a reaction by their result. For display; no decision depends on it."""

    delivered: int = 0
    failed: int = 0
    lost: int = 0


class Targets:
    """The targets of one space, and their holders."""

    __slots__ = ("_clock", "_epoch", "_given", "_limits", "_store", "_subscriptions", "idle_workers", "tallies")

    def __init__(self, store: Store, subscriptions: Subscriptions, clock: NonDecreasingClock, limits: Limits) -> None:
        self.idle_workers = IdleWorkers(clock, limits)
        self._store = store
        self._subscriptions = subscriptions
        self._clock = clock
        self._limits = limits
        self._epoch: int | None = None  # of the tokens given since the space was opened; None: none yet
        self._given = 0
        self.tallies: dict[int, DeliveryTally] = {}  # by reaction, since this is open

    def tally(self, reaction: int) -> DeliveryTally:
        return self.tallies.setdefault(reaction, DeliveryTally())

    def forget(self) -> None:
        """Drop claims that the disk may not have. No token is given twice."""
        self._epoch = None
        self.idle_workers.forget()

    def last_known_us(self) -> int:
        """The latest time that is stored: of a claim, a release or an emitted record."""
        rows = self._subscriptions.all().values()
        return max([self._store.delivery.last_known(row.reaction, self._limits.page) for row in rows], default=0)

    @property
    def has_epoch(self) -> bool:
        """True if tokens can be given that were never given before, whatever the disk loses."""
        return self._epoch is not None and self._given < _COUNT - self._limits.claim_targets

    # ---- emitting --------------------------------------------------------------------------------

    def mark_due(self, records: Iterable[RecordRow]) -> None:
        """C7: mark the targets of records in the transaction of the commit that emits them."""
        now_us = self._clock.now_us()
        wanted: dict[tuple[str, str], list[RecordRow]] = {}
        for record in records:
            wanted.setdefault((record.topic, record.key), []).append(record)
        for (topic, key), theirs in wanted.items():
            for row in self._subscriptions.of_topic(topic):
                self._mark(row, key, now_us, now_us, theirs)

    def _mark(
        self, row: SubscriptionRow, key: str, due_us: int, since_us: int, records: list[RecordRow] | None = None
    ) -> None:
        """`records`: all that it has to deliver, unless it has to look through those from before."""
        tables = self._store.delivery
        known = tables.target(row.reaction, key)
        # fault+ targets.known_target_not_marked: if known is not None: return
        if known is not None and known.state != TargetPhase.IDLE:
            self.idle_workers.is_more = True
            return
        due = (
            TargetRow(row.reaction, key, *row.start, TargetPhase.DUE, due_us, 0, 0, 0, 0, 0, "", since_us, 0, "")
            if known is None
            else known._replace(state=TargetPhase.DUE, due_us=due_us, since_us=since_us)
        )
        held = self._offered(row, due, records, due_us) if records and not row.is_filling else None
        if held is None:
            self.idle_workers.is_more = True
        if known is None:
            tables.add_targets([held or due])
        else:
            tables.put_targets([held or due])

    def _offered(self, row: SubscriptionRow, due: TargetRow, records: list[RecordRow], now_us: int) -> TargetRow | None:
        """The same, given to a worker that waits for it. C7: that is on the disk with the commit, or neither is."""
        if row.state != SubscriptionState.LIVE or due.attempt or due.replays:
            return None
        records = _fitting(records[: self._limits.claim_records], self._limits.claim_bytes)
        size = sum([len(record.payload) for record in records])
        offer = self.idle_workers.find(row.name, size)
        if offer is None:
            return None
        question = offer.question
        held, grant = self._given_to(question, row, due, records[: max(1, question.records)], now_us)
        self.idle_workers.give_target(offer, grant, size, now_us)
        return held

    def mark_backlog(self, row: SubscriptionRow) -> bool:
        """Give some of the records from before a subscription their targets. False: all of them have."""
        if not row.is_filling:
            return False
        page = self._limits.page
        now_us = self._clock.now_us()
        records = self._store.records_after(row.topic, row.cursor, page)
        earlier = [record for record in records if record.seq <= row.until_seq]
        for key, since_us in {r.key: r.emitted_us for r in reversed(earlier) if r.branch == MAIN_ID}.items():
            self._mark(row, key, now_us, now_us - self._clock.age_us(since_us) if since_us else now_us)
        if len(earlier) < page:
            row = row._replace(cursor_seq=row.until_seq, cursor_ordinal=MAX_INT)
        else:
            row = row._replace(cursor_seq=earlier[-1].seq, cursor_ordinal=earlier[-1].ordinal)
        self._subscriptions.put(row)
        return row.is_filling

    # ---- claiming --------------------------------------------------------------------------------

    def claim(self, question: Claim) -> tuple[list[Grant], int | None]:
        """Targets that are due, for a worker; and how long until there may be more."""
        check_lease(question.lease_us)
        rows = self._subscriptions.all()
        live = [rows[name] for name in dict.fromkeys(question.reactions) if name in rows]
        live = [row for row in live if row.state == SubscriptionState.LIVE]
        filling = [row for row in live if self.mark_backlog(row)]
        limit = min(question.limit, self._limits.claim_targets)
        now_us = self._clock.now_us()
        grants: list[Grant] = []
        taken: list[TargetRow] = []
        room = self._limits.claim_bytes
        for row, due in self._due(live, now_us, limit):
            target = due
            records, is_replay = self._records(row, target, question.records)
            if not records:
                taken.append(target._replace(state=TargetPhase.IDLE, due_us=NEVER, holder=""))
                continue
            room -= sum([len(record.payload) for record in records])
            if room < 0 and grants:
                break
            if target.state == TargetPhase.LEASED:
                target = self._note_lost_lease(target, records[0], now_us)
            held, grant = self._given_to(question, row, target, records, now_us, is_replay=is_replay)
            taken.append(held)
            grants.append(grant)
        self._store.delivery.put_targets(taken)
        return grants, 0 if filling else self.next_us(live)

    def _given_to(
        self,
        question: Claim,
        row: SubscriptionRow,
        target: TargetRow,
        records: list[RecordRow],
        now_us: int,
        *,
        is_replay: bool = False,
    ) -> tuple[TargetRow, Grant]:
        held = target._replace(
            state=TargetPhase.LEASED,
            due_us=now_us + question.lease_us,
            attempt=target.attempt + 1,
            token=self._new_token(),
            holder=question.worker,
            began_us=now_us,
        )
        age_us = self._clock.age_us(records[0].emitted_us)
        given = tuple(map(_granted, records))
        return held, Grant(Hold(row.name, held.key, held.token), target.attempt, target.lost, given, is_replay, age_us)

    def _due(self, live: list[SubscriptionRow], now_us: int, limit: int) -> list[tuple[SubscriptionRow, TargetRow]]:
        """The earliest of all reactions. One of a higher priority counts as earlier than it is, by so much at most."""
        found = [
            (target.due_us - row.priority * self._limits.priority_us, row, target)
            for row in (live if limit else ())
            for target in self._store.delivery.claimable(row.reaction, now_us, limit)
        ]
        found.sort(key=lambda each: each[0])
        return [(row, target) for _, row, target in found[:limit]]

    def _records(self, row: SubscriptionRow, target: TargetRow, most: int) -> tuple[list[RecordRow], bool]:
        """Return the next records of a target, and whether they were parked before.

        A record that was tried before comes alone, so that its failure is not blamed on another.
        """
        tables = self._store.delivery
        if target.replays:
            for passed in tables.parked_of(target.reaction, target.key, ParkedState.REPLAY, 1):
                record = tables.record(row.topic, (passed.seq, passed.ordinal))
                if record is not None:
                    return [record], True
        limit = 1 if target.attempt else max(1, min(most, self._limits.claim_records))
        records = tables.records_of(row.topic, MAIN_ID, target.key, target.position, limit)
        return _fitting(records, self._limits.claim_bytes), False

    def leased_by_former_owners(self, owner: str) -> list[TargetRow]:
        """Return targets, up to a page, that workers of former owner processes of the directory hold."""
        tables, found = self._store.delivery, list[TargetRow]()
        now_us = self._clock.now_us()
        for row in self._subscriptions.all().values():
            found += tables.leased_by_others(row.reaction, owner, now_us, self._limits.page - len(found))
            if len(found) >= self._limits.page:
                break
        return found

    def end_leases(self, rows: list[TargetRow]) -> None:
        """End leases as of now. The next claim of such a target counts its attempt as lost."""
        now_us = self._clock.now_us()
        # fault+ targets.work_forgotten: now_us, rows = NEVER, [row._replace(state=TargetPhase.IDLE) for row in rows]
        self._store.delivery.put_targets([row._replace(due_us=now_us) for row in rows])

    def _note_lost_lease(self, target: TargetRow, record: RecordRow, now_us: int) -> TargetRow:
        """Record that a lease is over without a result of its worker."""
        number = max(target.attempt - 1, 0)
        self.tally(target.reaction).lost += 1
        self.record_attempt(
            target, (record.seq, record.ordinal), number, LOST, now_us, f"the lease of {target.holder!r} ended", ""
        )
        return target._replace(lost=target.lost + 1)

    def record_attempt(
        self, target: TargetRow, place: Place, number: int, how: int, now_us: int, message: str, error: str
    ) -> None:
        """Keep an attempt that came to nothing."""
        self._store.delivery.put_attempt(
            AttemptRow(
                target.reaction,
                target.key,
                *place,
                number % self._limits.attempts_kept,
                number,
                how,
                target.began_us,
                now_us,
                error,
                message[: self._limits.failure_text],
                target.fingerprint,
            )
        )

    def _new_token(self) -> int:
        if self._epoch is None or self._given >= _COUNT - 1:
            # C6: on the disk before any token of it is given away, since claims are not waited for.
            self._epoch = number_in_meta(self._store, CLAIMS_EPOCH, 0) + 1
            self._store.put_meta(CLAIMS_EPOCH, str(self._epoch))
            self._given = 0
        self._given += 1
        return self._epoch * _COUNT + self._given

    def next_us(self, rows: Iterable[SubscriptionRow]) -> int | None:
        """How long until a target of these reactions may be claimed. None: there is none to deliver."""
        dues = [self._store.delivery.next_due(row.reaction) for row in rows if row.state == SubscriptionState.LIVE]
        known = [due for due in dues if due is not None]
        return max(0, min(known) - self._clock.now_us()) if known else None

    # ---- holding ---------------------------------------------------------------------------------

    def renew(self, question: RenewLeases) -> tuple[Hold, ...]:
        """Extend leases. Return those that another worker holds by now."""
        check_lease(question.lease_us)
        until_us = self._clock.now_us() + question.lease_us
        held, lost = [], []
        for hold in question.holds:
            target = self.find_held(hold)
            if target is None:
                lost.append(hold)
            else:
                held.append(target._replace(due_us=until_us))
        self._store.delivery.put_targets(held)
        return tuple(lost)

    def find_held(self, hold: Hold) -> TargetRow | None:
        """The target of a lease, if it is still the one with this token."""
        row = self._subscriptions.all().get(hold.reaction)
        target = self._store.delivery.target(row.reaction, hold.key) if row is not None else None
        # fault targets.lost_lease_moves: if target is None or target.state != TargetPhase.LEASED:
        if target is None or target.token != hold.token or target.state != TargetPhase.LEASED:
            return None
        return target

    def holder_of(self, lease: str, token: int) -> str | None:
        """Return the holder of a target by its lease's name; None: the caller's token holds it; empty: none does."""
        named = target_of(lease)
        if named is None:
            return ""
        row = self._subscriptions.all().get(named[0])
        target = self._store.delivery.target(row.reaction, named[1]) if row is not None else None
        if target is None or target.state != TargetPhase.LEASED:
            return ""
        return None if target.token == token else target.holder


def _fitting(records: list[RecordRow], most: int) -> list[RecordRow]:
    """The first of them, and as many more as are not too long together."""
    held = 0
    for place, record in enumerate(records):
        held += len(record.payload)
        if held > most and place:
            return records[:place]
    return records


def check_lease(lease_us: int) -> None:
    if not 0 < lease_us <= MAX_INT // 4:
        raise ProtocolError(f"a target is leased for 1 to {MAX_INT // 4} microseconds, not {lease_us}")


def _granted(record: RecordRow) -> Granted:
    return Granted(record.seq, record.ordinal, decode(record.payload), record.source, record.emitted_us)
