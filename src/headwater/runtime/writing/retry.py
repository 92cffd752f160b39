"""The one policy of retrying a rejected transaction, and the bound on the events that a session has in flight.

`Writer` takes writes through their attempts (`attempt.RetriedWrite`); every step is a callback. It retries only a write
with a stale view, and not before the winning commits are here. If the engine gives turns to sessions that lost, a write
is retried when it has its turn; otherwise after a delay that is nearly nothing at first. Commits of a session that were
in flight together are rejected together, held back together and retried in their order. From its first conflict on a
write has a window; when the window is over, the write fails with an error. Any other rejection is final at once. A
transaction that reads a document which is not here waits for it, which counts as no attempt.

`InFlightLimit` bounds the number of events in flight that may lose while other sessions keep writing documents that
they read. Under contention every attempt sent during another session's turn is lost, with all attempts that stand on
it. So after a conflict fewer attempts are sent at once, in the end one, which gets its place in the engine's queue;
when it has its turn, the attempts that wait behind it are sent with it. Each attempt that lands raises the bound by
one.
`InFlightLimit` decides nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from headwater.clock import Clock, RealClock
from headwater.errors import CommitConvergenceError, HeadwaterError
from headwater.protocol.verdict import Conflict, Rejected, Rejection, as_error
from headwater.replica.confirmed import NotHere
from headwater.replica.pending import Layer
from headwater.replica.session import LinkState
from headwater.replica.transaction import Transaction
from headwater.runtime.channel.driver import Driver
from headwater.runtime.core.policy import RetryPolicy
from headwater.runtime.writing.attempt import AttemptOutcome, FunctionWrite, RetriedWrite
from headwater.runtime.writing.states import Happened, WriteState
from headwater.scheduler.failures import INTERRUPTS

if TYPE_CHECKING:
    from headwater.data.address import DocKey

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
        return not write.is_limited or write.attempts > 0 or self._has_turn or self._flying < max(1, int(self._window))

    def sent(self, write: RetriedWrite) -> None:
        """Record an attempt that is sent. `write.attempts` includes it already."""
        self._flying += 1
        self._has_turn = self._has_turn or write.attempts > 1
        if self._has_turn:
            self._taken_along.add(write)

    def heard(self, write: RetriedWrite, outcome: AttemptOutcome) -> None:
        """Record the verdict of an attempt."""
        self._has_turn = False
        if outcome is AttemptOutcome.STALE:
            self._window = max(1.0, min(self._window, self._flying) / 2)
        elif outcome is AttemptOutcome.SUCCESS and write not in self._taken_along:
            self._window = min(self._window + 1, self._most)
        self._taken_along.discard(write)
        self._flying -= 1


T = TypeVar("T")


class Writer:
    """Takes the writes of one session through their attempts, until they land or fail for good."""

    __slots__ = (
        "_against",
        "_catch_up",
        "_clock",
        "_driver",
        "_held",
        "_hold",
        "_in_a_row",
        "_in_flight_limit",
        "_live",
        "_policy",
        "_random",
        "_round_trip_us",
        "_timers",
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
        self._live: dict[RetriedWrite, None] = {}  # submitted, and called again if need be
        self._held: list[RetriedWrite] = []  # they wait for room
        self._hold: list[RetriedWrite] | None = None  # rejected together; the first one finds out when to retry
        self._against: list[Conflict] = []  # their conflicts
        self._timers: dict[RetriedWrite, asyncio.TimerHandle] = {}  # the ends of the windows of those in the hold
        self._in_a_row = 0  # holds since the last commit that landed
        self._in_flight_limit = InFlightLimit(self._policy.pending)
        self._round_trip_us = 0.0  # of a commit and its verdict, smoothed
        self.attempts = 0
        self.conflicts = 0
        self.landed = 0
        driver.on_ended.append(self._end)

    # ---- requests ------------------------------------------------------------------------------------

    def enlist(self, write: RetriedWrite, requeue: Callable[[RetriedWrite], object]) -> None:
        """Take a write through its attempts. `requeue` is called whenever it is queued again, to call `advance`."""
        write.requeue = requeue
        self._live[write] = None

    def submit(self, write: RetriedWrite) -> None:
        """Take a write through its attempts, beginning now if it has its turn."""
        self.enlist(write, self._requeue)
        self.advance(write)

    def submit_soon(self, write: RetriedWrite) -> None:
        """Submit a write in the next turn of the event loop, outside the callback that asks for it."""
        self.enlist(write, self._requeue)
        self._requeue(write)

    async def transact(self, run: Callable[[Transaction], T], *, node: str = "", retries: int | None = None) -> T:
        """Run a function in a transaction, again if its view was stale. Returns its result once the commit is durable.

        With `retries=0` it is not tried again after a conflict.
        """
        return await self.result_of(FunctionWrite(run, node=node, retries=retries))

    async def result_of(self, write: FunctionWrite[T]) -> T:
        """Submit a write, and wait for its result. A caller that stops waiting withdraws it, unless it is sent."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        write.future = future
        self.submit(write)
        try:
            return await future
        finally:
            if not write.is_over:
                self.withdraw(write)
                write.take(Happened.OVER)

    def withdraw(self, write: RetriedWrite) -> None:
        """Forget a write that is called no more: its owner ends it."""
        if self._live.pop(write, False) is False:
            return
        write.end_demands()
        self._release_documents(write)
        if write in self._held:
            self._held.remove(write)
        if self._hold is not None and write in self._hold:
            self._leave_hold(write)

    # ---- an attempt ----------------------------------------------------------------------------------

    def _requeue(self, write: RetriedWrite) -> None:
        """Look at a write again in the next turn of the loop, with all that are woken now: in one message."""
        self._driver.soon(lambda: self.advance(write))

    def advance(self, write: RetriedWrite) -> None:
        """Make an attempt of a queued write, if it has its turn and there is room for one more commit."""
        if write.state is not WriteState.QUEUED or not write.has_turn():
            return
        if self._driver.ended is not None:
            self._fail(write, self._driver.ended)
            return
        # fault writer.catches_up_after_begin: pass
        self._catch_up()
        if write.is_over:
            return  # It was withdrawn by an earlier write.
        if not self._has_room(write):
            write.take(Happened.NO_ROOM)
            self._wait_for_room(write)
            return
        replica = self._driver.session.replica
        transaction = replica.begin(node=write.node)
        # fault+ writer.catches_up_after_begin: self._catch_up()
        write.take(Happened.TURN)
        try:
            write.call(transaction)
        except BaseException as error:
            replica.drop(transaction)  # The attempt is over: the replica need not keep values for it.
            self._stopped(write, error)
            return
        self._commit(write, transaction)

    def _stopped(self, write: RetriedWrite, error: BaseException) -> None:
        """An attempt raised: wait for the reason, or end."""
        if isinstance(error, NotHere):
            write.take(Happened.MISSING)
            self._load(write, error)
        else:
            self._raised(write, error)

    def _raised(self, write: RetriedWrite, error: BaseException) -> None:
        write.failed(error)
        self._forget_ended(write)
        if isinstance(error, INTERRUPTS):
            raise error

    def _load(self, write: RetriedWrite, missing: NotHere) -> None:
        """Wake a write when the documents that it reads are here."""
        driver, docs = self._driver, missing.docs
        driver.watch(docs)
        replica = driver.session.replica

        def is_over() -> bool:
            return write.state is not WriteState.LOADING or all(
                replica.is_here(doc) or driver.is_refused(doc) for doc in docs
            )

        driver.when(is_over, lambda: self._loaded(write, docs))

    def _loaded(self, write: RetriedWrite, docs: tuple[DocKey, ...]) -> None:
        if write.state is WriteState.LOADING:
            refused = next((error for doc in docs if (error := self._driver.take_refusal(doc)) is not None), None)
            self._arrived(write, refused)

    def _arrived(self, write: RetriedWrite, refused: Exception | None) -> None:
        """The documents of a write are here, or one of them is refused."""
        if refused is not None:
            self._driver.soon(lambda: self._fail(write, refused))
        else:
            write.take(Happened.ARRIVED)
            write.requeue(write)

    def _release_documents(self, write: RetriedWrite) -> None:
        """Release the documents that were fetched for a write."""

    def _commit(self, write: RetriedWrite, transaction: Transaction) -> None:
        """Commit a transaction here. Its verdict decides what follows."""
        began_us = self._clock.monotonic_us()

        def on_verdict(layer: Layer, rejection: Rejection | None) -> None:
            outcome = write.heard(layer, rejection)
            self._in_flight_limit.heard(write, outcome)
            self._round_trip_us += (self._clock.monotonic_us() - began_us - self._round_trip_us) / 8
            if write in self._live:
                self._driver.after_message(partial(self._decided, write, outcome, rejection))

        self.attempts += 1
        write.attempts += 1
        self._in_flight_limit.sent(write)
        self._driver.place_in_queue = None  # A turn received before was about earlier attempts.
        write.take(Happened.COMMITTED)
        self._driver.session.replica.commit(transaction, on_verdict)
        write.made(transaction)
        self._send_soon()

    def _send_soon(self) -> None:
        """Have a commit sent."""
        self._driver.flush_soon()

    def _decided(self, write: RetriedWrite, outcome: AttemptOutcome, rejection: Rejection | None) -> None:
        """Act on the verdict of an attempt, after everything that came with it was taken in."""
        if self._held:
            self._driver.wake()
        if write not in self._live:
            return
        if rejection is None:
            self.landed += 1
            self._in_a_row = 0
            self._live.pop(write)
            if write.demands:
                write.end_demands()
            if write.loaded:
                self._release_documents(write)
            write.landed()
        elif outcome is AttemptOutcome.UNSENT:
            driver = self._driver
            driver.when(
                lambda: write.state is not WriteState.BACKING_OFF or driver.session.link is LinkState.UP,
                lambda: self._useful(write),
            )
        elif isinstance(rejection, Conflict):
            self.conflicts += 1
            if write.retries == 0:  # Any other count leaves it to the window how often a conflict is retried.
                self._fail(write, as_error(Rejected(write.own, rejection)))
            else:
                self._hold_back(write)
        else:
            # fault+ retry.refusal_retried: if write.attempts < 5: write.take(Happened.REJECTED)
            # fault+ retry.refusal_retried: if write.attempts < 5: return self._useful(write)
            self._fail(write, as_error(Rejected(write.own, rejection)))

    def _useful(self, write: RetriedWrite) -> None:
        if write.state is WriteState.BACKING_OFF:
            write.next_us = 0
            write.take(Happened.USEFUL)
            write.requeue(write)

    def _fail(self, write: RetriedWrite, error: BaseException) -> None:
        if write in self._live:
            write.failed(error)
            self._forget_ended(write)

    def _forget_ended(self, write: RetriedWrite) -> None:
        """Forget a write if its failure was its end. An event may wait instead, and be called again."""
        if write.is_over:
            self.withdraw(write)

    # ---- room ----------------------------------------------------------------------------------------

    def _has_room(self, write: RetriedWrite) -> bool:
        pending = self._driver.session.replica.pending
        return len(pending) < self._policy.pending and self._in_flight_limit.admits(write)

    def _wait_for_room(self, write: RetriedWrite) -> None:
        self._held.append(write)
        if len(self._held) == 1:
            self._driver.when(lambda: not self._held or any(map(self._has_room, self._held)), self._admit_held)

    def _admit_held(self) -> None:
        """There is room again: those that wait look at their turn, and wait again if others were before them."""
        held, self._held = self._held, []
        for write in held:
            write.take(Happened.ROOM)
            write.requeue(write)

    # ---- retries -------------------------------------------------------------------------------------

    def _left_us(self, write: RetriedWrite) -> int:
        """Return the rest of the window of a write. Without a connection no other writer is faster: it stands still."""
        now_us = self._driver.reconnect_backoff.connected_us()
        write.began_us = now_us if write.began_us is None else write.began_us
        return round(write.began_us + self._policy.window_ms * 1_000 - now_us)

    def _hold_back(self, write: RetriedWrite) -> None:
        """Hold a rejected write back until a retry is useful, with all writes rejected together with it."""
        if write.state is not WriteState.BACKING_OFF:
            return
        left_us = self._left_us(write)
        # With a window of zero the first conflict is the end.
        # fault retry.fixed_budget: if write.conflicts > 5:
        # fault retry.no_window: if False:
        if left_us <= 0:
            self._give_up(write)
            return
        assert write.last is not None
        self._against.append(write.last)
        self._timers[write] = asyncio.get_running_loop().call_later(left_us / 1e6, self._too_late, write)
        if self._hold is None:
            self._hold = hold = [write]
            self._when(self._is_ready, lambda: self._find_moment(hold), hold)
        else:
            self._hold.append(write)

    def _give_up(self, write: RetriedWrite) -> None:
        assert write.began_us is not None
        assert write.last is not None
        error = CommitConvergenceError(
            f"a write did not land in {self._policy.window_ms / 1_000:g} s and {write.attempts} attempts, because "
            "other writers kept changing its reads. Write less often, read less, or use an intent.",
            attempts=write.attempts,
            elapsed_ms=(self._driver.reconnect_backoff.connected_us() - write.began_us) / 1_000,
        )
        error.__cause__ = as_error(Rejected(write.own, write.last))
        self._fail(write, error)

    def _too_late(self, write: RetriedWrite) -> None:
        """The window of a write is over, unless there was no connection meanwhile."""
        self._leave_hold(write)
        driver = self._driver
        driver.when(
            lambda: write.state is not WriteState.BACKING_OFF or driver.session.link is LinkState.UP,
            lambda: self._hold_back(write),
        )
        driver.wake()

    def _leave_hold(self, write: RetriedWrite) -> None:
        timer = self._timers.pop(write, None)
        if timer is not None:
            timer.cancel()
        hold = self._hold
        if hold is not None and write in hold:
            is_first = hold[0] is write
            hold.remove(write)
            if is_first:
                self._end_hold(hold)  # The others find out for themselves.

    def _when(
        self,
        holds: Callable[[], bool],
        act: Callable[[], object],
        hold: list[RetriedWrite],
        within_us: int | None = None,
    ) -> None:
        """Go on with a hold as soon as a condition holds, or after a time. Nothing happens if the hold is over."""
        timer: list[asyncio.TimerHandle] = []
        late: list[None] = []

        def over() -> None:
            if timer:
                timer[0].cancel()
            if self._hold is hold:
                act()

        self._driver.when(lambda: bool(late) or self._hold is not hold or holds(), over)
        if within_us is not None and not holds():

            def ring() -> None:
                late.append(None)
                self._driver.wake()

            timer.append(asyncio.get_running_loop().call_later(max(0, within_us) / 1e6, ring))

    def _is_ready(self) -> bool:
        """True if every commit that won against the held writes is here."""
        return all(self._driver.session.ready(conflict) for conflict in self._against)

    def _find_moment(self, hold: list[RetriedWrite]) -> None:
        """The winners are here: find out when a retry is useful."""
        driver, policy, first = self._driver, self._policy, hold[0]
        late = first.conflicts - policy.at_once
        if driver.place_in_queue is not None and late <= 0:
            # The engine says when. If sessions before this one do not come, being late is better than waiting.
            self._when(
                lambda: not driver.place_in_queue,
                lambda: self._end_hold(hold),
                hold,
                within_us=policy.turn_ms * 1_000,
            )
            return
        # Without a turn from the engine sessions that lost together retry spread over some time.
        delay_us = policy.backoff.delay_us(max(self._in_a_row, late), self._random)
        delay_us += round(self._random.random() * min(policy.spread * self._round_trip_us, policy.spread_us))
        self._in_a_row += 1
        first.delayed(self._clock.monotonic_us(), delay_us)
        # While others still write, retry when their commits arrive: at any other time they are ahead again.
        asyncio.get_running_loop().call_later(delay_us / 1e6, self._delayed, hold, delay_us)

    def _delayed(self, hold: list[RetriedWrite], delay_us: int) -> None:
        confirmed = self._driver.session.replica.confirmed

        def ready() -> None:
            seen = confirmed.seq
            news_us = min(delay_us, self._policy.news_us)
            self._when(lambda: confirmed.seq > seen, lambda: self._end_hold(hold), hold, within_us=news_us)

        if self._hold is hold:
            self._when(self._is_ready, ready, hold)

    def _end_hold(self, hold: list[RetriedWrite]) -> None:
        """All of them resume in one turn of the loop, so that their commits are sent in one message."""
        if self._hold is not hold:
            return
        self._hold = None
        self._against.clear()
        for write in hold:
            timer = self._timers.pop(write, None)
            if timer is not None:
                timer.cancel()
            self._useful(write)

    def _end(self, error: HeadwaterError) -> None:
        """The driver ended: no verdict will come any more."""
        for write in tuple(self._live):
            self._driver.soon(lambda write=write: self._fail(write, error))  # type: ignore[misc]
