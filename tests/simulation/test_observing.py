"""What nodes did, under random schedules and with bugs put in: nothing stale is kept, nothing dirty taken for clean."""

from __future__ import annotations

import pytest

from headwater.testing.differential.harness import run
from tests.counts import scaled


@pytest.mark.random
def test_the_engine_keeps_and_compares_what_nodes_did_as_folding_the_log_does() -> None:
    summary = run(scaled(500), 500_000)
    assert summary.ok, summary
    counts = summary.counts
    assert counts["nodes compared"] > 10 * summary.schedules
    assert counts["runs kept"] > counts["runs dropped"] > summary.schedules
    assert counts["runs dropped without need"] < 0.15 * counts["runs dropped"] + 5
    assert counts["nodes dirty without need"] < 0.05 * counts["nodes compared"] + 5
