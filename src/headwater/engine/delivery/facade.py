"""The interface of reactions for the rest of the engine. Composes subscriptions, targets, results and admin.

Owns nothing. The caller holds an open store transaction, and asks `is_urgent` whether the answer has to wait for it.
"""

from __future__ import annotations

from typing import assert_never

from headwater.clock import Clock
from headwater.engine.delivery.admin import DeliveryAdmin
from headwater.engine.delivery.results import DeliveryResults
from headwater.engine.delivery.subscriptions import Subscriptions
from headwater.engine.delivery.targets import NonDecreasingClock, Targets
from headwater.engine.limits import Limits
from headwater.engine.log.log import Log
from headwater.engine.store.port import Store
from headwater.errors import HeadwaterError, StorageError
from headwater.protocol.commit import Commit
from headwater.protocol.reactions import (
    Claim,
    Claimed,
    Delivering,
    Delivers,
    Drained,
    Finish,
    Finished,
    LeasesRenewed,
    Operate,
    QueryDrained,
    QueryFailures,
    QueryReactions,
    QueryTargets,
    RenewLeases,
    Subscribe,
    Subscribed,
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
                return Drained(id, is_there and self._admin.is_drained(through))
            case _:
                assert_never(question)
