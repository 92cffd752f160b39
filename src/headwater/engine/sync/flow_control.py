"""Windows: how many Sync frames are on the way to each peer.

An acknowledgement covers the frames up to its seq and no others: what was sent since is still on the way. Never decides
how many there may be.
"""

from __future__ import annotations

from collections import deque

from headwater.engine.sync.connection import Peer


class Windows:
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
