"""What happens inside a contender's process: a shape is built, checked step by step, and timed in portions.

First the shape runs with every function counted, and what its effects saw after each update is kept for
comparison. Then it is built again with the bare functions, warmed up by a portion, and timed.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from bench.reactive.contender import Contender, Shape, Turns
from bench.reactive.exact import Counting

# Updates that are compared one by one.
COMPARED: Final = 10


@dataclass(frozen=True, slots=True)
class Ready:
    """Done; there is nothing to say about it."""


@dataclass(frozen=True, slots=True)
class Opened:
    """What the effects saw after the building and after each compared update, and the runs of those updates."""

    seen: list[object]
    runs: int


@dataclass(frozen=True, slots=True)
class Timed:
    """Per portion its seconds, and its runs if they were counted; what the effects saw after the last."""

    seconds: list[float]
    runs: list[int]
    seen: object


@dataclass(frozen=True, slots=True)
class Failed:
    why: str


class Measuring:
    """One shape under one contender. `counted` has the runs of the timed portions counted, too."""

    def __init__(self, shape: Shape, open_root: Callable[[], Contender], *, counted: bool, waits: bool = False) -> None:
        self._shape = shape
        self._open = open_root
        self._now = time.perf_counter if waits else time.process_time
        self._counted = counted
        self._next = 0
        self._root: Contender | None = None
        self._turns: Turns | None = None

    def check(self) -> Opened:
        root = Counting(self._open())
        turns = self._shape.build(root)
        seen = [turns.seen()]
        before = root.runs()
        for number in range(1, 1 + min(self._shape.steps, COMPARED)):
            turns.drive(number, number + 1)
            seen.append(turns.seen())
        runs = root.runs() - before
        root.dispose()
        return Opened(seen, runs)

    def warm(self) -> Ready:
        """Build what the portions are timed on, and run one that is not."""
        self._begin()
        self._portion()
        return Ready()

    def timed(self, portions: int) -> Timed:
        seconds, runs = [], []
        # Garbage of before is not this portion's; garbage of its own is.
        gc.collect()
        for _ in range(portions):
            if self._shape.creates:
                self.close()
                self._begin()
                gc.collect()
            before = self._runs()
            seconds.append(self._portion())
            runs.append(self._runs() - before)
        assert self._turns is not None
        return Timed(seconds, runs, self._turns.seen())

    def close(self) -> None:
        if self._root is not None:
            self._root.dispose()
        self._root = self._turns = None

    def _begin(self) -> None:
        opened = self._open()
        self._root = Counting(opened) if self._counted else opened
        self._turns = self._shape.build(self._root)
        self._next = 1

    def _portion(self) -> float:
        assert self._turns is not None
        drive, begin = self._turns.drive, self._next
        self._next = end = begin + self._shape.steps
        now = self._now
        started = now()
        drive(begin, end)
        return now() - started

    def _runs(self) -> int:
        return self._root.runs() if isinstance(self._root, Counting) else 0
