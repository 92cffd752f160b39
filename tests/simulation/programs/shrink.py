"""Makes a failing program smaller: without steps, pieces and members that its failure does not need."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from tests.simulation.programs.description import (
    Open,
    Program,
    Pull,
    Remake,
    Rest,
    Restart,
    Send,
    Step,
    Stop,
    Transact,
    Unwatch,
    Watch,
    Write,
    source_of,
)

__all__ = ["printed", "shrunk"]

SECONDS_MOST: Final = 60.0


def shrunk(program: Program, fails: Callable[[Program], bool], seconds: float = SECONDS_MOST) -> Program:
    """The smallest program that was found within some seconds and still fails."""
    end = time.monotonic() + seconds
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for candidate in _smaller(program):
            if time.monotonic() > end:
                return program
            if fails(candidate):
                program, is_smaller = candidate, True
                break
    return program


def _smaller(program: Program) -> Iterator[Program]:
    """Programs with less in them, those with much less first."""
    steps = program.steps
    size = len(steps) // 2
    while size:
        for first in range(0, len(steps) - 1, size):
            yield replace(program, steps=_possible(program, (*steps[:first], *steps[first + size :])))
        size //= 2
    given = {where for each in program.pieces for _, where, _ in each.given}
    for piece in program.pieces:
        if piece.name not in given and len(program.pieces) > 1:
            yield _kept(replace(program, pieces=tuple(each for each in program.pieces if each != piece)))
    for of in program.classes:
        for member in of.members:
            classes = tuple(each.without(member.name) if each == of else each for each in program.classes)
            smaller = _kept(replace(program, classes=classes))
            if _is_whole(smaller):
                yield smaller


def _is_whole(program: Program) -> bool:
    """Whether every handle that a piece is given is there."""
    for piece in program.pieces:
        inputs = {member.name for member in program.class_named(piece.of).of_kind("given")}
        if inputs != {name for name, _, _ in piece.given}:
            return False
        for _, where, member in piece.given:
            if member not in {each.name for each in program.class_of(where).members}:
                return False
    return True


def _kept(program: Program) -> Program:
    """A program without steps for pieces and members that it does not have."""
    return replace(program, steps=_possible(program, program.steps))


def _possible(program: Program, steps: tuple[Step, ...]) -> tuple[Step, ...]:
    members = {
        (piece.name, member.name) for piece in program.pieces for member in program.class_named(piece.of).members
    }
    pieces = {piece.name for piece in program.pieces}
    kept: list[Step] = []
    watched: set[int] = set()
    stopped: set[str] = set()
    for step in steps:
        match step:
            case Send(piece=piece, handler=handler):
                if (piece, handler) in members:
                    kept.append(step)
            case Write(piece=piece, member=member) | Pull(piece=piece, member=member):
                if (piece, member) in members:
                    kept.append(step)
            case Watch(number=number, piece=piece, member=member):
                if (piece, member) in members:
                    kept.append(step)
                    watched.add(number)
            case Unwatch(number=number):
                if number in watched:
                    kept.append(step)
            case Transact(writes=writes):
                left = tuple(each for each in writes if (each.piece, each.member) in members)
                if left:
                    kept.append(replace(step, writes=left))
            case Open(piece=piece):
                if piece in stopped:
                    stopped.discard(piece)
                    kept.append(step)
            case Stop(piece=piece) | Remake(piece=piece):
                if piece in pieces - stopped:
                    kept.append(step)
                    stopped |= {piece} if isinstance(step, Stop) else set()
            case Restart(others=others):
                left = tuple(each for each in others if (each.piece, each.member) in members)
                kept.append(replace(step, others=left))
            case Rest():
                kept.append(step)
    return tuple(kept)


def printed(program: Program) -> str:
    """A program as text: its classes as source, its pieces and its steps."""
    lines = [f"seed {program.seed}", source_of(program.classes), "pieces:"]
    lines += [f"    {each}" for each in program.pieces]
    lines += ["steps:", *(f"    {each}" for each in program.steps)]
    return "\n".join(lines)
