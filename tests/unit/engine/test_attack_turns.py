"""Attacks on the lines after a conflict: what one who stands in line can do to everybody else."""

from __future__ import annotations

from headwater.data.patch import replace
from headwater.engine.sync.hub import Hub
from headwater.protocol.messages import Problem
from tests.unit.replica.kit import World, bump


def test_a_branch_that_is_deleted_under_one_who_waits_for_its_turn_ends_that_connection_only() -> None:
    world = World()
    world.engine.fork("b")
    world.hub = Hub(world.engine, world.clock, world.limits, keeps_time=True)
    winner, first, loser = (world.join(key, branch="b") for key in ("q", "o", "p"))
    other = world.join("r")
    world.settle()
    loser.watch("d", follow=True)
    for client in (winner, first):
        client.watch("d")
    world.settle()
    winner.write("d", replace((), {"n": 0}))
    world.settle()
    world.clock.advance(1)  # At time 0 nothing is kept back from those in line.
    batch = []
    for client in (winner, first, loser):
        client.do(bump("d"))
        assert client.peer is not None
        batch += [(client.peer, client.next_out()) for _ in list(client.session.outgoing)]
    world.hub.process(batch)
    assert loser.peer is not None
    assert world.hub.turns.place_of(loser.peer) == 1, "the other one who lost has the turn"
    world.engine.delete_branch("b")
    world.clock.advance(world.hub.turns.turn_us)
    world.hub.process(())
    assert any(isinstance(message, Problem) for message in loser.waiting())
    assert other.peer is not None
    assert not other.peer.is_closed()
