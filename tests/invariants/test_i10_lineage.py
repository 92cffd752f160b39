"""I10: what a handler posted and launched is there if and only if that handler's commit is.

Random histories: several runtimes send to pieces in two spaces, lose their connections, are cut off and die, the server
crashes and its disk fails, commits and events arrive twice. What has to hold is in `tests/simulation/events_checks.py`.
`./dev test` plays 14 of them, `./dev sim` 5,000.
"""

from __future__ import annotations

import pytest

from tests.counts import is_exploring, seldom
from tests.simulation.events_program import LINEAGE
from tests.simulation.events_world import found_after

HISTORIES = seldom(5_000) if is_exploring() else max(14, seldom(5_000) // 2)


@pytest.mark.random
def test_a_follow_up_lands_once_if_and_only_if_what_posted_it_did() -> None:
    assert found_after(LINEAGE, HISTORIES) == (0, [])
