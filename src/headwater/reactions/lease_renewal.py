"""Holding: leases are renewed while somebody works under them, and whoever lost one is told.

One message renews all of them, three times in the time of a lease. A lease that could not be renewed for as long as it
lasts may be somebody else's: it counts as lost then, by a timer, whatever else is waited for. Time is this process's
own, from the moment a question was asked, so that it ends here before it ends there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from headwater.errors import HeadwaterError
from headwater.protocol.reactions import Hold, LeasesRenewed, RenewLeases
from headwater.reactions.port import Desk

MOST = 1_000
"""Leases in one message."""


class Holding:
    """The leases of one drain."""

    __slots__ = ("_desk", "_doubts", "_ends", "_held", "_lease_us", "_task", "_timer")

    def __init__(self, desk: Desk, lease_us: int) -> None:
        self._desk = desk
        self._lease_us = lease_us
        self._held: dict[Hold, Callable[[], object]] = {}  # whom it concerns when one is lost
        self._ends: dict[Hold, float] = {}  # when, by the loop's clock
        self._task: asyncio.Task[None] | None = None
        self._doubts: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None  # for the first end, or one that was moved since

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, hold: Hold, asked_at: float, on_lost: Callable[[], object]) -> None:
        """A target was claimed by a question that was asked then, or given after one."""
        self._held[hold] = on_lost
        self._ends[hold] = asked_at + self._lease_us / 1e6
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_at(self._ends[hold], self._end)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run(), name="renewing leases")

    def let_go(self, hold: Hold) -> None:
        self._held.pop(hold, None)
        self._ends.pop(hold, None)

    def doubt(self, hold: Hold) -> None:
        """It may be somebody else's by now: ask at once."""
        loop = asyncio.get_running_loop()
        if hold in self._held:
            task = loop.create_task(self._renew((hold,), loop.time()), name=f"asking whose {hold.key} is")
            self._doubts.add(task)
            task.add_done_callback(self._doubts.discard)

    async def still(self, holds: Sequence[Hold]) -> set[Hold] | None:
        """Which of these are still this worker's, for a whole lease from now on. None: nobody answered."""
        lost: set[Hold] = set()
        for at in range(0, len(holds), MOST):
            answer = await self._asked(tuple(holds[at : at + MOST]))
            if answer is None:
                return None
            lost.update(answer.lost)
        return set(holds) - lost

    async def _asked(self, holds: tuple[Hold, ...]) -> LeasesRenewed | None:
        try:
            answer = await asyncio.wait_for(self._desk.ask(RenewLeases(0, holds, self._lease_us)), self._lease_us / 3e6)
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
            for at in range(0, len(holds), MOST):
                await self._renew(holds[at : at + MOST], asked_at)

    def _end(self) -> None:
        """The time of a lease may be over; those that follow end later."""
        loop = asyncio.get_running_loop()
        self._timer = None
        now = loop.time()
        for hold in [hold for hold, ends in self._ends.items() if ends <= now]:
            self._lost(hold)
        if self._ends and self._timer is None:
            self._timer = loop.call_at(min(self._ends.values()), self._end)

    async def _renew(self, holds: tuple[Hold, ...], asked_at: float) -> None:
        answer = await self._asked(holds)
        if answer is None:
            return  # The next turn asks again, as long as they last.
        lost = set(answer.lost)
        for hold in holds:
            if hold in lost:
                self._lost(hold)
            elif hold in self._held:
                self._ends[hold] = asked_at + self._lease_us / 1e6

    def _lost(self, hold: Hold) -> None:
        on_lost = self._held.get(hold)
        self.let_go(hold)
        if on_lost is not None:
            on_lost()

    def stop(self) -> None:
        for task in (*self._doubts, *((self._task,) if self._task is not None else ())):
            task.cancel()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._held.clear()
        self._ends.clear()
