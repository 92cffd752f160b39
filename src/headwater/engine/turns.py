"""Turns: in which order those who lost a conflict over a document try again.

When several write one document from what they read in it, one wins and the others come back. All at once they would
lose again, all but one. So whoever lost stands in line at the document; when something lands there, the first in line
is told that it is its turn, together with the fresh value, and has it for a few milliseconds. What the others would be
told of writes in between is stale before they could use it, so it is kept back for a moment. Only hints: whoever does
not know or wait for turns is judged like everybody else, a turn that is not used passes on by itself, and nothing of
this is remembered beyond a connection.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from headwater.data.address import DocKey
from headwater.engine.peer import Peer
from headwater.protocol.verdict import Accepted, Conflict, Verdict

TURN_US: Final = 4_000  # how long somebody has the turn: a few round trips
QUIET_US: Final = 20_000  # how long somebody in line is not bothered with what others write
LINE: Final = 256  # how many stand in line at one document; whoever comes later waits by itself


class Line:
    """Those who want to write one document."""

    __slots__ = ("holder", "until_us", "waiting")

    def __init__(self) -> None:
        self.holder: Peer | None = None  # whose turn it is, and until when
        self.until_us = 0
        self.waiting: dict[Peer, None] = {}  # the others, in their order


class Turns:
    """The lines at the documents of one space. A peer stands in one line at a time."""

    __slots__ = ("_lines", "_places", "_quiet_until_us")

    def __init__(self) -> None:
        self._lines: dict[tuple[str, DocKey], Line] = {}
        self._places: dict[Peer, tuple[str, DocKey]] = {}
        self._quiet_until_us: dict[Peer, int] = {}

    def __len__(self) -> int:
        return len(self._lines)

    def judged(self, peer: Peer, verdict: Verdict, now_us: int) -> None:
        """Whoever lost to somebody else stands in line where that happened, until something of it lands."""
        if isinstance(verdict, Accepted):
            self.leave(peer)
        elif isinstance(verdict.rejection, Conflict):
            won = next((one for one in verdict.rejection.collisions if one.session != peer.session), None)
            if won is not None:
                self.lost(peer, won.doc, now_us)

    def lost(self, peer: Peer, doc: DocKey, now_us: int) -> None:
        """A commit of the peer was rejected, since somebody else had written the document."""
        key = (peer.branch, doc)
        if self._places.get(peer) != key:
            self.leave(peer)
        line = self._lines.setdefault(key, Line())
        if line.holder is peer:
            line.holder = None  # Somebody was faster, in its turn: it is still the first.
            line.waiting = {peer: None, **line.waiting}
        elif len(line.waiting) < LINE:
            line.waiting[peer] = None
            self._places[peer] = key
            self._quiet_until_us[peer] = now_us + QUIET_US

    def leave(self, peer: Peer) -> None:
        """The peer waits for nothing any more: its commit landed, or it is gone."""
        key = self._places.pop(peer, None)
        self._quiet_until_us.pop(peer, None)
        if key is not None:
            line = self._lines[key]
            line.waiting.pop(peer, None)
            if line.holder is peer:
                line.holder = None

    def give(self, now_us: int) -> list[Peer]:
        """Give every turn that nobody has any more to the next in line: these are to be told."""
        given = []
        for key, line in tuple(self._lines.items()):
            if line.holder is not None and line.until_us <= now_us:
                self.leave(line.holder)  # It does not come. If it still does, it is judged like anybody.
            if line.holder is None and line.waiting:
                line.holder = next(iter(line.waiting))
                del line.waiting[line.holder]
                line.until_us = now_us + TURN_US
                given.append(line.holder)
            elif line.holder is None:
                del self._lines[key]
        return given

    def before(self, peer: Peer) -> int | None:
        """How many go first; 0: it is its turn. None: it stands in no line."""
        key = self._places.get(peer)
        if key is None:
            return None
        line = self._lines[key]
        return 0 if line.holder is peer else 1 + list(line.waiting).index(peer)

    def may_wait(self, peer: Peer, now_us: int) -> bool:
        """Whether news can be kept back: the peer has its turn before it, and has not been kept waiting for long."""
        return bool(self.before(peer)) and self._quiet_until_us[peer] > now_us

    def holders(self) -> Iterable[tuple[Peer, int]]:
        """Whose turn it is, and until when."""
        return [(line.holder, line.until_us) for line in self._lines.values() if line.holder is not None]
