"""Makes a failing program smaller: without steps, pieces and members that its failure does not need."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from tests.simulation.programs.description import (
    ANN,
    WINDOWS,
    By,
    Crash,
    Offline,
    Online,
    Open,
    PieceClass,
    Program,
    Pull,
    Remake,
    Rest,
    Segment,
    Send,
    SharedStep,
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
    shared = program.shared
    size = len(shared) // 2
    while size:
        for first in range(0, len(shared) - 1, size):
            yield replace(program, shared=_possible_shared(program, (*shared[:first], *shared[first + size :])))
        size //= 2
    for number, segment in enumerate(program.segments):
        others = (*program.segments[:number], *program.segments[number + 1 :])
        if others:
            yield replace(program, segments=others, classes=others[0].classes)
        for first in range(len(segment.steps)):
            left = (*segment.steps[:first], *segment.steps[first + 1 :])
            yield _with_segment(program, number, replace(segment, steps=_possible(program, left)))
        if segment.kill_after is not None:
            yield _with_segment(program, number, replace(segment, kill_after=None))
        if segment.kill_at is not None:
            yield _with_segment(program, number, replace(segment, kill_at=None))
        if segment.looks_first:
            yield _with_segment(program, number, replace(segment, looks_first=False))
    given = {where for each in program.pieces for _, where, _ in each.given}
    for piece in program.pieces:
        if piece.name not in given and len(program.pieces) > 1:
            yield _kept(replace(program, pieces=tuple(each for each in program.pieces if each != piece)))
    for of in program.classes:
        for member in of.members:
            if member.kind == "log" and program.shared:
                continue  # The log of the engine tells nothing else of which transactions and handlers landed.
            segments = tuple(
                replace(each, classes=_without(each.classes, of.name, member.name)) for each in program.segments
            )
            smaller = replace(program, classes=_without(program.classes, of.name, member.name), segments=segments)
            if _is_whole(smaller):
                yield _kept(smaller)


def _without(classes: tuple[PieceClass, ...], of: str, member: str) -> tuple[PieceClass, ...]:
    return tuple(each.without(member) if each.name == of else each for each in classes)


def _with_segment(program: Program, number: int, segment: Segment) -> Program:
    segments = (*program.segments[:number], segment, *program.segments[number + 1 :])
    return replace(program, segments=segments)


def _is_whole(program: Program) -> bool:
    """Whether every handle that a piece is given is there."""
    for piece in program.pieces:
        inputs = {member.name for member in program.class_named(piece.of).of_kind("given", "callback")}
        if inputs != {name for name, _, _ in piece.given}:
            return False
        for _, where, member in piece.given:
            if member not in {each.name for each in program.class_of(where).members}:
                return False
    return True


def _kept(program: Program) -> Program:
    """A program without steps for pieces and members that it does not have."""
    steps, shared = _possible(program, program.steps), _possible_shared(program, program.shared)
    segments = tuple(replace(each, steps=_possible(program, each.steps)) for each in program.segments)
    return replace(program, steps=steps, shared=shared, segments=segments)


def _possible_shared(program: Program, steps: tuple[SharedStep, ...]) -> tuple[SharedStep, ...]:
    """Shared steps without those of members that the program does not have. Everybody is online at a rest."""
    kept: list[SharedStep] = []
    offline: set[str] = set()
    stopped: set[tuple[str, str]] = set()
    pieces = {piece.name for piece in program.pieces}
    for step in steps:
        match step:
            case By(user=user, step=Stop(piece=piece) | Open(piece=piece) as inner):
                is_stop = isinstance(inner, Stop)
                if piece in pieces and user not in offline and ((user, piece) in stopped) != is_stop:
                    stopped ^= {(user, piece)}
                    kept.append(step)
            case Crash(who=user):
                offline.discard(user)
                stopped = {(whose, piece) for whose, piece in stopped if whose != user}
                kept.append(step)
            case By(step=inner):
                left = (inner,) if isinstance(inner, Unwatch) else _possible(program, (inner,))
                if isinstance(inner, Remake) and left:
                    kept += [Online(each) for each in sorted(offline)]
                    offline.clear()
                kept += [replace(step, step=each) for each in left if not isinstance(each, Rest | By)]
            case Offline(user=user):
                offline.add(user)
                kept.append(step)
            case Online(user=user):
                offline.discard(user)
                kept.append(step)
            case Rest():
                kept += [Online(user) for user in sorted(offline)]
                offline.clear()
                kept.append(step)
            case _:
                kept.append(step)
    return tuple(kept)


def _possible(program: Program, steps: tuple[Step, ...]) -> tuple[Step, ...]:
    members = {
        (piece.name, member.name) for piece in program.pieces for member in program.class_named(piece.of).members
    }
    members |= set(_members_of_children(program, steps))
    pieces = {piece.name for piece in program.pieces}
    kept: list[Step] = []
    watched: set[int] = set()
    stopped = {(window, piece) for window in WINDOWS if window != ANN for piece in pieces}
    for step in steps:
        window = step.user if isinstance(step, By) else ANN
        match step.step if isinstance(step, By) else step:
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
            case Transact(writes=writes) as transact:
                left = tuple(each for each in writes if (each.piece, each.member) in members)
                smaller = replace(transact, writes=left)
                if left:
                    kept.append(replace(step, step=smaller) if isinstance(step, By) else smaller)
            case Open(piece=piece):
                if (window, piece) in stopped:
                    stopped.discard((window, piece))
                    kept.append(step)
            case Stop(piece=piece):
                if piece in pieces and (window, piece) not in stopped:
                    kept.append(step)
                    stopped.add((window, piece))
            case Remake(piece=piece):
                if piece in pieces and (ANN, piece) not in stopped:
                    kept.append(step)
                    stopped |= {(each, piece) for each in WINDOWS if each != ANN}
            case Rest():
                kept.append(step)
    return tuple(kept)


def _members_of_children(program: Program, steps: tuple[Step, ...]) -> Iterator[tuple[str, str]]:
    """The children that steps name by their paths, and the members of all classes that they may have."""
    for step in steps:
        match step.step if isinstance(step, By) else step:
            case Send(piece=path) | Write(piece=path) if "/" in path:
                name, member, _ = path.split("/")
                if name not in {each.name for each in program.pieces}:
                    continue
                for found in program.class_of(name).of_kind("children"):
                    classes = [each for each in program.classes if each.name in found.uses and found.name == member]
                    names = [{each.name for each in of.members} for of in classes]
                    yield from ((path, each) for each in set.intersection(*names or [set()]))


def printed(program: Program) -> str:
    """A program as text: its classes as source, its pieces and its steps."""
    lines = [f"seed {program.seed}", source_of(program.classes), "pieces:"]
    lines += [f"    {each}" for each in program.pieces]
    if program.users:
        lines.append(f"users: {', '.join(program.users)}; with a handle only: {sorted(program.handles)}")
    lines += ["steps:", *(f"    {each}" for each in (*program.steps, *program.shared))]
    for number, segment in enumerate(program.segments):
        end = "closed" if segment.kill_after is None else f"killed after {segment.kill_after} messages"
        end += "" if segment.kill_at is None else f", or killed at attempt {segment.kill_at} to handle a follow-up"
        kind = "a visitor" if segment.is_visitor else "a host"
        pulls = f"pulls everything first: {segment.looks_first}, last: {segment.looks_last}"
        lines.append(f"process {number}: {kind}, {end}, {pulls}")
        if segment.classes != program.classes:
            lines.append(source_of(segment.classes))
        lines += [f"    {each}" for each in segment.steps]
    return "\n".join(lines)
