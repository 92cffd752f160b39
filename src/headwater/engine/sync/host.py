"""The host of a space: the one thread at a time that runs its engine and hub, and the inbox of their messages.

Messages that arrive while it is busy are processed together, so that commits share an fsync; a message that arrives
alone is processed alone, at once. The inbox is bounded: a full one refuses, it never drops. Closing answers everything
that was accepted. Peers are sent messages on the processing thread; their `send` crosses to its own thread by itself. A
peer whose `send` fails is lost, with a report, and all others go on.

Handing work to a thread costs as much as small work. A caller with an event loop may lend its thread (`lend_thread`):
messages that it posts are processed there, after everything else that the loop has read in the same turn, as long as
the disk is quick and the work is small (`Limits.loop_bytes`), which is checked first. A slow disk or a large document
must not stop an event loop: for these, and for everything else, the host has a thread of its own.

Waking the host's thread costs about as much as a small commit, so a caller of `Inbox.put` wakes it only if no other
thread is going to process the message.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

from headwater.clock import Clock, RealClock
from headwater.engine.engine import Engine
from headwater.engine.limits import DEFAULT_LIMITS, Limits
from headwater.engine.sync.hub import Hub
from headwater.engine.sync.peer import Peer, PeerState
from headwater.errors import InvariantViolation, LimitError, StorageError
from headwater.protocol.messages import FromReplica, Problem, Transact


class PeerMessage(NamedTuple):
    """A message of a peer."""

    peer: Peer
    message: FromReplica


class Lost(NamedTuple):
    """A peer's connection is gone."""

    peer: Peer


class Work(NamedTuple):
    """A function to run, and the callback for its failure."""

    run: Callable[[], None]
    fail: Callable[[BaseException], object]


Item = PeerMessage | Lost | Work | None
"""None: no more will come."""


class Inbox:
    """Any thread puts in and takes out; one thread waits."""

    __slots__ = ("_signal", "items", "lock")

    def __init__(self) -> None:
        self.lock = threading.Lock()  # held around `put` and `wake`, together with whatever they depend on
        self.items: deque[Item] = deque()
        self._signal = threading.Lock()  # free: there are messages to process
        self._signal.acquire()

    def __len__(self) -> int:
        return len(self.items)

    def put(self, item: Item) -> None:
        self.items.append(item)

    def wake(self) -> None:
        """The thread that waits looks, now or once more."""
        if self._signal.locked():
            self._signal.release()

    def wait(self, us: int) -> bool:
        """Wait until the thread is woken, or for so long. True: it was woken."""
        return self._signal.acquire(timeout=max(0, us) / 1e6)

    def take(self, most: int) -> list[Item]:
        with self.lock:
            return [self.items.popleft() for _ in range(min(len(self.items), most))]

    def take_messages(self) -> list[Item]:
        """Everything, if there is nothing but messages."""
        with self.lock:
            for item in self.items:
                if not isinstance(item, PeerMessage):
                    return []
            taken = list(self.items)
            self.items.clear()
            return taken

    def has(self, peer: Peer) -> bool:
        """True if a message of the peer is in the inbox."""
        with self.lock:
            return any(isinstance(item, PeerMessage) and item.peer is peer for item in self.items)


T = TypeVar("T")


class Host(Protocol):
    """Runs the hub of one space on behalf of many connections: on a thread (`ThreadHost`), or in each call."""

    def post(self, peer: Peer, message: FromReplica) -> None:
        """Take in a message after those before it. LimitError: too much waits, nothing was taken in."""

    def lost(self, peer: Peer) -> None:
        """Post that the connection is gone, after its earlier messages."""

    def call(self, work: Callable[[Engine, Hub], T]) -> T:
        """Run a function in its turn and return its result."""

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


class ThreadHost:
    """Runs the hub on a thread of its own, or on one that was lent."""

    __slots__ = (
        "_broken",
        "_busy",
        "_clock",
        "_closing",
        "_engine",
        "_expected",
        "_expire_at_us",
        "_failed",
        "_here",
        "_hub",
        "_inbox",
        "_is_scheduled",
        "_is_timed",
        "_limits",
        "_lock",
        "_on_failed",
        "_on_peer_failed",
        "_on_processed",
        "_peers",
        "_runner",
        "_soon",
        "_taken",
        "_thread",
        "_waits_us",
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
        on_peer_failed: Callable[[Exception], object] | None = None,
    ) -> None:
        self._engine = engine
        self._clock = clock or RealClock()
        self._limits = limits
        self._inbox = Inbox()
        self._hub = Hub(engine, self._clock, limits, keeps_time=True)
        self._hub.turns.is_coming = self._inbox.has
        self._lock = self._inbox.lock  # of the inbox, and of the fields up to `_failed`
        self._is_scheduled = False  # the thread that was lent is going to look at the inbox
        self._closing = False
        self._failed: BaseException | None = None
        self._busy = threading.Lock()  # held by the thread that processes; of all that follows
        self._runner = 0  # which one that is
        self._is_timed = False  # the host's thread wakes up in time for turns
        self._taken: deque[Item] = deque()  # out of the inbox, and not processed yet
        self._peers: dict[Peer, None] = {}  # peers that posted and are not lost
        self._broken: list[tuple[Peer, Exception]] = []  # peers whose `send` failed, and the error
        self._on_processed = on_processed or _nothing  # after each step: peers were sent all of it
        self._hub.on_answered = self._on_processed
        self._on_failed = on_failed
        self._on_peer_failed = on_peer_failed or _uncaught
        self._expire_at_us = 0
        self._expected = 0  # peers whose commits were judged together last time
        self._waits_us = 0.0  # for the disk, in one step, lately
        self._here = 0  # the lent thread, and the way to schedule a call on it
        self._soon: Callable[[Callable[[], object]], object] = _never
        self.messages = 0  # messages and batches: their quotient is the gain of group commit
        self.batches = 0
        self._thread = threading.Thread(target=self._run, name=f"headwater-host-{name}", daemon=True)
        self._thread.start()

    @property
    def depth(self) -> int:
        """How much waits now."""
        return len(self._inbox.items) + len(self._hub.turns.held)

    @property
    def last_seq(self) -> int:
        """The end of the log, for any thread: never less than a seq that was sent to a peer."""
        return self._engine.last_seq

    @property
    def failed(self) -> BaseException | None:
        """The bug or the damage that stopped this host, if one did."""
        return self._failed

    def lend_thread(self, soon: Callable[[Callable[[], object]], object]) -> None:
        """Lend the calling thread: it may process its own messages, when `soon` calls its argument."""
        with self._lock:
            self._here, self._soon = threading.get_ident(), soon

    def post(self, peer: Peer, message: FromReplica) -> None:
        """Put a message into the inbox of the space. LimitError: the inbox is full."""
        with self._lock:
            if self._failed is not None or self._closing:
                self._check_open()
            items = self._inbox.items
            if len(items) + len(self._hub.turns.held) >= self._limits.backlog_frames:
                raise LimitError(
                    f"{self.depth} messages wait for this space, which is the limit. Come back a little later."
                )
            items.append(PeerMessage(peer, message))
            if self._is_scheduled:
                return
            if self._waits_us < self._limits.slow_step_us and threading.get_ident() == self._here:
                self._is_scheduled = True
                self._soon(self._run_on_lent_thread)
            else:
                self._inbox.wake()

    def lost(self, peer: Peer) -> None:
        with self._lock:
            if not self._closing and self._failed is None:
                self._inbox.put(Lost(peer))
                self._inbox.wake()

    def call(self, work: Callable[[Engine, Hub], T]) -> T:
        if threading.get_ident() == self._runner:
            return work(self._engine, self._hub)
        done = threading.Event()
        results: list[T] = []
        errors: list[BaseException] = []

        def fail(error: BaseException) -> None:
            errors.append(error)
            done.set()

        def then(result: T) -> None:
            results.append(result)
            done.set()

        self.ask(work, then, fail)
        done.wait()
        if errors:
            raise errors[0]
        return results[0]

    def ask(
        self, work: Callable[[Engine, Hub], T], then: Callable[[T], object], fail: Callable[[BaseException], object]
    ) -> None:
        """Run a function in its turn, without waiting for it. The host's thread calls `then` or `fail` after it."""

        def run() -> None:
            try:
                result = work(self._engine, self._hub)
            except BaseException as error:  # handed to the caller
                fail(error)
            else:
                then(result)

        with self._lock:
            self._check_open()
            self._inbox.put(Work(run, fail))
            self._inbox.wake()

    def close(self) -> None:
        with self._lock:
            already, self._closing = self._closing, True
            if not already:
                self._inbox.put(None)
            self._inbox.wake()
        self._thread.join()
        if not already:
            self._engine.close()

    def _check_open(self) -> None:
        if self._failed is not None:
            raise StorageError(f"this space stopped: {self._failed}") from self._failed
        if self._closing:
            raise StorageError("this space is closed: nothing more can be sent to it")

    # ---- on the thread that was lent -------------------------------------------------------------------

    def _run_on_lent_thread(self) -> None:
        """Process the messages that have arrived, unless the host's own thread does, or has to."""
        if self._busy.acquire(blocking=False):
            try:
                self._runner = self._here
                self._is_scheduled = False  # Messages put in from now on schedule it again.
                self._taken.extend(self._inbox.take_messages())
                # fault host.any_work_on_loop: if True:
                if self._is_small():
                    self._process_taken()
            except BaseException as error:
                self._stop(error)
                if not isinstance(error, Exception):
                    raise
            finally:
                self._runner = 0
                self._busy.release()
        with self._lock:
            self._is_scheduled = False
            if (
                self._inbox.items
                or self._taken
                or self._failed is not None
                or (self._hub.due_us is not None and not self._is_timed)
            ):
                self._inbox.wake()

    def _is_small(self) -> bool:
        """True if the taken messages are little enough work for a thread that serves others."""
        left = self._limits.loop_bytes
        for item in self._taken:
            if not isinstance(item, PeerMessage):
                return False
            left -= self._hub.work_size(item.peer, item.message, left)
            if left < 0:
                return False
        return True

    # ---- on the host's own thread ----------------------------------------------------------------------

    def _run(self) -> None:
        goes_on = True
        while goes_on:
            due_us = self._hub.due_us
            self._is_timed = due_us is not None
            self._inbox.wait(due_us or self._limits.session_kept_us // 2)
            with self._busy:
                if self._failed is not None:
                    return
                self._runner = threading.get_ident()
                try:
                    goes_on = self._step()
                except BaseException as error:
                    # A bug, here or in a peer's `send`: no caller may believe that this space still answers.
                    self._stop(error)
                    return
                finally:
                    self._runner = 0

    def _step(self) -> bool:
        """Process the waiting messages, or expired times if there are none. False: the host ends."""
        self._expire()
        if not self._take():
            self._hub.process(())  # Turns pass on, and messages held back for them are sent.
            self._flush_outgoing()
        while self._taken:
            self._wait_for_group()
            if not self._process_taken():
                return False
            self._take()
        return True

    def _take(self) -> bool:
        self._taken.extend(self._inbox.take(self._limits.group_commits))
        return bool(self._taken)

    def _wait_for_group(self) -> None:
        """Wait a moment for the peers whose commits were judged together last time."""
        until_us = self._clock.monotonic_us() + self._limits.gather_us
        while len(self._taken) < self._limits.group_commits:
            here = {item.peer for item in self._taken if isinstance(item, PeerMessage)}
            left_us = until_us - self._clock.monotonic_us()
            if len(here) >= self._expected or left_us <= 0 or not self._inbox.wait(left_us):
                return
            self._take()

    # ---- on whichever thread processes -----------------------------------------------------------------

    def _process_taken(self) -> bool:
        """Process all taken items in order. Return False at the end marker of `close`."""
        batch: list[tuple[Peer, FromReplica]] = []
        while self._taken:
            item = self._taken.popleft()
            if isinstance(item, PeerMessage):
                if item.peer not in self._peers:
                    self._peers[item.peer] = None
                    item.peer.on_broken = self._mark_broken
                batch.append(item)
                continue
            if batch:
                self._taken.appendleft(item)  # its turn comes after them
                self._process(batch)
                batch = []
                continue
            self._hub.release_held()  # messages held back came before it
            if item is None:
                self._flush_outgoing()
                return False
            if isinstance(item, Work):
                item.run()
            else:
                self._peers.pop(item.peer, None)
                self._hub.lost(item.peer)
            self._flush_outgoing()
        self._process(batch)
        return True

    def _process(self, batch: list[tuple[Peer, FromReplica]]) -> None:
        if not batch:
            return
        began_us = self._clock.monotonic_us()
        self.messages += len(batch)
        self.batches += 1
        peers: set[Peer] = set()
        for peer, message in batch:
            if isinstance(message, Transact):
                peers.add(peer)
        self._expected = len(peers)
        self._hub.process(batch)
        self._flush_outgoing()
        limits = self._limits
        waited_us = self._clock.monotonic_us() - began_us - limits.message_us * len(batch)
        self._waits_us += (max(min(waited_us, limits.slow_step_us_most), 0) - self._waits_us) / 8

    def _flush_outgoing(self) -> None:
        """Send the messages of a finished step. A peer whose `send` failed is gone, and its session may come back."""
        self._on_processed()
        while self._broken:
            peer, error = self._broken.pop()
            self._peers.pop(peer, None)
            self._hub.lost(peer)
            self._on_peer_failed(error)

    def _mark_broken(self, peer: Peer, error: Exception) -> None:
        self._broken.append((peer, error))

    def _expire(self) -> None:
        now_us = self._clock.monotonic_us()
        if now_us >= self._expire_at_us:
            self._expire_at_us = now_us + self._limits.session_kept_us // 4
            self._hub.expire()

    def _stop(self, error: BaseException) -> None:
        with self._lock:
            self._failed = error
        for item in (*self._taken, *self._inbox.take(len(self._inbox))):
            if isinstance(item, Work):
                item.fail(error)
            elif isinstance(item, PeerMessage):
                self._peers[item.peer] = None
        # C6: no verdict leaves any more. All peers start over, on the state that recovery finds.
        for peer in self._peers:
            if peer.state is not PeerState.CLOSED:
                peer.send(Problem("storage", "this space stopped working; connect again"))
        try:
            self._flush_outgoing()
        finally:
            if self._on_failed is not None:
                self._on_failed(error)


def _uncaught(error: Exception) -> None:
    """Report an error that no caller waits for, like any exception that ends a thread."""
    threading.excepthook(
        threading.ExceptHookArgs((type(error), error, error.__traceback__, threading.current_thread()))
    )


def _nothing() -> None:
    """Do nothing: the peers' `send` does not buffer."""


def _never(_: Callable[[], object]) -> None:
    raise InvariantViolation("no thread was lent to this host")
