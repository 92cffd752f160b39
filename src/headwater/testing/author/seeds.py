"""`@simulated`: an author's test under many seeds.

This module decides which seeds run, runs one seed from its beginning to its end, and reports a failing one: its number,
the command that runs it alone, and the last lines of its trace. Every seed has a world of its own.

A test may take more than `sim`: the arguments of its framework (parameters, fixtures, the object that it is a method
of) are the same for all of its seeds.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import os
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from types import CodeType, MappingProxyType, TracebackType
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar, overload

from headwater.clock import VirtualClock
from headwater.errors import AuthoringError
from headwater.testing.author.faults import FAULTS, checked
from headwater.testing.author.loop import VirtualLoop
from headwater.testing.author.simulation import Simulation
from headwater.testing.disk.faulty_disk import arranged_faults_unreported

P = ParamSpec("P")
S = TypeVar("S")

Test = Callable[[Simulation], Awaitable[None]]
Progress = Callable[[int, int], object]
"""Hears how many seeds are done, and how many there are."""

ONE: Final = "HEADWATER_SEED"
COUNT: Final = "HEADWATER_SEEDS"
SCALE: Final = "HEADWATER_RANDOM_SCALE"
SHOWN: Final = 25
"""Lines of the end of the trace, and unawaited failures, that are shown of a failing seed."""
CLOSING_TURNS: Final = 10
_ASYNCIO: Final = os.path.dirname(asyncio.__file__)
DEEPEST: Final = 100
"""Coroutines that await one another, as far as they are followed."""


class Simulated:
    """A test, and how it is to be run."""

    __slots__ = ("faults", "fn", "name", "seeds")

    def __init__(self, fn: Callable[..., Awaitable[None]], seeds: int, faults: tuple[str, ...]) -> None:
        self.fn = fn
        self.seeds = seeds
        self.faults = faults
        self.name = _simulation_of(fn)  # its name for the world

    def signature(self) -> inspect.Signature:
        """The parameters that its framework has to fill."""
        whole = inspect.signature(self.fn)
        others = [each for each in whole.parameters.values() if each.name != self.name]
        return whole.replace(parameters=others, return_annotation=None)

    def chosen(self) -> range:
        """The seeds to run: all of them, unless the environment says which one, or how many."""
        one, count, scale = (os.environ.get(name) for name in (ONE, COUNT, SCALE))
        if one is not None:
            return range(int(one), int(one) + 1)
        if count is not None:
            return range(max(1, int(count)))
        return range(max(1, round(self.seeds * float(scale or 1))))

    def run(
        self,
        progress: Progress | None = None,
        *,
        hint: str = "pytest",
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] = MappingProxyType({}),
    ) -> int:
        """Run the seeds one after the other, and answer how many there were. The first that fails ends it."""
        __tracebackhide__ = True
        chosen = self.chosen()
        given = self.signature().bind(*args, **kwargs).arguments  # By name: `sim` may stand anywhere among them.

        @functools.wraps(self.fn)
        def test(sim: Simulation) -> Awaitable[None]:
            return self.fn(**given, **{self.name: sim})

        for done, seed in enumerate(chosen):
            if progress is not None:
                progress(done, len(chosen))
            run_seed(test, seed, self.faults, hint=hint)
        if progress is not None:
            progress(len(chosen), len(chosen))
        return len(chosen)


class Decorator(Protocol):
    """The result of `simulated(...)`: turns a test into one without the simulation."""

    @overload
    def __call__(self, fn: Callable[Concatenate[Simulation, P], Awaitable[None]], /) -> Callable[P, None]: ...
    @overload
    def __call__(
        self, fn: Callable[Concatenate[S, Simulation, P], Awaitable[None]], /
    ) -> Callable[Concatenate[S, P], None]: ...


def simulated(*, seeds: int = 200, faults: tuple[str, ...] = FAULTS) -> Decorator:
    """Run an async test under many seeds, each in a world of its own, on a virtual clock."""
    if isinstance(seeds, bool) or not isinstance(seeds, int) or seeds < 1:
        raise AuthoringError(f"simulated(seeds={seeds!r}): write how many, 1 or more")
    wanted = checked(faults)

    def decorate(fn: Any) -> Any:
        if not inspect.iscoroutinefunction(fn):
            raise AuthoringError(
                f"@simulated on {getattr(fn, '__name__', fn)!r}: write async def test_it(sim: Simulation) -> None"
            )
        test = Simulated(fn, seeds, wanted)

        def run(*args: Any, **kwargs: Any) -> None:
            __tracebackhide__ = True
            test.run(args=args, kwargs=kwargs)

        # Not by `functools.wraps`: a test framework would look through it and ask who gives it `sim`.
        run.__name__, run.__qualname__, run.__module__, run.__doc__ = (
            fn.__name__,
            fn.__qualname__,
            fn.__module__,
            fn.__doc__,
        )
        run.__dict__.update(fn.__dict__, place_as=fn, __simulated__=test, __signature__=test.signature())
        return run

    return decorate


def _simulation_of(fn: Callable[..., Awaitable[None]]) -> str:
    """The parameter that the simulation is given to: `sim`, or the first that is not the test's own object."""
    names = list(inspect.signature(fn).parameters)
    if "sim" in names:
        return "sim"
    found = next((name for name in names if name not in ("self", "cls")), None)
    if found is None:
        raise AuthoringError(
            f"@simulated on {getattr(fn, '__name__', fn)!r}, which takes nothing: write "
            "async def test_it(sim: Simulation) -> None"
        )
    return found


def run_seed(fn: Test, seed: int, faults: tuple[str, ...], *, hint: str = "pytest") -> str:
    """Run one seed, and return the digest of its trace. An error names the seed."""
    __tracebackhide__ = True
    with _collected_later(), arranged_faults_unreported():
        clock = VirtualClock(seed=seed)
        loop = VirtualLoop(clock, is_busy="delay" in faults)
        sim: list[Simulation] = []
        try:
            _run(fn, seed, faults, clock, loop, sim)
        except Exception as error:
            _explain(error, seed, sim, f"{ONE}={seed} {hint}")
            raise error.with_traceback(_trimmed(error.__traceback__, _code_of(fn))) from error.__cause__
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
        raise AssertionError(f"an error reached only the event loop: {unheard[0].get('message')}: {error!r}") from error


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

    loop.begin_clean_up()
    if not test.done():
        test.cancel()
    for sim in made:
        done(sim.close())
    done(end())
    done(loop.shutdown_asyncgens())


def _place(fn: Test, task: asyncio.Task[None]) -> str:
    """Return where a test waits: the line of it that awaits, and the innermost one."""
    waits: Any = task.get_coro()
    lines: list[traceback.FrameSummary] = []
    inside = False
    for _ in range(DEEPEST):
        frame = getattr(waits, "cr_frame", None)
        if frame is None:
            break
        inside = inside or frame.f_code is _code_of(fn)
        if inside:
            lines += traceback.extract_stack(frame, limit=1)
        waits = waits.cr_await
    if not lines:
        return "its end"
    first, last = lines[0], lines[-1]
    where = f"what line {first.lineno} of {os.path.basename(first.filename)} awaits: {first.line}"
    return where if last is first else f"{where} (in {last.name})"


def _code_of(fn: Test) -> CodeType | None:
    """The author's own function, whatever stands around it."""
    found: CodeType | None = getattr(inspect.unwrap(fn), "__code__", None)
    return found


def _trimmed(trace: TracebackType | None, code: CodeType | None) -> TracebackType | None:
    """A failure as the author's test shows it: without the frames that the loop puts around it."""
    steps: list[TracebackType] = []
    each = trace
    while each is not None:
        steps.append(each)
        each = each.tb_next
    for step in steps:
        if step.tb_frame.f_code is code:
            return step
    by_loop = [at for at, step in enumerate(steps) if step.tb_frame.f_code.co_filename.startswith(_ASYNCIO)]
    return steps[by_loop[-1] + 1] if by_loop and by_loop[-1] + 1 < len(steps) else trace


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
    """Collect garbage between seeds only: the moment of a collection is no part of a seed."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
