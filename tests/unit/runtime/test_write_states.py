"""The table of the states of a write: every sequence of inputs ends once, and the documentation shows the table."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import pytest

from headwater.runtime.writing.attempt import RetriedWrite
from headwater.runtime.writing.states import TABLE, Happened, ImpossibleTransitionError, WriteState
from tests.counts import scaled

ROOT = Path(__file__).parents[3]
RECORD = ROOT / "docs" / "decisions" / "0039-one-event-machine.md"


def allowed(state: WriteState) -> list[Happened]:
    return [happened for happened in Happened if (state, happened) in TABLE]


@pytest.mark.random
def test_random_inputs_reach_exactly_one_end_and_take_no_other_transition() -> None:
    taken = set()
    for seed in range(scaled(5_000, least=500)):
        random, write, ends = Random(seed), RetriedWrite(), 0
        for _ in range(200):
            before, happened = write.state, random.choice(list(Happened))
            if happened not in allowed(before):
                with pytest.raises(ImpossibleTransitionError):
                    write.take(happened)
                assert write.state is before
                continue
            write.take(happened)
            assert write.state is TABLE[before, happened].state
            taken.add((before, happened))
            ends += write.state is WriteState.ENDED
        if write.state is not WriteState.ENDED:
            write.take(Happened.OVER)
            ends += 1
        assert ends == 1
    assert taken == set(TABLE)


def test_every_state_but_the_last_is_left_and_every_state_is_reached() -> None:
    assert {state for state, _ in TABLE} == set(WriteState) - {WriteState.ENDED}
    assert {transition.state for transition in TABLE.values()} == set(WriteState)
    assert all(
        WriteState.ENDED in {TABLE[state, each].state for each in allowed(state)}
        for state in WriteState
        if allowed(state)
    )


def test_documentation_shows_the_table() -> None:
    rows = re.findall(r"^\| ([a-z ]+) \| ([a-z ]+) \| ([a-z ]+) \| (.+) \|$", RECORD.read_text(), re.MULTILINE)
    shown = {(state, happened): (after, effect) for state, happened, after, effect in rows if state != "state"}
    coded = {(s.value, h.value): (t.state.value, t.effect) for (s, h), t in TABLE.items()}
    assert shown == coded


def test_events_have_no_tasks_of_their_own() -> None:
    for path in (ROOT / "src/headwater/runtime/events").glob("*.py"):
        assert not re.search(r"create_task|ensure_future", path.read_text()), path.name
