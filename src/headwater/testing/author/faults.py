"""The faults of an author's simulation, drawn from the seed, until the test asks everything to settle.

`FaultSchedule` asks the network, the disk and the server for faults; each fault ends by itself, or when the world is
healed. Half of them come early, because most tests are short. A program is never crashed by itself, since the test
holds its handles: a test crashes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from headwater.clock import Random, VirtualClock
from headwater.errors import AuthoringError
from headwater.protocol.messages import Transact
from headwater.testing.author.network import Client
from headwater.testing.author.server import SimulatedServer
from headwater.testing.author.trace import Trace
from headwater.testing.disk.faulty_disk import Fault, Mode
from headwater.testing.disk.model import Loss, OpKind
from headwater.testing.network import Network, Weather

FAULTS: Final = ("delay", "drop", "partition", "duplicate", "crash", "disk")
MOST: Final = 8  # faults in one seed
EARLIEST_US: Final = 1_000
LATEST_US: Final = 20_000_000
LASTS_US: Final = (20_000, 8_000_000)  # a partition
DOWN_US: Final = 2_000_000  # a server, at most
CRASHES: Final = (Mode.CRASH_BEFORE, Mode.CRASH_AFTER)
FAILURES: Final = (Mode.IO_ERROR, Mode.FULL, Mode.SYNC_DONE, Mode.SYNC_LOST, Mode.READ_ERROR)


def checked(faults: tuple[str, ...]) -> tuple[str, ...]:
    """The faults that a test wants, if there are such."""
    unknown = [fault for fault in faults if fault not in FAULTS] if isinstance(faults, tuple) else [faults]
    if unknown:
        raise AuthoringError(f"faults={faults!r}: write a tuple of some of {', '.join(map(repr, FAULTS))}")
    return faults


def weather(faults: tuple[str, ...]) -> Weather:
    """A network that is only slow if that is a fault to try."""
    if "delay" in faults:
        return Weather()
    return Weather(delay_us=(100, 1_000), slow_share=0.0, notice_us=(0, 1_000_000))


class FaultSchedule:
    """Lets things go wrong."""

    __slots__ = ("_clients", "_clock", "_draws", "_faults", "_network", "_server", "_trace", "is_over")

    def __init__(
        self,
        faults: tuple[str, ...],
        clock: VirtualClock,
        network: Network,
        server: SimulatedServer,
        clients: Mapping[str, Client],
        trace: Trace,
    ) -> None:
        self._faults = faults
        self._clock = clock
        self._draws: Random = clock.randomness("faults")
        self._network = network
        self._server = server
        self._clients = clients
        self._trace = trace
        self.is_over = False

    def schedule(self) -> None:
        acts: dict[str, Callable[[], None]] = {
            "drop": self._drop,
            "partition": self._partition,
            "duplicate": self._duplicate,
            "crash": self._crash,
            "disk": self._disk,
        }
        wanted = [acts[fault] for fault in self._faults if fault in acts]
        if wanted:
            for _ in range(self._draws.randint(0, MOST)):
                # As many in the first thousandth of the time as in the last nine tenths: tests are short.
                when_us = EARLIEST_US * (LATEST_US / EARLIEST_US) ** self._draws.random()
                self._at(round(when_us), self._draws.choice(wanted))

    def _at(self, us: int, act: Callable[[], object]) -> None:
        def unless_over() -> None:
            if not self.is_over:
                act()

        self._clock.call_at(self._clock.now_us() + us, unless_over)

    def end(self) -> None:
        """End all faults: none begins from now on, and broken parts are mended."""
        if not self.is_over:
            self.is_over = True
            self._trace.note("world", "is healed")
        self._network.calm()
        self._server.heal()
        for client in self._clients.values():
            client.ambush = None
            if not client.is_offline:
                self._network.mend(client)

    # ---- faults ------------------------------------------------------------------------------------

    def _somebody(self) -> Client | None:
        living = [client for client in self._clients.values() if not client.is_dead]
        return self._draws.choice(living) if living else None

    def _drop(self) -> None:
        client = self._somebody()
        for connection in self._network.of(client) if client is not None else ():
            self._trace.note("fault", "connection", connection.number, "breaks")
            self._network.cut(connection)

    def _partition(self) -> None:
        client = self._somebody()
        if client is not None:
            us = self._draws.randint(*LASTS_US)
            self._trace.note("fault", client.user, "is cut off for", us, "us")
            self._network.partition(client)
            self._at(us, lambda: None if client.is_offline else self._network.mend(client))

    def _duplicate(self) -> None:
        """Lies in wait: the next commits arrive, no answer comes back, and they are sent again."""
        client = self._somebody()
        if client is None:
            return
        late_us = self._draws.choice((0, 0, 300_000, 3_000_000))

        def strand(connection: object, message: object) -> None:
            if isinstance(message, Transact):
                client.ambush = None
                for each in self._network.of(client):
                    if each is connection:
                        self._trace.note("fault", "no answer comes back over connection", each.number)
                        self._network.strand(each, late_us)

        client.ambush = strand

    def _crash(self) -> None:
        self._server.crash("killed", self._draws.randrange(DOWN_US))

    def _disk(self) -> None:
        """The power fails, now or in the middle of one of the next writes; or the disk fails for a while."""
        draws, disk = self._draws, self._server.disk
        if disk.is_off or not self._server.is_up:
            return
        kind = draws.random()
        if kind < 0.2:
            self._server.crash("the power fails", draws.randrange(DOWN_US), draws.choice(list(Loss)))
            return
        if kind < 0.5:
            fault = Fault(mode=draws.choice(CRASHES), at=draws.randint(1, 25))
        else:
            mode = draws.choice(FAILURES)
            kinds = frozenset(OpKind)
            if mode in (Mode.SYNC_DONE, Mode.SYNC_LOST):
                kinds = frozenset({OpKind.SYNC})
            elif mode is Mode.FULL:
                kinds = frozenset({OpKind.WRITE})
            fault = Fault(mode=mode, at=draws.randint(1, 15), kinds=kinds, times=draws.choice((1, 1, 2, 5)))
            self._at(draws.randrange(5_000_000), disk.heal)
        self._trace.note("fault", "disk:", fault)
        disk.arm(fault)
