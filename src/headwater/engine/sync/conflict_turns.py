"""Turns of writers in conflict: the order in which sessions whose commits collided at a document try again.

When several sessions write one document from values that they read in it, one wins and the others retry. All at once,
all but one of them would lose again. So a session that lost joins the queue of the document. When a commit lands there,
the first in the queue is told that it has the turn, together with the fresh value, and has it for a few milliseconds,
or for as long as others took of late: until all that it sent is judged. Commits of other sessions to the same document
are held back meanwhile: the last winner always knows first which value is current, and would keep the others out for
ever. News of writes in between would be stale before a queued session could use them, so they are held back for a
moment, too.

Turns are only order and hints: no verdict depends on them, a turn that is not used passes on by itself, and nothing of
this is remembered beyond a connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from headwater.data.address import DocKey
from headwater.engine.limits import DEFAULT_LIMITS, Limits
from headwater.engine.sync.peer import Peer
from headwater.protocol.messages import FromReplica, Transact
from headwater.protocol.verdict import Accepted, Conflict, Verdict

Arrived = tuple[Peer, FromReplica]


class TurnQueue:
    """The peers that want to write one document."""

    __slots__ = ("given_us", "holder", "is_served", "until_us", "waiting")

    def __init__(self) -> None:
        self.holder: Peer | None = None  # the peer that has the turn, and until when
        self.is_served = False  # it has written, and keeps the turn only for the rest of its commits
        self.given_us = 0
        self.until_us = 0
        self.waiting: dict[Peer, None] = {}  # the others, in their order


class ConflictTurns:
    """The lines at the documents of one space. A peer stands in one line at a time."""

    __slots__ = ("_limits", "_places", "_quiet_until_us", "_takes_us", "held", "is_coming", "lines")

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        self.lines: dict[tuple[str, DocKey], TurnQueue] = {}
        self._places: dict[Peer, tuple[str, DocKey]] = {}
        self._quiet_until_us: dict[Peer, int] = {}
        self._takes_us = self._limits.turn_us / 4  # about how long a session with the turn takes to write
        self.held: list[Arrived] = []  # messages held back for peers that have a turn
        self.is_coming: Callable[[Peer], bool] = _unknown  # whether more of it has arrived, and is not processed yet

    # ---- who stands where ----------------------------------------------------------------------------

    def note_verdict(self, peer: Peer, verdict: Verdict, now_us: int) -> None:
        """Queue a session at the documents where it lost to another, until a commit of it lands."""
        if isinstance(verdict, Accepted):
            key = self._places.get(peer)
            if key is not None and self.lines[key].holder is peer:
                line = self.lines[key]
                if not line.is_served:
                    self._took(now_us - line.given_us)
                line.is_served = True
            elif key is not None:
                self.leave_queue(peer)
        elif isinstance(verdict.rejection, Conflict):
            won = next((one for one in verdict.rejection.collisions if one.session != peer.session), None)
            if won is not None:
                self.queue_loser(peer, won.doc, now_us)

    def queue_loser(self, peer: Peer, doc: DocKey, now_us: int) -> None:
        """Queue the peer: a commit of it was rejected, since another session had written the document."""
        key = (peer.branch, doc)
        if self._places.get(peer) != key:
            self.leave_queue(peer)
        line = self.lines.setdefault(key, TurnQueue())
        if line.holder is peer:
            line.holder, line.is_served = None, False  # Another was faster, in its turn: it is still the first.
            line.waiting = {peer: None, **line.waiting}
        elif peer in line.waiting:
            return
        elif len(line.waiting) < self._limits.turn_queue:
            line.waiting[peer] = None
            self._places[peer] = key
            self._quiet_until_us[peer] = now_us + self._limits.turn_quiet_us

    def leave_queue(self, peer: Peer) -> None:
        """The peer waits for nothing any more: its commit landed, or it is gone."""
        key = self._places.pop(peer, None)
        self._quiet_until_us.pop(peer, None)
        if key is not None:
            line = self.lines[key]
            line.waiting.pop(peer, None)
            if line.holder is peer:
                line.holder = None

    def give_turns(self, now_us: int) -> list[Peer]:
        """Give every free turn to the next in the queue. Return the peers that have one now."""
        given = []
        for key, line in tuple(self.lines.items()):
            holder = line.holder
            if holder is not None and (line.until_us <= now_us or (line.is_served and not self.is_coming(holder))):
                was_served = line.is_served
                if not was_served:
                    self._took(now_us - line.given_us)  # It takes longer than that, or does not come at all.
                self.leave_queue(holder)  # If its commit still comes, it is judged like any other.
                if was_served and line.waiting:
                    # It is about to write again, or has time.
                    self._quiet_until_us[holder] = now_us + self._limits.turn_us
            if line.holder is None and line.waiting:
                line.holder, line.is_served = next(iter(line.waiting)), False
                del line.waiting[line.holder]
                line.given_us, line.until_us = now_us, now_us + self.turn_us
                given.append(line.holder)
            elif line.holder is None:
                del self.lines[key]
        return given

    @property
    def turn_us(self) -> int:
        """How long a turn is. A busy machine answers later, and if turns end too early, all peers collide."""
        return min(max(int(4 * self._takes_us), self._limits.turn_us), self._limits.turn_us_most)

    def _took(self, us: int) -> None:
        self._takes_us += (min(us, self._limits.turn_us_most) - self._takes_us) / 8

    def place_of(self, peer: Peer) -> int | None:
        """How many go first; 0: it is its turn. None: it stands in no line."""
        key = self._places.get(peer)
        if key is None:
            return None
        line = self.lines[key]
        return 0 if line.holder is peer else 1 + list(line.waiting).index(peer)

    def may_wait(self, peer: Peer, now_us: int) -> bool:
        """Whether news can be kept back: the peer had its turn, or has it before it, and did not wait for long."""
        quiet_until_us = self._quiet_until_us.get(peer)
        if quiet_until_us is None or self.place_of(peer) == 0:
            return False
        if quiet_until_us <= now_us and peer not in self._places:
            del self._quiet_until_us[peer]
        return quiet_until_us > now_us

    def holders(self) -> Iterable[tuple[Peer, int]]:
        """Return the peers that have a turn, and until when."""
        return [(line.holder, line.until_us) for line in self.lines.values() if line.holder is not None]

    # ---- what is processed when ------------------------------------------------------------------------

    def in_order(self, arrived: Sequence[Arrived], now_us: int) -> tuple[Sequence[Arrived], Sequence[Arrived]]:
        """Return the messages to process now, those of peers with a turn first; and those to process right after that.

        Messages that could collide with the commit of a peer that has a turn come after it, and are held back until the
        commit has come or its time is over; then they are judged, whichever peer has the turn by then. The messages of
        one peer stay in their order.
        """
        if self.held:
            arrived, self.held = [*self.held, *arrived], []
        lines = {k: line.holder for k, line in self.lines.items() if line.holder is not None and line.until_us > now_us}
        if not lines or not arrived:
            return arrived, ()
        holders = set(lines.values())
        here = {peer for peer, message in arrived if isinstance(message, Transact)}
        awaited = {key for key, holder in lines.items() if holder not in here and not self.lines[key].is_served}
        waits: dict[Peer, list[Arrived]] = {}  # the list for later messages of a peer of which one has to wait
        now: list[Arrived] = []
        after: list[Arrived] = []
        for peer, message in sorted(arrived, key=lambda one: one[0] not in holders):  # stable
            if peer not in waits and peer not in holders and isinstance(message, Transact):
                written, read = _docs(peer, message)
                if not awaited.isdisjoint(written | read):
                    waits[peer] = self.held
                elif not read.isdisjoint(lines):
                    waits[peer] = after  # It is rejected. A commit without reads lands, and is part of the next news.
            waits.get(peer, now).append((peer, message))
        return now, after

    def end_turns(self) -> None:
        """End all turns."""
        self.lines.clear()
        self._places.clear()
        self._quiet_until_us.clear()


def _docs(peer: Peer, message: Transact) -> tuple[set[tuple[str, DocKey]], set[tuple[str, DocKey]]]:
    """Return the documents that a frame writes, and those that it reads."""
    written = {(peer.branch, operation.doc) for commit in message.commits for operation in commit.operations}
    return written, {(peer.branch, read.doc) for commit in message.commits for read in commit.reads}


def _unknown(_: Peer) -> bool:
    return False
