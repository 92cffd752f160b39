"""I11: an event is handled at most once in all, and what was acknowledged was handled.

Random histories: several runtimes send to pieces in two spaces, lose their connections, are cut off and die, the server
crashes and its disk fails, commits and events arrive twice. What has to hold is in `tests/simulation/events_checks.py`.
`./dev test` plays 8 of them, `./dev sim` 5,000.
"""

from __future__ import annotations

import pytest

from tests.counts import is_exploring, seldom
from tests.simulation.events_program import RECEIPTS
from tests.simulation.events_world import found_after

HISTORIES = seldom(5_000) if is_exploring() else max(8, seldom(5_000) // 2)


@pytest.mark.random
def test_what_is_sent_twice_is_handled_once_and_everybody_gets_its_result() -> None:
    assert found_after(RECEIPTS, HISTORIES) == (0, [])
