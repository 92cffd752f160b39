"""A replica's process in a simulation: one session at a time, its documents, its death.

`ReplicaProcess` does the work of a runtime around `Session`: it moves bytes and asks for documents. `Intents` runs the
transactions of its author, `Connector` makes connections, with a backoff and while the process is not offline. After
every step the process is checked (`replica_checks`).
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
    Encoding,
    FromEngine,
    FromReplica,
    Opened,
    Problem,
    Query,
    Sync,
    Transact,
    Verdicts,
    decode_from_engine,
    encode,
)
from headwater.replica import LinkState, Replica, Session
from headwater.testing.network import Connection, End, Network
from headwater.testing.simulation.access import READ
from headwater.testing.simulation.attempts import Attempt
from headwater.testing.simulation.conversation import Conversation
from headwater.testing.simulation.intents import MAX_ATTEMPTS, Intent, Intents, Status, Wants, WholeWork, Work
from headwater.testing.simulation.replica_checks import Books
from headwater.testing.simulation.server import ServerProcess
from headwater.testing.simulation.tokens import TokenHolder
from headwater.testing.simulation.trace import Trace

RECONNECT: Final = Backoff.exponential(base_ms=25, max_ms=30_000, jitter=0.2)
TURNED_AWAY_US: Final = 240_000_000


class Connector:
    """The connection of one process, or the wait for it."""

    __slots__ = (
        "_clock",
        "_draws",
        "_failures",
        "_is_waiting",
        "_life",
        "_near",
        "_network",
        "_server",
        "connection",
        "is_offline",
        "on_connected",
        "turned",
    )

    def __init__(self, near: End, clock: VirtualClock, draws: Random, network: Network, server: ServerProcess) -> None:
        self._near = near
        self._clock = clock
        self._draws = draws
        self._network = network
        self._server = server
        self._life = 0
        self._failures = 0
        self._is_waiting = False
        self.turned = 0  # how often it was turned away since it was let in
        self.connection: Connection | None = None
        self.is_offline = False
        self.on_connected: Callable[[Connection], object] = _nobody

    def begin(self) -> None:
        """Begin another life: connections of the last one are not its own."""
        self._life += 1
        self._is_waiting = False
        self._failures = 0
        self.connection = None
        self.soon(0)

    def opened(self) -> None:
        """It was let in."""
        self._failures = self.turned = 0

    def soon(self, us: int | None = None) -> None:
        """Try to connect, after the backoff's delay unless told when."""
        if self._is_waiting:
            return
        self._is_waiting = True
        delay = RECONNECT.delay_us(self._failures, self._draws) if us is None else us
        self._failures += 1
        life = self._life
        self._clock.call_at(self._clock.now_us() + delay, lambda: self._connect(life))

    def _connect(self, life: int) -> None:
        if life != self._life:
            return
        self._is_waiting = False
        if self.connection is not None or self.is_offline:
            return
        encoding: Encoding = self._draws.choice(("msgpack", "json"))
        connection = self._network.connect(self._near, self._server, encoding) if self._server.is_up else None
        if connection is None:
            self.soon()
            return
        self._server.accept(connection)
        self.connection = connection
        self.on_connected(connection)

    def ended(self) -> None:
        """The connection is gone."""
        self.connection = None

    def again(self) -> None:
        """Connect again after a lost connection, unless none is wanted."""
        if not self.is_offline:
            self.soon(min(1_000_000 << self.turned, TURNED_AWAY_US) if self.turned else None)

    def go_offline(self) -> None:
        self.is_offline = True
        if self.connection is not None:
            self.connection.end_near()

    def go_online(self) -> None:
        self.is_offline = False
        self._failures = 0
        if self.connection is None:
            self.soon(0)


def _nobody(_: Connection) -> None:
    """It is not known yet who speaks on it."""


class ReplicaProcess:
    """One process with a replica. `crash` loses its memory; the next life has another session key."""

    __slots__ = (
        "_clock",
        "_connector",
        "_draws",
        "_life",
        "_network",
        "_runner",
        "_server",
        "_trace",
        "_undone_to",
        "before_send",
        "books",
        "conversation",
        "keeps_derived",
        "name",
        "next_branch",
        "past_attempts",
        "replica",
        "session",
        "tokens",
        "user",
        "wants",
    )

    def __init__(
        self,
        name: str,
        user: str,
        clock: VirtualClock,
        draws: Random,
        network: Network,
        server: ServerProcess,
        trace: Trace,
        *,
        keeps_derived: bool | None = None,
    ) -> None:
        self.name = name
        self.user = user
        self._clock = clock
        self._draws = draws
        self._network = network
        self._server = server
        self._trace = trace
        self._life = 0
        self._connector = Connector(self, clock, draws, network, server)
        self._connector.on_connected = self._connected
        self._undone_to: tuple[int, object] | None = None  # where a restored log ended, and the connection of then
        self.next_branch = MAIN  # of the next life
        self.before_send: Callable[[FromReplica, Connection], object] | None = None  # where faults lie in wait
        self.past_attempts: list[Attempt] = []
        is_like_a_runtime = draws.random() < 0.8
        self.keeps_derived = is_like_a_runtime if keeps_derived is None else keeps_derived
        self.tokens = TokenHolder(name, user, clock, draws, trace)
        self.wants = Wants(name, trace)
        self.conversation = Conversation(name, self.tokens, self.wants, trace)
        self._runner = Intents(self, clock, draws, trace)
        self._begin_life()

    @property
    def intents(self) -> list[Intent]:
        return self._runner.all

    def _begin_life(self) -> None:
        self._life += 1
        self._undone_to = None
        self.conversation.begin()
        key = f"{self.name}.{self._life}"
        self.replica = Replica(branch=self.next_branch)
        self._server.oracle.access.users[key] = self.user
        self.session = Session(
            self.replica,
            space="sim",
            key=key,
            new_token=lambda: self._clock.new_token(4),
            token=self.tokens.token,
            keeps_derived=self.keeps_derived,
        )
        self.session.on_error = self._on_error
        self.session.on_load_failed = self._on_load_failed
        self.books = Books(
            self.name,
            self.user,
            key,
            self.replica,
            self._server.oracle,
            self._trace,
            keeps_derived=self.keeps_derived,
        )
        self.wants.begin(("space", f"user:{self.user}", f"session:{key}"))
        self.tokens.later(self.renew)
        self._connector.begin()

    def calm(self) -> None:
        """End the expiry of tokens from now on, and send derived commits."""
        self.tokens.calm()
        if not self.tokens.is_endless():
            self.renew()
        self.flush()

    # ---- the token ---------------------------------------------------------------------------------

    def renew(self) -> None:
        """Use another token from now on: on this connection, if there is one, and on every later one."""
        token = self.tokens.next()
        self._trace.note(self.name, "has the token", token)
        if self._connection is not None:
            self.tokens.renewing()
        self.session.renew(token)
        self.tokens.later(self.renew)
        self.stepped()
        self.tokens.check_said()

    # ---- the connection ----------------------------------------------------------------------------

    @property
    def _connection(self) -> Connection | None:
        return self._connector.connection

    def _connected(self, connection: Connection) -> None:
        self.conversation.connected()
        self._trace.note(self.name, "connects", connection.number, connection.encoding)
        self.session.connected()
        self.stepped()

    def go_offline(self) -> None:
        self._trace.note(self.name, "goes offline")
        self._connector.go_offline()

    def go_online(self) -> None:
        self._connector.go_online()

    def hang_up(self, connection: Connection) -> None:
        if connection is not self._connection:
            return
        self._trace.note(self.name, "loses", connection.number)
        self._connector.ended()
        self.session.lost()
        self.stepped()
        self._connector.again()

    def take(self, connection: Connection, data: bytes) -> None:
        if connection is not self._connection:
            return
        message: FromEngine | None = None
        try:
            message = decode_from_engine(data, connection.encoding)
            self._trace.note(self.name, f"<- {connection.number}", type(message).__name__)
            self.conversation.hears(message, self.books)
            if isinstance(message, Problem) and message.fatal and message.code in ("access", "absent"):
                self._turned_away(message, connection)
                return
            shown = self.replica.snapshot()
            if isinstance(message, Opened):
                self._reopened(message)
            else:
                self.session.receive(message)
            self.session.acknowledge()
            if isinstance(message, Verdicts):
                self.books.told(message.verdicts)
            elif isinstance(message, Sync):
                self.books.heard_of(change.doc for change in message.changes if change.doc not in shown)
        except ProtocolError as error:
            # The engine's storage may fail; then the connection is made again. Any other problem is a mistake.
            if not (isinstance(message, Problem) and message.code == "storage"):
                self._trace.broken("protocol", self.name, f"{error}")
            connection.end_near()
            return
        except HeadwaterError as error:
            self._trace.broken("replica", self.name, f"{type(error).__name__}: {error}")
        self.stepped()

    def _turned_away(self, problem: Problem, connection: Connection) -> None:
        """Try again now and then if the user may not read any more; if its branch is gone, go on on main."""
        self._trace.note(self.name, "is turned away", problem)
        if problem.code == "access" and self.tokens.was_over(problem):
            connection.end_near()
            self.renew()
        elif problem.code == "access":
            if self._server.oracle.access.least(self.user) >= READ and not self._server.oracle.is_behind:
                self._trace.broken("access", self.name, f"it was turned away for nothing: {problem.message}")
            self._connector.turned += 1
            connection.end_near()
        else:
            if self.replica.branch not in self._server.oracle.doomed:
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
        return self._server.oracle.access.right(self.user, len(self._server.oracle.log)) < READ

    def _on_error(self, error: HeadwaterError) -> None:
        if not isinstance(error, SessionExpiredError):
            return
        if self._undone_to is None:
            self._trace.broken("session", self.name, f"it was given up: {error}")
            return
        self._clock.call_at(self._clock.now_us(), lambda s=self.session: self._is_over(s))  # type: ignore[misc]

    def _on_load_failed(self, docs: tuple[DocKey, ...], error: LoadError) -> None:
        self._trace.note(self.name, "cannot load", docs)
        if self.replica.branch in self._server.oracle.doomed:
            self._clock.call_at(self._clock.now_us(), lambda: self.move_to(MAIN))
            return
        self.wants.refused(docs, self.conversation.problem, self.replica)

    # ---- life and death ----------------------------------------------------------------------------

    def undo(self, end: int) -> None:
        """Note that the server was given an older state, whose log ends there. This process is not told."""
        self.books.undo(end, [*self.past_attempts, *self.books.attempts])
        self._undone_to = (end, self._connection)
        self.conversation.answered_open = None  # its token may not have been used there

    def _reopened(self, message: Opened) -> None:
        """Take the session up. After the server was given an older state, only if it has seen no more than that."""
        self._connector.opened()
        newest, (end, before) = self.books.newest, self._undone_to or (None, None)
        if end is not None and newest <= end:
            self.books.go_on(self._server.oracle)
        self.session.receive(message)
        self.books.check_nothing_kept()
        if end is not None and self.session.link is LinkState.UP and self._connection is not before:
            self._undone_to = None
            self._trace.counts["sessions that outlived a restore"] += 1
            if newest > end:
                self._trace.broken("C1", self.name, f"it goes on, told of seq {newest}: the log was restored to {end}")

    def _is_over(self, session: Session) -> None:
        """The session is gone, since the space was restored: another life."""
        if session is self.session:
            self._trace.counts["sessions over after a restore"] += 1
            self.crash()

    def crash(self) -> None:
        """Lose all memory. Messages on the wire land or not, unheard."""
        self._trace.note(self.name, "crashes")
        self._network.drop(self)
        self._end_life("lost")

    def close(self) -> bool:
        """Leave in good order, if nothing is pending; begin again with another session."""
        if not self.replica.is_confirmed() or self.session.link is not LinkState.UP:
            return False
        self._trace.note(self.name, "says goodbye")
        self.session.close()
        self._pump()
        connection = self._connection
        self._connector.ended()
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
        self._begin_life()

    # ---- documents ---------------------------------------------------------------------------------

    def watch(self, doc: DocKey, *, follow: bool = False) -> None:
        self._trace.note(self.name, "watches", doc, follow)
        self.wants.watch(doc, follow=follow)
        self.session.watch([doc], follow=follow)
        self.stepped()

    def fetch(self, doc: DocKey) -> None:
        self.wants.watch(doc, follow=False)
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
        self.wants.drop(doc)
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
        self.session.query(query, self.conversation.asks(query, self.books))
        self.stepped()

    # ---- intents -----------------------------------------------------------------------------------

    def transact(self, tag: str, work: Work, *, derived: bool = False, retries: int = MAX_ATTEMPTS) -> Intent:
        """Do something once: run again after a conflict, when retrying is useful."""
        return self._runner.begin(tag, work, derived=derived, retries=retries)

    def replace(self, tag: str, doc: DocKey, work: WholeWork, *, retries: int = MAX_ATTEMPTS) -> Intent:
        """Replace a document by a value made of others."""
        return self._runner.begin(tag, work, derived=False, retries=retries, whole=doc)

    def flush(self) -> None:
        """Send the derived commits of a pass, as one frame."""
        self.session.flush()
        self.stepped()

    # ---- after every step --------------------------------------------------------------------------

    def stepped(self) -> None:
        """After each step: send pending messages, check the books, and run the intents that can run now."""
        self._pump()
        self.books.check()
        self._runner.retry()

    def _pump(self) -> None:
        outgoing, connection = self.session.outgoing, self._connection
        while outgoing and connection is not None:
            message = outgoing.popleft()
            self._trace.note(self.name, f"-> {connection.number}", message)
            self.conversation.says(message, self.books)
            data = encode(message, connection.encoding)
            if self.before_send is not None:
                self.before_send(message, connection)
            connection.up.send(data)
            if isinstance(message, Transact) and self._draws.random() < self.conversation.doubles_share:
                self._trace.note(self.name, "sends it twice")
                connection.up.send(data)

    def repeat(self) -> None:
        """Send a frame again, though its verdict may be here, as long as the session has not excluded that."""
        frames = self.conversation.repeatable(self.books)
        if self.session.link is LinkState.UP and self._connection is not None and frames:
            self.conversation.doubles_share = max(self.conversation.doubles_share, 0.01)
            self._trace.counts["frames sent again after their verdict"] += 1
            frame = self._draws.choice(frames)
            self._trace.note(self.name, "sends again", frame.commits[0].local_seq)
            self._connection.up.send(encode(frame, self._connection.encoding))

    @property
    def is_settled(self) -> bool:
        """Connected, nothing pending, nothing loading, no intent that could still run; or not let in."""
        return self.is_shut_out or (
            self.session.link is LinkState.UP
            and self._connection is not None
            and not self._connection.is_broken  # which it may not have noticed
            and self.replica.is_confirmed()
            and not self.session.is_loading()
            and all(intent.is_over for intent in self.intents)
            and self.conversation.is_answered
            and self.tokens.is_answered
        )
