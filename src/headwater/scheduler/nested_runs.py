"""Runs between: what an attempt needs and is not fresh runs while that attempt waits where it is. Part of the pass.

An attempt that was stopped is begun anew, so that one who reads many that never ran would be begun for each of them.
Here it is not stopped: whoever is missing has its own run, transaction and commit, as if it had come just before, and
the one who waits reads on. Everything that this one has looked at stays fresh meanwhile: what was invalid then is above
none of it, and what anybody else changes has it begun anew. How deep this goes is bounded, since Python's own stack
waits, and how often, since a slice is to end. Chooses nothing: it runs what was asked for. Upholds I1, I6.
"""

from __future__ import annotations

from typing import Final, Protocol, cast

from headwater.cells.open_run import Current, Run
from headwater.scheduler.gates import Gates
from headwater.scheduler.graph.graph import Graph
from headwater.scheduler.limits import SchedulerLimits
from headwater.scheduler.node import CLEAN, INVALID, NEVER_RAN, Marks, Node, NodeKind
from headwater.scheduler.runner import Runner
from headwater.scheduler.suspension import Frame, invalid_above, named_above

_COMPUTATION: Final = NodeKind.COMPUTATION


class Pass(Protocol):
    """What this is part of."""

    def stopped(self) -> list[Frame]:
        """Attempts that wait."""

    def lowest(self) -> int:
        """The height of the lowest node that waits for its turn."""

    def enqueue(self, node: Node) -> None:
        """It gets its turn, if it is demanded and not clean."""

    def ran_between(self, node: Node) -> None:
        """It came to its end."""


class NestedRuns:
    """What runs while an attempt waits where it is."""

    __slots__ = (
        "_current",
        "_depth",
        "_gates",
        "_graph",
        "_left",
        "_limits",
        "_marks",
        "_number",
        "_pass",
        "_runner",
        "_runs",
        "_stack",
        "_waits",
        "slice_left",
    )

    def __init__(
        self,
        limits: SchedulerLimits,
        graph: Graph,
        gates: Gates,
        marks: Marks,
        passing: Pass,
        runner: Runner,
        current: Current,
    ) -> None:
        self._limits = limits
        self._graph = graph
        self._gates = gates
        self._marks = marks
        self._pass = passing
        self._stack = passing.stopped()
        self._runner = runner
        self._current = current
        self._runs = [Run(runner) for _ in range(limits.between_depth)]
        self._depth = 0
        self._number = 0  # of the attempt that waits for all of these
        self._left = 0  # how many of them it may still bring about
        self._waits: dict[Node, list[Node]] = {}  # who was stopped here in this slice, and for what
        self.slice_left = 0  # attempts until the event loop gets its turn

    def begin(self, attempts: int) -> None:
        """A slice begins: so many attempts at most. What was found before may not be so any more."""
        self.slice_left = attempts
        self._waits.clear()

    def above(self, node: Node) -> list[Node]:
        """Who is known to have to run before a node that is demanded, by its own attempt or by what it read last."""
        found = self._waits.pop(node, None) if self._waits else None
        if found is None:
            found = [] if node.status == NEVER_RAN else invalid_above(node, self._marks.count, self._pass.lowest())
        return found

    def run(self, outer: Run, target: Node, stops: int) -> bool:
        """Run a node that an attempt needs. False: the attempt is to be stopped, as it would be without this.

        True says that it is to look again, not what came of it. `stops`: how often that attempt was stopped before.
        """
        if self._depth >= self._limits.between_depth or not self._is_plain(target):
            return False
        if not self._depth and outer.number != self._number:
            self._number = outer.number
            self._left = self._limits.slice_runs * self._limits.between_slices if stops else self.slice_left
        if self._left <= 0:
            return False
        self._left -= 1
        self.slice_left -= 1
        node = cast("Node | None", outer.node)
        marks, current = self._marks, self._current
        began_us = self._gates.now_us()
        frame = None if node is None else Frame(node, [])
        if node is not None and frame is not None:
            node.suspended = True  # Whoever comes round to it finds that it waits, and is no further than before.
            node.status = INVALID if node.is_known else NEVER_RAN
            self._stack.append(frame)
        run = self._runs[self._depth]
        run.number = current.number_apart() - 1  # It rises when the attempt begins.
        current.run = None
        self._depth += 1
        try:
            is_over = self._attempt(target, run)
        finally:
            self._depth -= 1
            current.run = outer
            marks.running = node
            if node is not None:
                node.suspended = False
                if self._stack and self._stack[-1] is frame:  # Otherwise the one that waits was removed.
                    self._stack.pop()
        if outer.parted != outer.number:
            outer.parted, outer.away_us = outer.number, 0
        outer.away_us += self._gates.now_us() - began_us
        if node is not None:
            node.status = CLEAN if node.causes is None else INVALID if node.is_known else NEVER_RAN
        return is_over

    def _is_plain(self, target: Node) -> bool:
        """Whether nothing but its run is to be seen to. Where heights do not order, nobody may hear of that either."""
        if target.kind is not _COMPUTATION or target.gate is not None or len(target.outputs) != 1 or not target.returns:
            return False
        if self._graph.is_special and (target.status != NEVER_RAN or target.outputs[0].twig is not None):
            return False
        return target.status != NEVER_RAN or not target.declared or not named_above(target)

    def _attempt(self, target: Node, run: Run) -> bool:
        """As the pass does it. False: it was stopped, and waits for others."""
        marks = self._marks
        if target.due > target.impulse:
            target.pass_runs, target.impulse = 0, target.due
            if target.due > marks.taken:
                marks.taken = target.due
        if target.status != NEVER_RAN and invalid_above(target, marks.count, self._pass.lowest()):
            target.expect = (None,)  # I9: as for whoever is demanded: each of its reads is looked at anew.
        target.queued = -1
        marks.running = target
        try:
            stopped = self._runner.attempt(target, run)
        except BaseException:
            target.pass_runs += 1  # I6: as for any other.
            self._pass.enqueue(target)
            raise
        if stopped is None:
            self._pass.ran_between(target)
        elif target.stops > self._limits.node_stops:
            self._runner.give_up(target)
        elif stopped.targets:
            self._waits[target] = stopped.targets
            self._pass.enqueue(target)  # Should nobody come back to it.
            return False
        elif target.loading is None:
            self._pass.enqueue(target)
        return True
