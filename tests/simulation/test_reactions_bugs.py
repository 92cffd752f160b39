"""The random workload for reactions finds what it should: with one mechanism switched off, it has to complain."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest

from headwater.engine.outcomes import Outcomes
from headwater.engine.preconditions import Preconditions
from headwater.engine.store.delivery_port import NEVER, Standing
from headwater.engine.targets import Targets
from headwater.reactions.delivering import Delivering
from headwater.reactions.drain import Drain
from tests.simulation.test_reactions import run

SEEDS = 25
BUGS: dict[str, Any] = {}


def bug(fn: Any) -> Any:
    BUGS[fn.__name__] = contextmanager(fn)
    return fn


@bug
def whoever_lost_a_target_still_moves_it() -> Iterator[None]:
    def held(self: Targets, hold: Any) -> Any:
        row = self._subscriptions.all().get(hold.reaction)
        target = self._store.delivery.target(row.reaction, hold.key) if row is not None else None
        return None if target is None or target.state != Standing.LEASED else target

    with patch.object(Targets, "held", held), patch.object(Outcomes, "_is_possible", lambda *_: True):
        yield


@bug
def a_commit_delivers_whoever_has_the_lease() -> Iterator[None]:
    with (
        patch.object(Preconditions, "_other_holder", lambda *_: None),
        patch.object(Outcomes, "is_given", lambda *_: True),
        patch.object(Outcomes, "replayed", lambda self, target, place: target),
    ):
        yield


@bug
def a_record_marks_only_targets_that_are_new() -> Iterator[None]:
    real = Targets._mark

    def mark(self: Targets, row: Any, key: str, due_us: int, since_us: int) -> None:
        if self._store.delivery.target(row.reaction, key) is None:
            real(self, row, key, due_us, since_us)

    with patch.object(Targets, "_mark", mark):
        yield


@bug
def a_target_with_more_is_left_alone() -> Iterator[None]:
    def settled(self: Outcomes, row: Any, target: Any) -> Any:
        return target._replace(state=Standing.IDLE, due_us=NEVER, holder="")

    with patch.object(Outcomes, "settled", settled):
        yield


@bug
def a_timer_only_sets_a_flag() -> Iterator[None]:
    with patch.object(Drain, "_arm", lambda self: None):
        yield


@bug
def what_a_commit_gives_counts_from_when_it_arrives() -> Iterator[None]:
    def given(self: Drain, grants: Any, ago_us: int) -> None:
        self._received(list(grants), asyncio.get_running_loop().time())

    with patch.object(Drain, "given", given):
        yield


@bug
def what_failed_is_passed_over_silently() -> Iterator[None]:
    real = Delivering._failed

    async def failed(self: Delivering, record: Any, attempt: int, failure: Any) -> None:
        self._through = (record.seq, record.ordinal)
        await real(self, record, attempt, failure)

    with patch.object(Delivering, "_failed", failed), patch.object(Outcomes, "_is_possible", lambda *_: True):
        yield


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name: str) -> None:
    with BUGS[name]():
        assert any(_complains(seed) for seed in range(SEEDS)), f"nobody noticed that {name}"


def _complains(seed: int) -> bool:
    try:
        return bool(run(seed))
    except Exception:  # A crash is a complaint, too.
        return True
