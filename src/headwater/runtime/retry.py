"""What happens to a rejected write: the one policy of retrying a transaction.

Only a stale view is retried: after a delay that is nearly nothing at first, and not before what won against it is here.
While others keep writing, it is tried in the moment their news arrive: at any other time they are already ahead again.
What a session had on its way is rejected together, is held back together and is tried again in its order. From its
first conflict on a write has a window; when it is over, it fails loudly. Any other rejection is final at once. A
transaction that reads a document which is not here waits for it, at no cost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from headwater.backoff import Backoff
from headwater.clock import Clock, RealClock
from headwater.errors import ConflictError
from headwater.protocol.verdict import Conflict, Rejected, Rejection, as_error, conflict_text
from headwater.replica.confirmed import NotHere
from headwater.replica.pending import Layer
from headwater.replica.transaction import Transaction
from headwater.runtime.driver import Driver

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How patient a write is. The first delays are nearly nothing: a conflict usually clears at once."""

    backoff: Backoff = field(default_factory=lambda: Backoff.exponential(base_ms=25 / 32, max_ms=1_000, jitter=1.0))
    window_ms: int = 30_000
    news_us: int = 5_000  # how long a retry waits at most for what others write next
    spread: float = 4.0  # round trips over which those who lost together come back, not all at once,
    spread_us: int = 50_000  # and at most this long
    pending: int = 256  # commits of this session without a verdict; a further one waits


class Writer:
    """Runs transactions of one session until they land or fail for good."""

    __slots__ = (
        "_against",
        "_clock",
        "_driver",
        "_hold",
        "_in_a_row",
        "_policy",
        "_random",
        "_round_trip_us",
        "attempts",
        "conflicts",
        "landed",
    )

    def __init__(self, driver: Driver, *, policy: RetryPolicy | None = None, clock: Clock | None = None) -> None:
        self._driver = driver
        self._policy = policy or RetryPolicy()
        self._clock = clock or RealClock()
        self._random = self._clock.randomness(f"retries of {driver.session.key}")
        self._hold: asyncio.Task[None] | None = None  # what keeps everything back that was rejected together
        self._against: list[Conflict] = []  # why
        self._in_a_row = 0  # holds since something landed
        self._round_trip_us = 0.0  # of a commit and its verdict, lately
        self.attempts = 0
        self.conflicts = 0
        self.landed = 0

    async def transact(self, run: Callable[[Transaction], T], *, node: str = "") -> T:
        """Run a function in a transaction, again if its view was stale; its result once the commit is durable."""
        driver, policy, replica = self._driver, self._policy, self._driver.session.replica
        tries = 0
        deadline_us = 0
        while True:
            tries += 1
            await driver.until(lambda: len(replica.pending) < policy.pending)
            transaction = replica.begin(node=node)
            try:
                result = run(transaction)
            except NotHere as missing:
                await driver.loaded(missing.doc)
                continue
            rejection, own = await self._fate(transaction)
            if rejection is None:
                self.landed += 1
                self._in_a_row = 0
                return result
            if not isinstance(rejection, Conflict):
                raise as_error(Rejected(own, rejection))
            if rejection.dead_layers == (own,):
                await driver.opened()  # It never left this process: nobody was in the way.
                continue
            self.conflicts += 1
            now_us = self._clock.monotonic_us()
            deadline_us = deadline_us or now_us + policy.window_ms * 1_000
            try:
                async with asyncio.timeout(max(0, deadline_us - now_us) / 1e6):
                    await self._held(rejection)
            except TimeoutError:
                raise ConflictError(
                    f"a write did not land in {policy.window_ms / 1_000:g} s and {tries} attempts: "
                    f"{conflict_text(rejection)}"
                ) from None

    async def _fate(self, transaction: Transaction) -> tuple[Rejection | None, int]:
        """Commit, send, and wait for the end of it."""
        settled: asyncio.Future[Rejection | None] = self._driver.expected()
        layers: list[int] = []

        def end(layer: Layer, rejection: Rejection | None) -> None:
            layers.append(layer.local_seq)
            if not settled.done():
                settled.set_result(rejection)

        self.attempts += 1
        self._driver.session.replica.commit(transaction, end)
        self._driver.flush()
        began_us = self._clock.monotonic_us()
        rejection = await settled
        self._round_trip_us += (self._clock.monotonic_us() - began_us - self._round_trip_us) / 8
        return rejection, layers[0]

    async def _held(self, conflict: Conflict) -> None:
        """Keep a rejected write back until trying again is useful, with everything that was rejected with it."""
        self._against.append(conflict)
        if self._hold is None:
            self._hold = asyncio.get_running_loop().create_task(self._until_useful())
        # Shielded: the window of one write may end while others still wait.
        await asyncio.shield(self._hold)

    async def _until_useful(self) -> None:
        driver, policy = self._driver, self._policy
        delay_us = policy.backoff.delay_us(self._in_a_row, self._random)
        delay_us += round(self._random.random() * min(policy.spread * self._round_trip_us, policy.spread_us))
        self._in_a_row += 1
        try:
            await asyncio.sleep(delay_us / 1e6)
            await driver.until(lambda: all(driver.session.ready(conflict) for conflict in self._against))
            await self._news(min(delay_us, policy.news_us))
        finally:
            self._hold = None
            self._against.clear()

    async def _news(self, patience_us: int) -> None:
        """Wait a little for the next thing that others write, if they still do."""
        replica = self._driver.session.replica
        seen = replica.confirmed.seq
        try:
            async with asyncio.timeout(patience_us / 1e6):
                await self._driver.until(lambda: replica.confirmed.seq > seen)
        except TimeoutError:
            return  # Nobody is in the way any more.
