"""The differential harness: the engine and the naive model play the same random schedules.

After every frame each verdict is compared with the naive model: the engine accepts nothing that the model refuses, the
seqs are the same, and each rejection beyond the model belongs to a listed over-approximation (`approximations`), which
is counted. Reads are compared with folding (C11), and at the end the history oracle reads the stored file. A schedule
follows from its seed alone.

    python -m headwater.testing.differential.harness --seed 4711     # play one schedule and show it if it fails
    python -m headwater.testing.differential.harness --seeds 20000   # play many and print the rates
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from headwater.clock import VirtualClock
from headwater.engine.store.sqlite import SqliteStore
from headwater.protocol.commit import Commit, Frame
from headwater.testing.differential.agreement import Disagreement
from headwater.testing.differential.approximations import KINDS
from headwater.testing.differential.describe import described, unusual
from headwater.testing.differential.player import Player
from headwater.testing.differential.schedules import Generator, Look, Profile, Step, Submit


@dataclass(slots=True)
class Summary:
    """The results of a run of schedules."""

    schedules: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.failures

    def __str__(self) -> str:
        counts = self.counts
        judged = max(1, counts["accepted"] + counts["rejected"])
        lines = [
            f"{self.schedules} schedules, {counts['frames']} frames, {counts['commits']} commits:",
            f"  accepted {counts['accepted']}, rejected {counts['rejected']}, replayed {counts['replayed']}, "
            f"frames outside the protocol {counts['refused frames']}, reads compared {counts['reads']}",
            f"  disagreements {len(self.failures)}",
            f"  rejected although the naive model admits: {counts['extra']} ({counts['extra'] / judged:.3%})",
        ]
        lines += [
            f"    {kind:<26}{counts[kind]:>8}  {counts[kind] / judged:8.3%}  {why}" for kind, why in KINDS.items()
        ]
        return "\n".join([*lines, *map(str, self.failures)])


@dataclass(frozen=True, slots=True)
class Failure:
    """A schedule on which engine and naive model disagree."""

    seed: int
    message: str
    profile: Profile
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        shown = "\n".join(f"  {number}. {described(step)}" for number, step in enumerate(self.steps, 1))
        return (
            f"seed {self.seed}: {self.message}\n"
            f"repeat it with: python -m headwater.testing.differential.harness --seed {self.seed}\n"
            f"limits other than the defaults: {unusual(self.profile.limits)}\n"
            f"the steps that are needed:\n{shown}"
        )


def run(
    seeds: int,
    start: int = 0,
    progress: Callable[[int, Summary], object] | None = None,
    *,
    stop_at: int = 1,
) -> Summary:
    """Play the schedules of `seeds` seeds from `start` on; end early after `stop_at` failures."""
    summary = Summary()
    for seed in range(start, start + seeds):
        failure = play(seed, summary.counts)
        summary.schedules += 1
        if failure is not None:
            summary.failures.append(failure)
            if len(summary.failures) >= stop_at:
                break
        if progress is not None:
            progress(seed, summary)
    return summary


def play(seed: int, counts: Counter[str] | None = None) -> Failure | None:
    """Play the schedule of one seed. None: engine and naive model agree."""
    rng = VirtualClock(seed=seed).randomness("schedule")
    profile = Profile.draw(rng)
    player = _player(seed, profile, counts)
    generator = Generator(rng, profile, player.naive)
    steps: list[Step] = []
    try:
        for _ in range(profile.steps):
            steps.append(generator.next_step())
            outcomes = player.do(steps[-1])
            if isinstance(steps[-1], Submit):
                for (session, frame), verdicts in zip(steps[-1].batch, outcomes, strict=True):
                    deceived = generator.answered(session, frame, verdicts)
                    if deceived is not None:
                        raise Disagreement(f"C1: {session} told the truth and was deceived: {deceived}")
        steps.append(Look(rng.randrange(player.naive.last_seq + 1)))
        player.do(steps[-1])
        player.verify_history()
    except Disagreement as found:
        return Failure(seed, str(found), profile, shortened(seed, profile, steps))
    except Exception as error:
        # Not an answer but a crash: it goes on to the caller, with the command that repeats it.
        error.add_note(f"in a schedule: python -m headwater.testing.differential.harness --seed {seed}")
        raise
    finally:
        player.close()
    return None


def replay(seed: int, profile: Profile, steps: Iterable[Step], counts: Counter[str] | None = None) -> str | None:
    """Play given steps. Return the disagreement, or None."""
    player = _player(seed, profile, counts)
    try:
        for step in steps:
            player.do(step)
        player.verify_history()
    except Disagreement as found:
        return str(found)
    finally:
        player.close()
    return None


def shortened(seed: int, profile: Profile, steps: Sequence[Step]) -> tuple[Step, ...]:
    """Fewer steps, frames and commits that still fail: each is left out if the failure stays without it."""
    kept = list(steps)
    if replay(seed, profile, kept) is None:
        return tuple(kept)
    at = len(kept) - 1
    while at >= 0:
        for without in _without(kept[at]):
            candidate = [*kept[:at], *without, *kept[at + 1 :]]
            if replay(seed, profile, candidate) is not None:
                kept = candidate
                if without:
                    at += 1  # The same step again: more of it may be left out.
                break
        at -= 1
    return tuple(kept)


def _without(step: Step) -> Iterator[list[Step]]:
    """Smaller forms of a step, the smallest first."""
    yield []
    if isinstance(step, Submit):
        for place, (session, frame) in enumerate(step.batch):
            for fewer in _smaller(frame):
                kept = ((session, fewer),) if fewer else ()
                batch = (*step.batch[:place], *kept, *step.batch[place + 1 :])
                if batch:
                    yield [Submit(batch)]


def _smaller(frame: Frame) -> Iterator[tuple[Commit, ...]]:
    """The frame without one commit, or without one part of one commit."""
    for place, commit in enumerate(frame):
        before, after = tuple(frame[:place]), tuple(frame[place + 1 :])
        yield (*before, *after)
        for name in ("operations", "reads", "preconditions", "events", "records", "handled"):
            parts = () if commit.results else getattr(commit, name)
            for cut in range(len(parts)):
                fewer = {name: (*parts[:cut], *parts[cut + 1 :])}
                yield (*before, msgspec.structs.replace(commit, **fewer), *after)
        if len(commit.results) > 1:
            count = commit.results[-1].operations
            shorter = {"operations": commit.operations[:-count], "results": commit.results[:-1]}
            yield (*before, msgspec.structs.replace(commit, **shorter), *after)


def _player(seed: int, profile: Profile, counts: Counter[str] | None) -> Player:
    store = SqliteStore(":memory:", synchronous="OFF")
    return Player(store, profile, VirtualClock(seed=seed), Counter() if counts is None else counts)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m headwater.testing.differential.harness", description=__doc__)
    parser.add_argument("--seed", type=int, help="play this one schedule")
    parser.add_argument("--seeds", type=int, default=1_000, help="how many schedules to play")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    chosen = parser.parse_args(arguments)
    if chosen.seed is not None:
        summary = run(1, chosen.seed)
    else:
        summary = run(chosen.seeds, chosen.start)
    sys.stdout.write(f"{summary}\n")
    return 0 if summary.ok else 1


if __name__ == "__main__":
    sys.exit(main())
