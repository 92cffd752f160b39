"""Looking from outside: pulls, sinks, watches, and waiting for something to hold.

Each look is an effect of its own, so that it is demanded, fresh and value-gated like everything else. Callbacks are
called outside any run, with the latest value; what they read is not tracked. What is absent is waited for; what could
not be computed is told by whoever could not, and raised by a pull.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from headwater.cells.handle import Input
from headwater.cells.host import Subscription
from headwater.errors import AbsentError, HeadwaterError, UpstreamFailedError
from headwater.replica.feed import Notification
from headwater.replica.replica import Replica
from headwater.scheduler.node import CLEAN, Node, NodeKind
from headwater.scheduler.registry import NodeSpec

if TYPE_CHECKING:
    from headwater.runtime.core import Core


class Look:
    """One effect that looks at a handle, and what it saw."""

    __slots__ = ("error", "foreign", "group", "node", "values")

    def __init__(self, group: object | None) -> None:
        self.group = group
        self.node: Node | None = None
        self.foreign = True  # whether somebody outside its group changed what it reads, since it last ran
        self.values: list[Any] = []  # the latest, if nobody has taken it
        self.error: Exception | None = None


class Observing:
    """Everybody who looks from outside at one runtime."""

    __slots__ = ("_core", "_count", "_ended", "_followed", "_grouped", "_waiting")

    def __init__(self, core: Core) -> None:
        self._core = core
        self._count = 0
        self._ended: Exception | None = None
        self._waiting: list[tuple[Callable[[], bool], Callable[[], object]]] = []
        self._grouped: dict[Look, None] = {}  # sinks with a group
        self._followed: dict[Replica, Callable[[], None]] = {}  # whose changes they hear; nobody's if there are none

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
        """Wait until something holds. Raises what ended the runtime, if that comes first."""
        if not holds():
            self._check_open(holds)
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.when(
                lambda: future.done() or self._ended is not None or holds(),
                lambda: None if future.done() else future.set_result(None),
            )
            await future
            self._check_open(holds)

    def _check_open(self, holds: Callable[[], bool]) -> None:
        if self._ended is not None and not holds():
            raise self._ended

    def end(self, error: HeadwaterError) -> None:
        """The runtime is over: nobody waits any longer."""
        self._ended = error
        self.look()

    # ---- looking -----------------------------------------------------------------------------------

    def _effect(self, what: str, handle: Input[Any], fn: Callable[[], object]) -> Node:
        self._count += 1
        spec = NodeSpec(
            id=f"{what} {self._count} of {handle!r}",
            kind=NodeKind.EFFECT,
            fn=fn,
            home=handle.document.home,
            returns=False,
            no_auto_debounce=what == "pull",
        )
        return self._core.register(spec)

    async def pull(self, handle: Input[Any]) -> Any:
        """Demand it, wait until it is fresh, and let go."""
        look = Look(None)

        def run() -> None:
            look.values, look.error = [], None
            try:
                look.values = [handle.get()]
            except Exception as error:  # Whoever awaits this gets it.
                look.error = error

        node = look.node = self._effect("pull", handle, run)
        outcome: list[tuple[Any, Exception | None]] = []

        def is_fresh() -> bool:
            """What it is worth in the moment it is fresh: something may change before whoever awaits it goes on."""
            if not outcome:
                if node.runs and node.status == CLEAN:
                    outcome.append((look.values, look.error))
                elif (cannot := self._cannot(node)) is not None:
                    outcome.append(((), cannot))
            return bool(outcome)

        try:
            await self.until(is_fresh)
        finally:
            self._core.remove(node)
        values, error = outcome[0]
        if error is not None:
            raise error
        return values[0]

    def _cannot(self, node: Node) -> Exception | None:
        """Why it will not run, if what it waits for will not come."""
        if node.removed:
            return HeadwaterError(f"{node.id} was removed")
        return None if node.loading is None else self._core.why_not(node.loading)

    def sink(self, handle: Input[Any], fn: Callable[[Any], object], group: object | None) -> Subscription:
        """Call with the value now and after every change of it that was not made with the same group."""
        core = self._core
        look = Look(group)

        def deliver() -> None:
            if look.values:
                marks = core.scheduler.marks
                marks.running = look.node  # What it writes comes from here, not from outside (I6).
                try:
                    fn(look.values.pop())
                finally:
                    marks.running = None

        def run() -> None:
            try:
                value = handle.get()
            except (AbsentError, UpstreamFailedError):
                look.values.clear()
                look.foreign = True  # What comes next is news, whoever made it.
                return
            if group is not None:
                foreign, look.foreign = look.foreign, False
                if not foreign:
                    return  # It is an echo of what the caller did.
            if not look.values:
                core.afterwards(deliver)
            look.values[:] = [value]

        node = look.node = self._effect("sink", handle, run)
        if group is not None:
            self._grouped[look] = None
            for space in core.spaces():
                self.follow(space.replica)

        def close() -> None:
            look.values.clear()
            core.remove(node)
            self._ungroup(look)

        return Subscription(close)

    def follow(self, replica: Replica) -> None:
        """Listen to what a replica shows, after the scheduler: sinks with a group have to know who changed it."""
        if self._grouped and replica not in self._followed:
            self._followed[replica] = replica.feed.subscribe(self._told)

    def _ungroup(self, look: Look) -> None:
        self._grouped.pop(look, None)
        if not self._grouped:
            while self._followed:
                self._followed.popitem()[1]()

    def _told(self, notification: Notification) -> None:
        for look in self._grouped:
            node = look.node
            if node is None or look.foreign or notification.group == look.group:
                continue
            if node.causes and any(cause is notification for cause in node.causes.values()):
                look.foreign = True

    async def watch(self, handle: Input[Any]) -> AsyncIterator[Any]:
        """The value now, then the latest whenever it changed."""
        latest: list[Any] = []
        subscription = self.sink(handle, lambda value: latest.__setitem__(slice(None), [value]), None)
        try:
            while True:
                await self.until(lambda: bool(latest))
                value = latest[-1]
                latest.clear()
                yield value
        finally:
            subscription.close()
