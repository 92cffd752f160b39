"""A process for each contender, and the time it may take.

A library that was stopped in the middle is not fit for another shape, and one that overflows its stack takes
the process along. So each contender has its own: it is killed when a shape takes too long, and started again
for the next. The processes take turns and never work at once.
"""

from __future__ import annotations

import gc
import multiprocessing
import sys
import threading
import traceback
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Final

from bench.reactive.catalogue import ENTRANTS, EXACT, SHAPES
from bench.reactive.contender import PLAIN_RECURSION_LIMIT, Entrant, NotAvailable, Shape
from bench.reactive.measure import Failed, Measuring, Opened, Ready, Timed

# Seconds for each of: building a shape and comparing its answers, building it again, one turn of timed portions.
LIMIT: Final = 8.0
START_LIMIT: Final = 60.0
STACK: Final = 1 << 29

Answer = Ready | Opened | Timed | Failed


class Missing(Exception):
    """The contender does not run here at all."""


class DidNotFinish(Exception):
    """The shape was too much for the contender, or its answer was wrong. The text says which."""


class ContenderProcess:
    """The parent's end. Started when it is first needed and after each time it had to be killed."""

    def __init__(self, entrant: Entrant) -> None:
        self.entrant = entrant
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None

    def check(self, shape: Shape) -> Opened:
        """Build the shape, compare, and build it again, ready for `timed`."""
        opened = self._ask(shape.name)
        assert isinstance(opened, Opened)
        self._await(LIMIT)
        return opened

    def timed(self, portions: int) -> Timed:
        answer = self._ask(portions)
        assert isinstance(answer, Timed)
        return answer

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
        self._process = self._pipe = None

    def start(self) -> None:
        """Raises `Missing` if the contender cannot be opened here."""
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, self.entrant.name), daemon=True)
        self._process.start()
        theirs.close()
        try:
            self._await(START_LIMIT)
        except DidNotFinish as failure:
            raise Missing(str(failure)) from failure

    def _ask(self, request: str | int) -> Answer:
        if self._pipe is None:
            self.start()
        assert self._pipe is not None
        self._pipe.send(request)
        return self._await(LIMIT)

    def _await(self, limit: float) -> Answer:
        assert self._pipe is not None
        if not self._pipe.poll(limit):
            self.close()
            raise DidNotFinish(f"did not finish in {limit:g} s")
        try:
            answer: Answer = self._pipe.recv()
        except EOFError:
            self.close()
            raise DidNotFinish("did not finish: its process died") from None
        if isinstance(answer, Failed):
            self.close()
            raise DidNotFinish(answer.why)
        return answer


def serve(pipe: Connection, name: str) -> None:
    """The child's end: serves requests until it is killed."""
    entrant = next(entrant for entrant in (*ENTRANTS, EXACT) if entrant.name == name)
    if entrant.recursion_limit <= PLAIN_RECURSION_LIMIT:
        answer_requests(pipe, entrant)
        return
    sys.setrecursionlimit(entrant.recursion_limit)
    threading.stack_size(STACK)
    thread = threading.Thread(target=answer_requests, args=(pipe, entrant))
    thread.start()
    thread.join()


def answer_requests(pipe: Connection, entrant: Entrant) -> None:
    if not answered(pipe, lambda: open_once(entrant)):
        return
    # What the imports left behind is not searched for garbage again and again at this contender's expense.
    gc.collect()
    gc.freeze()
    shapes = {shape.name: shape for shape in SHAPES}
    measuring: Measuring | None = None
    going_on = True
    while going_on:
        try:
            request = pipe.recv()
        except EOFError:
            return
        if isinstance(request, str):
            if measuring is not None:
                measuring.close()
            counted = entrant.name == EXACT.name
            measuring = Measuring(shapes[request], entrant.open, counted=counted, waits=entrant.waits)
            going_on = answered(pipe, measuring.check) and answered(pipe, measuring.warm)
        else:
            assert measuring is not None
            going_on = answered(pipe, partial(measuring.timed, request))


def open_once(entrant: Entrant) -> Ready:
    entrant.open().dispose()
    return Ready()


def answered(pipe: Connection, work: Callable[[], Answer]) -> bool:
    """Send what the work answers, or why it does not; whether to go on."""
    try:
        pipe.send(work())
    except NotAvailable as missing:
        pipe.send(Failed(str(missing)))
        return False
    except Exception as failure:
        last = traceback.extract_tb(failure.__traceback__)[-1]
        pipe.send(Failed(f"{type(failure).__name__}: {failure} (in {last.name})"))
        return False
    return True
