"""Questions that were asked once and wait for their answer; and being told that others stored events.

A connection that ends answers all questions with a failure. Wanting to be told of events outlives it: it is said again
on the next one. Owns what was asked; never decides what an answer means.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from headwater.data.value import MAX_INT
from headwater.errors import LoadError
from headwater.protocol.messages import (
    Answer,
    Events,
    EventsStored,
    FromReplica,
    Looks,
    Query,
    QueryEvents,
    Seen,
    Told,
    WatchEvents,
)
from headwater.protocol.observations import Marked, WatchMarks
from headwater.protocol.reactions import Delivering, Delivers, TargetsDue, WatchTargets

Reply = Callable[[Answer | LoadError], object]
EventsReply = Callable[[Events | LoadError], object]
SeenReply = Callable[[Seen | LoadError], object]
DeliveringReply = Callable[[Delivering | LoadError], object]
Watches = type[WatchEvents] | type[WatchMarks] | type[WatchTargets]
DueHeard = Callable[[TargetsDue | LoadError], object]
Heard = Callable[[int | LoadError], object]
"""Called with the seq of the newest commit that stored events, or marked pieces; with an error where it is refused."""


class Queries:
    """The questions of one session that have no answer yet. `say` answers whether there was a connection for it."""

    __slots__ = ("_heard", "_new_number", "_say", "_waiting")

    def __init__(self, say: Callable[[FromReplica], bool], new_number: Callable[[], int]) -> None:
        self._say = say
        self._new_number = new_number
        self._waiting: dict[int, tuple[str, Callable[[Any], object]]] = {}  # what was asked for, and who
        self._heard: dict[Watches, tuple[int, Callable[[Any], object]]] = {}  # the number of the question

    def ask(self, query: Query, reply: Reply) -> None:
        """Ask once for documents. `query.id` is chosen here, as in all of these."""
        self._ask(query, f"{query.scope}:{query.doc or '*'}", reply)

    def look(self, question: Looks, reply: SeenReply) -> None:
        """Ask once what is known of nodes, who reads what, and whether reads are current; or say what is read here."""
        self._ask(question, "what nodes did", reply)

    def ask_events(
        self,
        reply: EventsReply,
        *,
        due_by_us: int = MAX_INT,
        after: tuple[int, str] = (0, ""),
        limit: int = 100,
    ) -> None:
        """Ask once for a page of the stored events of this branch that are due at a time or before."""
        self._ask(QueryEvents(0, due_by_us, after, limit), "stored events", reply)

    def deliver(self, question: Delivers, reply: DeliveringReply) -> None:
        """Ask for targets, say what came of them, or what an operator wants of reactions."""
        self._ask(question, "reactions", reply)

    def _ask(self, question: Query | QueryEvents | Looks | Delivers, what: str, reply: Callable[[Any], object]) -> None:
        asked = msgspec.structs.replace(question, id=self._new_number())
        if self._say(asked):
            self._waiting[asked.id] = (what, reply)
        else:
            reply(LoadError(f"{what} cannot be read: there is no connection"))

    # ---- being told ------------------------------------------------------------------------------

    def watch_events(self, heard: Heard | None) -> None:
        """Be told which commit stored the newest event: now, on every connection to come, and when others store more.

        None: no longer. One's own events are counted only in what is told at the beginning of a connection.
        """
        self._watch(WatchEvents, heard)

    def watch_marks(self, heard: Heard | None) -> None:
        """Be told which commit was the newest that wrote what nodes read: by anybody, and on every connection to come.

        None: no longer. At the beginning of a connection it is told where the log ends.
        """
        self._watch(WatchMarks, heard)

    def watch_targets(self, heard: DueHeard | None) -> None:
        """Be told when there may be something for a worker to claim: now, on every connection, and from then on.

        With it comes what was given to a worker that left room open. None: no longer.
        """
        self._watch(WatchTargets, heard)

    def _watch(self, kind: Watches, heard: Callable[[Any], object] | None) -> None:
        former = self._heard.pop(kind, None)
        if heard is not None:
            number = self._new_number()
            self._heard[kind] = (number, heard)
            self._say(kind(number))
        elif former is not None:
            self._say(kind(former[0], False))

    def connected(self) -> None:
        """There is a connection: say on it what is to be told."""
        for kind, (_, heard) in list(self._heard.items()):
            self._watch(kind, heard)

    # ---- answers ---------------------------------------------------------------------------------

    def answered(self, number: int, answer: Told | LoadError) -> bool:
        """Hand over an answer. False: nobody waits for it."""
        if isinstance(answer, EventsStored | Marked | TargetsDue | LoadError):
            for known, heard in list(self._heard.values()):
                if known == number:
                    heard(answer.newest if isinstance(answer, EventsStored | Marked) else answer)
                    return True
        waiting = self._waiting.pop(number, None)
        if waiting is not None:
            waiting[1](answer)
        return waiting is not None

    def fail(self, why: str) -> None:
        """Nobody will answer these any more."""
        waiting, self._waiting = self._waiting, {}
        for what, reply in waiting.values():
            reply(LoadError(f"{what} cannot be read: {why}"))
