"""The host: the one thread that a space's engine and hub run on, and the inbox of everybody who talks to them.

What arrives while the thread is busy is processed together, so that commits share an fsync; what arrives alone
is processed alone, at once. The inbox is bounded: a full one refuses, it never drops. Closing answers everything
that was accepted. Peers are told on this thread; whoever gives them a way to send crosses over by itself.

Those who came together are expected to come together again, and whoever has the turn after a conflict (`engine.turns`)
is expected first: both are waited for, for a moment. Otherwise the one who just won, and is always the first to know
what it stands on, would keep all others out for ever.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final, NamedTuple, Protocol, TypeVar

from headwater.clock import Clock, RealClock
from headwater.engine.engine import Engine
from headwater.engine.hub import Hub
from headwater.engine.limits import DEFAULT_LIMITS, Limits
from headwater.engine.peer import Peer, PeerState
from headwater.engine.turns import TURN_US
from headwater.errors import LimitError, StorageError
from headwater.protocol.messages import FromReplica, Problem, Transact

T = TypeVar("T")

GATHER_US: Final = 200  # how long those who came together are waited for: about an fsync, which is what that saves


class Host(Protocol):
    """Runs the hub of one space on behalf of many connections."""

    def post(self, peer: Peer, message: FromReplica) -> None:
        """Take in a message after those before it. LimitError: too much waits, nothing was taken in."""

    def lost(self, peer: Peer) -> None:
        """The connection is gone, after what it posted before."""

    def call(self, work: Callable[[Engine, Hub], T]) -> T:
        """Run something else in its turn and return its result."""

    def close(self) -> None:
        """Answer everything taken in so far, then stop and let the store go."""


class InlineHost:
    """Runs everything at once, on the caller's thread. For the simulator, which owns time and order."""

    __slots__ = ("_engine", "_hub")

    def __init__(self, engine: Engine, *, clock: Clock | None = None, limits: Limits = DEFAULT_LIMITS) -> None:
        self._engine = engine
        self._hub = Hub(engine, clock or RealClock(), limits)

    def post(self, peer: Peer, message: FromReplica) -> None:
        self._hub.process([(peer, message)])

    def lost(self, peer: Peer) -> None:
        self._hub.lost(peer)

    def call(self, work: Callable[[Engine, Hub], T]) -> T:
        return work(self._engine, self._hub)

    def close(self) -> None:
        self._engine.close()


class _Message(NamedTuple):
    peer: Peer
    message: FromReplica


class _Lost(NamedTuple):
    peer: Peer


class _Work(NamedTuple):
    run: Callable[[], None]
    fail: Callable[[BaseException], None]


_Item = _Message | _Lost | _Work | None  # None: no more will come


class ThreadHost:
    """Runs the hub on a thread of its own."""

    __slots__ = (
        "_clock",
        "_closing",
        "_engine",
        "_expected",
        "_expire_at_us",
        "_failed",
        "_hub",
        "_inbox",
        "_limits",
        "_lock",
        "_on_failed",
        "_on_processed",
        "_peers",
        "_taken",
        "_thread",
        "batches",
        "messages",
    )

    def __init__(
        self,
        engine: Engine,
        *,
        clock: Clock | None = None,
        limits: Limits = DEFAULT_LIMITS,
        name: str = "space",
        on_processed: Callable[[], object] | None = None,
        on_failed: Callable[[BaseException], object] | None = None,
    ) -> None:
        self._engine = engine
        self._clock = clock or RealClock()
        self._limits = limits
        self._hub = Hub(engine, self._clock, limits, keeps_time=True)
        self._lock = threading.Lock()  # held while putting, so that nothing comes after the end
        self._inbox: SimpleQueue[_Item] = SimpleQueue()
        self._peers: dict[Peer, None] = {}  # those who posted and are not lost; of this thread
        self._taken: deque[_Item] = deque()  # out of the inbox, and not processed yet; of this thread
        self._closing = False
        self._failed: BaseException | None = None
        self._on_processed = on_processed or _nothing  # after each step, on this thread: peers were told all of it
        self._on_failed = on_failed
        self._expire_at_us = 0
        self._expected = 0  # peers whose commits were judged together last time
        self.messages = 0  # taken in, and in how many batches: their quotient is what group commit gained
        self.batches = 0
        self._thread = threading.Thread(target=self._run, name=f"headwater-host-{name}", daemon=True)
        self._thread.start()

    @property
    def depth(self) -> int:
        """How much waits now."""
        return self._inbox.qsize()

    @property
    def failed(self) -> BaseException | None:
        """The bug or the damage that stopped this host, if one did."""
        return self._failed

    def post(self, peer: Peer, message: FromReplica) -> None:
        with self._lock:
            self._check_open()
            if self._inbox.qsize() >= self._limits.backlog_frames:
                raise LimitError(
                    f"{self._inbox.qsize()} messages wait for this space, which is the limit. Come back a little later."
                )
            self._inbox.put(_Message(peer, message))

    def lost(self, peer: Peer) -> None:
        with self._lock:
            if not self._closing and self._failed is None:
                self._inbox.put(_Lost(peer))

    def call(self, work: Callable[[Engine, Hub], T]) -> T:
        if threading.current_thread() is self._thread:
            return work(self._engine, self._hub)
        done = threading.Event()
        results: list[T] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                results.append(work(self._engine, self._hub))
            except BaseException as error:  # handed to the caller, below
                errors.append(error)
            finally:
                done.set()

        def fail(error: BaseException) -> None:
            errors.append(error)
            done.set()

        with self._lock:
            self._check_open()
            self._inbox.put(_Work(run, fail))
        done.wait()
        if errors:
            raise errors[0]
        return results[0]

    def close(self) -> None:
        with self._lock:
            already, self._closing = self._closing, True
            if not already:
                self._inbox.put(None)
        self._thread.join()
        if not already:
            self._engine.close()

    def _check_open(self) -> None:
        if self._failed is not None:
            raise StorageError(f"this space stopped: {self._failed}") from self._failed
        if self._closing:
            raise StorageError("this space is closed: nothing more can be sent to it")

    # ---- on the host's thread --------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._step():
                pass
        except BaseException as error:
            # A bug, here or in whatever a peer sends with: nobody may believe that this space still answers.
            self._stop(error)

    def _step(self) -> bool:
        """Process what waits; wait for something if nothing does. False: this was the end."""
        self._expire()
        idle_us = TURN_US if len(self._hub.turns) else self._limits.session_kept_us // 2
        try:
            self._taken.append(self._inbox.get(timeout=idle_us / 1e6))
        except Empty:
            self._hub.process(())  # Turns pass on, and what was kept back for them is told.
            self._on_processed()
            return True
        self._gather()
        batch: list[_Message] = []
        while self._taken:
            item = self._taken.popleft()
            if isinstance(item, _Message):
                self._peers[item.peer] = None
                batch.append(item)
                continue
            if batch:
                self._taken.appendleft(item)  # its turn comes after them
                self._process(batch)
                batch = []
            elif item is None:
                return False
            elif isinstance(item, _Work):
                item.run()
                self._on_processed()
            else:
                self._peers.pop(item.peer, None)
                self._hub.lost(item.peer)
                self._on_processed()
        self._process(batch)
        return True

    def _gather(self) -> None:
        """Take what has arrived, and wait a moment for those who are about to come."""
        most = self._limits.group_commits
        # This thread alone takes out, so that what is counted is there.
        for _ in range(min(self._inbox.qsize(), most)):
            self._taken.append(self._inbox.get_nowait())
        now_us = self._clock.monotonic_us()
        holders = [(peer, until_us) for peer, until_us in self._hub.turns.holders() if until_us > now_us]
        until_us = now_us + GATHER_US
        while len(self._taken) < most:
            here = {item.peer for item in self._taken if isinstance(item, _Message)}
            absent = [until for peer, until in holders if peer not in here]
            if not absent and (holders or len(here) >= self._expected):
                return
            left_us = (max(absent) if absent else until_us) - self._clock.monotonic_us()
            try:
                self._taken.append(self._inbox.get(timeout=max(left_us, 0) / 1e6))
            except Empty:
                return

    def _process(self, batch: list[_Message]) -> None:
        if batch:
            self.messages += len(batch)
            self.batches += 1
            self._expected = len({item.peer for item in batch if isinstance(item.message, Transact)})
            self._hub.process([(item.peer, item.message) for item in self._in_turn(batch)])
            self._on_processed()

    def _in_turn(self, batch: list[_Message]) -> list[_Message]:
        """Whoever has a turn goes first. The messages of one peer stay in their order."""
        holders = {peer for peer, _ in self._hub.turns.holders()}
        if holders:
            batch.sort(key=lambda item: item.peer not in holders)  # stable
        return batch

    def _expire(self) -> None:
        now_us = self._clock.monotonic_us()
        if now_us >= self._expire_at_us:
            self._expire_at_us = now_us + self._limits.session_kept_us // 4
            self._hub.expire()

    def _stop(self, error: BaseException) -> None:
        with self._lock:
            self._failed = error
            left = [self._inbox.get_nowait() for _ in range(self._inbox.qsize())]
        for item in (*self._taken, *left):
            if isinstance(item, _Work):
                item.fail(error)
            elif isinstance(item, _Message):
                self._peers[item.peer] = None
        # C6: no verdict leaves any more. Everybody starts over, on whatever recovery finds.
        for peer in self._peers:
            if peer.state is not PeerState.CLOSED:
                peer.send(Problem("storage", "this space stopped working; connect again"))
        try:
            self._on_processed()
        finally:
            if self._on_failed is not None:
                self._on_failed(error)


def _nothing() -> None:
    """For peers that are told at once."""
