"""The server of a simulation: an engine and its hub on a disk that fails, in a process that dies and is started again.

`ServerProcess` takes messages in batches, as a server under load does, sends no byte that was made after a power loss,
and dies of a disk that it cannot reopen. The content of the disk decides the state of the next process.

`WireChecks` reads every message that leaves the server: a verdict agrees with the log and is never taken back (C6,
C10), a turn that is over stays over (C5), a session has one connection, and no user receives a document that it may
not read. A restart forgets a rejection that was not stored; a rejection is stored with an accepted commit of its
session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Final, TypeVar

from headwater.clock import Random, VirtualClock
from headwater.data.patch import replace
from headwater.engine import ACCESS, Engine, Hub, Limits, Peer, PeerState, problem_code
from headwater.engine.store.port import Store
from headwater.engine.store.sqlite import SqliteStore
from headwater.errors import CorruptionError, HeadwaterError, ProtocolError, StorageError
from headwater.protocol.commit import Commit, Operation
from headwater.protocol.messages import (
    FromEngine,
    FromReplica,
    Hello,
    Opened,
    Problem,
    Renew,
    Verdicts,
    decode_from_replica,
    encode,
)
from headwater.protocol.verdict import Accepted, Verdict
from headwater.runtime import ConnectionEnd
from headwater.testing.disk.faulty_disk import FaultyDisk
from headwater.testing.disk.model import Loss
from headwater.testing.network import Connection, Network
from headwater.testing.simulation.oracle import Oracle
from headwater.testing.simulation.tokens import OVER, authenticated, read_token
from headwater.testing.simulation.trace import Trace

WHO = "server"


def is_mixed(verdicts: tuple[Verdict, ...]) -> bool:
    """Whether a wave was accepted in part, and its end was not."""
    return not isinstance(verdicts[-1], Accepted) and any(isinstance(verdict, Accepted) for verdict in verdicts)


class WireChecks:
    """Listens to everything that one server says."""

    __slots__ = ("_judged", "_oracle", "_refused", "_stored", "_trace")

    def __init__(self, oracle: Oracle, trace: Trace) -> None:
        self._oracle = oracle
        self._trace = trace
        self._refused: set[tuple[str, int]] = set()
        self._judged: dict[str, int] = {}  # by session: verdicts up to here were said in this life
        self._stored: dict[str, int] = {}  # by session: up to here a restart knows that there was a verdict

    def forget(self) -> None:
        """The server died, or its store failed: it may have forgotten a no that was not stored, and judge again."""
        self._judged.clear()
        self._refused = {(session, number) for session, number in self._refused if number <= self._kept(session)}

    def restored(self, oracle: Oracle) -> None:
        """Note that it was given an older state: its messages since then did not happen."""
        self._oracle = oracle
        self._judged.clear()
        self._refused.clear()
        self._stored.clear()

    def _kept(self, session: str) -> int:
        return self._stored.get(session, 0)

    def said(self, peer: Peer | None, message: FromEngine) -> None:
        """A message leaves, to this peer if it is still there."""
        if isinstance(message, Problem):
            self._check_problem(message)
        if peer is None:
            return
        self._oracle.access.check_told(peer.principal, peer.session, message, len(self._oracle.log))
        if isinstance(message, Verdicts):
            for verdict in message.verdicts:
                self._check_verdict((peer.session, verdict.local_seq), verdict)
            last = message.verdicts[-1].local_seq
            self._judged[peer.session] = max(self._judged.get(peer.session, 0), last)
            self._store(peer.session, message.verdicts)
        elif isinstance(message, Opened):
            self._check_judged(message)

    def _store(self, session: str, verdicts: tuple[Verdict, ...]) -> None:
        """Note C6: verdicts with an accepted commit, or before one, are on the disk before they are sent."""
        fresh = [verdict for verdict in verdicts if not (isinstance(verdict, Accepted) and verdict.replayed)]
        accepted = [isinstance(verdict, Accepted) for verdict in fresh]
        if any(accepted):
            self._stored[session] = max(self._kept(session), fresh[-1].local_seq)
            self._trace.counts["waves judged in part"] += not all(accepted)

    def _check_judged(self, message: Opened) -> None:
        stored, judged = self._kept(message.session), self._judged.get(message.session, 0)
        self._trace.counts["refusals kept over a restart"] += (message.session, stored) in self._refused
        if message.judged < max(stored, judged):
            said = f"session {message.session} was judged up to {max(stored, judged)} and is told {message.judged}"
            self._trace.broken("C5", WHO, said)

    def _check_problem(self, problem: Problem) -> None:
        """Replicas that keep the protocol are never told that they broke it."""
        if problem.code == "storage":
            self.forget()
        if problem.code == "protocol" and problem.id == 0:
            self._trace.broken("protocol", WHO, f"a replica was refused: {problem.message}")

    def _check_verdict(self, key: tuple[str, int], verdict: Verdict) -> None:
        landed = self._oracle.seq_of.get(key, 0)
        if not isinstance(verdict, Accepted):
            self._refused.add(key)
            if landed:
                self._trace.broken("C6", WHO, f"commit {key} is said to be refused and is in the log at {landed}")
            return
        if key in self._refused:
            self._trace.broken("C6", WHO, f"commit {key} was refused and is accepted when it comes again")
        if verdict.seq <= len(self._oracle.log) and verdict.seq != landed:
            self._trace.broken("C6", WHO, f"commit {key} is said to be at {verdict.seq}, the log has it at {landed}")

    def check_owners(self, peers: Iterable[Peer]) -> None:
        """One connection owns a session."""
        owners = [peer.session for peer in peers if peer.state is PeerState.OPEN]
        if len(owners) != len(set(owners)):
            self._trace.broken("session", WHO, f"a session is open on two connections: {sorted(owners)}")


FILE: Final = "sync.space"
LABEL: Final = "crash-sync"  # disk.machine.harness shrinks the checkpoints of disks that are called so
READER: Final = "guest"
STRANGER: Final = "sam"
WRITERS: Final = ("ann", "bob", "cyd", "dan", "eve")
RETRY_US: Final = 250_000
OPEN_TRIES: Final = 1_000

T = TypeVar("T")


@cache
def founded_disk() -> dict[str, bytes]:
    """A disk with a space that has two owners, writers and a reader."""
    disk = FaultyDisk(LABEL)
    engine = Engine(SqliteStore(FILE, vfs=disk.vfs), clock=VirtualClock())
    engine.open_session("founder")
    access = {"owners": ["founder", WRITERS[0]], "writers": list(WRITERS), "readers": [READER]}
    engine.submit("founder", Commit(1, (Operation(ACCESS, (replace((), access),)),)))
    engine.close()
    return disk.image()


class ServerProcess:
    """One server, up or down."""

    __slots__ = (
        "_batch",
        "_clock",
        "_connection_ends",
        "_draws",
        "_inbox",
        "_is_caught",
        "_is_restored",
        "_is_ticking",
        "_is_timed",
        "_limits",
        "_network",
        "_outbox",
        "_store",
        "_tokens",
        "_trace",
        "_wire_checks",
        "ambush",
        "disk",
        "engine",
        "hub",
        "oracle",
        "restarts",
        "tick_us",
    )

    def __init__(
        self,
        clock: VirtualClock,
        draws: Random,
        network: Network,
        oracle: Oracle,
        trace: Trace,
        limits: Limits,
    ) -> None:
        self._clock = clock
        self._draws = draws
        self._network = network
        self.oracle = oracle
        self._trace = trace
        self._wire_checks = WireChecks(oracle, trace)
        self._limits = limits
        self._store: Store | None = None
        self.engine: Engine | None = None
        self.hub: Hub | None = None
        self.restarts = 0
        self.tick_us = 2_000  # messages that arrive within it are taken together
        self.disk = FaultyDisk(LABEL)
        self.disk.load(founded_disk())
        self._connection_ends: dict[Connection, ConnectionEnd] = {}
        self._tokens: dict[Connection, str] = {}  # by which each of them is there
        self._batch: list[tuple[Peer, FromReplica]] = []
        self._inbox: list[tuple[Connection, bytes]] = []
        self._outbox: list[tuple[Connection, FromEngine]] = []
        self._is_ticking = False
        self._is_timed = False
        self._is_restored = False
        self.ambush = False  # the next wave that is accepted in part is the last that is judged in this life
        self._is_caught = False
        self.start()

    # ---- living and dying --------------------------------------------------------------------------

    @property
    def is_up(self) -> bool:
        return self.engine is not None

    @property
    def store(self) -> Store:
        if self._store is None:
            raise StorageError("the server is down")
        return self._store

    def start(self) -> None:
        """Open the engine on the disk. A disk that fails now is tried again later, as a supervisor would."""
        if self.engine is not None:
            return
        try:
            self._store = SqliteStore(FILE, vfs=self.disk.vfs)
            engine = Engine(self._store, clock=self._clock, limits=self._limits, access=True)
        except StorageError as error:
            self._trace.note(WHO, "cannot start:", error)
            if isinstance(error, CorruptionError):
                self._trace.broken("C7", WHO, f"what it wrote cannot be opened: {error}")
            self.die("the disk failed at the start")
            self._start_later(RETRY_US)
            return
        self.engine, self.hub = engine, Hub(engine, self._clock, self._limits, keeps_time=True)
        self._trace.note(WHO, "is up at seq", engine.last_seq)
        if self._is_restored:
            self.oracle = self.oracle.restored(engine.last_seq, engine)
            self._wire_checks.restored(self.oracle)
        self.oracle.compare(engine)

    def backup(self) -> dict[str, bytes] | None:
        """Return a copy of the disk, if the disk is well."""
        return self.disk.image() if self.is_up and not self.disk.is_off else None

    def restore(self, backup: dict[str, bytes]) -> int:
        """Go on with an older state. Answers where the log ends in it; the truth is that from now on."""
        self.die("restored")
        self.disk.heal()
        self.disk.load(backup)
        with self._undone():
            self.start()
        if self.engine is None:
            raise StorageError("what was copied from a disk that was well cannot be opened")
        return self.engine.last_seq

    @contextmanager
    def _undone(self) -> Iterator[None]:
        """While the server starts its log may be shorter than it was."""
        self._is_restored = True
        yield
        self._is_restored = False

    def _start_later(self, us: int) -> None:
        if self.restarts > OPEN_TRIES:
            self._trace.broken("healing", WHO, f"it did not start in {OPEN_TRIES} attempts")
            return
        self._clock.call_at(self._clock.now_us() + us, self.start)

    def die(self, why: str, loss: Loss | None = None) -> None:
        """The process is gone, and with a loss the power too. All it knew is on the disk, or is not."""
        self._trace.note(WHO, "dies:", why, loss.value if loss is not None else "")
        self.restarts += 1
        self.oracle.is_behind = True
        self._wire_checks.forget()
        store, self._store, self.engine, self.hub = self._store, None, None, None
        if loss is not None or self.disk.is_off:
            self.disk.reboot(loss or Loss.TORN, self._draws)
        else:
            self.disk.kill_process()
        if store is not None:
            _abandon(store)
        self._inbox.clear()
        self._outbox.clear()
        self._batch.clear()
        for connection in list(self._connection_ends):
            self._network.sever(connection)
        self._connection_ends.clear()
        self._tokens.clear()

    def crash(self, why: str, down_us: int, loss: Loss | None = None) -> None:
        """Die, and start again after a while."""
        self.die(why, loss)
        self._start_later(down_us)

    # ---- connections -------------------------------------------------------------------------------

    def accept(self, connection: Connection) -> None:
        def authenticate(token: str) -> str:
            user = authenticated(token, self._clock.now_us())
            self._tokens[connection] = token
            return user

        def say(message: FromEngine) -> None:
            self._say(connection, message)

        self._connection_ends[connection] = ConnectionEnd(say, authenticate, lambda space: self, self._limits)

    def take(self, connection: Connection, data: bytes) -> None:
        if connection in self._connection_ends:
            self._inbox.append((connection, data))
            self._tick_soon()

    def hang_up(self, connection: Connection) -> None:
        connection_end = self._connection_ends.pop(connection, None)
        self._tokens.pop(connection, None)
        if connection_end is not None and self.hub is not None:
            self._trace.note(WHO, "sees the end of", connection.number)
            self._clock.call_at(self._clock.now_us() + self._limits.session_kept_us, self.upkeep)
            self._guarded(lambda hub: hub.lost(connection_end.peer))

    # Called by a `ConnectionEnd`. It is never lost through it: `hang_up` notices that.

    def post(self, peer: Peer, message: FromReplica) -> None:
        self._batch.append((peer, message))

    def lost(self, peer: Peer) -> None:
        self._guarded(lambda hub: hub.lost(peer))

    def call(self, work: Callable[[Engine, Hub], T]) -> T:
        if self.engine is None or self.hub is None:
            raise StorageError("the server is down")
        return work(self.engine, self.hub)

    def close(self) -> None:
        self.die("closed")

    def _outlived(self, connection: Connection, token: str) -> None:
        """End a connection whose token is over and was not renewed."""
        connection_end = self._connection_ends.get(connection)
        if connection_end is not None and self._tokens.get(connection) == token and not connection_end.peer.is_closed():
            self._say(connection, Problem("access", f"{OVER}. Renew it before that."))
            self.lost(connection_end.peer)

    def _say(self, connection: Connection, message: FromEngine) -> None:
        # Bytes made after the power failed never leave the machine.
        if not self.disk.is_off:
            self._outbox.append((connection, message))

    def _tick_soon(self) -> None:
        if not self._is_ticking:
            self._is_ticking = True
            self._clock.call_at(self._clock.now_us() + self._draws.randrange(self.tick_us + 1), self._tick)

    def _tick(self) -> None:
        self._is_ticking = False
        inbox, self._inbox = self._inbox, []
        refused: list[Peer] = []
        for connection, data in inbox:
            connection_end = self._connection_ends.get(connection)
            if connection_end is None or connection_end.peer.is_closed() or connection_end.peer in refused:
                continue
            try:
                message = decode_from_replica(data, connection.encoding)
                connection_end.receive(message)
            except ProtocolError as error:
                self._trace.broken("protocol", WHO, f"a replica's message cannot be taken in: {error}")
            except HeadwaterError as error:
                self._say(connection, Problem(problem_code(error), str(error)))
                refused.append(connection_end.peer)
            else:
                token, until_us = self._tokens.get(connection, ""), read_token(self._tokens.get(connection, ""))[1]
                if until_us and isinstance(message, Hello | Renew):
                    self._clock.call_at(until_us, lambda c=connection, t=token: self._outlived(c, t))  # type: ignore[misc]
        self._guarded(lambda hub: self._process(hub, refused))
        due_us = None if self.hub is None else self.hub.due_us
        if due_us is not None and not self._is_timed:
            self._is_timed = True
            self._clock.call_at(self._clock.now_us() + due_us, self._pass_turns)

    def _process(self, hub: Hub, refused: list[Peer]) -> None:
        """All that has arrived goes in together; then those who were refused are gone."""
        batch, self._batch = self._batch, []
        hub.process(batch)
        for peer in refused:
            hub.lost(peer)

    def _pass_turns(self) -> None:
        """Take a turn from a session that does not use it, and release the commits that it held back."""
        self._is_timed = False
        self._tick_soon()

    def upkeep(self) -> None:
        """Drop watches whose time is over, as a server does now and then."""
        self._guarded(lambda hub: hub.expire())

    def maintain(self, work: Callable[[Engine], object]) -> None:
        """Do something with the engine that does not come through the hub, as its host would, and let it be told."""
        engine = self.engine
        if engine is None:
            return

        def worked(hub: Hub) -> None:
            work(engine)
            hub.process([])

        self._guarded(worked)

    def _guarded(self, work: Callable[[Hub], object]) -> None:
        """Run a step of the server; its messages leave afterwards, if the machine is still on."""
        if self.hub is None or self.engine is None:
            return
        failed = ""
        try:
            work(self.hub)
            if not self.disk.is_off:
                self.oracle.follow(self.engine)
        except StorageError as error:
            failed = str(error)
        except HeadwaterError as error:
            self._trace.broken("server", WHO, f"{type(error).__name__} out of the hub: {error}")
            failed = str(error)
        if self.disk.is_off:
            # Messages from before the power failed may have left.
            self._deliver(all_of_it=self._draws.random() < 0.5)
            self.crash("the power failed", RETRY_US, self._draws.choice(list(Loss)))
            return
        self._deliver(all_of_it=True)
        if self._is_caught:
            self._is_caught = self.ambush = False
            self.crash("killed after a wave that was accepted in part", RETRY_US)
            return
        if failed:
            self.crash(f"a step failed: {failed}", RETRY_US)
            return
        peers = {connection: connection_end.peer for connection, connection_end in self._connection_ends.items()}
        self._wire_checks.check_owners(peers.values())
        for connection in [connection for connection, peer in peers.items() if peer.state is PeerState.CLOSED]:
            connection.end_far()

    def _deliver(self, *, all_of_it: bool) -> None:
        outbox, self._outbox = self._outbox, []
        for connection, message in outbox:
            if all_of_it and connection.far_open:
                self._trace.note(WHO, f"-> {connection.number}", message)
                connection_end = self._connection_ends.get(connection)
                self._wire_checks.said(connection_end.peer if connection_end is not None else None, message)
                if self.ambush and isinstance(message, Verdicts) and is_mixed(message.verdicts):
                    self._is_caught = connection.down.lost = True
                connection.down.send(encode(message, connection.encoding))

    # ---- healing -----------------------------------------------------------------------------------

    def heal(self) -> None:
        self.disk.heal()
        self.start()


def _abandon(store: Store) -> None:
    """Close the rest of a store whose disk was taken away."""
    try:
        store.close()
    except StorageError:
        return  # its disk had failed before; the handles are gone all the same
