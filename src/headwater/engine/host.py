"""The host: the one thread that a space's engine and hub run on, and the inbox of everybody who talks to them.

What arrives while the thread is busy is processed together, so that commits share an fsync; what arrives alone
is processed alone, at once. The inbox is bounded: a full one refuses, it never drops. Closing answers everything
that was accepted. Peers are told on this thread; whoever gives them a way to send crosses over by itself.

Whoever lost a conflict goes first in what is processed together, and while somebody has, what comes together is given a
moment to do so. Otherwise one fast writer, always the first to know what it stands on, keeps all others out for ever.
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
from headwater.errors import LimitError, StorageError
from headwater.protocol.messages import FromReplica, Problem

T = TypeVar("T")

CONTENDED_US: Final = 50_000  # how long after a conflict others may still come back for the same
CONTENDED_WAIT_S: Final = 0.000_15  # how long what comes together is waited for then: about a round trip


class Host(Protocol):
    """Runs the hub of one space on behalf of many connections."""

    def post(self, peer: Peer, message: FromReplica, behind: int = 0) -> None:
        """Take in a message in its turn. LimitError: too much waits, nothing was taken in.

        `behind` says how often in a row the peer's commits were rejected for being stale.
        """

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

    def post(self, peer: Peer, message: FromReplica, behind: int = 0) -> None:
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
    behind: int


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
        "_contended_until_us",
        "_engine",
        "_expire_at_us",
        "_failed",
        "_hub",
        "_inbox",
        "_limits",
        "_lock",
        "_moment",
        "_on_failed",
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
        on_failed: Callable[[BaseException], object] | None = None,
    ) -> None:
        self._engine = engine
        self._clock = clock or RealClock()
        self._limits = limits
        self._hub = Hub(engine, self._clock, limits)
        self._lock = threading.Lock()  # held while putting, so that nothing comes after the end
        self._inbox: SimpleQueue[_Item] = SimpleQueue()
        self._peers: dict[Peer, None] = {}  # those who posted and are not lost; of this thread
        self._taken: deque[_Item] = deque()  # out of the inbox, and not processed yet; of this thread
        self._closing = False
        self._failed: BaseException | None = None
        self._on_failed = on_failed
        self._expire_at_us = 0
        self._contended_until_us = 0
        self._moment = threading.Event()  # never set: waiting for it is waiting
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

    def post(self, peer: Peer, message: FromReplica, behind: int = 0) -> None:
        with self._lock:
            self._check_open()
            if self._inbox.qsize() >= self._limits.backlog_frames:
                raise LimitError(
                    f"{self._inbox.qsize()} messages wait for this space, which is the limit. Come back a little later."
                )
            self._inbox.put(_Message(peer, message, behind))

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
        try:
            self._taken.append(self._inbox.get(timeout=self._limits.session_kept_us / 2_000_000))
        except Empty:
            return True
        if self._contended_until_us > self._clock.monotonic_us():
            self._moment.wait(CONTENDED_WAIT_S)
        # This thread alone takes out, so that what is counted is there.
        for _ in range(min(self._inbox.qsize(), self._limits.group_commits)):
            self._taken.append(self._inbox.get_nowait())
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
            else:
                self._peers.pop(item.peer, None)
                self._hub.lost(item.peer)
        self._process(batch)
        return True

    def _process(self, batch: list[_Message]) -> None:
        if batch:
            self.messages += len(batch)
            self.batches += 1
            self._hub.process([(item.peer, item.message) for item in self._fairly(batch)])

    def _fairly(self, batch: list[_Message]) -> list[_Message]:
        """Who lost most goes first. The messages of one peer stay in their order."""
        behind: dict[Peer, int] = {}
        for item in batch:
            behind[item.peer] = max(behind.get(item.peer, 0), item.behind)
        if any(behind.values()):
            self._contended_until_us = self._clock.monotonic_us() + CONTENDED_US
            batch.sort(key=lambda item: -behind[item.peer])  # stable
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
        if self._on_failed is not None:
            self._on_failed(error)
