"""The histories of events find what they are for: each mechanism, switched off, is missed within so many of them."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from tests.counts import sampled
from tests.simulation import events_program, events_switches
from tests.simulation.events_program import Mix
from tests.simulation.events_switches import Switch
from tests.simulation.events_world import found_after

WITHIN = 1_000


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
]


@pytest.mark.random
@pytest.mark.parametrize("bug", sampled(BUGS), ids=lambda bug: bug.name.replace(" ", "_"))
def test_a_mechanism_that_is_switched_off_is_missed(bug: Bug) -> None:
    with bug.switch():
        histories, found = found_after(bug.mix, WITHIN)
    assert found, f"{bug.name} was not missed in {WITHIN} histories"
    assert histories <= WITHIN
