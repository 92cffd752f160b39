"""Nested runs: a stale node runs while the attempt that reads it waits on the Python stack. Part of the pass.

The alternative is to stop the attempt and restart it later (`suspension`): an attempt that reads n nodes which never
ran would then start n + 1 times. Here the attempt is not stopped: the missing node has its own run, transaction and
commit, as if it had run just before, and the attempt reads on.

The reads that the waiting attempt has already made stay fresh: nodes that were invalid then are above none of them, and
any other change during the nested run restarts the attempt. The depth is bounded, since nesting uses the Python stack,
about eleven frames for each level, and so is the number of nested runs, since a slice has to end. `NestedRuns` chooses
nothing: it runs the requested node. Upholds I1, I6.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from headwater.cells.open_run import Current, Run
from headwater.scheduler.gates import Gates
from headwater.scheduler.graph.graph import Graph
from headwater.scheduler.limits import SchedulerLimits
from headwater.scheduler.node import AFRESH, CLEAN, INVALID, NEVER_RAN, Marks, Node, NodeKind
from headwater.scheduler.runner import Runner
from headwater.scheduler.suspension import StoppedAttempt, invalid_above, named_above

if TYPE_CHECKING:
    from headwater.scheduler.pass_ import Pass

_COMPUTATION: Final = NodeKind.COMPUTATION


def is_stack_deep(room: int) -> bool:
    """True if the Python stack has less than `room` frames left to the recursion limit of Python."""
    try:
        sys._getframe(max(sys.getrecursionlimit() - room, 0))
    except ValueError:
        return False
    return True


class NestedRuns:
    """Runs nodes while an attempt waits on the Python stack."""

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
        pass_: Pass,
        runner: Runner,
        current: Current,
    ) -> None:
        self._limits = limits
        self._graph = graph
        self._gates = gates
        self._marks = marks
        self._pass = pass_
        self._stack = pass_.stopped()
        self._runner = runner
        self._current = current
        self._runs = [Run(runner) for _ in range(limits.nested_depth)]
        self._depth = 0
        self._number = 0  # number of the outermost waiting attempt
        self._left = 0  # nested runs that this attempt may still cause
        # nodes whose nested attempt was stopped in this slice, with the nodes they wait for
        self._waits: dict[Node, list[Node]] = {}
        self.slice_left = 0  # attempts before the event loop gets its turn

    def begin(self, attempts: int) -> None:
        """Begin a slice of at most `attempts` attempts. Stopped nested attempts of earlier slices are forgotten."""
        self.slice_left = attempts
        self._waits.clear()

    def above(self, node: Node) -> list[Node]:
        """Return the nodes known to have to run before a demanded one, from its stopped attempt or its last reads."""
        found = self._waits.pop(node, None) if self._waits else None
        if found is None:
            found = [] if node.status == NEVER_RAN else invalid_above(node, self._marks.count, self._pass.lowest())
        return found

    def run(self, outer: Run, target: Node) -> bool:
        """Run a node that an attempt needs. False: the attempt is to be stopped, as it would be without nesting.

        True: the attempt is to check the value again, whatever the outcome.
        """
        limits = self._limits
        if self._depth >= limits.nested_depth or not self._is_plain(target):
            return False
        if self._depth >= limits.nested_unmeasured and is_stack_deep(limits.nested_frames):
            return False
        if not self._depth and outer.number != self._number:
            self._number = outer.number
            # This may be more than is left of the slice. The slice ends with the attempt: to stop the attempt would
            # repeat all of its reads, and call the author's function again.
            self._left = limits.slice_runs * limits.nested_slices
        if self._left <= 0:
            return False
        self._left -= 1
        self.slice_left -= 1
        node: Node | None = outer.node  # type: ignore[assignment]  # It is the scheduler's own.
        marks, current = self._marks, self._current
        running = marks.running  # of a transaction: the observer whose function made it, if there is one (I6)
        began_us = self._gates.now_us()
        stopped = None if node is None else StoppedAttempt(node, [])
        if node is not None and stopped is not None:
            # A nested attempt that reads this node again sees that it waits, and does not wait for it.
            node.suspended = True
            node.status = INVALID if node.is_known else NEVER_RAN
            self._stack.append(stopped)
        run = self._runs[self._depth]
        run.number = current.number_apart() - 1  # `begin` adds one.
        current.run = None
        self._depth += 1
        try:
            is_over = self._attempt(target, run)
        finally:
            self._depth -= 1
            current.run = outer
            marks.running = running
            if node is not None:
                node.suspended = False
                if self._stack and self._stack[-1] is stopped:  # Otherwise the waiting node was removed.
                    self._stack.pop()
        if outer.parted != outer.number:
            outer.parted, outer.away_us = outer.number, 0
        outer.away_us += self._gates.now_us() - began_us
        if node is not None:
            node.status = CLEAN if node.causes is None else INVALID if node.is_known else NEVER_RAN
        return is_over

    def _is_plain(self, target: Node) -> bool:
        """True if `target` can run inline: it is an ungated computation with one output.

        Two kinds are excluded: a first run with a declared document whose writer must run first; and, in a graph with
        cycles or envelopes, which heights do not order, every node but one that never ran and has no readers.
        """
        if target.kind is not _COMPUTATION or target.gate is not None or len(target.outputs) != 1 or not target.returns:
            return False
        if self._graph.is_special and (target.status != NEVER_RAN or target.outputs[0].twig is not None):
            return False
        return target.status != NEVER_RAN or not target.declared or not named_above(target)

    def _attempt(self, target: Node, run: Run) -> bool:
        """Attempt a node as the pass does. False: the attempt was stopped, and waits for other nodes."""
        marks = self._marks
        if target.due > target.impulse:
            target.pass_runs, target.impulse = 0, target.due
            if target.due > marks.taken:
                marks.taken = target.due
        if target.status != NEVER_RAN and invalid_above(target, marks.count, self._pass.lowest()):
            target.expect = AFRESH  # I9: as for a demanded node, each of its reads is checked anew.
        target.queued = -1
        marks.running = target
        try:
            stopped = self._runner.attempt(target, run)
        except BaseException:
            target.pass_runs += 1  # I6: as for any other attempt.
            self._pass.enqueue(target)
            raise
        if stopped is None:
            self._pass.count_nested_run(target)
        elif target.stops > self._limits.node_stops:
            self._runner.give_up(target)
        elif stopped.targets:
            self._waits[target] = stopped.targets
            self._pass.enqueue(target)  # In case no attempt comes back to the node.
            return False
        elif target.loading is None:
            self._pass.enqueue(target)
        return True
