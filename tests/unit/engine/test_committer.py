"""The committer: one thread for the engine, and frames that arrive together share a transaction."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.clock import VirtualClock
from headwater.data.patch import append, replace
from headwater.engine.commit_group import Outcome
from headwater.engine.committer import Committer, InlineCommitter, ThreadCommitter
from headwater.engine.engine import Engine
from headwater.engine.limits import Limits
from headwater.engine.store.sqlite import SqliteStore
from headwater.errors import AuthoringError, LimitError, ProtocolError, StorageError
from headwater.protocol.commit import Commit, OriginCommitted, SentEvent
from headwater.protocol.verdict import Accepted
from tests.unit.engine.faults import FaultyStore, faulty
from tests.unit.engine.kit import open_engine, value_of, write

WAIT = 30  # seconds until a hang counts as a failure; nothing takes this long


class Heard:
    """Replies, in the order in which they were called."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome | BaseException] = []
        self._arrived = threading.Condition()

    def __call__(self, outcome: Outcome | BaseException) -> None:
        with self._arrived:
            self.outcomes.append(outcome)
            self._arrived.notify_all()

    def wait_for(self, count: int) -> list[Outcome | BaseException]:
        with self._arrived:
            assert self._arrived.wait_for(lambda: len(self.outcomes) >= count, WAIT)
            return list(self.outcomes)


def frame(number: int) -> tuple[Commit]:
    return (Commit(number, (write("d", append((), [number])),)),)


@pytest.fixture(params=["inline", "thread"])
def committer(request: pytest.FixtureRequest) -> Iterator[Committer]:
    engine = open_engine()
    engine.open_session("s")
    made: Committer = InlineCommitter(engine) if request.param == "inline" else ThreadCommitter(engine)
    yield made
    made.close()


class TestEveryCommitter:
    def test_frames_are_answered_in_the_order_they_came(self, committer: Committer) -> None:
        heard = Heard()
        for number in range(1, 101):
            committer.submit("s", frame(number), heard)
        assert heard.wait_for(100) == [(Accepted(number, number),) for number in range(1, 101)]
        assert committer.call(lambda engine: value_of(engine, "d")) == tuple(range(1, 101))

    def test_a_call_runs_after_what_was_submitted_before_it(self, committer: Committer) -> None:
        heard = Heard()
        for number in range(1, 51):
            committer.submit("s", frame(number), heard)
        assert committer.call(lambda engine: engine.last_seq) == 50

    def test_a_call_that_fails_fails_at_its_caller_and_nowhere_else(self, committer: Committer) -> None:
        with pytest.raises(AuthoringError, match="is no branch name"):
            committer.call(lambda engine: engine.fork("NO"))
        assert committer.call(lambda engine: engine.last_seq) == 0

    def test_what_is_no_frame_is_answered_with_its_error(self, committer: Committer) -> None:
        heard = Heard()
        committer.submit("s", (), heard)
        committer.submit("ghost", frame(1), heard)
        committer.submit("s", frame(1), heard)
        first, second, third = heard.wait_for(3)
        assert isinstance(first, ProtocolError)
        assert isinstance(second, ProtocolError)
        assert third == (Accepted(1, 1),)


@pytest.mark.parametrize("kind", [InlineCommitter, ThreadCommitter])
def test_a_failing_disk_answers_with_the_error_and_a_replay_tells(
    kind: type[InlineCommitter] | type[ThreadCommitter], tmp_path_factory: pytest.TempPathFactory
) -> None:
    store, faults = faulty(SqliteStore(tmp_path_factory.mktemp("s") / "s.space", synchronous="OFF"))
    engine = Engine(store, clock=VirtualClock())
    engine.open_session("s")
    committer = kind(engine)
    heard = Heard()
    faults.fail_on, faults.after = "commit", True
    committer.submit("s", frame(1), heard)
    (failed,) = heard.wait_for(1)
    assert isinstance(failed, StorageError)
    committer.submit("s", frame(1), heard)
    assert heard.wait_for(2)[1] == (Accepted(1, 1, replayed=True),)
    committer.close()


class TestTheThread:
    @staticmethod
    def held(committer: ThreadCommitter) -> tuple[threading.Event, threading.Thread]:
        """Keeps the committer's thread busy until the event is set."""
        started, release = threading.Event(), threading.Event()

        def occupy(_: Engine) -> None:
            started.set()
            assert release.wait(WAIT)

        caller = threading.Thread(target=lambda: committer.call(occupy))
        caller.start()
        assert started.wait(WAIT)
        return release, caller

    def test_frames_that_arrive_while_it_is_busy_share_one_transaction(self) -> None:
        store, faults = faulty(SqliteStore(":memory:"))
        engine = Engine(store, clock=VirtualClock())
        engine.open_session("s")
        committer = ThreadCommitter(engine)
        release, caller = self.held(committer)
        faults.calls.clear()
        heard = Heard()
        for number in range(1, 65):
            committer.submit("s", frame(number), heard)
        release.set()
        caller.join(WAIT)
        heard.wait_for(64)
        assert faults.calls.count("commit") == 1
        committer.close()

    def test_a_group_is_bounded(self) -> None:
        store, faults = faulty(SqliteStore(":memory:"))
        limits = Limits(group_commits=10)
        engine = Engine(store, clock=VirtualClock(), limits=limits)
        engine.open_session("s")
        committer = ThreadCommitter(engine, limits)
        release, caller = self.held(committer)
        faults.calls.clear()
        heard = Heard()
        for number in range(1, 36):
            committer.submit("s", frame(number), heard)
        release.set()
        caller.join(WAIT)
        heard.wait_for(35)
        assert faults.calls.count("commit") == 4
        committer.close()

    def test_a_full_queue_refuses_and_drops_nothing(self) -> None:
        limits = Limits(backlog_frames=3)
        engine = open_engine(limits=limits)
        engine.open_session("s")
        committer = ThreadCommitter(engine, limits)
        release, caller = self.held(committer)
        heard = Heard()
        for number in range(1, 4):
            committer.submit("s", frame(number), heard)
        with pytest.raises(LimitError, match=r"3 frames wait for the disk, which is the limit\. Wait for verdicts"):
            committer.submit("s", frame(4), heard)
        release.set()
        caller.join(WAIT)
        assert heard.wait_for(3) == [(Accepted(n, n),) for n in (1, 2, 3)]
        committer.close()

    def test_closing_answers_everything_first_and_twice_is_harmless(self) -> None:
        engine = open_engine()
        engine.open_session("s")
        committer = ThreadCommitter(engine)
        heard = Heard()
        for number in range(1, 201):
            committer.submit("s", frame(number), heard)
        committer.close()
        committer.close()
        assert len(heard.outcomes) == 200
        with pytest.raises(StorageError, match="the committer is closed: nothing more can be submitted"):
            committer.submit("s", frame(201), heard)
        with pytest.raises(StorageError, match="the committer is closed"):
            committer.call(lambda engine: None)

    def test_a_reply_that_raises_keeps_nobody_else_from_hearing_and_closing_tells(self) -> None:
        """What the others of its group wrote is durable: they must hear, and so must who asks later."""
        engine = open_engine()
        engine.open_session("s")
        committer = ThreadCommitter(engine)
        release, caller = self.held(committer)

        def broken(_: Outcome | BaseException) -> None:
            raise RuntimeError("a bug in a reply")

        heard = Heard()
        committer.submit("s", frame(1), broken)
        committer.submit("s", frame(2), heard)
        release.set()
        caller.join(WAIT)
        assert heard.wait_for(1) == [(Accepted(2, 2),)]
        assert committer.call(lambda engine: engine.last_seq) == 2
        committer.submit("s", frame(3), heard)
        assert heard.wait_for(2)[1] == (Accepted(3, 3),)
        with pytest.raises(ExceptionGroup) as caught:
            committer.close()
        assert [str(error) for error in caught.value.exceptions] == ["a bug in a reply"]
        committer.close()

    def test_a_bug_in_the_engine_is_heard_by_its_group_by_all_who_wait_and_by_who_closes(self, tmp_path: Path) -> None:
        store, faults = faulty(SqliteStore(tmp_path / "s.space", synchronous="OFF"))
        limits = Limits(group_commits=2)
        engine = Engine(store, clock=VirtualClock(), limits=limits)
        engine.open_session("s")
        committer = ThreadCommitter(engine, limits)
        release, caller = self.held(committer)
        heard = Heard()
        for number in range(1, 6):
            committer.submit("s", frame(number), heard)
        called: list[BaseException] = []

        def call() -> None:
            try:
                committer.call(lambda engine: engine.last_seq)
            except BaseException as error:  # kept for the assertion below
                called.append(error)

        waiting = threading.Thread(target=call)
        waiting.start()
        faults.fail_on, faults.error = "append", lambda: RuntimeError("a bug")
        release.set()
        caller.join(WAIT)
        waiting.join(WAIT)
        assert [str(error) for error in heard.wait_for(5)] == ["a bug"] * 5
        assert [str(error) in ("a bug", "the committer stopped: a bug") for error in called] == [True]
        with pytest.raises(StorageError, match="the committer stopped: a bug"):
            committer.submit("s", frame(1), heard)
        with pytest.raises(StorageError, match="the committer stopped: a bug"):
            committer.call(lambda engine: None)
        with pytest.raises(RuntimeError, match="a bug"):
            committer.close()
        again = open_engine(tmp_path / "s.space")
        assert again.last_seq == 0
        again.close()

    def test_an_error_that_is_no_bug_is_answered_and_the_next_group_is_judged(self, tmp_path: Path) -> None:
        store, faults = faulty(SqliteStore(tmp_path / "s.space", synchronous="OFF"))
        engine = Engine(store, clock=VirtualClock())
        engine.open_session("s")
        committer = ThreadCommitter(engine)
        heard = Heard()
        faults.fail_on, faults.error = "begin", lambda: LimitError("too much (planted)")
        committer.submit("s", frame(1), heard)
        assert isinstance(heard.wait_for(1)[0], LimitError)
        committer.submit("s", frame(1), heard)
        assert heard.wait_for(2)[1] == (Accepted(1, 1),)
        committer.close()

    def test_a_call_gets_its_turn_while_writers_never_stop(self) -> None:
        """Writers who answer every verdict with their next commit keep more waiting than one group takes."""
        limits, most = Limits(group_commits=4), 5_000
        engine = open_engine(limits=limits)
        names = [f"w{n}" for n in range(16)]
        for name in names:
            engine.open_session(name)
        committer = ThreadCommitter(engine, limits)
        answered, submitting = threading.Event(), threading.RLock()
        sent = dict.fromkeys(names, 0)

        def go_on(name: str) -> None:
            with submitting:  # Nothing is submitted after the answer, so that the committer can be closed.
                if not answered.is_set() and sum(sent.values()) < most:
                    sent[name] += 1
                    committer.submit(name, (Commit(sent[name]),), lambda _: go_on(name))

        release, caller = self.held(committer)
        for name in names:
            go_on(name)
        landed: list[int] = []
        asker = threading.Thread(target=lambda: landed.append(committer.call(lambda engine: engine.last_seq)))
        asker.start()
        while committer.depth <= len(names):  # until the call waits behind the first commit of everybody
            asker.join(0.001)
        release.set()
        asker.join(WAIT)
        with submitting:
            answered.set()
        caller.join(WAIT)
        committer.close()
        assert landed == [len(names)]

    def test_many_callers_from_many_threads_all_get_their_own_answer(self) -> None:
        engine = open_engine()
        committer = ThreadCommitter(engine)
        results: dict[str, list[Outcome | BaseException]] = {}

        def client(name: str) -> None:
            committer.call(lambda engine: engine.open_session(name))
            heard = Heard()
            for number in range(1, 26):
                committer.submit(name, (Commit(number, (write(name, replace((), number)),)),), heard)
                heard.wait_for(number)
            results[name] = heard.outcomes

        threads = [threading.Thread(target=client, args=(f"c{n}",)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT)
        assert len(results) == 4
        for outcomes in results.values():
            numbers = [each[0].local_seq for each in outcomes if isinstance(each, tuple)]
            assert numbers == list(range(1, 26))
        committer.close()


@pytest.mark.parametrize(
    "commit",
    [
        Commit(1, preconditions=(OriginCommitted(2**64 - 1),)),
        Commit(1, events=(SentEvent("e", "s", float("nan")),)),
        Commit(1, events=(SentEvent("\ud800", "s", 1),)),
    ],
    ids=["number", "value", "name"],
)
def test_no_commit_stops_the_committer(commit: Commit) -> None:
    engine = open_engine()
    engine.open_session("s")
    committer = ThreadCommitter(engine)
    heard = Heard()
    committer.submit("s", (commit,), heard)
    committer.submit("s", (Commit(1),), heard)
    refused, landed = heard.wait_for(2)
    assert isinstance(refused, ProtocolError)
    assert landed == (Accepted(1, 1),)
    committer.close()


def test_a_planted_fault_is_of_the_kind_that_these_tests_assume() -> None:
    inner = SqliteStore(":memory:")
    store = FaultyStore(inner)
    store.fail_on = "begin"
    with pytest.raises(StorageError, match="planted"):
        store.begin()
    store.begin()
    assert store.calls == ["begin", "begin"]
