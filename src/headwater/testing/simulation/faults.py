"""The faults of a simulation, drawn from the seed within the time in which the authors work.

`FaultInjector` asks the network, the server's disk and the processes for faults; each fault ends by itself or when the
simulation heals. `Thief` repeats an `Open` message that it has read, on a connection of its own. It steals only an
`Open` that was answered: the token in it was used, so that the server must refuse it, after any number of restarts. The
token that the message chose for the next time is valid, but not for another user.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from headwater.clock import Random, VirtualClock
from headwater.data.address import SPACE_SCOPE, DocKey
from headwater.data.patch import replace
from headwater.engine import Engine
from headwater.protocol.commit import Commit, Operation
from headwater.protocol.messages import (
    VERSION,
    FromReplica,
    Hello,
    Open,
    Opened,
    Problem,
    Renew,
    Renewed,
    Transact,
    Welcome,
    decode_from_engine,
    encode,
)
from headwater.testing.disk.faulty_disk import Fault, Mode
from headwater.testing.disk.model import Loss, OpKind
from headwater.testing.network import Connection, Network
from headwater.testing.simulation.process import ReplicaProcess
from headwater.testing.simulation.server import WRITERS, ServerProcess
from headwater.testing.simulation.tokens import token_of
from headwater.testing.simulation.trace import Trace

WHO = "thief"


class Thief:
    """One attempt: connects, repeats a message that it heard, and hangs up."""

    __slots__ = ("_trace",)

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    def steal(self, process: ReplicaProcess, network: Network, server: ServerProcess, user: str) -> None:
        heard = process.conversation.answered_open
        if heard is not None and user != process.user:
            heard = msgspec.structs.replace(heard, resume=heard.following)
        if heard is None or not server.is_up:
            return
        connection = network.connect(self, server, "msgpack")
        if connection is None:
            return
        self._trace.note(WHO, "repeats on", connection.number, user, heard)
        server.accept(connection)
        for message in (Hello((VERSION,), (), user), heard):
            connection.up.send(encode(message))

    def pose(self, process: ReplicaProcess, network: Network, server: ServerProcess, user: str) -> None:
        """Greet as one user, with the token of another as if it was the next one."""
        connection = network.connect(self, server, "msgpack") if server.is_up and user != process.user else None
        if connection is None:
            return
        self._trace.note(WHO, "poses on", connection.number, user, process.user)
        server.accept(connection)
        for message in (Hello((VERSION,), (), user), Renew(token_of(process.user))):
            connection.up.send(encode(message))

    def take(self, connection: Connection, data: bytes) -> None:
        message = decode_from_engine(data)
        self._trace.note(WHO, f"<- {connection.number}", type(message).__name__)
        if isinstance(message, Opened):
            self._trace.broken(
                "session", WHO, f"session {message.session} was taken with a token that was used, or is not one's own"
            )
        elif isinstance(message, Renewed):
            self._trace.broken("session", WHO, "a connection of one user goes on with the token of another")
        elif isinstance(message, Problem) and message.code == "access" and "the token is of" in message.message:
            self._trace.counts["tokens of somebody else"] += 1
        elif not isinstance(message, Welcome | Problem):
            self._trace.broken("session", WHO, f"it was told {message}")
        if not isinstance(message, Welcome):
            connection.end_near()

    def hang_up(self, connection: Connection) -> None:
        self._trace.note(WHO, "is gone from", connection.number)


CRASHES: Final = (Mode.CRASH_BEFORE, Mode.CRASH_AFTER)
FAILURES: Final = (Mode.IO_ERROR, Mode.FULL, Mode.SYNC_DONE, Mode.SYNC_LOST, Mode.READ_ERROR)
OFFLINE_US: Final = (100_000, 3_000_000, 12_000_000, 100_000_000, 3_600_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Which faults happen, as weights; 0 is never. `count` of them are drawn."""

    count: tuple[int, int] = (2, 10)
    within_us: int = 4_000_000
    cut: int = 5
    strand: int = 4
    offline: int = 3
    partition: int = 2
    replica_crash: int = 1
    server_crash: int = 2
    power_loss: int = 2
    disk: int = 2
    maintenance: int = 3
    theft: int = 3
    restore: int = 1
    ambush: int = 2


HOST: Final = "host"
NO_FAULTS: Final = Faults(count=(0, 0))


class FaultInjector:
    """Lets things go wrong."""

    __slots__ = ("_clock", "_draws", "_faults", "_is_over", "_network", "_processes", "_server", "_trace")

    def __init__(
        self,
        clock: VirtualClock,
        draws: Random,
        faults: Faults,
        network: Network,
        server: ServerProcess,
        processes: Sequence[ReplicaProcess],
        trace: Trace,
    ) -> None:
        self._clock = clock
        self._draws = draws
        self._faults = faults
        self._network = network
        self._server = server
        self._processes = processes
        self._trace = trace
        self._is_over = False

    def schedule(self) -> None:
        faults = self._faults
        acts: dict[Callable[[], None], int] = {
            self._cut: faults.cut,
            self._strand: faults.strand,
            self._offline: faults.offline,
            self._partition: faults.partition,
            self._replica_crash: faults.replica_crash,
            self._server_crash: faults.server_crash,
            self._power_loss: faults.power_loss,
            self._disk: faults.disk,
            self._maintenance: faults.maintenance,
            self._theft: faults.theft,
            self._restore: faults.restore,
            self._ambush: faults.ambush,
        }
        if not any(acts.values()):
            return
        for _ in range(self._draws.randint(*faults.count)):
            act = self._draws.choices(list(acts), list(acts.values()))[0]
            self._at(self._draws.randrange(faults.within_us), act)

    def end(self) -> None:
        """Nothing goes wrong from now on."""
        self._is_over = True
        self._server.ambush = False
        for process in self._processes:
            process.before_send = None
            self._network.mend(process)
            process.go_online()

    def _at(self, us: int, act: Callable[[], None]) -> None:
        def unless_over() -> None:
            if not self._is_over:
                act()

        self._clock.call_at(self._clock.now_us() + us, unless_over)

    def _someone(self) -> ReplicaProcess:
        return self._draws.choice(self._processes)

    def _lasting_us(self) -> int:
        longest = self._draws.choice(OFFLINE_US)
        return self._draws.randint(longest // 10, longest)

    # ---- faults ------------------------------------------------------------------------------------

    def _cut(self) -> None:
        for connection in self._network.of(self._someone()):
            self._trace.note("fault", "cut", connection.number)
            self._network.cut(connection)

    def _strand(self) -> None:
        """Lies in wait: the next commits, or the next opening, arrive and are never answered, now or late."""
        process = self._someone()
        kind = self._draws.choice((Transact, Transact, Open))
        late_us = self._draws.choice((0, 0, 300_000, 3_000_000))
        offline_us = self._lasting_us() if self._draws.random() < 0.5 else 0

        def before_send(message: FromReplica, connection: Connection) -> None:
            if isinstance(message, kind) and not self._is_over:
                process.before_send = None
                self._trace.note("fault", "strand", connection.number, late_us, offline_us)
                self._network.strand(connection, late_us)
                if offline_us:
                    self._at(200_000, process.go_offline)
                    self._at(200_000 + offline_us, process.go_online)

        process.before_send = before_send

    def _offline(self) -> None:
        """A connection breaks, and its replica stays away for a while."""
        process, us = self._someone(), self._lasting_us()
        self._trace.note("fault", "offline", process.name, us)
        for connection in self._network.of(process):
            self._network.cut(connection)
        process.go_offline()
        self._at(us, process.go_online)

    def _partition(self) -> None:
        process, us = self._someone(), self._lasting_us()
        self._trace.note("fault", "partition", process.name, us)
        self._network.partition(process)
        self._at(us, lambda: self._network.mend(process))

    def _replica_crash(self) -> None:
        self._someone().crash()

    def _server_crash(self) -> None:
        if self._server.is_up:
            self._server.crash("killed", self._draws.randrange(2_000_000))

    def _power_loss(self) -> None:
        """Now, or in the middle of one of the next writes."""
        if self._server.is_up and self._draws.random() < 0.3:
            self._server.crash("power", self._draws.randrange(2_000_000), self._draws.choice(list(Loss)))
        else:
            fault = Fault(mode=self._draws.choice(CRASHES), at=self._draws.randint(1, 25))
            self._arm(fault)

    def _disk(self) -> None:
        mode = self._draws.choice(FAILURES)
        kinds = frozenset(OpKind)
        if mode in (Mode.SYNC_DONE, Mode.SYNC_LOST):
            kinds = frozenset({OpKind.SYNC})
        elif mode is Mode.FULL:
            kinds = frozenset({OpKind.WRITE})
        fault = Fault(mode=mode, at=self._draws.randint(1, 15), kinds=kinds, times=self._draws.choice((1, 1, 2, 5)))
        self._arm(fault)
        self._at(self._draws.randrange(5_000_000), self._server.disk.heal)

    def _arm(self, fault: Fault) -> None:
        self._trace.note("fault", "disk", fault)
        if not self._server.disk.is_off:
            self._server.disk.arm(fault)

    def _theft(self) -> None:
        process = self._someone()
        user = self._draws.choice((process.user, process.user, *WRITERS[:3]))
        thief = Thief(self._trace)
        if self._draws.random() < 0.3:
            thief.pose(process, self._network, self._server, user)
        else:
            thief.steal(process, self._network, self._server, user)

    def _ambush(self) -> None:
        """Lie in wait: the next wave that is accepted in part is judged, unheard, and the server dies."""
        self._trace.note("fault", "ambush")
        self._server.ambush = True

    def _restore(self) -> None:
        """Copy the disk now, and later give the server that copy: commits in between never happened."""
        backup = self._server.backup()
        if backup is None:
            return

        def restore() -> None:
            if self._trace.counts["backups restored"]:
                return  # a copy from before the first time would bring back undone commits
            self._trace.note("fault", "restore")
            self._trace.counts["backups restored"] += 1
            end = self._server.restore(backup)
            for process in self._processes:
                process.undo(end)

        self._at(self._draws.choice((0, 200_000, 2_000_000)), restore)

    def _maintenance(self) -> None:
        """Have the server compact its history or drop its caches, unnoticed by replicas, or write by itself."""
        kept = self._draws.randrange(12)
        self._trace.note("fault", "maintenance", kept)

        def work(engine: Engine) -> None:
            if kept == 0:
                engine.drop_caches()
            elif kept < 6:
                engine.compact(max(1, engine.last_seq - kept))
            else:
                last = engine.open_session(HOST).last
                written = Operation(
                    DocKey(SPACE_SCOPE, "d0"), (replace((), {"n": kept, "m": {}, "list": [], "set": []}),)
                )
                engine.submit(HOST, Commit(last + 1, (written,)))

        self._server.maintain(work)
