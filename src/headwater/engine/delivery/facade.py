"""The interface of reactions for the rest of the engine. Composes subscriptions, targets, results and admin.

`DeliveryFacade` owns nothing. The caller holds an open store transaction, and asks `is_urgent` whether the answer has
to wait for it. `DeliveryAdmin` has the operator's calls: pages of reactions, targets and failures, and their changes.
Many targets are changed some at a time: the answer has a cursor. A worker whose target an operator changes loses its
lease. Counts are bounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, assert_never

from headwater.clock import Clock
from headwater.data.value import MAX_INT
from headwater.engine.delivery.results import DeliveryResults
from headwater.engine.delivery.subscriptions import Subscriptions
from headwater.engine.delivery.targets import FAILED, NonDecreasingClock, Targets
from headwater.engine.limits import Limits
from headwater.engine.log.branches import MAIN_ID
from headwater.engine.log.log import Log
from headwater.engine.store.port import (
    AttemptRow,
    ParkedRow,
    ParkedState,
    Store,
    SubscriptionRow,
    SubscriptionState,
    TargetPhase,
    TargetRow,
)
from headwater.errors import HeadwaterError, LimitError, ProtocolError, StorageError
from headwater.protocol.commit import Commit
from headwater.protocol.reactions import (
    Attempted,
    Claim,
    Claimed,
    Delivering,
    Delivers,
    Drained,
    Failures,
    Finish,
    Finished,
    LeasesRenewed,
    Operate,
    Operated,
    ParkedRecord,
    QueryDrained,
    QueryFailures,
    QueryReactions,
    QueryTargets,
    ReactionList,
    ReactionState,
    RenewLeases,
    State,
    Subscribe,
    Subscribed,
    TargetPage,
    TargetState,
)
from headwater.protocol.verdict import RuleRefused


class DeliveryFacade:
    """The reactions of one space."""

    __slots__ = ("_admin", "_clock", "_log", "_store", "idle_workers", "results", "subscriptions", "targets")

    def __init__(self, store: Store, log: Log, clock: Clock, limits: Limits) -> None:
        self._store = store
        self._log = log
        self.subscriptions = Subscriptions(store, log, clock, limits)
        self._clock = steady = NonDecreasingClock(clock, lambda: self.targets.last_known_us())
        self.targets = Targets(store, self.subscriptions, steady, limits)
        self.idle_workers = self.targets.idle_workers
        self.results = DeliveryResults(store, self.subscriptions, self.targets, steady, limits)
        self._admin = DeliveryAdmin(store, self.subscriptions, self.targets, self.results, steady, limits)

    def forget(self) -> None:
        """Drop memory that may be ahead of the disk."""
        self.subscriptions.forget()
        self.targets.forget()

    def refusal(self, commit: Commit) -> RuleRefused | None:
        """Return why no retry of a commit can be accepted: a record that was not given to it, or a declaration."""
        for each in commit.delivered:
            if not self.results.is_given(each):
                return RuleRefused(
                    "delivered",
                    f"record {each.seq}.{each.ordinal} is not one that reaction {each.reaction!r} is to deliver next "
                    f"to {each.key!r}",
                )
        return self.subscriptions.refusal(commit) if commit.declared else None

    def is_urgent(self, question: Delivers) -> bool:
        """True if the answer has to be on the disk before it leaves.

        A claim that the disk loses is given away once more, under a new token; a renewal that it loses is a lease that
        ends early. Neither breaks a promise.
        """
        if isinstance(question, Claim):
            return not self.targets.has_epoch
        return isinstance(question, Subscribe | Finish | Operate)

    def answer_among_others(self, question: Delivers) -> Delivering | HeadwaterError:
        """The same in a transaction that others have a part in: one that is refused takes none of them along."""
        self._store.savepoint()
        try:
            answer = self.answer(question)
        except StorageError:
            raise
        except HeadwaterError as error:
            self._store.rollback_to_savepoint()
            return error
        self._store.release()
        return answer

    def answer(self, question: Delivers) -> Delivering:
        match question:
            case Subscribe(id=id):
                is_new = self.subscriptions.subscribe(question)
                return Subscribed(id, self._log.next_seq - 1, is_new)
            case Claim(id=id):
                known = [name for name in question.reactions if name in self.subscriptions.all()]
                self._admin.served.update(dict.fromkeys(known, self._clock.now_us()))
                grants, next_us = self.targets.claim(question)
                return Claimed(id, tuple(grants), next_us)
            case RenewLeases(id=id):
                return LeasesRenewed(id, self.targets.renew(question))
            case Finish(id=id, outcomes=outcomes):
                late = self.results.finish(question)
                rows = self.subscriptions.all()
                named = dict.fromkeys([outcome.hold.reaction for outcome in outcomes])
                return Finished(id, late, self.targets.next_us([rows[name] for name in named if name in rows]))
            case Operate():
                return self._admin.operate(question)
            case QueryReactions():
                return self._admin.reactions(question)
            case QueryTargets():
                return self._admin.targets(question)
            case QueryFailures():
                return self._admin.failures(question)
            case QueryDrained(id=id, through=through):
                is_there = through is None or through < self._log.next_seq
                return Drained(id, is_there and self._admin.is_drained(through), self._log.next_seq - 1)
            case _:
                assert_never(question)


class DeliveryAdmin:
    """An operator's side of the reactions of one space."""

    __slots__ = ("_clock", "_limits", "_results", "_store", "_subscriptions", "_targets", "served")

    def __init__(
        self,
        store: Store,
        subscriptions: Subscriptions,
        targets: Targets,
        results: DeliveryResults,
        clock: NonDecreasingClock,
        limits: Limits,
    ) -> None:
        self._store = store
        self._subscriptions = subscriptions
        self._targets = targets
        self._results = results
        self._clock = clock
        self._limits = limits
        self.served: dict[str, int] = {}  # time of the last claim of each reaction, since the space is open

    # ---- changing --------------------------------------------------------------------------------

    def operate(self, wish: Operate) -> Operated:
        row = self._subscriptions.get(wish.reaction)
        _check_filters(wish)
        match wish.does:
            case "pause" | "resume" | "retire":
                return self._listens(wish, row)
            case "replay":
                return self._replay(wish, row)
            case "unblock":
                return self._operate_targets(wish, row)
            case "skip" | "reset":
                if wish.does == "skip" and wish.key is None:
                    raise ProtocolError(f"skip one record of {row.name!r}: say the key of its target (key=, --key)")
                return self._operate_targets(wish, row)

    def _listens(self, wish: Operate, row: SubscriptionRow) -> Operated:
        state = {
            "pause": SubscriptionState.PAUSED,
            "resume": SubscriptionState.LIVE,
            "retire": SubscriptionState.RETIRED,
        }[wish.does]
        if row.state == SubscriptionState.RETIRED and wish.does != "retire":
            raise ProtocolError(f"reaction {row.name!r} was retired: a worker that declares it takes it up again")
        self._subscriptions.put(row._replace(state=state))
        return Operated(wish.id, int(row.state != state))

    def _operate_targets(self, wish: Operate, row: SubscriptionRow) -> Operated:
        """One target, or some of all, in the order of their keys."""
        tables = self._store.delivery
        if wish.key is not None:
            found = tables.target(row.reaction, wish.key)
            rows = [] if found is None else [found]
        elif wish.does == "unblock":
            rows = tables.blocked_after(row.reaction, wish.after, self._limits.page)
        else:
            rows = tables.targets_after(row.reaction, wish.after, self._limits.page)
        meant = [each for each in rows if self._is_meant(wish, row, each)]
        changed = [(before, self._changed(wish, row, before)) for before in meant]
        tables.put_targets([after for before, after in changed if before != after])
        count = sum(before != after for before, after in changed)
        more = wish.key is None and len(rows) == self._limits.page
        return Operated(wish.id, count, rows[-1].key if more else None, matched=len(meant))

    def _is_meant(self, wish: Operate, row: SubscriptionRow, target: TargetRow) -> bool:
        if wish.fingerprint is not None and target.fingerprint != wish.fingerprint:
            return False
        # fault operating.record_ignored: return True
        return wish.record is None or self._next_record(row, target) == wish.record

    def _changed(self, wish: Operate, row: SubscriptionRow, target: TargetRow) -> TargetRow:
        match wish.does:
            case "unblock":
                if target.state != TargetPhase.BLOCKED:
                    return target
                return self._results.release(row, target._replace(attempt=0, failures=0, lost=0))
            case "reset":
                # It begins where a new target does. Parked records are ahead of it again, as any other record.
                self._store.delivery.drop_failures(target.reaction, target.key)
                seq, ordinal = row.start
                return self._results.release(
                    row,
                    target._replace(seq=seq, ordinal=ordinal, attempt=0, failures=0, lost=0, replays=0, fingerprint=""),
                )
            case _:
                return self._skipped(row, target)

    def _skipped(self, row: SubscriptionRow, target: TargetRow) -> TargetRow:
        """Go on without the record at the position. A worker that holds the target is too late."""
        place = self._next_record(row, target)
        return target if place is None else self._results.park(row, target, place, ParkedState.SKIPPED)

    def _next_record(self, row: SubscriptionRow, target: TargetRow) -> tuple[int, int] | None:
        """The record that a target is at: one that is to be replayed, or the first one behind its position."""
        tables = self._store.delivery
        again = tables.parked_of(target.reaction, target.key, ParkedState.REPLAY, 1) if target.replays else []
        if again:
            return again[0].seq, again[0].ordinal
        records = tables.records_of(row.topic, MAIN_ID, target.key, target.position, 1)
        return (records[0].seq, records[0].ordinal) if records else None

    def _replay(self, wish: Operate, row: SubscriptionRow) -> Operated:
        """Have parked records tried again: one, those of a key, those with the same error, or all."""
        tables = self._store.delivery
        begin = _first(wish.key, wish.after) if wish.place is None else (wish.after or "", *wish.place)
        rows = tables.parked_after(row.reaction, begin, self._limits.page)
        last = rows[-1] if len(rows) == self._limits.page and wish.key in (None, rows[-1].key) else None
        meant = [each for each in rows if _is_meant(wish, each)]
        wanted = [each for each in meant if each.state != ParkedState.REPLAY]
        for each in wanted:
            self._replay_parked(row, each)
        if last is None:
            return Operated(wish.id, len(wanted), matched=len(meant))
        return Operated(wish.id, len(wanted), last.key, (last.seq, last.ordinal), len(meant))

    def _replay_parked(self, row: SubscriptionRow, passed: ParkedRow) -> None:
        tables = self._store.delivery
        target = tables.target(passed.reaction, passed.key)
        if target is None:
            return
        tables.put_parked(passed._replace(state=ParkedState.REPLAY))
        target = target._replace(replays=target.replays + 1)
        if target.state == TargetPhase.IDLE:
            target = self._results.release(row, target._replace(since_us=self._clock.now_us()))
        tables.put_targets([target])

    # ---- looking ---------------------------------------------------------------------------------

    def reactions(self, question: QueryReactions) -> ReactionList:
        if len(question.topics) > self._limits.subscriptions:
            raise LimitError(f"one question is about at most {self._limits.subscriptions} topics. Ask several.")
        rows = self._subscriptions.all().values()
        emitted = [topic for topic in question.topics if self._store.records_after(topic, (0, 0), 1)]
        return ReactionList(question.id, tuple([self._state(row) for row in rows]), tuple(emitted))

    def _state(self, row: SubscriptionRow) -> ReactionState:
        tables, most = self._store.delivery, self._limits.page
        oldest = tables.oldest(row.reaction, most)
        next_us = self._targets.next_us([row])
        tally = self._targets.tally(row.reaction)
        unserved = None
        if next_us == 0 and row.state == SubscriptionState.LIVE and oldest is not None:
            unserved = min(self._clock.age_us(self.served.get(row.name, 0)), self._clock.age_us(oldest))
        return ReactionState(
            row.name,
            row.topic,
            "live"
            if row.state == SubscriptionState.LIVE
            else "paused"
            if row.state == SubscriptionState.PAUSED
            else "retired",
            row.lane,
            row.priority,
            tables.count_due(row.reaction, most),
            tables.count_blocked(row.reaction, most),
            tables.count_parked(row.reaction, most),
            row.is_filling,
            None if oldest is None else self._clock.age_us(oldest),
            next_us,
            unserved,
            tally.delivered,
            tally.failed,
            tally.lost,
        )

    def is_drained(self, through: int | None) -> bool:
        """True if no record up to a seq, or at all, is left to deliver. False also if there are too many to count."""
        tables, most = self._store.delivery, self._limits.drained_pages * self._limits.page
        for row in self._subscriptions.all().values():
            if row.state != SubscriptionState.LIVE:
                continue  # Nothing of it is delivered, however long one waits.
            due = tables.count_due(row.reaction, most)
            if row.is_filling or due == most or (due and through is None):
                return False
            if due and tables.is_behind(row.reaction, row.topic, MAIN_ID, through or 0):
                return False
        return True

    def targets(self, question: QueryTargets) -> TargetPage:
        row = self._subscriptions.get(question.reaction)
        tables = self._store.delivery
        limit = max(1, min(question.limit, self._limits.page))
        if question.state == "blocked":
            rows = tables.blocked_after(row.reaction, question.after, limit)
        elif question.state in ("due", "leased"):
            rows = tables.due_after(row.reaction, question.after, limit)
        else:
            rows = tables.targets_after(row.reaction, question.after, limit)
        shown = [_shown(target, self._clock) for target in rows]
        meant = [each for each in shown if question.state in (None, each.state)]
        return TargetPage(question.id, tuple(meant), rows[-1].key if len(rows) == limit else None)

    def failures(self, question: QueryFailures) -> Failures:
        row = self._subscriptions.get(question.reaction)
        tables, now_us = self._store.delivery, self._clock.now_us()
        limit = max(1, min(question.limit, self._limits.page))
        begin = _first(question.key, question.after)
        if question.place is not None:
            begin = (question.after or question.key or "", *question.place)
        most = max(limit, self._limits.attempts_kept) + 1  # All of one record at least, and whether there is more.
        tried = tables.attempts_after(row.reaction, (*begin, MAX_INT), most)
        passed = tables.parked_after(row.reaction, begin, most)
        # A page ends before the first record that one of them has no room for.
        end = min([each for each in (_end(tried, limit), _end(passed, limit)) if each is not None], default=None)
        attempts = [each for each in tried if _is_shown(each, question.key, end)]
        parked = [each for each in passed if _is_shown(each, question.key, end)]
        last = None
        if end is not None and question.key in (None, end[0]):
            last = max([*map(_place, attempts[-1:]), *map(_place, parked[-1:])])
        return Failures(
            question.id,
            tuple(
                Attempted(
                    each.key,
                    each.seq,
                    each.ordinal,
                    each.attempt,
                    "failed" if each.how == FAILED else "lost",
                    each.error,
                    each.message,
                    each.fingerprint,
                    max(0, now_us - each.ended_us),
                    max(0, each.ended_us - each.began_us),
                )
                for each in attempts
            ),
            tuple(
                ParkedRecord(
                    each.key, each.seq, each.ordinal, _HOW[each.state], each.fingerprint, max(0, now_us - each.at_us)
                )
                for each in parked
            ),
            None if last is None else last[0],
            None if last is None else last[1:],
        )


_HOW: Final[dict[int, Literal["parked", "skipped", "replay"]]] = {
    ParkedState.PARKED: "parked",
    ParkedState.SKIPPED: "skipped",
    ParkedState.REPLAY: "replay",
}
_STATES: Final[dict[int, State]] = {
    TargetPhase.IDLE: "idle",
    TargetPhase.DUE: "due",
    TargetPhase.LEASED: "leased",
    TargetPhase.BLOCKED: "blocked",
}


_FILTERS: Final[dict[str, frozenset[str]]] = {
    "pause": frozenset(),
    "resume": frozenset(),
    "retire": frozenset(),
    "unblock": frozenset({"key", "fingerprint"}),
    "skip": frozenset({"key", "record", "fingerprint"}),
    "replay": frozenset({"key", "record", "fingerprint"}),
    "reset": frozenset({"key", "fingerprint"}),
}
"""By which filters each wish selects targets or records."""


def _check_filters(wish: Operate) -> None:
    """Refuse a wish with a filter that its action would ignore: it would act on more than its sender meant."""
    # fault operating.empty_fingerprint_taken: if False:
    if wish.fingerprint == "":
        raise ProtocolError(
            f"{wish.does} of {wish.reaction!r} selects by an empty fingerprint, as from a variable that is not set: "
            "name the fingerprint of an error, or leave it out. Nothing was changed"
        )
    honoured = _FILTERS[wish.does]
    named = {"key": wish.key, "record": wish.record, "fingerprint": wish.fingerprint}
    wrong = [name for name, value in named.items() if value is not None and name not in honoured]
    # fault operating.filters_ignored: if False:
    if wrong:
        scope = f"selects by {' and '.join(sorted(honoured))}" if honoured else "is for the whole reaction"
        raise ProtocolError(
            f"{wish.does} of {wish.reaction!r} {scope} and ignores a {' or a '.join(wrong)}: leave it out. "
            "Nothing was changed"
        )


def _first(key: str | None, after: str | None) -> tuple[str, int, int]:
    """After which record of which key a page begins: with a key, or after one."""
    if key is not None:
        return key, -1, -1
    return ("", -1, -1) if after is None else (after, MAX_INT, MAX_INT)


def _is_shown(each: AttemptRow | ParkedRow, key: str | None, end: tuple[str, int, int] | None) -> bool:
    return (key is None or each.key == key) and (end is None or _place(each) < end)


def _end(rows: Sequence[AttemptRow] | Sequence[ParkedRow], limit: int) -> tuple[str, int, int] | None:
    """The first record that is not among so many rows, all of one record counting as one. None: there is none."""
    return next((_place(each) for each in rows[limit:] if _place(each) > _place(rows[0])), None)


def _place(each: AttemptRow | ParkedRow) -> tuple[str, int, int]:
    return each.key, each.seq, each.ordinal


def _is_meant(wish: Operate, passed: ParkedRow) -> bool:
    if wish.key is not None and passed.key != wish.key:
        return False
    if wish.record is not None and (passed.seq, passed.ordinal) != wish.record:
        return False
    return wish.fingerprint is None or passed.fingerprint == wish.fingerprint


def _shown(target: TargetRow, clock: NonDecreasingClock) -> TargetState:
    is_waiting = target.state in (TargetPhase.DUE, TargetPhase.LEASED)
    return TargetState(
        target.key,
        _STATES[target.state],
        (target.seq, min(target.ordinal, MAX_INT)),
        target.attempt,
        target.failures,
        target.lost,
        target.holder,
        max(0, target.due_us - clock.now_us()) if is_waiting else 0,
        clock.age_us(target.since_us) if target.state != TargetPhase.IDLE else 0,
        target.fingerprint,
    )
