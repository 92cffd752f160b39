"""A scheduler in the test's hands: one replica, a virtual clock, a driver that does nothing by itself, and handles.

Tests make cells and nodes, let time pass and look at runs. `World.tick` is one slice, `settle` everything that can be
done now, `advance` time with everything that falls due on the way. A `lazy` world fetches nothing until `arrive` is
called. When handles change, only this file does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from headwater.clock import Timer, VirtualClock
from headwater.data.address import SPACE_SCOPE, Depth, DocKey
from headwater.data.patch import Patch, add, increment, remove, replace
from headwater.data.path import Path
from headwater.data.reader_trie import Spot
from headwater.data.trace import Ran, Recorder
from headwater.data.value import ABSENT, MaybeValue, freeze, lookup
from headwater.protocol.messages import state_of
from headwater.protocol.verdict import Conflict
from headwater.replica import NOT_HERE, Detached, Document, Fate, Layer, Replica, SentWave
from headwater.scheduler import Failure, Node, NodeKind, NodeSpec, Scheduler, SchedulerLimits

MOST_TICKS: Final = 400
"""Slices until a world that is not settled is said to hang."""


class SettlesNever(AssertionError):
    """There was still something to do after more slices than any test needs."""


class Wire(Protocol):
    """The session of a world's replica, as the world needs it."""

    def watch(self, docs: Iterable[DocKey]) -> None: ...

    def flush(self) -> None: ...


class Handle:
    """A place in a document. Reads are noted by the open run; writes inside a run belong to it."""

    __slots__ = ("_deep", "_shape", "document", "path", "world")

    def __init__(self, world: World, document: Document, path: Path = ()) -> None:
        self.world = world
        self.document = document
        self.path = path
        self._deep = Spot(document, path, Depth.DEEP)
        self._shape = Spot(document, path, Depth.SHAPE)

    def __repr__(self) -> str:
        return f"<handle {self.document.key.id} {self.path}>"

    def at(self, *steps: str | int) -> Handle:
        return Handle(self.world, self.document, (*self.path, *steps))

    def get(self) -> Any:
        """Return the value, or ABSENT."""
        run = self.world.scheduler.current.run
        if run is not None:
            if self._deep.stamp != run.number:
                run.prepare(self.document)
            self._deep = run.record_read(self._deep)
        return self._seen()

    def shape(self) -> Any:
        """Return its keys, its length, or, if it is a leaf, its value."""
        run = self.world.scheduler.current.run
        if run is not None:
            if self._shape.stamp != run.number:
                run.prepare(self.document)
            self._shape = run.record_read(self._shape)
        value = self._seen()
        if type(value) is dict:
            return tuple(sorted(value))
        return len(value) if type(value) is tuple else value

    def peek(self) -> Any:
        """Return the shown value, without a subscription."""
        return ABSENT if self.document.value is NOT_HERE else lookup(self.document.value, self.path)

    def _seen(self) -> MaybeValue:
        run = self.world.scheduler.current.run
        if run is not None and run.overlay is not None and self.document in run.overlay:
            assert run.transaction is not None
            return run.transaction.peek(self.document.key, self.path)
        value = self.document.value
        if value is NOT_HERE:
            if run is None:
                return ABSENT
            run.tracker.absent(run, self.document)
        return lookup(ABSENT if value is NOT_HERE else value, self.path)

    def set(self, value: object) -> None:
        """Put something there; ABSENT takes it away."""
        if value is ABSENT:
            self._write(remove(self.path))
        else:
            is_element = bool(self.path) and type(self.path[-1]) is int
            self._write(replace(self.path, value) if is_element else add(self.path, value))

    def increment(self, by: int = 1) -> None:
        self._write(increment(self.path, by))

    def _write(self, patch: Patch) -> None:
        run = self.world.scheduler.current.run
        if run is not None:
            run.tracker.write(run, self.document, patch)
            return
        replica = self.document.home
        transaction = replica.begin()
        transaction.write(self.document.key, patch)
        replica.commit(transaction)


class StandInDriver:
    """Does the work of a loop, only when it is told."""

    def __init__(self, clock: VirtualClock, wire: Wire, *, lazy: bool) -> None:
        self.clock = clock
        self.wire = wire
        self.lazy = lazy
        self.ticks = 0  # times a tick was asked for
        self.asked: dict[Document, None] = {}  # waited for, in a lazy world
        self.load_count = 0
        self.releases = 0
        self.failures: list[Failure] = []
        self.timers_set = 0
        self.timer: Timer | None = None
        self.timer_at: int | None = None
        self.on_timer: Callable[[], object] = int
        self.is_winner_here: Callable[[Conflict], bool] = lambda _: True

    def request_tick(self) -> None:
        self.ticks += 1

    def set_timer(self, at_us: int | None) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.timer, self.timer_at = None, at_us
        self.timers_set += 1
        if at_us is not None:
            offset = self.clock.now_us() - self.clock.monotonic_us()
            self.timer = self.clock.call_at(at_us + offset, self._due)

    def _due(self) -> None:
        self.timer = self.timer_at = None
        self.on_timer()

    def load(self, document: Document) -> None:
        self.load_count += 1
        if self.lazy:
            if document.value is NOT_HERE:
                self.asked[document] = None
        else:
            self.wire.watch([document.key])

    def release(self, document: Document) -> None:
        self.releases += 1

    def is_ready(self, replica: Replica, conflict: Conflict) -> bool:
        return self.is_winner_here(conflict)

    def on_failure(self, failure: Failure) -> None:
        self.failures.append(failure)


class World:
    """One runtime: a scheduler on a replica, which has no engine unless a wire is given."""

    def __init__(
        self,
        *,
        limits: SchedulerLimits | None = None,
        clock: VirtualClock | None = None,
        replica: Replica | None = None,
        wire: Wire | None = None,
        lazy: bool = False,
        traced: bool = True,
    ) -> None:
        self.clock = clock or VirtualClock(seed=1)
        self.replica = replica or Replica()
        self.wire: Wire = wire or Detached(self.replica)
        self.driver = StandInDriver(self.clock, self.wire, lazy=lazy)
        self.scheduler = Scheduler(self.clock, self.driver, limits)
        self.scheduler.attach(self.replica)
        self.driver.on_timer = self._woken
        self.trace = Recorder(1_000_000)
        if traced:
            self.scheduler.set_trace(self.trace)
        self._made = 0

    # ---- making ------------------------------------------------------------------------------------

    def name(self, kind: str) -> str:
        self._made += 1
        return f"{kind}{self._made}"

    def document(self, id: str = "", *, here: bool = True) -> Document:
        key = DocKey(SPACE_SCOPE, id or self.name("d"))
        if here:
            self.wire.watch([key])
        return self.replica.documents.of(key)

    def cell(self, value: object = ABSENT, id: str = "") -> Handle:
        handle = Handle(self, self.document(id))
        if value is not ABSENT:
            handle.set(value)
        return handle

    def absent_cell(self, id: str = "") -> Handle:
        """Make a document that is not loaded: its readers wait for it."""
        return Handle(self, self.document(id, here=False))

    def computed(self, fn: Callable[[], object], *, id: str = "", **options: Any) -> Handle:
        """A computation; the handle on its output, whose id is the node's."""
        id = id or self.name("c")
        output = options.pop("output", None) or self.document(id, here=not self.driver.lazy)
        writes = tuple(handle.document for handle in options.pop("writes", ()))
        spec = NodeSpec(
            id=id, kind=NodeKind.COMPUTATION, fn=fn, home=self.replica, outputs=(output, *writes), **options
        )
        self.scheduler.register(spec)
        return Handle(self, output)

    def effect(self, fn: Callable[[], object], *, id: str = "", **options: Any) -> Node:
        spec = NodeSpec(
            id=id or self.name("e"), kind=NodeKind.EFFECT, fn=fn, home=self.replica, returns=False, **options
        )
        return self.scheduler.register(spec)

    def materializer(
        self, fn: Callable[[], object], envelope: Iterable[Handle], *, id: str = "", **options: Any
    ) -> Node:
        spec = NodeSpec(
            id=id or self.name("m"),
            kind=NodeKind.MATERIALIZER,
            fn=fn,
            home=self.replica,
            returns=False,
            envelope=tuple((handle.document, handle.path) for handle in envelope),
            **options,
        )
        return self.scheduler.register(spec)

    def look(self, handle: Handle, *, id: str = "") -> list[Any]:
        """Demand a place; the returned list grows with the value that each run of the effect reads."""
        seen: list[Any] = []

        def watch() -> None:
            seen.append(handle.get())

        self.effect(watch, id=id)
        return seen

    def node(self, id: str | Handle) -> Node:
        node = self.scheduler.find(id if isinstance(id, str) else id.document.key.id)
        assert node is not None, f"no node {id}"
        return node

    def nodes(self) -> list[Node]:
        return self.scheduler.nodes()

    def layers_of(self, node: Node) -> list[Layer]:
        """Return the layers of the runs of a node that were not sent."""
        return [layer for layer in self.replica.layers() if layer.source is node and layer.fate is Fate.QUEUED]

    def send_results(self) -> SentWave | None:
        """Compose a wave of the results that are due."""
        return self.replica.compose_wave()

    def supersede(self, wave: SentWave, *, newest: int = 0) -> None:
        """Have all results of a wave sent again, once the state at `newest` is here."""
        self.replica.wave_judged(wave, 0, range(len(wave.commit.results)), newest, {})

    # ---- doing -------------------------------------------------------------------------------------

    def arrive(self, handle: Handle, value: object = ABSENT) -> None:
        """A document that was waited for is here."""
        self.driver.asked.pop(handle.document, None)
        frozen = ABSENT if value is ABSENT else freeze(value)
        self.replica.arrive([state_of(handle.document.key, 0, frozen)], self.replica.confirmed.seq)

    def tick(self) -> bool:
        return self.scheduler.tick()

    def settle(self, most: int = MOST_TICKS) -> None:
        """Do everything that can be done now, and confirm the commits."""
        for _ in range(most):
            if not self.scheduler.tick():
                self.wire.flush()
                return
        raise SettlesNever(f"still something to do after {most} slices: the last runs were {self.ran()[-30:]}")

    def _woken(self) -> None:
        self.scheduler.wake()
        self.settle()

    def advance(self, ms: float) -> None:
        self.clock.advance(round(ms * 1_000))
        self.settle()

    # ---- looking -----------------------------------------------------------------------------------

    def ran(self) -> list[str]:
        """Who completed a run since `forget`, in order."""
        return self.trace.runs()

    def forget(self) -> None:
        self.trace.events.clear()

    def commits(self) -> list[Ran]:
        return self.trace.of(Ran)

    def ran_after(self, step: Callable[[], object]) -> list[str]:
        """Who ran because of a step, once everything has settled."""
        self.settle()
        self.forget()
        step()
        self.settle()
        return self.ran()
