"""The server of an author's simulation: the engines of all spaces on one disk, in a process that dies and is started
again.

It takes messages in batches, as a server under load does; no byte leaves it that was made after a power loss; a disk
that fails is opened again until it does not. The content of the disk decides the state of the next process. It accepts
every connection: the runtimes of a test are trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from headwater.clock import Random, VirtualClock
from headwater.engine import DEFAULT_LIMITS, Engine, Hub, Peer, PeerState, problem_code
from headwater.engine.store.port import Store
from headwater.engine.store.sqlite import SqliteStore
from headwater.errors import HeadwaterError, InvariantViolation, StorageError
from headwater.protocol.messages import FromEngine, FromReplica, Problem, decode_from_replica, encode
from headwater.runtime import ConnectionEnd
from headwater.testing.author.trace import Trace
from headwater.testing.disk.faulty_disk import FaultyDisk
from headwater.testing.disk.model import Loss
from headwater.testing.network import Connection, Network

RETRY_US: Final = 250_000  # until a server that could not go on is started again
TICK_US: Final = 1_000  # messages that arrive within it are taken together
WHO: Final = "server"

T = TypeVar("T")
Front = Callable[[Engine, FromReplica], FromReplica | None]
"""Takes each message that arrives for an engine, and returns the one that the engine is given. None: it is lost."""


class SpaceHost:
    """One space of the server while its process lives."""

    __slots__ = ("_server", "batch", "engine", "hub", "name", "store")

    def __init__(self, server: SimulatedServer, name: str, store: SqliteStore, clock: VirtualClock) -> None:
        self._server = server
        self.name = name
        self.store = store
        self.engine = Engine(store, clock=clock)
        self.hub = Hub(self.engine, clock, DEFAULT_LIMITS, keeps_time=True)
        self.batch: list[tuple[Peer, FromReplica]] = []

    # Called by a `ConnectionEnd`. It is never lost through it: the server notices that.

    def post(self, peer: Peer, message: FromReplica) -> None:
        front = self._server.front
        given = message if front is None else front(self.engine, message)
        if given is not None:
            self.batch.append((peer, given))

    def lost(self, peer: Peer) -> None:
        self._server.guarded(lambda: self.hub.lost(peer))

    def call(self, work: Callable[[Engine, Hub], T]) -> T:
        return work(self.engine, self.hub)

    def close(self) -> None:
        raise InvariantViolation("a simulated server is closed as a whole")


class SimulatedServer:
    """One server, up or down."""

    __slots__ = (
        "_clock",
        "_connection_ends",
        "_draws",
        "_hosts",
        "_inbox",
        "_is_ticking",
        "_is_timed",
        "_is_up",
        "_names",
        "_network",
        "_outbox",
        "_trace",
        "disk",
        "front",
        "open_store",
        "restarts",
    )

    def __init__(self, clock: VirtualClock, network: Network, trace: Trace) -> None:
        self._clock = clock
        self._draws: Random = clock.randomness(WHO)
        self._network = network
        self._trace = trace
        self._hosts: dict[str, SpaceHost] = {}
        self._names: dict[str, None] = {}  # of all spaces that there are
        self._connection_ends: dict[Connection, ConnectionEnd] = {}
        self._inbox: list[tuple[Connection, bytes]] = []
        self._outbox: list[tuple[Connection, FromEngine]] = []
        self._is_ticking = False
        self._is_timed = False
        self._is_up = True
        self.disk = FaultyDisk("author")
        self.front: Front | None = None  # for tests that change arriving messages
        self.open_store: Callable[..., SqliteStore] = SqliteStore  # for tests that count stored rows, or refuse them
        self.restarts = 0

    # ---- living and dying --------------------------------------------------------------------------

    @property
    def is_up(self) -> bool:
        return self._is_up

    def start(self) -> None:
        if not self._is_up:
            self._trace.note(WHO, "is up")
            self._is_up = True

    def crash(self, why: str, down_us: int, loss: Loss | None = None) -> None:
        """The process is gone, and with a loss the power too; it is started again after a while."""
        if not self._is_up:
            return
        self._die(why, loss)
        self._clock.call_at(self._clock.now_us() + down_us, self.start)

    def _die(self, why: str, loss: Loss | None) -> None:
        self._trace.note(WHO, "dies:", why, loss.value if loss is not None else "")
        self.restarts += 1
        self._is_up = False
        hosts, self._hosts = self._hosts, {}
        if loss is not None or self.disk.is_off:
            self.disk.reboot(loss or Loss.TORN, self._draws)
        else:
            self.disk.kill_process()
        for host in hosts.values():
            _abandon(host.store)
        self._inbox.clear()
        self._outbox.clear()
        for connection in list(self._connection_ends):
            self._network.sever(connection)
        self._connection_ends.clear()

    def close(self) -> None:
        """The test is over."""
        if self._is_up:
            self._die("the test is over", None)

    def heal(self) -> None:
        """Nothing goes wrong with it any more."""
        self.disk.heal()
        if self.disk.is_off:
            self._die("the power failed", Loss.TORN)
        self.start()

    # ---- connections -------------------------------------------------------------------------------

    def accept(self, connection: Connection) -> None:
        def say(message: FromEngine) -> None:
            if not self.disk.is_off:  # Bytes made after the power failed never leave the machine.
                self._outbox.append((connection, message))

        self._connection_ends[connection] = ConnectionEnd(say, _trusted, self._host, DEFAULT_LIMITS)

    def take(self, connection: Connection, data: bytes) -> None:
        if connection in self._connection_ends:
            self._inbox.append((connection, data))
            self._tick_soon()

    def hang_up(self, connection: Connection) -> None:
        connection_end = self._connection_ends.pop(connection, None)
        if connection_end is not None and self._is_up:
            self._clock.call_at(self._clock.now_us() + DEFAULT_LIMITS.session_kept_us, self._expire)
            connection_end.lost()

    def _host(self, space: str) -> SpaceHost:
        if not self._is_up:
            raise StorageError("the server is down")
        found = self._hosts.get(space)
        if found is None:
            self._names[space] = None
            store = self.open_store(f"{space}.space", vfs=self.disk.vfs)
            try:
                found = self._hosts[space] = SpaceHost(self, space, store, self._clock)
            except BaseException:
                _abandon(store)
                raise
        return found

    # ---- working -----------------------------------------------------------------------------------

    def _tick_soon(self) -> None:
        if not self._is_ticking:
            self._is_ticking = True
            self._clock.call_at(self._clock.now_us() + self._draws.randrange(TICK_US + 1), self._tick)

    def _tick(self) -> None:
        self._is_ticking = False
        if self._is_up:
            self.guarded(self._take_in)
        due_us = [host.hub.due_us for host in self._hosts.values() if host.hub.due_us is not None]
        if due_us and not self._is_timed:
            self._is_timed = True
            self._clock.call_at(self._clock.now_us() + min(due_us), self._pass_turns)

    def _take_in(self) -> None:
        """All that has arrived goes in together; then those who were refused are gone."""
        inbox, self._inbox = self._inbox, []
        refused: list[ConnectionEnd] = []
        for connection, data in inbox:
            connection_end = self._connection_ends.get(connection)
            if connection_end is None or connection_end.peer.is_closed() or connection_end in refused:
                continue
            try:
                connection_end.receive(decode_from_replica(data, connection.encoding))
            except StorageError:
                raise  # The disk: that is the whole server's end.
            except HeadwaterError as error:
                self._outbox.append((connection, Problem(problem_code(error), str(error))))
                refused.append(connection_end)
        for host in tuple(self._hosts.values()):
            batch, host.batch = host.batch, []
            host.hub.process(batch)
        for connection_end in refused:
            connection_end.lost()

    def _pass_turns(self) -> None:
        """Take a turn from a session that does not use it, and release the commits that it held back."""
        self._is_timed = False
        if self._is_up:
            self._tick_soon()

    def _expire(self) -> None:
        """Expire sessions and watches that were not resumed, as a server does now and then."""
        if self._is_up:
            for host in tuple(self._hosts.values()):
                self.guarded(host.hub.expire)

    def guarded(self, work: Callable[[], object]) -> None:
        """Run a step; its messages leave afterwards, if the machine is still on."""
        failed = ""
        try:
            work()
        except StorageError as error:
            failed = f"the disk failed: {error}"
        if self.disk.is_off:
            if self._draws.random() < 0.5:  # Messages from before the power failed may have left.
                self._deliver()
            self.crash("the power failed", RETRY_US, self._draws.choice(list(Loss)))
            return
        self._deliver()
        if failed:
            self.crash(failed, RETRY_US)
            return
        for connection, connection_end in tuple(self._connection_ends.items()):
            if connection_end.peer.state is PeerState.CLOSED:
                connection.end_far()

    def _deliver(self) -> None:
        outbox, self._outbox = self._outbox, []
        for connection, message in outbox:
            if connection.far_open:
                data = encode(message, connection.encoding)
                self._trace.said(WHO, f"connection {connection.number}", message, data)
                connection.down.send(data)

    # ---- for the test ------------------------------------------------------------------------------

    def stores(self) -> Mapping[str, Store]:
        """The store of every space that is open."""
        return {name: host.store for name, host in self._hosts.items()}

    def read(self, work: Callable[[Mapping[str, Engine]], T]) -> T:
        """Read the engine of every space. The disk can be read in any state of the server."""
        self.start()
        try:
            return work({name: self._host(name).engine for name in self._names})
        except StorageError as error:  # A fault that was meant for another step: it is spent on this process.
            self._die(f"the disk failed: {error}", None)
        self.heal()
        return work({name: self._host(name).engine for name in self._names})


def _trusted(_: str) -> str:
    """The principal of every connection: the runtimes of a test may do anything."""
    return ""


def _abandon(store: SqliteStore) -> None:
    """Close the rest of a store whose disk was taken away."""
    try:
        store.close()
    except StorageError:
        return  # its disk had failed before; the handles are gone all the same
