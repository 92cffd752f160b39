"""Draws a program that two to four users play on one served space, with connections and processes that go."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from tests.simulation.programs.description import (
    By,
    Crash,
    Offline,
    Online,
    Open,
    Piece,
    PieceClass,
    Program,
    Pull,
    Remake,
    Rest,
    Send,
    SharedStep,
    Stop,
    Transact,
    Unwatch,
    Wait,
    Watch,
    Write,
)
from tests.simulation.programs.draw import Features, Steps, draw_classes, draw_pieces
from tests.simulation.programs.expressions import CELL_KINDS

__all__ = ["SERVER", "draw_served", "draw_shared"]

USERS: Final = ("ann", "bob", "cy", "dan")
SERVER: Final = "server"
SHARED: Final = Features(spaces=0.4, follow_ups=0.4, scopes=("user",))
"""The features of programs of several runtimes."""


def draw_shared(seed: int, features: Features | None = None) -> Program:
    """The shared program of a seed."""
    features = replace(features or SHARED, logged=True)
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
    steps = _SharedSteps(draw, classes, pieces, users, features, handles).drawn()
    return Program(seed, classes, pieces, users=users, handles=handles, shared=steps)


def draw_served(seed: int) -> Program:
    """The program of a seed for a real server, for which all connections are of one user."""
    return draw_shared(seed, replace(SHARED, scopes=()))


class _SharedSteps:
    """Draws steps of users. An event and a transaction add their ids to a log."""

    def __init__(
        self,
        draw: Random,
        classes: tuple[PieceClass, ...],
        pieces: tuple[Piece, ...],
        users: tuple[str, ...],
        features: Features,
        handles: frozenset[tuple[str, str]],
    ) -> None:
        self._draw = draw
        self._classes = {each.name: each for each in classes}
        self._pieces = pieces
        self._users = users
        self._features = features
        self._handles = handles
        self._steps = Steps(draw, classes, pieces, features)
        self._is_steady = draw.random() < 0.3  # nobody goes
        self._offline: set[str] = set()
        self._stopped: set[tuple[str, str]] = set()  # users and pieces
        self._plainly_written: set[str] = set()  # pieces

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
        match draw.choices(range(11), (9, 4, 3, 2, 3, 3, 1, 5, 2, 1, 1))[0]:
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
                return [self._crash(user)]
            case 7:
                return [Wait(draw.choice((1, 5, 20, 100, 1_000)))]
            case 8:
                return self._stop(user, piece) if self._features.stops and user not in self._offline else []
            case 9:
                return [] if self._offline or draw.random() < 0.5 else [Rest()]
            case _:
                return self._remake(user, piece)

    def _crash(self, user: str) -> SharedStep:
        if not self._features.crashing_users or self._draw.random() < 0.5:
            return Crash(SERVER)
        self._offline.discard(user)
        self._stopped = {(whose, piece) for whose, piece in self._stopped if whose != user}
        return Crash(user)

    def _stop(self, user: str, piece: Piece) -> list[SharedStep]:
        """Stop a piece for a user who has a connection, or open it again."""
        self._stopped ^= {(user, piece.name)}
        is_stopped = (user, piece.name) in self._stopped
        return [By(user, Stop(piece.name) if is_stopped else Open(piece.name))]

    def _remake(self, user: str, piece: Piece) -> list[SharedStep]:
        """Have a user who has a piece open delete it and make it again, while everybody has a connection."""
        has_it = (user, piece.name) not in self._stopped | self._handles
        is_possible = has_it and not self._offline and self._features.remakes and self._steps.may_go(piece)
        # The model of merged plain writes does not know that a piece is deleted while one of them has no outcome.
        is_busy = piece.name not in self._plainly_written and self._draw.random() < 0.5
        return [By(user, Remake(piece.name, is_busy=is_busy))] if is_possible else []

    def _logged(self, step: Transact) -> Transact:
        first = step.writes[0]
        log = Write(step.eid, first.piece, "log", f"{first.piece}.log.push({step.eid})")
        return replace(step, writes=(log, *step.writes))

    def _plain_write(self, user: str, piece: Piece) -> list[SharedStep]:
        """Plain writes of a user to one cell, some of which change nothing."""
        draw = self._draw
        cells = self._classes[piece.of].of_kind(*CELL_KINDS)
        if not cells or not self._features.plain_writes:
            return []
        cell = draw.choice(cells)
        is_link = bool(self._classes[piece.of].of_kind("link")) and draw.random() < 0.3
        steps: list[SharedStep] = []
        self._plainly_written.add(piece.name)
        for _ in range(draw.choice((1, 1, 1, 2, 4))):
            written = self._steps.write_link(piece) if is_link else self._steps.write(piece, cell)
            steps.append(By(user, written))
            if draw.random() < 0.2:
                steps.append(By(user, replace(written, eid=self._steps.next_id())))
        return steps
