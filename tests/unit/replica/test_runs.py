"""What was observed of runs reaches the engine with their commits, once, over lost connections, and costs no frame."""

from __future__ import annotations

import pytest

from headwater.data.patch import replace
from headwater.engine.access import ACCESS
from headwater.errors import LoadError
from headwater.protocol.commit import Operation
from headwater.protocol.messages import Encoding, Seen, Transact, Verdicts
from headwater.protocol.mirrors import Mirror, Mirrored, QueryMirrors
from headwater.protocol.observations import (
    About,
    Backlog,
    Current,
    Footprint,
    Marks,
    NodeKey,
    Observations,
    QueryBacklog,
    QueryCurrent,
    QueryMarks,
    QueryObservations,
    QueryReaders,
    Readers,
    Touched,
    encode_part,
)
from headwater.replica.layer import Layer
from headwater.replica.runs import MOST_NOTED
from tests.unit.engine.hub_kit import Raw, put
from tests.unit.engine.observing_kit import clean, looked, observed
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
    for number in range(MOST_NOTED):
        ann.session.runs.noted(about(f"p.n{number}"), footprint("a"), 1)
    ann.session.flush()
    world.settle()
    assert len(observed(world.engine)) == MOST_NOTED


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
    derive(ann, "p.total", 8)
    ann.session.flush()
    ann.send()  # it arrives, and the verdict does not
    ann.again()
    world.settle()
    (known,) = observed(world.engine)
    assert (known.changed_at, known.stale) == (3, ())
    assert ann.session.runs._made == {}


def test_runs_of_commits_that_never_left_are_forgotten() -> None:
    world, (ann,) = started("ann")
    ann.down()
    derive(ann, "p.total", 7)
    ann.session.flush()
    ann.up()
    world.settle()
    assert (observed(world.engine), ann.session.runs._made) == ([], {})


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


# ---- asking ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["msgpack", "json"])
def test_what_is_known_is_answered_in_both_encodings(encoding: Encoding) -> None:
    world, (ann,) = started("ann", encoding=encoding)
    ann.session.runs.noted(about("p.n"), footprint("a", "never"), world.engine.last_seq)
    ann.session.tell_runs()
    world.settle()
    seq = world.engine.last_seq
    ann.do(lambda t: t.write(doc("a"), replace((), 9)))
    replies: list[Seen | LoadError] = []
    look = ann.session.queries.look
    look(QueryObservations(0, "p"), replies.append)
    look(QueryBacklog(0), replies.append)
    look(QueryReaders(0, doc("a")), replies.append)
    look(QueryCurrent(0, (looked("a", seq=seq), looked("never", seq=seq))), replies.append)
    look(Mirror(0, "other", "q", ((doc("a"), seq),)), replies.append)
    look(QueryMirrors(0, "other"), replies.append)
    world.settle()
    known, backlog, readers, current, noted, mirrored = replies
    assert isinstance(known, Observations)
    assert known.observed[0].stale == ((0, seq + 1),)
    assert isinstance(backlog, Backlog)
    assert [(each.piece, each.dirty, each.causes) for each in backlog.pieces] == [("p", 1, ((doc("a"), seq + 1),))]
    assert isinstance(readers, Readers)
    assert readers.pieces == ("p",)
    assert isinstance(current, Current)
    assert current.stale == ((0, seq + 1),)
    assert noted == Mirrored(noted.id, seq + 1)  # type: ignore[union-attr]
    assert isinstance(mirrored, Mirrored)
    assert mirrored.marked == (("q", doc("a"), seq + 1),)


@pytest.mark.parametrize("encoding", ["msgpack", "json"])
def test_who_wants_to_is_told_that_something_was_written_which_nodes_read(encoding: Encoding) -> None:
    world, (ann, bob) = started("ann", "bob", encoding=encoding)
    ann.session.runs.noted(about("p.n"), footprint("a", "later"), world.engine.last_seq)
    ann.session.tell_runs()
    heard: list[int | LoadError] = []
    ann.session.queries.watch_marks(heard.append)
    world.settle()
    assert heard == [1], "where the log ends"
    bob.do(lambda t: t.write(doc("b"), replace((), 1)))
    world.settle()
    assert heard == [1], "nobody reads that"
    bob.do(lambda t: t.write(doc("a"), replace((), 2)))
    world.settle()
    ann.do(lambda t: t.write(doc("a"), replace((), 3)))
    world.settle()
    assert heard == [1, 3, 4], "one's own writes, too: whoever is stopped is not told otherwise"
    replies: list[Seen | LoadError] = []
    ann.session.queries.look(QueryMarks(0, 1), replies.append)
    world.settle()
    (marks,) = replies
    assert isinstance(marks, Marks)
    assert (marks.through, [(m.doc.id, m.seq, m.pieces) for m in marks.marks]) == (4, [("a", 4, ("p",))])
    ann.again()
    world.settle()
    assert heard == [1, 3, 4, 4]
    ann.session.queries.watch_marks(None)
    world.settle()
    bob.do(lambda t: t.write(doc("a"), replace((), 5)))
    ann.again()
    world.settle()
    assert heard == [1, 3, 4, 4]


def test_only_owners_see_what_nodes_did_and_only_writers_say_it() -> None:
    world = World(access=True)
    ann = Raw(world, "ann-session", principal="ann")
    ann.write(1, put("d", 1))
    ann.write(2, Operation(ACCESS, (replace(("writers",), ["will"]), replace(("readers",), ["rob"]))))
    answers: dict[str, list[str]] = {}
    told: dict[str, list[type]] = {}
    for name in ("ann", "will", "rob"):
        client = world.join(f"{name}-replica", principal=name)
        client.session.runs.is_on = True
        world.settle()
        client.session.runs.noted(about(f"{name}.n"), footprint("d"), world.engine.last_seq)
        client.session.tell_runs()
        replies: list[Seen | LoadError] = []
        questions = (
            *(QueryObservations(0), QueryBacklog(0), QueryReaders(0, doc("d")), QueryMarks(0, 0)),
            *(Mirror(0, "other", "p", ((doc("d"), 1),)), QueryMirrors(0, "other")),
            QueryCurrent(0, (looked("d", seq=1),)),
        )
        heard: list[int | LoadError] = []
        client.session.queries.watch_marks(heard.append)
        for question in questions:
            client.session.queries.look(question, replies.append)
        world.settle()
        told[name] = [type(each) for each in heard]
        answers[name] = ["no" if isinstance(reply, LoadError) else "yes" for reply in replies]
    assert answers == {
        "ann": ["yes"] * 7,
        "will": ["no", "no", "no", "no", "yes", "yes", "yes"],
        "rob": ["no", "no", "no", "no", "no", "no", "yes"],
    }
    assert told == {"ann": [int], "will": [LoadError], "rob": [LoadError]}
    assert clean(world.engine) == {"ann.n": True, "will.n": True}, "what a reader says is dropped"


def test_a_question_without_a_connection_is_answered_with_an_error() -> None:
    world, (ann,) = started("ann")
    replies: list[Seen | LoadError] = []
    ann.session.queries.look(QueryBacklog(0), replies.append)
    ann.down()
    ann.session.queries.look(QueryBacklog(0), replies.append)
    assert [str(reply) for reply in replies] == [
        "what nodes did cannot be read: the connection was lost",
        "what nodes did cannot be read: there is no connection",
    ]
    assert world.engine.last_seq == 1
