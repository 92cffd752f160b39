"""The host answers everything it takes in, in order, together what came together, and never more than its bound."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace as changed
from typing import Any

import pytest

from headwater.clock import VirtualClock
from headwater.data.address import Depth
from headwater.data.patch import replace
from headwater.engine.engine import Engine
from headwater.engine.limits import DEFAULT_LIMITS
from headwater.engine.store.sqlite import SqliteStore
from headwater.engine.sync.host import Host, InlineHost, ThreadHost
from headwater.engine.sync.hub import Hub
from headwater.engine.sync.peer import Peer
from headwater.errors import LimitError, StorageError
from headwater.protocol.commit import Commit, Operation, Read
from headwater.protocol.messages import (
    FromEngine,
    Open,
    Opened,
    Problem,
    Selector,
    Sync,
    Transact,
    Verdicts,
    Watch,
    Watched,
)
from headwater.protocol.verdict import Accepted
from tests.unit.runtime.kit import doc

LIMITS = changed(DEFAULT_LIMITS, backlog_frames=50)


class Ear:
    """A peer that remembers what it was told."""

    def __init__(self, key: str) -> None:
        self.told: list[FromEngine] = []
        self.peer = Peer(self.told.append, LIMITS)
        self.peer.greet("")
        self.open = Open("shop", key, "", "t")

    def verdicts(self) -> list[int]:
        return [
            v.local_seq
            for message in self.told
            if isinstance(message, Verdicts)
            for v in message.verdicts
            if isinstance(v, Accepted)
        ]


def engine() -> Engine:
    return Engine(SqliteStore(":memory:"), limits=LIMITS)


def write(local_seq: int) -> Transact:
    return Transact((Commit(local_seq, (Operation(doc(), (replace((), local_seq),)),)),))


@pytest.fixture(params=["thread", "inline"])
def host(request: pytest.FixtureRequest) -> Iterator[Host]:
    made: Host = ThreadHost(engine(), limits=LIMITS) if request.param == "thread" else InlineHost(engine())
    yield made
    made.close()


@pytest.fixture
def threaded() -> Iterator[ThreadHost]:
    made = ThreadHost(engine(), limits=LIMITS)
    yield made
    made.close()


def hold(host: ThreadHost) -> Callable[[], None]:
    """Keep the host's thread busy until the returned function is called."""
    busy, free = threading.Event(), threading.Event()

    def wait(_: Engine, __: Hub) -> None:
        busy.set()
        free.wait()

    threading.Thread(target=lambda: host.call(wait), daemon=True).start()
    busy.wait()
    return free.set


def test_messages_are_answered_in_order(host: Host) -> None:
    ear = Ear("a")
    host.post(ear.peer, ear.open)
    for n in range(1, 11):
        host.post(ear.peer, write(n))
    host.call(lambda engine, hub: None)
    assert isinstance(ear.told[0], Opened)
    assert ear.verdicts() == list(range(1, 11))


def test_a_call_runs_after_what_was_posted_and_returns_its_result(host: Host) -> None:
    ear = Ear("a")
    host.post(ear.peer, ear.open)
    host.post(ear.peer, write(1))
    assert host.call(lambda engine, hub: engine.read(doc()).value) == 1
    with pytest.raises(ZeroDivisionError):
        host.call(lambda engine, hub: 1 // 0)
    assert host.call(lambda engine, hub: hub.sessions) == 1


def test_a_lost_peer_is_told_nothing_more(host: Host) -> None:
    one, two = Ear("a"), Ear("b")
    for ear in (one, two):
        host.post(ear.peer, ear.open)
        host.post(ear.peer, Watch(1, (Selector(doc()),)))
    host.lost(one.peer)
    host.post(two.peer, write(1))
    host.call(lambda engine, hub: None)
    assert isinstance(one.told[-1], Watched)
    assert two.verdicts() == [1]


def test_what_comes_while_it_is_busy_is_processed_together(threaded: ThreadHost) -> None:
    ears = [Ear(f"s{n}") for n in range(10)]
    for ear in ears:
        threaded.post(ear.peer, ear.open)
    free = hold(threaded)
    before = threaded.batches
    for ear in ears:
        threaded.post(ear.peer, write(1))
    free()
    threaded.call(lambda engine, hub: None)
    assert threaded.batches == before + 1
    assert all(ear.verdicts() == [1] for ear in ears)


def modify(local_seq: int, basis: int) -> Transact:
    """A write of what was read at a seq."""
    read = Read(doc(), (), Depth.DEEP, basis)
    return Transact((Commit(local_seq, (Operation(doc(), (replace((), local_seq),)),), (read,)),))


@pytest.fixture
def timeless() -> Iterator[ThreadHost]:
    """Where no turn is over before it is used, however slow the machine is."""
    made = ThreadHost(engine(), limits=LIMITS, clock=VirtualClock())
    yield made
    made.close()


def test_who_has_the_turn_goes_first_and_everybody_s_own_order_stays(timeless: ThreadHost) -> None:
    threaded = timeless
    winner, loser = Ear("winner"), Ear("loser")
    for ear in (winner, loser):
        threaded.post(ear.peer, ear.open)
    threaded.call(lambda engine, hub: None)
    free = hold(threaded)
    threaded.post(winner.peer, modify(1, 0))
    threaded.post(loser.peer, modify(1, 0))
    free()
    threaded.call(lambda engine, hub: None)
    assert [message.turn for message in loser.told if isinstance(message, Sync)] == [0]
    for message in (modify(2, 1), modify(3, 1)):
        threaded.post(winner.peer, message)  # Comes first, and is still not the first.
    for message in (modify(2, 1), write(3)):
        threaded.post(loser.peer, message)
    threaded.call(lambda engine, hub: None)
    logged = threaded.call(lambda engine, hub: engine.changes().items)
    assert [f"{entry.session} {entry.commit.local_seq}" for entry in logged] == ["winner 1", "loser 2", "loser 3"]


def test_a_turn_that_nobody_uses_passes_on_without_any_message(threaded: ThreadHost) -> None:
    ears = [Ear(f"s{n}") for n in range(3)]
    for ear in ears:
        threaded.post(ear.peer, ear.open)
    threaded.call(lambda engine, hub: None)
    told = threading.Event()
    ears[2].peer.send = lambda message: told.set() if isinstance(message, Sync) and message.turn == 0 else None
    free = hold(threaded)
    for ear in ears:
        threaded.post(ear.peer, modify(1, 0))
    free()
    assert told.wait(10)  # The second had its turn before, and said nothing.
    assert [message.turn for message in ears[1].told if isinstance(message, Sync)] == [0]


def test_a_full_inbox_refuses_and_drops_nothing(threaded: ThreadHost) -> None:
    ear = Ear("a")
    threaded.post(ear.peer, ear.open)
    free = hold(threaded)
    for n in range(1, 51):
        threaded.post(ear.peer, write(n))
    with pytest.raises(LimitError, match="50 messages wait"):
        threaded.post(ear.peer, write(51))
    assert threaded.depth == 50
    free()
    threaded.call(lambda engine, hub: None)
    assert ear.verdicts() == list(range(1, 51))
    threaded.post(ear.peer, write(51))
    threaded.call(lambda engine, hub: None)
    assert ear.verdicts()[-1] == 51


def test_closing_answers_what_was_taken_in_and_refuses_the_rest() -> None:
    host = ThreadHost(engine(), limits=LIMITS)
    ear = Ear("a")
    host.post(ear.peer, ear.open)
    free = hold(host)
    for n in range(1, 41):
        host.post(ear.peer, write(n))
    closing = threading.Thread(target=host.close)
    closing.start()
    free()
    closing.join()
    assert ear.verdicts() == list(range(1, 41))
    with pytest.raises(StorageError, match="closed"):
        host.post(ear.peer, write(41))
    with pytest.raises(StorageError, match="closed"):
        host.call(lambda engine, hub: None)
    host.lost(ear.peer)
    host.close()


def test_a_bug_stops_the_host_and_everybody_is_told_to_start_over() -> None:
    failures: list[BaseException] = []
    host = ThreadHost(engine(), limits=LIMITS, on_failed=failures.append)
    ear, other = Ear("a"), Ear("b")
    for each in (ear, other):
        host.post(each.peer, each.open)
    host.call(lambda engine, hub: None)
    told = ear.told.append

    def broken(message: FromEngine) -> None:
        told(message)
        if isinstance(message, Verdicts):
            raise AssertionError("a bug")

    ear.peer.send = broken
    free = hold(host)
    host.post(ear.peer, write(1))
    errors: list[BaseException] = []

    def ask() -> None:
        try:
            host.call(lambda engine, hub: None)
        except AssertionError as error:
            errors.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    while host.depth < 2:
        pass
    free()
    asking.join()
    host.close()
    assert [str(error) for error in (*failures, *errors)] == ["a bug"] * 2
    assert isinstance(other.told[-1], Problem)
    assert isinstance(host.failed, AssertionError)
    with pytest.raises(StorageError, match="stopped"):
        host.post(other.peer, write(1))


def test_watches_of_lost_connections_end_without_any_traffic() -> None:
    clock = VirtualClock()
    limits = changed(LIMITS, session_kept_us=20_000)  # of virtual time; the thread looks every 10 ms of real time
    host = ThreadHost(Engine(SqliteStore(":memory:"), limits=limits, clock=clock), limits=limits, clock=clock)
    ear = Ear("a")
    host.post(ear.peer, ear.open)
    host.post(ear.peer, Watch(1, (Selector(doc()),)))
    host.lost(ear.peer)
    assert host.call(lambda engine, hub: hub.watched) == 1
    clock.advance(20_000)
    ended = threading.Event()
    for _ in range(500):
        if not ear.peer.watched:
            ended.set()
            break
        ended.wait(0.01)
    assert ended.is_set()
    assert host.call(lambda engine, hub: hub.watched) == 0
    host.close()


# ---- a thread that was lent ----------------------------------------------------------------------------------


class Desk:
    """An event loop's thread that does what it is asked to when it is told to."""

    def __init__(self, host: ThreadHost) -> None:
        self.asked: list[Callable[[], object]] = []
        host.lend_thread(self.asked.append)

    def work(self) -> None:
        asked, self.asked[:] = list(self.asked), []
        for do in asked:
            do()


def test_what_the_lent_thread_posts_is_processed_there_and_together(threaded: ThreadHost) -> None:
    desk, ears = Desk(threaded), [Ear(f"s{n}") for n in range(3)]
    threads: set[int] = set()

    def send_to(ear: Ear) -> Callable[[FromEngine], None]:
        def send(message: FromEngine) -> None:
            threads.add(threading.get_ident())
            ear.told.append(message)

        return send

    for ear in ears:
        ear.peer.send = send_to(ear)
        threaded.post(ear.peer, ear.open)
    desk.work()
    before = threaded.batches
    for ear in ears:
        threaded.post(ear.peer, write(1))
    assert len(desk.asked) == 1
    desk.work()
    assert threaded.batches == before + 1
    assert all(ear.verdicts() == [1] for ear in ears)
    assert threads == {threading.get_ident()}


def test_everything_else_is_done_by_the_host_s_own_thread_in_its_turn(threaded: ThreadHost) -> None:
    desk, ear = Desk(threaded), Ear("a")
    threaded.post(ear.peer, ear.open)
    threaded.post(ear.peer, write(1))
    value, thread = threaded.call(lambda engine, hub: (engine.read(doc()).value, threading.get_ident()))
    assert value == 1
    assert thread != threading.get_ident()
    assert ear.verdicts() == [1]
    desk.work()  # Too late, and that is nothing.
    assert ear.verdicts() == [1]


def test_a_lent_thread_does_not_wait_for_a_host_that_is_busy(threaded: ThreadHost) -> None:
    desk, ear = Desk(threaded), Ear("a")
    threaded.post(ear.peer, ear.open)
    desk.work()
    free = hold(threaded)
    threaded.post(ear.peer, write(1))
    desk.work()
    assert ear.verdicts() == []
    free()
    threaded.call(lambda engine, hub: None)
    assert ear.verdicts() == [1]


def test_a_slow_disk_is_waited_for_by_the_host_s_own_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = VirtualClock()
    host = ThreadHost(engine(), limits=LIMITS, clock=clock)
    desk, ear = Desk(host), Ear("a")
    host.post(ear.peer, ear.open)
    desk.work()
    process, takes_us = Hub.process, 3_000

    def slow(hub: Hub, batch: Any) -> None:
        process(hub, batch)
        clock.advance(takes_us)

    monkeypatch.setattr(Hub, "process", slow)
    local_seq = 0
    for _ in range(50):
        local_seq += 1
        host.post(ear.peer, write(local_seq))
        if not desk.asked:
            break
        desk.work()
    assert 1 < local_seq < 10  # One slow step says little, some are enough.
    takes_us = 100
    for _ in range(50):
        host.call(lambda engine, hub: None)
        local_seq += 1
        host.post(ear.peer, write(local_seq))
        if desk.asked:
            break
    assert desk.asked  # It is quick again.
    desk.work()
    host.close()
    assert ear.verdicts() == list(range(1, local_seq + 1))


def test_a_bug_on_the_lent_thread_stops_the_host_and_not_the_thread() -> None:
    failures: list[BaseException] = []
    host = ThreadHost(engine(), limits=LIMITS, on_failed=failures.append)
    desk, ear = Desk(host), Ear("a")
    host.post(ear.peer, ear.open)
    desk.work()

    def broken(message: FromEngine) -> None:
        if isinstance(message, Verdicts):
            raise AssertionError("a bug")
        ear.told.append(message)

    ear.peer.send = broken
    host.post(ear.peer, write(1))
    desk.work()
    assert [str(error) for error in failures] == ["a bug"]
    assert isinstance(ear.told[-1], Problem)
    with pytest.raises(StorageError, match="stopped"):
        host.post(ear.peer, write(2))
    host.close()


def test_what_was_left_for_a_lent_thread_that_does_not_come_is_answered_at_the_end() -> None:
    host = ThreadHost(engine(), limits=LIMITS)
    desk, ear = Desk(host), Ear("a")
    host.post(ear.peer, ear.open)
    host.post(ear.peer, write(1))
    assert desk.asked
    host.close()
    assert ear.verdicts() == [1]


def test_turns_that_the_lent_thread_gives_pass_on_by_themselves(threaded: ThreadHost) -> None:
    desk, ears = Desk(threaded), [Ear(f"s{n}") for n in range(3)]
    for ear in ears:
        threaded.post(ear.peer, ear.open)
    desk.work()
    told = threading.Event()
    ears[2].peer.send = lambda message: told.set() if isinstance(message, Sync) and message.turn == 0 else None
    for ear in ears:
        threaded.post(ear.peer, modify(1, 0))
    desk.work()
    assert told.wait(10)  # The second had its turn before, and said nothing.


def until(holds: Callable[[], bool]) -> None:
    """Wait for something that the host's own thread may do: it looks after turns, and may be doing that now."""
    ends, waiting = time.monotonic() + 10, threading.Event()
    while not holds():
        assert time.monotonic() < ends
        waiting.wait(0.001)


def test_what_is_kept_back_for_a_turn_is_judged_after_it_or_before_anything_else_is_done(timeless: ThreadHost) -> None:
    desk = Desk(timeless)
    winner, loser = Ear("winner"), Ear("loser")
    for ear in (winner, loser):
        timeless.post(ear.peer, ear.open)
    for ear in (winner, loser):
        timeless.post(ear.peer, modify(1, 0))
    desk.work()
    assert [message.turn for message in loser.told if isinstance(message, Sync)] == [0]
    timeless.post(winner.peer, modify(2, 1))
    desk.work()
    until(lambda: timeless.messages == 5 and timeless.depth == 1)  # All were taken in, and one is kept back.
    assert winner.verdicts() == [1]
    timeless.post(loser.peer, modify(2, 1))
    desk.work()
    until(lambda: [message.turn for message in winner.told if isinstance(message, Sync)][-1:] == [0])
    assert timeless.depth == 0
    assert loser.verdicts() == [2]
    assert winner.verdicts() == [1]  # It was judged, and stood on what is no more.
    timeless.post(loser.peer, modify(3, 2))
    desk.work()
    until(lambda: timeless.messages == 7 and timeless.depth == 1)
    timeless.call(lambda engine, hub: None)  # Waits for everything that came before it, and for nobody's turn.
    assert loser.verdicts() == [2, 3]
