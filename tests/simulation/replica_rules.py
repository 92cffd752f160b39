"""Random graphs for several runtimes: the cells, links, nodes and effects there are, what each reads, and where it is.

A rule is written once against a read port and answered twice: by handles inside a run, and naively, from plain values.
Owns the rules, their homes and the naive answer. It runs nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from headwater.data.address import Depth, Link
from headwater.data.path import Path
from headwater.data.value import ABSENT, MaybeValue, lookup, same
from headwater.replica import NOT_HERE, NotLoaded

KEYS: Final = ("p", "q", "r")
CIRCLE: Final = "round in circles"
UNFIT: Final = "of another type"

Shown = Callable[[str], "MaybeValue | NotLoaded"]
"""What a document shows, by its name."""


class Look(NamedTuple):
    """One read: where it begins, which part, and how (`get`, `exists` or `keys`)."""

    name: str
    part: str
    how: str


class Place(NamedTuple):
    """Something that a read depends on."""

    name: str
    path: Path
    depth: Depth

    def differs(self, before: MaybeValue, after: MaybeValue) -> bool:
        """Whether whoever looked here would be shown something else."""
        was, now = _there(before, self.path), _there(after, self.path)
        if self.depth is Depth.SHAPE:
            if isinstance(was, dict) and isinstance(now, dict):
                return list(was) != list(now)  # The order of keys counts.
            if isinstance(was, tuple) and isinstance(now, tuple):
                return len(was) != len(now)
        return not same(was, now)


def _there(value: MaybeValue, path: Path) -> MaybeValue:
    """What is at a path. Below a link it is whatever that leads to: another link is another value."""
    for step in path:
        if isinstance(value, Link):
            return value
        value = lookup(value, (step,))
    return value


def walk(look: Look, shown: Shown) -> tuple[dict[Place, None], object]:
    """Everything that a read depends on, and what is stored at its end: the naive way along all links."""
    depth = Depth.DEEP if look.how == "get" else Depth.SHAPE
    name = look.name
    path: Path = (look.part,) if look.part else ()
    places = {Place(name, path, depth): None}
    hops: list[tuple[str, Path]] = []
    while True:
        root = shown(name)
        if isinstance(root, NotLoaded):
            places[Place(name, path, depth)] = None
            return places, NOT_HERE
        at = next((n for n in range(len(path) + 1) if isinstance(lookup(root, path[:n]), Link)), None)
        if at is None:
            places[Place(name, path, depth)] = None
            return places, lookup(root, path)
        here = (name, path[:at])
        places[Place(*here, Depth.SHAPE)] = None
        if here in hops:
            return places, CIRCLE
        hops.append(here)
        link = lookup(root, path[:at])
        assert isinstance(link, Link)
        name, path = link.id, link.path + path[at:]


def said(look: Look, stored: object) -> object:
    """What a handle says of what is stored where it leads. Cells are Mappings of numbers, results are numbers."""
    if stored == CIRCLE:
        return CIRCLE
    if look.how == "exists":
        return stored is not ABSENT
    if look.how == "keys":
        return [] if stored is ABSENT else sorted(stored) if isinstance(stored, dict) else UNFIT
    is_map = look.name.startswith("cell") and not look.part
    if stored is ABSENT:
        return 0
    if isinstance(stored, dict):
        return sum(stored.values()) if is_map else UNFIT
    return UNFIT if is_map else stored


def number(told: object) -> int:
    """Anything as a number, so that rules fit everywhere."""
    return told if isinstance(told, int) else len(str(told))


@dataclass
class Rule:
    """What one node does with what it reads."""

    looks: list[Look]
    modulus: int
    is_switch: bool = False
    counts: bool = False  # one more than the most that it reads: on a cycle there is no end to that
    makes: str = ""  # a cell: it makes a node for each of its keys
    reads_made: bool = True  # and reads what these make; otherwise they are effects of their own
    side: str = ""  # a document that it writes, too
    own: Look | None = None  # what it reads of what it writes itself; it makes no use of that

    def value(self, read: Callable[[Look], int]) -> int:
        if self.counts:
            return max(read(each) for each in self.looks) + 1
        if self.is_switch:
            chosen = 1 + read(self.looks[0]) % max(1, len(self.looks) - 1)
            return sum(read(each) for each in self.looks[chosen : chosen + 1]) % self.modulus
        return sum(read(each) for each in self.looks) % self.modulus


@dataclass(frozen=True, kw_only=True)
class Flavour:
    """Which graphs and which worlds are drawn."""

    runtimes: tuple[int, ...] = (2, 2, 2, 3)
    nodes: int = 5
    roots: float = 0.85  # how likely a runtime has any effect
    makers: float = 0.3
    sides: float = 0.15
    cycles: bool = False
    across: bool = False  # cycles go through several runtimes; otherwise one has all of them
    everywhere: float = 0.6  # how likely a node is in a runtime
    slices: tuple[int, ...] = (500, 500, 2, 1)
    ticks: float = 0.4  # how likely somebody who works does one slice only
    steps: tuple[int, ...] = (4, 8, 16)
    disturbed: float = 0.1  # how likely it is looked whether all stays at rest
    comings: float = 0.07  # how likely a step registers or removes something


@dataclass
class Plan:
    """A random graph. Each runtime has its own part of it."""

    cells: list[str]
    links: list[str]
    nodes: dict[str, Rule] = field(default_factory=dict)
    effects: dict[str, Rule] = field(default_factory=dict)
    homes: dict[str, set[int]] = field(default_factory=dict)  # by node and effect: the runtimes that have it
    cycles: bool = False

    def of(self, home: int) -> Iterator[str]:
        return (name for name in (*self.nodes, *self.effects) if home in self.homes[name])

    def documents(self) -> list[str]:
        """Of everything that is there from the beginning."""
        return [*self.cells, *self.links, *self.nodes, *(rule.side for rule in self.nodes.values() if rule.side)]

    def rule(self, name: str) -> Rule:
        """Of a node, an effect, or one that another makes (`maker key`)."""
        maker, _, key = name.partition(" ")
        if key:
            return Rule([Look((self.nodes.get(maker) or self.effects[maker]).makes, key, "get"), self.last], 5)
        return self.nodes.get(name) or self.effects[name]

    @property
    def last(self) -> Look:
        """What every node that is made reads, beside its own key."""
        return Look(self.links[-1], "", "exists")

    def targets(self, link: str) -> list[str]:
        """Where a link may lead: without cycles, to cells, later links and the first node, which reads cells only."""
        if self.cycles:
            return [*self.cells, *self.links, *self.nodes]
        return [*self.cells, *self.cells, *self.links[self.links.index(link) + 1 :], "node0"]


def random_plan(rng: random.Random, flavour: Flavour, runtimes: int) -> Plan:
    plan = Plan([f"cell{n}" for n in range(rng.randint(1, 2))], [f"link{n}" for n in range(rng.randint(1, 2))])
    plan.cycles = flavour.cycles
    names = [f"node{n}" for n in range(rng.randint(2, flavour.nodes))]
    everybody = range(runtimes)
    owner = rng.randrange(runtimes)
    for index, name in enumerate(names):
        rule = plan.nodes[name] = _rule(rng, plan, names if flavour.cycles else names[:index])
        if index == 0 and not flavour.cycles:
            rule.looks = [Look(rng.choice(plan.cells), rng.choice(KEYS), "get")]
        elif flavour.cycles:
            rule.counts = rng.random() < 0.5
        elif rng.random() < flavour.makers:
            rule.makes = rng.choice(plan.cells)
        if rng.random() < flavour.sides:
            rule.side = f"side{index}"
        if rng.random() < 2 * flavour.sides:
            rule.own = Look(rng.choice((name, rule.side or name)), "", rng.choice(("get", "exists")))
        homes = {each for each in everybody if rng.random() < flavour.everywhere}
        plan.homes[name] = homes if not flavour.cycles else {rng.randrange(runtimes) if flavour.across else owner}
    keen = set() if not flavour.cycles else set(everybody) if flavour.across else {owner}
    rooted = [each for each in everybody if rng.random() < flavour.roots or each in keen]
    for index in range(rng.randint(1, 3)):
        name = f"eye{index}"
        rule = plan.effects[name] = _rule(rng, plan, [*names, *(r.side for r in plan.nodes.values() if r.side)])
        if rng.random() < flavour.makers:
            rule.makes, rule.reads_made = rng.choice(plan.cells), False
        plan.homes[name] = {each for each in rooted if rng.random() < 0.7 or each in keen}
    return plan


def _rule(rng: random.Random, plan: Plan, below: list[str]) -> Rule:
    looks = [_look(rng, plan, below) for _ in range(rng.randint(1, 3))]
    return Rule(looks, rng.choice((1, 2, 5)), rng.random() < 0.4)


def _look(rng: random.Random, plan: Plan, below: list[str]) -> Look:
    name = rng.choice([*plan.cells, *plan.links, *below, *below])
    is_result = name in below
    part = "" if is_result else rng.choice(("", *KEYS))
    return Look(name, part, rng.choice(("get", "get", "exists") if part or is_result else ("exists", "keys", "get")))
