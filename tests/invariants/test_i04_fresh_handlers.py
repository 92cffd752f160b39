"""I4: the attempt of a handler that lands has read nothing but what was fresh, whatever else happened.

Random histories: several runtimes send to pieces in two spaces, lose their connections, are cut off and die, the server
crashes and its disk fails, commits and events arrive twice. What has to hold is in `tests/simulation/events_checks.py`.
`./dev test` plays 20 of them, `./dev sim` 5,000.
"""

from __future__ import annotations

import pytest

from tests.counts import is_exploring, seldom
from tests.simulation.events_program import FRESHNESS
from tests.simulation.events_world import found_after

HISTORIES = seldom(5_000) if is_exploring() else max(20, seldom(5_000) // 2)


@pytest.mark.random
def test_what_a_landed_attempt_read_is_what_the_cells_made_of_it_right_before() -> None:
    assert found_after(FRESHNESS, HISTORIES) == (0, [])
