"""The pass: runs the nodes that are invalid, live and eligible, from low to high, until there are none.

A `Sweep` is a queue of turns. A turn is a number: height, then parents before children, then registration order. A
sweep only goes up; a node whose turn lies behind it waits for the next sweep. A queue entry whose node has another turn
by now is skipped when it is taken.

`Pass` runs it. The sweeps of a pass and the runs of one node are bounded, and only the nodes that used all their
runs are held back (I6). A stopped attempt waits on a stack of its own, not on the Python stack: depth costs only
memory. The pass marks no node invalid. Upholds I6, I9.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

from headwater.cells.open_run import Run
from headwater.data.trace import Exhausted, Parked, PassEnded, RunSkipped, Trace
from headwater.data.value import ABSENT
from headwater.replica.feed import ignore
from headwater.scheduler.gates import Gates
from headwater.scheduler.graph.edges import nodes_above
from headwater.scheduler.graph.graph import Graph
from headwater.scheduler.limits import SchedulerLimits
from headwater.scheduler.nested_runs import NestedRuns
from headwater.scheduler.node import AFRESH, CLEAN, NEVER_RAN, Marks, Node, NodeKind
from headwater.scheduler.runner import Runner
from headwater.scheduler.suspension import StoppedAttempt, look_again, named_above, taken_off

ABOVE_ALL: Final = 1 << 120
"""A turn, or a height, after every other one."""


class Sweep:
    """Nodes that wait for their turn, in this sweep or in the next."""

    __slots__ = ("anew", "at", "next", "now", "was")

    def __init__(self) -> None:
        self.now: list[tuple[int, Node]] = []
        self.next: list[tuple[int, Node]] = []
        self.at = -1  # the turn that this sweep is at
        self.was = -1  # the value of `at` when the sweep was paused
        self.anew = 0  # how often this pass restarted the sweep

    def __bool__(self) -> bool:
        return bool(self.now or self.next)

    def push(self, node: Node) -> None:
        turn = node.queued = node.turn
        heappush(self.now if turn > self.at else self.next, (turn, node))

    def take(self) -> Node | None:
        """Take the next entry and return its node. None: the node has another turn by now."""
        turn, node = heappop(self.now)
        if node.queued != turn:
            return None
        node.queued = -1
        self.at = turn
        return node

    def turn_over(self) -> bool:
        """Begin the next sweep. False: no node waits for it."""
        self.at = -1
        if self.next:
            self.now, self.next = self.next, self.now
            return True
        return False

    def take_next(self) -> list[Node]:
        """Remove and return all nodes that wait for the next sweep."""
        self.at = -1
        waiting, self.next = self.next, []
        nodes = [node for turn, node in waiting if node.queued == turn]
        for node in nodes:
            node.queued = -1
        return nodes

    def lowest(self) -> int:
        """Return the height of the lowest runnable node that waits."""
        lowest = _lowest(self.now) if self.now else ABOVE_ALL
        return min(lowest, _lowest(self.next)) if self.next else lowest


def pause(*sweeps: Sweep) -> None:
    """Give sweeps no position between two slices.

    Nodes enqueued then are ordered among all waiting nodes, their readers included.
    """
    for sweep in sweeps:
        sweep.was, sweep.at = sweep.at, -1


def resume(*sweeps: Sweep) -> bool:
    """Return to the position before the pause. True: a node was enqueued behind it, so that another sweep begins."""
    is_another = False
    for sweep in sweeps:
        if sweep.now and sweep.now[0][0] <= sweep.was:
            is_another = True
        elif sweep.at < sweep.was:
            sweep.at = sweep.was
        sweep.was = -1
    return is_another


def begin_anew(most: int, *sweeps: Sweep) -> None:
    """Merge the waiting nodes into one sweep, in order, at most `most` times in a pass."""
    for sweep in sweeps:
        if sweep.anew >= most:
            continue
        sweep.anew += 1
        sweep.at = -1
        for entry in sweep.next:
            heappush(sweep.now, entry)
        sweep.next.clear()


def over(*sweeps: Sweep) -> None:
    """Reset sweeps at the end of a pass."""
    for sweep in sweeps:
        sweep.at, sweep.anew = -1, 0


def _lowest(turns: list[tuple[int, Node]]) -> int:
    while turns:
        turn, node = turns[0]
        if node.queued == turn:
            if node.is_runnable:
                return turn >> 44
            node.queued = -1
        heappop(turns)
    return ABOVE_ALL


_COMPUTATION = NodeKind.COMPUTATION
_EFFECT = NodeKind.EFFECT


class Pass:
    """The one pass in progress, if any, and the nodes that wait for a pass."""

    __slots__ = (
        "_computations",
        "_effects",
        "_forgiven",
        "_gates",
        "_graph",
        "_idle",
        "_is_ticking",
        "_later",
        "_limits",
        "_marks",
        "_nested",
        "_provisional",
        "_request_tick",
        "_runner",
        "_spenders",
        "_stack",
        "_taken_before",
        "iteration",
        "number",
        "on_exhausted",
        "on_pass_end",
        "run_nested",
        "runs",
        "trace",
    )

    def __init__(
        self, limits: SchedulerLimits, graph: Graph, gates: Gates, marks: Marks, request_tick: Callable[[], object]
    ) -> None:
        self._limits = limits
        self._graph = graph
        self._gates = gates
        self._marks = marks
        self._runner: Runner | None = None
        self._nested: NestedRuns  # `use` comes first.
        self.run_nested: Callable[[Run, Node], bool]
        self._request_tick = request_tick
        self._computations = Sweep()
        self._effects = Sweep()  # effects write nothing: their turn comes when computations are done
        self._later: list[Node] = []  # for the next pass: nodes that this pass had no sweep left for
        # materializers whose outputs have no live reader; run when no other node has to
        self._idle: dict[Node, None] = {}
        self._stack: list[StoppedAttempt] = []
        self._provisional: list[Node] = []
        self._forgiven: dict[Node, None] = {}  # nodes that were held back before and have run since
        self._spenders: dict[Node, None] = {}  # nodes that used all their runs without a pause
        self._is_ticking = False  # a tick was requested, or is in progress
        self.number = 1
        self.iteration = 0
        self.runs = 0
        self._taken_before = 0  # the newest external impulse that earlier passes ran for
        self.on_pass_end: Callable[[], object] | None = None  # for diagnosis; decides nothing
        self.on_exhausted: Callable[[Node], object] = ignore  # for diagnosis; decides nothing
        self.trace: Trace | None = None

    def use(self, runner: Runner, nested: NestedRuns) -> None:
        self._runner, self._nested, self.run_nested = runner, nested, nested.run

    # ---- waiting nodes -------------------------------------------------------------------------------

    def enqueue(self, node: Node) -> None:
        """Give a runnable node its turn in this pass, or request a tick for another one."""
        if node.queued >= 0 or node.suspended or node.status == CLEAN or not node.live or node.removed:
            return
        if node.loading is not None:
            return
        if node.gate is not None and not self._gates.is_open(node):
            if self.trace is not None:
                self.trace.emit(Parked(node.id, self._gates.eligible_at(node)))
            return
        kind = node.kind
        if kind is _COMPUTATION:
            sweep = self._computations
            turn = node.queued = (node.height << 44) + node.low
            # I9: a sweep only goes up. A node behind it has its turn in the next sweep.
            heappush(sweep.now if turn > sweep.at else sweep.next, (turn, node))
        elif kind is _EFFECT:
            self._effects.push(node)
        elif node.live_refs:
            # Its output has a live reader: the materializer is ordered like a computation.
            self._computations.push(node)
        else:
            self._idle[node] = None
        if not self._is_ticking:
            self.request_tick()

    def request_tick(self) -> None:
        """Have a slice begin soon, unless one was requested or is in progress."""
        if not self._is_ticking:
            self._is_ticking = True
            self._request_tick()

    def expect_slice(self) -> None:
        """Record that a slice follows at once, so that nodes that become invalid until then request no tick."""
        self._is_ticking = True

    def raised(self, node: Node) -> None:
        """Move a waiting node that was raised to its new turn."""
        (self._effects if node.kind is _EFFECT else self._computations).push(node)

    def leave(self, node: Node) -> None:
        """Forget a node that was removed or is not demanded.

        Nodes that only its attempt waited for are enqueued on their own.
        """
        self._idle.pop(node, None)
        self._forgiven.pop(node, None)
        self._spenders.pop(node, None)
        node.queued = -1
        if node.suspended:
            for dropped in taken_off(self._stack, node):
                self.enqueue(dropped)

    def provisional(self, node: Node) -> None:
        self._provisional.append(node)

    def stopped(self) -> list[StoppedAttempt]:
        """Return the stack of waiting attempts. Nodes made by the attempt that the last one waits for are demanded."""
        return self._stack

    def is_quiet(self) -> bool:
        """True if no node has a turn to come."""
        first, last = self._computations, self._effects
        waiting = first.now or first.next or last.now or last.next
        return not (waiting or self._later or self._stack or self._idle)

    def held(self) -> dict[str, int]:
        """Count the entries that wait for a turn, for another attempt, or for the end of a pass."""
        return {
            "turns": sum(len(sweep.now) + len(sweep.next) for sweep in (self._computations, self._effects)),
            "waiting": len(self._later) + len(self._idle) + len(self._stack),
            "provisional": len(self._provisional),
        }

    # ---- questions of the runner ---------------------------------------------------------------------

    def lowest(self) -> int:
        """Return the height of the lowest computation that waits for its turn, in this sweep or the next.

        -1 while nodes wait for the next pass: these are not ordered by height.
        """
        return -1 if self._later else self._computations.lowest()

    def may_wait_for(self, node: Node | None, target: Node) -> bool:
        """True if waiting for `target` can help `node`.

        False for the node itself, round a cycle, and for a target that was removed, is held back by time and has a last
        value, waits for a document or used all its runs.
        """
        if target is node or target.suspended or target.removed or target.loading is not None or self.is_spent(target):
            return False
        if target.status == NEVER_RAN or target.gate is None or self._gates.is_open(target):
            return True
        # A reader of a node that is held back uses its last value. There is none if the result was dropped unsent.
        # fault pass.dropped_results_read: return False
        return target.error is None and target.returns and target.outputs[0].value is ABSENT

    def count_nested_run(self, node: Node) -> None:
        """Count a nested run that completed while another attempt waited, like any other run."""
        node.pass_runs += 1
        self.runs += 1
        if node.pass_runs == self._limits.node_runs:
            self._spenders[node] = None
        if node.status != CLEAN:
            self.enqueue(node)

    def is_spent(self, node: Node) -> bool:
        """True if the node used all its runs since the last pause or external impulse."""
        return node.pass_runs >= self._limits.node_runs and node.due <= node.impulse

    # ---- the pass ------------------------------------------------------------------------------------

    def is_idle(self) -> bool:
        """True if a slice would find nothing to do: no node waits, and no demand or count ends with a pass."""
        return not (self._is_ticking or self._provisional or self._forgiven or self._spenders)

    def slice(self, attempts: int) -> bool:
        """Make at most `attempts` attempts. False: the pass is over, and no node waits for another one."""
        self._is_ticking = True
        nested = self._nested
        nested.begin(attempts)
        self.iteration += resume(self._computations, self._effects)
        if self._stack:
            look_again(self._stack)  # I9: values may have changed since the last slice.
        self._graph.tidy()
        try:
            while nested.slice_left > 0:
                nested.slice_left -= 1
                if not self._step():
                    self._end()
                    if self.is_quiet():
                        break
        finally:
            # In the last sweep a pause could let steady input starve a waiting node.
            if self.iteration + 1 < self._limits.pass_iterations:
                # fault settle.slice_not_paused:
                pause(self._computations, self._effects)  # I9: nodes enqueued between two slices are ordered, too.
            self._is_ticking = not self.is_quiet()
            if self._is_ticking:
                self._request_tick()
        return self._is_ticking

    def _step(self) -> bool:
        """Make one attempt. False: this pass has nothing more to do."""
        if self._graph.liveness.doubted:
            self._graph.liveness.settle()
        if self._stack:
            if not self._stack[0].node.live:
                self.leave(self._stack[0].node)  # I2: the targets of this attempt are not demanded any more.
            node = self._resumed()
            if node is not None:
                return self._attempt(node)
        sweep = self._computations
        now = sweep.now
        while now:
            turn, node = heappop(now)
            if node.queued != turn:
                continue  # The node has another turn by now.
            node.queued = -1
            sweep.at = turn
            plain = node.gate is None and node.live and node.status != CLEAN and node.loading is None
            if (plain and not node.removed) or self._has_turn(node):
                return self._attempt(node)
        if sweep.next:
            return self._sweep()
        if (last := self._next_last()) is None:
            return False
        # I9: computations are done. Nodes that this run invalidates are in order: all in another sweep or all in
        # another pass.
        sweep.at = -1 if self.iteration + 1 < self._limits.pass_iterations else ABOVE_ALL
        self._attempt(last)
        self.iteration += bool(sweep.now)
        return True

    def _has_turn(self, node: Node) -> bool:
        """Check the node at its turn: it may be clean, dormant, removed, waiting or gated by now."""
        if node.status == CLEAN or not node.live or node.removed or node.loading is not None:
            if self.trace is not None:
                self.trace.emit(RunSkipped(node.id, "it is not live or not invalid any more"))
            return False
        return node.gate is None or self._gates.is_open(node)

    def _next_last(self) -> Node | None:
        """Return the next effect or idle materializer, for when computations are done."""
        sweep = self._effects
        while sweep.now or sweep.turn_over():
            last = sweep.take()
            if last is not None and self._has_turn(last):
                return last
        while self._idle:
            node = next(iter(self._idle))
            del self._idle[node]
            if node.is_runnable and self._gates.is_open(node):
                return node
        return None

    def _resumed(self) -> Node | None:
        """Return the node whose stopped attempt can go on, since all its targets have run. None: there is none."""
        stack = self._stack
        while stack:
            stopped = stack[-1]
            if stopped.targets:
                target = stopped.targets.pop()
                if target.status != CLEAN and self.may_wait_for(stopped.node, target):
                    self._demand(target)
                continue
            node = stack.pop().node
            node.suspended = False
            if node.status != CLEAN and not node.removed and node.loading is None:
                return node
        return None

    def _demand(self, node: Node) -> None:
        """Put a node that an attempt waits for on the stack, with the nodes above it that are known to be invalid."""
        node.suspended = True
        above = self._nested.above(node)
        if above:
            node.expect = AFRESH  # I9: the runs of these nodes may change its inputs in more than one way.
        self._stack.append(StoppedAttempt(node, above))  # `_resumed` skips the targets that it cannot wait for.

    def _put_first(self, node: Node, writers: list[Node]) -> bool:
        """Run these writers before the node, which reads where they write. False: there is none to wait for."""
        targets = [each for each in dict.fromkeys(writers) if self.may_wait_for(node, each)]
        if targets:
            node.suspended, node.expect = True, AFRESH  # I9: it waits for the consequences of these runs, too.
            self._stack.append(StoppedAttempt(node, targets))
        return bool(targets)

    def _is_put_off(self, node: Node) -> bool:
        """True if other nodes have to run first that heights do not order before this node."""
        graph = self._graph
        if graph.has_envelopes and self._put_first(node, graph.dirty_envelopes(node.reads)):
            return True
        # With a cycle, heights may be out of order: the writers above the node are checked before its run.
        return graph.is_cyclic and self._put_first(
            node, [writer for writer in nodes_above(node) if writer.status != CLEAN]
        )

    def _attempt(self, node: Node) -> bool:
        if node.gate is not None and node.gate.is_held:
            self._go_on(node)
        if node.due > node.impulse:
            # Runs are counted for each external impulse: a steady stream of changes is not a cycle, and a slow cycle is
            # one.
            node.pass_runs, node.impulse = 0, node.due
            if node.due > self._marks.taken:
                self._marks.taken = node.due
            if node.gate is not None:
                self._gates.renewed(node)
        elif node.pass_runs >= self._limits.node_runs:
            self._spenders[node] = None
            self._exhaust()  # I6: no more runs of the node without a pause.
            self._gates.is_open(node)  # Sets the timer.
            return True
        if node.gate is not None and node.gate.is_far:
            self._hold(node, node.hops <= node.last_hops)  # I6: a cycle through other runtimes is slowed down, too.
            self._gates.is_open(node)
            return True
        if self._idle:
            self._idle.pop(node, None)
        if self._graph.is_special and self._is_put_off(node):
            return True
        if node.status == NEVER_RAN and node.declared and self._put_first(node, named_above(node)):
            return True
        if (self._later or self._computations.next) and self.iteration + 1 >= self._limits.pass_iterations:
            # I1: this pass has no sweep left for the waiting nodes. The reads of this node run them, as far as they may
            # run.
            # fault settle.last_sweep_reads_unchecked: pass
            node.expect = AFRESH
        node.queued = -1
        self._marks.running = node
        try:
            stopped = self._runner.attempt(node)  # type: ignore[union-attr]  # `use` comes first.
        except BaseException:
            node.pass_runs += 1  # I6: a node that interrupts the program over and over is held back, too.
            self.enqueue(node)  # An interrupt: the run is still to come.
            raise
        finally:
            self._marks.running = None
        if stopped is not None:
            if node.stops > self._limits.node_stops:
                self._runner.give_up(node)  # type: ignore[union-attr]
            elif stopped.targets:
                node.suspended = True
                self._stack.append(StoppedAttempt(node, stopped.targets))
            elif node.loading is None:
                self.enqueue(node)  # The document arrived while it was requested.
            return True
        node.pass_runs += 1
        self.runs += 1
        if node.envelope:  # I9: readers of its writes run before the readers of these.
            begin_anew(self._limits.pass_iterations * self._graph.envelopes, self._computations, self._effects)
        if node.pass_runs == self._limits.node_runs:
            self._spenders[node] = None
        if node.gate is not None and node.gate.exhaustions:
            self._forgiven[node] = None
            if self._gates.goes_round(node):
                del self._forgiven[node]
        if node.status != CLEAN:
            self.enqueue(node)
        return True

    def _go_on(self, node: Node) -> None:
        """Resume a node after its pause.

        The nodes that it drives may run as often again: a cycle is counted as a whole.
        """
        self._gates.resumed(node)
        marks = self._marks
        node.due = max(node.due, marks.taken if marks.taken > self._taken_before else marks.cause())

    def _sweep(self) -> bool:
        """Begin the next sweep. If the pass has no sweep left, the remaining nodes wait for the next pass."""
        sweep = self._computations
        if self.iteration + 1 < self._limits.pass_iterations:
            self.iteration += 1
            sweep.turn_over()
            return True
        self._later += sweep.take_next()
        spent = [node for node in self._later if self.is_spent(node)]
        if spent:
            self._spenders.update(dict.fromkeys(spent))
            self._exhaust()
        return bool(self._idle or self._effects)

    def _exhaust(self) -> None:
        """Hold back the nodes that used all their runs, and only these, together and longer each time (I6)."""
        spenders, self._spenders = self._spenders, {}
        for node in spenders:
            if self.is_spent(node):  # Otherwise an external change came since.
                self._hold(node)

    def _hold(self, node: Node, is_steady: bool = False) -> None:
        self._gates.exhausted(node, is_steady)
        self.on_exhausted(node)
        if self.trace is not None:
            self.trace.emit(Exhausted(node.id, node.pass_runs))
        node.pass_runs = 0  # After the pause the node may run as often again.

    def _end(self) -> None:
        """End the pass: provisional demand expires, and nodes that had no sweep left are enqueued for the next pass."""
        if self.trace is not None and self.runs:
            self.trace.emit(PassEnded("", self.runs, self.iteration + 1))
        if self.on_pass_end is not None:
            self.on_pass_end()
        settled = [node for node in self._forgiven if node.status == CLEAN and not self.is_spent(node)]
        if self._forgiven and self._gates.forgive(settled):
            self._forgiven.clear()
        if not self._later:
            self.number += 1
            self._taken_before = self._marks.taken
            if not self._gates.has_waiting():
                # All nodes have settled: a node that goes on alone from here is held back alone.
                self._spenders.clear()
        self.iteration = self.runs = 0
        over(self._computations, self._effects)
        if self._provisional:
            self._provisional = self._graph.liveness.expired(self._provisional)
            self._graph.liveness.settle()
        later, self._later = self._later, []
        for node in later:
            self.enqueue(node)
