"""The books of a simulation about access, branches and what leaves the server: they notice what must not be."""

from __future__ import annotations

import pytest

from headwater.clock import VirtualClock
from headwater.data.address import DocKey
from headwater.data.patch import replace
from headwater.data.value import ABSENT, freeze
from headwater.engine.admission.access import ACCESS
from headwater.engine.engine import Engine
from headwater.engine.limits import Limits
from headwater.engine.store.sqlite import SqliteStore
from headwater.engine.sync.peer import Peer, PeerState
from headwater.protocol.commit import Commit, Operation
from headwater.protocol.messages import State, Sync, Verdicts, Watched
from headwater.protocol.verdict import Accepted, Rejected, RuleRefused
from headwater.testing.simulation.access import NONE, OWN, READ, WRITE, right_in
from headwater.testing.simulation.oracle import Oracle
from headwater.testing.simulation.server import WireChecks
from headwater.testing.simulation.trace import Trace

DOC = DocKey("space", "d")
PEOPLE = {"owners": ["ann"], "writers": ["bob"], "readers": ["cyd"]}


def space(*sessions: str) -> tuple[Engine, Oracle, Trace]:
    """An engine that checks nothing, so that what it takes in can be wrong."""
    trace = Trace(VirtualClock(), 0)
    engine = Engine(SqliteStore(":memory:", synchronous="OFF"), clock=VirtualClock())
    oracle = Oracle(trace)
    for session in ("host", *sessions):
        engine.open_session(session)
    oracle.access.users.update({session: session for session in sessions})
    engine.submit("host", Commit(1, (Operation(ACCESS, (replace((), PEOPLE),)),)))
    oracle.follow(engine)
    return engine, oracle, trace


def peer_of(user: str) -> Peer:
    peer = Peer(lambda message: None, Limits())
    peer.principal = peer.session = user
    peer.state = PeerState.OPEN
    return peer


def rules(trace: Trace) -> list[str]:
    return [finding.rule for finding in trace.findings]


def test_a_right_is_the_most_that_the_document_gives() -> None:
    document = freeze({**PEOPLE, "readers": ["cyd", "ann"]})
    assert [right_in(document, user) for user in ("ann", "bob", "cyd", "dan")] == [OWN, WRITE, READ, NONE]
    assert right_in(ABSENT, "dan") == OWN


@pytest.mark.parametrize(
    ("user", "doc", "is_allowed"),
    [
        ("bob", DOC, True),
        ("cyd", DOC, False),
        ("dan", DocKey("user:dan", "own"), False),
        ("cyd", DocKey("user:cyd", "own"), True),
        ("bob", DocKey("user:cyd", "own"), False),
        ("ann", ACCESS, True),
        ("bob", ACCESS, False),
    ],
)
def test_a_commit_that_nobody_should_have_taken_is_noticed(user: str, doc: DocKey, is_allowed: bool) -> None:
    engine, oracle, trace = space(user)
    engine.submit(user, Commit(1, (Operation(doc, (replace((), PEOPLE),)),)))
    oracle.follow(engine)
    assert rules(trace) == ([] if is_allowed else ["access"])


def test_news_for_somebody_who_may_not_read_are_noticed() -> None:
    _, oracle, trace = space("cyd", "dan")
    wire = WireChecks(oracle, trace)
    wire.said(peer_of("cyd"), Sync(1, ()))
    assert rules(trace) == []
    wire.said(peer_of("dan"), Sync(1, ()))
    wire.said(peer_of("cyd"), Watched(1, 1, (State(DocKey("user:ann", "own"), 0, False),)))
    assert rules(trace) == ["access", "access"]


def test_a_verdict_that_the_log_does_not_bear_out_is_noticed() -> None:
    engine, oracle, trace = space("bob")
    engine.submit("bob", Commit(1, (Operation(DOC, (replace((), 1),)),)))
    oracle.follow(engine)
    wire, bob = WireChecks(oracle, trace), peer_of("bob")
    wire.said(bob, Verdicts((Accepted(1, 2), Rejected(2, RuleRefused("rule", "no")))))
    assert rules(trace) == []
    wire.said(bob, Verdicts((Accepted(1, 1), Accepted(2, 9), Rejected(1, RuleRefused("rule", "no")))))
    assert rules(trace) == ["C6", "C6", "C6"]


def test_a_session_on_two_connections_is_noticed() -> None:
    _, oracle, trace = space()
    WireChecks(oracle, trace).check_owners([peer_of("ann"), peer_of("bob"), peer_of("ann")])
    assert rules(trace) == ["session"]


def test_a_branch_is_known_at_every_seq_and_its_merge_is_checked() -> None:
    engine, oracle, trace = space()
    engine.submit("host", Commit(2, (Operation(DOC, (replace((), 1),)),)))
    engine.fork("b")
    engine.submit("host", Commit(3, (Operation(DOC, (replace((), 2),)),), branch="b"))
    oracle.are_branches_moving = True
    oracle.follow(engine)
    assert [oracle.value(DOC, 3, branch) for branch in ("main", "b")] == [1, 2]
    assert [oracle.written(DOC, 2, branch) for branch in ("main", "b")] == [2, 2]
    engine.merge("b")
    oracle.follow(engine)
    assert oracle.value(DOC, 4) == 2
    assert oracle.live() == ["main", "b"]
    assert rules(trace) == []


def test_a_branch_that_nobody_deleted_is_missed() -> None:
    engine, oracle, trace = space()
    engine.fork("b")
    oracle.are_branches_moving = True
    oracle.follow(engine)
    engine.delete_branch("b")
    oracle.are_branches_moving = True
    oracle.follow(engine)
    assert rules(trace) == ["C6"]
    assert oracle.gone == {"b"}
