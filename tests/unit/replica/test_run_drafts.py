"""Observations of runs: drafts until they are sent, with the commit of their result if there is one, and sent once."""

from __future__ import annotations

import pytest

from headwater.data.patch import replace
from headwater.engine.admission.access import ACCESS
from headwater.protocol.commit import Commit, Operation
from headwater.protocol.messages import Encoding, Transact, Verdicts
from headwater.protocol.observations import About, Footprint, NodeKey, Observation, Touched, encode_part
from headwater.protocol.verdict import Conflict, Rejected
from headwater.replica.limits import DEFAULT_REPLICA_LIMITS, ReplicaLimits
from headwater.replica.observation_queue import ObservationQueue, RunDraft
from headwater.replica.pending import Layer
from tests.unit.engine.hub_kit import Raw
from tests.unit.engine.hub_kit import put as raw_put
from tests.unit.engine.observing_kit import clean, observed
from tests.unit.replica.kit import Client, World, doc
from tests.unit.replica.results_kit import DOCS, Node, attach, put, settled


def about(name: str) -> bytes:
    piece, _, member = name.partition(".")
    return encode_part(About(NodeKey(piece, 1, member), "computed", "code"))


def footprint(*ids: str) -> bytes:
    return encode_part(Footprint(tuple(Touched(doc(id)) for id in ids)))


def draft(client: Client, name: str, *ids: str) -> RunDraft:
    places = [(client.replica.documents.of(doc(id)), ()) for id in ids]
    return RunDraft(about(name), footprint(*ids), places, took_us=3)


def started(*names: str, encoding: Encoding = "msgpack") -> tuple[World, list[Client]]:
    """A world whose clients observe runs; x is 1."""
    world = World()
    clients = [world.join(name, encoding=encoding) for name in names]
    for client in clients:
        attach(client)
        client.session.runs.is_on = True
        client.watch(*DOCS)
    world.settle()
    put(clients[0], "x", 1)
    world.settle()
    return world, clients


def ran(client: Client, output: str, *reads: str, value: int) -> Node:
    """Run a node that reads documents and shows a result. Its name is `p.` with the name of its document."""
    node = Node(client, output, *reads)
    run_again(node, value)
    return node


def run_again(node: Node, value: int) -> None:
    node.show(value)
    ids = [spot.document.key.id for spot in node.spots]  # type: ignore[attr-defined]
    output = node.output.key.id
    node.client.session.runs.record(node, draft(node.client, f"p.{output}", *ids, output))


def ran_without_result(client: Client, name: str, *reads: str) -> Node:
    """Run a node that changes nothing, such as an effect."""
    node = Node(client, "e")
    client.session.runs.record(node, draft(client, name, *reads))
    return node


def frames(client: Client) -> list[Transact]:
    return [message for message in client.sent if isinstance(message, Transact)]


def waiting_observations(client: Client) -> list[Observation]:
    said = [message for message in client.session.outgoing if isinstance(message, Transact)]
    return [observation for message in said for observation in message.observations]


@pytest.mark.parametrize("encoding", ["msgpack", "json"])
def test_observation_is_sent_with_the_commit_of_its_result(encoding: Encoding) -> None:
    world, (ann,) = started("ann", encoding=encoding)
    ran(ann, "a", "x", value=7)
    assert frames(ann)[-1].observations == ()
    ann.session.flush()
    world.settle()
    (known,) = observed(world.engine)
    assert (known.node.member, known.reads[0].doc, known.verified_at, known.took_us) == ("a", doc("x"), 2, 3)
    assert [run.local_seq for run in frames(ann)[-1].observations] == [frames(ann)[-1].commits[0].local_seq]
    assert clean(world.engine) == {"p.a": True}


def test_observation_of_a_replaced_result_is_never_sent() -> None:
    world, (ann,) = started("ann")
    node = ran(ann, "a", "x", value=7)
    run_again(node, 8)
    settled(world)
    assert [len(frame.observations) for frame in frames(ann)] == [0, 1]
    assert clean(world.engine) == {"p.a": True}


def test_observation_of_a_superseded_result_is_sent_with_it_again() -> None:
    world, (ann, bob) = started("ann", "bob")
    put(bob, "x", 2)
    bob.send()
    ran(ann, "a", "x", value=7)
    ann.session.flush()
    world.settle()
    assert observed(world.engine) == []
    settled(world)
    assert (world.value("a"), clean(world.engine)) == (7, {"p.a": True})


def test_observation_of_a_superseded_result_gives_way_to_that_of_the_next_run() -> None:
    world, (ann,) = started("ann")
    node = ran(ann, "a", "x", value=7)
    ann.session.flush()
    sent = ann.next_out()
    assert isinstance(sent, Transact)
    run_again(node, 8)
    ann.session.receive(Verdicts((Rejected(sent.commits[0].local_seq, Conflict()),)))
    settled(world)
    (known,) = observed(world.engine)
    assert (world.value("a"), known.node.member, known.stale) == (8, "a", ())


def test_observation_of_a_result_that_is_not_sent_because_it_is_equal_is_sent() -> None:
    world, (ann, bob) = started("ann", "bob")
    ran(ann, "a", "x", value=7)
    put(bob, "a", 7)
    world.settle()
    ann.session.flush()
    ann.session.tell_runs()
    world.settle()
    assert frames(ann)[-1].commits == ()
    assert clean(world.engine) == {"p.a": True}


@pytest.mark.parametrize("encoding", ["msgpack", "json"])
def test_observation_without_a_commit_is_sent_with_the_next_frame(encoding: Encoding) -> None:
    world, (ann,) = started("ann", encoding=encoding)
    sent = len(frames(ann))
    ran_without_result(ann, "p.same", "x")
    ann.session.flush()
    world.settle()
    assert (len(frames(ann)), observed(world.engine)) == (sent, []), "it waits for a frame"
    put(ann, "y", 1)
    world.settle()
    assert len(frames(ann)) == sent + 1
    assert clean(world.engine) == {"p.same": True}
    put(ann, "y", 2)
    world.settle()
    assert frames(ann)[-1].observations == (), "it was sent"


def test_observations_can_be_sent_without_a_frame_and_no_verdict_answers_them() -> None:
    world, (ann,) = started("ann")
    seq = world.engine.last_seq
    ann.session.tell_runs()
    assert not ann.session.outgoing
    ran_without_result(ann, "p.same", "x")
    ran_without_result(ann, "p.other", "y")
    ann.session.tell_runs()
    world.settle()
    assert (clean(world.engine), world.engine.last_seq) == ({"p.same": True, "p.other": True}, seq)
    assert ann.received[-1] == Verdicts(())
    ann.session.runs.gone(about("p.same"), 1)
    ann.session.tell_runs()
    world.settle()
    assert clean(world.engine) == {"p.other": True}


def test_many_observations_are_sent_without_waiting_for_a_frame() -> None:
    world, (ann,) = started("ann")
    for number in range(DEFAULT_REPLICA_LIMITS.noted_runs):
        ran_without_result(ann, f"p.n{number}", "x")
    ann.session.flush()
    world.settle()
    assert len(observed(world.engine)) == DEFAULT_REPLICA_LIMITS.noted_runs


def test_observations_that_are_never_taken_are_bounded() -> None:
    runs = ObservationQueue(ReplicaLimits(noted_runs=20, noted_waiting=100))
    runs.is_on = True
    for number in range(110):
        runs.noted(b"%d" % number, b"", 7)
    kept = runs.taken()
    assert len(kept) == 90
    assert kept[-1].about == b"109"


def test_draft_of_an_invalid_node_is_dropped() -> None:
    world, (ann,) = started("ann")
    node = ran_without_result(ann, "p.same", "x")
    node.is_current = False
    ann.session.tell_runs()
    assert waiting_observations(ann) == []
    node.is_current = True
    ann.session.tell_runs()
    world.settle()
    assert observed(world.engine) == []


def test_stale_observation_is_dropped_by_the_engine_and_its_frame_lands() -> None:
    world, (ann, bob) = started("ann", "bob")
    ran_without_result(ann, "p.same", "x")
    ann.session.flush()
    put(bob, "x", 2)
    bob.send()
    put(ann, "y", 1)
    world.settle()
    assert observed(world.engine) == []
    assert world.value("y") == 1


def test_observation_over_a_result_is_sent_after_that_result_and_names_its_commit() -> None:
    world, (ann,) = started("ann")
    node = ran(ann, "a", "x", value=7)
    node.is_current = False
    reader = ran_without_result(ann, "p.over", "a")
    ann.session.flush()
    ann.session.tell_runs()
    assert waiting_observations(ann) == [], "the engine could not resolve the number of a commit that it does not know"
    node.is_current = True
    run_again(node, 7)
    ann.session.flush()
    ann.session.tell_runs()
    number = ann.replica.next_local_seq - 1
    over = [each for each in waiting_observations(ann) if each.about == about("p.over")]
    assert [each.layers for each in over] == [(((number, number),),)]
    world.settle()
    assert reader.is_current
    assert clean(world.engine) == {"p.a": True, "p.over": True}


def test_observation_over_a_superseded_result_is_dropped_by_the_engine() -> None:
    world, (ann, bob) = started("ann", "bob")
    put(bob, "x", 2)
    bob.send()
    ran(ann, "a", "x", value=7)
    ran_without_result(ann, "p.over", "a")
    ann.session.flush()
    ann.session.tell_runs()
    world.settle()
    assert observed(world.engine) == []


def test_observation_over_an_authors_commit_that_was_not_sent_waits_for_it() -> None:
    world, (ann,) = started("ann")
    ann.replica.limits = ReplicaLimits(in_flight=1)
    put(ann, "y", 1)
    put(ann, "y", 2)
    ran_without_result(ann, "p.over", "y")
    ann.session.tell_runs()
    assert waiting_observations(ann) == []
    world.settle()
    ann.session.tell_runs()
    world.settle()
    assert (world.value("y"), clean(world.engine)) == (2, {"p.over": True})


def test_observation_over_a_result_that_left_the_tier_is_dropped() -> None:
    world, (ann,) = started("ann")
    ran(ann, "a", "x", value=7)
    reader = ran_without_result(ann, "p.over", "a")
    ann.session.runs.freeze(reader, ann.replica)
    put(ann, "a", 9)
    settled(world)
    ann.session.tell_runs()
    world.settle()
    assert "p.over" not in clean(world.engine)


def test_observation_of_a_stopped_node_is_sent_if_its_result_is_confirmed_already() -> None:
    """I7: the result has left the tier unsent, because confirmed state has its value. The node is clean."""
    world, (ann,) = started("ann")
    node = ran(ann, "a", "x", value=7)
    settled(world)
    ran(ann, "b", "y", value=3)
    ann.session.flush()  # Its wave is under way.
    put(ann, "x", 5)
    run_again(node, 8)
    put(ann, "x", 1)
    run_again(node, 7)
    ann.session.runs.freeze(node, ann.replica)
    node.stop()
    node.is_current = False
    settled(world)
    ann.session.tell_runs()
    world.settle()
    assert clean(world.engine)["p.a"] is True


def with_two_documents(client: Client, world: World) -> Node:
    """A node whose result in `a` is stored, and whose next one differs in `b` alone."""
    node = Node(client, "a", "x", second="b")
    node.show(7, note=1)
    settled(world)
    node.show(8, note=2)
    node.show(7, note=3)
    return node


@pytest.mark.parametrize("stops", [False, True], ids=["live", "stopped"])
def test_observation_names_no_result_that_leaves_its_document_as_it_is(stops: bool) -> None:
    """The engine knows of a wave which documents its results wrote. A reader of another one is clean all the same."""
    world, (ann,) = started("ann")
    with_two_documents(ann, world)
    reader = ran_without_result(ann, "p.reader", "a")
    if stops:
        ann.session.runs.freeze(reader, ann.replica)
    ann.session.flush()
    ann.session.tell_runs()
    settled(world)
    ann.session.tell_runs()
    world.settle()
    assert (world.value("a"), world.value("b")) == (7, 3)
    assert clean(world.engine)["p.reader"] is True


@pytest.mark.parametrize("stops", [False, True], ids=["live", "stopped"])
def test_reader_of_such_a_result_is_not_clean_once_another_commit_changed_the_document(stops: bool) -> None:
    world, (ann, bob) = started("ann", "bob")
    with_two_documents(ann, world)
    ann.session.flush()
    put(bob, "a", 9)
    bob.send()
    ann.hear()
    reader = ran_without_result(ann, "p.reader", "a")
    if stops:
        ann.session.runs.freeze(reader, ann.replica)
    ann.session.tell_runs()
    assert ann.replica.visible(doc("a")) == 7
    world.settle()
    assert not clean(world.engine).get("p.reader", False)


def test_observation_of_a_stopped_node_is_sent_as_of_its_stop() -> None:
    world, (ann, bob) = started("ann", "bob")
    node = ran_without_result(ann, "p.same", "x")
    seq = ann.replica.confirmed.seq
    ann.session.runs.freeze(node, ann.replica)
    node.is_current = False
    put(bob, "y", 1)
    world.settle()
    ann.session.tell_runs()
    assert [each.seq for each in waiting_observations(ann)] == [seq]
    world.settle()
    assert clean(world.engine) == {"p.same": True}


def test_observation_waits_while_a_document_that_was_read_is_not_here() -> None:
    """C3: after a gap, the value that the run saw may be older than the seq of confirmed state."""
    world, (ann, bob) = started("ann", "bob")
    ran_without_result(ann, "p.same", "x")
    ann.replica.set_aside([doc("x")])
    put(bob, "x", 5)
    bob.send()
    ann.hear()
    ann.session.tell_runs()
    assert waiting_observations(ann) == []
    world.settle()
    assert observed(world.engine) == []


def test_draft_of_a_node_that_stops_during_a_gap_is_dropped() -> None:
    _, (ann,) = started("ann")
    node = ran_without_result(ann, "p.same", "x")
    ann.replica.set_aside([doc("x")])
    ann.session.runs.freeze(node, ann.replica)
    ann.session.tell_runs()
    assert waiting_observations(ann) == []


def test_replayed_frame_has_its_observations_again_and_they_count_once() -> None:
    world, (ann,) = started("ann")
    node = ran(ann, "a", "x", value=7)
    ann.session.flush()
    ann.next_out()  # It was on the wire, and never arrived.
    ann.again()
    world.settle()
    assert clean(world.engine) == {"p.a": True}
    run_again(node, 8)
    ann.session.flush()
    ann.send()  # It arrives, and the verdict does not.
    ann.again()
    world.settle()
    (known,) = observed(world.engine)
    assert (known.changed_at, known.stale) == (3, ())
    frame = Transact((Commit(ann.replica.next_local_seq - 1),))
    assert ann.session.runs.of_commits(frame.commits) == [], "it is forgotten with its verdict"


def test_observation_of_a_result_made_without_a_connection_is_sent_with_it() -> None:
    world, (ann,) = started("ann")
    ann.down()
    ran(ann, "a", "x", value=7)
    ann.session.flush()
    ann.up()
    settled(world)
    assert clean(world.engine) == {"p.a": True}


def test_observation_of_a_commit_that_was_never_sent_is_forgotten() -> None:
    world, (ann,) = started("ann")
    ann.down()
    transaction = ann.replica.begin(derived=True)
    transaction.write(doc("a"), replace((), 1))
    layer = ann.replica.commit(transaction)
    assert isinstance(layer, Layer)
    ann.session.runs.record(Node(ann, "a"), draft(ann, "p.a", "x"), layer.local_seq)
    frame = Transact((Commit(layer.local_seq),))
    assert len(ann.session.runs.of_commits(frame.commits)) == 1
    ann.session.flush()
    ann.up()
    world.settle()
    assert observed(world.engine) == []
    assert ann.session.runs.of_commits(frame.commits) == []


def test_commit_of_a_run_is_observed_with_it() -> None:
    world, (ann,) = started("ann")
    transaction = ann.replica.begin(derived=True)
    transaction.read(doc("x"))
    transaction.write(doc("a"), replace((), 1))
    layer = ann.replica.commit(transaction)
    assert isinstance(layer, Layer)
    ann.session.runs.record(Node(ann, "a"), draft(ann, "p.a", "x"), layer.local_seq)
    ann.session.flush()
    world.settle()
    assert (world.value("a"), clean(world.engine)) == (1, {"p.a": True})


def test_observations_that_are_switched_off_are_not_recorded() -> None:
    world, (ann,) = started("ann")
    ann.session.runs.is_on = False
    ran(ann, "a", "x", value=7)
    ann.session.runs.noted(about("p.same"), footprint("x"), 1)
    ann.session.runs.gone(about("p.same"), 1)
    ann.session.flush()
    ann.session.tell_runs()
    world.settle()
    assert all(not frame.observations for frame in frames(ann))


def test_observations_of_a_reader_are_dropped_by_the_engine() -> None:
    world = World(access=True)
    ann = Raw(world, "ann-session", principal="ann")
    ann.write(1, raw_put("d", 1))
    ann.write(2, Operation(ACCESS, (replace(("writers",), ["will"]), replace(("readers",), ["rob"]))))
    for name in ("ann", "will", "rob"):
        client = world.join(f"{name}-replica", principal=name)
        client.session.runs.is_on = True
        world.settle()
        client.session.runs.noted(about(f"{name}.n"), footprint("d"), world.engine.last_seq)
        client.session.tell_runs()
        world.settle()
    assert clean(world.engine) == {"ann.n": True, "will.n": True}
