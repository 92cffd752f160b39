"""A peer: the engine's end of one connection. Its watches, the state that it was sent, the changes that it is owed.

A slow peer costs no more memory than the documents that it watches: changes that were not sent yet are merged, first by
keeping few patches for a document and few bytes in all, then by remembering only that it changed. Does no input or
output: the owner of the connection gives it a `send`, and a failure of that is this connection's alone.

`AnswerBudget` bounds the bytes of documents in one answer while they are collected. Sizes are about those of the values
in a message, and never far less. It also counts the bytes collected since messages last left, so that many answers made
together do not wait for each other in memory.

`SyncWindows` counts the Sync frames on the way to each peer. An acknowledgement covers the frames up to its seq and no
others: later frames are still on the way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum
from operator import attrgetter
from typing import Final

from headwater.data.address import DocKey
from headwater.data.patch import Patch
from headwater.data.value import size_of
from headwater.engine.limits import Limits
from headwater.errors import LimitError
from headwater.protocol.commit import MAIN
from headwater.protocol.hop_counts import hops_of_change, longest_hops
from headwater.protocol.messages import DocChange, FromEngine, Selector, Way


class AnswerBudget:
    """Bounds the bytes of one answer at a time."""

    __slots__ = ("_held", "_left", "_limit")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._left = limit
        self._held = 0

    def begin(self) -> None:
        """Collect another answer."""
        self._left = self._limit

    def take(self, size: int) -> None:
        """Count `size` bytes of the answer. LimitError: the answer has no room for them."""
        self._left -= size
        self._held += size
        if self._left < 0:
            raise LimitError(
                f"the documents of one answer are over {self._limit} bytes, which is the limit. "
                "Ask for fewer or smaller documents at once."
            )

    def is_spent(self) -> bool:
        """True if as many bytes were collected since the last call as one answer may hold. Then they are sent first."""
        if self._held < self._limit:
            return False
        self._held = 0
        return True


def size_of_patches(patches: tuple[Patch, ...]) -> int:
    """Estimate the bytes that a message needs for the patches."""
    return sum([8 + 8 * len(patch.path) + size_of(patch.arg) for patch in patches])


Send = Callable[[FromEngine], object]
_SEQ: Final = attrgetter("seq")


class PeerState(Enum):
    """The progress of a connection."""

    NEW = "new"  # has not introduced itself
    GREETED = "greeted"  # has a principal, but no session
    OPEN = "open"
    CLOSED = "closed"


class Peer:
    """One connection, and the changes that its session is owed over it."""

    __slots__ = (
        "_changes",
        "_held_bytes",
        "_limits",
        "_merged",
        "_way",
        "branch",
        "following",
        "heard_seq",
        "leaves_nothing",
        "links",
        "most_watches",
        "on_broken",
        "opens",
        "owes_seq",
        "principal",
        "send",
        "sent_seq",
        "session",
        "state",
        "unacked",
        "unsure",
        "watched",
        "watches",
        "ways",
    )

    def __init__(self, send: Send, limits: Limits, *, is_own: bool = False) -> None:
        """`is_own`: the session is in the same process as the engine."""
        self._way = send
        self.send: Send = self._sent
        self.on_broken: Callable[[Peer, Exception], object] | None = None  # called when `send` fails
        self.leaves_nothing = False  # when it is gone, its watches are not kept for the next connection
        self.state = PeerState.NEW
        self.opens = 0  # how often it has asked for its session
        self.principal = ""
        self.session = ""
        self.branch = MAIN
        self.sent_seq = 0  # the seq of the last Sync or Watched
        self.heard_seq = 0  # the last seq that the peer acknowledged
        self.unacked = 0  # Sync frames not acknowledged yet
        self.owes_seq = False  # an own commit landed: the peer must hear of its seq even if nothing it watches changed
        self.unsure: set[DocKey] = set()  # followed documents that the peer may never have been sent
        self.most_watches = limits.own_watches if is_own else limits.watches
        self.watches: dict[int, tuple[Selector, ...]] = {}
        self.following: dict[int, bool] = {}  # watches that links were followed for, and whether they still are
        self.watched: dict[DocKey, set[int]] = {}  # document -> the watches that want it
        # Targets of links from followed documents, as last sent; not kept for a document with too many.
        self.links: dict[DocKey, tuple[DocKey, ...]] = {}
        self._limits = limits
        self._changes: dict[DocKey, list[DocChange]] = {}
        self._merged: set[DocKey] = set()
        self.ways: dict[DocKey, Way] = {}  # the longest way of the merged changes, where that is known (I6)
        self._held_bytes = 0  # of the changes above, about

    def _sent(self, message: FromEngine) -> None:
        """A way to send that fails is the end of this connection, and of no other. Nothing is sent on it any more."""
        if self._way is _nowhere:
            return
        try:
            self._way(message)
        except Exception as error:
            if self.on_broken is None:
                raise
            self._way = _nowhere
            self.state = PeerState.CLOSED
            self.on_broken(self, error)

    def greet(self, principal: str) -> None:
        """Let a connection whose Hello was accepted open a session of this principal."""
        self.principal = principal
        self.state = PeerState.GREETED

    def is_closed(self) -> bool:
        return self.state is PeerState.CLOSED

    # fault peer.first_change_missed: def note_change(self, change: DocChange, heard: set = set()) -> None:
    def note_change(self, change: DocChange) -> None:
        """A watched document changed. Past the limit for one document, only the fact is kept."""
        doc = change.doc
        # fault+ peer.first_change_missed: if (self, doc) not in heard: return heard.add((self, doc))
        if doc in self._merged:
            way, before = hops_of_change(change), self.ways.get(doc)
            if way is not None and before is not None and way.hops > before.hops:
                self.ways[doc] = way
            return
        changes = self._changes.setdefault(doc, [])
        changes.append(change)
        if len(changes) > self._limits.sync_patches:
            # fault peer.changes_over_limit_dropped: changes.pop()
            self.merge_changes(doc)
            self.ways.update(longest_hops(changes))

    def count_bytes(self, size: int) -> None:
        """Count the bytes of the change just noted. Past the limit, only the changed documents are kept."""
        self._held_bytes += size
        if self._held_bytes > self._limits.sync_bytes:
            self._merged.update(self._changes)
            for changes in self._changes.values():
                self.ways.update(longest_hops(changes))
            self._changes.clear()
            self._held_bytes = 0

    def merge_changes(self, doc: DocKey) -> None:
        """Tell the document as a whole, whatever happened to it."""
        self._changes.pop(doc, None)
        self.ways.pop(doc, None)
        self._merged.add(doc)

    def forget_document(self, doc: DocKey) -> None:
        self._changes.pop(doc, None)
        self._merged.discard(doc)
        self.ways.pop(doc, None)

    def is_owed(self) -> bool:
        return bool(self._changes or self._merged or self.owes_seq)

    @property
    def held(self) -> int:
        """How many changes and documents are kept until they can be sent; `Limits.sync_patches` bounds it."""
        return sum([len(changes) for changes in self._changes.values()]) + len(self._merged)

    def take_changes(self) -> tuple[list[DocChange], list[DocKey]]:
        """Take the changes to send now: single changes in the order of the log, and documents to send as a whole."""
        changes: list[DocChange] = []
        for of_doc in self._changes.values():
            changes += of_doc
        changes.sort(key=_SEQ)
        # fault peer.merged_document_dropped: merged = sorted(self._merged)[1:]
        # fault+ peer.changes_reversed: changes.reverse()
        merged = sorted(self._merged)
        self._changes.clear()
        self._merged.clear()
        self.ways = {}  # The caller has the former ones.
        self._held_bytes = 0
        self.owes_seq = False
        return changes, merged

    def inherit(self, other: Peer) -> None:
        """Take over the watches of an earlier connection of the same session."""
        self.watches, self.watched = other.watches, other.watched
        self.links, self.following = other.links, other.following
        other.watches, other.watched, other.links, other.following = {}, {}, {}, {}


def _nowhere(_: FromEngine) -> None:
    """For a connection that broke."""


class SyncWindows:
    """The frames that peers have not acknowledged yet, by their seqs. Keeps `Peer.unacked`."""

    __slots__ = ("_sent",)

    def __init__(self) -> None:
        self._sent: dict[Peer, deque[int]] = {}  # of peers that have any

    def sent(self, peer: Peer, seq: int) -> None:
        self._sent.setdefault(peer, deque()).append(seq)
        peer.unacked += 1

    def heard(self, peer: Peer, seq: int) -> None:
        """The peer has everything up to a seq."""
        sent = self._sent.get(peer)
        while sent and sent[0] <= seq:
            sent.popleft()
            peer.unacked -= 1
        if sent is not None and not sent:
            del self._sent[peer]

    def forget(self, peer: Peer) -> None:
        self._sent.pop(peer, None)
