"""Adds faults to drawn programs: steps of the wall clock, and actions that are taken on another thread.

The programs themselves stay as they are drawn, so that a seed names the same program with and without them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import Final

from tests.simulation.programs.description import By, Program, Send, SetClock, SharedStep, Step, Transact, Write
from tests.simulation.programs.draw import draw_program
from tests.simulation.programs.draw_processes import draw_processes
from tests.simulation.programs.draw_shared import draw_shared

__all__ = ["draw_alone_with_threads", "draw_processes_with_threads", "draw_shared_with_clock_steps"]

SECONDS: Final = (-3_600, -60, -1, 1, 60, 3_600)
SHARE: Final = 0.15
"""How many of the actions are taken on another thread."""


def draw_alone_with_threads(seed: int) -> Program:
    """The program of a seed for one runtime, some actions of which are taken on another thread."""
    return _with_threads(draw_program(seed))


def draw_processes_with_threads(seed: int) -> Program:
    """The program of a seed for a row of processes, some actions of which are taken on another thread."""
    return _with_threads(draw_processes(seed))


def draw_shared_with_clock_steps(seed: int) -> Program:
    """The shared program of a seed, during which the wall clock may be set ahead and back."""
    program = draw_shared(seed)
    draw = Random(f"clock steps {seed}")
    steps: list[SharedStep] = []
    for step in program.shared:
        if draw.random() < 0.05:
            steps.append(SetClock(draw.choice(SECONDS)))
        steps.append(step)
    return replace(program, shared=tuple(steps))


def _with_threads(program: Program) -> Program:
    draw = Random(f"threads {program.seed}")
    steps = (*program.steps, *(step for segment in program.segments for step in segment.steps))
    return replace(program, in_threads=frozenset(eid for eid in _ids(steps) if draw.random() < SHARE))


def _ids(steps: Iterable[Step]) -> Iterable[int]:
    """The ids of the actions whose end the next step awaits: only their place in the order is known."""
    for step in steps:
        match step.step if isinstance(step, By) else step:
            case Write(eid=eid) | Transact(eid=eid) | Send(eid=eid, is_awaited=True):
                yield eid
            case _:
                pass
