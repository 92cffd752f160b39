"""Workers that wait for targets, and the targets that commits have given to them.

A worker whose claim left room may leave the claim open. A commit that makes a target due gives it to such a worker in
its own store transaction, so that the claim is on the disk with its cause and the worker need not ask. Owns the open
claims and the targets that were given and not sent yet. All of it is in memory: a forgotten open claim costs one more
claim. A worker that was sent something and has not answered may be gone: others come first.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from headwater.clock import Clock
from headwater.engine.limits import Limits
from headwater.protocol.reactions import Claim, Grant


@dataclass(slots=True, eq=False)
class IdleWorker:
    """Room that a worker has."""

    by: Hashable
    question: Claim  # the open claim: its worker, and how long it holds a target
    reactions: tuple[str, ...]
    room: int  # targets
    bytes: int  # of records, since the last message to it


@dataclass(slots=True, eq=False)
class GivenTarget:
    """The targets that one worker was given, and is to be sent."""

    at_us: int
    grants: list[Grant]


class IdleWorkers:
    """The open claims of workers in one space."""

    __slots__ = ("_by_reaction", "_bytes", "_clock", "_given", "_lanes", "_offers", "_silent", "_tells", "is_more")

    def __init__(self, clock: Clock, limits: Limits) -> None:
        self._clock = clock
        self._bytes = limits.claim_bytes
        self._lanes = limits.worker_lanes
        self._offers: dict[Hashable, dict[str, IdleWorker]] = {}
        self._by_reaction: dict[str, dict[IdleWorker, None]] = {}
        self._given: dict[Hashable, GivenTarget] = {}
        self._silent: dict[Hashable, int] = {}  # workers that were sent something and have not answered: its ordinal
        self._tells = 0
        self.is_more = False  # a target became due since then that no worker was given

    def register(self, by: Hashable, question: Claim, room: int) -> None:
        """Register a worker's room in a lane, in place of its earlier room there. No room: remove it."""
        lanes = self._offers.setdefault(by, {})
        names = tuple(dict.fromkeys(question.reactions))
        former = lanes.get(question.lane)
        if former is not None and room > 0 and former.reactions == names:
            former.question, former.room, former.bytes = question, room, self._bytes  # It keeps its turn.
            return
        if former is not None:
            del lanes[question.lane]
            self._withdraw(former)
        if room > 0 and len(lanes) < self._lanes:
            offer = lanes[question.lane] = IdleWorker(by, question, names, room, self._bytes)
            for name in names:
                self._by_reaction.setdefault(name, {})[offer] = None
        if not lanes:
            del self._offers[by]

    def _withdraw(self, offer: IdleWorker) -> None:
        for name in offer.reactions:
            others = self._by_reaction[name]
            del others[offer]
            if not others:
                del self._by_reaction[name]

    def drop(self, by: Hashable) -> None:
        """The worker is gone, or may not have anything any more."""
        self._silent.pop(by, None)
        for offer in self._offers.pop(by, {}).values():
            self._withdraw(offer)

    def note_sent(self, by: Hashable) -> None:
        """Note that a worker is sent something and will answer, by claiming or with results."""
        if by in self._offers and by not in self._silent:
            self._tells += 1
            self._silent[by] = self._tells

    def note_answer(self, by: Hashable) -> None:
        """Note an answer of a worker."""
        self._silent.pop(by, None)

    def forget(self) -> None:
        """Drop targets that may not be on the disk. Waiting workers learn that there may be targets, and claim."""
        self._offers.clear()
        self._by_reaction.clear()
        self._given.clear()
        self._silent.clear()
        self.is_more = True

    def find(self, reaction: str, size: int) -> IdleWorker | None:
        """Find a worker with room for records of `size` bytes.

        Workers that answered everything come first, then the one that was silent for the shortest time; of these, the
        one that was given a target longest ago.
        """
        waiting = self._by_reaction.get(reaction)
        if waiting is None:
            return None
        offer = next((each for each in waiting if each.by not in self._silent), None)
        if offer is None:
            offer = max(waiting, key=lambda each: self._silent[each.by])
        return offer if offer.bytes >= size else None

    def give_target(self, offer: IdleWorker, grant: Grant, size: int, now_us: int) -> None:
        """C7: record a target that was given in the open store transaction; it is sent when that is on the disk."""
        offer.room -= 1
        offer.bytes -= size
        if offer.room:
            waiting = self._by_reaction[grant.hold.reaction]
            waiting[offer] = waiting.pop(offer)
        else:
            self.register(offer.by, offer.question, 0)
        given = self._given.get(offer.by)
        if given is None:
            self._given[offer.by] = GivenTarget(now_us, [grant])
        else:
            given.grants.append(grant)

    def take_given(self) -> tuple[dict[Hashable, GivenTarget], bool]:
        """Take the targets that are to be sent now; and whether a target is due that no worker was given."""
        given, self._given = self._given, {}
        is_more, self.is_more = self.is_more, False
        for by in given:
            for offer in self._offers.get(by, {}).values():
                offer.bytes = self._bytes
        return given, is_more

    def ago_us(self, given: GivenTarget) -> int:
        """For how long a worker has had its targets."""
        return max(0, self._clock.now_us() - given.at_us)
