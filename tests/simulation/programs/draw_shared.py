"""Draws a program that two to four users play on one served space, with connections and processes that go."""

from __future__ import annotations

import re
from dataclasses import replace
from random import Random
from typing import Final

from tests.simulation.programs.description import (
    By,
    Crash,
    Offline,
    Online,
    Piece,
    PieceClass,
    Program,
    Pull,
    Rest,
    Send,
    SharedStep,
    Transact,
    Unwatch,
    Wait,
    Watch,
    Write,
)
from tests.simulation.programs.draw import Features, Steps, draw_classes, draw_pieces
from tests.simulation.programs.expressions import KEYS

__all__ = ["PLAIN_WRITES", "SERVER", "draw_served", "draw_shared", "plain_writes_in"]

USERS: Final = ("ann", "bob", "cy", "dan")
SERVER: Final = "server"
_STRIDE: Final = 1_000_003
_MARK: Final = 77
PLAIN_WRITES: Final = {
    "int": ("{0}.set(N)", "{0}.update(lambda was: N)"),
    "maybe": ("{0}.set(N)",),
    "text": ('{0}.set("PID")',),
    "rec": ("{0}.at(lambda r: r.n).set(N)", "{0}.update(lambda was: Rec(n=N, t=was.t))"),
    "ints": ("{0}.key(W).set(N)", "{0}.update(lambda was: {{**was, W: N}})"),
    "items": ("{0}.push(N)", "{0}.update(lambda was: (*was, N))"),
    "tags": ('{0}.add("PID")',),
}
"""Plain writes of shared programs, by the kind of cell: with a value N or PID by which they are found in the log.

A plain `set` of a Mapping or a record merges by field with the value that its runtime showed, which the model does not
know. So it is not drawn.
"""


def plain_value(eid: int) -> int:
    """The int that a plain write sets. Sums and increments of such values are none."""
    return eid * _STRIDE + _MARK


def plain_writes_in(value: object) -> list[int]:
    """The ids of plain writes whose values are in a stored value."""
    match value:
        case bool():
            return []
        case int():
            return [value // _STRIDE] if value % _STRIDE == _MARK else []
        case str():
            return [int(each[1]) for each in re.finditer(r"^plain(\d+)$", value)]
        case tuple():
            return [eid for each in value for eid in plain_writes_in(each)]
        case dict():
            return [eid for each in value.values() for eid in plain_writes_in(each)]
        case _:
            return []


def draw_shared(seed: int, features: Features | None = None) -> Program:
    """The shared program of a seed."""
    features = replace(features or Features(links=True), logged=True, spaces=False)
    draw = Random(f"shared program {seed}")
    classes = draw_classes(draw, features)
    pieces = draw_pieces(draw, classes, features)
    users = USERS[: draw.choice((2, 2, 2, 3, 4))]
    handles = frozenset(
        (user, piece.name)
        for user in users
        for piece in pieces
        if not piece.given and not any(piece.name == where for each in pieces for _, where, _ in each.given)
        and draw.random() < 0.25
    )  # fmt: skip
    steps = _SharedSteps(draw, classes, pieces, users, features).drawn()
    return Program(seed, classes, pieces, users=users, handles=handles, shared=steps)


def draw_served(seed: int) -> Program:
    """The program of a seed for a real server."""
    return draw_shared(seed)


class _SharedSteps:
    """Draws steps of users. An event and a transaction add their ids to a log, and plain writes write unique values."""

    def __init__(
        self,
        draw: Random,
        classes: tuple[PieceClass, ...],
        pieces: tuple[Piece, ...],
        users: tuple[str, ...],
        features: Features,
    ) -> None:
        self._draw = draw
        self._classes = {each.name: each for each in classes}
        self._pieces = pieces
        self._users = users
        self._features = features
        self._steps = Steps(draw, classes, pieces, features)
        self._is_steady = draw.random() < 0.3  # nobody goes
        self._offline: set[str] = set()

    def drawn(self) -> tuple[SharedStep, ...]:
        steps: list[SharedStep] = []
        while len(steps) < self._features.steps:
            steps += self._some()
        steps += [Online(user) for user in sorted(self._offline)]
        return (*steps, Rest())

    def _some(self) -> list[SharedStep]:
        draw = self._draw
        user = draw.choice(self._users)
        piece = draw.choice(self._pieces)
        match draw.choices(range(9), (9, 4, 3, 2, 3, 3, 1, 5, 1))[0]:
            case 0:
                return [By(user, each) for each in self._steps.sends(piece) if isinstance(each, Send)]
            case 1:
                step = self._steps.transact()
                assert isinstance(step, Transact)
                return [By(user, self._logged(step))] if step.writes else []
            case 2:
                return self._plain_write(user, piece)
            case 3:
                return [By(user, Pull(piece.name, draw.choice(self._steps.readable(piece))))]
            case 4:
                step = self._steps.watch(piece)[0]
                assert isinstance(step, Watch | Unwatch)
                return [By(user, step)]
            case 5 | 6 if self._is_steady:
                return []
            case 5:
                if user in self._offline:
                    self._offline.discard(user)
                    return [Online(user)]
                self._offline.add(user)
                return [Offline(user)]
            case 6:
                return [Crash(user if self._features.crashing_users and draw.random() < 0.5 else SERVER)]
            case 7:
                return [Wait(draw.choice((1, 5, 20, 100, 1_000)))]
            case _:
                if self._offline or draw.random() < 0.5:
                    return []
                return [Rest()]

    def _logged(self, step: Transact) -> Transact:
        first = step.writes[0]
        log = Write(step.eid, first.piece, "log", f"{first.piece}.log.push({step.eid})")
        return replace(step, writes=(log, *step.writes))

    def _plain_write(self, user: str, piece: Piece) -> list[SharedStep]:
        draw = self._draw
        cells = self._classes[piece.of].of_kind(*PLAIN_WRITES)
        if not cells or not self._features.plain_writes:
            return []
        cell = draw.choice(cells)
        steps: list[SharedStep] = []
        for _ in range(draw.choice((1, 1, 1, 2, 4))):
            eid = self._steps.next_id()
            text = draw.choice(PLAIN_WRITES[cell.kind]).format(f"{piece.name}.{cell.name}")
            for sign, value in (("N", plain_value(eid)), ("PID", f"plain{eid}"), ("W", f'"{draw.choice(KEYS)}"')):
                text = re.sub(rf"\b{sign}\b", str(value), text)
            steps.append(By(user, Write(eid, piece.name, cell.name, text)))
        return steps
