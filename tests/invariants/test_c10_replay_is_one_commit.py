"""C10: a commit sent twice is one commit; the same key with other content is a protocol error.

Replay is looked up before preconditions.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.clock import VirtualClock
from headwater.data.patch import append, replace
from headwater.engine import Engine, Limits
from headwater.engine.store.sqlite import SqliteStore
from headwater.errors import ProtocolError
from headwater.protocol.commit import (
    Commit,
    EntityAbsent,
    LeaseHeld,
    Provenance,
    SentEvent,
    TopicRecord,
    decode_frame,
    encode_frame,
)
from headwater.protocol.verdict import Accepted, PreconditionFailed, Rejected
from tests.unit.engine.delivery_kit import lease_new_target
from tests.unit.engine.kit import Writer, doc, open_engine, read, value_of, write


@pytest.fixture(params=["warm", "evicted", "restarted"])
def engines(request: pytest.FixtureRequest, tmp_path: Path) -> Engine:
    """An engine in which s has sent commit 1, in three states of memory."""
    limits = Limits(session_commits=1, cached_sessions=1, cache_bytes=1)
    engine = open_engine(tmp_path / "s.space", limits=Limits() if request.param == "warm" else limits)
    engine.open_session("s")
    assert engine.submit("s", FIRST)[0] == Accepted(1, 1)
    if request.param == "evicted":
        for number in range(2, 6):
            engine.submit("s", Commit(number, (write("e", append((), [number])),)))
        Writer(engine, "t").lands(write("e", append((), ["t"])))
    if request.param == "restarted":
        engine.close()
        engine = open_engine(tmp_path / "s.space", limits=limits)
    return engine


FIRST = Commit(
    1,
    (write("d", append((), [1])),),
    (read("d", seq=0),),
    (EntityAbsent(doc("d")),),
    events=(SentEvent("e1", "stream", {"n": 1}),),
    records=(TopicRecord("topic", "k", 1),),
    provenance=Provenance("Cart.add", "f1", ((doc("d"), ("x",)),)),
)


def test_sending_it_again_answers_with_the_first_seq_and_changes_nothing(engines: Engine) -> None:
    before = engines.last_seq
    assert engines.submit("s", FIRST)[0] == Accepted(1, 1, replayed=True)
    assert (engines.last_seq, value_of(engines, "d")) == (before, (1,))


def test_the_receipt_s_own_precondition_does_not_refuse_its_replay(engines: Engine) -> None:
    """`entity_absent` is false by now, because of this very commit: replay is looked up first."""
    assert isinstance(engines.submit("s", FIRST)[0], Accepted)
    second = engines.submit("s", Commit(9, preconditions=(EntityAbsent(doc("d")),)))[0]
    assert isinstance(second, Rejected)
    assert isinstance(second.rejection, PreconditionFailed)


@pytest.mark.parametrize(
    "altered",
    [
        Commit(1, (write("d", append((), [2])),), FIRST.reads, FIRST.preconditions),
        Commit(1, FIRST.operations),
        Commit(1, FIRST.operations, FIRST.reads, FIRST.preconditions, branch="dev"),
        Commit(1),
    ],
    ids=["other-operation", "fewer-reads", "other-branch", "empty"],
)
def test_the_same_key_with_other_content_is_a_protocol_error(engines: Engine, altered: Commit) -> None:
    before = engines.last_seq
    with pytest.raises(ProtocolError, match="commit 1 of session 's' was accepted at seq 1 with other"):
        engines.submit("s", altered)
    assert (engines.last_seq, value_of(engines, "d")) == (before, (1,))


def test_what_travelled_over_a_wire_is_the_same_commit(engines: Engine) -> None:
    assert engines.submit("s", *decode_frame(encode_frame([FIRST])))[0] == Accepted(1, 1, replayed=True)


def test_the_same_number_of_another_session_is_another_commit(engines: Engine) -> None:
    engines.open_session("other")
    verdict = engines.submit("other", Commit(1, (write("d", append((), [1])),)))[0]
    assert isinstance(verdict, Accepted)
    assert not verdict.replayed
    assert value_of(engines, "d") == (1, 1)


def test_a_wave_may_repeat_what_is_known_and_go_on() -> None:
    engine = open_engine()
    writer = Writer(engine, "s")
    wave = [writer.commit(write("d", append((), [n]))) for n in range(1, 6)]
    engine.submit("s", *wave[:3])
    verdicts = engine.submit("s", *wave)
    assert verdicts == (
        Accepted(1, 1, replayed=True),
        Accepted(2, 2, replayed=True),
        Accepted(3, 3, replayed=True),
        Accepted(4, 4),
        Accepted(5, 5),
    )
    assert value_of(engine, "d") == (1, 2, 3, 4, 5)


def test_a_long_wave_is_found_again_without_reading_it_once_per_commit(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.space", synchronous="OFF")
    engine = Engine(store, clock=VirtualClock(), limits=Limits(session_commits=1))
    writer = Writer(engine, "s")
    wave = [writer.commit(write("d", append((), [n]))) for n in range(200)]
    engine.submit("s", *wave)
    before = store.visited.rows
    verdicts = engine.submit("s", *wave)
    assert verdicts == tuple(Accepted(n, n, replayed=True) for n in range(1, 201))
    assert store.visited.rows - before <= 4
    engine.close()


def test_a_wave_with_one_altered_commit_changes_nothing_at_all() -> None:
    engine = open_engine()
    writer = Writer(engine, "s")
    wave = [writer.commit(write("d", append((), [n]))) for n in range(1, 4)]
    engine.submit("s", *wave[:2])
    altered = Commit(2, (write("d", append((), ["other"])),))
    with pytest.raises(ProtocolError):
        engine.submit("s", wave[0], altered, wave[2])
    assert value_of(engine, "d") == (1, 2)


def test_sending_twice_in_one_group_is_one_commit_too() -> None:
    engine = open_engine()
    engine.open_session("s")
    commit = Commit(1, (write("d", append((), [1])),))
    outcomes = engine.submit_group([("s", [commit]), ("s", [commit])])
    assert outcomes == [(Accepted(1, 1),), (Accepted(1, 1, replayed=True),)]
    assert value_of(engine, "d") == (1,)


def test_a_rejected_commit_is_rejected_again_although_it_would_fit_now() -> None:
    engine = open_engine()
    engine.open_session("s")
    commit = Commit(1, preconditions=(LeaseHeld("$reaction:leases jobs:job", 2**32 + 1),))
    first = engine.submit("s", commit)
    assert isinstance(first[0], Rejected)
    assert (lease_new_target(engine, "job"),) == commit.preconditions
    assert engine.submit("s", commit) == first


def test_a_commit_without_effect_is_replayed_like_any_other(tmp_path: Path) -> None:
    """A redelivery is recognised even when all its writes would have been no-ops."""
    engine = open_engine(tmp_path / "s.space")
    engine.open_session("s")
    commit = Commit(1, (write("d", replace((), 1)),))
    nothing = Commit(2, (write("d", replace((), 1)),), preconditions=(EntityAbsent(doc("r")),))
    empty = Commit(3)
    engine.submit("s", commit, nothing, empty)
    engine.close()
    engine = open_engine(tmp_path / "s.space")
    assert [engine.submit("s", each)[0] for each in (commit, nothing, empty)] == [
        Accepted(n, n, replayed=True) for n in (1, 2, 3)
    ]


def test_a_replay_on_a_deleted_branch_still_gets_its_answer() -> None:
    engine = open_engine()
    engine.open_session("s")
    engine.fork("dev")
    commit = Commit(1, (write("d", replace((), 1)),), branch="dev")
    engine.submit("s", commit)
    engine.delete_branch("dev")
    assert engine.submit("s", commit)[0] == Accepted(1, 1, replayed=True)
