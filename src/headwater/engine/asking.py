"""Asking: what is read once, now or as it was, for a peer that may see it; who is told of events, marks and targets.

A page that has no room for all that was asked for is a shorter page; what comes next is asked for with `next`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import assert_never

from headwater.data.address import NAME_LENGTH, DocKey
from headwater.data.value import size_of
from headwater.engine.access import Right
from headwater.engine.engine import Engine
from headwater.engine.limits import Limits
from headwater.engine.peer import Peer
from headwater.engine.problems import problem_code
from headwater.engine.room import Room
from headwater.errors import AccessError, HeadwaterError, LimitError, ProtocolError
from headwater.protocol.commit import MAIN, Commit
from headwater.protocol.messages import Answer, Asks, Looks, Problem, Query, state_of
from headwater.protocol.mirrors import Mirror, QueryElsewhere, QueryMirrors
from headwater.protocol.observations import (
    Marked,
    QueryBacklog,
    QueryCurrent,
    QueryMarks,
    QueryMet,
    QueryNodes,
    QueryObservations,
    QueryReaders,
    QueryWholes,
    Readers,
    WatchMarks,
)
from headwater.protocol.reactions import (
    Claim,
    Claimed,
    Delivers,
    Finish,
    Finished,
    Looking,
    Operate,
    QueryDrained,
    QueryFailures,
    QueryReactions,
    QueryTargets,
    RenewLeases,
    Subscribe,
    Subscribed,
    TargetsDue,
    WatchTargets,
)
from headwater.protocol.stored_events import Events, EventsStored, QueryEvents, WatchEvents

Kind = type[WatchEvents] | type[WatchMarks] | type[WatchTargets]


class Asking:
    """Answers the questions of all peers of one space."""

    __slots__ = ("_engine", "_limits", "_news", "_room", "_subscribed", "_watching", "on_subscribed")

    def __init__(self, engine: Engine, limits: Limits, room: Room) -> None:
        self._engine = engine
        self._limits = limits
        self._room = room
        self._subscribed = 0  # reactions that are new since this is open
        self.on_subscribed: Callable[[], object] = _nobody  # on the engine's thread
        # Those who want to be told, and the number of their question; and the newest commit to tell them of.
        self._watching: dict[Kind, dict[Peer, int]] = {WatchEvents: {}, WatchMarks: {}, WatchTargets: {}}
        self._news: dict[Kind, dict[Peer, int]] = {WatchEvents: {}, WatchMarks: {}, WatchTargets: {}}

    def answer(self, peer: Peer, question: Asks) -> None:
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
                case WatchEvents() | WatchMarks() | WatchTargets():
                    self._watch(peer, question)
                case QueryCurrent(reads=reads):
                    self._check_may_ask([read.doc for read in reads], peer)
                    self._look(peer, question)
                case Mirror() | QueryMirrors():
                    self._check_may_write(peer, "mirrors")
                    self._look(peer, question)
                case QueryObservations() | QueryNodes() | QueryWholes() | QueryMet():
                    self._check_owns(peer)
                    self._look(peer, question)
                case QueryBacklog() | QueryReaders() | QueryMarks() | QueryElsewhere():
                    self._check_owns(peer)
                    self._look(peer, question)
                case (
                    Subscribe()
                    | Claim()
                    | RenewLeases()
                    | Finish()
                    | Operate()
                    | QueryReactions()
                    | QueryTargets()
                    | QueryFailures()
                    | QueryDrained()
                ):
                    self._deliver(peer, question)
                case _:
                    assert_never(question)
        except HeadwaterError as error:
            peer.send(Problem(problem_code(error), str(error), False, question.id))

    # ---- what is known of nodes ------------------------------------------------------------------

    def _look(self, peer: Peer, question: Looks) -> None:
        if isinstance(question, QueryCurrent) and len(question.reads) > self._limits.commit_reads:
            raise LimitError(f"one question is about at most {self._limits.commit_reads} reads. Ask several.")
        if isinstance(question, QueryNodes) and len(question.nodes) > self._limits.query_documents:
            raise LimitError(f"one question is about at most {self._limits.query_documents} nodes. Ask several.")
        if isinstance(question, Mirror) and len(question.docs) > self._limits.commit_reads:
            raise LimitError(f"one piece reads at most {self._limits.commit_reads} documents of a space")
        if isinstance(question, Mirror) and _is_long(question):
            raise LimitError(f"a mirror has a name that is over {NAME_LENGTH} long")
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

    # ---- reactions -------------------------------------------------------------------------------

    def _deliver(self, peer: Peer, question: Delivers) -> None:
        """Records leave the space by whoever may write it; to have them sent once more is for its owners."""
        self._check_may_write(peer, "reactions")
        if isinstance(question, Operate) and self._engine.right_of(peer.principal) < Right.OWN:
            raise AccessError(f"reactions are operated by owners of this space, and {peer.principal!r} is none")
        if peer.branch != MAIN and not isinstance(question, Looking):
            raise ProtocolError(f"only what is emitted on branch {MAIN!r} is delivered, and this session is on another")
        answer = self._engine.deliver(question)
        if isinstance(answer, Subscribed):
            self._subscribed += answer.is_new
            self.on_subscribed()
        self._room.begin()
        for grant in answer.grants if isinstance(answer, Claimed) else ():
            for record in grant.records:
                self._room.take(size_of(record.payload))
        peer.send(answer)
        if isinstance(question, Operate):
            self.targets_due()
        elif isinstance(answer, Finished) and answer.next_us == 0:
            self.targets_due(but=peer)  # which hears it by the answer, and may have no room, or stop

    def targets_due(self, *, but: Peer | None = None) -> None:
        """There may be something to claim: whoever watches is told, with the next telling."""
        self._news[WatchTargets].update({peer: 0 for peer in self._watching[WatchTargets] if peer is not but})

    def _check_may_write(self, peer: Peer, what: str = "stored events") -> None:
        """What is sent, and where to, tells how a program is made: that is for those who may write the space."""
        if self._engine.right_of(peer.principal) < Right.WRITE:
            raise AccessError(f"{what} are for those who may write this space, and {peer.principal!r} may not")

    # ---- being told ------------------------------------------------------------------------------

    def _watch(self, peer: Peer, question: WatchEvents | WatchMarks | WatchTargets) -> None:
        kind = type(question)
        self._watching[kind].pop(peer, None)
        self._news[kind].pop(peer, None)
        if not question.on:
            return
        self._check_may_watch(peer, kind)
        self._watching[kind][peer] = question.id
        if kind is WatchEvents:
            peer.send(EventsStored(question.id, self._engine.newest_event(peer.branch)))
        else:
            peer.send(self._told(kind, question.id, self._engine.last_seq))

    def _check_may_watch(self, peer: Peer, kind: Kind) -> None:
        if kind is WatchMarks:
            self._check_owns(peer)
        else:
            self._check_may_write(peer)

    def spread(self, author: str, commit: Commit, seq: int) -> None:
        """A commit stored events, or wrote what nodes read: whoever asked is told, but not of one's own events."""
        for peer in self._watching[WatchEvents] if commit.events else ():
            if peer.session != author and peer.branch == commit.branch:
                self._news[WatchEvents][peer] = seq
        # To all, the author included: who will claim is not known. One that was delivered is free, and may have more.
        if commit.branch == MAIN and (commit.records or any(not each.keeps for each in commit.delivered)):
            self._news[WatchTargets].update(dict.fromkeys(self._watching[WatchTargets], seq))
        watching = [peer for peer in self._watching[WatchMarks] if peer.branch == commit.branch]
        if watching and self._is_read(commit):
            self._news[WatchMarks].update(dict.fromkeys(watching, seq))

    def _is_read(self, commit: Commit) -> bool:
        """Whether a node reads anything that it writes."""
        asked = [QueryReaders(0, operation.doc, "", 1) for operation in commit.operations]
        found = [self._engine.looked(question, branch=commit.branch) for question in asked]
        return any(isinstance(each, Readers) and each.pieces for each in found)

    def tell(self) -> None:
        """Tell of what is new, once for all that happened since."""
        for kind, news in self._news.items():
            if news:
                self._news[kind] = {}
                for peer, seq in news.items():
                    self._tell(kind, peer, seq)

    def _tell(self, kind: Kind, peer: Peer, seq: int) -> None:
        number = self._watching[kind].get(peer)
        if number is None:
            return
        try:
            self._check_may_watch(peer, kind)
        except HeadwaterError as error:
            # It may not any more: it hears that, and nothing further.
            del self._watching[kind][peer]
            peer.send(Problem(problem_code(error), str(error), False, number))
            return
        peer.send(self._told(kind, number, seq))

    def _told(self, kind: Kind, number: int, seq: int) -> EventsStored | Marked | TargetsDue:
        if kind is WatchTargets:
            return TargetsDue(number, self._subscribed)
        return EventsStored(number, seq) if kind is WatchEvents else Marked(number, seq)

    def forget(self, peer: Peer) -> None:
        """The peer is gone."""
        for peers in (*self._watching.values(), *self._news.values()):
            peers.pop(peer, None)


def _nobody() -> None:
    """Nobody wants to know."""


def _is_long(said: Mirror) -> bool:
    names = [said.owner, said.piece, said.branch, *[text for doc, _ in said.docs for text in doc]]
    return any(len(name) > 2 * NAME_LENGTH for name in names)


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
