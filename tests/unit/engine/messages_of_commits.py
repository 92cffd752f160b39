"""Cases for `test_error_messages`: what is said about commits, frames and sessions."""

from __future__ import annotations

from dataclasses import replace as replace_limits
from pathlib import Path

import msgspec

from headwater.clock import VirtualClock
from headwater.data.address import DocKey
from headwater.data.limits import DEFAULT_VALUE_LIMITS, ValueLimits
from headwater.data.patch import append, replace
from headwater.engine.admission.access import ACCESS
from headwater.engine.engine import Engine
from headwater.engine.limits import DEFAULT_LIMITS, Limits
from headwater.engine.observations.writer import check_names
from headwater.engine.store.sqlite import SqliteStore
from headwater.protocol.commit import (
    Commit,
    EntityAbsent,
    LeaseHeld,
    NodeResult,
    Operation,
    OriginCommitted,
    Provenance,
    SentEvent,
    decode_frame,
)
from headwater.protocol.observations import decode_about, decode_footprint
from headwater.protocol.verdict import Conflict, Rejected, RuleRefused, conflict_text
from tests.unit.engine.delivery_kit import lease_new_target
from tests.unit.engine.kit import Writer, doc, open_engine, read, write
from tests.unit.engine.messages import ann_on, case, raised, rejection

# admission and verdicts


@case("commit 2 was rejected", "space:d#/x was read at seq 1 and written at seq 2 by bob (N)", "Read again and retry.")
def stale_read(_: Path) -> str:
    engine = open_engine()
    ann = ann_on(engine, 1)
    Writer(engine, "bob").lands(write("d", replace(("x",), 9)), node="N")
    return rejection(ann.send(reads=[read("d", ("x",), seq=1)]))


@case("cannot take 'replace' now", "there is nothing to replace", "(at /y)")
def patch_that_does_not_fit(_: Path) -> str:
    return rejection(ann_on(open_engine(), 1).send(write("d", replace(("y",), 1))))


@case("it depends on commit 1 of this session, which was not accepted")
def dead_layer(_: Path) -> str:
    ann = Writer(open_engine(), "ann")
    ann.next = 2
    return rejection(ann.send(reads=[read("d", seq=0, layers=((1, 1),))]))


def wave(*results: NodeResult, derived: bool = True) -> str:
    ann = ann_on(open_engine(), 1)
    operations = tuple([write(id, replace((), 1)) for id in "abc"[: len(results)]])
    made = Commit(2, operations, provenance=Provenance(derived=derived), results=results)
    return raised(lambda: ann.engine.submit("ann", made))


@case("commit 2 is a wave, which has results, their operations and reads only")
def wave_that_is_not_derived(_: Path) -> str:
    return wave(NodeResult(Provenance(), 1), derived=False)


@case("result 1 of commit 2 writes nothing")
def result_without_operations(_: Path) -> str:
    return wave(NodeResult(Provenance(), 2), NodeResult(Provenance(), 0))


@case("result 0 of commit 2 names a read that is not in it")
def result_with_an_unknown_read(_: Path) -> str:
    return wave(NodeResult(Provenance(), 1, (0,)))


@case("result 0 of commit 2 read one that does not come before it")
def result_over_a_later_one(_: Path) -> str:
    return wave(NodeResult(Provenance(), 1, (), (0,)))


@case("commit 2 has 1 operations, and its results have 2")
def results_with_too_many_operations(_: Path) -> str:
    return wave(NodeResult(Provenance(), 2))


@case("its basis is older than the history that is kept", "Read again and retry.")
def expired_basis(_: Path) -> str:
    return conflict_text(Conflict((), (), True))


@case("commit 2 was rejected for good", "space:d was already created on branch 'main'", "Do not retry it.")
def entity_absent(_: Path) -> str:
    return rejection(ann_on(open_engine(), 1).send(preconditions=[EntityAbsent(doc("d"))]))


@case("it sends 1 events and handles 3; the limit of both is 2. Split it.")
def too_many_handled(_: Path) -> str:
    engine = open_engine(limits=Limits(commit_events=2))
    engine.open_session("ann")
    commit = Commit(1, events=(SentEvent("e", "s", None),), handled=("a", "b", "c"))
    return rejection(engine.submit("ann", commit)[0])


@case("events are asked for by times and seqs from 0 to 9007199254740991")
def events_of_no_time(_: Path) -> str:
    return raised(lambda: open_engine().events(due_by_us=-1))


@case("an observation is about no node: ")
def observation_about_nothing(_: Path) -> str:
    return raised(lambda: decode_about(b"\xc0"))


@case("the reads of an observation cannot be decoded: ")
def observation_without_reads(_: Path) -> str:
    return raised(lambda: decode_footprint(b"\xc0", DEFAULT_VALUE_LIMITS))


@case("an observation names more, or longer, than is kept of a node")
def observation_of_a_long_name(_: Path) -> str:
    return raised(lambda: check_names(("p" * 300,)))


@case("its origin, commit 7 of this session, was not accepted")
def origin_committed(_: Path) -> str:
    ann = Writer(open_engine(), "ann")
    ann.next = 8
    return rejection(ann.send(preconditions=[OriginCommitted(7)]))


@case("lease 'mail' with token 5 is no longer held: no worker holds it")
def lease_with_nobody(_: Path) -> str:
    return rejection(Writer(open_engine(), "ann").send(preconditions=[LeaseHeld("mail", 5)]))


@case("lease '$reaction:leases jobs:job' with token 5 is no longer held: another worker holds it")
def lease_with_another(_: Path) -> str:
    engine = open_engine()
    held = lease_new_target(engine)
    return rejection(Writer(engine, "ann").send(preconditions=[LeaseHeld(held.name, 5)]))


@case("commit 1 was refused", "branch 'gone' does not exist or was deleted")
def commit_to_no_branch(_: Path) -> str:
    return rejection(Writer(open_engine(), "ann").send(branch="gone"))


@case("bytes long, over the limit of 50", "Split it.")
def commit_too_long(_: Path) -> str:
    engine = open_engine(limits=Limits(commit_bytes=50))
    return rejection(Writer(engine, "ann").send(write("d", replace((), "x" * 100))))


@case("space:d has grown past 100 bytes", "Split it into several documents.")
def document_too_long(_: Path) -> str:
    engine = open_engine(limits=Limits(document_bytes=100, snapshot_patches=1))
    ann = Writer(engine, "ann")
    verdicts = [ann.send(write("d", append((), ["x" * 60]))) for _ in range(9)]
    return rejection(verdicts[-1])


@case("event 'e' was already sent by the commit at seq 1")
def event_sent_before(_: Path) -> str:
    engine = open_engine()
    engine.open_session("s")
    engine.submit("s", Commit(1, events=(SentEvent("e", "s", 1),)))
    return rejection(engine.submit("s", Commit(2, events=(SentEvent("e", "s", 1),)))[0])


@case("event 'e' was already sent by this very commit")
def event_sent_twice(_: Path) -> str:
    engine = open_engine()
    engine.open_session("s")
    return rejection(engine.submit("s", Commit(1, events=(SentEvent("e", "s", 1), SentEvent("e", "s", 2))))[0])


@case(
    "commit 1 was refused",
    "it has 2 reads and causes, 0 operations and 0 patches; the limits are 1, 10000 and 10000",
    "Split it.",
)
def many_reads(_: Path) -> str:
    engine = open_engine(limits=Limits(commit_reads=1))
    return rejection(Writer(engine, "ann").send(reads=[read("a", seq=0), read("b", seq=0)]))


@case("commit 1 was refused", "space:d cannot hold it", "the container would have 3 items, the limit is 2")
def value_past_its_limits(_: Path) -> str:
    engine = open_engine(limits=Limits(values=ValueLimits(container_items=2)))
    return rejection(Writer(engine, "ann").send(write("d", append((), [1, 2]), append((), [3]))))


@case("commit 3 was rejected: it was rejected before, and the reasons are no longer kept", "Read again and retry.")
def forgotten_conflict(_: Path) -> str:
    return rejection(Rejected(3, Conflict()))


# frames


def frame_refused(*frame: Commit, limits: Limits | None = None) -> str:
    engine = open_engine(limits=limits or Limits())
    engine.open_session("s")
    return raised(lambda: engine.submit("s", *frame))


@case("a frame holds at least one commit")
def empty_frame(_: Path) -> str:
    return frame_refused()


@case("a frame of 2 commits is over the limit of 1", "Send several.")
def long_frame(_: Path) -> str:
    return frame_refused(Commit(1), Commit(2), limits=Limits(frame_commits=1))


@case("the frame is longer than 100 bytes", "Send several.")
def frame_with_many_bytes(_: Path) -> str:
    return frame_refused(Commit(1, (write("d", replace((), "x" * 100)),)), limits=Limits(frame_bytes=100))


@case("commit 1 of session 's' comes after 2", "local_seq must rise, from 1 to 9007199254740991")
def falling_numbers(_: Path) -> str:
    return frame_refused(Commit(2), Commit(1))


@case("all commits of a frame are on one branch", "Send one frame per branch.")
def two_branches(_: Path) -> str:
    return frame_refused(Commit(1), Commit(2, branch="b"))


@case("commit 1 names a document in two operations", "Put its patches into one.")
def document_twice(_: Path) -> str:
    return frame_refused(Commit(1, (write("d", replace((), 1)), write("d", replace((), 2)))))


@case("commit 1 read space:d at seq 9, but the log ends at 0")
def read_of_the_future(_: Path) -> str:
    return frame_refused(Commit(1, reads=(read("d", seq=9),)))


@case("commit 1 names a cause that is over 256 long")
def long_cause(_: Path) -> str:
    return frame_refused(Commit(1, provenance=Provenance("n", "f", ((doc("x" * 257), ()),))))


@case("commit 1 read a document whose name is over 256 long")
def read_of_a_long_name(_: Path) -> str:
    return frame_refused(Commit(1, reads=(read("x" * 1_000, seq=0),)))


@case("commit 1 has a name or a number that cannot be written down", "surrogates not allowed")
def name_that_cannot_be_written(_: Path) -> str:
    return frame_refused(Commit(1, events=(SentEvent("\ud800", "s", 1),)))


@case("commit 1 names the layers 1 to 1", "layers are earlier commits of its own session, at most 4096 of them")
def layers_of_the_future(_: Path) -> str:
    return frame_refused(Commit(1, reads=(read("d", seq=0, layers=((1, 1),)),)))


@case("commit 2 names 2 as its origin: an origin is an earlier commit")
def origin_to_come(_: Path) -> str:
    return frame_refused(Commit(2, preconditions=(OriginCommitted(2),)))


@case("commit 1 names a lease with token -1, which none has")
def impossible_token(_: Path) -> str:
    return frame_refused(Commit(1, preconditions=(LeaseHeld("mail", -1),)))


@case("event 'e' of commit 1 is due at -1: write microseconds from 0")
def event_due_never(_: Path) -> str:
    return frame_refused(Commit(1, events=(SentEvent("e", "s", 1, -1),)))


@case("commit 1 of session 'ann' was accepted at seq 1 with other content", "byte for byte", "needs a new local_seq")
def altered_replay(_: Path) -> str:
    engine = open_engine()
    ann_on(engine, 1)
    return raised(lambda: engine.submit("ann", Commit(1)))


@case("commit 1 of session 'ann' is replayed although", "up to 3", "Its key is no longer kept.")
def replay_of_what_was_acknowledged(_: Path) -> str:
    engine = open_engine()
    ann_on(engine, 3)
    engine.acknowledge("ann", 3)
    engine.compact(3)
    return raised(lambda: engine.submit("ann", Commit(1, (write("d", replace((), {"x": 0})),))))


@case("the frame is not a sequence of commits")
def bytes_that_are_no_frame(_: Path) -> str:
    return raised(lambda: decode_frame(b"\xc1"))


@case("commit 1 holds a value no document can hold", "nested more than")
def value_that_is_none(_: Path) -> str:
    deep: object = 1
    for _level in range(100):
        deep = [deep]
    frame = [[1, [[["space", "d"], [["replace", [], deep]]]], [], [], "main", [], [], ["", "", [], False]]]
    return raised(lambda: decode_frame(msgspec.msgpack.encode(frame)))


# sessions


@case("there is no session 'ghost' in this space", "Open it first.")
def unknown_session(_: Path) -> str:
    return raised(lambda: open_engine().submit("ghost", Commit(1)))


@case("session 's' was closed", "Open a new one under another key.")
def closed_session(_: Path) -> str:
    engine = open_engine()
    engine.open_session("s")
    engine.close_session("s", 0)
    opened = raised(lambda: engine.open_session("s"))
    assert raised(lambda: engine.submit("s", Commit(1))) == opened
    return opened


@case("a session key has 1 to 256 characters, not 0")
def empty_session_key(_: Path) -> str:
    return raised(lambda: open_engine().open_session(""))


@case("session 's' is not yours, or its token was used before")
def somebody_else_s_session(_: Path) -> str:
    engine = open_engine()
    engine.open_session("s", "ann")
    return raised(lambda: engine.open_session("s", "bob"))


@case("session keys that begin with 'merge of ', 'founding of ', 'page ', 'window ' or 'beside ' are the engine's own")
def session_of_the_engine(_: Path) -> str:
    return raised(lambda: open_engine().open_session("merge of b"))


@case("session 's' is not yours, or its token was used before. Open one under another key.")
def wrong_token(_: Path) -> str:
    engine = open_engine()
    engine.resume_session("s", "ann", "", "first")
    engine.resume_session("s", "ann", "first", "second")
    return raised(lambda: engine.resume_session("s", "ann", "first", "third"))


@case("session 's' acknowledges commit -1, which cannot exist")
def impossible_acknowledgement(_: Path) -> str:
    engine = open_engine()
    engine.open_session("s")
    return raised(lambda: engine.acknowledge("s", -1))


def stocked(user: str, commit: Commit, bounds: Limits) -> str:
    """The refusal of a commit of a user, in a space with these limits."""
    engine = Engine(SqliteStore(":memory:", synchronous="OFF"), clock=VirtualClock(), limits=bounds, access=True)
    roles = {"owners": ["ann"], "writers": ["wes"], "readers": ["rob"]}
    Writer(engine, "root").lands(Operation(ACCESS, (replace((), roles),)))
    engine.open_session("s", user)
    (verdict,) = engine.submit("s", commit)
    assert isinstance(verdict, Rejected)
    assert isinstance(verdict.rejection, RuleRefused)
    return verdict.rejection.detail


STOCK = "you have as much as one user may store in this space"


@case(f"{STOCK}: 1 stored events. No more fit until some are handled.")
def more_events_than_one_user_may_store(_: Path) -> str:
    return stocked(
        "wes",
        Commit(1, events=(SentEvent("a", "s", None), SentEvent("b", "s", None))),
        replace_limits(DEFAULT_LIMITS, user_events=1),
    )


@case(f"{STOCK}: 1 events for later. No more fit until some are handled.")
def more_timers_than_one_user_may_store(_: Path) -> str:
    return stocked(
        "wes",
        Commit(1, events=(SentEvent("a", "s", None, 5), SentEvent("b", "s", None, 5))),
        replace_limits(DEFAULT_LIMITS, user_timers=1),
    )


@case(f"{STOCK}: 1 documents of a user who may only read. No more fit until you may write.")
def more_documents_than_a_reader_may_store(_: Path) -> str:
    docs = [Operation(DocKey("user:rob", name), (replace((), 1),)) for name in ("a", "b")]
    return stocked("rob", Commit(1, tuple(docs)), replace_limits(DEFAULT_LIMITS, user_documents=1))
