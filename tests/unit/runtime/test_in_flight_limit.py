"""How many events a writer has on their way while others are faster."""

from __future__ import annotations

from headwater.runtime.writing.attempt import AttemptOutcome, RetriedWrite
from headwater.runtime.writing.retry import InFlightLimit


def event() -> RetriedWrite:
    return RetriedWrite(is_limited=True)


def sent(limit: InFlightLimit, write: RetriedWrite) -> RetriedWrite:
    write.attempts += 1
    limit.sent(write)
    return write


def test_without_a_conflict_as_many_go_as_there_is_room_for() -> None:
    limit = InFlightLimit(3)
    flying: list[RetriedWrite] = []
    while limit.admits(event()) and len(flying) < 10:
        flying.append(sent(limit, event()))
    assert len(flying) == 3


def test_conflicts_make_it_one_and_each_that_lands_one_more() -> None:
    limit = InFlightLimit(100)
    flying = [sent(limit, event()) for _ in range(8)]
    for each in flying:
        limit.heard(each, AttemptOutcome.STALE)
    first = sent(limit, event())
    assert not limit.admits(event())
    limit.heard(first, AttemptOutcome.SUCCESS)
    pair = [sent(limit, event()) for _ in range(2)]
    assert not limit.admits(event())
    for each in pair:
        limit.heard(each, AttemptOutcome.SUCCESS)
    assert [limit.admits(event()) and bool(sent(limit, event())) for _ in range(6)] == [True] * 4 + [False] * 2


def test_retried_event_lets_the_events_behind_it_go_and_no_later_ones() -> None:
    limit = InFlightLimit(100)
    lost = [sent(limit, event()) for _ in range(4)]
    for each in lost:
        limit.heard(each, AttemptOutcome.STALE)
    again = [sent(limit, each) for each in lost]
    along = sent(limit, event())
    assert limit.admits(event())
    limit.heard(again[0], AttemptOutcome.SUCCESS)
    assert not limit.admits(event())  # The turn is about to be that of another event.
    for each in (*again[1:], along):
        limit.heard(each, AttemptOutcome.SUCCESS)
    sent(limit, event())
    assert not limit.admits(event())  # Events that landed in a turn do not raise the limit for events without one.


def test_writes_that_are_no_events_and_retries_are_never_held_back() -> None:
    limit = InFlightLimit(100)
    for _ in range(3):
        limit.heard(sent(limit, event()), AttemptOutcome.STALE)
    again = event()
    again.attempts = 1
    sent(limit, event())
    assert not limit.admits(event())
    assert limit.admits(again)
    assert limit.admits(RetriedWrite())


def test_unsent_and_refused_events_do_not_change_the_limit() -> None:
    limit = InFlightLimit(4)
    flying = [sent(limit, event()) for _ in range(4)]
    for each, outcome in zip(
        flying,
        (AttemptOutcome.UNSENT, AttemptOutcome.PERMANENT, AttemptOutcome.TERMINAL, AttemptOutcome.OTHER),
        strict=True,
    ):
        limit.heard(each, outcome)
    assert [limit.admits(event()) and bool(sent(limit, event())) for _ in range(5)] == [True] * 4 + [False]
