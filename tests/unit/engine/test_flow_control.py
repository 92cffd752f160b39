"""Windows: an acknowledgement covers what came before it, and nothing that was sent since."""

from __future__ import annotations

from headwater.engine.limits import DEFAULT_LIMITS
from headwater.engine.sync.peer import Peer, SyncWindows


def test_a_late_acknowledgement_opens_the_window_for_what_it_covers_only() -> None:
    windows, peer = SyncWindows(), Peer(lambda message: None, DEFAULT_LIMITS)
    for seq in (1, 2, 2, 5):
        windows.sent(peer, seq)
    assert peer.unacked == 4
    windows.heard(peer, 0)
    assert peer.unacked == 4
    windows.heard(peer, 2)
    assert peer.unacked == 1
    windows.heard(peer, 9)
    windows.heard(peer, 9)
    assert peer.unacked == 0
    windows.forget(peer)
