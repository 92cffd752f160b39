"""Frames and groups: what is no frame, what shares a transaction, and what is stored beside the documents."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.clock import VirtualClock
from headwater.data.codec import decode
from headwater.data.patch import append, replace
from headwater.engine.engine import Engine
from headwater.engine.limits import Limits
from headwater.engine.store.sqlite import SqliteStore
from headwater.errors import LimitError, ProtocolError
from headwater.protocol.commit import (
    Commit,
    LeaseHeld,
    OriginCommitted,
    Precondition,
    SentEvent,
    TopicRecord,
    decode_frame,
    encode_frame,
)
from headwater.protocol.verdict import Accepted, Rejected, RuleRefused
from tests.unit.engine.kit import Writer, open_engine, read, value_of, write


@pytest.fixture
def engine() -> Engine:
    engine = open_engine()
    engine.open_session("s")
    return engine


class TestWhatIsNoFrame:
    """Such a frame changes nothing, uses up no number, and leaves the rest of its group alone."""

    def refused(self, engine: Engine, *frame: Commit, session: str = "s") -> str:
        Writer(engine, "other")
        outcomes = engine.submit_group([(session, frame), ("other", (Commit(1, (write("beside", replace((), 1)),)),))])
        assert outcomes[1] == (Accepted(1, 1),)
        assert isinstance(outcomes[0], ProtocolError | LimitError)
        with pytest.raises(type(outcomes[0])):
            engine.submit(session, *frame)
        assert (engine.last_seq, value_of(engine, "beside")) == (1, 1)
        return str(outcomes[0])

    def test_an_empty_one(self, engine: Engine) -> None:
        assert self.refused(engine) == "a frame holds at least one commit"

    def test_one_with_too_many_commits(self) -> None:
        engine = open_engine(limits=Limits(frame_commits=3))
        engine.open_session("s")
        frame = [Commit(n) for n in range(1, 5)]
        assert self.refused(engine, *frame) == "a frame of 4 commits is over the limit of 3. Send several."
        assert len(engine.submit("s", *frame[:3])) == 3

    def test_one_with_too_many_bytes_for_one_row_of_the_log(self) -> None:
        engine = open_engine(limits=Limits(frame_bytes=250))
        engine.open_session("s")
        frame = [Commit(n, (write("d", append((), ["x" * 60])),)) for n in range(1, 5)]
        assert self.refused(engine, *frame) == "the frame is longer than 250 bytes. Send several."
        engine.submit("s", *frame[:2])
        # What is known already is not written again, so a long frame of replays is answered.
        outcome = engine.submit("s", *frame[:3])
        assert [v.replayed for v in outcome if isinstance(v, Accepted)] == [True, True, False]

    def test_numbers_that_do_not_rise(self, engine: Engine) -> None:
        says = self.refused(engine, Commit(2), Commit(2))
        assert says.startswith("commit 2 of session 's' comes after 2: local_seq must rise, from 1")

    @pytest.mark.parametrize("number", [0, -1, 2**53, 2**63])
    def test_numbers_out_of_range(self, engine: Engine, number: int) -> None:
        assert f"commit {number} of session 's'" in self.refused(engine, Commit(number))

    def test_commits_on_two_branches(self, engine: Engine) -> None:
        says = self.refused(engine, Commit(1), Commit(2, branch="b"))
        assert says == "all commits of a frame are on one branch. Send one frame per branch."

    def test_one_document_in_two_operations(self, engine: Engine) -> None:
        twice = Commit(1, (write("d", replace((), 1)), write("d", replace((), 2))))
        assert self.refused(engine, twice) == ("commit 1 names a document in two operations. Put its patches into one.")

    def test_a_read_of_the_future(self, engine: Engine) -> None:
        says = self.refused(engine, Commit(1, reads=(read("d", seq=7),)))
        assert says == "commit 1 read space:d at seq 7, but the log ends at 0"

    def test_more_layers_than_allowed(self) -> None:
        engine = open_engine(limits=Limits(read_layers=3))
        engine.open_session("s")
        says = self.refused(engine, Commit(9, reads=(read("d", seq=0, layers=((1, 2), (4, 5))),)))
        assert "commit 9 names the layers 4 to 5: layers are earlier commits of its own session, at most 3" in says

    def test_an_event_due_at_no_time(self, engine: Engine) -> None:
        for due in (-1, 2**63):
            with pytest.raises(ProtocolError, match=f"event 'e' of commit 1 is due at {due}: write microseconds"):
                engine.submit("s", Commit(1, events=(SentEvent("e", "s", 1, due),)))

    @pytest.mark.parametrize(
        ("condition", "says"),
        [
            (OriginCommitted(2**64 - 1), "commit 2 names 18446744073709551615 as its origin: an origin is an earlier"),
            (OriginCommitted(2), "commit 2 names 2 as its origin"),
            (OriginCommitted(0), "commit 2 names 0 as its origin"),
            (OriginCommitted(-(2**63)), "commit 2 names -9223372036854775808 as its origin"),
            (LeaseHeld("l", 2**64 - 1), "commit 2 names a lease with token 18446744073709551615, which none has"),
            (LeaseHeld("l", -1), "commit 2 names a lease with token -1, which none has"),
        ],
    )
    def test_a_precondition_with_a_number_that_nothing_has(
        self, engine: Engine, condition: Precondition, says: str
    ) -> None:
        """Every number of a commit is checked at the door, since the store cannot even look such a one up."""
        from_a_wire = decode_frame(encode_frame((Commit(2, preconditions=(condition,)),)))
        assert says in self.refused(engine, *from_a_wire)

    def test_a_session_nobody_opened(self, engine: Engine) -> None:
        assert "there is no session 'ghost'" in self.refused(engine, Commit(1), session="ghost")


class TestSizes:
    """What is too large is refused alone: the wave around it lands."""

    @pytest.mark.parametrize("reads", [0, 3])
    def test_a_commit_with_more_reads_or_operations_than_allowed_is_refused_and_its_wave_lands(
        self, reads: int
    ) -> None:
        engine = open_engine(limits=Limits(commit_reads=2, commit_operations=2, commit_patches=3))
        engine.open_session("s")
        large = Commit(
            2,
            tuple(write(f"d{n}", replace((), n)) for n in range(3 - reads)),
            tuple(read(f"d{n}", seq=0) for n in range(reads)),
        )
        verdicts = engine.submit("s", Commit(1), large, Commit(3))
        others = 3 - reads
        size = f"it has {reads} reads and causes, {others} operations and {others} patches"
        detail = f"{size}; the limits are 2, 2 and 3. Split it."
        assert verdicts == (Accepted(1, 1), Rejected(2, RuleRefused("commit_size", detail)), Accepted(3, 2))
        assert engine.documents("space").items == ()

    def test_patches_are_counted_over_all_operations(self) -> None:
        engine = open_engine(limits=Limits(commit_patches=3))
        ann = Writer(engine, "ann")
        two, one = [append((), [n]) for n in range(2)], append((), [9])
        ann.lands(write("a", *two), write("b", one))
        verdict = ann.send(write("a", *two), write("b", *two))
        assert isinstance(verdict, Rejected)
        assert isinstance(verdict.rejection, RuleRefused)
        assert verdict.rejection.rule == "commit_size"
        assert (value_of(engine, "a"), value_of(engine, "b")) == ((0, 1), (9,))

    def test_exactly_as_many_as_allowed_land(self) -> None:
        engine = open_engine(limits=Limits(commit_reads=2, commit_operations=2))
        ann = Writer(engine, "ann")
        ann.lands(write("a", replace((), 1)), write("b", replace((), 1)), reads=[read("a", seq=0), read("b", seq=0)])


class TestTime:
    def test_a_commit_s_time_never_goes_back_although_the_clock_was_set_back(self, tmp_path: Path) -> None:
        path, later, earlier = tmp_path / "s.space", 10**15, 10**14
        engine = open_engine(path, clock=VirtualClock(start_us=later))
        Writer(engine, "a").lands(write("d", replace((), 1)))
        engine.close()
        clock = VirtualClock(start_us=earlier)
        engine = open_engine(path, clock=clock)
        ann = Writer(engine, "b")
        ann.lands(write("d", replace((), 2)))
        ann.lands(write("d", replace((), 3)))
        clock.advance(later)
        ann.lands(write("d", replace((), 4)))
        assert [change.at_us for change in engine.changes().items] == [later, later, later, earlier + later]


class TestGroups:
    def test_later_frames_see_earlier_ones(self, engine: Engine) -> None:
        batch = [("s", (Commit(n, (write("d", append((), [n])),)),)) for n in range(1, 5)]
        engine.submit_group(batch)
        assert value_of(engine, "d") == (1, 2, 3, 4)

    def test_all_of_a_group_happened_at_one_time_and_time_goes_on(self) -> None:
        clock = VirtualClock()
        engine = open_engine(clock=clock)
        for name in ("a", "b"):
            engine.open_session(name)
        engine.submit_group([(name, (Commit(1, (write(name, replace((), 1)),)),)) for name in ("a", "b")])
        clock.advance(1_000)
        engine.submit("a", Commit(2, (write("a", replace((), 2)),)))
        times = [change.at_us for change in engine.changes().items]
        assert times == [clock.now_us() - 1_000, clock.now_us() - 1_000, clock.now_us()]

    def test_a_group_of_nothing_is_nothing(self, engine: Engine) -> None:
        assert engine.submit_group([]) == []
        assert engine.last_seq == 0

    def test_a_group_in_which_everything_is_rejected_writes_nothing(self, engine: Engine) -> None:
        outcomes = engine.submit_group([("s", (Commit(1, (write("d", replace(("x",), 1)),)),))])
        assert isinstance(outcomes[0], tuple)
        assert isinstance(outcomes[0][0], Rejected)
        assert engine.changes().items == ()

    def test_one_transaction_serves_the_whole_group(self) -> None:
        store = SqliteStore(":memory:")
        engine = Engine(store, clock=VirtualClock())
        writers = [Writer(engine, f"w{n}") for n in range(20)]
        for writer in writers:
            writer.lands(write(writer.key, replace((), 0)))
        before = store.visited.statements
        engine.submit_group([(w.key, [w.commit(write(w.key, replace((), 1)))]) for w in writers])
        statements = store.visited.statements - before
        assert statements <= 3 * 20 + 4  # a savepoint, its release and a row each; begin, commit and the heads


class TestEventsAndRecords:
    @pytest.fixture
    def store(self) -> SqliteStore:
        return SqliteStore(":memory:")

    @pytest.fixture
    def engine(self, store: SqliteStore) -> Engine:
        engine = Engine(store, clock=VirtualClock())
        engine.open_session("s")
        return engine

    def test_they_are_stored_with_the_seq_of_their_commit(self, engine: Engine, store: SqliteStore) -> None:
        payload = {"line": ["tea", 1], "raw": b"\x00"}
        engine.submit("s", Commit(1, (write("d", replace((), 1)),)))
        engine.submit(
            "s",
            Commit(
                2,
                events=(SentEvent("e1", "Cart.add", payload, 99),),
                records=(TopicRecord("orders", "ann", 1), TopicRecord("orders", "bob", 2)),
            ),
        )
        event = store.event("e1")
        assert event is not None
        assert (event.seq, event.stream, event.due_us) == (2, "Cart.add", 99)
        assert decode(event.payload) == {"line": ("tea", 1), "raw": b"\x00"}
        assert [(r.seq, r.ordinal, r.key, decode(r.payload)) for r in store.records_after("orders", (0, 0), 9)] == [
            (2, 0, "ann", 1),
            (2, 1, "bob", 2),
        ]

    def test_an_event_id_is_sent_once(self, engine: Engine, store: SqliteStore) -> None:
        engine.submit("s", Commit(1, events=(SentEvent("e1", "s", 1),)))
        verdict = engine.submit("s", Commit(2, (write("d", replace((), 1)),), events=(SentEvent("e1", "s", 2),)))[0]
        assert verdict == Rejected(2, RuleRefused("event_id", "event 'e1' was already sent by the commit at seq 1"))
        assert not value_of(engine, "d")

    def test_an_event_id_is_sent_once_within_one_commit_too(self, engine: Engine, store: SqliteStore) -> None:
        twice = Commit(1, events=(SentEvent("e1", "s", 1), SentEvent("e1", "s", 2)))
        verdict = engine.submit("s", twice)[0]
        assert verdict == Rejected(1, RuleRefused("event_id", "event 'e1' was already sent by this very commit"))
        assert store.event("e1") is None

    def test_an_event_id_is_sent_once_within_one_wave_too(self, engine: Engine) -> None:
        wave = [Commit(n, events=(SentEvent("e1", "s", n),)) for n in (1, 2)]
        assert [isinstance(verdict, Accepted) for verdict in engine.submit("s", *wave)] == [True, False]

    def test_a_rejected_commit_sends_nothing(self, engine: Engine, store: SqliteStore) -> None:
        doomed = Commit(
            1,
            (write("d", replace(("x",), 1)),),
            events=(SentEvent("e1", "s", 1),),
            records=(TopicRecord("t", "k", 1),),
        )
        assert isinstance(engine.submit("s", doomed)[0], Rejected)
        assert store.event("e1") is None
        assert store.records_after("t", (0, -1), 9) == []
