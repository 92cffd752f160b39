"""Finishing: what came of targets is told together, one message after the other, until it is heard or refused.

While one is on its way, what comes meanwhile is the next one. Without an answer it is told again: whatever was heard
before is late then, and changes nothing. What is refused, or cannot be said at all, is told one by one, and given up:
the lease of that target ends by itself. Owns the outcomes that were not heard yet, which are bounded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from headwater.backoff import Backoff
from headwater.clock import Random
from headwater.errors import HeadwaterError
from headwater.protocol.reactions import Finish, Finished, Hold, Outcome
from headwater.reactions.port import Desk, is_refusal
from headwater.reactions.retry_rules import said

AGAIN: Final = Backoff.exponential(base_ms=50, max_ms=5_000, jitter=0.2)
MOST: Final = 500
"""Outcomes in one message."""
KEPT: Final = 10 * MOST
"""Outcomes that wait to be heard. Beyond them the oldest is given up: its lease is over long since."""
OnFinished = Callable[[tuple[Outcome, ...], Finished], None]
OnUnheard = Callable[[Hold, str], None]


class Finishing:
    """The outcomes of one drain."""

    __slots__ = ("_desk", "_is_stopped", "_on_finished", "_on_unheard", "_random", "_task", "_waiting")

    def __init__(self, desk: Desk, random: Random, on_finished: OnFinished, on_unheard: OnUnheard) -> None:
        self._desk = desk
        self._random = random
        self._on_finished = on_finished
        self._on_unheard = on_unheard
        self._waiting: dict[Hold, tuple[Outcome, asyncio.Future[bool]]] = {}
        self._task: asyncio.Task[None] | None = None
        self._is_stopped = False

    def __len__(self) -> int:
        return len(self._waiting)

    def is_telling(self, hold: Hold) -> bool:
        """Whether what came of a target is on its way: whose it is by then is heard with that."""
        return hold in self._waiting

    async def tell(self, outcome: Outcome) -> bool:
        """Tell what came of a target, and wait until it is heard. False: it was somebody else's by then, or refused."""
        if self._is_stopped:
            raise asyncio.CancelledError
        loop = asyncio.get_running_loop()
        heard: asyncio.Future[bool] = loop.create_future()
        before = self._waiting.get(outcome.hold)
        if before is not None:
            await asyncio.shield(before[1])
        if len(self._waiting) >= KEPT:
            self._give_up(next(iter(self._waiting.values()))[0], f"{KEPT} others wait to be told")
        self._waiting[outcome.hold] = (outcome, heard)
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._run(), name="telling what came of targets")
        return await asyncio.shield(heard)

    async def _run(self) -> None:
        """Ends when all is told, refused or given up; while nobody answers, with the drain (`stop`)."""
        failures = 0
        alone = 0  # so many are told one by one: one of them was refused
        while self._waiting:
            told = tuple([outcome for outcome, _ in self._waiting.values()][: 1 if alone else MOST])
            try:
                answer = await self._desk.ask(Finish(0, told))
            except Exception as error:  # One that cannot even be said must take no other along.
                if isinstance(error, HeadwaterError) and not is_refusal(error):
                    await asyncio.sleep(AGAIN.delay_us(min(failures, 20), self._random) / 1e6)
                    failures += 1
                elif len(told) == 1:
                    self._give_up(told[0], f"{type(error).__qualname__}: {said(error)}")
                    alone = max(0, alone - 1)
                else:
                    alone = len(told)
                continue
            assert isinstance(answer, Finished)
            failures = 0
            alone = max(0, alone - 1)
            late = set(answer.late)
            for outcome in told:
                self._over(outcome, is_heard=outcome.hold not in late)
            self._on_finished(told, answer)

    def _give_up(self, outcome: Outcome, why: str) -> None:
        self._over(outcome, is_heard=False)
        self._on_unheard(outcome.hold, why)

    def _over(self, outcome: Outcome, *, is_heard: bool) -> None:
        waiting = self._waiting.get(outcome.hold)
        if waiting is not None and waiting[0] is outcome:  # Or it was given up, and there is another one by now.
            del self._waiting[outcome.hold]
            if not waiting[1].done():
                waiting[1].set_result(is_heard)

    def stop(self) -> None:
        """Nobody hears anything any more."""
        self._is_stopped = True
        if self._task is not None:
            self._task.cancel()
        for _, heard in self._waiting.values():
            heard.cancel()
        self._waiting.clear()
