"""What was observed of runs reaches the engine with their commits, once, over lost connections, and costs no frame."""

from __future__ import annotations

import pytest

from headwater.data.patch import replace
from headwater.engine.admission.access import ACCESS
from headwater.protocol.commit import Commit, Operation
from headwater.protocol.messages import Encoding, Transact, Verdicts
from headwater.protocol.observations import (
    About,
    Footprint,
    NodeKey,
    Touched,
    encode_part,
)
from headwater.replica.limits import DEFAULT_REPLICA_LIMITS
from headwater.replica.pending import Layer
from tests.unit.engine.hub_kit import Raw, put
from tests.unit.engine.observing_kit import clean, observed
from tests.unit.replica.kit import Client, World, doc


def about(name: str) -> bytes:
    piece, _, member = name.partition(".")
    return encode_part(About(NodeKey(piece, 1, member), "computed", "code"))


def footprint(*ids: str) -> bytes:
    return encode_part(Footprint(tuple(Touched(doc(id)) for id in ids)))


def started(*names: str, encoding: Encoding = "msgpack") -> tuple[World, list[Client]]:
    world = World()
    clients = [world.join(name, encoding=encoding) for name in names]
    for client in clients:
        client.session.runs.is_on = True
        client.watch("a", "b", "out")
    world.settle()
    clients[0].do(lambda t: t.write(doc("a"), replace((), 1)))
    world.settle()
    return world, clients


def derive(client: Client, name: str, value: object) -> Layer:
    """A run that reads `a` and writes `out`."""
    transaction = client.replica.begin(node=name, derived=True)
    transaction.read(doc("a"))
    transaction.write(doc("out"), replace((), value))
    layer = client.replica.commit(transaction)
    assert isinstance(layer, Layer)
    client.session.runs.ran(layer.local_seq, about(name), footprint("a"), took_us=3)
    return layer


def is_kept(client: Client, layer: Layer) -> bool:
    """Whether a frame with this commit would bring what was observed of its run."""
    frame = Transact((Commit(layer.local_seq),))
    return client.session.runs.with_frame(frame, again=True).observations != ()


def frames(client: Client) -> list[Transact]:
    return [message for message in client.sent if isinstance(message, Transact)]


@pytest.mark.parametrize("encoding", ["msgpack", "json"])
def test_a_run_travels_with_its_commit_and_is_kept_with_it(encoding: Encoding) -> None:
    world, (ann,) = started("ann", encoding=encoding)
    derive(ann, "p.total", 7)
    ann.session.flush()
    world.settle()
    (known,) = observed(world.engine)
    assert (known.node.member, known.reads[0].doc, known.verified_at, known.took_us) == ("total", doc("a"), 2, 3)
    assert len(frames(ann)[-1].observations) == 1
    assert clean(world.engine) == {"p.total": True}


@pytest.mark.parametrize("encoding", ["msgpack", "json"])
def test_a_run_that_changed_nothing_rides_in_front_of_the_next_frame(encoding: Encoding) -> None:
    world, (ann,) = started("ann", encoding=encoding)
    sent = len(frames(ann))
    ann.session.runs.noted(about("p.same"), footprint("a"), ann.replica.confirmed.seq)
    ann.session.flush()
    world.settle()
    assert (len(frames(ann)), observed(world.engine)) == (sent, []), "it waits for one"
    ann.do(lambda t: t.write(doc("b"), replace((), 1)))
    world.settle()
    assert len(frames(ann)) == sent + 1
    assert clean(world.engine) == {"p.same": True}
    ann.do(lambda t: t.write(doc("b"), replace((), 2)))
    world.settle()
    assert frames(ann)[-1].observations == (), "once"


def test_what_waits_can_be_told_without_a_frame_and_is_answered_by_no_verdict() -> None:
    world, (ann,) = started("ann")
    seq = world.engine.last_seq
    ann.session.tell_runs()
    assert not ann.session.outgoing, "there is nothing to tell"
    ann.session.runs.noted(about("p.same"), footprint("a"), seq)
    ann.session.runs.noted(about("p.other"), footprint("b"), seq)
    ann.session.tell_runs()
    world.settle()
    assert (clean(world.engine), world.engine.last_seq) == ({"p.same": True, "p.other": True}, seq)
    assert ann.received[-1] == Verdicts(())
    assert ann.is_up
    ann.session.runs.gone(about("p.same"), 1)
    ann.session.tell_runs()
    world.settle()
    assert clean(world.engine) == {"p.other": True}


def test_many_that_wait_leave_by_themselves() -> None:
    world, (ann,) = started("ann")
    for number in range(DEFAULT_REPLICA_LIMITS.noted_runs):
        ann.session.runs.noted(about(f"p.n{number}"), footprint("a"), 1)
    ann.session.flush()
    world.settle()
    assert len(observed(world.engine)) == DEFAULT_REPLICA_LIMITS.noted_runs


def test_a_stale_run_is_dropped_and_its_frame_lands() -> None:
    world, (ann, bob) = started("ann", "bob")
    ann.session.runs.noted(about("p.same"), footprint("a"), ann.replica.confirmed.seq)
    bob.do(lambda t: t.write(doc("a"), replace((), 2)))
    bob.send()
    ann.do(lambda t: t.write(doc("b"), replace((), 1)))
    world.settle()
    assert observed(world.engine) == []
    assert world.value("b") == 1


def test_a_run_over_own_commits_names_them_and_falls_with_them() -> None:
    world, (ann, bob) = started("ann", "bob")
    bob.do(lambda t: t.write(doc("a"), replace((), 2)))
    bob.send()
    stale = derive(ann, "p.total", 7)
    under = (((stale.local_seq, stale.local_seq),),)
    ann.session.runs.noted(about("p.over"), footprint("out"), ann.replica.confirmed.seq, under)
    ann.session.flush()
    world.settle()
    assert observed(world.engine) == [], "its commit was rejected, and what stood on it is dropped"
    fresh = derive(ann, "p.total", 8)
    ann.session.flush()
    under = (((fresh.local_seq, fresh.local_seq),),)
    ann.session.runs.noted(about("p.over"), footprint("out"), ann.replica.confirmed.seq, under)
    ann.session.tell_runs()
    world.settle()
    assert clean(world.engine) == {"p.total": True, "p.over": True}


def test_a_replayed_frame_brings_its_runs_again_and_they_count_once() -> None:
    world, (ann,) = started("ann")
    derive(ann, "p.total", 7)
    ann.session.flush()
    ann.next_out()  # it was on the wire, and never arrived
    ann.again()
    world.settle()
    assert clean(world.engine) == {"p.total": True}
    second = derive(ann, "p.total", 8)
    ann.session.flush()
    ann.send()  # it arrives, and the verdict does not
    ann.again()
    world.settle()
    (known,) = observed(world.engine)
    assert (known.changed_at, known.stale) == (3, ())
    assert not is_kept(ann, second)


def test_runs_of_commits_that_never_left_are_forgotten() -> None:
    world, (ann,) = started("ann")
    ann.down()
    never = derive(ann, "p.total", 7)
    assert is_kept(ann, never)
    ann.session.flush()
    ann.up()
    world.settle()
    assert observed(world.engine) == []
    assert not is_kept(ann, never)


def test_switched_off_nothing_is_attached() -> None:
    world, (ann,) = started("ann")
    ann.session.runs.is_on = False
    derive(ann, "p.total", 7)
    ann.session.runs.noted(about("p.same"), footprint("a"), 1)
    ann.session.runs.gone(about("p.same"), 1)
    ann.session.flush()
    ann.session.tell_runs()
    world.settle()
    assert all(not frame.observations for frame in frames(ann))


def test_what_a_reader_says_of_runs_is_dropped() -> None:
    world = World(access=True)
    ann = Raw(world, "ann-session", principal="ann")
    ann.write(1, put("d", 1))
    ann.write(2, Operation(ACCESS, (replace(("writers",), ["will"]), replace(("readers",), ["rob"]))))
    for name in ("ann", "will", "rob"):
        client = world.join(f"{name}-replica", principal=name)
        client.session.runs.is_on = True
        world.settle()
        client.session.runs.noted(about(f"{name}.n"), footprint("d"), world.engine.last_seq)
        client.session.tell_runs()
        world.settle()
    assert clean(world.engine) == {"ann.n": True, "will.n": True}
