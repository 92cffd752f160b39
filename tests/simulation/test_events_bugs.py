"""The histories of events find what they are for: each mechanism, switched off, is missed within so many of them.

`./dev test` switches off those that are missed soon, `./dev sim` all.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from tests.counts import is_exploring
from tests.simulation import events_program, events_switches
from tests.simulation.events_program import Mix
from tests.simulation.events_switches import Switch
from tests.simulation.events_world import found_after

WITHIN = 1_000
SELDOM_MISSED = (
    "sources are forgotten",
    "no condition",
    "nothing is cancelled",
    "nothing waits for its origin",
    "follow-ups keep their ids",
    "what is handled stays stored",
    "ids of callers are not hashed",
    "nothing is kept",
    "rejected ones go to the front",
)
"""Mechanisms that dozens or hundreds of histories do without before one of them shows it."""


class Bug(NamedTuple):
    """A mechanism that is missing, and the histories that miss it."""

    name: str
    switch: Switch
    mix: Mix


BUGS = [
    Bug(name, switch, mix)
    for switches, mix in (
        (events_switches.FRESHNESS, events_program.FRESHNESS),
        (events_switches.LINEAGE, events_program.LINEAGE),
        (events_switches.RECEIPTS, events_program.RECEIPTS),
        (events_switches.LANES, events_program.FRESHNESS),
    )
    for name, switch in switches.items()
    if is_exploring() or name not in SELDOM_MISSED
]


@pytest.mark.random
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name.replace(" ", "_"))
def test_a_mechanism_that_is_switched_off_is_missed(bug: Bug) -> None:
    with bug.switch():
        histories, found = found_after(bug.mix, WITHIN)
    assert found, f"{bug.name} was not missed in {WITHIN} histories"
    assert histories <= WITHIN
