"""Targets over restarts on machines whose clocks differ: what is stored of them is of one clock."""

from __future__ import annotations

from pathlib import Path

from headwater.clock import VirtualClock
from headwater.engine.store.sqlite import SqliteStore
from tests.unit.engine.delivery_kit import LEASE_US, World

HOUR_US = 3_600_000_000


def at(us: int) -> VirtualClock:
    clock = VirtualClock()
    clock.advance(us)
    return clock


def test_a_lease_lasts_over_a_restart_where_the_log_is_ahead_of_the_clock(tmp_path: Path) -> None:
    """The log goes on from the clock of the machine before; what a target says is by the one of now."""
    world = World(SqliteStore(tmp_path / "s"), clock=at(2 * HOUR_US))
    world.subscribe()
    world.emit("a", 1)
    world.done(world.claim_one())
    world.engine.close()

    world = World(SqliteStore(tmp_path / "s"), clock=at(HOUR_US))  # an hour behind, and nothing is due
    world.emit("a", 2, 3, 4)
    world.done(world.claim_one(records=1))
    world.claim_one(records=1)
    world.clock.advance(LEASE_US // 10)
    world.engine.close()

    world = World(SqliteStore(tmp_path / "s"), clock=world.clock)
    assert world.claim(worker="other") == [], "somebody has it"
    world.clock.advance(LEASE_US)
    assert len(world.claim(worker="other")) == 1


def test_the_same_for_what_was_emitted_before_a_reaction_was_there(tmp_path: Path) -> None:
    world = World(SqliteStore(tmp_path / "s"), clock=at(2 * HOUR_US))
    world.emit("a", 1)
    world.engine.close()

    world = World(SqliteStore(tmp_path / "s"), clock=at(HOUR_US))
    world.subscribe(since="beginning")
    world.claim_one()
    world.clock.advance(LEASE_US // 10)
    world.engine.close()

    world = World(SqliteStore(tmp_path / "s"), clock=world.clock)
    assert world.claim(worker="other") == [], "somebody has it"
