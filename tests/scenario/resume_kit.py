"""What the tests of restarts share: a program with every kind of node, and what its nodes did in one process."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from headwater import (
    Cell,
    Handler,
    Input,
    Model,
    Piece,
    cell,
    child,
    computed,
    each,
    effect,
    fold,
    given,
    handler,
    materializer,
)
from headwater.data.trace import Ran, RunFailed
from headwater.protocol.observations import Observations, Observed, QueryObservations
from headwater.runtime import Backend, LocalDirectory, Policy, Runtime
from headwater.scheduler import Failure
from tests.scenario.wire_kit import Change, Wire, without_clean_pieces

SPACE = "shop"
WHILE_OPEN = "while it is open"
"""In the names of nodes that no author wrote: they keep what has to run while a piece is open."""


class Line(Model):
    id: str
    cents: int


class Row(Piece, name="resume.Row"):
    n: Cell[int] = given()
    rate: Input[int] = given()
    theme: Input[str] = given()
    told: Handler[[], None] = given()

    @computed
    def cost(self) -> int:
        return self.n.get() * self.rate.get()

    @computed
    def fixed(self) -> int:
        return 7

    @handler
    def double(self) -> None:
        self.n.set(2 * self.n.get())


class Note(Piece, name="resume.Note"):
    line: Input[Line] = given()

    @computed
    def text(self) -> str:
        return f"{self.line.get().id}: {self.line.get().cents}"


class Header(Piece, name="resume.Header"):
    title: Input[str] = given()

    @computed
    def length(self) -> int:
        return len(self.title.get())


class Shop(Piece, name="resume.Shop"):
    items: Cell[Mapping[str, int]] = cell(default={})
    lines: Cell[tuple[Line, ...]] = cell(default=())
    rate: Cell[int] = cell(default=2)
    title: Cell[str] = cell(default="shop")
    other: Cell[int] = cell(default=0)
    theme: Cell[str] = cell(default="light", scope="user")
    board: Cell[Mapping[str, int]] = cell(default={})

    @each(items)
    def rows(self, n: Cell[int]) -> Row:
        return Row(n=n, rate=self.rate, theme=self.theme, told=self.touch)

    @each(lines, key=lambda line: line.id)
    def notes(self, line: Cell[Line]) -> Note | None:
        return Note(line=line) if line.get().cents >= 0 else None

    @each(items)
    def prices(self, n: Cell[int]) -> int:
        return n.get() + 1

    @child
    def header(self) -> Header:
        return Header(title=self.title)

    sum = fold(items, start=0, add=lambda n, x: n + x, remove=lambda n, x: n - x)

    @computed
    def sub(self) -> int:
        return sum(self.items.get().values())

    @computed
    def total(self) -> int:
        return self.sub.get() * self.rate.get()

    @computed
    def costs(self) -> int:
        return sum(row.cost.get() for row in self.rows.get().values())

    @computed(scope="user")
    def styled(self) -> str:
        return f"{self.theme.get()} {self.title.get()}"

    @materializer(envelope=(board,))
    def posted(self) -> int:
        self.board.key("total").set(self.total.get())
        return self.total.get()

    @effect
    def show(self) -> None:
        self.total.get(), self.costs.get(), self.prices.get(), self.sum.get()

    @effect
    def greet(self) -> None:
        self.styled.get()

    @effect
    def read(self) -> None:
        for note in self.notes.get().values():
            note.text.get()
        self.header.get().length.get()
        for row in self.rows.get().values():
            row.fixed.get()

    @handler
    def put(self, key: str, n: int) -> None:
        self.items.key(key).set(n)

    @handler
    def drop(self, key: str) -> None:
        self.items.key(key).delete()

    @handler
    def note(self, id: str, cents: int) -> None:
        rest = tuple(line for line in self.lines.get() if line.id != id)
        self.lines.set((*rest, Line(id=id, cents=cents)))

    @handler
    def name(self, title: str) -> None:
        self.title.set(title)

    @handler
    def touch(self) -> None:
        self.other.increment(1)

    @handler
    def check(self) -> int:
        self.other.set(self.total.get())
        return self.total.get()


class Process:
    """One process that has the directory, and the runs of author's nodes in it."""

    def __init__(self, rt: Runtime) -> None:
        self.rt = rt
        self.space = rt.space(SPACE, user="ann")
        self.errors: list[Failure] = []
        self.runs: Counter[str] = Counter()
        rt.scheduler.set_trace(self)
        rt.on_failure(self.errors.append)

    def emit(self, event: object) -> None:
        if isinstance(event, (Ran, RunFailed)):
            name = event.node.partition(" of ")[0].removeprefix(f"{SPACE}/")
            is_ours = WHILE_OPEN in event.node or name.startswith(("pull ", "sink ", "demand ", "watch "))
            self.runs[name] += not is_ours

    def taken(self) -> set[str]:
        """Which of an author's nodes ran since the last time."""
        ran = {name for name, count in (+self.runs).items() if count}
        self.runs = Counter()
        return ran

    async def open(self, name: str = "a", cls: type[Piece] = Shop) -> Shop:
        made = await self.space.open(cls, name)
        await self.settled()
        return made  # type: ignore[return-value]

    async def settled(self) -> None:
        for _ in range(3):
            await self.rt.settled()
            await self.rt.durable()

    @property
    def counts(self) -> Counter[str]:
        return self.rt.resume_counts


@asynccontextmanager
async def process(
    folder: Path | Backend,
    *,
    observe: bool = True,
    identity: str | None = None,
    policy: Policy | None = None,
) -> AsyncIterator[Process]:
    async with Runtime(folder, observe=observe, identity=identity, policy=policy) as rt:
        yield Process(rt)


@asynccontextmanager
async def wired(
    folder: Path, change: Change | None = None, *, identity: str = "", policy: Policy | None = None
) -> AsyncIterator[tuple[Process, Wire]]:
    """The process that has a directory for itself, with a wire between its runtime and its engines."""
    async with LocalDirectory(folder) as data:
        wire = Wire(data, change)
        async with process(wire, identity=identity, policy=policy) as made:
            yield made, wire


@asynccontextmanager
async def crashing(folder: Path, *, identity: str = "") -> AsyncIterator[Process]:
    """A process that says of no whole piece that it was clean, as one that crashes: each node is asked for then."""
    async with wired(folder, without_clean_pieces, identity=identity) as (made, _):
        yield made


async def filled(shop: Shop) -> None:
    for n in range(3):
        await shop.put.send(f"k{n}", n + 1)
        await shop.note.send(f"l{n}", 10 * n)


async def observed(folder: Path, piece: str = "") -> list[Observed]:
    """What is stored of nodes."""
    async with LocalDirectory(folder) as data, Runtime(data) as rt:
        await rt.cell(SPACE, "anything", int, default=0).pull()
        found: list[Observed] = []
        after = None
        while True:
            channel = rt.channel(SPACE)
            assert channel is not None
            page = await channel.driver.look(QueryObservations(0, piece, None, "", None, after, 1_000))
            assert isinstance(page, Observations)
            found += page.observed
            after = page.next
            if after is None:
                return found


__all__ = [
    "SPACE",
    "Header",
    "Line",
    "Note",
    "Process",
    "Row",
    "Shop",
    "crashing",
    "filled",
    "observed",
    "process",
    "wired",
]
