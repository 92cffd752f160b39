"""What the engine remembers of sessions, exactly: which are in memory, since when, and what a restart would find.

A session in memory knows its accepted commits since it was taken up; the least recently used one is let go at the
end of a group when there are too many. A rejection is stored with the next accepted frame of its session, when the
session is let go, or when the client acknowledges; one that was not is forgotten by a restart, and by nothing else.
Written from those sentences, not from the engine's code, so that neither excuses the other. Never asks the engine.
"""

from __future__ import annotations

from collections import OrderedDict

from headwater.engine import Limits
from headwater.engine.verify import NaiveSpace


class Remembering:
    """The sessions of one engine, next to the naive model, whose turns a restart takes back."""

    __slots__ = ("_limits", "_loaded", "_naive", "_stored")

    def __init__(self, naive: NaiveSpace, limits: Limits) -> None:
        self._naive = naive
        self._limits = limits
        self._loaded: OrderedDict[str, int] = OrderedDict()  # to the end of the log when it was taken up
        self._stored: dict[str, int] = {}  # the highest local_seq whose verdict a restart would find

    def since(self, session: str) -> int:
        """The engine knows the session's commits after this seq from memory, the others from its log."""
        return self._loaded.get(session, self._naive.last_seq)

    def used(self, session: str) -> None:
        """A frame, an acknowledgement: the session is taken up unless it is there, and is now the latest used."""
        self._loaded.setdefault(session, self._naive.last_seq)
        self._loaded.move_to_end(session)

    def opened(self, session: str) -> None:
        """Opening one that is there does not count as using it."""
        self._loaded.setdefault(session, self._naive.last_seq)

    def stored(self, session: str) -> None:
        """All verdicts of the session so far are on the disk, or will be before they leave."""
        self._stored[session] = self._naive.judged.get(session, 0)

    def group_ended(self) -> None:
        """Let go of the least recently used, past the limit. Nothing that was answered is lost with them."""
        while len(self._loaded) > self._limits.cached_sessions:
            session, _ = self._loaded.popitem(last=False)
            self.stored(session)

    def restarted(self) -> None:
        """Memory is gone: a turn is over only as far as the disk knows."""
        self._loaded.clear()
        self._naive.restart(self._stored)
