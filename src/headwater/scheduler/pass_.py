"""The pass: runs what is invalid, live and eligible, from low to high, until nothing is. Spec 001 section 7.

A sweep goes up through the heights; what must go back waits for the next sweep. Sweeps and runs of one node are
bounded, and whoever spends its runs is held back alone (I6). A stopped attempt waits on a stack of records, never on
Python's, so that depth costs nothing but memory. It marks nothing invalid. Upholds I6, I9.

Whose turn it is: one sweep from low to high, and the next one for what came too late for this. Part of the pass.

A turn is a number: height, then parents before children, then registration. An entry whose node waits elsewhere by now
is passed over when it is met.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

from headwater.cells.open_run import Run
from headwater.data.trace import Exhausted, Parked, PassEnded, RunSkipped, Trace
from headwater.scheduler.gates import Gates
from headwater.scheduler.graph.edges import writers_above
from headwater.scheduler.graph.graph import Graph
from headwater.scheduler.limits import SchedulerLimits
from headwater.scheduler.nested_runs import NestedRuns
from headwater.scheduler.node import CLEAN, NEVER_RAN, Marks, Node, NodeKind
from headwater.scheduler.runner import Runner
from headwater.scheduler.suspension import Frame, look_again, named_above, taken_off

ABOVE_ALL: Final = 1 << 60


class Sweep:
    """Nodes that wait for their turn, in this sweep or in the next."""

    __slots__ = ("anew", "at", "next", "now", "was")

    def __init__(self) -> None:
        self.now: list[tuple[int, Node]] = []
        self.next: list[tuple[int, Node]] = []
        self.at = -1  # the turn that this sweep is at
        self.was = -1  # the same when it was paused
        self.anew = 0  # how often this pass began it anew

    def __bool__(self) -> bool:
        return bool(self.now or self.next)

    def push(self, node: Node) -> None:
        turn = node.queued = node.turn
        heappush(self.now if turn > self.at else self.next, (turn, node))

    def take(self) -> Node | None:
        """Whose turn it is. None: whoever it was waits elsewhere by now."""
        turn, node = heappop(self.now)
        if node.queued != turn:
            return None
        node.queued = -1
        self.at = turn
        return node

    def turn_over(self) -> bool:
        """Begin the next sweep. False: nobody waits for it."""
        self.at = -1
        if self.next:
            self.now, self.next = self.next, self.now
            return True
        return False

    def take_next(self) -> list[Node]:
        """Everybody who waits for the next sweep; they do so no more."""
        self.at = -1
        waiting, self.next = self.next, []
        nodes = [node for turn, node in waiting if node.queued == turn]
        for node in nodes:
            node.queued = -1
        return nodes

    def lowest(self) -> int:
        """The height of the lowest that waits."""
        lowest = _lowest(self.now) if self.now else ABOVE_ALL
        return min(lowest, _lowest(self.next)) if self.next else lowest


def pause(*sweeps: Sweep) -> None:
    """Between two slices a sweep is nowhere: what comes then is in order with everybody who waits, readers included."""
    for sweep in sweeps:
        sweep.was, sweep.at = sweep.at, -1


def resume(*sweeps: Sweep) -> bool:
    """Go on. True: something has come that lay behind, so that another sweep begins."""
    is_another = False
    for sweep in sweeps:
        if sweep.now and sweep.now[0][0] <= sweep.was:
            is_another = True
        elif sweep.at < sweep.was:
            sweep.at = sweep.was
        sweep.was = -1
    return is_another


def begin_anew(most: int, *sweeps: Sweep) -> None:
    """Everybody who waits is in one sweep again, in order, so often in a pass at most."""
    for sweep in sweeps:
        if sweep.anew >= most:
            continue
        sweep.anew += 1
        sweep.at = -1
        for entry in sweep.next:
            heappush(sweep.now, entry)
        sweep.next.clear()


def over(*sweeps: Sweep) -> None:
    """The pass is over, and so are its sweeps."""
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


class Settle:
    """The one pass that is under way, if any."""

    __slots__ = (
        "_between",
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
        self._between: NestedRuns  # `use` comes first.
        self._request_tick = request_tick
        self._computations = Sweep()
        self._effects = Sweep()  # they write nothing: their turn is when computations are done
        self._later: list[Node] = []  # the next pass: what a pass had no sweep left for
        self._idle: dict[Node, None] = {}  # materializers that nobody reads from, for when nothing else is to do
        self._stack: list[Frame] = []
        self._provisional: list[Node] = []
        self._forgiven: dict[Node, None] = {}  # held back before, and run since
        self._spenders: dict[Node, None] = {}  # ran as often as they may without a pause
        self._is_ticking = False  # a tick was requested, or is under way
        self.number = 1
        self.iteration = 0
        self.runs = 0
        self._taken_before = 0  # what came from outside and was run for in earlier passes
        self.on_pass_end: Callable[[], object] | None = None  # for diagnosis; decides nothing
        self.on_exhausted: Callable[[Node], object] = id  # for diagnosis; decides nothing
        self.trace: Trace | None = None

    def use(self, runner: Runner, between: NestedRuns) -> None:
        self._runner, self._between = runner, between

    # ---- what waits ----------------------------------------------------------------------------------

    def enqueue(self, node: Node) -> None:
        """A node became runnable. It gets its turn in this pass, or in one that is requested now."""
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
            # I9: a sweep only goes up. What lies behind it has its turn in the next one.
            heappush(sweep.now if turn > sweep.at else sweep.next, (turn, node))
        elif kind is _EFFECT:
            self._effects.push(node)
        elif node.live_refs:
            self._computations.push(node)  # Somebody looks at what it returns: that is an output like any other.
        else:
            self._idle[node] = None
        if not self._is_ticking:
            self._is_ticking = True
            self._request_tick()

    def raised(self, node: Node) -> None:
        """It waits for its turn and is higher than it was: it takes its turn there."""
        (self._effects if node.kind is _EFFECT else self._computations).push(node)

    def leave(self, node: Node) -> None:
        """It is removed: its turn is nobody's, and what only its attempt waited for is not demanded any more."""
        self._idle.pop(node, None)
        self._forgiven.pop(node, None)
        self._spenders.pop(node, None)
        node.queued = -1
        if node.suspended:
            for dropped in taken_off(self._stack, node):
                self.enqueue(dropped)

    def provisional(self, node: Node) -> None:
        self._provisional.append(node)

    def stopped(self) -> list[Frame]:
        """Attempts that wait, the last one for the attempt under way: what that makes is demanded, live or not."""
        return self._stack

    def is_quiet(self) -> bool:
        """Nothing has a turn to come."""
        return not (self._computations or self._effects or self._later or self._stack or self._idle)

    def held(self) -> dict[str, int]:
        """Count the entries that wait for a turn, for another attempt, or for the end of a pass."""
        return {
            "turns": sum(len(sweep.now) + len(sweep.next) for sweep in (self._computations, self._effects)),
            "waiting": len(self._later) + len(self._idle) + len(self._stack),
            "provisional": len(self._provisional),
        }

    # ---- what the runner asks ------------------------------------------------------------------------

    def lowest(self) -> int:
        """The height of the lowest computation that waits for its turn, in this sweep or the next.

        Below all heights while some wait for the next pass: which heights these have is not kept in order.
        """
        return -1 if self._later else self._computations.lowest()

    def may_wait_for(self, node: Node | None, target: Node) -> bool:
        """Not for itself, round a cycle, for what is held back by time, or for what has spent its runs."""
        if target is node or target.suspended or target.removed or target.loading is not None or self.is_spent(target):
            return False
        return target.status == NEVER_RAN or target.gate is None or self._gates.is_open(target)

    def run_between(self, run: Run, target: Node, stops: int) -> bool:
        return self._between.run(run, target, stops)

    def ran_between(self, node: Node) -> None:
        """It came to its end while another one's attempt waited: it counts like any other."""
        node.pass_runs += 1
        self.runs += 1
        if node.pass_runs == self._limits.node_runs:
            self._spenders[node] = None
        if node.status != CLEAN:
            self.enqueue(node)

    def is_spent(self, node: Node) -> bool:
        """Whether it ran as often as it may without a pause or something new."""
        return node.pass_runs >= self._limits.node_runs and node.due <= node.impulse

    # ---- the pass ------------------------------------------------------------------------------------

    def slice(self, attempts: int) -> bool:
        """So many attempts at most. False: the pass is over, and nothing waits for another one."""
        self._is_ticking = True
        between = self._between
        between.begin(attempts)
        self.iteration += resume(self._computations, self._effects)
        if self._stack:
            look_again(self._stack)  # I9: things may have come since the last slice.
        self._graph.tidy()
        try:
            while between.slice_left > 0:
                between.slice_left -= 1
                if not self._step():
                    self._end()
                    if self.is_quiet():
                        break
        finally:
            if self.iteration + 1 < self._limits.pass_iterations:  # Otherwise a steady input would starve somebody.
                # fault settle.slice_not_paused:
                pause(self._computations, self._effects)  # I9: what comes between two slices is ordered, too.
            self._is_ticking = not self.is_quiet()
            if self._is_ticking:
                self._request_tick()
        return self._is_ticking

    def _step(self) -> bool:
        """One attempt. False: this pass has nothing more to do."""
        if self._stack:
            if not self._stack[0].node.live:
                self.leave(self._stack[0].node)  # I2: nobody demands what it waits for any more.
            node = self._resumed()
            if node is not None:
                return self._attempt(node)
        sweep = self._computations
        now = sweep.now
        while now:
            turn, node = heappop(now)
            if node.queued != turn:
                continue  # It waits elsewhere by now.
            node.queued = -1
            sweep.at = turn
            plain = node.gate is None and node.live and node.status != CLEAN and node.loading is None
            if (plain and not node.removed) or self._has_turn(node):
                return self._attempt(node)
        if sweep.next:
            return self._sweep()
        if (last := self._next_last()) is None:
            return False
        # I9: computations are done. What comes of this one is in order, all in another sweep or all in another pass.
        sweep.at = -1 if self.iteration + 1 < self._limits.pass_iterations else ABOVE_ALL
        self._attempt(last)
        self.iteration += bool(sweep.now)
        return True

    def _has_turn(self, node: Node) -> bool:
        """The run gate, at the very turn: it may be clean, dormant, removed or gated by now."""
        if node.status == CLEAN or not node.live or node.removed or node.loading is not None:
            if self.trace is not None:
                self.trace.emit(RunSkipped(node.id, "it is not live or not invalid any more"))
            return False
        return node.gate is None or self._gates.is_open(node)

    def _next_last(self) -> Node | None:
        """Whose turn it is when computations are done."""
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
        """The stopped attempt that can go on now, everything that it waited for having run. None: there is none."""
        stack = self._stack
        while stack:
            frame = stack[-1]
            if frame.targets:
                target = frame.targets.pop()
                if target.status != CLEAN and self.may_wait_for(frame.node, target):
                    self._demand(target)
                continue
            node = stack.pop().node
            node.suspended = False
            if node.status != CLEAN and not node.removed and node.loading is None:
                return node
        return None

    def _demand(self, node: Node) -> None:
        """Somebody's attempt waits for it: it runs next, after whatever is known to be invalid above it."""
        node.suspended = True
        above = self._between.above(node)
        if above:
            node.expect = (None,)  # I9: what these are about to change may be above it in more than one way.
        self._stack.append(Frame(node, above))  # Whatever of these it cannot wait for is left out.

    def _put_first(self, node: Node, writers: list[Node]) -> bool:
        """These have something to do and write where the node reads: they run before it."""
        targets = [each for each in dict.fromkeys(writers) if self.may_wait_for(node, each)]
        if targets:
            node.suspended, node.expect = True, (None,)  # I9: it waits for what comes of these, too.
            self._stack.append(Frame(node, targets))
        return bool(targets)

    def _is_put_off(self, node: Node) -> bool:
        """Whether something else has to run first that heights do not order before it."""
        graph = self._graph
        if graph.has_envelopes and self._put_first(node, graph.dirty_envelopes(node.reads)):
            return True
        # Where a cycle is or was, heights may be out of order: what it reads is looked at before its run.
        return graph.is_cyclic and self._put_first(
            node, [writer for writer in writers_above(node) if writer.status != CLEAN]
        )

    def _attempt(self, node: Node) -> bool:
        if node.gate is not None and node.gate.is_held:
            self._go_on(node)
        if node.due > node.impulse:
            # Runs are counted for each thing from outside: a steady stream is no cycle, and a slow cycle is one.
            node.pass_runs, node.impulse = 0, node.due
            if node.due > self._marks.taken:
                self._marks.taken = node.due
            if node.gate is not None:
                self._gates.renewed(node)
        elif node.pass_runs >= self._limits.node_runs:
            self._spenders[node] = None
            self._exhaust()  # I6: no more runs of it without a pause.
            self._gates.is_open(node)  # The timer knows now.
            return True
        if node.gate is not None and node.gate.is_far:
            self._hold(node, node.hops <= node.last_hops)  # I6: a cycle through other runtimes is slow, too.
            self._gates.is_open(node)
            return True
        if self._idle:
            self._idle.pop(node, None)
        if self._graph.is_special and self._is_put_off(node):
            return True
        if node.status == NEVER_RAN and node.declared and self._put_first(node, named_above(node)):
            return True
        if (self._later or self._computations.next) and self.iteration + 1 >= self._limits.pass_iterations:
            # I1: this pass has no sweep left for these. Its reader has them run, as far as they may.
            # fault settle.last_sweep_reads_unchecked: pass
            node.expect = (None,)
        node.queued = -1
        self._marks.running = node
        try:
            stopped = self._runner.attempt(node)  # type: ignore[union-attr]  # `use` comes first.
        except BaseException:
            node.pass_runs += 1  # I6: one that interrupts whoever runs it, over and over, is held back, too.
            self.enqueue(node)  # An interrupt: its run is still to come.
            raise
        finally:
            self._marks.running = None
        if stopped is not None:
            if node.stops > self._limits.node_stops:
                self._runner.give_up(node)  # type: ignore[union-attr]
            elif stopped.targets:
                node.suspended = True
                self._stack.append(Frame(node, stopped.targets))
            elif node.loading is None:
                self.enqueue(node)  # It arrived while it was asked for.
            return True
        node.pass_runs += 1
        self.runs += 1
        if node.envelope:  # I9: who reads what it wrote comes before their readers.
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
        """Its pause is over. Whoever it drives may run as often again, too: all of a cycle are counted alike."""
        self._gates.resumed(node)
        marks = self._marks
        node.due = max(node.due, marks.taken if marks.taken > self._taken_before else marks.cause())

    def _sweep(self) -> bool:
        """Go back and begin the next sweep; if there were too many, the rest waits for the next pass."""
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
        """I6: only those who spent their runs are held back, together, and longer each time."""
        spenders, self._spenders = self._spenders, {}
        for node in spenders:
            if self.is_spent(node):  # Otherwise something came from outside since.
                self._hold(node)

    def _hold(self, node: Node, is_steady: bool = False) -> None:
        self._gates.exhausted(node, is_steady)
        self.on_exhausted(node)
        if self.trace is not None:
            self.trace.emit(Exhausted(node.id, node.pass_runs))
        node.pass_runs = 0  # After the pause it may run as often again.

    def _end(self) -> None:
        """The pass is over: provisional demand expires, and what it had no sweep left for is next."""
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
                self._spenders.clear()  # It came to an end: whoever goes on alone from here is held back alone.
        self.iteration = self.runs = 0
        over(self._computations, self._effects)
        if self._provisional:
            self._provisional = self._graph.liveness.expired(self._provisional)
        later, self._later = self._later, []
        for node in later:
            self.enqueue(node)
