"""P10: turning diagnostics on changes no decision. One history gives the same runs and commits with and without."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from headwater.clock import VirtualClock
from headwater.data.trace import Exhausted, RunFailed, Suspended, TraceEvent
from headwater.replica.feed import Notification
from headwater.scheduler.introspection.snapshot import take
from headwater.scheduler.limits import SchedulerLimits
from headwater.scheduler.node import Node
from headwater.testing.scheduler.kit import Handle, World
from tests.counts import scaled
from tests.unit.scheduler.introspection_kit import Inspected

CELLS, COMPUTATIONS = 4, 8
LIMITS = SchedulerLimits(node_runs=4, pass_iterations=4, slice_runs=7, trace_entries=1_000_000)


def number(value: object) -> int:
    return value if type(value) is int else 0


class History:
    """One random graph with cycles, failures, gates, side writes, materializers and children, and what happens to it.

    Everything is drawn from the seed before anything runs, or from values: nothing that a second run could move.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.world = World(limits=LIMITS, clock=VirtualClock(seed=seed), traced=False)
        self.calls: list[tuple[str, tuple[object, ...]]] = []  # real attempts that were completed, and what they saw
        self.told: list[object] = []
        self.world.replica.feed.subscribe(self._hear)

    def _hear(self, notification: Notification) -> None:
        source = notification.source.id if isinstance(notification.source, Node) else None
        changes = [
            (str(change.doc), change.before, change.after, change.known_before) for change in notification.changes
        ]
        self.told.append((notification.kind, source, notification.layer, notification.seq, changes))

    def _is_real(self) -> bool:
        run = self.world.scheduler.current.run
        return run is not None and run.tracker is self.world.scheduler.runner

    # ---- the graph ---------------------------------------------------------------------------------

    def build(self) -> None:
        world, random = self.world, self.random
        self.cells = [world.cell(random.randrange(5), id=f"cell{place}") for place in range(CELLS)]
        self.side = world.cell({"n": 0, "m": 0}, id="side")
        self.big = world.cell({"a": {}}, id="big")
        outputs = [Handle(world, world.document(f"c{place}")) for place in range(COMPUTATIONS)]
        self.places = [*self.cells, *outputs]
        for place in random.sample(range(COMPUTATIONS), COMPUTATIONS):
            is_ring = random.random() < 0.15
            readable = self.places if is_ring else self.places[: CELLS + place]
            writes = [self.side] if random.random() < 0.2 else []
            options: dict[str, Any] = {"debounce_ms": 5} if random.random() < 0.1 else {}
            world.computed(
                self._function(f"c{place}", readable, bool(writes)),
                id=f"c{place}",
                output=outputs[place].document,
                writes=writes,
                transient=(ZeroDivisionError,) if random.random() < 0.3 else (),
                **options,
            )
        for place in range(3):
            self._effect(f"e{place}")
        key = f"k{random.randrange(3)}"
        source = random.choice(self.places)
        world.materializer(lambda: self.big.at("a", key).set(number(source.get())), [self.big.at("a")], id="m")
        world.computed(self._coordinator(random.choice(self.cells)), id="parent")
        world.look(Handle(world, world.node("parent").outputs[0]), id="parent-effect")

    def _function(self, id: str, readable: list[Handle], writes: bool) -> Callable[[], int]:
        chosen = self.random.sample(readable, min(len(readable), 3))
        is_dynamic, may_fail = self.random.random() < 0.4, self.random.random() < 0.2
        is_counting, modulus = self.random.random() < 0.5, self.random.choice((2, 3, 50))

        def fn() -> int:
            seen = [number(chosen[0].get())]
            rest = chosen[1:] if not is_dynamic else [chosen[seen[0] % len(chosen)]]
            seen += [number(handle.get()) for handle in rest]
            if writes:
                self.side.at("m").set(sum(seen))
                if is_counting:
                    self.side.at("n").increment()  # Not idempotent: the validator must find it and move nothing.
            if self._is_real():
                self.calls.append((id, tuple(seen)))
            if may_fail and sum(seen) % 4 == 3:
                raise ZeroDivisionError(f"{id} cannot take {seen}")
            return (sum(seen) + 1) % modulus

        return fn

    def _effect(self, id: str) -> None:
        chosen = self.random.sample([*self.places, self.side, self.big.at("a")], 2)
        options: dict[str, Any] = {"throttle_ms": 3} if self.random.random() < 0.2 else {}

        def fn() -> None:
            self.calls.append((id, tuple(handle.get() for handle in chosen)))

        self.world.effect(fn, id=id, **options)

    def _coordinator(self, source: Handle) -> Callable[[], int]:
        def fn() -> int:
            scheduler, wanted = self.world.scheduler, number(source.get()) % 3
            for place in range(3):
                child = scheduler.registry.get(f"child{place}")
                if place < wanted and child is None:
                    parent, cell = self.world.node("parent"), self.cells[place]
                    self.world.computed(lambda cell=cell: number(cell.get()) * 2, id=f"child{place}", parent=parent)  # type: ignore[misc]
                elif place >= wanted and child is not None:
                    scheduler.remove(child)
            return wanted

        return fn

    # ---- what happens ------------------------------------------------------------------------------

    def play(self) -> None:
        self.build()
        for _ in range(12):
            self._take_step()
        for _ in range(3):
            self.world.advance(700)

    def _take_step(self) -> None:
        world, random = self.world, self.random
        match random.randrange(7):
            case 0 | 1 | 2:
                for cell in random.sample(self.cells, random.randint(1, 3)):
                    cell.set(random.randrange(6))
            case 3:
                world.tick()
            case 4:
                world.advance(random.choice((1, 4, 300)))
            case 5:
                effect = world.scheduler.registry.get(f"e{random.randrange(3)}")
                if effect is None:
                    self._effect(f"e{random.randrange(3, 1_000_000)}")
                else:
                    world.scheduler.remove(effect)
            case _:
                world.settle()

    def outcome(self) -> dict[str, object]:
        """Everything that a decision could show in."""
        world = self.world
        driver = world.driver
        return {
            "calls": self.calls,
            "told": self.told,
            "failures": [(failure.node, str(failure.error), failure.causes) for failure in driver.failures],
            "driver": (driver.ticks, driver.load_count, driver.releases, driver.timers_set, driver.timer_at),
            "waves": getattr(world.wire, "frames", None),
            "next commit": world.replica.next_local_seq,
            "nodes": take(world.scheduler.registry),
            "marks": world.scheduler.marks.count,
            "passes": world.scheduler.pass_.number,
            "deltas": (world.scheduler.graph.deltas, world.scheduler.graph.liveness.steps),
            "draws": world.clock.randomness("gates").random(),
        }


def with_everything_on(seed: int) -> tuple[History, Inspected, list[str]]:
    history = History(seed)
    inspected = Inspected(history.world)
    look = inspected.look
    look.traces.switch(on=True)
    look.run_stats.switch(on=True)
    look.idempotency.switch(on=True)
    printed: list[str] = []
    look.breakpoints.add(lambda node: node.order % 2 == 0, lambda pause: printed.append(str(look.why(pause.node))))
    look.breakpoints.add(
        "e1", lambda pause: printed.append(look.dot() + str(look.stats()) + str(look.snapshot().as_json()))
    )
    return history, inspected, printed


@pytest.mark.random
def test_diagnostics_change_no_decision() -> None:
    kinds: set[type[TraceEvent]] = set()
    findings = reports = checked = 0
    for seed in range(scaled(1_000)):
        off = History(seed)
        off.play()
        traced = History(seed)
        traced.world.scheduler.set_trace(traced.world.trace)
        traced.play()
        on, inspected, _ = with_everything_on(seed)
        on.play()
        expected = off.outcome()
        for other in (traced.outcome(), on.outcome()):
            for part, value in expected.items():
                assert other[part] == value, f"seed {seed}: {part} differs"
        assert inspected.look.traces.events() == list(traced.world.trace), f"seed {seed}"
        assert inspected.errors == [], f"seed {seed}"
        kinds |= {type(event) for event in traced.world.trace}
        findings += len(inspected.look.idempotency.found)
        checked += inspected.look.idempotency.checked
        reports += len(inspected.reports)
    # The histories are worth something only if these happen in them.
    assert {RunFailed, Suspended, Exhausted} <= kinds
    assert findings
    assert checked
    assert reports


@pytest.mark.random
def test_switching_diagnostics_on_and_off_on_the_way_changes_no_decision() -> None:
    for seed in range(scaled(300)):
        off = History(seed)
        off.play()
        on, inspected, _ = with_everything_on(seed)
        look, switches = inspected.look, Random(seed)
        step = on._take_step

        def switched(step: Callable[[], None] = step, switches: Random = switches, look: Any = look) -> None:
            for part in (look.traces, look.run_stats, look.idempotency):
                part.switch(on=switches.random() < 0.5)
            step()

        on._take_step = switched  # type: ignore[method-assign]
        on.play()
        assert on.outcome() == off.outcome(), f"seed {seed}"
