"""Which sessions get which observations, and whose reads are compared for them."""

from __future__ import annotations

from headwater.data.address import Depth, DocKey
from headwater.data.patch import append
from headwater.engine.admission.access import ACCESS
from headwater.protocol.commit import Operation, Read
from headwater.protocol.messages import Problem
from headwater.protocol.observations import (
    Backlog,
    Observations,
    OutdatedReads,
    QueryBacklog,
    QueryCurrent,
    QueryNodes,
    QueryObservations,
    QueryReaders,
    QueryWrittenDocuments,
    Readers,
    WrittenDocuments,
    label_of,
)
from tests.unit.engine.hub_kit import Raw, put
from tests.unit.engine.observing_kit import Runner, looked, node
from tests.unit.replica.kit import World


def _members(answer: object) -> set[str]:
    assert isinstance(answer, Observations), answer
    return {label_of(each.node) for each in answer.observed}


def test_session_that_may_read_gets_nodes_that_read_what_it_may_see() -> None:
    world = World(access=True)
    ann = Raw(world, "ann-session", principal="ann")
    ann.write(1, put("d", 1))
    ann.write(2, Operation(ACCESS, (append(("readers",), ["rob"]), append(("writers",), ["will"]))))
    ann.write(3, Operation(DocKey("user:ann", "d"), put("d", 2).patches))
    private = Read(DocKey("user:ann", "d"), (), Depth.DEEP, world.engine.last_seq)
    runner = Runner(world.engine, "observing")
    runner.observe(
        runner.run("p.total", looked("d", seq=2)),
        runner.run(node("p.mine", scope="user", principal="ann"), looked("d", seq=2)),
        runner.run(node("p.yours", scope="user", principal="rob"), looked("d", seq=2)),
        runner.run("p.peeks", private),
    )
    everything = {"p:total", "p:mine of user:ann", "p:yours of user:rob", "p:peeks"}
    expected = {
        "ann": everything,
        "will": {"p:total"},
        "rob": {"p:total", "p:yours of user:rob"},
    }
    every_node = tuple([each.node for each in _answered(ann, QueryObservations(9, "p")).observed])
    for principal, members in expected.items():
        raw = ann if principal == "ann" else Raw(world, f"{principal}-session", principal=principal)
        for question in (QueryObservations(9, "p"), QueryNodes(9, every_node)):
            (answer,) = raw.say(question)
            assert _members(answer) == members
        (marks,) = raw.say(QueryWrittenDocuments(9, 0))
        assert isinstance(marks, WrittenDocuments)
        assert (private.doc in {mark.doc for mark in marks.marks}) is (principal == "ann")
        (backlog,) = raw.say(QueryBacklog(9))
        assert isinstance(backlog, Backlog if principal == "ann" else Problem)
        (readers,) = raw.say(QueryReaders(9, private.doc))
        assert isinstance(readers, Readers if principal == "ann" else Problem)
    eve = Raw(world, "eve-session", principal="eve")
    assert not [answer for answer in eve.say(QueryObservations(9, "p")) if isinstance(answer, Observations)]


def _answered(raw: Raw, question: QueryObservations) -> Observations:
    (answer,) = raw.say(question)
    assert isinstance(answer, Observations)
    return answer


def test_reads_are_compared_for_sessions_that_may_read_them() -> None:
    world = World(access=True)
    ann = Raw(world, "ann-session", principal="ann")
    ann.write(1, put("d", 1))
    ann.write(2, Operation(ACCESS, (append(("readers",), ["rob"]), append(("writers",), ["will"]))))
    current = QueryCurrent(9, (looked("d", seq=2),))
    private = QueryCurrent(9, (Read(DocKey("user:ann", "d"), (), Depth.DEEP, 2),))
    for principal, may_read_private in (("ann", True), ("will", False), ("rob", False)):
        raw = ann if principal == "ann" else Raw(world, f"{principal}-session", principal=principal)
        (answer,) = raw.say(current)
        assert isinstance(answer, OutdatedReads)
        (answer,) = raw.say(private)
        assert isinstance(answer, OutdatedReads if may_read_private else Problem)
        assert not isinstance(answer, Problem) or (answer.code, answer.id) == ("access", 9)
    eve = Raw(world, "eve-session", principal="eve")
    assert not [answer for answer in eve.say(current) if isinstance(answer, OutdatedReads)]
