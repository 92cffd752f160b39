"""`@simulated`: an author's test under many seeds.

Owns which seeds run, how one of them runs from its beginning to its end, and what is said of one that fails: its
number, how to run it alone, and what happened last. Every seed has a world of its own; nothing is left of it.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final

from headwater.clock import VirtualClock
from headwater.errors import AuthoringError
from headwater.testing.author_faults import FAULTS, checked
from headwater.testing.author_loop import VirtualLoop
from headwater.testing.author_simulation import Simulation

Test = Callable[[Simulation], Awaitable[None]]
Progress = Callable[[int, int], object]
"""Hears how many seeds are done, and how many there are."""

ONE: Final = "HEADWATER_SEED"
COUNT: Final = "HEADWATER_SEEDS"
SCALE: Final = "HEADWATER_RANDOM_SCALE"
SHOWN: Final = 25
"""Lines of what happened last, and failures that nobody awaited, that are shown of a failing seed."""
CLOSING_TURNS: Final = 10
DEEPEST: Final = 100
"""Coroutines that await one another, as far as they are followed."""


class Simulated:
    """A test, and how it is to be run."""

    __slots__ = ("faults", "fn", "seeds")

    def __init__(self, fn: Test, seeds: int, faults: tuple[str, ...]) -> None:
        self.fn = fn
        self.seeds = seeds
        self.faults = faults

    def chosen(self) -> range:
        """The seeds to run: all of them, unless the environment says which one, or how many."""
        one, count, scale = (os.environ.get(name) for name in (ONE, COUNT, SCALE))
        if one is not None:
            return range(int(one), int(one) + 1)
        if count is not None:
            return range(max(1, int(count)))
        return range(max(1, round(self.seeds * float(scale or 1))))

    def run(self, progress: Progress | None = None, *, hint: str = "pytest") -> int:
        """Run the seeds one after the other, and answer how many there were. The first that fails ends it."""
        __tracebackhide__ = True
        chosen = self.chosen()
        for done, seed in enumerate(chosen):
            if progress is not None:
                progress(done, len(chosen))
            run_seed(self.fn, seed, self.faults, hint=hint)
        if progress is not None:
            progress(len(chosen), len(chosen))
        return len(chosen)


def simulated(*, seeds: int = 200, faults: tuple[str, ...] = FAULTS) -> Callable[[Test], Callable[[], None]]:
    """Run an async test under many seeds, each in a world of its own, on a virtual clock."""
    if isinstance(seeds, bool) or not isinstance(seeds, int) or seeds < 1:
        raise AuthoringError(f"simulated(seeds={seeds!r}): write how many, 1 or more")
    wanted = checked(faults)

    def decorate(fn: Test) -> Callable[[], None]:
        if not inspect.iscoroutinefunction(fn):
            raise AuthoringError(
                f"@simulated on {getattr(fn, '__name__', fn)!r}: write async def test_it(sim: Simulation) -> None"
            )
        test = Simulated(fn, seeds, wanted)

        def run() -> None:
            __tracebackhide__ = True
            test.run()

        # Not by `functools.wraps`: a test framework would look through it and ask who gives it `sim`.
        run.__name__, run.__qualname__, run.__module__, run.__doc__ = (
            fn.__name__,
            fn.__qualname__,
            fn.__module__,
            fn.__doc__,
        )
        run.__dict__.update(fn.__dict__, place_as=fn, __simulated__=test)
        return run

    return decorate


def run_seed(fn: Test, seed: int, faults: tuple[str, ...], *, hint: str = "pytest") -> str:
    """Run one seed, and answer the digest of what happened. An error says which seed it was."""
    __tracebackhide__ = True
    with _collected_later():
        clock = VirtualClock(seed=seed)
        loop = VirtualLoop(clock, is_busy="delay" in faults)
        sim: list[Simulation] = []
        try:
            _run(fn, seed, faults, clock, loop, sim)
        except Exception as error:
            _explain(error, seed, sim, f"{ONE}={seed} {hint}")
            raise
        finally:
            loop.close()
        return sim[0].trace.digest


def _run(
    fn: Test, seed: int, faults: tuple[str, ...], clock: VirtualClock, loop: VirtualLoop, made: list[Simulation]
) -> None:
    __tracebackhide__ = True
    unheard: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: unheard.append(context))

    async def main() -> None:
        __tracebackhide__ = True
        sim = Simulation(seed, faults, clock, loop)
        made.append(sim)
        await fn(sim)
        sim.check()

    test: asyncio.Task[None] = loop.create_task(main(), name="the test")
    loop.waits_for = lambda: _place(fn, test)
    try:
        loop.run_until_complete(test)
    finally:
        _clean_up(loop, made, test)
    if unheard:
        error = unheard[0].get("exception")
        raise AssertionError(f"nobody heard an error: {unheard[0].get('message')}: {error!r}") from error


def _clean_up(loop: VirtualLoop, made: list[Simulation], test: asyncio.Task[None]) -> None:
    """End everything that the test left behind, so that nothing of it is found by the next one."""

    async def end() -> None:
        own = asyncio.current_task()
        for _ in range(CLOSING_TURNS):
            left = [task for task in asyncio.all_tasks() if task is not own]
            if not left:
                return
            for task in left:
                task.cancel()
            await asyncio.wait(left, timeout=1)

    def done(work: Coroutine[Any, Any, None]) -> None:
        loop.run_until_complete(loop.create_task(work))

    if not test.done():
        test.cancel()
    for sim in made:
        done(sim.close())
    done(end())
    done(loop.shutdown_asyncgens())


def _place(fn: Test, task: asyncio.Task[None]) -> str:
    """Where a test waits: the line of it that awaits, and what that came to."""
    waits: Any = task.get_coro()
    lines: list[traceback.FrameSummary] = []
    inside = False
    for _ in range(DEEPEST):
        frame = getattr(waits, "cr_frame", None)
        if frame is None:
            break
        inside = inside or frame.f_code is fn.__code__
        if inside:
            lines += traceback.extract_stack(frame, limit=1)
        waits = waits.cr_await
    if not lines:
        return "its end"
    first, last = lines[0], lines[-1]
    where = f"what line {first.lineno} of {os.path.basename(first.filename)} awaits: {first.line}"
    return where if last is first else f"{where} (in {last.name})"


def _explain(error: Exception, seed: int, made: list[Simulation], command: str) -> None:
    error.add_note(f"seed {seed}. To run only this one: {command}")
    for sim in made:
        told = [f"  {failure.node}: {failure.error}" for failure in sim.failures()]
        if told:
            error.add_note("\n".join(["told on the error channel:", *told[-SHOWN:]]))
        lines = [f"  {line}" for line in sim.trace.lines]
        error.add_note("\n".join(["what happened last:", *lines[-SHOWN:]]))


@contextmanager
def _collected_later() -> Iterator[None]:
    """Memory is let go between seeds: when the collector runs is no part of what a seed decides."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
