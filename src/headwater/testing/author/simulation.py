"""`Simulation`, the world of an author's test: a server, its disk, a network and any number of runtimes, on one clock.

It composes the parts for one seed and lets the test move them; faults are made by the parts, decisions by the runtimes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from headwater import Member
from headwater.clock import VirtualClock
from headwater.errors import AuthoringError, LimitError
from headwater.runtime import Outbox, Policy, Runtime
from headwater.scheduler import Failure
from headwater.testing.author.faults import FaultSchedule, weather
from headwater.testing.author.loop import VirtualLoop
from headwater.testing.author.network import Client
from headwater.testing.author.runtime import Counts, SimulatedRuntime
from headwater.testing.author.server import WHO, SimulatedServer
from headwater.testing.author.stored import lost, records
from headwater.testing.author.trace import Trace
from headwater.testing.disk.model import Loss
from headwater.testing.network import Network

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
ROUNDS: Final = 1_000
"""How often `settle` looks again, because something had happened meanwhile."""
RESTING_S: Final = 30.0
"""How long `settle` waits for work that is awaited outside any run."""
NOTICED_S: Final = 0.002
"""Until everybody in a network without faults has noticed that a connection is gone."""
DOWN_US: Final = 500_000


class Simulation:
    """A server, its disk, a network and any number of runtimes on one virtual clock.

    `await` moves nothing by itself: time goes on when everything waits, to the next due moment, and by `advance`. Until
    `settle` is awaited for the first time, the faults that the seed has drawn from `faults` happen.
    """

    def __init__(self, seed: int, faults: tuple[str, ...], clock: VirtualClock, loop: VirtualLoop) -> None:
        self.seed = seed
        self._faults = faults
        self._clock = clock
        self._loop = loop
        self._trace = Trace(clock)
        self._network = Network(clock, clock.randomness("network"), weather(faults))
        self._server = SimulatedServer(clock, self._network, self._trace)
        self._clients: dict[str, Client] = {}
        self._offline: dict[str, int] = {}  # by how many it was said
        self._runtimes: dict[str, SimulatedRuntime] = {}
        self._killed: list[SimulatedRuntime] = []
        self._gone: list[Client] = []
        self._counts = Counts(self._trace)
        self._misfortune = FaultSchedule(faults, clock, self._network, self._server, self._clients, self._trace)
        self._misfortune.schedule()

    # ---- who takes part ------------------------------------------------------------------------------

    def runtime(
        self, user: str, /, *, policy: Policy | None = None, outbox: Outbox | None = None, reacts: bool = True
    ) -> Runtime:
        """The runtime of a user, with its own replica and connection: made when it is first asked for.

        The options are those of a runtime which is made by this call.
        """
        found = self._runtimes.get(user)
        if found is None:
            if not isinstance(user, str) or user in ("", WHO):
                raise AuthoringError(f"runtime({user!r}): write whose it is, like sim.runtime('ann')")
            client = self._clients[user] = Client(user, self._clock, self._network, self._server, self._trace)
            if self._offline.get(user):
                client.go_offline()
            found = self._runtimes[user] = SimulatedRuntime(
                client, self._clock, self._counts, self._trace, policy, outbox, reacts
            )
        return found

    # ---- time ------------------------------------------------------------------------------------------

    def now(self) -> datetime:
        """The time that every clock shows."""
        return EPOCH + timedelta(microseconds=self._clock.now_us())

    async def advance(self, *, seconds: float = 0.0, until: datetime | None = None) -> None:
        """Let time pass, with everything that happens meanwhile: so many seconds, or until a moment."""
        if until is not None and until.tzinfo is None:
            raise AuthoringError(f"advance(until={until.isoformat()}) has no time zone: write tzinfo=timezone.utc")
        if seconds < 0 or (until is not None and seconds):
            raise AuthoringError(f"advance(seconds={seconds:g}, until={until}): write one of them, and not a past one")
        us = round(seconds * 1e6) if until is None else (until - self.now()) // timedelta(microseconds=1)
        if us <= 0:
            await asyncio.sleep(0)
            return
        self._loop.grant(us)
        over: asyncio.Future[None] = self._loop.create_future()

        def reached() -> None:
            self._loop.stands_still = True  # The test sees the moment that it asked for.
            if not over.done():
                over.set_result(None)

        timer = self._clock.call_at(self._clock.now_us() + us, reached)
        try:
            await over
        finally:
            self._loop.stands_still = False
            timer.cancel()

    def set_wall_clock(self, *, seconds: float) -> None:
        """Set the wall clock of the machine ahead, or back by negative seconds. No time passes by that."""
        self._clock.set_wall_clock(round(seconds * 1e6))

    async def settle(self) -> None:
        """Have everything come to rest: the faults end, all messages arrive, and all reactions to them have run.

        A user who is offline stays so, and comes to rest alone. No fault begins by itself afterwards.
        """
        self._misfortune.end()
        self._trace.note("test", "settles")
        for _ in range(ROUNDS):
            await asyncio.sleep(NOTICED_S)  # A runtime that lost its connection notices it, and is not at rest.
            before = self._moment()
            for runtime in tuple(self._runtimes.values()):
                await self._rest(runtime)
            if self._moment() == before:
                return
        raise LimitError(f"the world did not come to rest: something ran or was written in each of {ROUNDS} looks")

    async def _rest(self, runtime: SimulatedRuntime) -> None:
        await runtime.idle()
        if runtime.client.is_offline:
            return
        await runtime.durable()
        if len(runtime.tasks):
            try:
                async with asyncio.timeout(RESTING_S):
                    await runtime.until(lambda: not len(runtime.tasks))
            except TimeoutError:
                self._trace.note("test", "does not wait for work of", runtime.client.user)
        await self._delivered(runtime)
        for name, seq in self._ends().items():
            channel = runtime.channel(name)
            if channel is not None:
                await channel.reached(seq)
                await channel.driver.synced()
        await runtime.settled()

    async def _delivered(self, runtime: SimulatedRuntime) -> None:
        """Wait for the running deliveries to reactions, unless that takes long. Deliveries that are due later do not
        count.
        """
        for _ in range(round(RESTING_S / NOTICED_S)):
            if not runtime.reactions.is_delivering:
                return
            await asyncio.sleep(NOTICED_S)

    def _moment(self) -> tuple[object, ...]:
        """Two of these are the same if nothing was written and nothing ran in between."""
        return sum(self._ends().values()), self._counts.total, self._server.restarts

    def _ends(self) -> dict[str, int]:
        """Where the log of each space ends."""
        return self._server.read(lambda engines: {name: engine.last_seq for name, engine in engines.items()})

    # ---- faults --------------------------------------------------------------------------------------

    def offline(self, *users: str) -> AbstractContextManager[None]:
        """Take the connection from these users while the context is open: their writes stay local until it is back."""
        if not users:
            raise AuthoringError("offline(): write who, like sim.offline('ann')")
        return self._without(users)

    @contextmanager
    def _without(self, users: tuple[str, ...]) -> Iterator[None]:
        self._trace.note("test", "takes offline:", *users)
        for user in users:
            self._offline[user] = self._offline.get(user, 0) + 1
            if user in self._clients:
                self._clients[user].go_offline()
        try:
            yield
        finally:
            self._trace.note("test", "takes online:", *users)
            for user in users:
                self._offline[user] -= 1
                if user in self._clients and not self._offline[user]:
                    self._clients[user].go_online()

    async def crash(self, who: str = WHO, /) -> None:
        """Kill the server, which starts again by itself; or a user's runtime: `runtime` then makes another one."""
        self._trace.note("test", "crashes", who)
        draws = self._clock.randomness("crashes of the test")
        if who == WHO:
            loss = draws.choice((None, *Loss)) if "disk" in self._faults else None
            self._server.crash("the test says so", draws.randrange(DOWN_US), loss)
            return
        runtime = self._runtimes.pop(who, None)
        if runtime is None:
            raise AuthoringError(f"crash({who!r}): there is no such runtime. Write 'server' or the user of one.")
        self._killed.append(runtime)
        self._gone.append(self._clients.pop(who))
        await runtime.kill()

    # ---- results -------------------------------------------------------------------------------------

    def runs(self, member: Member[Any], /) -> int:
        """How often a member's node ran to an end, in all runtimes together."""
        return self._counts.runs(member)

    def attempts(self, member: Member[Any], /) -> int:
        """How often a member's function was called, in all runtimes together: repeated attempts count."""
        return self._counts.attempts(member)

    @contextmanager
    def expect_non_idempotent(self, *members: Member[Any]) -> Iterator[None]:
        """Expect that second runs of these members write something else while the context is open.

        At the end of a test every other such finding fails it. `AssertionError` if a member has none.
        """
        if not members:
            raise AuthoringError("expect_non_idempotent(): write which members, like Cart.total")
        known = [finding for runtime in (*self._killed, *self._runtimes.values()) for finding in runtime.findings()]
        yield
        runtimes = (*self._killed, *self._runtimes.values())
        missing = [each for each in members if not sum([runtime.drop_findings(each, known) for runtime in runtimes])]
        if missing:
            named = ", ".join(map(repr, missing))
            raise AssertionError(f"expected not to be idempotent, and nothing was found: {named}")

    def records(self, member: Member[Any], /) -> list[Any]:
        """Return the durable records of a topic, in the order of the log."""
        if not isinstance(member, Member) or member.declaration.kind != "topic":
            raise AuthoringError(f"records({member!r}): write a topic, like Cart.placed")
        return self._server.read(lambda engines: records(engines, member))

    def lost(self) -> int:
        """How many commits were said to be durable and are not there."""
        return len(self._missing())

    def _missing(self) -> list[tuple[str, str, int, int]]:
        return self._server.read(lambda engines: lost(engines, (*self._gone, *self._clients.values())))

    @property
    def server(self) -> SimulatedServer:
        """The server: its engines can be read, whatever state it is in."""
        return self._server

    @property
    def trace(self) -> Trace:
        """The trace of this world, line by line."""
        return self._trace

    def failures(self) -> list[Failure]:
        """The failures that the error channels reported."""
        return [failure for runtime in (*self._killed, *self._runtimes.values()) for failure in runtime.failures]

    # ---- the end -------------------------------------------------------------------------------------

    def check(self) -> None:
        """Check the conditions that hold at the end of every test."""
        for runtime in (*self._killed, *self._runtimes.values()):
            runtime.introspection.idempotency.assert_idempotent()
            if runtime.broke is not None:
                raise AssertionError(f"the runtime of {runtime.client.user} broke") from runtime.broke
        self._misfortune.end()
        missing = self._missing()
        if missing:
            raise AssertionError(f"{len(missing)} commits were said to be durable and are not there: {missing[:5]}")

    async def close(self) -> None:
        """Let go of everything, whatever state it is in."""
        self._trace.is_over = True
        self._misfortune.end()
        for runtime in tuple(self._runtimes.values()):
            await runtime.kill()
        self._server.close()
