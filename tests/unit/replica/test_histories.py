"""Random histories of replicas on one hub: however it goes, everybody ends where the log ends."""

from __future__ import annotations

import pytest

from tests.counts import seldom
from tests.unit.replica.histories import History, play

KEPT_SEEDS = (225, 248, 261, 459, 475, 485, 519, 536, 626, 977, 1321)
"""Seeds that once found something: loads lost with a connection, reads that a wave left out, unknown changes."""


@pytest.mark.parametrize("seed", KEPT_SEEDS)
def test_a_history_that_once_went_wrong_goes_well(seed: int) -> None:
    assert play(seed, clients=2 + seed % 2) == []


@pytest.mark.random
def test_any_history_ends_with_everybody_agreeing_with_the_log() -> None:
    """C1, C6, C9: true views, one fate per commit, an exact feed; nothing pending and nothing loading is left."""
    for seed in range(10_000, 10_000 + seldom(2_500)):
        assert play(seed, clients=2 + seed % 2) == [], seed


@pytest.mark.random
def test_any_history_of_followed_links_ends_the_same_way() -> None:
    """Documents come and go with the links that lead to them; what is read is true all the same."""
    for seed in range(20_000, 20_000 + seldom(2_000)):
        assert play(seed, clients=2 + seed % 2, following=True) == [], seed


def test_the_histories_are_worth_their_time() -> None:
    """They contain what they are meant to contain: landings, conflicts, lost connections, gaps, replays."""
    landed = conflicts = resumed = gaps = 0
    for seed in range(30):
        history = History(seed)
        for _ in range(60):
            history.step()
        history.finish()
        landed += sum(made.told.landed for made in history.made)
        conflicts += sum(not made.told.landed for made in history.made)
        for client in history.clients:
            openings = [message for message in client.received if type(message).__name__ == "Opened"]
            resumed += sum(message.resumed for message in openings)  # type: ignore[union-attr]
            gaps += sum(not message.resumed for message in openings[1:])  # type: ignore[union-attr]
    assert landed > 200
    assert conflicts > 100
    assert resumed > 10
    assert gaps > 5


def test_the_same_seed_is_the_same_history() -> None:
    def trace(seed: int) -> list[object]:
        history = History(seed)
        for _ in range(40):
            history.step()
        history.finish()
        return [(entry.seq, entry.session, entry.commit) for entry in history.world.engine.changes(limit=1_000).items]

    assert trace(3) == trace(3)
