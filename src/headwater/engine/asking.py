"""Asking: what is read once, now or as it was, on behalf of a peer that may see it; and who is told of new events.

A page that has no room for all that was asked for is a shorter page; what comes next is asked for with `next`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from headwater.data.address import DocKey
from headwater.data.value import size_of
from headwater.engine.access import Right
from headwater.engine.engine import Engine
from headwater.engine.limits import Limits
from headwater.engine.peer import Peer
from headwater.engine.problems import problem_code
from headwater.engine.room import Room
from headwater.errors import AccessError, HeadwaterError, LimitError, ProtocolError
from headwater.protocol.commit import Commit
from headwater.protocol.messages import Answer, Looks, Problem, Query, state_of
from headwater.protocol.observations import (
    Mirror,
    QueryBacklog,
    QueryCurrent,
    QueryMirrors,
    QueryObservations,
    QueryReaders,
)
from headwater.protocol.stored_events import Events, EventsStored, QueryEvents, WatchEvents

Question = Query | QueryEvents | WatchEvents | Looks


class Asking:
    """Answers the questions of all peers of one space."""

    __slots__ = ("_engine", "_limits", "_news", "_room", "_told_of_events")

    def __init__(self, engine: Engine, limits: Limits, room: Room) -> None:
        self._engine = engine
        self._limits = limits
        self._room = room
        self._told_of_events: dict[Peer, int] = {}  # those who asked for it, and the number of their question
        self._news: dict[Peer, int] = {}  # the newest commit with events that they are still to be told of

    def answer(self, peer: Peer, question: Question) -> None:
        """Tell the peer what it asked for, or why it cannot have it."""
        try:
            match question:
                case Query():
                    reply = answered(self._engine, peer, question, self._limits)
                    self._room.begin()
                    for state in reply.documents:
                        self._room.take(size_of(state.value))
                    peer.send(reply)
                case QueryEvents():
                    self._events(peer, question)
                case WatchEvents():
                    self._watch_events(peer, question)
                case QueryCurrent(reads=reads):
                    self._check_may_ask([read.doc for read in reads], peer)
                    self._look(peer, question)
                case Mirror() | QueryMirrors():
                    self._check_may_write(peer)
                    self._look(peer, question)
                case QueryObservations() | QueryBacklog() | QueryReaders():
                    self._check_owns(peer)
                    self._look(peer, question)
                case _:
                    assert_never(question)
        except HeadwaterError as error:
            peer.send(Problem(problem_code(error), str(error), False, question.id))

    # ---- what is known of nodes ------------------------------------------------------------------

    def _look(self, peer: Peer, question: Looks) -> None:
        if isinstance(question, QueryCurrent) and len(question.reads) > self._limits.commit_reads:
            raise LimitError(f"one question is about at most {self._limits.commit_reads} reads. Ask several.")
        if isinstance(question, Mirror) and len(question.docs) > self._limits.commit_reads:
            raise LimitError(f"one piece reads at most {self._limits.commit_reads} documents of a space")
        peer.send(self._engine.looked(question, branch=peer.branch))

    def _check_may_ask(self, docs: Iterable[DocKey], peer: Peer) -> None:
        for doc in docs:
            if not self._engine.may_see(doc, peer.principal, peer.session):
                raise AccessError(f"{doc.scope}:{doc.id} is not for {peer.principal!r}")

    def _check_owns(self, peer: Peer) -> None:
        """What nodes there are and what they read tells how a program is made, and what others have."""
        if self._engine.right_of(peer.principal) < Right.OWN:
            raise AccessError(f"what nodes did is for owners of this space, and {peer.principal!r} is none")

    # ---- stored events ---------------------------------------------------------------------------

    def _events(self, peer: Peer, question: QueryEvents) -> None:
        self._check_may_write(peer)
        limits = self._limits
        page = self._engine.events(
            branch=peer.branch,
            due_by_us=question.due_by_us,
            after=question.after,
            limit=max(1, min(question.limit, limits.query_documents)),
        )
        self._room.begin()
        for event in page.items:
            self._room.take(size_of(event.payload))
        peer.send(Events(question.id, self._engine.last_seq, page.items, page.next, page.next_due_us))

    def _watch_events(self, peer: Peer, question: WatchEvents) -> None:
        self.forget(peer)
        if question.on:
            self._check_may_write(peer)
            self._told_of_events[peer] = question.id
            peer.send(EventsStored(question.id, self._engine.newest_event(peer.branch)))

    def _check_may_write(self, peer: Peer) -> None:
        """What is sent, and where to, tells how a program is made: that is for those who may write the space."""
        if self._engine.right_of(peer.principal) < Right.WRITE:
            raise AccessError(f"stored events are for those who may write this space, and {peer.principal!r} may not")

    def spread(self, author: str, commit: Commit, seq: int) -> None:
        """A commit stored events: whoever asked for it is told, except for who sent them."""
        for peer in self._told_of_events:
            if peer.session != author and peer.branch == commit.branch:
                self._news[peer] = seq

    def tell(self) -> None:
        """Tell of new events, once for all that were stored since."""
        if not self._news:
            return
        news, self._news = self._news, {}
        for peer, seq in news.items():
            number = self._told_of_events.get(peer)
            if number is None:
                continue
            try:
                self._check_may_write(peer)
            except HeadwaterError as error:
                # It may not any more: it hears that, and nothing further.
                self.forget(peer)
                peer.send(Problem(problem_code(error), str(error), False, number))
                continue
            peer.send(EventsStored(number, seq))

    def forget(self, peer: Peer) -> None:
        """The peer is gone, or does not want to be told any more."""
        self._told_of_events.pop(peer, None)
        self._news.pop(peer, None)


def answered(engine: Engine, peer: Peer, message: Query, limits: Limits) -> Answer:
    """The document that was asked for, or a page of a scope. AccessError: they are not for this peer."""
    doc = DocKey(message.scope, message.doc)
    if not engine.may_see(doc, peer.principal, peer.session):
        raise AccessError(f"{message.scope}:{message.doc or '*'} is not for {peer.principal!r}")
    if message.at is not None and not message.doc:
        raise ProtocolError("a page of documents is of now. Ask for them one by one to read the past.")
    seq = engine.last_seq
    if message.doc:
        found = engine.read(doc, branch=peer.branch, at=message.at)
        return Answer(message.id, seq, (state_of(doc, found.seq, found.value),))
    limit = max(1, min(message.limit, limits.query_documents))
    page = engine.documents(
        message.scope, branch=peer.branch, after=message.after, limit=limit, most_bytes=limits.answer_bytes
    )
    return Answer(message.id, seq, tuple(state_of(d.doc, d.seq, d.value) for d in page.items), page.next)
