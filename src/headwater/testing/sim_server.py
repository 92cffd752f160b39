"""The server of a simulation: an engine and its hub on a disk that fails, and a process that dies and comes back.

Owns the engine's process: it takes messages in batches, as a server under load does, lets no byte leave that was made
after the power failed, and dies of a disk that it cannot reopen. What is on the disk decides what it knows afterwards.
Decides nothing about commits; that is the engine's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Final

from headwater.clock import Random, VirtualClock
from headwater.data.patch import replace
from headwater.engine.access import ACCESS
from headwater.engine.engine import Engine
from headwater.engine.hub import Hub
from headwater.engine.limits import Limits
from headwater.engine.peer import Peer, PeerState
from headwater.engine.store.port import Store
from headwater.engine.store.sqlite import SqliteStore
from headwater.engine.turns import TURN_US
from headwater.errors import CorruptionError, HeadwaterError, ProtocolError, StorageError
from headwater.protocol.commit import Commit, Operation
from headwater.protocol.messages import (
    VERSION,
    FromEngine,
    FromReplica,
    Hello,
    Welcome,
    decode_from_replica,
    encode,
)
from headwater.testing.disk_model import Loss
from headwater.testing.faulty_disk import FaultyDisk
from headwater.testing.sim_network import Connection, Network
from headwater.testing.sim_oracle import Oracle
from headwater.testing.sim_trace import Trace
from headwater.testing.sim_wire import WHO, Wire

FILE: Final = "sync.space"
LABEL: Final = "crash-sync"  # disk_machine.harness shrinks the checkpoints of disks that are called so
READER: Final = "guest"
STRANGER: Final = "sam"
WRITERS: Final = ("ann", "bob", "cyd", "dan", "eve")
RETRY_US: Final = 250_000
OPEN_TRIES: Final = 1_000

StoreOn = Callable[[str], Store]


def durable_store(vfs: str) -> Store:
    return SqliteStore(FILE, vfs=vfs)


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
        "_clock",
        "_draws",
        "_inbox",
        "_is_ticking",
        "_is_timed",
        "_limits",
        "_network",
        "_oracle",
        "_outbox",
        "_peers",
        "_store",
        "_store_on",
        "_trace",
        "_wire",
        "disk",
        "engine",
        "hub",
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
        store_on: StoreOn = durable_store,
    ) -> None:
        self._clock = clock
        self._draws = draws
        self._network = network
        self._oracle = oracle
        self._trace = trace
        self._wire = Wire(oracle, trace)
        self._limits = limits
        self._store_on = store_on
        self._store: Store | None = None
        self.engine: Engine | None = None
        self.hub: Hub | None = None
        self.restarts = 0
        self.tick_us = 2_000  # messages that arrive within it are taken together
        self.disk = FaultyDisk(LABEL)
        self.disk.load(founded_disk())
        self._peers: dict[Connection, Peer] = {}
        self._inbox: list[tuple[Connection, bytes]] = []
        self._outbox: list[tuple[Connection, FromEngine]] = []
        self._is_ticking = False
        self._is_timed = False
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
        """Open what is on the disk. A disk that fails now is tried again later, as a supervisor would."""
        if self.engine is not None:
            return
        try:
            self._store = self._store_on(self.disk.vfs)
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
        self._oracle.compare(engine)

    def _start_later(self, us: int) -> None:
        if self.restarts > OPEN_TRIES:
            self._trace.broken("healing", WHO, f"it did not start in {OPEN_TRIES} attempts")
            return
        self._clock.call_at(self._clock.now_us() + us, self.start)

    def die(self, why: str, loss: Loss | None = None) -> None:
        """The process is gone, and with a loss the power too. All it knew is on the disk, or is not."""
        self._trace.note(WHO, "dies:", why, loss.value if loss is not None else "")
        self.restarts += 1
        self._oracle.is_behind = True
        self._wire.forget()
        store, self._store, self.engine, self.hub = self._store, None, None, None
        if loss is not None or self.disk.is_off:
            self.disk.reboot(loss or Loss.TORN, self._draws)
        else:
            self.disk.kill_process()
        if store is not None:
            _abandon(store)
        self._inbox.clear()
        self._outbox.clear()
        for connection in list(self._peers):
            self._network.sever(connection)
        self._peers.clear()

    def crash(self, why: str, down_us: int, loss: Loss | None = None) -> None:
        """Die, and start again after a while."""
        self.die(why, loss)
        self._start_later(down_us)

    # ---- connections -------------------------------------------------------------------------------

    def accept(self, connection: Connection) -> None:
        self._peers[connection] = Peer(lambda message: self._say(connection, message), self._limits)

    def take(self, connection: Connection, data: bytes) -> None:
        if connection in self._peers:
            self._inbox.append((connection, data))
            self._tick_soon()

    def hang_up(self, connection: Connection) -> None:
        peer = self._peers.pop(connection, None)
        if peer is not None and self.hub is not None:
            self._trace.note(WHO, "sees the end of", connection.number)
            self._clock.call_at(self._clock.now_us() + self._limits.session_kept_us, self.upkeep)
            self._guarded(lambda hub: hub.lost(peer))

    def _say(self, connection: Connection, message: FromEngine) -> None:
        # What is made after the power failed never leaves the machine.
        if not self.disk.is_off:
            self._outbox.append((connection, message))

    def _tick_soon(self) -> None:
        if not self._is_ticking:
            self._is_ticking = True
            self._clock.call_at(self._clock.now_us() + self._draws.randrange(self.tick_us + 1), self._tick)

    def _tick(self) -> None:
        self._is_ticking = False
        inbox, self._inbox = self._inbox, []
        batch: list[tuple[Peer, FromReplica]] = []
        for connection, data in inbox:
            peer = self._peers.get(connection)
            if peer is None:
                continue
            try:
                message = decode_from_replica(data, connection.encoding)
            except ProtocolError as error:
                self._trace.broken("protocol", WHO, f"a replica's message cannot be read: {error}")
                continue
            if isinstance(message, Hello):
                peer.state, peer.principal = PeerState.GREETED, message.token
                self._say(connection, Welcome(VERSION))
            else:
                batch.append((peer, message))
        self._guarded(lambda hub: hub.process(batch))
        if self.hub is not None and (len(self.hub.turns) or self.hub.turns.held) and not self._is_timed:
            self._is_timed = True
            self._clock.call_at(self._clock.now_us() + TURN_US, self._pass_turns)

    def _pass_turns(self) -> None:
        """Whoever does not use its turn loses it, and what was kept back for it goes on."""
        self._is_timed = False
        self._tick_soon()

    def upkeep(self) -> None:
        """What a server does now and then: let go of watches whose time is over."""
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
        """Run a step of the server; what it says leaves afterwards, if there is still a machine to say it."""
        if self.hub is None or self.engine is None:
            return
        failed = ""
        try:
            work(self.hub)
            if not self.disk.is_off:
                self._oracle.follow(self.engine)
        except StorageError as error:
            failed = str(error)
        except HeadwaterError as error:
            self._trace.broken("server", WHO, f"{type(error).__name__} out of the hub: {error}")
            failed = str(error)
        if self.disk.is_off:
            # What was said before the power failed may have left.
            self._deliver(all_of_it=self._draws.random() < 0.5)
            self.crash("the power failed", RETRY_US, self._draws.choice(list(Loss)))
            return
        self._deliver(all_of_it=True)
        if failed:
            self.crash(f"a step failed: {failed}", RETRY_US)
            return
        self._wire.check_owners(self._peers.values())
        for connection in [connection for connection, peer in self._peers.items() if peer.state is PeerState.CLOSED]:
            connection.end_far()

    def _deliver(self, *, all_of_it: bool) -> None:
        outbox, self._outbox = self._outbox, []
        for connection, message in outbox:
            if all_of_it and connection.far_open:
                self._trace.note(WHO, f"-> {connection.number}", message)
                self._wire.said(self._peers.get(connection), message)
                connection.down.send(encode(message, connection.encoding))

    # ---- healing -----------------------------------------------------------------------------------

    def heal(self) -> None:
        self.disk.heal()
        self.start()


def _abandon(store: Store) -> None:
    """Close what is left of a store whose disk was taken away."""
    try:
        store.close()
    except StorageError:
        return  # its disk had failed before; the handles are gone all the same
