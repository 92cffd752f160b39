"""Draws a program for a row of processes on one directory, and changed code for some of them."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from tests.simulation.programs.description import (
    By,
    Member,
    Piece,
    PieceClass,
    Program,
    Pull,
    Remake,
    Rest,
    Segment,
    Send,
    Step,
    Transact,
    Write,
)
from tests.simulation.programs.draw import (
    FIRST_ID,
    READABLE,
    ClassDraw,
    Features,
    Steps,
    draw_classes,
    draw_pieces,
    left_out_of_whole,
)
from tests.simulation.programs.expressions import CELL_KINDS, Source

__all__ = ["draw_changed", "draw_processes"]

ROOM = 100
"""Ids of actions for one process."""
ROW: Final = Features(child_handlers=True, follow_ups=0.6, reactions=True, spaces=0.3, scopes=("user",), windows=True)
"""The features of programs in a row of processes."""


def draw_processes(seed: int, features: Features | None = None) -> Program:
    """A program for a row of processes with the same code."""
    return _drawn(seed, Random(f"processes {seed}"), features or ROW, is_changing=False)


def draw_changed(seed: int, features: Features | None = None) -> Program:
    """A program for a row of processes, the code of which changes."""
    return _drawn(seed, Random(f"changed processes {seed}"), features or ROW, is_changing=True)


def _drawn(seed: int, draw: Random, features: Features, *, is_changing: bool) -> Program:
    classes = draw_classes(draw, features)
    pieces = draw_pieces(draw, classes, features)
    segments: list[Segment] = []
    for number in range(draw.randint(2, 5)):
        if is_changing and number and draw.random() < 0.6:
            classes = tuple(_changed(draw, each, features) for each in classes)
        # A piece whose process is killed while it makes it again is there for those who open it, and not for visitors.
        may_visit = number > 0 and not any(
            each.kill_after is not None and any(isinstance(step, Remake) for step in each.steps) for each in segments
        )
        segments.append(_draw_segment(draw, classes, pieces, features, number, may_visit=may_visit))
    return Program(seed, classes=segments[0].classes, pieces=pieces, segments=tuple(segments))


def _draw_segment(
    draw: Random,
    classes: tuple[PieceClass, ...],
    pieces: tuple[Piece, ...],
    features: Features,
    number: int,
    *,
    may_visit: bool,
) -> Segment:
    count = draw.choice((0, 2, 5, 10))
    drawn = Steps(draw, classes, pieces, replace(features, steps=count), FIRST_ID + number * ROOM).drawn()
    is_visitor = draw.random() < 0.35 and may_visit and features.visitors
    if is_visitor:
        possible = (Send, Write, Transact, Pull, Rest)
        drawn = tuple(each for each in drawn if isinstance(each.step if isinstance(each, By) else each, possible))
    steps: tuple[Step, ...] = drawn if draw.random() < 0.6 else drawn[:-1]
    kill_after = None
    if features.kills and draw.random() < 0.5:
        kill_after = draw.choice((draw.randint(1, 10), draw.randint(5, 60), 1_000_000))
    kill_at = draw.randint(1, 3) if features.kills and features.follow_ups and draw.random() < 0.3 else None
    return Segment(
        classes,
        steps,
        is_visitor,
        kill_after,
        kill_at,
        looks_first=draw.random() < 0.5,
        looks_last=draw.random() < 0.5,
    )


def _changed(draw: Random, of: PieceClass, features: Features) -> PieceClass:
    """A class, some computeds, effects and handlers of which have other code."""
    members: list[Member] = []
    below = left_out_of_whole(of.members)
    for member in of.members:
        read = [each for each in members if each.kind in (*CELL_KINDS, *READABLE, "given", "given int")]
        if member.name not in below:
            read = [each for each in read if each.name not in below]
        sources = [_source(each) for each in read if each.scope == "space"]
        scoped = [(each.scope, _source(each)) for each in read if each.scope != "space"]
        is_plain = member.name[0] in "ceh" and not {"d", "k"} & {name[0] for name in member.uses} and sources
        if of.name.startswith("K") or not is_plain or member.name == "element" or draw.random() > 0.3:
            members.append(member)
            continue
        redrawn = ClassDraw.on(draw, of.name, members, sources, features, scoped)
        members.append(redrawn.member_like(member))
    return PieceClass(of.name, tuple(members))


def _source(member: Member) -> Source:
    kind = "number" if member.kind == "given" else member.kind.removeprefix("given ")
    return Source(f"self.{member.name}", kind, frozenset({member.name}))
