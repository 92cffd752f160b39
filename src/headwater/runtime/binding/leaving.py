"""Leaving: a runtime that is about to close says which of its pieces are clean, for whoever opens them next.

What cannot be said of a piece any more is taken back. Decides nothing about single nodes, and runs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headwater.runtime.binding import whole

if TYPE_CHECKING:
    from headwater.runtime.binding.home import Home
    from headwater.runtime.binding.resuming import Resuming

FAR: Final = 100
"""Commits after which it is said anew that a piece is clean, so that nobody has to look through more of them."""


async def leave(resuming: Resuming, homes: list[Home]) -> None:
    """Say which of some pieces are clean."""
    sleeping = resuming.sleeping
    spoken = {home.space.name: home for home in homes}.values()
    # What landed is soon part of what is confirmed, which has the seq that it is clean as of.
    await resuming.pieces.core.observing.until(
        lambda: not any(_speaks(resuming, home) and home.space.replica.pending.live() for home in spoken)
    )
    for home in homes:
        if not _speaks(resuming, home) or not home.generation or home.is_launched:
            continue
        replica, followed = home.space.replica, sleeping.of(home)
        seq = replica.confirmed.seq
        if replica.pending.live() or not seq or (home.phase is not None and not home.phase.is_over):
            continue
        if sleeping.has(home):
            assert followed is not None
            assert home.phase is not None
            seq = followed.through
            ran = any(node.account is not None and node.runs for node in home.nodes)
            if not (ran or seq - home.phase.as_of > FAR) or not followed.is_quiet():
                continue
        channel = resuming.pieces.runtime.channel(home.space.name)
        assert channel is not None
        users = tuple(dict.fromkeys([user for user, _ in home.opened_for()]))
        awake = whole.awake(home) if len(users) == 1 else None
        fingerprint = "" if awake is None else whole.decides(resuming.looked_at, home, users, resuming.identity)
        # I7: what was said of it before does not stand if it cannot be said any more.
        whole.say(channel.driver.session.runs, home, fingerprint, seq, awake or ())


def _speaks(resuming: Resuming, home: Home) -> bool:
    """Whether an engine can be told of a piece now."""
    channel = resuming.pieces.runtime.channel(home.space.name)
    return channel is not None and channel.is_up() and channel.driver.session.runs.is_on
