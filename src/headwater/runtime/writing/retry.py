"""The one policy of retrying a rejected transaction, and the bound on the events that a session has in flight.

`Writer` retries only a transaction with a stale view, and not before the winning commits are here. If the engine gives
turns to sessions that lost, a write is retried when it has its turn; otherwise after a delay that is nearly nothing at
first. Commits of a session that were in flight together are rejected together, held back together and retried in their
order. From its first conflict on a write has a window; when the window is over, the write fails with an error. Any
other rejection is final at once. A transaction that reads a document which is not here waits for it, which counts as no
attempt.

`InFlightLimit` bounds the number of events in flight that may lose while other sessions keep writing documents that
they read. Under contention every attempt sent during another session's turn is lost, with all attempts that stand on
it. So after a conflict fewer attempts are sent at once, in the end one, which gets its place in the engine's queue;
when it has its turn, the attempts that wait behind it are sent with it. Each attempt that lands raises the bound by
one.
`InFlightLimit` never waits; the writer does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from headwater.clock import Clock, RealClock
from headwater.errors import CommitConvergenceError
from headwater.protocol.verdict import Conflict, Rejected, Rejection, as_error
from headwater.replica.confirmed import NotHere
from headwater.replica.pending import Layer
from headwater.replica.transaction import Transaction
from headwater.runtime.channel.driver import Driver
from headwater.runtime.core.policy import RetryPolicy
from headwater.runtime.writing.attempt import Outcome, RetriedWrite, Stage, classify

__all__ = ["InFlightLimit", "Writer"]


class InFlightLimit:
    """The bound on first attempts of events that are in flight at once."""

    __slots__ = ("_flying", "_has_turn", "_most", "_taken_along", "_window")

    def __init__(self, most: int) -> None:
        self._most = most
        self._window = float(most)
        self._flying = 0  # attempts without a verdict
        self._has_turn = False  # a rejected attempt was sent again, and no verdict came since
        self._taken_along: set[RetriedWrite] = set()  # sent with a turn: their success says nothing of those without

    def admits(self, write: RetriedWrite) -> bool:
        """True if a write may be tried now.

        Plain writes and retries always may; first attempts of events may while a turn is used, or below the bound.
        """
        is_plain = write.hooks is None or write.is_sure
        return is_plain or write.attempts > 0 or self._has_turn or self._flying < max(1, int(self._window))

    def sent(self, write: RetriedWrite) -> None:
        """Record an attempt that is sent. `write.attempts` includes it already."""
        self._flying += 1
        self._has_turn = self._has_turn or write.attempts > 1
        if self._has_turn:
            self._taken_along.add(write)

    def heard(self, write: RetriedWrite, outcome: Outcome) -> None:
        """Record the verdict of an attempt."""
        self._has_turn = False
        if outcome is Outcome.STALE:
            self._window = max(1.0, min(self._window, self._flying) / 2)
        elif outcome is Outcome.SUCCESS and write not in self._taken_along:
            self._window = min(self._window + 1, self._most)
        self._taken_along.discard(write)
        self._flying -= 1


T = TypeVar("T")


class Writer:
    """Runs transactions of one session until they land or fail for good."""

    __slots__ = (
        "_against",
        "_catch_up",
        "_clock",
        "_driver",
        "_hold",
        "_in_a_row",
        "_in_flight_limit",
        "_policy",
        "_random",
        "_round_trip_us",
        "attempts",
        "conflicts",
        "landed",
    )

    def __init__(
        self,
        driver: Driver,
        catch_up: Callable[[], None] = lambda: None,
        *,
        policy: RetryPolicy | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`catch_up` makes earlier writes again that were never sent: before a transaction, whose view has them."""
        self._driver = driver
        self._catch_up = catch_up
        self._policy = policy or RetryPolicy()
        self._clock = clock or RealClock()
        self._random = self._clock.randomness(f"retries of {driver.session.key}")
        self._hold: list[asyncio.Future[bool]] | None = None  # writes that wait behind the first rejected one
        self._against: list[Conflict] = []  # their conflicts
        self._in_a_row = 0  # holds since the last commit that landed
        self._in_flight_limit = InFlightLimit(self._policy.pending)
        self._round_trip_us = 0.0  # of a commit and its verdict, smoothed
        self.attempts = 0
        self.conflicts = 0
        self.landed = 0

    async def transact(
        self,
        run: Callable[[Transaction], T],
        *,
        node: str = "",
        retries: int | None = None,
        write: RetriedWrite | None = None,
    ) -> T:
        """Run a function in a transaction, again if its view was stale. Returns its result once the commit is durable.

        With `retries=0` it is not tried again after a conflict. A caller that passes a `write` is told of each attempt,
        and continues the same write if `run` raises and the caller passes the `write` again.
        """
        driver, replica = self._driver, self._driver.session.replica
        write = write or RetriedWrite(retries)
        while True:
            await self._admitted(write)
            transaction = replica.begin(node=node)
            # fault+ writer.catches_up_after_begin: self._catch_up()
            write.stage = Stage.RUNNING
            try:
                result = run(transaction)
            except NotHere as missing:
                replica.drop(transaction)
                write.stage = Stage.LOADING
                await driver.loaded(*missing.docs)
                continue
            except BaseException:
                replica.drop(transaction)  # The attempt is over: the replica need not keep values for it.
                raise
            rejection, own = await self._fate(transaction, write)
            outcome = classify(rejection, own)
            if rejection is None:
                self.landed += 1
                self._in_a_row = 0
                write.stage = Stage.ENDED
                return result
            if outcome is Outcome.UNSENT:
                await driver.opened()
                continue
            # fault+ retry.refusal_retried: if not isinstance(rejection, Conflict) and write.attempts < 5: continue
            if not isinstance(rejection, Conflict):
                raise as_error(Rejected(own, rejection))
            self.conflicts += 1
            await self._wait_for_retry(write, rejection, own)

    async def _admitted(self, write: RetriedWrite) -> None:
        """Wait until the write has its turn and there is room for one more commit, both at the same moment."""
        replica = self._driver.session.replica

        def has_room() -> bool:
            return len(replica.pending) < self._policy.pending and self._in_flight_limit.admits(write)

        await write.wait_for_lane()
        # fault writer.catches_up_after_begin: pass
        self._catch_up()
        while not has_room():
            write.stage = Stage.HELD
            await self._driver.until(has_room)
            await write.wait_for_lane()
            self._catch_up()

    async def _wait_for_retry(self, write: RetriedWrite, rejection: Conflict, own: int) -> None:
        """Wait until a retry is useful. Raises the error of the write if it is not to be retried."""
        policy = self._policy
        # fault retry.fixed_budget: if write.conflicts > 5:
        if write.retries == 0:  # Any other count leaves it to the window how often a conflict is retried.
            raise as_error(Rejected(own, rejection))
        # Without a connection no other writer is faster: that time does not count.
        now_us = self._driver.reconnect_backoff.connected_us
        write.began_us = now_us() if write.began_us is None else write.began_us
        # With a window of zero the first conflict is the end.
        # fault retry.no_window: while left_us := 10**12:
        while (left_us := round(write.began_us + policy.window_ms * 1_000 - now_us())) > 0:
            if await self._held(rejection, left_us, write):
                write.next_us = 0
                return
            await self._driver.opened()
        elapsed_ms = (now_us() - write.began_us) / 1_000
        raise CommitConvergenceError(
            f"a write did not land in {policy.window_ms / 1_000:g} s and {write.attempts} attempts, because other "
            "writers kept changing its reads. Write less often, read less, or use an intent.",
            attempts=write.attempts,
            elapsed_ms=elapsed_ms,
        ) from as_error(Rejected(own, rejection))

    async def _fate(self, transaction: Transaction, write: RetriedWrite) -> tuple[Rejection | None, int]:
        """Commit a transaction, send it, and wait for its verdict."""
        settled: asyncio.Future[Rejection | None] = self._driver.expected()
        layers: list[int] = []

        def on_verdict(layer: Layer, rejection: Rejection | None) -> None:
            layers.append(layer.local_seq)
            if not settled.done():
                settled.set_result(rejection)
            self._in_flight_limit.heard(write, classify(rejection, layer.local_seq))
            write.settled(layer, rejection)

        self.attempts += 1
        write.attempts += 1
        self._in_flight_limit.sent(write)
        self._driver.place_in_queue = None  # A turn received before was about earlier attempts.
        self._driver.session.replica.commit(transaction, on_verdict)
        write.made(transaction)
        self._driver.flush_soon()  # With the results that follow from it: they land together or not at all.
        began_us = self._clock.monotonic_us()
        rejection = await settled
        self._round_trip_us += (self._clock.monotonic_us() - began_us - self._round_trip_us) / 8
        return rejection, layers[0]

    async def _held(self, conflict: Conflict, left_us: int, write: RetriedWrite) -> bool:
        """Hold a rejected write back until a retry is useful, with all writes rejected together with it.

        False: the time that the write has was over before.
        """
        self._against.append(conflict)
        if self._hold is not None:
            return await self._behind(self._hold, left_us)
        hold: list[asyncio.Future[bool]] = []
        self._hold = hold
        try:
            is_useful = await self._until_useful(left_us, write)
        finally:
            self._hold = None
            self._against.clear()
            loop = asyncio.get_running_loop()
            first: asyncio.Future[bool] = loop.create_future()
            # All of them resume in one turn of the loop, so that their commits are sent in one message.
            loop.call_soon(_let_go, [first, *hold])
        if hold:
            await first
        return is_useful

    async def _behind(self, hold: list[asyncio.Future[bool]], left_us: int) -> bool:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()
        hold.append(future)
        timer = loop.call_later(max(0, left_us) / 1e6, _give_up, future)
        try:
            return await future
        finally:
            timer.cancel()

    async def _until_useful(self, left_us: int, write: RetriedWrite) -> bool:
        driver, policy = self._driver, self._policy
        if not await driver.until(self._is_ready, within_us=left_us):
            return False
        late = write.conflicts - policy.at_once
        if driver.place_in_queue is not None and late <= 0:
            # The engine says when. If sessions before this one do not come, being late is better than waiting.
            await driver.until(lambda: not driver.place_in_queue, within_us=min(left_us, policy.turn_ms * 1_000))
            return True
        try:
            async with asyncio.timeout(max(0, left_us) / 1e6):
                await self._on_our_own(write, max(self._in_a_row, late))
        except TimeoutError:
            return False
        return True

    def _is_ready(self) -> bool:
        """True if every commit that won against the held writes is here."""
        return all(self._driver.session.ready(conflict) for conflict in self._against)

    async def _on_our_own(self, write: RetriedWrite, failures: int) -> None:
        """Wait without a turn from the engine: sessions that lost together retry spread over some time."""
        driver, policy = self._driver, self._policy
        delay_us = policy.backoff.delay_us(failures, self._random)
        delay_us += round(self._random.random() * min(policy.spread * self._round_trip_us, policy.spread_us))
        self._in_a_row += 1
        write.delayed(self._clock.monotonic_us(), delay_us)
        await asyncio.sleep(delay_us / 1e6)
        await driver.until(self._is_ready)
        # While others still write, retry when their commits arrive: at any other time they are ahead again.
        seen = driver.session.replica.confirmed.seq
        confirmed = driver.session.replica.confirmed
        await driver.until(lambda: confirmed.seq > seen, within_us=min(delay_us, policy.news_us))


def _let_go(held: list[asyncio.Future[bool]]) -> None:
    for future in held:
        if not future.done():
            future.set_result(True)


def _give_up(future: asyncio.Future[bool]) -> None:
    if not future.done():
        future.set_result(False)
