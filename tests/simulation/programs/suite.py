"""Plays many seeds of one mode. A seed that fails is made smaller, and its program is printed."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.simulation.programs.description import Program
from tests.simulation.programs.draw import draw_program
from tests.simulation.programs.shrink import printed, shrunk

__all__ = ["failure", "name_of", "parts_of", "play_seeds", "signature"]

Draw = Callable[[int], Program]
Play = Callable[[Program, Path], None]

FIRST: Final = "HEADWATER_FIRST_SEED"
"""The environment variable with the first seed to play instead of 0."""
SHRINKS: Final = "HEADWATER_SHRINK"
"""The environment variable that is 0 if failing programs are not to be made smaller."""


def parts_of(count: int, size: int) -> list[range]:
    """The seeds to play, in parts: each is a test of its own, so that several processes share them."""
    first = int(os.environ.get(FIRST, "0"))
    return [range(first + at, first + min(at + size, count)) for at in range(0, count, size)]


def name_of(part: range) -> str:
    """The name of a part in the id of its test."""
    return f"{part.start}-{part.stop - 1}"


def play_seeds(seeds: range, play: Play, draw: Draw = draw_program) -> None:
    """Play the programs of some seeds, each in an empty directory."""
    for seed in seeds:
        play_program(draw(seed), play)


def play_program(program: Program, play: Play) -> None:
    """Play a program. If it fails, raise the failure with a smaller program that repeats it."""
    error = failure(program, play)
    if error is not None:
        if os.environ.get(SHRINKS) == "0":
            raise AssertionError(f"seed {program.seed}: {error}\n\n{printed(program)}") from error
        kind = signature(error)
        small = shrunk(program, lambda each: signature(failure(each, play)) == kind)
        told = failure(small, play)
        raise AssertionError(f"seed {program.seed}: {told or error}\n\n{printed(small)}") from error


def signature(error: Exception | None) -> str:
    """The kind of an error: its type, and the verb of a mismatch."""
    verb = re.search(r" (showed nothing|showed|stays on|told|answered|ran|justify) ", str(error))
    return "" if error is None else f"{type(error).__name__} {verb[1] if verb else ''}"


def failure(program: Program, play: Play) -> Exception | None:
    """Play a program, and return the error that it ends with."""
    with tempfile.TemporaryDirectory(prefix="headwater-program-", dir=_fast_place()) as folder:
        try:
            play(program, Path(folder) / "data")
        except Exception as error:
            return error
    return None


def _fast_place() -> str | None:
    """A directory in memory, if this machine has one: these programs are about order, not about a disk."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
