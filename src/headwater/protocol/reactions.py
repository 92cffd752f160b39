"""Messages about reactions: subscriptions to records, leases of targets, and results.

A target is one reaction and one stream key: its records are delivered one after the other. Times that cross the wire
are durations: only the engine's clock has absolute times. All of them are for sessions that may write the space.
Nothing is decided here.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from headwater.data.limits import ValueLimits
from headwater.data.value import freeze
from headwater.errors import AbsentError
from headwater.protocol.message import Message, Number

LEASE_PREFIX: Final = "$reaction:"
"""The prefix of the names of leases."""

Since = Literal["now", "beginning"]
Then = Literal["retry", "block", "park", "skip"]
State = Literal["idle", "due", "leased", "blocked"]
Does = Literal["pause", "resume", "retire", "unblock", "skip", "replay", "reset"]


def lease_name(reaction: str, key: str) -> str:
    """The lease that guards a target, as `LeaseHeld` names it. The name of a reaction has no colon."""
    return f"{LEASE_PREFIX}{reaction}:{key}"


def target_of(lease: str) -> tuple[str, str] | None:
    """The reaction and the key of the target that a lease guards. None: the name is that of no lease."""
    if not lease.startswith(LEASE_PREFIX):
        return None
    reaction, _, key = lease.removeprefix(LEASE_PREFIX).partition(":")
    return reaction, key


# ---- from a worker ---------------------------------------------------------------------------------


class Subscribe(Message, frozen=True, tag="subscribe"):
    """From now on every record of a topic is for this reaction, too; with `beginning`, all earlier ones as well.

    Repeating it changes the lane and the priority, and resumes a retired one where it was. A commit does the same for
    its own records (`Commit.declared`).
    """

    id: Number
    reaction: str
    topic: str
    since: Since = "now"
    lane: str = ""
    priority: Number = 0


class Claim(Message, frozen=True, tag="claim"):
    """Claim up to so many targets of these reactions, with up to so many records each, for so long.

    `lane`: unused room stays open under this name, until another claim with it. A target that becomes due meanwhile may
    be given with the commit that emits its record: `TargetsDue` tells. Only for a session that watches targets.
    """

    id: Number
    worker: str
    reactions: tuple[str, ...]
    limit: Number = 1
    records: Number = 1
    lease_us: Number = 30_000_000
    lane: str = ""


class Hold(Message, frozen=True):
    """A target that a session was given; `token` fences it."""

    reaction: str
    key: str
    token: Number


class RenewLeases(Message, frozen=True, tag="renew_leases"):
    """I still work on these: so long from now on."""

    id: Number
    holds: tuple[Hold, ...]
    lease_us: Number = 30_000_000


class DeliveryFailure(Message, frozen=True):
    """A record could not be delivered: the reason, and what happens next. `retry` comes `wait_us` from now on."""

    seq: Number
    ordinal: Number
    error: str
    message: str
    fingerprint: str
    then: Then
    wait_us: Number = 0


class Outcome(Message, frozen=True):
    """The result of a target: records up to `through` were delivered (None: none), then perhaps one failed.

    `keeps`: the lease goes on. Without a failure, and with nothing delivered, the target is given back unspent.
    """

    hold: Hold
    through: tuple[Number, Number] | None = None
    failure: DeliveryFailure | None = None
    keeps: bool = False


class Finish(Message, frozen=True, tag="finish"):
    """The results of targets, all in one transaction."""

    id: Number
    outcomes: tuple[Outcome, ...]


class Operate(Message, frozen=True, tag="operate"):
    """An operator's request: about a reaction, one of its targets, one record of a target, or all equal failures.

    `after` and `place` are the `next` and the `place` of the answer before, where many are changed.
    """

    id: Number
    does: Does
    reaction: str
    key: str | None = None
    record: tuple[Number, Number] | None = None
    fingerprint: str | None = None
    after: str | None = None
    place: tuple[Number, Number] | None = None


def check_matched(wish: Operate, matched: int) -> None:
    """Raise AbsentError if an operator named a key, a record or a fingerprint, and all pages matched nothing."""
    named = [f"key {wish.key!r}"] if wish.key is not None else []
    named += [f"record {wish.record[0]}.{wish.record[1]}"] if wish.record is not None else []
    named += [f"fingerprint {wish.fingerprint!r}"] if wish.fingerprint is not None else []
    # fault operating.nothing_matched_is_fine: if False:
    if named and not matched:
        raise AbsentError(f"{wish.does} {wish.reaction}: {_WHERE[wish.does]} with {' and '.join(named)}. {_LOOK}")


_WHERE: Final = {
    "unblock": "no target",
    "skip": "no target is at a record",
    "replay": "no record was parked or skipped",
    "reset": "no target",
}
_LOOK: Final = "Nothing was changed; `targets` and `failures` show what there is"


class QueryReactions(Message, frozen=True, tag="query_reactions"):
    """All subscriptions, and how far they are; and to which of some topics anything was emitted."""

    id: Number
    topics: tuple[str, ...] = ()


class QueryTargets(Message, frozen=True, tag="query_targets"):
    """The targets of a reaction by key, all of them or those in one state; `after` is the `next` of the page before."""

    id: Number
    reaction: str
    state: State | None = None
    after: str | None = None
    limit: Number = 100


class QueryFailures(Message, frozen=True, tag="query_failures"):
    """Ask for the failures of a reaction: attempts that are kept, records that were parked or skipped. Of one key, or
    all.

    `after` and `place` are the `next` and the `place` of the page before.
    """

    id: Number
    reaction: str
    key: str | None = None
    after: str | None = None
    limit: Number = 100
    place: tuple[Number, Number] | None = None


class QueryDrained(Message, frozen=True, tag="query_drained"):
    """Whether nothing emitted up to a seq (None: at all) is still to be delivered; blocked and parked ones are not."""

    id: Number
    through: Number | None = None


class WatchTargets(Message, frozen=True, tag="watch_targets"):
    """Tell me when there may be something to claim. The last one that was said counts; `on` False: no more of it."""

    id: Number
    on: bool = True


# ---- from the engine -------------------------------------------------------------------------------


class Subscribed(Message, frozen=True, tag="subscribed"):
    """The reaction hears of every record after `seq`. `is_new`: it did not before."""

    id: Number
    seq: Number
    is_new: bool


class Granted(Message, frozen=True):
    """One record for a target: its place in the log, its content, the piece that emitted it, and when."""

    seq: Number
    ordinal: Number
    payload: Any
    source: str
    emitted_us: Number


class Grant(Message, frozen=True):
    """A target that is the worker's for the lease. `attempt` is the first record's; the others' is 0."""

    hold: Hold
    attempt: Number
    lost: Number  # of those attempts, how many ended with their lease and not by themselves
    records: tuple[Granted, ...]
    replayed: bool = False  # parked or skipped before: it is not the next one of its key
    age_us: Number = 0  # how long ago the first record was emitted


class Claimed(Message, frozen=True, tag="claimed"):
    """The claimed targets, and how long until there may be more (0: now; None: when it is told)."""

    id: Number
    grants: tuple[Grant, ...]
    next_us: Number | None = None


class LeasesRenewed(Message, frozen=True, tag="leases_renewed"):
    """All leases but these are still the worker's: these have another owner, or none."""

    id: Number
    lost: tuple[Hold, ...]


class Finished(Message, frozen=True, tag="finished"):
    """All but these were the worker's: those changed nothing. `next_us` is as in `Claimed`, of the reactions named."""

    id: Number
    late: tuple[Hold, ...]
    next_us: Number | None = None


class Operated(Message, frozen=True, tag="operated"):
    """So many targets or records were changed; `next` goes on with the rest of many, in a key behind a `place`.

    `matched` counts the targets or records that the wish was about, changed or not.
    """

    id: Number
    count: Number
    next: str | None = None
    place: tuple[Number, Number] | None = None
    matched: Number = 0


class ReactionState(Message, frozen=True):
    """One subscription. Counts beyond a bound are that bound; ages and waits are durations."""

    name: str
    topic: str
    state: Literal["live", "paused", "retired"]
    lane: str
    priority: Number
    due: Number  # targets with something to deliver, now or later, and those being delivered
    blocked: Number
    parked: Number
    is_filling: bool  # records from before it was there are still being looked through
    oldest_us: Number | None = None  # how long the oldest due target has been waiting
    next_us: Number | None = None  # how long until something is claimable
    unserved_us: Number | None = None  # how long no worker has claimed any of it, while a target was due
    delivered: Number = 0  # how often a target moved on, since the space was opened; and how often attempts
    failed: Number = 0  # failed,
    lost: Number = 0  # or ended with their lease


class ReactionList(Message, frozen=True, tag="reactions"):
    """All subscriptions; and of the topics that were asked about, those that have records."""

    id: Number
    reactions: tuple[ReactionState, ...]
    emitted: tuple[str, ...] = ()


class TargetState(Message, frozen=True):
    """One target: its position, and the reason for which it waits."""

    key: str
    state: State
    position: tuple[Number, Number]
    attempt: Number
    failures: Number
    lost: Number
    holder: str
    wait_us: Number  # until it may be claimed; of one that is leased, until that is over
    age_us: Number  # how long it has had something to deliver
    fingerprint: str


class TargetPage(Message, frozen=True, tag="targets"):
    """A page of targets."""

    id: Number
    targets: tuple[TargetState, ...]
    next: str | None = None


class Attempted(Message, frozen=True):
    """An attempt that failed, or whose lease ended; `ago_us` is how long that is."""

    key: str
    seq: Number
    ordinal: Number
    attempt: Number
    how: Literal["failed", "lost"]
    error: str
    message: str
    fingerprint: str
    ago_us: Number
    took_us: Number


class ParkedRecord(Message, frozen=True):
    """A record that was passed over."""

    key: str
    seq: Number
    ordinal: Number
    how: Literal["parked", "skipped", "replay"]
    fingerprint: str
    ago_us: Number


class Failures(Message, frozen=True, tag="failures"):
    """The failed and the skipped records, by key and record; more is after record `place` of key `next`."""

    id: Number
    attempts: tuple[Attempted, ...]
    parked: tuple[ParkedRecord, ...]
    next: str | None = None
    place: tuple[Number, Number] | None = None


class Drained(Message, frozen=True, tag="drained"):
    """Whether it is so, and the last commit of the space: those that acknowledge the records are not after it."""

    id: Number
    is_drained: bool
    seq: Number = 0


class TargetsDue(Message, frozen=True, tag="targets_due"):
    """There may be targets to claim. The answer to `WatchTargets`, and from then on whenever that is so.

    Another number of `subscriptions` than before, on one connection, says that there are new ones. `grants` were given
    by commits to a worker that left room open, so long ago; without `is_more` they are all that there is.
    """

    id: Number
    subscriptions: Number = 0
    grants: tuple[Grant, ...] = ()
    ago_us: Number = 0
    is_more: bool = True


def frozen_claimed(message: Claimed, limits: ValueLimits) -> Claimed:
    """The same with every payload checked and frozen. InvalidValueError: no document can hold one of them."""
    return Claimed(message.id, _frozen_grants(message.grants, limits), message.next_us)


def frozen_due(message: TargetsDue, limits: ValueLimits) -> TargetsDue:
    """The same, as above."""
    grants = _frozen_grants(message.grants, limits)
    return TargetsDue(message.id, message.subscriptions, grants, message.ago_us, message.is_more)


def _frozen_grants(grants: tuple[Grant, ...], limits: ValueLimits) -> tuple[Grant, ...]:
    return tuple(
        Grant(
            each.hold,
            each.attempt,
            each.lost,
            tuple(Granted(r.seq, r.ordinal, freeze(r.payload, limits), r.source, r.emitted_us) for r in each.records),
            each.replayed,
            each.age_us,
        )
        for each in grants
    )


Looking = QueryReactions | QueryTargets | QueryFailures | QueryDrained
Delivers = Subscribe | Claim | RenewLeases | Finish | Operate | Looking
Delivering = Subscribed | Claimed | LeasesRenewed | Finished | Operated | ReactionList | TargetPage | Failures | Drained
