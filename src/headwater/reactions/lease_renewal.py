"""Renewal of the leases of a drain, and notice of lost leases.

One message renews all leases, three times in the duration of a lease. A lease that was not renewed for its whole
duration counts as lost, by a timer: another worker may hold it. The duration is counted by this process's clock from
the time of the question, so that a lease expires here before it expires in the space.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from headwater.errors import HeadwaterError
from headwater.protocol.reactions import Hold, LeasesRenewed, RenewLeases
from headwater.reactions.limits import DEFAULT_DRAIN_LIMITS, DrainLimits
from headwater.reactions.port import TargetSource


class LeaseRenewal:
    """The leases that the targets of one drain are worked on under."""

    __slots__ = ("_checks", "_ends", "_held", "_lease_us", "_limits", "_source", "_task", "_timer")

    def __init__(self, source: TargetSource, lease_us: int, limits: DrainLimits = DEFAULT_DRAIN_LIMITS) -> None:
        self._source = source
        self._lease_us = lease_us
        self._limits = limits
        self._held: dict[Hold, Callable[[], object]] = {}  # called when the lease is lost
        self._ends: dict[Hold, float] = {}  # when each expires, by the loop's clock
        self._task: asyncio.Task[None] | None = None
        self._checks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None  # for the first expiry, or an earlier one that was renewed since

    def __len__(self) -> int:
        return len(self._held)

    def add(self, hold: Hold, asked_at: float, on_lost: Callable[[], object]) -> None:
        """Keep the lease of a target that was claimed by a question of that time, or was given after it."""
        self._held[hold] = on_lost
        self._ends[hold] = asked_at + self._lease_us / 1e6
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_at(self._ends[hold], self._expire)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run(), name="renewing leases")

    def remove(self, hold: Hold) -> None:
        self._held.pop(hold, None)
        self._ends.pop(hold, None)

    def renew_now(self, hold: Hold) -> None:
        """Ask at once whether a lease is still held."""
        loop = asyncio.get_running_loop()
        if hold in self._held:
            task = loop.create_task(self._renew((hold,), loop.time()), name=f"asking whose {hold.key} is")
            self._checks.add(task)
            task.add_done_callback(self._checks.discard)

    async def confirm(self, holds: Sequence[Hold]) -> set[Hold] | None:
        """Renew leases and return those still held, for a whole duration from now. None if no answer came."""
        lost: set[Hold] = set()
        for at in range(0, len(holds), self._limits.leases_at_once):
            answer = await self._ask(tuple(holds[at : at + self._limits.leases_at_once]))
            if answer is None:
                return None
            lost.update(answer.lost)
        return set(holds) - lost

    async def _ask(self, holds: tuple[Hold, ...]) -> LeasesRenewed | None:
        try:
            question = RenewLeases(0, holds, self._lease_us)
            answer = await asyncio.wait_for(self._source.ask(question), self._lease_us / 3e6)
        except (HeadwaterError, TimeoutError):
            return None
        assert isinstance(answer, LeasesRenewed)
        return answer

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._held:
            await asyncio.sleep(self._lease_us / 3e6)
            asked_at = loop.time()
            holds = tuple(self._held)
            for at in range(0, len(holds), self._limits.leases_at_once):
                await self._renew(holds[at : at + self._limits.leases_at_once], asked_at)

    def _expire(self) -> None:
        """Lose the leases that are over, and set the timer for the next expiry."""
        loop = asyncio.get_running_loop()
        self._timer = None
        now = loop.time()
        for hold in [hold for hold, ends in self._ends.items() if ends <= now]:
            self._lose(hold)
        if self._ends and self._timer is None:
            self._timer = loop.call_at(min(self._ends.values()), self._expire)

    async def _renew(self, holds: tuple[Hold, ...], asked_at: float) -> None:
        answer = await self._ask(holds)
        if answer is None:
            return  # The next round asks again, until the leases expire.
        lost = set(answer.lost)
        for hold in holds:
            if hold in lost:
                self._lose(hold)
            elif hold in self._held:
                self._ends[hold] = asked_at + self._lease_us / 1e6

    def _lose(self, hold: Hold) -> None:
        on_lost = self._held.get(hold)
        self.remove(hold)
        if on_lost is not None:
            on_lost()

    def stop(self) -> None:
        for task in (*self._checks, *((self._task,) if self._task is not None else ())):
            task.cancel()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._held.clear()
        self._ends.clear()
