"""Queries of peers: documents now or in the past, for a peer that may see them; and news of events, marks and targets.

A page without room for everything that was asked for is a shorter page; the peer asks for the rest with `next`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, assert_never

import msgspec

from headwater.data.address import NAME_LENGTH, DocKey
from headwater.data.value import size_of
from headwater.engine.admission.access import Right
from headwater.engine.delivery.idle_workers import GivenTarget
from headwater.engine.engine import Engine
from headwater.engine.limits import Limits
from headwater.engine.sync.error_codes import problem_code
from headwater.engine.sync.peer import AnswerBudget, Peer
from headwater.errors import AccessError, HeadwaterError, LimitError, ProtocolError
from headwater.protocol.commit import MAIN, Commit
from headwater.protocol.messages import (
    Answer,
    Asks,
    ClaimCode,
    CodeClaimed,
    EventsStored,
    ObservationAnswer,
    ObservationQuestion,
    Problem,
    Query,
    QueryEvents,
    StoredEvents,
    WatchEvents,
    state_of,
)
from headwater.protocol.observations import (
    AffectedNodes,
    CleanPieces,
    DocumentsWritten,
    Observations,
    Observed,
    QueryAffectedNodes,
    QueryBacklog,
    QueryCleanPieces,
    QueryCurrent,
    QueryNodes,
    QueryObservations,
    QueryReaders,
    QueryWrittenDocuments,
    Readers,
    WatchWrittenDocuments,
    WrittenDocuments,
    whose_record,
)
from headwater.protocol.reactions import (
    Claim,
    Claimed,
    Delivering,
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

MORE: Final = 1
"""News of targets: there may be more to claim than was given."""
Kind = type[WatchEvents] | type[WatchWrittenDocuments] | type[WatchTargets]


Name = tuple[str, str]
"""A branch, and a name there."""


class CodeClaims:
    """The claims of all peers of one space: of two codes under one name, the first is granted while a peer has a claim.

    Programs claim the code of a class before they open its first piece, so that a program with other code does not take
    pieces over from programs that run. Claims are in memory only: without a connection there is no claim. They decide
    no commit; a program that lost its claim is stopped by the generation of a piece, once another program has opened
    it.
    """

    __slots__ = ("_codes", "_most", "_names", "_peers")

    def __init__(self, most: int) -> None:
        self._most = most  # claims of one peer
        self._codes: dict[Name, str] = {}  # the granted code
        self._peers: dict[Name, set[Peer]] = {}  # its peers; none is without a code, and no code without a peer
        self._names: dict[Peer, set[Name]] = {}

    def claim(self, peer: Peer, question: ClaimCode) -> bool:
        """Grant the code to a peer, if no other peer has a claim to another code."""
        name = (peer.branch, question.name)
        if max(len(question.name), len(question.code)) > NAME_LENGTH:
            raise LimitError(f"the name and the code of a claim have at most {NAME_LENGTH} characters")
        peers = self._peers.get(name, set())
        if self._codes.get(name) != question.code and peers - {peer}:
            return False
        names = self._names.setdefault(peer, set())
        if name not in names and len(names) >= self._most:
            raise LimitError(f"one session claims at most {self._most} codes")
        names.add(name)
        self._codes[name] = question.code
        self._peers.setdefault(name, peers).add(peer)
        return True

    def forget(self, peer: Peer) -> None:
        """End the claims of a peer that is gone."""
        for name in self._names.pop(peer, ()):
            self._peers[name].discard(peer)
            if not self._peers[name]:
                del self._peers[name], self._codes[name]


class PeerQueries:
    """Answers the questions of all peers of one space."""

    __slots__ = (
        "_answer_budget",
        "_answers",
        "_code_claims",
        "_engine",
        "_finishes",
        "_given",
        "_limits",
        "_news",
        "_watching",
        "on_subscribed",
    )

    def __init__(self, engine: Engine, limits: Limits, answer_budget: AnswerBudget) -> None:
        self._engine = engine
        self._limits = limits
        self._answer_budget = answer_budget
        self._code_claims = CodeClaims(limits.code_claims)
        self._given: dict[Peer, list[GivenTarget]] = {}  # targets that commits gave to workers, not sent yet
        self._finishes: list[tuple[Peer, Finish]] = []  # not done yet: commits may come along
        self._answers: list[tuple[Peer, Finish, Delivering | HeadwaterError]] = []  # done, not sent yet
        self.on_subscribed: Callable[[], object] = _nobody  # on the engine's thread
        # Watching peers with the number of their question; and the newest commit to tell them of.
        self._watching: dict[Kind, dict[Peer, int]] = {WatchEvents: {}, WatchWrittenDocuments: {}, WatchTargets: {}}
        self._news: dict[Kind, dict[Peer, int]] = {WatchEvents: {}, WatchWrittenDocuments: {}, WatchTargets: {}}

    def answer(self, peer: Peer, question: Asks) -> None:
        """Send the peer its answer, or the reason why it cannot have it."""
        try:
            match question:
                case Query():
                    reply = answer_query(self._engine, peer, question, self._limits)
                    self._answer_budget.begin()
                    for state in reply.documents:
                        self._answer_budget.take(size_of(state.value))
                    peer.send(reply)
                case QueryEvents():
                    self._events(peer, question)
                case WatchEvents() | WatchWrittenDocuments() | WatchTargets():
                    self._watch(peer, question)
                case QueryCurrent(reads=reads):
                    self._check_may_ask([read.doc for read in reads], peer)
                    self._answer_about_nodes(peer, question)
                case QueryBacklog():
                    self._check_owns(peer)
                    self._answer_about_nodes(peer, question)
                case QueryReaders(doc=doc):
                    self._check_may_ask([doc], peer)
                    self._answer_about_nodes(peer, question)
                case (
                    QueryObservations()
                    | QueryNodes()
                    | QueryCleanPieces()
                    | QueryAffectedNodes()
                    | QueryWrittenDocuments()
                ):
                    self._check_may_read(peer)
                    self._answer_about_nodes(peer, question)
                case ClaimCode():
                    # A peer that may not write takes no piece over, and keeps no other peer from it.
                    may_write = self._engine.right_of(peer.principal) >= Right.WRITE
                    peer.send(CodeClaimed(question.id, not may_write or self._code_claims.claim(peer, question)))
                case Finish():
                    self._check_may_deliver(peer, question)
                    self._engine.delivery.idle_workers.note_answer(peer)
                    self._finishes.append((peer, question))
                case (
                    Subscribe()
                    | Claim()
                    | RenewLeases()
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

    def _answer_about_nodes(self, peer: Peer, question: ObservationQuestion) -> None:
        if isinstance(question, QueryCurrent) and len(question.reads) > self._limits.commit_reads:
            raise LimitError(f"one question is about at most {self._limits.commit_reads} reads. Ask several.")
        if isinstance(question, QueryCurrent):
            self._check_layers([layer for read in question.reads for layer in read.layers])
        if isinstance(question, QueryNodes) and len(question.nodes) > self._limits.query_documents:
            raise LimitError(f"one question is about at most {self._limits.query_documents} nodes. Ask several.")
        if isinstance(question, QueryAffectedNodes) and len(question.also) > self._limits.query_documents:
            raise LimitError(f"one question is about at most {self._limits.query_documents} pieces. Ask several.")
        answer = self._engine.query_observations(question, branch=peer.branch)
        is_owner = self._engine.right_of(peer.principal) >= Right.OWN
        peer.send(answer if is_owner else self._visible_part(answer, peer))

    def _check_layers(self, layers: list[tuple[int, int]]) -> None:
        """Refuse ranges of layers that are none, or so long that going through them would hold the space."""
        named = 0
        for first, last in layers:
            named += last - first + 1
            # fault queries.layers_unbounded: if False:
            if not 0 < first <= last or named > self._limits.read_layers:
                raise LimitError(f"one question names at most {self._limits.read_layers} layers, from 1 on")

    def _visible_part(self, answer: ObservationAnswer, peer: Peer) -> ObservationAnswer:
        """Return an answer without nodes of other users, and without nodes that read documents of other users."""
        match answer:
            case Observations() | AffectedNodes():
                # fault queries.nodes_of_others_shown: seen = answer.observed
                seen = tuple([each for each in answer.observed if self._may_see_node(each, peer)])
                return msgspec.structs.replace(answer, observed=seen)
            case CleanPieces():
                # The nodes to keep awake are named with their users: such a piece is resumed node by node.
                return msgspec.structs.replace(answer, pieces=tuple([p for p in answer.pieces if not p.awake]))
            case WrittenDocuments():
                marks = [mark for mark in answer.marks if self._may_see(mark.doc, peer)]
                return msgspec.structs.replace(answer, marks=tuple(marks))
            case _:
                return answer

    def _may_see_node(self, observed: Observed, peer: Peer) -> bool:
        docs = {read.doc for read in observed.reads} | {read.doc for read in observed.foreign}
        if observed.cause is not None:
            docs.add(observed.cause[0])
        return observed.node.principal in ("", peer.principal) and all(self._may_see(doc, peer) for doc in docs)

    def _may_see(self, doc: DocKey, peer: Peer) -> bool:
        return self._engine.may_see(doc, peer.principal, peer.session)

    def _check_may_ask(self, docs: Iterable[DocKey], peer: Peer) -> None:
        for doc in docs:
            if not self._may_see(doc, peer):
                raise AccessError(f"{doc.scope}:{doc.id} is not for {peer.principal!r}")

    def _check_may_read(self, peer: Peer) -> None:
        """A program that may read a space may resume the nodes whose reads it may see."""
        if self._engine.right_of(peer.principal) < Right.READ:
            raise AccessError(
                f"only users who may read this space may see the runs of nodes, and {peer.principal!r} may not"
            )

    def _check_owns(self, peer: Peer) -> None:
        """Only owners: the causes name documents of all users."""
        if self._engine.right_of(peer.principal) < Right.OWN:
            raise AccessError(f"only owners of this space may see its backlog, and {peer.principal!r} is not an owner")

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
        self._answer_budget.begin()
        for event in page.items:
            self._answer_budget.take(size_of(event.payload))
        peer.send(StoredEvents(question.id, self._engine.last_seq, page.items, page.next, page.next_due_us))

    # ---- reactions -------------------------------------------------------------------------------

    def _deliver(self, peer: Peer, question: Delivers) -> None:
        """Only a principal that may write the space delivers its records; only an owner has them sent once more."""
        self._check_may_deliver(peer, question)
        self._engine.delivery.idle_workers.note_answer(peer)
        answer = self._engine.deliver(question)
        if isinstance(answer, Subscribed) and isinstance(question, Subscribe):
            self.on_subscribed()
            if self._engine.delivery.subscriptions.get(question.reaction).is_filling:
                self.targets_due()  # Records that it was declared for may be there already.
        self._answer_budget.begin()
        for grant in answer.grants if isinstance(answer, Claimed) else ():
            for record in grant.records:
                self._answer_budget.take(size_of(record.payload))
        if isinstance(answer, Claimed) and peer in self._given:
            self._send_news(
                WatchTargets, peer, self._news[WatchTargets].pop(peer, 0)
            )  # The peer learns of it before it closes.
        peer.send(answer)
        if isinstance(answer, Claimed) and isinstance(question, Claim) and peer in self._watching[WatchTargets]:
            room = min(question.limit, self._limits.claim_targets) - len(answer.grants)
            self._engine.delivery.idle_workers.register(peer, question, room if question.lane else 0)
        if isinstance(question, Operate):
            self.targets_due()

    def _check_may_deliver(self, peer: Peer, question: Delivers) -> None:
        self._check_may_write(peer, "reactions")
        if isinstance(question, Operate) and self._engine.right_of(peer.principal) < Right.OWN:
            raise AccessError(
                f"only owners of this space may operate its reactions, and {peer.principal!r} is not an owner"
            )
        if peer.branch != MAIN and not isinstance(question, Looking):
            raise ProtocolError(f"only records of branch {MAIN!r} are delivered, and this session is on another branch")

    def finish(self) -> None:
        """Record the results of targets that no commit came after, each by itself."""
        finishes, self._finishes = self._finishes, []
        for peer, question in finishes:
            answer: Delivering | HeadwaterError
            try:
                answer = self._engine.deliver(question)
            except HeadwaterError as error:
                answer = error
            self._finished(peer, question, answer)

    def finish_first(self) -> bool:
        """The same in the transaction of commits that came after it: they share an fsync. `finished` tells."""
        finishes, self._finishes = self._finishes, []
        answered_to = self._engine.delivery.answer_among_others
        self._answers = [(peer, question, answered_to(question)) for peer, question in finishes]
        return bool(finishes)

    def finished(self) -> None:
        """Note that the results of `finish_first` are on the disk."""
        answers, self._answers = self._answers, []
        for each in answers:
            self._finished(*each)

    def _finished(self, peer: Peer, question: Finish, answer: Delivering | HeadwaterError) -> None:
        if isinstance(answer, HeadwaterError):
            peer.send(Problem(problem_code(answer), str(answer), False, question.id))
            return
        peer.send(answer)
        waits = any(each.failure is not None and each.failure.then == "retry" for each in question.outcomes)
        if isinstance(answer, Finished) and (answer.next_us == 0 or waits):
            self.targets_due(but=peer)  # the peer gets it with the answer, and may have no room, or stop

    def targets_due(self, *, but: Peer | None = None) -> None:
        """Tell watchers, with the next news, that there may be targets to claim."""
        self._news[WatchTargets].update({peer: MORE for peer in self._watching[WatchTargets] if peer is not but})

    def _check_may_write(self, peer: Peer, what: str = "stored events") -> None:
        """Only a principal that may write the space: stored events tell how a program is made."""
        if self._engine.right_of(peer.principal) < Right.WRITE:
            raise AccessError(
                f"only users who may write this space may use its {what}, and {peer.principal!r} may not write it"
            )

    # ---- being told ------------------------------------------------------------------------------

    def _watch(self, peer: Peer, question: WatchEvents | WatchWrittenDocuments | WatchTargets) -> None:
        kind = type(question)
        self._watching[kind].pop(peer, None)
        self._news[kind].pop(peer, None)
        if not question.on:
            if kind is WatchTargets:
                self._engine.delivery.idle_workers.drop(peer)
            return
        self._check_may_watch(peer, kind)
        self._watching[kind][peer] = question.id
        if kind is WatchTargets:
            peer.send(self._due(peer, question.id, MORE))
        else:
            seq = self._engine.newest_event(peer.branch) if kind is WatchEvents else self._engine.last_seq
            peer.send(_news_message(kind, question.id, seq))

    def _check_may_watch(self, peer: Peer, kind: Kind) -> None:
        if kind is WatchWrittenDocuments:
            self._check_may_read(peer)
        else:
            self._check_may_write(peer)

    def note_commits(self, author: str, commit: Commit, seq: int) -> None:
        """Notify watchers of stored events and of written documents, but not the author of its own events."""
        for peer in self._watching[WatchEvents] if commit.events else ():
            if peer.session != author and peer.branch == commit.branch:
                self._news[WatchEvents][peer] = seq
        if commit.declared:
            self.on_subscribed()
            self.targets_due()  # Workers check which reactions are new.
        if commit.branch == MAIN and commit.records:
            self._emitted()
        if commit.delivered and commit.branch == MAIN and any(not each.keeps for each in commit.delivered):
            self.targets_due()  # One that was delivered is free, and may have more.
        if self._watching[WatchWrittenDocuments]:
            watching = [peer for peer in self._watching[WatchWrittenDocuments] if peer.branch == commit.branch]
            if watching and self._is_read(commit):
                self._news[WatchWrittenDocuments].update(dict.fromkeys(watching, seq))

    def _emitted(self) -> None:
        """Send a worker the targets that it was given, so that it need not ask, and the news to all other watchers.

        It is not known which of them will claim, and waiting workers have to know when the lease of another ends.
        """
        given, is_more = self._engine.delivery.idle_workers.take_given()
        news = self._news[WatchTargets]
        for peer in self._watching[WatchTargets] if given or is_more else ():
            what = given.get(peer)
            if what is not None:
                self._given.setdefault(peer, []).append(what)
            if is_more or len(given) > (what is not None):
                news[peer] = MORE
            else:
                news.setdefault(peer, 0)

    def _is_read(self, commit: Commit) -> bool:
        """Whether a node reads anything that it writes, or it is about a piece itself."""
        if any(whose_record(operation.doc) for operation in commit.operations):
            return True
        asked = [QueryReaders(0, operation.doc, "", 1) for operation in commit.operations]
        found = [self._engine.query_observations(question, branch=commit.branch) for question in asked]
        return any(isinstance(each, Readers) and each.pieces for each in found)

    def send_news(self) -> None:
        """Send the news once for all that happened since the last time."""
        for kind, news in self._news.items():
            if news:
                self._news[kind] = {}
                for peer, seq in news.items():
                    self._send_news(kind, peer, seq)

    def _send_news(self, kind: Kind, peer: Peer, seq: int) -> None:
        number = self._watching[kind].get(peer)
        if number is None:
            return
        try:
            self._check_may_watch(peer, kind)
        except HeadwaterError as error:
            # It lost the right: it is sent that, and nothing further.
            del self._watching[kind][peer]
            self._give_up(peer)
            peer.send(Problem(problem_code(error), str(error), False, number))
            return
        if kind is WatchTargets:
            self._engine.delivery.idle_workers.note_sent(peer)
            peer.send(self._due(peer, number, seq))
        else:
            peer.send(_news_message(kind, number, seq))

    def _due(self, peer: Peer, number: int, more: int) -> TargetsDue:
        """Make the message with the targets given to a worker and the news that there may be more."""
        given = self._given.pop(peer, ())
        grants = tuple([grant for each in given for grant in each.grants])
        self._answer_budget.begin()
        for grant in grants:
            for record in grant.records:
                self._answer_budget.take(size_of(record.payload))
        ago_us = self._engine.delivery.idle_workers.ago_us(given[0]) if given else 0
        return TargetsDue(number, self._engine.delivery.subscriptions.news, grants, ago_us, more == MORE)

    def _give_up(self, peer: Peer) -> None:
        """Give the worker nothing more. Targets that were given and not sent are free when their leases end."""
        self._engine.delivery.idle_workers.drop(peer)
        self._given.pop(peer, None)

    def forget(self, peer: Peer) -> None:
        """The peer is gone."""
        self._give_up(peer)
        self._code_claims.forget(peer)
        for peers in (*self._watching.values(), *self._news.values()):
            peers.pop(peer, None)


def _news_message(kind: Kind, number: int, seq: int) -> EventsStored | DocumentsWritten:
    return EventsStored(number, seq) if kind is WatchEvents else DocumentsWritten(number, seq)


def _nobody() -> None:
    """Do nothing: no caller waits."""


def answer_query(engine: Engine, peer: Peer, message: Query, limits: Limits) -> Answer:
    """The document that was asked for, or a page of a scope. AccessError: they are not for this peer."""
    doc = DocKey(message.scope, message.doc)
    # fault asking.access_not_checked: if False:
    if not engine.may_see(doc, peer.principal, peer.session):
        raise AccessError(f"{message.scope}:{message.doc or '*'} is not for {peer.principal!r}")
    if message.at is not None and not message.doc:
        raise ProtocolError("a page of documents is of now. Ask for them one by one to read the past.")
    seq = engine.last_seq
    if message.doc:
        # fault asking.past_answered_for_now: found = engine.read(doc, branch=peer.branch)
        # fault asking.reads_main: found = engine.read(doc, at=message.at)
        found = engine.read(doc, branch=peer.branch, at=message.at)
        return Answer(message.id, seq, (state_of(doc, found.seq, found.value),))
    limit = max(1, min(message.limit, limits.query_documents))
    # fault asking.reads_main: page = engine.documents(message.scope, after=message.after, limit=limit)
    page = engine.documents(
        message.scope, branch=peer.branch, after=message.after, limit=limit, most_bytes=limits.answer_bytes
    )
    return Answer(message.id, seq, tuple(state_of(d.doc, d.seq, d.value) for d in page.items), page.next)
