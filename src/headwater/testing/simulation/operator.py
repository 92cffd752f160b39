"""The operator of a simulated server: forks, merges and deletes branches while replicas write to them.

The actions and their times are drawn from the seed. Everything goes through the engine, as a command on an owned
directory does; some replicas are asked to go on on the new branch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headwater.clock import Random, VirtualClock
from headwater.data.address import SPACE_SCOPE, DocKey
from headwater.data.patch import increment, replace
from headwater.engine import Engine
from headwater.errors import AbsentError, AuthoringError
from headwater.protocol.commit import MAIN, Commit, Operation
from headwater.testing.simulation.process import ReplicaProcess
from headwater.testing.simulation.server import ServerProcess
from headwater.testing.simulation.trace import Trace

WHO = "operator"


class Operator:
    """Forks, merges, deletes, and writes a little on branches."""

    __slots__ = ("_clock", "_draws", "_is_over", "_made", "_processes", "_server", "_trace")

    def __init__(
        self,
        clock: VirtualClock,
        draws: Random,
        server: ServerProcess,
        processes: Sequence[ReplicaProcess],
        trace: Trace,
    ) -> None:
        self._clock = clock
        self._draws = draws
        self._server = server
        self._processes = processes
        self._trace = trace
        self._is_over = False
        self._made = 0

    def schedule(self, forks: int, within_us: int) -> None:
        """Schedule so many branches in the time to come, each with its end."""
        now = self._clock.now_us()
        for _ in range(forks):
            begin = now + self._draws.randrange(within_us)
            self._at(begin, self._fork)
            for act in self._draws.choices((self._merge, self._write, self._delete), (4, 1, 1), k=3):
                self._at(begin + self._draws.randrange(within_us), act)

    def end(self) -> None:
        """Nothing more is done from now on."""
        self._is_over = True

    def _at(self, us: int, act: Callable[[], None]) -> None:
        def unless_over() -> None:
            if not self._is_over:
                act()

        self._clock.call_at(us, unless_over)

    def _branch(self) -> str | None:
        """One that there is, beside main."""
        live = self._server.oracle.live()[1:]
        return self._draws.choice(live) if live else None

    def _fork(self) -> None:
        self._made += 1
        name, parent = f"b{self._made}", self._draws.choice(self._server.oracle.live())
        back = self._draws.choice((0, 0, 0, 1, 4))
        self._trace.note(WHO, "forks", name, parent, back)

        def work(engine: Engine) -> None:
            self._server.oracle.are_branches_moving = True
            try:
                at = max(engine.last_seq - back, 0)
                made = engine.fork(name, parent=parent, at=at)
            except AbsentError:
                return  # before the parent began, or compacted away
            if made.fork_seq != at:
                self._trace.broken("C11", WHO, f"branch {name} begins at {made.fork_seq}, not at {at}")

        self._server.maintain(work)
        if name in self._server.oracle.lines:
            for process in self._draws.sample(list(self._processes), self._draws.choice((1, 1, 2))):
                process.move_to(name)

    def _merge(self) -> None:
        name = self._branch()
        if name is not None:
            self._trace.note(WHO, "merges", name)
            self._server.maintain(lambda engine: engine.merge(name))

    def _delete(self) -> None:
        name = self._branch()
        if name is None:
            return
        self._trace.note(WHO, "deletes", name)

        def work(engine: Engine) -> None:
            self._server.oracle.doomed.add(name)
            self._server.oracle.are_branches_moving = True
            try:
                engine.delete_branch(name)
            except AuthoringError:
                self._server.oracle.doomed.discard(name)  # it has branches of its own

        self._server.maintain(work)

    def _write(self) -> None:
        """The host writes to a branch, or to main, beside everybody else."""
        branch = self._draws.choice((self._branch() or MAIN, MAIN))
        kept = self._draws.randrange(100)
        self._trace.note(WHO, "writes", branch, kept)

        def work(engine: Engine) -> None:
            doc = DocKey(SPACE_SCOPE, "d1")
            there = isinstance(engine.read(doc, branch=branch).value, dict)
            patch = increment(("n",), kept) if there else replace((), {"n": kept, "m": {}, "list": [], "set": []})
            last = engine.open_session(WHO).last
            engine.submit(WHO, Commit(last + 1, (Operation(doc, (patch,)),), branch=branch))

        self._server.maintain(work)
