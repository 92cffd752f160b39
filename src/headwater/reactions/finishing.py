"""Finishing: what came of targets is told together, one message after the other, until it is heard.

While one is on its way, what comes meanwhile is the next one. Without an answer it is told again: whatever was heard
before is late then, and changes nothing. Owns the outcomes that were not heard yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from headwater.backoff import Backoff
from headwater.clock import Random
from headwater.errors import HeadwaterError
from headwater.protocol.reactions import Finish, Finished, Hold, Outcome
from headwater.reactions.port import Desk

AGAIN = Backoff.exponential(base_ms=50, max_ms=5_000, jitter=0.2)
MOST = 500
"""Outcomes in one message."""
OnFinished = Callable[[tuple[Outcome, ...], Finished], None]


class Finishing:
    """The outcomes of one drain."""

    __slots__ = ("_desk", "_is_stopped", "_on_finished", "_random", "_task", "_waiting")

    def __init__(self, desk: Desk, random: Random, on_finished: OnFinished) -> None:
        self._desk = desk
        self._random = random
        self._on_finished = on_finished
        self._waiting: dict[Hold, tuple[Outcome, asyncio.Future[bool]]] = {}
        self._task: asyncio.Task[None] | None = None
        self._is_stopped = False

    def __len__(self) -> int:
        return len(self._waiting)

    async def tell(self, outcome: Outcome) -> bool:
        """Tell what came of a target, and wait until it is heard. False: it was somebody else's by then."""
        if self._is_stopped:
            raise asyncio.CancelledError
        loop = asyncio.get_running_loop()
        heard: asyncio.Future[bool] = loop.create_future()
        before = self._waiting.get(outcome.hold)
        if before is not None:
            await asyncio.shield(before[1])
        self._waiting[outcome.hold] = (outcome, heard)
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._run(), name="telling what came of targets")
        return await asyncio.shield(heard)

    async def _run(self) -> None:
        failures = 0
        while self._waiting:
            told = tuple([outcome for outcome, _ in self._waiting.values()][:MOST])
            try:
                answer = await self._desk.ask(Finish(0, told))
            except HeadwaterError:
                await asyncio.sleep(AGAIN.delay_us(min(failures, 20), self._random) / 1e6)
                failures += 1
                continue
            assert isinstance(answer, Finished)
            failures = 0
            late = set(answer.late)
            for outcome in told:
                _, heard = self._waiting.pop(outcome.hold)
                if not heard.done():
                    heard.set_result(outcome.hold not in late)
            self._on_finished(told, answer)

    def stop(self) -> None:
        """Nobody hears anything any more."""
        self._is_stopped = True
        if self._task is not None:
            self._task.cancel()
        for _, heard in self._waiting.values():
            heard.cancel()
        self._waiting.clear()
