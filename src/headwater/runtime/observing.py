"""Looking from outside: pulls, sinks, watches, and waiting for something to hold.

Each look is an effect of its own, so that it is demanded, fresh and value-gated like everything else. Callbacks are
called outside any run, with the latest value; what they read is not tracked.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from headwater.cells.handle import Input
from headwater.cells.host import Subscription
from headwater.scheduler.node import CLEAN, Node, NodeKind
from headwater.scheduler.registry import NodeSpec

if TYPE_CHECKING:
    from headwater.runtime.core import Core


class Observing:
    """Everybody who looks from outside at one runtime."""

    __slots__ = ("_core", "_count", "_waiting")

    def __init__(self, core: Core) -> None:
        self._core = core
        self._count = 0
        self._waiting: list[tuple[Callable[[], bool], Callable[[], object]]] = []

    # ---- waiting -----------------------------------------------------------------------------------

    def when(self, holds: Callable[[], bool], act: Callable[[], object]) -> None:
        """Act once, as soon as something holds."""
        if holds():
            act()
        else:
            self._waiting.append((holds, act))

    def look(self) -> None:
        """Something happened: whoever waited for it goes on."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for holds, act in waiting:
                if holds():
                    act()
                else:
                    self._waiting.append((holds, act))

    async def until(self, holds: Callable[[], bool]) -> None:
        if holds():
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.when(lambda: future.done() or holds(), lambda: None if future.done() else future.set_result(None))
        await future

    # ---- looking -----------------------------------------------------------------------------------

    def _effect(self, what: str, handle: Input[Any], fn: Callable[[], object]) -> Node:
        self._count += 1
        spec = NodeSpec(
            id=f"{what}:{self._count}:{handle!r}",
            kind=NodeKind.EFFECT,
            fn=fn,
            home=handle._document.home,
            returns=False,
            no_auto_debounce=what == "pull",
        )
        return self._core.register(spec)

    async def pull(self, handle: Input[Any]) -> Any:
        """Demand it, wait until it is fresh, and let go."""
        seen: list[Any] = []

        def look() -> None:
            seen[:] = [handle.get()]

        node = self._effect("pull", handle, look)
        try:
            await self.until(lambda: node.runs > 0 and node.status == CLEAN)
        finally:
            self._core.remove(node)
        if node.error is not None:
            raise node.error
        return seen[0]

    def sink(self, handle: Input[Any], fn: Callable[[Any], object], group: object | None) -> Subscription:
        """Call with the value now and after every change of it that was not made with the same group."""
        core = self._core
        waiting: list[Any] = []

        def deliver() -> None:
            if waiting:
                fn(waiting.pop())

        def look() -> None:
            value = handle.get()
            run = core.current.run
            causes = run.causes if run is not None else None
            if group is not None and causes and all(cause.group is group for cause in causes.values()):
                return  # It is an echo of what the caller did.
            if not waiting:
                core.afterwards(deliver)
            waiting[:] = [value]

        node = self._effect("sink", handle, look)

        def close() -> None:
            waiting.clear()
            core.remove(node)

        return Subscription(close)

    async def watch(self, handle: Input[Any]) -> AsyncIterator[Any]:
        """The value now, then the latest whenever it changed."""
        latest: list[Any] = []
        subscription = self.sink(handle, lambda value: latest.append(value), None)
        try:
            while True:
                await self.until(lambda: bool(latest))
                value = latest[-1]
                latest.clear()
                yield value
        finally:
            subscription.close()
