"""A replica's process in a simulation: one session at a time, its connections, its documents, its death.

Owns what a runtime will do around `Session`: it moves the bytes, reconnects with backoff and asks for documents. What
its author wants done is run by `sim_intents`. After every step its books are checked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from headwater.backoff import Backoff
from headwater.clock import Random, VirtualClock
from headwater.data.address import DocKey
from headwater.errors import HeadwaterError, LoadError, ProtocolError, SessionExpiredError
from headwater.protocol.commit import MAIN
from headwater.protocol.messages import (
    Answer,
    Encoding,
    FromEngine,
    FromReplica,
    Open,
    Opened,
    Problem,
    Query,
    Sync,
    Transact,
    Verdicts,
    decode_from_engine,
    encode,
)
from headwater.replica.replica import Replica
from headwater.replica.session import Link, Session
from headwater.testing.sim_access import READ
from headwater.testing.sim_checks import Attempt, Books
from headwater.testing.sim_intents import MAX_ATTEMPTS, Intent, Intents, Status, Work
from headwater.testing.sim_network import Connection, Network
from headwater.testing.sim_oracle import Oracle
from headwater.testing.sim_server import ServerProcess
from headwater.testing.sim_trace import Trace

RECONNECT: Final = Backoff.exponential(base_ms=25, max_ms=30_000, jitter=0.2)
TURNED_AWAY_US: Final = 240_000_000


class ReplicaProcess:
    """One process with a replica. `crash` loses its memory; the next life has another session key."""

    __slots__ = (
        "_clock",
        "_connection",
        "_draws",
        "_expected",
        "_failures",
        "_is_connecting",
        "_life",
        "_network",
        "_opening",
        "_oracle",
        "_runner",
        "_server",
        "_told",
        "_trace",
        "_turned",
        "answered_open",
        "asked",
        "before_send",
        "books",
        "doubles_share",
        "dropped",
        "is_offline",
        "name",
        "next_branch",
        "past_attempts",
        "replica",
        "session",
        "user",
        "wanted",
    )

    def __init__(
        self,
        name: str,
        user: str,
        clock: VirtualClock,
        draws: Random,
        network: Network,
        server: ServerProcess,
        oracle: Oracle,
        trace: Trace,
    ) -> None:
        self.name = name
        self.user = user
        self._clock = clock
        self._draws = draws
        self._network = network
        self._server = server
        self._oracle = oracle
        self._trace = trace
        self._life = 0
        self._failures = 0
        self._turned = 0  # how often it was turned away since it was let in
        self._is_connecting = False
        self._connection: Connection | None = None
        self._told = 0
        self._expected: set[int] = set()
        self._opening: Open | None = None
        self.answered_open: Open | None = None  # the last whose answer came: its token was used
        self.is_offline = False
        self.next_branch = MAIN  # of the next life
        self.before_send: Callable[[FromReplica, Connection], object] | None = None  # where faults lie in wait
        self.doubles_share = 0.0  # of the frames are sent twice, which a correct replica never does
        self.past_attempts: list[Attempt] = []
        self.wanted: dict[DocKey, bool] = {}  # watched, and whether with what its links lead to
        self.dropped: set[DocKey] = set()  # let go on purpose, so that following links need not bring them back
        self.asked: list[list[object]] = []
        self._runner = Intents(self, clock, draws, trace)
        self._begin_life()

    @property
    def intents(self) -> list[Intent]:
        return self._runner.all

    def _begin_life(self) -> None:
        self._life += 1
        key = f"{self.name}.{self._life}"
        self.replica = Replica(branch=self.next_branch)
        self._oracle.access.users[key] = self.user
        self.session = Session(
            self.replica, space="sim", key=key, new_token=lambda: self._clock.new_token(4), token=self.user
        )
        self.session.on_error = self._on_error
        self.session.on_load_failed = self._on_load_failed
        self.books = Books(self.name, self.user, key, self.replica, self._oracle, self._trace)
        self.wanted.clear()
        self.dropped.clear()
        self.connect_soon(0)

    # ---- the connection ----------------------------------------------------------------------------

    def connect_soon(self, us: int | None = None) -> None:
        """Try to connect, after the backoff's delay unless told when."""
        if self._is_connecting:
            return
        self._is_connecting = True
        delay = RECONNECT.delay_us(self._failures, self._draws) if us is None else us
        self._failures += 1
        session = self.session
        self._clock.call_at(self._clock.now_us() + delay, lambda: self._connect(session))

    def _connect(self, session: Session) -> None:
        self._is_connecting = False
        if session is not self.session or self._connection is not None or self.is_offline:
            return
        encoding: Encoding = self._draws.choice(("msgpack", "json"))
        connection = self._network.connect(self, self._server, encoding) if self._server.is_up else None
        if connection is None:
            self.connect_soon()
            return
        self._server.accept(connection)
        self._connection = connection
        self._told = 0
        self._trace.note(self.name, "connects", connection.number, encoding)
        self.session.connected()
        self.stepped()

    def go_offline(self) -> None:
        self.is_offline = True
        self._trace.note(self.name, "goes offline")
        if self._connection is not None:
            self._connection.end_near()

    def go_online(self) -> None:
        self.is_offline = False
        self._failures = 0
        if self._connection is None:
            self.connect_soon(0)

    def hang_up(self, connection: Connection) -> None:
        if connection is not self._connection:
            return
        self._trace.note(self.name, "loses", connection.number)
        self._connection = None
        self.session.lost()
        self.stepped()
        if not self.is_offline:
            self.connect_soon(min(1_000_000 << self._turned, TURNED_AWAY_US) if self._turned else None)

    def take(self, connection: Connection, data: bytes) -> None:
        if connection is not self._connection:
            return
        message: FromEngine | None = None
        try:
            message = decode_from_engine(data, connection.encoding)
            self._trace.note(self.name, f"<- {connection.number}", type(message).__name__)
            if isinstance(message, Verdicts):
                self._check_order([verdict.local_seq for verdict in message.verdicts])
            if isinstance(message, Opened):
                self._failures = self._turned = 0
                self.answered_open = self._opening
            if isinstance(message, Problem) and message.fatal and message.code in ("access", "absent"):
                self._turned_away(message, connection)
                return
            shown = self.replica.snapshot()
            self.session.receive(message)
            if isinstance(message, Verdicts):
                self.books.told(message.verdicts)
            elif isinstance(message, Sync):
                self.books.heard_of(change.doc for change in message.changes if change.doc not in shown)
        except ProtocolError as error:
            # The engine's storage may fail; then the connection is made again. Anything else is somebody's mistake.
            if not (isinstance(message, Problem) and message.code == "storage"):
                self._trace.broken("protocol", self.name, f"{error}")
            connection.end_near()
            return
        except HeadwaterError as error:
            self._trace.broken("replica", self.name, f"{type(error).__name__}: {error}")
        self.stepped()

    def _turned_away(self, problem: Problem, connection: Connection) -> None:
        """Whoever may not read any more tries again now and then; where a branch is gone, life goes on on main."""
        self._trace.note(self.name, "is turned away", problem)
        if problem.code == "access":
            if self._oracle.access.least(self.user) >= READ and not self._oracle.is_behind:
                self._trace.broken("access", self.name, f"it was turned away for nothing: {problem.message}")
            self._turned += 1
            connection.end_near()
        else:
            if self.replica.branch not in self._oracle.doomed:
                self._trace.broken("protocol", self.name, f"its branch is there: {problem.message}")
            self.move_to(MAIN)

    def move_to(self, branch: str) -> None:
        """Begin another life on a branch: after a goodbye, if nothing is pending, or as if it had crashed."""
        self.next_branch = branch
        if not self.close():
            self.crash()

    @property
    def is_shut_out(self) -> bool:
        """Its user may not even read, at the end of the log."""
        return self._oracle.access.right(self.user, len(self._oracle.log)) < READ

    def _check_order(self, local_seqs: list[int]) -> None:
        """C5: on one connection verdicts come in the order of the commits."""
        for local_seq in local_seqs:
            if local_seq <= self._told and not self.doubles_share:
                self._trace.broken("C5", self.name, f"the verdict of {local_seq} came after that of {self._told}")
            self._told = max(self._told, local_seq)

    def _on_error(self, error: HeadwaterError) -> None:
        if isinstance(error, SessionExpiredError):
            self._trace.broken("session", self.name, f"it was given up: {error}")

    def _on_load_failed(self, docs: tuple[DocKey, ...], error: LoadError) -> None:
        self._trace.note(self.name, "cannot load", docs)
        if self.replica.branch in self._oracle.doomed:
            self._clock.call_at(self._clock.now_us(), lambda: self.move_to(MAIN))
            return
        for doc in docs:
            self.wanted.pop(doc, None)
            if doc.scope in ("space", f"user:{self.user}", f"session:{self.session.key}"):
                self._trace.broken("watch", self.name, f"{doc} was refused: {error}")

    # ---- life and death ----------------------------------------------------------------------------

    def crash(self) -> None:
        """All memory is gone. What was on the wire lands or not, and nobody will hear."""
        self._trace.note(self.name, "crashes")
        self._network.drop(self)
        self._end_life("lost")

    def close(self) -> bool:
        """Leave in good order, if nothing is pending; begin again with another session."""
        if len(self.replica.pending) or self.session.link is not Link.UP:
            return False
        self._trace.note(self.name, "says goodbye")
        self.session.close()
        self._pump()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.end_near()
        self._end_life("failed")
        return True

    def _end_life(self, status: Status) -> None:
        for attempt in self.books.attempts:
            attempt.is_alone = not attempt.fired
        self.past_attempts += self.books.attempts
        for intent in self.intents:
            if not intent.is_over:
                intent.status = status
        self._connection = None
        self._is_connecting = False
        self._failures = 0
        self.asked.clear()
        self._begin_life()

    # ---- documents ---------------------------------------------------------------------------------

    def watch(self, doc: DocKey, *, follow: bool = False) -> None:
        self._trace.note(self.name, "watches", doc, follow)
        self.wanted[doc] = follow or self.wanted.get(doc, False)
        self.dropped.discard(doc)
        self.session.watch([doc], follow=follow)
        self.stepped()

    def fetch(self, doc: DocKey) -> None:
        self.wanted.setdefault(doc, False)
        self.dropped.discard(doc)
        self.session.watch([doc])
        self._pump()

    def unwatch(self, doc: DocKey) -> bool:
        done = self.session.unwatch(doc)
        self._trace.note(self.name, "unwatches", doc, done)
        if done:
            self._dropped(doc)
        self.stepped()
        return done

    def _dropped(self, doc: DocKey) -> None:
        self.wanted.pop(doc, None)
        self.dropped.add(doc)
        self.books.let_go(doc)

    def let_go(self, doc: DocKey) -> bool:
        """Drop the value, stay interested: the next `watch` brings it back."""
        done = self.replica.let_go(doc)
        self._trace.note(self.name, "lets go of", doc, done)
        if done:
            self._dropped(doc)
        self.stepped()
        return done

    def ask(self, query: Query) -> None:
        """A query must be answered once, or refused once."""
        heard: list[object] = []
        self.asked.append(heard)

        def reply(answer: Answer | LoadError) -> None:
            heard.append(answer)
            if len(heard) > 1:
                self._trace.broken("query", self.name, f"{query} was answered {len(heard)} times")
            if isinstance(answer, Answer) and not self._oracle.is_behind:
                self.books.check_answer(query, answer)

        self.session.query(query, reply)
        self.stepped()

    # ---- intents -----------------------------------------------------------------------------------

    def transact(self, tag: str, work: Work, *, derived: bool = False, retries: int = MAX_ATTEMPTS) -> Intent:
        """Do something once: run again after a conflict, when retrying is useful."""
        return self._runner.begin(tag, work, derived=derived, retries=retries)

    def flush(self) -> None:
        """The pass is over: its derived commits leave as a wave."""
        self.session.flush()
        self.stepped()

    # ---- after every step --------------------------------------------------------------------------

    def stepped(self) -> None:
        """Something happened here: send what is to be sent, check the books, and run what can run now."""
        self._pump()
        self.books.check()
        self._runner.retry()

    def _pump(self) -> None:
        outgoing, connection = self.session.outgoing, self._connection
        while outgoing and connection is not None:
            message = outgoing.popleft()
            self._trace.note(self.name, f"-> {connection.number}", message)
            if isinstance(message, Open):
                self._opening = message
            data = encode(message, connection.encoding)
            if self.before_send is not None:
                self.before_send(message, connection)
            connection.up.send(data)
            if isinstance(message, Transact) and self._draws.random() < self.doubles_share:
                self._trace.note(self.name, "sends it twice")
                connection.up.send(data)

    @property
    def is_settled(self) -> bool:
        """Connected, nothing pending, nothing loading, no intent that could still run; or not let in."""
        return self.is_shut_out or (
            self.session.link is Link.UP
            and self._connection is not None
            and not self._connection.is_broken  # which it may not have noticed
            and not len(self.replica.pending)
            and not self.session.is_loading()
            and all(intent.is_over for intent in self.intents)
            and all(self.asked)
        )
