"""I7, all of it at once: crashes, writes while no program runs, other code, and other branches.

A program in versions, which differ in a constant, in a helper, in defaults and in the fields of a Model, comes back
again and again. Meanwhile others have written, in its space, in another one, or without any piece. A model by hand says
for each node what it read and what its code was when it last ran on a branch: it runs if one of these is another, and
never otherwise. After a kill more may run, never fewer. `./dev sim` plays 5,000 such histories, `./dev test` a few.

The first write of the default of a cell shows its readers no other value. It runs no reader in a process that is there,
and reports them as clean again. The engine does not know defaults, so for all other readers it is a write.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from headwater.protocol.commit import MAIN
from headwater.runtime import LocalDirectory
from tests.counts import is_exploring, seldom
from tests.invariants.i07_kit import Site, asked, compared, embedded, killed, put, run, site, stories
from tests.invariants.i07_program import AWAY, HERE, KEYS, Program, Version

CELLS: Final = ("b:a", "b:b", "b:c", "b:entry", "b:unread", *[f"t:items/{key}" for key in KEYS], "s:n", "s:unread")
"""What others write: documents of two spaces, and elements of one."""
RAW: Final = ("b:a", "b:b", "b:c", "b:entry", "b:unread", "s:n", "s:unread")
"""What somebody may write who knows of no piece: whole documents."""
OF_AWAY: Final = ("s:n", "s:unread")


# ---- the model -------------------------------------------------------------------------------------


@dataclass(slots=True)
class Branched:
    """What is stored on a branch, and what its nodes saw when they last ran there."""

    values: dict[str, Any] = field(default_factory=dict)  # of cells that were written, and of nodes
    stamps: dict[str, int] = field(default_factory=dict)  # how often each of them changed
    seen: dict[str, tuple[object, dict[str, int]]] = field(default_factory=dict)  # code and stamps, by node

    def fork(self) -> Branched:
        """Another branch: its documents are the same, and nothing is known of its nodes."""
        return Branched(dict(self.values), dict(self.stamps))

    def put(self, name: str, value: Any) -> None:
        if name not in self.values or self.values[name] != value:
            self.values[name] = value
            self.stamps[name] = self.stamps.get(name, 0) + 1


class Model:
    """What a process would have run. The other space has no branches."""

    def __init__(self) -> None:
        self.version = Version()
        self.away = Branched()
        self.branches: dict[str, Branched] = {MAIN: Branched()}

    def write(self, branch: str, name: str, value: Any, *, is_running: bool) -> None:
        """Write a cell. `is_running`: the nodes of the branch are in a process, and were clean before."""
        at = self.away if name in OF_AWAY else self.branches[branch]
        before = at.stamps.get(name, 0)
        is_default = name not in at.values and name in DEFAULTS and value == DEFAULTS[name](self.version)
        at.put(name, value)
        if is_running and is_default:
            for _, reads in self.branches[branch].seen.values():
                if reads.get(name) == before:
                    reads[name] = at.stamps[name]

    def stored(self, branch: str, name: str) -> Any:
        return (self.away if name in OF_AWAY else self.branches[branch]).values.get(name)

    def settle(self, branch: str) -> set[str]:
        """Run what has to run. Answers which nodes that were."""
        here, version, ran = self.branches[branch], self.version, set[str]()
        for node, (code, fn) in NODES.items():
            reads: dict[str, int] = {}

            def get(name: str, reads: dict[str, int] = reads) -> Any:
                at = self.away if name in OF_AWAY else here
                reads[name] = at.stamps.get(name, 0)
                return at.values[name] if name in at.values else DEFAULTS[name](version)

            known = here.seen.get(node)
            if known is not None and known[0] == code(version) and not self._is_stale(here, known[1]):
                continue
            ran.add(f"{HERE}/{node}")
            value = fn(get, version)
            here.seen[node] = (code(version), reads)
            here.put(node, value)
        return ran

    def _is_stale(self, here: Branched, reads: dict[str, int]) -> bool:
        now = {name: (self.away if name in OF_AWAY else here).stamps.get(name, 0) for name in reads}
        return now != reads


Get = Callable[[str], Any]


def _sum(n: int, version: Version) -> int:
    return n + (7 if version.is_wide else 0)


def _cost(key: str) -> Callable[[Get, Version], Any]:
    return lambda get, v: get(f"t:items/{key}") * get("b:a") * v.constant


DEFAULTS: Final[dict[str, Callable[[Version], Any]]] = {
    "b:a": lambda v: v.default,
    "b:b": lambda v: 2,
    "b:c": lambda v: 3,
    "s:n": lambda v: v.default_away,
}
NODES: Final[dict[str, tuple[Callable[[Version], object], Callable[[Get, Version], Any]]]] = {
    "b:scaled": (lambda v: (v.constant, v.default), lambda get, v: get("b:a") * v.constant),
    "b:helped": (lambda v: (v.helper, v.default), lambda get, v: get("b:a") + v.helper),
    "b:quiet": (lambda v: v.default, lambda get, v: get("b:a") // 3),
    "b:chosen": (lambda v: (), lambda get, v: get("b:b") if get("b:quiet") % 2 else get("b:c")),
    "b:all": (
        lambda v: (),
        lambda get, v: get("b:scaled") + get("b:helped") + get("b:quiet") + get("b:chosen"),
    ),
    "b:text": (lambda v: v.is_wide, lambda get, v: str(_sum(get("b:entry"), v))),
    "b:show": (lambda v: (), lambda get, v: (get("b:all"), get("b:text"))),
    # What these are given they do not name: a default, and the fields of a type, count all the same.
    "r:got": (lambda v: v.default, lambda get, v: get("b:a") + 1),
    "r:bill": (lambda v: (), lambda get, v: get("b:all") * 2),
    "r:away": (lambda v: v.default_away, lambda get, v: get("s:n") + 1),
    "r:look": (lambda v: v.is_wide, lambda get, v: _sum(get("b:entry"), v)),
    "r:show": (lambda v: (), lambda get, v: [get(name) for name in ("r:got", "r:bill", "r:away", "r:look")]),
    "g:more": (lambda v: v.default, lambda get, v: get("b:a") + 2),
    "g:show": (lambda v: (), lambda get, v: get("g:more")),
    **{f"t/rows/{key}:cost": (lambda v: (v.constant, v.default), _cost(key)) for key in KEYS},
    "t:total": (lambda v: (), lambda get, v: sum([get(f"t/rows/{key}:cost") for key in KEYS])),
    "t:show": (lambda v: (), lambda get, v: get("t:total")),
}
"""By name, each after what it reads: what of a version its code is, and what it makes."""


# ---- histories -------------------------------------------------------------------------------------


class History:
    """One directory, the model of it, and where it is."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.rng = Random(seed)
        self.folder = folder
        self.at = folder / "0"
        self.model = Model()
        self.branch = MAIN
        self.inexact: set[str] = set()  # branches on which a process was killed since one was closed there
        self.program = Program(self.model.version)
        self.came_back = 0

    def draw(self) -> dict[str, int]:
        """Some cells, each with another value than it has."""
        chosen = self.rng.sample(CELLS, self.rng.randrange(1, 4))
        return {name: self._another(name) for name in chosen}

    def _another(self, name: str) -> int:
        there = self.model.stored(self.branch, name)
        return self.rng.choice([n for n in range(9) if n != there])

    def on(self, data: LocalDirectory, *, identity: str | None = "one") -> Any:
        return site(data, {HERE: self.branch, AWAY: MAIN}, identity=identity)

    async def begin(self) -> None:
        async with embedded(self.at) as data:
            async with self.on(data, identity=None) as first:
                await self._written(first, {"b:entry": 1, **{f"t:items/{key}": 1 for key in KEYS}}, is_running=False)
            async with self.on(data) as one:
                await self.program.started(one)
                compared(self.model.settle(self.branch), self._ran(one), may_run_more=False)

    async def _written(self, one: Site, cells: dict[str, int], *, is_raw: bool = False, is_running: bool) -> None:
        for name, n in cells.items():
            self.model.write(self.branch, name, n, is_running=is_running)
        if not is_raw:
            await self.program.write(one, cells)
            return
        for name, n in cells.items():
            await put(one, AWAY if name in OF_AWAY else HERE, name, {"n": n} if name == "b:entry" else n)

    def _ran(self, one: Site) -> set[str]:
        """Of the nodes that the model has; what keeps rows together is not in it."""
        return one.taken() & {f"{HERE}/{node}" for node in NODES}

    async def round(self, number: int) -> None:
        """Something happens while nobody runs; somebody comes back, goes on for a while, and leaves or is killed."""
        rng = self.rng
        async with embedded(self.at) as data:
            if rng.random() < 0.3:
                await self._switch(data, number)
            if rng.random() < 0.6:
                self._change_code()
            for _ in range(rng.choice([0, 1, 1, 2])):
                await self._write_while_down(data)
            following = self.at
            async with self.on(data) as one:
                await self._come_back(one)
                if rng.random() < 0.3:
                    following = killed(self.at, self.folder / str(number + 1))
        (self.inexact.add if following is not self.at else self.inexact.discard)(self.branch)
        self.at = following

    async def _switch(self, data: LocalDirectory, number: int) -> None:
        others = sorted(self.model.branches.keys() - {self.branch})
        if others and self.rng.random() < 0.6:
            self.branch = self.rng.choice(others)
            return
        name, parent = f"b{number}", self.branch
        await asked(data, lambda engine: engine.fork(name, parent=parent), HERE)
        self.model.branches[name] = self.model.branches[parent].fork()
        self.branch = name

    def _change_code(self) -> None:
        version = self.model.version
        name = self.rng.choice(["constant", "helper", "default", "default_away", "is_wide", "unread"])
        now: Any = getattr(version, name)
        new: Any = not now if name == "is_wide" else self.rng.choice([n for n in (2, 3, 4) if n != now])
        self.model.version = replace(version, **{name: new})
        self.program = Program(self.model.version)

    async def _write_while_down(self, data: LocalDirectory) -> None:
        """One transaction, or one for each document, by somebody who runs nothing; perhaps where nobody looks now."""
        is_raw = self.rng.random() < 0.4
        here = self.branch
        self.branch = self.rng.choice([here, here, *self.model.branches])
        written = {name: n for name, n in self.draw().items() if not is_raw or name in RAW}
        async with self.on(data, identity=None) as other:
            await self._written(other, written, is_raw=is_raw, is_running=False)
            await other.rt.durable()
        self.branch = here

    async def _come_back(self, one: Site) -> None:
        pieces = await self.program.started(one)
        if self.rng.random() < 0.5:
            await pieces["b"].all.pull()  # It is demanded anyway, and comes first.
            await one.settled()
        # I7: what one that had stayed would have run.
        ran = self._ran(one)
        compared(self.model.settle(self.branch), ran, may_run_more=self.branch in self.inexact)
        self.came_back += len(set(NODES) - ran)
        await self._check(pieces)
        one.taken()
        await self._written(one, self.draw(), is_running=True)
        await one.settled()
        compared(self.model.settle(self.branch), self._ran(one), may_run_more=False)
        await self._check(pieces)
        await one.settled()
        assert not one.errors, one.errors_told

    async def _check(self, pieces: dict[str, Any]) -> None:
        values = self.model.branches[self.branch].values
        for node in NODES:
            piece, _, member = node.partition(":")
            if member != "show" and "/" not in piece:
                assert await getattr(pieces[piece], member).pull() == values[node], node


async def _history(seed: int, folder: Path) -> int:
    """Raises where a process ran something else than the model. Answers how many nodes came back without a run."""
    history = History(seed, folder)
    await history.begin()
    for number in range(5):
        await history.round(number)
    return history.came_back


@pytest.mark.random
def test_what_comes_back_runs_what_changed_whatever_that_is(tmp_path: Path) -> None:
    seeds = seldom(5_000) if is_exploring() else max(3, seldom(5_000) // 3)
    came_back = stories(_history, tmp_path, range(seeds))
    assert came_back > 10 * seeds, "hardly anything came back: then this says nothing"


@pytest.mark.parametrize("seed", [16])
def test_a_history_that_once_went_wrong(tmp_path: Path, seed: int) -> None:
    """16: the first write of a cell, on a branch, writes its default. Readers that are there do not run."""

    async def story() -> None:
        await _history(seed, tmp_path)

    run(story, too_long_s=120)
