"""Workers on a virtual clock: an engine that answers after a moment, reactions that do as a test says.

`played` runs a story on the virtual loop: nothing sleeps, and what is awaited moves time. Decides and checks nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Literal

from headwater.backoff import Backoff
from headwater.clock import VirtualClock
from headwater.errors import StorageError
from headwater.protocol.reactions import Delivering, Delivers, Since
from headwater.runtime import Attempt, Batch, Drain, Pace, Rule, Rules
from headwater.testing.author.loop import VirtualLoop
from tests.unit.engine.delivery_kit import World

Does = Callable[[Batch], Awaitable[Any]]


@dataclass
class Stub:
    """A reaction that does as it is told, and notes what it was given and when."""

    does: Does
    clock: VirtualClock
    name: str = "r"
    topic: str = "orders"
    since: Since = "now"
    lane: str = ""
    priority: int = 0
    batch: int = 1
    rules: Rules = field(default_factory=Rules)
    lands: bool = False
    landing: Callable[[Batch, Any], Awaitable[None]] | None = None
    began: list[tuple[int, str, object, int]] = field(default_factory=list)  # when, whose, what, which attempt
    cancelled: int = 0

    async def run(self, batch: Batch) -> Any:
        for record in batch.records:
            self.began.append((self.clock.monotonic_us(), batch.hold.key, record.payload, batch.attempt))
        try:
            return await self.does(batch)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    has_otherwise = False

    async def give_up(self, batch: Batch, reason: str) -> None:
        raise AssertionError("no handler hears of it")

    async def land(self, batch: Batch, result: Any) -> None:
        assert self.landing is not None
        await self.landing(batch, result)

    @property
    def times(self) -> list[int]:
        return [at for at, *_ in self.began]

    @property
    def payloads(self) -> list[object]:
        return [payload for _, _, payload, _ in self.began]

    @property
    def attempts(self) -> list[int]:
        return [attempt for *_, attempt in self.began]


class EngineDesk:
    """Asks an engine, after a moment each way. While it is down, nobody answers."""

    def __init__(self, world: World, *, latency_us: int = 0) -> None:
        self.world = world
        self.latency_us = latency_us
        self.is_down = False
        self.asked: list[Delivers] = []

    async def ask(self, question: Delivers) -> Delivering:
        await asyncio.sleep(self.latency_us / 1e6)
        if self.is_down:
            raise StorageError("nobody answers (planted)")
        self.asked.append(question)
        answer = self.world.engine.deliver(question)
        await asyncio.sleep(self.latency_us / 1e6)
        if self.is_down:
            raise StorageError("the answer was lost (planted)")
        return answer


class Story:
    """A space, and workers that share its targets."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.clock = world.clock
        self.drains: list[Drain] = []
        self.traced: list[Any] = []

    def stub(
        self,
        does: Does | None = None,
        *,
        max_retries: int = 3,
        backoff: Backoff | None = None,
        on_exhausted: Literal["block", "park", "skip", "never"] = "block",
        budget_ms: float | None = None,
        errors: dict[type[BaseException], Rule] | None = None,
        **options: Any,
    ) -> Stub:
        rules = Rules(
            max_retries=max_retries,
            backoff=backoff or Backoff.none(),
            on_exhausted=on_exhausted,
            budget_ms=budget_ms,
            errors=errors or {},
        )
        return Stub(does or nothing, self.clock, rules=rules, **options)

    async def worker(
        self, *stubs: Stub, name: str = "w", lease_ms: int = 1_000, desk: EngineDesk | None = None, **pace: Any
    ) -> Drain:
        drain = Drain(
            desk or EngineDesk(self.world),
            stubs,
            clock=self.clock,
            worker=name,
            pace=Pace(lease_ms=lease_ms, **pace),
            on_trace=self.traced.append,
        )
        self.drains.append(drain)
        await drain.start()
        return drain

    def emit(self, key: str, *payloads: object) -> None:
        """Emit, and tell every worker, as a hub does."""
        self.world.emit(key, *payloads)
        for drain in self.drains:
            drain.notify()

    async def passes(self, ms: float) -> None:
        await asyncio.sleep(ms / 1_000)

    @property
    def ends(self) -> list[tuple[str, str]]:
        return [(each.how, each.then) for each in self.traced if isinstance(each, Attempt)]


async def nothing(_: Batch) -> None:
    """It succeeds at once."""


def takes(ms: float) -> Does:
    async def does(_: Batch) -> None:
        await asyncio.sleep(ms / 1_000)

    return does


def fails(*errors: BaseException | None) -> Does:
    """Raise these one after the other, the last one again and again; None succeeds."""
    left = list(errors)

    async def does(_: Batch) -> None:
        error = left.pop(0) if len(left) > 1 else left[0]
        if error is not None:
            raise error

    return does


def played(story: Callable[[Story], Coroutine[Any, Any, None]], world: World | None = None) -> Story:
    """Run a story to its end, and kill whoever still works."""
    made = Story(world or World())
    loop = VirtualLoop(made.clock, is_busy=False)

    async def main() -> None:
        try:
            await story(made)
        finally:
            for drain in made.drains:
                drain.kill()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

    try:
        loop.run_until_complete(main())
    finally:
        loop.close()
    return made
