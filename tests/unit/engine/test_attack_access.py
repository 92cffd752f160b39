"""Attacks on access: what somebody brings about who may not, or whose frame was refused."""

from __future__ import annotations

from headwater.data.address import Depth, DocKey
from headwater.data.patch import replace
from headwater.protocol.commit import Commit, LeaseHeld, Operation, Provenance, Read
from headwater.protocol.messages import Transact, Verdicts
from tests.unit.engine.delivery_kit import lease_new_target
from tests.unit.replica.kit import Client, World, doc


def test_a_first_frame_that_is_refused_founds_nothing() -> None:
    world = World(access=True)
    ann = world.join("a", principal="ann")
    world.settle()
    assert ann.peer is not None
    ahead = Read(doc("x"), (), Depth.DEEP, 50)
    world.hub.process([(ann.peer, Transact((Commit(1, (Operation(doc("x"), (replace((), 1),)),), (ahead,)),)))])
    assert world.engine.last_seq == 0


def a_reader() -> tuple[World, Client]:
    world = World(access=True)
    bob = world.join("b", principal="bob")
    bob.watch("d", DocKey("space", "$access"))
    world.settle()
    bob.write("d", replace((), 1))
    world.settle()
    access = {"owners": ("bob",), "writers": (), "readers": ("ann",)}
    bob.do(lambda t: t.write(DocKey("space", "$access"), replace((), access)))
    world.settle()
    ann = world.join("a", principal="ann")
    world.settle()
    return world, ann


def test_a_reader_cannot_fill_the_log_with_commits_that_write_nothing() -> None:
    world, ann = a_reader()
    assert ann.peer is not None
    before = world.engine.last_seq
    causes = ((DocKey("space", "x" * 100_000), ("a",)),) * 10
    world.hub.process([(ann.peer, Transact((Commit(1, provenance=Provenance("n", "f", causes)),)))])
    assert world.engine.last_seq == before


def test_whoever_does_not_hold_a_lease_is_not_told_its_token() -> None:
    world, ann = a_reader()
    assert ann.peer is not None
    held = lease_new_target(world.engine, worker="worker")
    world.hub.process([(ann.peer, Transact((Commit(1, preconditions=(LeaseHeld(held.name, 99),)),)))])
    verdicts = [message for message in ann.waiting() if isinstance(message, Verdicts)]
    assert verdicts
    assert "worker" not in str(verdicts)
    assert str(held.token) not in str(verdicts)
