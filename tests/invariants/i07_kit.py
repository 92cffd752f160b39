"""What the properties of I7 over several spaces, branches and crashes share: two processes and what they ran.

One of them stays, the other one comes back; both hear of the same writes. Spaces may be on branches. Owns how a
directory is opened, written by others, copied and compared; what is written is for each property to say.
"""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from headwater import Piece
from headwater.data.address import DocKey
from headwater.data.patch import replace
from headwater.data.trace import Ran, Registered, RunFailed
from headwater.data.value import Value
from headwater.engine import Engine
from headwater.protocol.commit import MAIN, Commit, Operation
from headwater.protocol.verdict import Accepted
from headwater.runtime import Backend, LocalDirectory, Runtime, Space
from headwater.scheduler import Failure
from tests.counts import scaled

OURS = ("pull ", "sink ", "demand ", "watch ")
WHILE_OPEN = " while it is open"
"""In the names of nodes that belong to no author: they keep a piece open."""
TOO_LONG_S = 60


class Site:
    """One runtime on spaces that may be on branches, and which of the authors' nodes ran in it."""

    def __init__(self, rt: Runtime, branches: Mapping[str, str] | None = None) -> None:
        self.rt = rt
        self.branches = dict(branches or {})
        self.spaces: dict[str, None] = {}  # the names of those that were opened
        self.errors: list[Failure] = []
        self.runs: Counter[str] = Counter()
        self.order: list[str] = []  # the same, one after the other, since the beginning
        self.registered: set[str] = set()  # the ids of nodes that came to be here
        rt.scheduler.set_trace(self)
        rt.on_failure(self.errors.append)
        for name in self.branches:
            self.space(name)

    def emit(self, event: object) -> None:
        if isinstance(event, Registered):
            self.registered.add(event.node)
        if isinstance(event, (Ran, RunFailed)):
            name = event.node.partition(" of ")[0]
            is_ours = WHILE_OPEN in event.node or name.partition("/")[2].startswith(OURS) or name.startswith(OURS)
            self.runs[name] += not is_ours
            self.order += [] if is_ours else [name]

    def taken(self) -> set[str]:
        """Which nodes ran since the last time."""
        ran, self.runs = {name for name, count in self.runs.items() if count}, Counter()
        return ran

    def space(self, name: str) -> Space:
        """A space, on its branch: that is said before the connection is there."""
        is_new = self.rt.channel(name) is None
        self.spaces[name] = None
        space = self.rt.space(name, user="ann")
        channel = self.rt.channel(name)
        if is_new and channel is not None and name in self.branches:
            channel.replica.choose_branch(self.branches[name])
        return space

    async def settled(self) -> None:
        for _ in range(3):
            await self.rt.settled()
            await self.rt.durable()

    async def heard(self, seqs: Mapping[str, int]) -> None:
        """Everything that follows from these commits has run here."""
        for name, seq in seqs.items():
            self.space(name)
            await self.rt.settled(through=seq, space=name)
        await self.settled()

    @property
    def counts(self) -> Counter[str]:
        return self.rt.resume_counts

    @property
    def errors_told(self) -> list[str]:
        return [str(failure.error) for failure in self.errors]


@asynccontextmanager
async def site(
    folder: Path | Backend, branches: Mapping[str, str] | None = None, *, identity: str | None = "one"
) -> AsyncIterator[Site]:
    async with Runtime(folder, identity=identity) as rt:
        yield Site(rt, branches)


def run(work: Callable[[], Coroutine[Any, Any, None]], too_long_s: float = TOO_LONG_S) -> None:
    """Run a test on an event loop of its own. A hang is a failure."""

    async def bounded() -> None:
        async with asyncio.timeout(too_long_s):
            await work()

    asyncio.run(bounded())


def embedded(folder: Path) -> LocalDirectory:
    return LocalDirectory(folder, synchronous="OFF")


def killed(folder: Path, into: Path) -> Path:
    """What a process leaves behind that is killed now."""
    shutil.copytree(folder, into, ignore=shutil.ignore_patterns("*lock*"))
    return into


async def asked(data: Backend, act: Callable[[Engine], Any], space: str) -> Any:
    """Something that is asked of the engine itself, as the command line does."""
    assert isinstance(data, LocalDirectory)
    host = await data.host(space)
    return await asyncio.to_thread(host.call, lambda engine, hub: act(engine))


async def ends(data: Backend, one: Site) -> dict[str, int]:
    """Where the logs of the spaces are that a process has."""
    return {name: await asked(data, lambda engine: engine.last_seq, name) for name in one.spaces}


async def put(one: Site, space: str, id: str, value: Value) -> None:
    """A transaction that is no piece's: somebody writes a document from the command line, if it is another one."""
    doc, key = DocKey("space", id), f"cli {one.rt.clock.new_token()}"

    def act(engine: Engine) -> None:
        branch = one.branches.get(space, MAIN)
        if engine.read(doc, branch=branch).value == value:
            return
        engine.open_session(key)
        (verdict,) = engine.submit(key, Commit(1, (Operation(doc, (replace((), value),)),), branch=branch))
        assert isinstance(verdict, Accepted)

    await asked(one.rt.backend, act, space)


Write = Callable[[Site], Awaitable[None]]


async def written(data: LocalDirectory, write: Write, branches: Mapping[str, str] | None = None) -> dict[str, int]:
    """Somebody else writes, without running anything. Where the logs are then, by space."""
    async with site(data, branches, identity=None) as other:
        await write(other)
        await other.rt.durable()
        return await ends(data, other)


def stories(
    history: Callable[[int, Path], Awaitable[int]], folder: Path, seeds: Iterable[int], *, too_long_s: float = 120
) -> int:
    """Many histories. Raises with the seed of the first that goes wrong; answers what they sum up to."""
    total = 0
    for seed in seeds:
        at = folder / str(seed)
        at.mkdir()

        async def story(seed: int = seed, at: Path = at) -> None:
            nonlocal total
            try:
                total += await history(seed, at)
            except AssertionError as error:
                error.add_note(f"seed {seed}")
                raise

        run(story, too_long_s=too_long_s)
        shutil.rmtree(at)
    return total


def compared(expected: set[str], ran: set[str], *, may_run_more: bool) -> None:
    # I7: never less than one that stayed; more only where somebody could not say everything before the end.
    assert expected <= ran, f"it did not run {sorted(expected - ran)}"
    assert may_run_more or ran == expected, f"it ran {sorted(ran - expected)} in vain"


async def opened(one: Site, pieces: Iterable[tuple[str, type[Piece] | Piece, str]]) -> list[Any]:
    """Open pieces, by space, class and name, one after the other, and wait for what follows."""
    made: list[Any] = []
    for space, piece, name in pieces:
        made.append(await one.space(space).open(piece, name))
    await one.settled()
    return made


def count(number: int) -> int:
    return scaled(number)
