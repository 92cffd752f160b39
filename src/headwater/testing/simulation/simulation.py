"""A server and several replicas in one process, in virtual time, with everything going wrong that can: the same seed
gives the same history.

    with Simulation(seed=7) as sim:             # faults, authors and limits drawn from the seed
        sim.play()                              # random work under random faults, then healing, then every check

    with Simulation(seed=7, replicas=2, faults=NO_FAULTS) as sim:
        ann, bob = sim.replicas
        ann.watch(DocKey("space", "cart"))
        sim.settle()
        ann.transact("add", lambda t: t.write(DocKey("space", "cart"), append((), ["tea"])))
        sim.offline(bob, for_us=60_000_000)
        sim.crash(sim.server)
        sim.settle()                            # heals, waits, and raises RuleBroken if a rule does not hold

`python -m headwater.testing.simulation.simulation --seed N` replays one seed and prints its trace.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final

from headwater.clock import Random, VirtualClock
from headwater.engine import Limits
from headwater.errors import AuthoringError, HeadwaterError
from headwater.testing.disk.machine import harness
from headwater.testing.network import Network, Weather
from headwater.testing.simulation.faults import NO_FAULTS, FaultInjector, Faults
from headwater.testing.simulation.final_checks import check_all
from headwater.testing.simulation.operator import Operator
from headwater.testing.simulation.oracle import Oracle
from headwater.testing.simulation.process import ReplicaProcess
from headwater.testing.simulation.server import READER, STRANGER, WRITERS, ServerProcess
from headwater.testing.simulation.trace import COVERED, RuleBroken, Trace
from headwater.testing.simulation.workload import Author, Load

__all__ = ["NO_FAULTS", "Faults", "Load", "RuleBroken", "Simulation", "Summary", "Weather", "run_seed", "run_seeds"]

PLAY_US: Final = 3 * 24 * 3_600_000_000
HEAL_US: Final = 600_000_000
PASSING_US: Final = 4_000_000
MAX_STEPS: Final = 200_000


def small_limits(draws: Random) -> Limits:
    """Limits so small that every mechanism behind them works, even in a short history."""
    return Limits(
        sync_patches=draws.choice((1, 2, 16)),
        sync_window=draws.choice((1, 2, 8)),
        cached_sessions=draws.choice((1, 2, 4_096)),
        session_commits=draws.choice((1, 2, 512)),
        session_rejections=draws.choice((1, 512)),
        snapshot_patches=draws.choice((2, 16)),
        snapshots_fresh=draws.choice((2, 16)),
        marks_patches=draws.choice((2, 64)),
        heads_commits=draws.choice((2, 16, 1_024)),
        group_commits=draws.choice((1, 256)),
        cache_bytes=draws.choice((1, *[64 * 1024 * 1024] * 4)),
        follow_documents=draws.choice((1, 1, 2, 10_000, 10_000, 10_000)),
    )


def _drawn_users(count: int, draws: Random) -> list[str]:
    """Writers, some of them the same, and now and then one who may not write, or not even read."""
    users = [draws.choice(WRITERS[: number + 1]) for number in range(count)]
    if count > 1 and draws.random() < 0.4:
        users[-1] = draws.choice((READER, READER, STRANGER))
    return users


class Simulation:
    """One space, its server and its replicas."""

    __slots__ = (
        "_authors",
        "_forks",
        "_misfortune",
        "_operator",
        "_stack",
        "_steps",
        "clock",
        "network",
        "replicas",
        "server",
        "trace",
    )

    def __init__(
        self,
        *,
        seed: int,
        replicas: int | None = None,
        users: Sequence[str] | None = None,
        faults: Faults | None = None,
        load: Load | None = None,
        limits: Limits | None = None,
        weather: Weather | None = None,
        keeps_derived: bool | None = None,
    ) -> None:
        """Arguments that are left out are drawn from the seed. `users` are those of the replicas, one for each."""
        self._stack = ExitStack()
        self._stack.enter_context(harness())
        self.clock = clock = VirtualClock(seed=seed)
        draws = clock.randomness("simulation")
        self.trace = Trace(clock, seed)
        weather = weather or Weather(slow_share=draws.choice((0.0, 0.05, 0.3)))
        self.network = Network(clock, clock.randomness("network"), weather)
        limits = limits or small_limits(draws)
        self.server = ServerProcess(
            clock, clock.randomness("server"), self.network, Oracle(self.trace), self.trace, limits
        )
        count = replicas if replicas is not None else draws.randint(2, 3) if users is None else len(users)
        if not 1 <= count <= len(WRITERS):
            raise AuthoringError(f"Simulation(replicas={count}): use 1 to {len(WRITERS)}")
        users = users or _drawn_users(count, draws)
        self.replicas = [
            ReplicaProcess(
                f"r{number}",
                user,
                clock,
                clock.randomness(f"r{number}"),
                self.network,
                self.server,
                self.trace,
                keeps_derived=keeps_derived,
            )
            for number, user in enumerate(users)
        ]
        for process in self.replicas:
            process.wants.follow_documents = limits.follow_documents
        if draws.random() < 0.15:
            self.replicas[0].conversation.doubles_share = 0.3
        load = load or Load()
        self._authors = [
            Author(process, clock, clock.randomness(f"author of {process.name}"), load, users)
            for process in self.replicas
        ]
        self._operator = Operator(clock, clock.randomness("operator"), self.server, self.replicas, self.trace)
        self._forks = draws.choice(load.forks)
        self._misfortune = FaultInjector(
            clock, clock.randomness("faults"), faults or Faults(), self.network, self.server, self.replicas, self.trace
        )
        self._steps = 0

    def __enter__(self) -> Simulation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self.server.is_up:
            self.server.die("the simulation is over")
        self._stack.close()

    @property
    def oracle(self) -> Oracle:
        """The truth: all that is durable, since the space was founded or last restored."""
        return self.server.oracle

    # ---- time --------------------------------------------------------------------------------------

    def advance(self, us: int) -> None:
        """Let so much time pass, and everything that is due in it."""
        self._run(self.clock.now_us() + us, lambda: False)

    def _run(self, until_us: int, is_done: Callable[[], bool]) -> bool:
        """Fire due timers, one moment after the other. False: the time was over first."""
        clock = self.clock
        while not is_done():
            due_us = clock.next_timer_us()
            if due_us is None or due_us > until_us:
                clock.advance(max(0, until_us - clock.now_us()))
                return is_done()
            clock.advance(max(0, due_us - clock.now_us()))
            self.trace.check()
            self._steps += 1
            if self._steps > MAX_STEPS:
                self.trace.broken("progress", "loop", f"{MAX_STEPS} steps did not come to an end")
                self.trace.check()
        return True

    # ---- driving it by hand ------------------------------------------------------------------------

    def offline(self, process: ReplicaProcess, *, for_us: int) -> None:
        """Take the network from a replica for a while. It goes on with its local state."""
        process.go_offline()
        self.clock.call_at(self.clock.now_us() + for_us, process.go_online)

    def crash(self, process: ReplicaProcess | ServerProcess, *, down_us: int = 1_000_000) -> None:
        """Kill a process: a replica forgets everything, the server knows the content of its disk."""
        if isinstance(process, ServerProcess):
            if process.is_up:
                process.crash("killed", down_us)
        else:
            process.crash()

    def partition(self, process: ReplicaProcess, *, for_us: int) -> None:
        """Let nothing pass between a replica and the server, unnoticed."""
        self.network.partition(process)
        self.clock.call_at(self.clock.now_us() + for_us, lambda: self.network.mend(process))

    # ---- a whole history ---------------------------------------------------------------------------

    def play(self) -> None:
        """Random work under random faults; then healing and every check."""
        for author in self._authors:
            author.start()
        self._misfortune.schedule()
        self._operator.schedule(self._forks, PASSING_US)
        self._run(self.clock.now_us() + PLAY_US, lambda: all(author.is_done for author in self._authors))
        for author in self._authors:
            author.stop()
        self.settle()

    def settle(self) -> None:
        """Heal everything, wait until nothing is left to do, and check all rules."""
        self._misfortune.end()
        self._operator.end()
        self.network.calm()
        self.server.heal()
        for process in self.replicas:
            process.calm()
        self._run(self.clock.now_us() + HEAL_US, lambda: all(process.is_settled for process in self.replicas))
        self.advance(2_000_000)
        try:
            check_all(self.server, self.replicas, self.oracle, self.trace)
        except HeadwaterError as error:
            self.trace.broken("server", "checks", f"{type(error).__name__} when all was looked at: {error}")
        self.trace.check()


# ---- many histories --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The results of a run of seeds."""

    seeds: int
    commits: int
    attempts: int
    restarts: int
    virtual_us: int
    broken: tuple[RuleBroken, ...]
    counts: Counter[str] = field(default_factory=Counter)  # exercised mechanisms, and how often

    def __str__(self) -> str:
        hours = self.virtual_us / 3_600_000_000
        text = (
            f"{self.seeds} histories, {hours:,.0f} hours of virtual time: {self.commits} commits landed of "
            f"{self.attempts} attempts, {self.restarts} restarts of the server, {len(self.broken)} broken"
        )
        covered = ", ".join(f"{what}: {self.counts[what]}" for what in COVERED)
        return "\n".join([text, covered, *map(str, self.broken)])


def run_seed(seed: int, *, load: Load | None = None) -> Simulation:
    """Play one seed. Raises RuleBroken; anything else that is raised is a defect, too."""
    with Simulation(seed=seed, load=load) as sim:
        sim.play()
    return sim


def run_seeds(
    count: int,
    start: int = 0,
    progress: Callable[[int, int], object] | None = None,
    *,
    stop_at: int = 10,
    load: Load | None = None,
) -> Summary:
    """Play `count` seeds from `start`, until `stop_at` of them broke a rule."""
    broken: list[RuleBroken] = []
    counts: Counter[str] = Counter()
    seeds = commits = attempts = restarts = virtual_us = 0
    for seed in range(start, start + count):
        with Simulation(seed=seed, load=load) as sim:
            try:
                sim.play()
            except RuleBroken as error:
                broken.append(error)
        seeds += 1
        commits += len(sim.oracle.log)
        attempts += sum(len(p.past_attempts) + len(p.books.attempts) for p in sim.replicas)
        restarts += sim.server.restarts - 1
        virtual_us += sim.clock.monotonic_us()
        counts += sim.trace.counts
        if progress is not None:
            progress(seeds, len(broken))
        if len(broken) >= stop_at:
            break
    return Summary(
        seeds=seeds,
        commits=commits,
        attempts=attempts,
        restarts=restarts,
        virtual_us=virtual_us,
        broken=tuple(broken),
        counts=counts,
    )


def main(arguments: Sequence[str]) -> int:
    """Replay one seed and print its trace, or run many: `--seed N`, or `--seeds COUNT [--start N]`."""
    options = dict(zip(arguments[::2], arguments[1::2], strict=False))
    if not options or set(options) - {"--seed", "--seeds", "--start"}:
        sys.stderr.write("usage: --seed N | --seeds COUNT [--start N]\n")
        return 2
    if "--seed" not in options:
        summary = run_seeds(int(options.get("--seeds", "100")), int(options.get("--start", "0")))
        sys.stdout.write(f"{summary}\n")
        return 1 if summary.broken else 0
    with Simulation(seed=int(options["--seed"])) as sim:
        try:
            sim.play()
            ending = "every rule held"
        except RuleBroken as error:
            ending = str(error)
    sys.stdout.write("\n".join([*sim.trace.lines(), ending, ""]))
    return 1 if sim.trace.findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
