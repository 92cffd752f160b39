"""One of several runtimes on a space: a real core on a real session, whose messages and time are in the test's hands.

Owns how a plan becomes nodes and how its rules read. Everything that they read goes past the eye that watches. It
decides and checks nothing, but for one thing: what registering a node costs (I2).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from headwater import Cell, Input
from headwater.clock import Timer, VirtualClock
from headwater.data.address import DocKey, Link
from headwater.data.value import ABSENT, MaybeValue
from headwater.errors import AbsentError, AuthoringError, InvalidValueError
from headwater.protocol.verdict import Conflict
from headwater.replica import NOT_HERE, Document, NotLoaded, Session
from headwater.runtime import Core
from headwater.scheduler import Failure, Node, NodeKind, NodeSpec, Scheduler, SchedulerLimits
from tests.simulation.replica_eye import Eye
from tests.simulation.replica_rules import CIRCLE, KEYS, UNFIT, Flavour, Look, Plan, number
from tests.unit.replica.kit import Client

SPACE = "shop"
MOST_SLICES = 2_000
PLAIN_WRITE = "a write outside any run"  # the node that failures of such writes name


class ByClock:
    """A loop that calls nothing but the timer: ticks are the test's."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._timer: Timer | None = None
        self.kernel: Core | None = None

    def request_tick(self) -> None:
        """Whoever settles finds the work."""

    def set_timer(self, at_us: int | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at_us is not None and self.kernel is not None:
            delay_us = max(0, at_us - self._clock.monotonic_us())
            self._timer = self._clock.call_at(self._clock.now_us() + delay_us, self._due)

    @property
    def due_us(self) -> int | None:
        return None if self._timer is None else self._timer.due_us

    def _due(self) -> None:
        self._timer = None
        if self.kernel is not None:
            self.kernel.wake()


class Wire:
    """The channel of a space over a session, which counts what is asked for."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.watched: dict[str, None] = {}
        self.asked = 0

    def watch(self, docs: Iterable[DocKey], *, is_ahead: bool = False) -> None:
        keys = list(docs)
        self.asked += 1
        self.watched.update(dict.fromkeys(key.id for key in keys))
        self._session.watch(keys)

    def unwatch(self, doc: DocKey) -> bool:
        return self._session.unwatch(doc)

    def flush(self) -> None:
        self._session.flush()

    def is_ready(self, conflict: Conflict) -> bool:
        return self._session.ready(conflict)

    def is_durable(self) -> bool:
        return self._session.replica.is_durable()


class Runtime:
    """A core on a client's replica, and the part of the plan that it has."""

    def __init__(self, rng: random.Random, client: Client, plan: Plan, flavour: Flavour, home: int, scope: str) -> None:
        self.rng = rng
        self.client = client
        self.replica = client.replica
        self.plan = plan
        self.flavour = flavour
        self.home = home
        self.scope = scope
        self.loop = ByClock(client.world.clock)
        most = rng.choice((2, 4)) if flavour.cycles else 10
        limits = SchedulerLimits(slice_runs=rng.choice(flavour.slices), node_runs=most)
        self.loop.kernel = self.kernel = Core(client.world.clock, self.loop, limits)
        self.wire = Wire(client.session)
        self.eye = Eye(self)
        self.space = self.kernel.add_space(SPACE, self.replica, self.wire)
        self.eye.join()
        self.failures: list[Failure] = []
        self.kernel.on_error(lambda failure: None if failure.node == PLAIN_WRITE else self.failures.append(failure))
        self.wanted: dict[str, None] = {}  # documents that somebody had a reason to fetch
        self._handles: dict[tuple[str, str, bool], Input[Any]] = {}

    # ---- what there is -------------------------------------------------------------------------------

    def document(self, name: str) -> Document:
        return self.space.document(name, self.scope)

    def shown(self, name: str) -> MaybeValue | NotLoaded:
        return self.document(name).value

    def shown_before(self, name: str) -> MaybeValue | NotLoaded:
        """The same, or what was shown before a gap and may still be."""
        document = self.document(name)
        return document.stale if document.value is NOT_HERE else document.value

    def node(self, name: str) -> Node | None:
        return self.kernel.scheduler.find(name)

    # ---- who reads -----------------------------------------------------------------------------------

    def register(self, name: str, parent: Node | None = None) -> Node:
        """I2: registering reads nothing, fetches nothing and runs nothing."""
        rule = self.plan.rule(name)
        maker = self.plan.effects.get(name.partition(" ")[0])
        is_effect = maker is not None
        outputs = () if is_effect else (self.document(name), *([self.document(rule.side)] if rule.side else ()))
        before = (self.wire.asked, self.eye.attempts, self.eye.query_observations)
        node = self.kernel.register(
            NodeSpec(
                id=name,
                kind=NodeKind.EFFECT if is_effect else NodeKind.COMPUTATION,
                fn=partial(self._play, name),
                home=self.replica,
                outputs=outputs,
                returns=not is_effect,
                parent=parent,
            )
        )
        if before != (self.wire.asked, self.eye.attempts, self.eye.query_observations):
            self.eye.wrong("I2", f"registering {name} read, fetched or ran something")
        self.eye.entered(node)
        return node

    def _play(self, name: str) -> int | None:
        rule = self.plan.rule(name)
        if rule.own is not None:
            self._read(rule.own)
        value = rule.value(self._read)
        if rule.makes:
            value += self._make(name, rule.makes, reads=rule.reads_made)
        if name.startswith("eye"):
            return None
        if rule.side:
            self._cell(rule.side, int).set(value)
        return value

    def _make(self, name: str, cell: str, *, reads: bool) -> int:
        """One child for each key that is there; those whose key has gone are removed."""
        parent = self.node(name)
        assert parent is not None
        keys = [key for key in KEYS if self._read(Look(cell, key, "exists"))]
        made = {each.id: each for each in (*(parent.children or ()), *(parent.kept or {}).values())}
        for key in KEYS:
            child = f"{name} {key}"
            if key not in keys and child in made and not made[child].removed:
                self.kernel.remove(made[child])
            elif key in keys and (self.node(child) is None or child in (parent.kept or ())):
                self.register(child, parent)
        return sum(self._read(Look(f"{name} {key}", "", "get")) for key in keys) if reads else 0

    def _read(self, look: Look) -> int:
        self.eye.looks(look)
        try:
            handle = self._handle(look)
            if look.how == "exists":
                told: object = handle.exists()
            elif look.how == "keys":
                told = sorted(handle.view()) if handle.exists() else []
            else:
                value = handle.get(0)
                told = sum(value.values()) if isinstance(value, Mapping) else value
        except (InvalidValueError, TypeError):  # What is stored is of another type than the handle says.
            told = UNFIT
        except AuthoringError as error:
            if CIRCLE not in str(error):
                raise
            told = CIRCLE
        self.eye.told(look, told)
        return number(told)

    def _handle(self, look: Look) -> Input[Any]:
        """Some handles are kept and some are made for the moment, as programs do."""
        is_map = bool(look.part) or look.how == "keys" or look.name in self.plan.cells
        known = self._handles.get((look.name, look.part, is_map))
        if known is not None and self.rng.random() < 0.7:
            return known
        handle: Input[Any] = self._cell(look.name, Mapping[str, int] if is_map else int)
        if look.part:
            handle = handle.key(look.part)
        self._handles[look.name, look.part, is_map] = handle
        return handle

    def _cell(self, name: str, of: Any) -> Cell[Any]:
        return self.kernel.cell(SPACE, name, of, scope=self.scope)

    # ---- what happens here ---------------------------------------------------------------------------

    def change(self) -> None:
        """Somebody writes here, whether or not what is written has arrived."""
        rng, choice = self.rng, self.rng.random()
        name = rng.choice(self.plan.cells if choice > 0.3 else self.plan.links)
        document = self.document(name)
        self.wanted[name] = None
        with suppress(AuthoringError, AbsentError, InvalidValueError):  # Somebody may have put a number there.
            if choice < 0.25:
                target = rng.choice(self.plan.targets(name))
                path = (rng.choice(KEYS),) if target in self.plan.cells and rng.random() < 0.7 else ()
                self._cell(name, Link).set(Link(SPACE, self.scope, target, path))
            elif choice < 0.3:
                self._cell(name, Link).delete()
            else:
                self._change_cell(document, choice)

    def _change_cell(self, document: Document, choice: float) -> None:
        rng = self.rng
        cell = self.kernel.cell(SPACE, document.key.id, Mapping[str, int], scope=self.scope, default={})
        entry = cell.key(rng.choice(KEYS))
        if choice < 0.5:
            entry.set(rng.randrange(3))
        elif choice < 0.6:
            entry.delete()
        elif choice < 0.75:
            cell.set({key: rng.randrange(3) for key in KEYS if rng.random() < 0.6})
        elif choice < 0.95:
            cell.update(lambda now: {**now, rng.choice(KEYS): sum(now.values()) % 3})  # It can lose a race.
        elif document.value is not NOT_HERE and not document.is_unconfirmed():
            self.replica.write_whole(document, rng.choice((ABSENT, 5, {})), ())

    def settle(self) -> None:
        """Do everything that can be done now."""
        before = Counter(self.eye.runs)
        slices = most = 0
        bound = 4 * self.kernel.scheduler.limits.node_runs
        while self.kernel.tick() and slices < MOST_SLICES and most <= bound:
            slices += 1
            if slices % 100 == 0:
                most = max((self.eye.runs - before).values(), default=0)
        most = max((self.eye.runs - before).values(), default=0)
        if slices == MOST_SLICES or most > bound:
            self.eye.wrong("I6", f"{slices} slices, {most} runs of one node, and time stood still")

    @property
    def scheduler(self) -> Scheduler:
        return self.kernel.scheduler

    def nodes(self) -> list[Node]:
        return self.scheduler.nodes()

    def stop(self) -> None:
        """It is gone: no timer wakes it, and no other runtime of this thread looks out for its runs."""
        self.loop.set_timer(None)
        self.loop.kernel = None
        self.kernel.close()
