"""Attacks on the lines after a conflict: what one who stands in line can do to everybody else."""

from __future__ import annotations

from headwater.data.patch import replace
from headwater.engine.hub import Hub
from headwater.protocol.messages import Problem
from tests.unit.replica.kit import World, bump


def test_a_branch_that_is_deleted_under_one_who_waits_for_its_turn_ends_that_connection_only() -> None:
    world = World()
    world.engine.fork("b")
    world.hub = Hub(world.engine, world.clock, world.limits, keeps_time=True)
    loser, winner = world.join("p", branch="b"), world.join("q", branch="b")
    other = world.join("r")
    world.settle()
    loser.watch("d", follow=True)
    winner.watch("d")
    world.settle()
    winner.write("d", replace((), {"n": 0}))
    world.settle()
    loser.do(bump("d"))
    winner.do(bump("d"))
    assert winner.peer is not None
    assert loser.peer is not None
    assert other.peer is not None
    batch = [(client.peer, client.next_out()) for client in (winner, loser) for _ in list(client.session.outgoing)]
    for peer, message in batch:
        if type(message).__name__ == "Transact":
            world.hub._handle(peer, message)  # type: ignore[arg-type]
    world.hub._commit()
    assert len(world.hub.turns)
    world.engine.delete_branch("b")
    world.hub.process(())
    assert any(isinstance(message, Problem) for message in loser.waiting())
    assert not other.peer.is_closed()
