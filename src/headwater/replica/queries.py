"""Queries of one session that wait for an answer, and its subscriptions to news of events, marks and targets.

A limited number of queries is sent; further ones wait for answers, because an engine refuses more messages than it can
keep. When a connection ends, every open query is answered with a failure. A subscription outlives the connection: it is
sent again on the next one, and so is a claim of code. This module owns the requests; the meaning of an answer is the
caller's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from headwater.data.value import MAX_INT
from headwater.errors import LoadError
from headwater.protocol.messages import (
    Answer,
    ClaimCode,
    CodeClaimed,
    EventsStored,
    FromReplica,
    ObservationAnswer,
    ObservationQuestion,
    Query,
    QueryEvents,
    StoredEvents,
    Told,
    WatchEvents,
)
from headwater.protocol.observations import DocumentsWritten, WatchWrittenDocuments
from headwater.protocol.reactions import Delivering, Delivers, TargetsDue, WatchTargets

Question = Query | QueryEvents | ObservationQuestion | Delivers | ClaimCode
Reply = Callable[[Answer | LoadError], object]
EventsReply = Callable[[StoredEvents | LoadError], object]
SeenReply = Callable[[ObservationAnswer | LoadError], object]
ClaimReply = Callable[[CodeClaimed | LoadError], object]
DeliveringReply = Callable[[Delivering | LoadError], object]
Watches = type[WatchEvents] | type[WatchWrittenDocuments] | type[WatchTargets]
DueHeard = Callable[[TargetsDue | LoadError], object]
Heard = Callable[[int | LoadError], object]
"""Called with the seq of the newest commit that stored events or marked pieces; with an error if it is refused."""


class _CodeClaim:
    """A claim of this session, with the callbacks that wait for its answer."""

    __slots__ = ("granted", "question", "replies")

    def __init__(self, question: ClaimCode) -> None:
        self.question = question
        self.granted: CodeClaimed | None = None  # the answer on this connection
        self.replies: list[ClaimReply] = []


class Queries:
    """The unanswered queries and the subscriptions of one session. `say` returns True if there was a connection."""

    __slots__ = ("_claims", "_heard", "_later", "_most", "_new_number", "_say", "_waiting")

    def __init__(self, say: Callable[[FromReplica], bool], new_number: Callable[[], int], most: int) -> None:
        self._say = say
        self._new_number = new_number
        self._most = most  # queries without an answer
        self._later: deque[tuple[Question, str, Callable[[Any], object]]] = deque()  # queries that were not sent yet
        self._waiting: dict[int, tuple[str, Callable[[Any], object]]] = {}  # the subject and the callback
        self._claims: dict[str, _CodeClaim] = {}  # by name
        self._heard: dict[Watches, tuple[int, Callable[[Any], object]]] = {}  # request number and callback

    def ask(self, query: Query, reply: Reply) -> None:
        """Ask once for documents. `query.id` is assigned here, as in all methods of this class."""
        self._ask(query, f"{query.scope}:{query.doc or '*'}", reply)

    def look(self, question: ObservationQuestion, reply: SeenReply) -> None:
        """Ask once about nodes, reads across spaces or whether reads are current; or report reads of another space."""
        self._ask(question, "the runs of nodes", reply)

    def ask_events(
        self,
        reply: EventsReply,
        *,
        due_by_us: int = MAX_INT,
        after: tuple[int, str] = (0, ""),
        limit: int = 100,
    ) -> None:
        """Ask once for a page of the stored events of this branch that are due at `due_by_us` or before."""
        self._ask(QueryEvents(0, due_by_us, after, limit), "stored events", reply)

    def deliver(self, question: Delivers, reply: DeliveringReply) -> None:
        """Ask for targets, report their results, or send an operator's request about reactions."""
        self._ask(question, "reactions", reply)

    def claim_code(self, question: ClaimCode, reply: ClaimReply) -> None:
        """Claim the code of a class, on this connection and on later ones. A claim that is not granted is dropped."""
        claim = self._claims.get(question.name)
        if claim is None or claim.question.code != question.code:
            claim = self._claims[question.name] = _CodeClaim(question)
        if claim.granted is not None:
            reply(claim.granted)
            return
        claim.replies.append(reply)
        if len(claim.replies) == 1:
            self._send_claim(claim)

    def _send_claim(self, claim: _CodeClaim) -> None:
        def answered(answer: CodeClaimed | LoadError) -> None:
            if isinstance(answer, CodeClaimed) and answer.is_granted:
                claim.granted = answer
            elif isinstance(answer, CodeClaimed) and self._claims.get(claim.question.name) is claim:
                del self._claims[claim.question.name]
            replies, claim.replies = claim.replies, []
            for reply in replies:
                reply(answer)

        self._ask(claim.question, "the code of a class", answered)

    def _ask(self, question: Question, what: str, reply: Callable[[Any], object]) -> None:
        # fault queries.sent_without_room: if False:
        if len(self._waiting) >= self._most:
            self._later.append((question, what, reply))
            return
        asked = msgspec.structs.replace(question, id=self._new_number())
        if self._say(asked):
            self._waiting[asked.id] = (what, reply)
        else:
            reply(LoadError(f"{what} cannot be read: there is no connection"))

    # ---- subscriptions ---------------------------------------------------------------------------

    def watch_events(self, heard: Heard | None) -> None:
        """Subscribe to the seq of the newest commit that stored an event. None ends the subscription.

        `heard` is called now, at the start of every later connection, and when other sessions store more. Events of
        this session are counted only in the number that is told at the start of a connection.
        """
        self._watch(WatchEvents, heard)

    def watch_marks(self, heard: Heard | None) -> None:
        """Subscribe to the seq of the newest commit, of any session, that wrote an input of nodes. None ends it.

        `heard` is called on every later connection as well. At the start of a connection, it is called with the end of
        the log.
        """
        self._watch(WatchWrittenDocuments, heard)

    def watch_targets(self, heard: DueHeard | None) -> None:
        """Subscribe to the news that there may be targets for a worker to claim. None ends the subscription.

        `heard` is called now, at the start of every later connection, and from then on whenever targets are due. The
        message contains the targets that were granted to a worker that left room open.
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
        """Send all subscriptions and claims on a new connection."""
        for kind, (_, heard) in list(self._heard.items()):
            self._watch(kind, heard)
        for claim in list(self._claims.values()):
            self._send_claim(claim)

    # ---- answers ---------------------------------------------------------------------------------

    def answered(self, number: int, answer: Told | LoadError) -> bool:
        """Pass an answer to its callback. Return False if no query or subscription has this number."""
        if isinstance(answer, EventsStored | DocumentsWritten | TargetsDue | LoadError):
            for known, heard in list(self._heard.values()):
                if known == number:
                    heard(answer.newest if isinstance(answer, EventsStored | DocumentsWritten) else answer)
                    return True
        waiting = self._waiting.pop(number, None)
        if waiting is not None:
            if self._later:
                self._ask(*self._later.popleft())
            waiting[1](answer)
        return waiting is not None

    def fail(self, why: str) -> None:
        """Answer all open queries with a failure. The engine has ended the claims."""
        for claim in self._claims.values():
            claim.granted = None
        failed = [*self._waiting.values(), *[(what, reply) for _, what, reply in self._later]]
        self._waiting.clear()
        self._later.clear()
        for what, reply in failed:
            reply(LoadError(f"{what} cannot be read: {why}"))
