"""Gates: the time from which a node may run.

Debounce, throttle and backoff give one moment; one timer serves all nodes. A node whose time has not come stays invalid
and is left out of the pass. The nodes below it do not run early, since only real changes make a node invalid. Gates
never decide that a node must run. Upholds I6 together with `pass_`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush

from headwater.clock import Clock
from headwater.errors import AuthoringError
from headwater.scheduler.limits import SchedulerLimits
from headwater.scheduler.node import Gate, Node, NodeKind


class Gates:
    """The gates of all nodes that have one, and the one wake timer."""

    __slots__ = (
        "_acts",
        "_alarm_count",
        "_alarms",
        "_limits",
        "_on_open",
        "_random",
        "_set_timer",
        "_stale",
        "_timer_at",
        "_waiting",
        "now_us",
    )

    def __init__(
        self,
        clock: Clock,
        limits: SchedulerLimits,
        *,
        on_open: Callable[[Node], object],
        set_timer: Callable[[int | None], object],
    ) -> None:
        self.now_us: Callable[[], int] = clock.monotonic_us  # called for each run
        self._limits = limits
        self._random = clock.randomness("gates")
        self._on_open = on_open  # called with a node whose time has come
        self._set_timer = set_timer  # sets the wake timer to a moment, in place of the last one; None: clears it
        self._waiting: list[tuple[int, int, Node]] = []
        self._alarms: list[tuple[int, int]] = []
        self._acts: dict[int, Callable[[], object]] = {}  # actions of the alarms that were not cancelled
        self._alarm_count = 0
        self._stale = 0  # approximate number of heap entries of nodes that do not wait any more
        self._timer_at: int | None = None

    # ---- eligibility --------------------------------------------------------------------------------

    def is_open(self, node: Node) -> bool:
        """True if the node may run now. Otherwise the timer is set for the node."""
        gate = node.gate
        if gate is None:
            return True
        at = gate.eligible_at
        if at <= self.now_us():
            return True
        self.wait(node, at)
        return False

    def eligible_at(self, node: Node) -> int:
        return 0 if node.gate is None else node.gate.eligible_at

    # ---- changes of a gate --------------------------------------------------------------------------

    def invalidated(self, node: Node) -> None:
        """Restart the debounce of an invalidated node, and end its wait for the inputs of a peer's result."""
        gate = node.gate
        if gate is not None:
            gate.input_until = 0
            if gate.debounce_us:
                gate.debounce_until = self.now_us() + gate.debounce_us

    def result_came(self, node: Node) -> None:
        """Delay a node that reads other spaces after a peer's result came: the inputs of that result may come later."""
        # fault gates.inputs_not_awaited: pass
        self._gate(node).input_until = self.now_us() + self._limits.input_us

    def started(self, node: Node) -> None:
        """Throttle: delay the next run, counted from the start of this one. A stopped attempt is not a run."""
        gate = node.gate
        if gate is not None and gate.throttle_us:
            gate.throttle_until = node.began_us + gate.throttle_us

    def exhausted(self, node: Node, is_steady: bool = False) -> None:
        """Hold back a node that used all its runs in this pass, or has a cause with too many hops.

        The delay doubles each time. `is_steady`: the hops are no more than those of the last run, as at the end of a
        long chain; then the delay does not grow.
        """
        gate = self._gate(node)
        times = 0 if is_steady else gate.exhaustions
        # fault gates.exhausted_goes_on: gate.backoff_until = 0
        gate.backoff_until = self.now_us() + self._limits.exhausted.delay_us(times, self._random)
        if not is_steady or not gate.exhaustions:
            # fault gates.waits_do_not_grow:
            gate.exhaustions += 1
        gate.is_forgiven, gate.is_held = False, True

    def resumed(self, node: Node) -> None:
        """Note that a node which was held back is attempted again."""
        if node.gate is not None:
            node.gate.is_held = node.gate.is_far = False

    def came(self, node: Node, hops: int) -> None:
        """Note that a cause came from another session.

        With too many hops, the node pauses before it runs for this cause.
        """
        # fault gates.remote_cycle_missed: if False:
        if hops > self._limits.node_hops:
            self._gate(node).is_far = True

    def goes_round(self, node: Node) -> bool:
        """True if the run of a node that was held back had a cause with too many hops: its cycle has not ended."""
        gate = self._gate(node)
        gate.goes_round = node.last_hops > self._limits.node_hops
        return gate.goes_round

    def failed(self, node: Node, failures: int) -> None:
        """Delay the retry after a transient failure."""
        self._gate(node).backoff_until = self.now_us() + self._limits.transient.delay_us(failures, self._random)

    def finished(self, node: Node) -> None:
        """End the backoff of a node that a pass left clean. `exhaustions` are kept until the next external change."""
        if node.gate is not None and node.gate.exhaustions:
            node.gate.is_forgiven = True
            node.gate.backoff_until = 0

    def renewed(self, node: Node) -> None:
        """Reset `exhaustions` for an external change, if the node had come to an end before."""
        gate = node.gate
        if gate is not None and gate.is_forgiven:
            gate.is_forgiven = False
            gate.exhaustions = 0

    def took(self, node: Node, spent_us: int) -> None:
        """Add the time of an effect's run.

        An effect that is slow on average gets a debounce, unless its author forbade it.
        """
        limits = self._limits
        gate = self._gate(node)
        gate.spent_us += spent_us
        gate.timed_runs += 1
        if gate.no_auto or gate.debounce_us or gate.timed_runs < limits.auto_debounce_runs:
            return
        if gate.spent_us >= limits.auto_debounce_average_us * gate.timed_runs:
            gate.debounce_us, gate.is_auto = limits.auto_debounce_us, True

    def is_exhausted(self, node: Node) -> bool:
        """True if the node is held back because it used all its runs."""
        gate = node.gate
        if gate is None or not node.live or not gate.exhaustions or gate.is_forgiven:
            return False
        return gate.is_held or not gate.goes_round  # Otherwise the node waits for another reason.

    def exhaustions(self, node: Node) -> int:
        """Return how often in a row the node used all its runs."""
        return 0 if node.gate is None else node.gate.exhaustions

    def holds_idle(self, node: Node) -> bool:
        """True if `idle` waits for the node. The wait for a node that does not come to an end is bounded (L7)."""
        if node.gate is not None and node.gate.input_until > self.now_us() and node.is_runnable:
            return True
        return self.is_exhausted(node) and self.exhaustions(node) < self._limits.idle_exhaustions

    # ---- options ------------------------------------------------------------------------------------

    def configure(
        self,
        node: Node,
        *,
        debounce_us: int | None = None,
        throttle_us: int | None = None,
        no_auto: bool | None = None,
    ) -> None:
        """Set an option, or clear it with 0, also while the node waits."""
        for name, value in (("debounce", debounce_us), ("throttle", throttle_us)):
            if value is not None and value < 0:
                raise AuthoringError(f"{name} of {node.id} is {value / 1_000:g} ms: write 0 or more")
        gate = self._gate(node)
        if debounce_us is not None:
            if gate.debounce_until:
                gate.debounce_until = max(0, gate.debounce_until - gate.debounce_us + debounce_us)
            gate.debounce_us, gate.is_auto = debounce_us, False
            if not debounce_us:
                gate.debounce_until = 0
        if throttle_us is not None:
            # fault gates.throttle_counts_from_next_run: pass
            gate.throttle_until = node.began_us + throttle_us if throttle_us and node.began_us >= 0 else 0
            gate.throttle_us = throttle_us
        if no_auto is not None:
            gate.no_auto = no_auto
            if no_auto and gate.is_auto:
                gate.debounce_us, gate.is_auto, gate.debounce_until = 0, False, 0
        if gate.waits_for:
            self.wait(node, max(gate.eligible_at, 1))

    def _gate(self, node: Node) -> Gate:
        if node.gate is None:
            node.gate = Gate(no_auto=node.kind is not NodeKind.EFFECT)
        return node.gate

    # ---- the timer ----------------------------------------------------------------------------------

    def wait(self, node: Node, at: int) -> None:
        gate = self._gate(node)
        if gate.waits_for != at:
            self._stale += gate.waits_for != 0
            gate.waits_for = at
            heappush(self._waiting, (at, node.order, node))
        self._arm()

    def forget(self, node: Node) -> None:
        """Stop waiting for a node that was removed or is dormant."""
        if node.gate is not None and node.gate.waits_for:
            node.gate.waits_for = 0
            self._stale += 1
            self._arm()

    def alarm(self, at: int, act: Callable[[], object]) -> Callable[[], None]:
        """Call `act` at a moment, with the same timer. The returned function cancels the alarm."""
        self._alarm_count += 1
        number = self._alarm_count
        self._acts[number] = act
        heappush(self._alarms, (at, number))
        self._arm()

        def cancel() -> None:
            if self._acts.pop(number, None) is not None:
                self._arm()

        return cancel

    def wake(self) -> None:
        """Run the due alarms and hand on every node whose time has come. Called when the timer fires."""
        self._timer_at = None
        now = self.now_us()
        while self._alarms and self._alarms[0][0] <= now:
            act = self._acts.pop(heappop(self._alarms)[1], None)
            if act is not None:
                act()
        while self._waiting and self._waiting[0][0] <= now:
            at, _, node = heappop(self._waiting)
            if node.gate is not None and node.gate.waits_for == at:
                node.gate.waits_for = 0
                self._on_open(node)
        self._arm()

    def _arm(self) -> None:
        """Set the one timer to the earliest moment.

        Entries that are not waited for any more are dropped from the front.
        """
        waiting = self._waiting
        if self._stale > 8 + len(waiting) // 2:
            self._stale = 0
            waiting[:] = [each for each in waiting if each[2].gate is not None and each[2].gate.waits_for == each[0]]
            heapify(waiting)
        while waiting and (waiting[0][2].gate is None or waiting[0][2].gate.waits_for != waiting[0][0]):
            heappop(waiting)
        if len(self._alarms) > 16 + 2 * len(self._acts):
            self._alarms[:] = [alarm for alarm in self._alarms if alarm[1] in self._acts]
            heapify(self._alarms)
        while self._alarms and self._alarms[0][1] not in self._acts:
            heappop(self._alarms)
        at = waiting[0][0] if waiting else None
        if self._alarms and (at is None or self._alarms[0][0] < at):
            at = self._alarms[0][0]
        if at != self._timer_at:
            self._timer_at = at
            self._set_timer(at)

    def forgive(self, nodes: Iterable[Node]) -> bool:
        """Forgive the nodes that ran since they were held back, all together. False: some nodes are still held back.

        A node that is clean while another node of the same cycle is held back has not settled.
        """
        if any(self.is_exhausted(node) for node in self.waiting()):
            return False
        for node in nodes:
            self.finished(node)
        return True

    def has_waiting(self) -> bool:
        """True if a node waits for its time."""
        return bool(self._waiting)  # The node in front does wait: `_arm` drops other entries.

    def held(self) -> int:
        """Count the entries of the timer's heap, those of nodes that do not wait any more included."""
        return len(self._waiting)

    def waiting(self) -> list[Node]:
        return [node for at, _, node in self._waiting if node.gate is not None and node.gate.waits_for == at]
