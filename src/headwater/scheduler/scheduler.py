"""The facade of the scheduler: composes the components and delegates to them. It decides nothing itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, cast

from headwater.cells.open_run import Current
from headwater.clock import Clock
from headwater.data.trace import Demanded, Registered, Removed, Trace
from headwater.data.value import ABSENT
from headwater.errors import NotSettlingError
from headwater.protocol.commit import Read
from headwater.protocol.verdict import Conflict
from headwater.replica.document import NOT_HERE, Document
from headwater.replica.feed import Feed, Kind, Notification, ignore
from headwater.replica.replica import Replica
from headwater.scheduler.commit_verdicts import CommitVerdicts
from headwater.scheduler.failures import Failure
from headwater.scheduler.gates import Gates
from headwater.scheduler.graph.edges import readers_of, readers_of_writes
from headwater.scheduler.graph.graph import Graph
from headwater.scheduler.introspection.introspection import Introspection
from headwater.scheduler.invalidation import Invalidation, address_of
from headwater.scheduler.limits import SchedulerLimits
from headwater.scheduler.nested_runs import NestedRuns
from headwater.scheduler.node import AFRESH, CLEAN, INVALID, NEVER_RAN, Marks, Node, NodeKind
from headwater.scheduler.pass_ import Pass
from headwater.scheduler.persistence import Held, install, reconnect
from headwater.scheduler.registry import NodeSpec, Registry
from headwater.scheduler.runner import Runner
from headwater.scheduler.suspension import Suspend
from headwater.scheduler.waiting_nodes import WaitingNodes


class RuntimePort(Protocol):
    """The operations that the scheduler needs from the owner of the event loop."""

    def request_tick(self) -> None:
        """Call `tick` soon."""

    def set_timer(self, at_us: int | None) -> None:
        """Call `wake` at a moment of the monotonic clock, in place of the last moment given. None: never."""

    def load(self, document: Document) -> None:
        """Watch a document that a node reads, and fetch it if it is not here."""

    def release(self, document: Document) -> None:
        """Stop watching a document that no node reads any more."""

    def is_ready(self, replica: Replica, conflict: Conflict) -> bool:
        """True if the commits that won a conflict are here."""

    def on_failure(self, failure: Failure) -> None:
        """Receive a failure (the error channel)."""


class Traced(Protocol):
    """A component that emits trace events."""

    trace: Trace | None


class Scheduler:
    """All nodes of one runtime, with the components that schedule them."""

    def __init__(self, clock: Clock, port: RuntimePort, limits: SchedulerLimits | None = None) -> None:
        self.limits = limits or SchedulerLimits()
        self.current = Current()
        self._port = port
        self._replicas: list[Replica] = []
        self.faults = Feed()  # failures reach readers through the one entrance, too (P1)
        self.marks = Marks()
        self.loads = WaitingNodes(on_left=self._left, on_freed=self._opened)
        self.registry = Registry()
        self.gates = Gates(clock, self.limits, on_open=self._opened, set_timer=port.set_timer)
        self.graph = Graph(
            self.registry,
            on_live=self._demanded,
            on_doubt=lambda: self.pass_.request_tick(),
            on_raised=self._raised,
            on_read=port.load,
            on_unread=port.release,
        )
        self.pass_ = Pass(self.limits, self.graph, self.gates, self.marks, port.request_tick)
        self.runner = Runner(
            self.current,
            self.graph,
            self.gates,
            self.loads,
            self.pass_,
            self.marks,
            on_failed=self._failed,
            on_cleanup_failed=self._cleanup_failed,
            on_missing=port.load,
            limits=self.limits,
        )
        self.pass_.use(
            self.runner,
            NestedRuns(self.limits, self.graph, self.gates, self.marks, self.pass_, self.runner, self.current),
        )
        self.invalidation = Invalidation(self.gates, self.loads, self.marks, self.pass_.enqueue)
        self.commit_verdicts = CommitVerdicts(
            self.marks,
            self.loads,
            self.graph,
            enqueue=self.pass_.enqueue,
            gates=self.gates,
            ready=port.is_ready,
            on_refused=self._refused,
            answered_hops=self.limits.answered_hops,
        )
        self.invalidation.on_told = self._shown
        self.on_foreign: Callable[[Notification], object] = ignore  # called with changes that other sessions made
        self.faults.subscribe(self.invalidation.on_notification)
        self.trace: Trace | None = None  # the receiver of trace events, if there is one
        self.traced: list[Traced] = []  # what else emits them
        self.introspection = Introspection(
            self.current,
            self.registry,
            self.graph,
            self.gates,
            self.pass_,
            self.runner,
            self.limits,
            set_trace=self.set_trace,
            on_error=lambda error: port.on_failure(Failure("a diagnosis", error)),
            on_non_settling=lambda report: port.on_failure(Failure(report.node, NotSettlingError(str(report)))),
        )

    # ---- spaces ------------------------------------------------------------------------------------

    def attach(self, replica: Replica, *, is_shared: bool = True) -> None:
        """Subscribe to the feed of a replica. `is_shared`: other runtimes may show the same space."""
        if not is_shared:
            self.commit_verdicts.own.add(replica)
        replica.on_rejected(self.commit_verdicts.on_settled)
        replica.on_refused = self.commit_verdicts.on_refused
        replica.on_fallen = self.commit_verdicts.on_fallen
        replica.on_overwritten(self.commit_verdicts.on_overwritten)
        replica.tier.is_clean = self._is_clean
        replica.tier.is_current = self._is_current
        replica.tier.is_demanded = _is_demanded
        replica.feed.subscribe(self.invalidation.on_notification)
        self._replicas.append(replica)

    def heard(self) -> None:
        """Release nodes that waited for data. Called when a message of an engine has arrived."""
        self._look_at_returned()
        self.commit_verdicts.heard()

    def _look_at_returned(self) -> None:
        """Let the nodes try again that wait for documents which are here again."""
        for replica in self._replicas:
            returned = replica.evicted.returned
            if returned:
                self.invalidation.returned(tuple(returned))
                returned.clear()

    # ---- nodes -------------------------------------------------------------------------------------

    def register(self, spec: NodeSpec, *, rooted: bool | None = None) -> Node:
        """Register a node. It runs when it is demanded."""
        # I2: index inserts and nothing else: no value is read, no document is fetched, and no node runs without demand.
        run = self.current.run
        if run is not None:
            self._structural()
            taken = self._taken_on(spec)
            if taken is not None:
                return taken
        node = self.registry.add(spec)
        self.marks.count += 1  # The new node may be above nodes that were verified to be fresh.
        node.due = self.marks.cause()
        for reader in self.graph.add(node):
            if reader is not self.marks.running:
                self.marks.beside += 1
                break
        creator: object | None = None
        if run is not None:
            creator = run.node
            run.created = [*(run.created or ()), node]
        if spec.debounce_ms or spec.throttle_ms or spec.no_auto_debounce:
            self.gates.configure(
                node,
                debounce_us=round(spec.debounce_ms * 1_000) or None,
                throttle_us=round(spec.throttle_ms * 1_000) or None,
                no_auto=spec.no_auto_debounce or None,
            )
        if self.trace is not None:
            self.trace.emit(Registered(node.id, node.kind.value))
        # fault scheduler.register_demands: if True:
        if rooted if rooted is not None else node.kind is not NodeKind.COMPUTATION:
            self.graph.liveness.set_root(node, True)
        elif isinstance(creator, Node) and (creator.live or self.pass_.stopped()) and not node.live:
            self.pass_.provisional(node)
            self.graph.liveness.set_provisional(node, True)
        # fault+ scheduler.register_fetches_output: [self._port.load(document) for document in node.outputs]
        return node

    def remove(self, node: Node) -> None:
        """Remove a node and the nodes that its runs created. Nothing of them stays behind."""
        self._structural()
        waiting = [node]
        while waiting:
            gone = waiting.pop()
            if gone.removed:
                continue
            waiting.extend(gone.children or ())
            self.pass_.leave(gone)
            self.gates.forget(gone)
            self.commit_verdicts.forget(gone)
            self.loads.forget(gone)
            # A running node is not clean, although its status says so. A failed node has the result of an earlier run.
            is_clean, is_current = self._is_clean(gone), self._is_current(gone)
            if gone.error is not None:
                gone.error = None
                self._failed(gone, None, False)  # Its failure ends with the node.
            if gone.reporter is not None:
                gone.reporter.report_stop(gone, is_clean=is_clean)
            if gone.returns:
                gone.home.stop_result(gone.outputs[0], gone, is_current=is_current)
            self.registry.drop(gone)
            for reader in readers_of_writes(gone):
                reader.expect = AFRESH  # Its next run looks for a writer again, at each of its reads.
            self.graph.remove(gone)
            for document in (*gone.outputs, *(inside for inside, _ in gone.envelope)):
                self._left(document)
            self.runner.clean_up(gone)
            if self.trace is not None:
                self.trace.emit(Removed(gone.id))
        if self.loads.is_untidy():
            self._port.request_tick()  # A node may have waited behind a removed one.

    def writers_left(self, documents: Iterable[Document]) -> None:
        """Mark the readers of documents that nothing here computes any more: their next run looks for a writer."""
        self._structural()
        for document in documents:
            if document.twig is not None:
                for spot in document.twig.spots():
                    for reader in spot.readers:
                        cast("Node", reader).expect = AFRESH  # The same reads in the same order need not be fresh.
                value = ABSENT if document.value is NOT_HERE else document.value
                self.faults.emit(Notification(Kind.REVERT, document, value, value, None, False, 0, None))

    def outdate(self, node: Node, *, keeps_result: bool = False) -> None:
        """Make a node invalid whose code changed since its last run: it runs again as soon as it is demanded.

        Unlike an invalidation by a notification: no data changed, so that no other node is told. `keeps_result`: its
        code is the same, so that its result and its last run are right as of now, and are sent.
        """
        self._structural()
        if node.removed or node.status == NEVER_RAN:
            return
        if keeps_result and not node.live and self._is_current(node):
            if node.reporter is not None:
                node.reporter.report_stop(node, is_clean=True)
            if node.returns:
                node.home.stop_result(node.outputs[0], node, is_current=True)
        node.status = INVALID
        node.expect = AFRESH
        if node.reporter is not None:
            node.reporter.forget()
        self.marks.count += 1
        self.marks.beside += 1
        node.due = self.marks.cause()
        if node.live:
            self.pass_.enqueue(node)

    def find(self, id: str) -> Node | None:
        """Return the registered node with this id."""
        return self.registry.get(id)

    def nodes(self) -> list[Node]:
        """Return all registered nodes, in the order of their registration."""
        return list(self.registry)

    def set_delays(
        self,
        node: Node,
        *,
        debounce_us: int | None = None,
        throttle_us: int | None = None,
        no_auto: bool | None = None,
    ) -> None:
        """Set a delay of a node, or end it with 0, also while the node waits. `no_auto`: none is set by itself."""
        self.gates.configure(node, debounce_us=debounce_us, throttle_us=throttle_us, no_auto=no_auto)

    def demand(self, node: Node, *, is_demanded: bool = True) -> None:
        """Demand a node for as long as it is registered, or end that."""
        self._structural()
        self.graph.liveness.set_root(node, is_demanded)

    # ---- nodes that are resumed ----------------------------------------------------------------------

    def hold(self, node: Node, until: Document) -> None:
        """Keep a node from running, and the nodes below it waiting, until `release_held` is called with `until`."""
        self.loads.hold(node, until)

    def release_held(self, held_by: Document) -> None:
        """Release the nodes held by a document: nodes that were not resumed get their turn."""
        for node in self.loads.arrived(held_by):
            if node.status == CLEAN:
                self.loads.kept(node)
            else:
                self.pass_.enqueue(node)

    def resume(self, node: Node, reads: Sequence[Read], seq: int, elsewhere: Sequence[Held] = ()) -> bool:
        """Install a node that never ran here as clean, without a run. False: the node has to run."""
        # fault+ foreign_reads.not_subscribed: elsewhere = ()
        self._structural()
        if node.removed or node.status != NEVER_RAN or not install(self.graph, node, reads, seq, elsewhere):
            return False
        self.loads.joined(node)
        self.marks.count += 1  # The writers of its reads may be above nodes that were verified to be fresh.
        return True

    def reconnect(self, node: Node, reads: Sequence[Read]) -> None:
        """Restore the reads of a node that never ran here. The node has to run, after the nodes above it."""
        self._structural()
        if not node.removed and node.status == NEVER_RAN:
            reconnect(self.graph, node, reads)
            if node.kind is NodeKind.EFFECT:
                self.gates.invalidated(node)  # As if it had been here when its inputs were written.
            self.loads.joined(node)
            self.marks.count += 1

    def kept(self) -> Iterable[Node]:
        """Yield the nodes that the stopped attempt of the open run registered and this attempt may still adopt."""
        run = self.current.run
        creator = run.node if run is not None else None
        return creator.kept.values() if isinstance(creator, Node) and creator.kept is not None else ()

    def _taken_on(self, spec: NodeSpec) -> Node | None:
        """Adopt the node that the stopped attempt of the same run registered, and give it the new function.

        None: there is none.
        """
        run = self.current.run
        creator = run.node if run is not None else None
        if run is None or not isinstance(creator, Node) or creator.kept is None:
            return None
        node = creator.kept.pop(spec.id, None)
        if node is None:
            return None
        if node.removed or node.kind is not spec.kind or node.outputs != spec.outputs or node.envelope != spec.envelope:
            self.remove(node)
            return None
        node.fn, node.encode, node.fingerprint = spec.fn, spec.encode, spec.fingerprint
        run.created = [*(run.created or ()), node]
        return node

    def _structural(self) -> None:
        """Refuse to change the graph inside a run that is not the runner's, such as a repeated run or a shadow run.

        Such a run only checks another one; it ends here, undecided.
        """
        run = self.current.run
        if run is not None and run.tracker is not self.runner:
            raise Suspend

    # ---- running -----------------------------------------------------------------------------------

    def tick(self) -> bool:
        """Do one slice of work. True: there is more."""
        # I6: a slice may come before `heard`. Readers of waiting nodes would be attempted over and over in it.
        # fault scheduler.returned_documents_told_late: pass
        self._look_at_returned()
        more = not self.pass_.is_idle() and self.pass_.slice(self.limits.slice_runs)
        if more or not self.loads.is_untidy():
            return more
        self.loads.tidy()
        return not self.pass_.is_quiet()

    def wake(self) -> None:
        """Handle the wake timer."""
        self.gates.wake()

    def is_quiet(self) -> bool:
        """True if no node is runnable and none is held back that `idle` has to wait for."""
        return self.pass_.is_quiet() and not any(self.gates.holds_idle(node) for node in self.gates.waiting())

    def is_coming(self, node: Node) -> bool:
        """True if a node has a run to come that `idle` would wait for."""
        gates = self.gates
        return node.is_runnable and (gates.eligible_at(node) <= gates.now_us() or gates.holds_idle(node))

    def is_fresh(self, node: Node) -> bool:
        """True if a node is clean after a run, and no node has a turn to come that could change its inputs.

        Only materializers are not ordered before the readers of their writes: without materializers, clean is fresh.
        """
        if not node.is_known or node.status != CLEAN:
            return False
        return not self.graph.has_envelopes or not any(map(self._has_turn_to_come, self.graph.above(node)))

    def _has_turn_to_come(self, node: Node) -> bool:
        # fault+ materializers.not_promoted: return False
        if node.loading is not None:
            return node.status != CLEAN and node.live  # Its writes are still to come, once the document is here.
        return node.is_runnable and not self.pass_.is_spent(node) and (node.gate is None or self.gates.is_open(node))

    def settle_demand(self) -> None:
        """Let withdrawn demand take effect now instead of before the next run."""
        self.graph.liveness.settle()

    @property
    def search_steps(self) -> int:
        """How many nodes were looked at so far to find the nodes that hold up others, for tests that count work."""
        return self.loads.steps

    @property
    def graph_steps(self) -> int:
        """How many nodes were looked at so far to keep demand and heights true, for tests that count work."""
        return self.graph.steps

    def held(self) -> dict[str, int]:
        """Count the entries that components keep for nodes. All are 0 once every node is removed and nothing runs."""
        return {
            "nodes": len(self.registry),
            **self.pass_.held(),
            "gated": self.gates.held(),
            "envelopes": self.graph.envelopes,
            "commit_verdicts": self.commit_verdicts.held(),
        }

    # ---- callbacks of components -------------------------------------------------------------------

    def set_trace(self, trace: Trace | None) -> None:
        """Set the receiver of trace events for all components. Tracing changes no decision (P10)."""
        self.trace = trace
        components: tuple[Traced, ...] = (self.pass_, self.runner, self.invalidation, self.commit_verdicts)
        for component in (*components, *self.traced):
            component.trace = trace

    def _demanded(self, node: Node) -> None:
        if self.trace is not None:
            self.trace.emit(Demanded(node.id))
        if node.status != CLEAN:
            self.pass_.enqueue(node)

    def _is_clean(self, node: object) -> bool:
        """True if no input of a node has changed since its last run. A node that is running has not ended that run."""
        if not isinstance(node, Node) or node.status != CLEAN or node.removed:
            return False
        run = self.current.run
        return run is None or run.node is not node

    def _is_current(self, node: object) -> bool:
        """True if the result of a node follows from the values that are shown now."""
        if not isinstance(node, Node) or node.status != CLEAN or node.removed or node.error is not None:
            return False
        run = self.current.run
        if run is not None and run.node is node:
            return False
        return node.guard is None or node.guard.is_passed()

    def _left(self, document: Document) -> None:
        """Release a document that lost a user, unless other nodes read it, write it or wait for it."""
        if not self.graph.is_used(document) and not self.loads.is_awaited(document):
            self._port.release(document)

    def _shown(self, notification: Notification) -> None:
        """Handle a change without a local writer, once its readers are marked."""
        self.commit_verdicts.on_shown(notification)
        self.on_foreign(notification)

    def _raised(self, node: Node) -> None:
        self.pass_.raised(node)

    def _opened(self, node: Node) -> None:
        self.pass_.enqueue(node)

    def _failed(self, node: Node, error: Exception | None, is_known: bool) -> None:
        """Tell readers that the last run of a node failed or recovered; report a failure, and retry a transient one."""
        if not is_known:
            for reader in readers_of(node):
                reader.expect = AFRESH
            for document in node.outputs:
                value = ABSENT if document.value is NOT_HERE else document.value
                self.faults.emit(Notification(Kind.REVERT, document, value, value, None, False, 0, node))
        if error is None:
            return
        self._port.on_failure(Failure(node.id, error, _causes_of(node)))
        if isinstance(error, node.transient) and node.failures < self.limits.transient_retries:
            self.gates.failed(node, node.failures)
            node.failures += 1
            node.status = INVALID if node.status != NEVER_RAN else NEVER_RAN
            self.marks.count += 1
            self.pass_.enqueue(node)

    def _cleanup_failed(self, node: Node, error: Exception) -> None:
        self._port.on_failure(Failure(node.id, error, ("its cleanup",)))

    def _refused(self, node: Node, error: Exception, is_latest: bool) -> None:
        """Handle a commit that was rejected for good."""
        if is_latest:
            # I1: the value shown instead is older than the node's reads, and not a result of them.
            before, node.error = node.error, error
            self._failed(node, error, type(before) is type(error) and str(before) == str(error))
        else:
            self._port.on_failure(Failure(node.id, error, _causes_of(node)))


def _causes_of(node: Node) -> tuple[str, ...]:
    """Return the addresses whose changes caused the last run of a node."""
    return tuple(dict.fromkeys(address_of(spot) for spot in node.last_causes or ()))


def _is_demanded(node: object) -> bool:
    """True if a node whose result is out of date will have another one soon. A failed node will not."""
    return isinstance(node, Node) and node.live and not node.removed and node.error is None
