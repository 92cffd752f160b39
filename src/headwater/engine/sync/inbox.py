"""The inbox of a host: what arrived for a space, in order, and a thread that can wait for it.

Whoever puts something in says whether the waiting thread has to look: waking it costs about as much as a small commit,
and is not needed if somebody else is going to look. Never decides what is done with it, nor how much there may be.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from headwater.engine.sync.connection import Peer
from headwater.protocol.messages import FromReplica


class Message(NamedTuple):
    """What a peer said."""

    peer: Peer
    message: FromReplica


class Lost(NamedTuple):
    """A peer's connection is gone."""

    peer: Peer


class Work(NamedTuple):
    """Something else to do, for somebody who waits for it."""

    run: Callable[[], None]
    fail: Callable[[BaseException], object]


Item = Message | Lost | Work | None
"""None: no more will come."""


class Inbox:
    """Any thread puts in and takes out; one thread waits."""

    __slots__ = ("_items", "_signal", "lock")

    def __init__(self) -> None:
        self.lock = threading.Lock()  # held around `put` and `wake`, together with whatever they depend on
        self._items: deque[Item] = deque()
        self._signal = threading.Lock()  # free: there is something to look at
        self._signal.acquire()

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: Item) -> None:
        self._items.append(item)

    def wake(self) -> None:
        """The thread that waits looks, now or once more."""
        if self._signal.locked():
            self._signal.release()

    def wait(self, us: int) -> bool:
        """Until somebody wakes this thread, or for so long. Answers whether somebody did."""
        return self._signal.acquire(timeout=max(0, us) / 1e6)

    def take(self, most: int) -> list[Item]:
        with self.lock:
            return [self._items.popleft() for _ in range(min(len(self._items), most))]

    def take_messages(self) -> list[Item]:
        """Everything, if there is nothing but messages."""
        with self.lock:
            if not all(isinstance(item, Message) for item in self._items):
                return []
            taken = list(self._items)
            self._items.clear()
            return taken

    def has(self, peer: Peer) -> bool:
        """Whether something that a peer said is in here."""
        with self.lock:
            return any(isinstance(item, Message) and item.peer is peer for item in self._items)
