"""What the tests of pieces share: runtimes that are alone, over one directory or behind one server, and what ran."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from headwater.clock import VirtualClock
from headwater.data.trace import Ran
from headwater.errors import AbsentError, HeadwaterError, NotReadyError
from headwater.pieces.member import Declaration
from headwater.runtime.attachment import Alone, Attachment, Embedded, Remote
from headwater.runtime.policy import Policy
from headwater.runtime.runtime import Runtime
from headwater.scheduler.scheduler import Failure
from tests.unit.runtime.kit import address, run, serving

__all__ = ["PLACES", "Ranned", "Site", "Spent", "alone", "at", "member_of", "run", "turns"]

PLACES = ("detached", "embedded", "websocket")


class Site:
    """Runtimes on one set of spaces. Of those that are alone there is one."""

    def __init__(self, attachment: Attachment | None) -> None:
        self._attachment = attachment
        self.runtimes: list[Runtime] = []
        self.errors: list[Failure] = []

    def runtime(self, *, policy: Policy | None = None) -> Runtime:
        if self._attachment is None:
            assert not self.runtimes, "a runtime that is alone shares nothing"
        made = Runtime(_Shared(self._attachment or Alone()), policy=policy)
        made.core.on_error(self.errors.append)
        self.runtimes.append(made)
        return made

    async def settled(self) -> None:
        """All of them have done what they had to."""
        for _ in range(3):
            for each in self.runtimes:
                await each.idle()
                await each.durable()

    async def agreed(self, *handles: Any) -> Any:
        """Wait until these handles read the same; what that is."""
        values: list[Any] = []
        for _ in range(2_000):
            await self.settled()
            values = [await handle.pull() for handle in handles]
            if all(value == values[0] for value in values):
                return values[0]
        raise AssertionError(f"they do not agree: {values}")

    async def holds(self, check: Callable[[Any], None], pieces: list[Any]) -> None:
        """Wait until a check holds for all pieces: what others derive may still be on its way."""
        for _ in range(500):
            await self.settled()
            try:
                for piece in pieces:
                    check(piece)
            except (AssertionError, AbsentError, NotReadyError):
                for each in self.runtimes:
                    await each.settled()
            else:
                return
        for piece in pieces:
            check(piece)

    async def close(self) -> None:
        for each in self.runtimes:
            await each.close()


class _Shared:
    """An attachment that is somebody else's to close."""

    def __init__(self, attachment: Attachment) -> None:
        self._attachment = attachment
        self.token = attachment.token

    def transport(self, space: str) -> Any:
        return self._attachment.transport(space)

    async def close(self) -> None:
        """It is not ours."""


@asynccontextmanager
async def at(place: str, folder: Path) -> AsyncIterator[Site]:
    """Runtimes somewhere: alone, over a directory, or behind a server in this process."""
    if place == "detached":
        site = Site(None)
        try:
            yield site
        finally:
            await site.close()
    elif place == "embedded":
        async with Embedded(folder / "data", synchronous="OFF") as data:
            site = Site(data)
            try:
                yield site
            finally:
                await site.close()
    else:
        async with serving(folder / "data", insecure_local=True) as server:
            site = Site(Remote(address(server)))
            try:
                yield site
            finally:
                await site.close()


@asynccontextmanager
async def alone(clock: VirtualClock | None = None) -> AsyncIterator[tuple[Runtime, list[Failure]]]:
    """One runtime whose spaces are nowhere else, and what it told on its error channel."""
    errors: list[Failure] = []
    async with Runtime(clock=clock) as rt:
        rt.core.on_error(errors.append)
        yield rt, errors


async def turns(rt: Runtime, clock: VirtualClock, ms: float) -> None:
    """Let time pass, and everything happen that follows from it."""
    clock.advance(round(ms * 1_000))
    rt.core.wake()
    for _ in range(5):
        await rt.idle()
        await rt.written()


class Ranned:
    """A trace that counts the runs of each node and what they committed."""

    def __init__(self, rt: Runtime) -> None:
        self.runs: Counter[str] = Counter()
        self.commits: Counter[str] = Counter()
        rt.core.scheduler.set_trace(self)

    def emit(self, event: object) -> None:
        if isinstance(event, Ran):
            self.runs[event.node] += 1
            self.commits[event.node] += bool(event.local_seq)

    def taken(self) -> Spent:
        """What ran since the last time."""
        spent = Spent(self.runs, self.commits)
        self.runs, self.commits = Counter(), Counter()
        return spent


class Spent:
    def __init__(self, runs: Counter[str], commits: Counter[str]) -> None:
        self.runs = runs
        self.commits = commits

    def of(self, part: str) -> int:
        """Runs of the nodes whose name ends with this."""
        return sum(count for name, count in self.runs.items() if name.endswith(part))

    @property
    def totals(self) -> tuple[int, int]:
        return sum(self.runs.values()), sum(self.commits.values())


def member_of(cls: type[Any], name: str) -> Declaration:
    found: Declaration = cls.__outline__.members[name]
    return found


async def refusal(work: Any) -> HeadwaterError:
    """The error that an awaitable ends with."""
    try:
        await work
    except HeadwaterError as error:
        return error
    raise AssertionError("it was not refused")
