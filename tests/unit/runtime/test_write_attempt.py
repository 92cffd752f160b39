"""What a verdict means for whoever wrote, and how a retried write goes from one attempt to the next."""

from __future__ import annotations

import pytest

from headwater.backoff import Backoff
from headwater.clock import VirtualClock
from headwater.data.address import Depth
from headwater.protocol.commit import Commit
from headwater.protocol.verdict import Collision, Conflict, PreconditionFailed, Rejection, RuleRefused
from headwater.replica.pending import Layer
from headwater.runtime.channel.driver import ReconnectBackoff
from headwater.runtime.writing.attempt import AttemptOutcome, RetriedWrite, classify
from headwater.runtime.writing.states import Happened, WriteState
from tests.unit.runtime.kit import doc

COLLISION = Collision(doc(), ("n",), Depth.DEEP, 3, 5, "somebody", "a node")


@pytest.mark.parametrize(
    ("rejection", "outcome"),
    [
        (None, AttemptOutcome.SUCCESS),
        (Conflict((COLLISION,)), AttemptOutcome.STALE),
        (Conflict(dead_layers=(6,)), AttemptOutcome.STALE),
        (Conflict(basis_expired=True), AttemptOutcome.STALE),
        (Conflict(dead_layers=(7,)), AttemptOutcome.UNSENT),
        (PreconditionFailed("entity_absent", "it is there"), AttemptOutcome.PERMANENT),
        (PreconditionFailed("origin_committed", "it was not"), AttemptOutcome.PERMANENT),
        (RuleRefused("access", "not you"), AttemptOutcome.TERMINAL),
        (RuleRefused("commit_size", "too large"), AttemptOutcome.TERMINAL),
        (RuleRefused("session_gone", "nobody knows"), AttemptOutcome.OTHER),
    ],
)
def test_one_function_says_what_a_verdict_means(rejection: Rejection | None, outcome: AttemptOutcome) -> None:
    assert classify(rejection, 7) is outcome


def sent() -> RetriedWrite:
    write = RetriedWrite()
    write.take(Happened.TURN)
    write.take(Happened.COMMITTED)
    return write


def test_a_retried_write_counts_conflicts_and_remembers_the_last() -> None:
    write, layer = sent(), Layer(7, Commit(7), {}, None, None)
    write.heard(layer, Conflict(dead_layers=(7,)))
    assert (write.conflicts, write.collision()) == (0, None)  # It never left: nobody was in the way.
    again = sent()
    again.heard(layer, Conflict((COLLISION,)))
    assert (again.conflicts, again.collision(), again.state) == (1, COLLISION, WriteState.BACKING_OFF)


def test_the_time_of_a_window_stands_still_without_a_connection() -> None:
    clock = VirtualClock()
    attempts = ReconnectBackoff(Backoff.none(), clock, "a driver")
    seen = []
    for us, act in ((10, attempts.began), (7, attempts.ended), (100, attempts.began), (3, attempts.ended), (50, None)):
        clock.advance(us)
        if act is not None:
            act()
        seen.append(attempts.connected_us())
    assert seen == [0, 7, 7, 10, 10]
