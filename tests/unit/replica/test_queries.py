"""Questions of a session about what nodes did: answers in both encodings, news, rights, and lost connections."""

from __future__ import annotations

import pytest

from headwater.data.patch import replace
from headwater.engine.admission.access import ACCESS
from headwater.errors import LoadError
from headwater.protocol.commit import Operation, Read
from headwater.protocol.messages import Encoding, ObservationAnswer
from headwater.protocol.observations import (
    Backlog,
    Observations,
    OutdatedReads,
    QueryBacklog,
    QueryCurrent,
    QueryObservations,
    QueryReaders,
    QueryWrittenDocuments,
    Readers,
    WrittenDocuments,
)
from tests.unit.engine.hub_kit import Raw, put
from tests.unit.engine.observing_kit import Runner, looked
from tests.unit.replica.kit import Client, World, doc


def started(*names: str, encoding: Encoding = "msgpack") -> tuple[World, list[Client]]:
    world = World()
    clients = [world.join(name, encoding=encoding) for name in names]
    for client in clients:
        client.watch("a", "b")
    world.settle()
    clients[0].do(lambda t: t.write(doc("a"), replace((), 1)))
    world.settle()
    return world, clients


def ran(world: World, name: str, *reads: Read) -> None:
    """A node ran in another session, and the engine knows what it read."""
    runner = Runner(world.engine, "runner")
    runner.observe(runner.run(name, *reads))


@pytest.mark.parametrize("encoding", ["msgpack", "json"])
def test_what_is_known_is_answered_in_both_encodings(encoding: Encoding) -> None:
    world, (ann,) = started("ann", encoding=encoding)
    seq = world.engine.last_seq
    ran(world, "p.n", looked("a", seq=seq), looked("never", seq=seq))
    ann.do(lambda t: t.write(doc("a"), replace((), 9)))
    replies: list[ObservationAnswer | LoadError] = []
    look = ann.session.queries.look
    look(QueryObservations(0, "p"), replies.append)
    look(QueryBacklog(0), replies.append)
    look(QueryReaders(0, doc("a")), replies.append)
    look(QueryCurrent(0, (looked("a", seq=seq), looked("never", seq=seq))), replies.append)
    world.settle()
    known, backlog, readers, current = replies
    assert isinstance(known, Observations)
    assert known.observed[0].stale == ((0, seq + 1),)
    assert isinstance(backlog, Backlog)
    assert [(each.piece, each.dirty, each.causes) for each in backlog.pieces] == [("p", 1, ((doc("a"), seq + 1),))]
    assert isinstance(readers, Readers)
    assert readers.pieces == ("p",)
    assert isinstance(current, OutdatedReads)
    assert current.stale == ((0, seq + 1),)


@pytest.mark.parametrize("encoding", ["msgpack", "json"])
def test_who_wants_to_is_told_that_something_was_written_which_nodes_read(encoding: Encoding) -> None:
    world, (ann, bob) = started("ann", "bob", encoding=encoding)
    seq = world.engine.last_seq
    ran(world, "p.n", looked("a", seq=seq), looked("later", seq=seq))
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
    replies: list[ObservationAnswer | LoadError] = []
    ann.session.queries.look(QueryWrittenDocuments(0, 1), replies.append)
    world.settle()
    (marks,) = replies
    assert isinstance(marks, WrittenDocuments)
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


def test_only_owners_see_the_backlog() -> None:
    world = World(access=True)
    ann = Raw(world, "ann-session", principal="ann")
    ann.write(1, put("d", 1))
    ann.write(2, Operation(ACCESS, (replace(("writers",), ["will"]), replace(("readers",), ["rob"]))))
    answers: dict[str, list[str]] = {}
    told: dict[str, list[type]] = {}
    for name in ("ann", "will", "rob"):
        client = world.join(f"{name}-replica", principal=name)
        world.settle()
        replies: list[ObservationAnswer | LoadError] = []
        questions = (
            *(QueryObservations(0), QueryBacklog(0), QueryReaders(0, doc("d")), QueryWrittenDocuments(0, 0)),
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
        "ann": ["yes"] * 5,
        "will": ["yes", "no", "yes", "yes", "yes"],
        "rob": ["yes", "no", "yes", "yes", "yes"],
    }
    assert told == {"ann": [int], "will": [int], "rob": [int]}


def test_a_question_without_a_connection_is_answered_with_an_error() -> None:
    world, (ann,) = started("ann")
    replies: list[ObservationAnswer | LoadError] = []
    ann.session.queries.look(QueryBacklog(0), replies.append)
    ann.down()
    ann.session.queries.look(QueryBacklog(0), replies.append)
    assert [str(reply) for reply in replies] == [
        "the runs of nodes cannot be read: the connection was lost",
        "the runs of nodes cannot be read: there is no connection",
    ]
    assert world.engine.last_seq == 1


def test_queries_beyond_the_limit_wait_for_answers_and_all_are_answered() -> None:
    world, (ann,) = started("ann")
    most = ann.session.replica.limits.queries
    replies: list[ObservationAnswer | LoadError] = []
    before = len(ann.sent)
    for _ in range(3 * most):
        ann.session.queries.look(QueryBacklog(0), replies.append)
    assert len([each for each in ann.session.outgoing if isinstance(each, QueryBacklog)]) == most
    world.settle()
    assert len(replies) == 3 * most
    assert all(isinstance(each, Backlog) for each in replies)
    assert len([each for each in ann.sent[before:] if isinstance(each, QueryBacklog)]) == 3 * most


def test_queries_that_wait_fail_with_the_connection() -> None:
    world, (ann,) = started("ann")
    most = ann.session.replica.limits.queries
    replies: list[ObservationAnswer | LoadError] = []
    for _ in range(most + 5):
        ann.session.queries.look(QueryBacklog(0), replies.append)
    ann.session.lost()
    assert len(replies) == most + 5
    assert all(isinstance(each, LoadError) for each in replies)
    world.settle()
    assert len(replies) == most + 5
