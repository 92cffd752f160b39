"""What scenarios of pieces share: runtimes alone, over one directory or behind one server, and counted runs."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from headwater import AbsentError, NotReadyError, Policy, Runtime
from headwater.clock import VirtualClock
from headwater.data.trace import Ran
from headwater.runtime import Backend, LocalDirectory, RemoteServer, Transport
from headwater.scheduler import Failure
from tests.unit.runtime.kit import address, run
from tests.unit.runtime.kit import serving as started

__all__ = [
    "PLACES",
    "Ranned",
    "Site",
    "Spent",
    "alone",
    "at",
    "live_objects",
    "node_count",
    "run",
    "serving",
    "turns",
]

PLACES = ("detached", "embedded", "websocket")
_NOT_DATA = ("headwater.runtime.", "headwater.scheduler.", "headwater.pieces.")


# ---- places ------------------------------------------------------------------------------------------------


class Site:
    """Runtimes on one set of spaces. A site without a backend has one runtime, whose spaces are nowhere else."""

    def __init__(self, backend: Backend | None) -> None:
        self._backend = backend
        self.runtimes: list[Runtime] = []
        self.errors: list[Failure] = []

    def runtime(self, *, policy: Policy | None = None) -> Runtime:
        if self._backend is None:
            assert not self.runtimes, "a detached runtime shares nothing"
            made = Runtime(policy=policy)
        else:
            made = Runtime(_Shared(self._backend), policy=policy)
        made.on_failure(self.errors.append)
        self.runtimes.append(made)
        return made

    async def settled(self) -> None:
        """Wait until every runtime is idle and durable."""
        for _ in range(3):
            for each in self.runtimes:
                await each.idle()
                await each.durable()

    async def agreed(self, *handles: Any) -> Any:
        """Wait until these handles read the same value, and return it."""
        values: list[Any] = []
        for _ in range(2_000):
            await self.settled()
            values = [await handle.pull() for handle in handles]
            if all(value == values[0] for value in values):
                return values[0]
        raise AssertionError(f"they do not agree: {values}")

    async def holds(self, check: Callable[[Any], None], pieces: list[Any]) -> None:
        """Wait until a check holds for all pieces: results of other runtimes may still be on their way."""
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
    """A backend that outlives the runtimes which use it."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.token = backend.token
        self.life = ""
        self.is_only = False

    def transport(self, space: str) -> Transport | None:
        return self._backend.transport(space)

    async def close(self) -> None:
        """Leave the backend open."""


@asynccontextmanager
async def at(place: str, folder: Path) -> AsyncIterator[Site]:
    """A site at one of `PLACES`; the server runs in this process."""
    if place == "detached":
        async with _closing(Site(None)) as site:
            yield site
    elif place == "embedded":
        async with LocalDirectory(folder / "data", synchronous="OFF") as data, _closing(Site(data)) as site:
            yield site
    else:
        async with serving(folder / "data") as where, _closing(Site(RemoteServer(where))) as site:
            yield site


@asynccontextmanager
async def _closing(site: Site) -> AsyncIterator[Site]:
    try:
        yield site
    finally:
        await site.close()


@asynccontextmanager
async def serving(directory: Path, *, insecure_local: bool = True) -> AsyncIterator[str]:
    """A server on a free port, in this process and on this event loop; its address."""
    async with started(directory, insecure_local=insecure_local, anyone_founds=True) as server:
        yield address(server)


@asynccontextmanager
async def alone(
    clock: VirtualClock | None = None, *, policy: Policy | None = None
) -> AsyncIterator[tuple[Runtime, list[Failure]]]:
    """One detached runtime, and the failures of its error channel."""
    errors: list[Failure] = []
    async with Runtime(clock=clock, policy=policy) as rt:
        rt.on_failure(errors.append)
        yield rt, errors


# ---- waiting -----------------------------------------------------------------------------------------------


async def turns(rt: Runtime, clock: VirtualClock, ms: float) -> None:
    """Let time pass, and everything happen that follows from it."""
    clock.advance(round(ms * 1_000))
    rt.wake()
    for _ in range(5):
        await rt.idle()
        await rt.written()


# ---- counting ----------------------------------------------------------------------------------------------


def node_count(rt: Runtime) -> int:
    return len(rt.graph().nodes)


def live_objects() -> Counter[str]:
    """Objects of runtimes, pieces and nodes that are alive, by class. Documents are not counted: data stays."""
    gc.collect()
    classes = [type(each) for each in gc.get_objects()]
    ours = [each for each in classes if isinstance(each.__module__, str) and each.__module__.startswith(_NOT_DATA)]
    for package in _NOT_DATA:
        assert any(each.__module__.startswith(package) for each in ours), f"no object of {package} was found"
    return Counter(f"{each.__module__}.{each.__qualname__}" for each in ours)


class Ranned:
    """A trace that counts the runs of each node, and those runs that committed something."""

    def __init__(self, rt: Runtime) -> None:
        self.runs: Counter[str] = Counter()
        self.commits: Counter[str] = Counter()
        rt.scheduler.set_trace(self)

    def emit(self, event: object) -> None:
        if isinstance(event, Ran):
            self.runs[event.node] += 1
            self.commits[event.node] += bool(event.local_seq)

    def taken(self) -> Spent:
        """The counts since the last call."""
        spent = Spent(self.runs, self.commits)
        self.runs, self.commits = Counter(), Counter()
        return spent


class Spent:
    """Counted runs and commits by node."""

    def __init__(self, runs: Counter[str], commits: Counter[str]) -> None:
        self.runs = runs
        self.commits = commits

    def of(self, part: str) -> int:
        """Runs of the nodes whose name ends with this."""
        return sum(count for name, count in self.runs.items() if name.endswith(part))

    @property
    def totals(self) -> tuple[int, int]:
        return sum(self.runs.values()), sum(self.commits.values())
