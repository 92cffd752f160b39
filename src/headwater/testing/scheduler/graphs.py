"""Random graphs of computations and effects, and their expected values: the same rules, computed anew from the cells.

A `Rule` is the behaviour of a node, written once against a `Read` port: the scheduler's node plays it on handles,
`Expected` on plain values. Tests compare the two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from headwater.clock import Random
from headwater.data.value import ABSENT
from headwater.errors import UpstreamFailedError
from headwater.replica import NOT_HERE
from headwater.testing.scheduler.kit import Handle, World

Read = Callable[[str, str], Any]
"""(name, part) -> the value there. The part is "" for all of it, "?" for its keys, or one key."""

KEYS = ("a", "b")


class Broken(Exception):
    """Raised by a rule on purpose."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The behaviour of one node: a function of its reads."""

    kind: str
    reads: tuple[tuple[str, str], ...]
    number: int = 0

    def play(self, read: Read) -> Any:
        match self.kind:
            case "sum":
                return sum(_number(read(*each)) for each in self.reads) % 7
            case "parity":
                return sum(_number(read(*each)) for each in self.reads) % 2
            case "constant":
                for each in self.reads:
                    read(*each)
                return self.number
            case "switch":
                chosen = self.reads[1 + _number(read(*self.reads[0])) % max(1, len(self.reads) - 1) :][:1]
                return sum(_number(read(*each)) for each in chosen) + self.number
            case "object":
                values = [_number(read(*each)) for each in self.reads]
                return {key: value for key, value in zip(KEYS, values, strict=False) if value % 3}
            case "fails":
                value = sum(_number(read(*each)) for each in self.reads)
                if value % 4 == 1:
                    raise Broken(f"{value}")
                return value % 5
            case "catches":
                return [_caught(read, *each) for each in self.reads]
            case _:
                raise AssertionError(self.kind)


def _number(value: Any) -> int:
    """Anything as a number, so that rules fit everywhere."""
    if isinstance(value, bool | int):
        return int(value)
    if isinstance(value, dict):
        return sum(_number(each) for each in value.values()) + len(value)
    if isinstance(value, tuple | list):
        return sum(_number(each) for each in value) + len(value)
    return 0 if value is ABSENT else len(str(value))


def _caught(read: Read, name: str, part: str) -> int:
    try:
        return _number(read(name, part))
    except (Broken, UpstreamFailedError):
        return -1


KINDS = ("sum", "sum", "parity", "constant", "switch", "switch", "object")
FAILING = (*KINDS, "fails", "catches")


@dataclass(slots=True)
class Plan:
    """A random graph: cells, computations that read them and each other, and effects."""

    cells: dict[str, Any] = field(default_factory=dict)
    nodes: dict[str, Rule] = field(default_factory=dict)
    effects: dict[str, Rule] = field(default_factory=dict)


def random_cell(rng: Random) -> Any:
    if rng.random() < 0.5:
        return rng.randrange(4)
    return {key: rng.randrange(3) for key in KEYS if rng.random() < 0.7}


def random_rule(rng: Random, names: list[str], kinds: tuple[str, ...]) -> Rule:
    chosen = rng.sample(names, min(len(names), rng.randint(1, 3)))
    reads = tuple((name, rng.choice(("", "", "?", *KEYS))) for name in chosen)
    return Rule(rng.choice(kinds), reads, rng.randrange(3))


def random_plan(
    rng: Random, *, size: int = 8, effects: int = 3, cycles: bool = False, kinds: tuple[str, ...] = KINDS
) -> Plan:
    plan = Plan({f"cell{index}": random_cell(rng) for index in range(rng.randint(1, 3))})
    names = [f"n{index}" for index in range(rng.randint(1, size))]
    for index, name in enumerate(names):
        known = [*plan.cells, *(names if cycles else names[:index])]
        plan.nodes[name] = random_rule(rng, known, kinds)
    for index in range(effects):
        plan.effects[f"eye{index}"] = random_rule(rng, [*plan.cells, *names], kinds)
    return plan


class Built:
    """A plan as nodes of a world, with the reads and results of every run."""

    def __init__(self, world: World, plan: Plan) -> None:
        self.world = world
        self.plan = plan
        self.handles = {name: world.cell(id=name) for name in [*plan.cells, *plan.nodes]}
        self.parts: dict[tuple[str, str], Handle] = {}
        self.made: dict[str, Any] = {}  # by effect: the result of its last run; an exception if it failed
        for name, value in plan.cells.items():
            self.handles[name].set(value)

    def read(self, name: str, part: str) -> Any:
        handle = self.parts.get((name, part))
        if handle is None:
            handle = self.handles[name] if part in ("", "?") else self.handles[name].at(part)
            self.parts[name, part] = handle
        return handle.shape() if part == "?" else handle.get()

    def register(self, name: str, **options: Any) -> None:
        plan, world = self.plan, self.world
        if name in plan.nodes:
            output = self.handles[name].document
            world.computed(lambda: plan.nodes[name].play(self.read), id=name, output=output, **options)
        else:
            world.effect(lambda: self._observe(name), id=name, **options)

    def _observe(self, name: str) -> None:
        try:
            self.made[name] = self.plan.effects[name].play(self.read)
        except (Broken, UpstreamFailedError) as error:
            self.made[name] = type(error)
            raise

    def change(self, rng: Random) -> None:
        """Change one cell, or a part of it, if it is here."""
        name = rng.choice(list(self.plan.cells))
        value, handle = random_cell(rng), self.handles[name]
        if handle.document.value is NOT_HERE:
            return
        if isinstance(value, dict) and isinstance(handle.peek(), dict) and rng.random() < 0.6:
            handle.at(rng.choice(KEYS)).set(rng.randrange(3))
        else:
            handle.set(value)
        self.plan.cells[name] = handle.peek()


class Expected:
    """The expected value of every node of a plan without cycles, computed from the cells alone."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._known: dict[str, Any] = {}

    def of(self, name: str) -> Any:
        """Return its value, or the type of its exception."""
        if name not in self._known:
            rule = self.plan.nodes.get(name) or self.plan.effects[name]
            try:
                self._known[name] = rule.play(self.read)
            except (Broken, UpstreamFailedError) as error:
                self._known[name] = type(error)
        return self._known[name]

    def read(self, name: str, part: str) -> Any:
        value = self.plan.cells[name] if name in self.plan.cells else self.of(name)
        if isinstance(value, type):
            raise UpstreamFailedError(name)
        if part == "":
            return value
        if part == "?":
            if isinstance(value, dict):
                return tuple(sorted(value))
            return len(value) if isinstance(value, tuple | list) else value
        return value.get(part, ABSENT) if isinstance(value, dict) else ABSENT
