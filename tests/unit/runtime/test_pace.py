"""How many events a writer has on their way while others are faster."""

from __future__ import annotations

from typing import cast

from headwater.runtime.writing.attempt import Outcome, RetriedWrite, WriteHooks
from headwater.runtime.writing.retry import Pace


def event() -> RetriedWrite:
    return RetriedWrite(hooks=cast(WriteHooks, object()))


def sent(pace: Pace, write: RetriedWrite) -> RetriedWrite:
    write.attempts += 1
    pace.sent(write)
    return write


def test_without_a_conflict_as_many_go_as_there_is_room_for() -> None:
    pace = Pace(3)
    flying: list[RetriedWrite] = []
    while pace.admits(event()) and len(flying) < 10:
        flying.append(sent(pace, event()))
    assert len(flying) == 3


def test_conflicts_make_it_one_and_each_that_lands_one_more() -> None:
    pace = Pace(100)
    flying = [sent(pace, event()) for _ in range(8)]
    for each in flying:
        pace.heard(each, Outcome.STALE)
    first = sent(pace, event())
    assert not pace.admits(event())
    pace.heard(first, Outcome.SUCCESS)
    pair = [sent(pace, event()) for _ in range(2)]
    assert not pace.admits(event())
    for each in pair:
        pace.heard(each, Outcome.SUCCESS)
    assert [pace.admits(event()) and bool(sent(pace, event())) for _ in range(6)] == [True] * 4 + [False] * 2


def test_what_has_its_turn_takes_along_what_waits_behind_it_and_nothing_later() -> None:
    pace = Pace(100)
    lost = [sent(pace, event()) for _ in range(4)]
    for each in lost:
        pace.heard(each, Outcome.STALE)
    again = [sent(pace, each) for each in lost]
    along = sent(pace, event())
    assert pace.admits(event())
    pace.heard(again[0], Outcome.SUCCESS)
    assert not pace.admits(event())  # The turn is about to be somebody else's.
    for each in (*again[1:], along):
        pace.heard(each, Outcome.SUCCESS)
    sent(pace, event())
    assert not pace.admits(event())  # That they landed says nothing of those who have no turn.


def test_writes_that_are_no_events_and_retries_are_never_held_back() -> None:
    pace = Pace(100)
    for _ in range(3):
        pace.heard(sent(pace, event()), Outcome.STALE)
    again = event()
    again.attempts = 1
    sent(pace, event())
    assert not pace.admits(event())
    assert pace.admits(again)
    assert pace.admits(RetriedWrite())


def test_what_never_left_and_what_is_refused_says_nothing_of_others() -> None:
    pace = Pace(4)
    flying = [sent(pace, event()) for _ in range(4)]
    for each, outcome in zip(flying, (Outcome.UNSENT, Outcome.PERMANENT, Outcome.TERMINAL, Outcome.OTHER), strict=True):
        pace.heard(each, outcome)
    assert [pace.admits(event()) and bool(sent(pace, event())) for _ in range(5)] == [True] * 4 + [False]
