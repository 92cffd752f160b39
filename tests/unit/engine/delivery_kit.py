"""Short ways to say what the tests of reactions say often: emitting, claiming, and what came of it.

A `World` is an engine on a virtual clock with one topic, `orders`, and whoever emits to it. Decides and checks nothing.
"""

from __future__ import annotations

from typing import TypeVar

from headwater.clock import VirtualClock
from headwater.engine import DEFAULT_LIMITS, Engine, Limits
from headwater.engine.store.port import Store
from headwater.engine.store.sqlite import SqliteStore
from headwater.protocol.commit import MAIN, Commit, Delivered, LeaseHeld, TopicRecord
from headwater.protocol.reactions import (
    Claim,
    Claimed,
    DeliveryFailure,
    Does,
    Failures,
    Finish,
    Finished,
    Grant,
    Hold,
    LeasesRenewed,
    Operate,
    Operated,
    Outcome,
    QueryFailures,
    QueryReactions,
    QueryTargets,
    ReactionList,
    ReactionState,
    RenewLeases,
    Since,
    Subscribe,
    Subscribed,
    TargetPage,
    TargetState,
    Then,
    lease_name,
)
from headwater.protocol.verdict import Accepted, Verdict

T = TypeVar("T")
LEASE_US = 1_000_000


def as_a(kind: type[T], answer: object) -> T:
    assert isinstance(answer, kind), answer
    return answer


class World:
    """One space, and all that workers and operators ask of it."""

    def __init__(
        self, store: Store | None = None, *, clock: VirtualClock | None = None, limits: Limits = DEFAULT_LIMITS
    ) -> None:
        self.clock = clock or VirtualClock()
        self.store = store or SqliteStore(":memory:")
        self.engine = Engine(self.store, clock=self.clock, limits=limits)
        self.engine.open_session("emitter")
        self.local_seq = self.engine.session("emitter").last

    # ---- emitting --------------------------------------------------------------------------------

    def commit(self, *records: TopicRecord, branch: str = MAIN, **parts: object) -> Verdict:
        self.local_seq += 1
        commit = Commit(self.local_seq, records=records, branch=branch, **parts)  # type: ignore[arg-type]
        return self.engine.submit("emitter", commit)[0]

    def emit(self, key: str, *payloads: object, topic: str = "orders", branch: str = MAIN) -> int:
        """Each in a commit of its own; answers the seq of the last."""
        seq = 0
        for payload in payloads:
            verdict = self.commit(TopicRecord(topic, key, payload, f"piece {key}"), branch=branch)
            seq = as_a(Accepted, verdict).seq
        return seq

    def deliver_with(self, grant: Grant, place: int = 0, *, keeps: bool = False) -> Verdict:
        """A commit that moves the position along with its own writes."""
        hold, record = grant.hold, grant.records[place]
        return self.commit(
            preconditions=(LeaseHeld(lease_name(hold.reaction, hold.key), hold.token),),
            delivered=(Delivered(hold.reaction, hold.key, record.seq, record.ordinal, keeps),),
        )

    # ---- workers ---------------------------------------------------------------------------------

    def subscribe(
        self, reaction: str = "r", *, since: Since = "now", topic: str = "orders", lane: str = "", priority: int = 0
    ) -> Subscribed:
        return as_a(Subscribed, self.engine.deliver(Subscribe(1, reaction, topic, since, lane, priority)))

    def claimed(
        self,
        *reactions: str,
        worker: str = "w",
        limit: int = 10,
        records: int = 10,
        lease_us: int = LEASE_US,
    ) -> Claimed:
        return as_a(Claimed, self.engine.deliver(Claim(2, worker, reactions or ("r",), limit, records, lease_us)))

    def claim(self, *reactions: str, worker: str = "w", limit: int = 10, records: int = 10) -> list[Grant]:
        return list(self.claimed(*reactions, worker=worker, limit=limit, records=records).grants)

    def claim_one(self, *reactions: str, worker: str = "w", records: int = 10) -> Grant:
        (grant,) = self.claim(*reactions, worker=worker, records=records)
        return grant

    def renew(self, *holds: Hold, lease_us: int = LEASE_US) -> tuple[Hold, ...]:
        return as_a(LeasesRenewed, self.engine.deliver(RenewLeases(3, holds, lease_us))).lost

    def finish(self, *outcomes: Outcome) -> Finished:
        return as_a(Finished, self.engine.deliver(Finish(4, outcomes)))

    def done(self, grant: Grant, count: int | None = None) -> Finished:
        """All of its records were delivered, or the first so many."""
        last = grant.records[: len(grant.records) if count is None else count][-1]
        return self.finish(Outcome(grant.hold, (last.seq, last.ordinal)))

    def fail(
        self, grant: Grant, then: Then = "retry", *, after: int = 0, wait_us: int = 0, fingerprint: str = "boom"
    ) -> Finished:
        """The record after the first so many failed."""
        through = (grant.records[after - 1].seq, grant.records[after - 1].ordinal) if after else None
        record = grant.records[after]
        failure = DeliveryFailure(record.seq, record.ordinal, "ValueError", "boom happened", fingerprint, then, wait_us)
        return self.finish(Outcome(grant.hold, through, failure))

    def give_back(self, grant: Grant) -> Finished:
        return self.finish(Outcome(grant.hold))

    # ---- operators -------------------------------------------------------------------------------

    def operate(self, does: Does, reaction: str = "r", **about: object) -> Operated:
        return as_a(Operated, self.engine.deliver(Operate(5, does, reaction, **about)))  # type: ignore[arg-type]

    def reaction(self, name: str = "r") -> ReactionState:
        found = as_a(ReactionList, self.engine.deliver(QueryReactions(6))).reactions
        return next(each for each in found if each.name == name)

    def targets(self, reaction: str = "r") -> dict[str, TargetState]:
        found = as_a(TargetPage, self.engine.deliver(QueryTargets(7, reaction, limit=1_000)))
        return {each.key: each for each in found.targets}

    def failures(self, reaction: str = "r", key: str | None = None) -> Failures:
        return as_a(Failures, self.engine.deliver(QueryFailures(8, reaction, key, limit=1_000)))


def payloads(grant: Grant) -> list[object]:
    return [record.payload for record in grant.records]


def lease_target(
    engine: Engine, key: str, *, topic: str = "topic", worker: str = "worker", lease_us: int = LEASE_US
) -> LeaseHeld:
    """Give a worker the target of a record that is there, and return the precondition that the worker holds it."""
    reaction = f"leases {topic}"
    engine.deliver(Subscribe(1, reaction, topic, "beginning"))
    grants = as_a(Claimed, engine.deliver(Claim(1, worker, (reaction,), 10, 1, lease_us))).grants
    (token,) = [grant.hold.token for grant in grants if grant.hold.key == key]
    return LeaseHeld(lease_name(reaction, key), token)


def lease_new_target(engine: Engine, key: str = "job", *, worker: str = "worker") -> LeaseHeld:
    """The same for a record that a session of its own emits now."""
    emitter = engine.open_session("emits jobs")
    engine.submit("emits jobs", Commit(emitter.last + 1, records=(TopicRecord("jobs", key, None),)))
    return lease_target(engine, key, topic="jobs", worker=worker)


def reacted(engine: Engine, topic: str = "topic") -> None:
    """Everything that reactions leave in a space with records: targets in every state, and failures."""
    thens: dict[str, Then] = {"parks": "park", "blocks": "block", "waits": "retry"}
    for name in (*thens, "leased"):
        engine.deliver(Subscribe(1, name, topic, "beginning", "slow", 3))
    grants = as_a(Claimed, engine.deliver(Claim(1, "worker", (*thens, "leased"), 10, 1, 1_000_000))).grants
    failed = [(grant, thens[grant.hold.reaction]) for grant in grants if grant.hold.reaction in thens]
    engine.deliver(
        Finish(
            1,
            tuple(
                Outcome(
                    grant.hold,
                    None,
                    DeliveryFailure(grant.records[0].seq, 0, "ValueError", "no", "print", then, 9_000_000),
                )
                for grant, then in failed
            ),
        )
    )
    engine.deliver(Operate(1, "pause", "parks"))
