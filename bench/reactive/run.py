"""Takes turns over all shapes and contenders, and prints what came out.

A figure is microseconds per run: the time of a portion by the runs that the exact graph needs for it, the same
divisor for all, and the minimum over all portions of all rounds. Who does not finish a shape, or finishes it
with a wrong answer, is printed so, and the shape is left out of the mean of that pair.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from bench.figures import Figures, note, print_missing
from bench.reactive import headwater_contender
from bench.reactive.catalogue import ENTRANTS, EXACT, GROWTH, HEADWATER, SHAPES
from bench.reactive.contender import Shape
from bench.reactive.measure import Opened, Timed
from bench.reactive.processes import ContenderProcess, DidNotFinish, Missing

ROUNDS: Final = 4
PORTIONS: Final = 3
# How many times faster than whom, by geometric mean. Of a library with two ways, the faster one for each shape.
GOALS: Final = (("reaktiv", ("reaktiv",), 4.0), ("shiny", ("shiny",), 8.0), ("observ", ("observ", "observ sync"), 1.0))
# Time per run at four times the depth by that at one; a little more than 1 for caches and noise.
MOST_GROWTH: Final = 1.25
DORMANT: Final = "dormant with two reads"
MOST_DORMANT: Final = 2_048


@dataclass(slots=True)
class Results:
    """By shape and contender: microseconds per run, runs by exact runs, or why there are none."""

    micros: dict[tuple[str, str], float] = field(default_factory=dict)
    runs: dict[tuple[str, str], float] = field(default_factory=dict)
    why_not: dict[tuple[str, str], str] = field(default_factory=dict)


def run(figures: Figures) -> None:
    results = Results()
    processes = {entrant.name: ContenderProcess(entrant) for entrant in ENTRANTS}
    exact = ContenderProcess(EXACT)
    try:
        missing = [name for name, process in processes.items() if not started(process)]
        present = [process for name, process in processes.items() if name not in missing]
        exact.start()
        for number, shape in enumerate(SHAPES, 1):
            note(f"  {shape.name} ({number} of {len(SHAPES)})")
            measure(shape, exact, present, results)
            print_shape(figures, shape, [process.entrant.name for process in present], results)
    finally:
        for process in (*processes.values(), exact):
            process.close()
    print_growth(figures, results)
    print_means(figures, results)
    print_own(figures)
    # Who is missing has to be seen, not only to have been said above.
    for name in missing:
        note(f"  !! {name.upper()} WAS MISSING FROM THIS RUN")


def started(process: ContenderProcess) -> bool:
    try:
        process.start()
    except Missing as why:
        note(f"  !! {process.entrant.name.upper()} IS NOT AVAILABLE: {why}")
        process.close()
        return False
    return True


# ---- measuring -----------------------------------------------------------------------------------


def measure(shape: Shape, exact: ContenderProcess, present: Sequence[ContenderProcess], results: Results) -> None:
    expected = exact.check(shape)
    racing = []
    for process in present:
        key = (shape.name, process.entrant.name)
        try:
            results.runs[key] = compared(process.check(shape), expected)
            racing.append(process)
        except DidNotFinish as why:
            results.why_not[key] = str(why)
    for _ in range(ROUNDS):
        right = exact.timed(PORTIONS)
        for process in list(racing):
            key = (shape.name, process.entrant.name)
            try:
                micros = per_run(shape, process.timed(PORTIONS), right)
                results.micros[key] = min(micros, results.micros.get(key, math.inf))
            except DidNotFinish as why:
                results.why_not[key] = str(why)
                results.micros.pop(key, None)
                racing.remove(process)


def compared(found: Opened, expected: Opened) -> float:
    """Runs by exact runs, if what the effects saw is right."""
    if found.seen != expected.seen:
        update = next(n for n, (one, two) in enumerate(zip(found.seen, expected.seen, strict=True)) if one != two)
        raise DidNotFinish(f"a wrong answer after update {update}")
    return found.runs / expected.runs if expected.runs else 1.0


def per_run(shape: Shape, found: Timed, right: Timed) -> float:
    if found.seen != right.seen:
        raise DidNotFinish("a wrong answer in a timed portion")
    units = [shape.creates] * PORTIONS if shape.creates else right.runs
    return min(seconds / unit for seconds, unit in zip(found.seconds, units, strict=True)) * 1e6


# ---- printing ------------------------------------------------------------------------------------


def print_shape(figures: Figures, shape: Shape, names: Sequence[str], results: Results) -> None:
    ours = results.micros.get((shape.name, HEADWATER))
    for name in names:
        key = (shape.name, name)
        title = f"reactive.{slug(shape.name)}.{slug(name)}"
        if key in results.why_not:
            print_missing(title, "us/run", results.why_not[key])
            if name.startswith(HEADWATER):
                figures.missed.append(title)  # Every shape finishes.
            continue
        micros = results.micros[key]
        compared_to_us = ours is not None and name != HEADWATER
        figures.report(
            title,
            micros,
            "us/run",
            against=HEADWATER if compared_to_us else "",
            ratio=micros / ours if compared_to_us and ours is not None else None,
        )
        if results.runs[key] != 1.0:
            # Where a reader is about to drop what it read, that may still run once: it was looked at when it changed.
            exact = next(entrant for entrant in ENTRANTS if entrant.name == name).exact and not shape.rewires
            figures.report(f"{title}.runs", results.runs[key], "times the exact count", at_most=1.0 if exact else None)


def print_growth(figures: Figures, results: Results) -> None:
    """Time per run at twice and four times the depth. Constant is 1; who walks paths grows without bound."""
    for group, shapes in GROWTH.items():
        for name in (entrant.name for entrant in ENTRANTS):
            base = results.micros.get((shapes[0], name))
            if base is None:
                continue
            for times, shape in zip((2, 4), shapes[1:], strict=True):
                title = f"reactive.growth.{group}.{times}x.{slug(name)}"
                micros = results.micros.get((shape, name))
                if micros is None:
                    print_missing(title, "us/run", results.why_not.get((shape, name), "not measured"))
                    continue
                at_most = MOST_GROWTH if name == HEADWATER else None
                figures.report(title, micros / base, "times", against=f"{shapes[0]}, per run", at_most=at_most)


def print_means(figures: Figures, results: Results) -> None:
    """Geometric means over the shapes that both finish, for each group and for all."""
    groups = list(dict.fromkeys(shape.group for shape in SHAPES))
    for peer, ways, goal in GOALS:
        pairs = {shape.name: pair(shape, ways, results) for shape in SHAPES if shape.in_mean}
        both = {name: found for name, found in pairs.items() if found is not None}
        left_out = [name for name in pairs if name not in both]
        title = f"reactive.faster_than.{slug(peer)}"
        if not any((shape.name, HEADWATER) in results.micros for shape in SHAPES):
            print_missing(title, "us/run", "headwater is missing: the goal is not met")
            figures.missed.append(title)
            continue
        if not both:
            print_missing(title, "us/run", f"{peer} finished no shape that headwater finished: the goal is not met")
            figures.missed.append(title)
            continue
        if left_out:
            note(f"  !! left out of the mean against {peer}, since one of the two has no figure: {', '.join(left_out)}")
        for group in groups:
            ratios = [both[shape.name] for shape in SHAPES if shape.group == group and shape.name in both]
            if ratios:
                against = f"{peer}, {len(ratios)} shapes"
                figures.report(f"{title}.{group}", geometric_mean(ratios), "times", against=against)
        against = f"{peer}, {len(both)} of {len(pairs)} shapes"
        figures.report(title, geometric_mean(list(both.values())), "times", against=against, at_least=goal)


def pair(shape: Shape, ways: Sequence[str], results: Results) -> float | None:
    """How many times longer the peer takes than headwater, by the peer's fastest way."""
    ours = results.micros.get((shape.name, HEADWATER))
    theirs = [micros for way in ways if (micros := results.micros.get((shape.name, way))) is not None]
    return min(theirs) / ours if ours is not None and theirs else None


def geometric_mean(ratios: Sequence[float]) -> float:
    return math.exp(sum(math.log(ratio) for ratio in ratios) / len(ratios))


def print_own(figures: Figures) -> None:
    """Where the time of a run goes, and what a node weighs."""
    for step, micros in headwater_contender.steps().items():
        figures.report(f"reactive.step.{slug(step)}", micros, "us/run")
    for kind, weight in headwater_contender.memory().items():
        at_most = MOST_DORMANT if kind == DORMANT else None
        figures.report(f"reactive.memory.{slug(kind)}", weight, "bytes/node", at_most=at_most)


def slug(text: str) -> str:
    return text.replace(" ", "_")
