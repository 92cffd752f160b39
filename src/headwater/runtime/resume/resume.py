"""Resuming: nodes whose stored observations still hold are installed without a run.

Each piece has one `ResumeState`, begun when the first node of the piece is registered; the observations of its nodes
are queried once. Until that query is over no node of the piece runs, and dependent nodes wait. Each node is judged by
itself: it is clean if its observation has the same code and generation, and its reads would be admitted now; otherwise
the node counts as never run. A node is installed only together with the writers of its inputs: without them it would
not be notified of a change. Upholds I7.

`drop_rows` and `drop_child` withdraw observations of nodes that do not exist any more, so that none is applied to a
later node of the same name: members that a class lost, elements that left, children that are gone. They report to the
engine and decide nothing.

`ObservationLookup` queries single nodes of a sleeping piece. Nodes that are registered at the same time share one
query, and wait until it is answered. A node without an answer in time is unknown and runs.

`Resume` implements the port `NodeSource` of pieces.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Container, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from headwater.data.address import SPACE_SCOPE, DocKey
from headwater.pieces.names import SEPARATOR, child_name
from headwater.protocol.observations import (
    BETWEEN,
    About,
    NodeKey,
    Observations,
    Observed,
    QueryNodes,
    QueryObservations,
    encode_part,
    is_below,
)
from headwater.replica.document import NOT_HERE, Document
from headwater.replica.replica import Replica
from headwater.runtime.pieces.classes import with_children
from headwater.runtime.pieces.identity import Key, NodeIdentity, row_of
from headwater.runtime.resume import writers
from headwater.runtime.resume.fingerprint import CodeFingerprints, about, load_record_of_inputs
from headwater.runtime.resume.foreign_reads import ForeignReadCheck
from headwater.runtime.resume.judge import Reason, judge
from headwater.runtime.resume.lazy_resume import LazyResume
from headwater.runtime.resume.parts import ResumeParts
from headwater.runtime.resume.resume_state import LookupBatch, RegisteredNode, ResumeState
from headwater.scheduler.node import Node, Remembered
from headwater.scheduler.run_reporter import RunReporter

if TYPE_CHECKING:
    from headwater.runtime.channel.backend import Backend
    from headwater.runtime.pieces.instance import PieceInstance
    from headwater.runtime.writing.space_channel import SpaceChannel
    from headwater.scheduler.registry import NodeSpec


def key_of(node: NodeKey) -> Key:
    return (node.member, node.child, node.scope, node.principal)


class ObservationLookup:
    """Queries the observations of single nodes for one runtime."""

    __slots__ = ("_core", "_parts", "_resuming")

    def __init__(self, resuming: Resume, parts: ResumeParts) -> None:
        self._resuming = resuming
        self._parts = parts
        self._core = parts.core

    def asleep(self, root: PieceInstance, as_of: int) -> ResumeState:
        """Return the state of a piece that was clean at a seq. Nothing is queried until a node is registered."""
        return ResumeState(self._resuming.waits_for(root), generation=root.generation, is_over=True, as_of=as_of)

    def ask_for(
        self, root: PieceInstance, state: ResumeState, channel: SpaceChannel, registered: RegisteredNode
    ) -> None:
        """Hold a node until its observation is known. Nodes that are registered at the same time share a query."""
        batch = state.batch
        if batch is None:
            batch = state.batch = LookupBatch(self._resuming.waits_for(root))
            state.asked += 1
            self._resuming.under_way[batch] = channel
            self._parts.tasks.begin(self._ask_batch(root, state, batch), f"looking up nodes of {root!r}")
        batch.held.append(registered)
        self._core.scheduler.hold(registered.node, batch.document)

    async def _ask_batch(self, root: PieceInstance, state: ResumeState, batch: LookupBatch) -> None:
        """Query the observations of a batch, and resume its nodes."""
        core = self._core
        try:
            state.batch = None
            await self.known(root, state, [each.identity.key(each.instance.child_id) for each in batch.held])
        finally:
            del self._resuming.under_way[batch]
            state.asked -= 1
        now = self._resuming.states.get(root)
        if now is state or now is None or now.is_over:
            self._resuming.bring_back(batch.held)
            self._resuming.foreign_reads.release_when_answered(state)
        else:  # Meanwhile the whole piece is queried.
            now.held += batch.held
            for each in batch.held:
                if not each.node.removed:
                    core.scheduler.hold(each.node, now.document)
        core.scheduler.release_held(batch.document)
        core.request_tick()

    async def known(self, root: PieceInstance, state: ResumeState, keys: list[Key]) -> bool:
        """Load the observations of some nodes into `state.table`. Return False if there was no answer."""
        channel = self._parts.channel(root.space.name)
        wanted = [key for key in dict.fromkeys(keys) if key not in state.table]
        most = self._parts.limits.page
        for first in range(0, len(wanted), most):
            nodes = tuple([NodeKey(root.id, state.generation, *key) for key in wanted[first : first + most]])
            page = None if channel is None else await self._parts.ask_engine(channel, QueryNodes(0, nodes))
            if not isinstance(page, Observations):
                self._resuming.counts["nothing could be asked"] += 1
                return False
            await self._resuming.load_classes(root, page.observed)
            for each in page.observed:
                state.table[key_of(each.node)] = (each, page.seq)
            await self.compare_foreign_reads(root, state, page.observed)
        return True

    async def compare_foreign_reads(
        self, root: PieceInstance, state: ResumeState, observed: Iterable[Observed]
    ) -> None:
        """Query other spaces whether the reads of these nodes still hold there."""
        readers = [each for each in observed if each.foreign]
        if readers:
            state.foreign_answers.add(await self._resuming.foreign_reads.ask(readers))


def _drop_members(root: PieceInstance, state: ResumeState, channel: SpaceChannel) -> None:
    """Withdraw the observations of members that the classes of a piece and its children do not have any more."""
    for key, (observed, _) in [*state.table.items()]:
        stored = key[0].removesuffix(row_of("")).partition("/")[0]
        classes = with_children(root.cls) if key[1].partition(BETWEEN)[0] else [root.cls]
        is_there = any(each.__schema__.get(stored) is not None for each in classes)
        if not is_there and root.generation >= observed.node.generation:
            del state.table[key]
            _withdraw(channel, root, observed.node)


def _withdraw(channel: SpaceChannel, instance: PieceInstance, node: NodeKey) -> None:
    channel.driver.session.runs.gone(encode_part(About(node)), instance.space.replica.confirmed.seq)


TO_RUN: Final = -1
"""In place of a seq: a value that the node read was written since."""
STALE: Final = (Reason.WRITTEN, Reason.WRITTEN_THERE)
"""Reasons with which a node is connected to the reads of its last run until it has run."""


def _counter(reason: Reason, node: Node) -> str:
    """Return the name of the counter of a reason. Code without a fingerprint is counted by the cause of that."""
    if reason not in (Reason.OPAQUE, Reason.UNCOMPARED):
        return str(reason.value)
    return f"{Reason.OPAQUE.value}{f': {node.opaque}' if node.opaque else ''}"


class NodeDescription:
    """Facts about one node of a piece, for its reporter (`scheduler.run_reporter.NodeFacts`)."""

    __slots__ = ("_home", "_identity", "_resume", "_root", "_spec", "keeps_children")

    def __init__(
        self, resume: Resume, instance: PieceInstance, root: PieceInstance, spec: NodeSpec, identity: NodeIdentity
    ) -> None:
        self._resume = resume
        self._home = instance
        self._root = root
        self._spec = spec
        self._identity = identity
        self.keeps_children = identity.started is not None

    def describe(self) -> About:
        root = self._root
        state = self._resume.states.get(root)
        generation = root.generation or (0 if state is None else state.generation)
        return about(self._resume.fingerprints, self._home, self._spec, self._identity, generation)

    def imply(self, documents: list[Document]) -> str | None:
        instance, defaults = self._home, self._resume.fingerprints.defaults
        implied = defaults.of_own_reads(instance, self._root, documents)
        if implied is None:
            name_of, replica, name = self._resume.core.name_of, instance.space.replica, instance.space.name
            reads = [(name if each.home is replica else name_of(each.home) or "", each.key) for each in documents]
            implied = defaults.of_reads_by(instance, self._identity, reads)
        return implied

    def started(self) -> tuple[str, ...] | None:
        started = self._identity.started
        return () if started is None else started()

    def name_of(self, replica: Replica) -> str | None:
        return self._resume.core.name_of(replica)

    def chain_of(self, replica: Replica) -> int | None:
        return self._resume.foreign_reads.chain_of(replica)

    def on_unsure(self, node: Node) -> None:
        self._resume.foreign_reads.report_when_confirmed(node)


class Resume:
    """The `NodeSource` of a program: installs nodes of the pieces of one runtime from their stored observations."""

    __slots__ = (
        "_is_bringing",
        "_loads",
        "_pinned",
        "_todo",
        "_waited_for",
        "backend",
        "core",
        "counts",
        "fingerprints",
        "foreign_reads",
        "identity",
        "lookup",
        "parts",
        "sleeping",
        "states",
        "under_way",
    )

    def __init__(self, parts: ResumeParts, *, identity: str | None, backend: Backend) -> None:
        self.parts = parts
        self.core = core = parts.core
        self.backend = backend
        self.identity = identity  # the name of this runtime, the same over restarts; None: it has none
        self.fingerprints = CodeFingerprints(parts.pieces, core, parts.tasks, parts.limits)
        self._loads = core.scheduler.loads
        self._waited_for = Replica()  # holds the documents that nodes wait for during queries
        self._todo: deque[RegisteredNode] = deque()
        self._is_bringing = False
        # Instances that are not open, kept while the writers of their documents are registered.
        self._pinned: list[PieceInstance | None] = []
        self.states: dict[PieceInstance, ResumeState] = {}  # by root, from its first node on until it is stopped
        self.under_way: dict[ResumeState | LookupBatch, SpaceChannel] = {}
        self.lookup = ObservationLookup(self, parts)
        self.sleeping = LazyResume(self, parts)
        self.foreign_reads = ForeignReadCheck(parts)
        self.counts: Counter[str] = Counter()  # resumed nodes ("clean"), and the reasons of the others

    def is_quiet(self) -> bool:
        """Return True if no query is under way and no resumed node waits to run, except for a lost connection."""
        if any(channel.is_up() for channel in self.under_way.values()) or not self.sleeping.is_quiet():
            return False
        return not any(node.as_of and node.live and self._may_arrive(node) for node in self._loads.nodes())

    def readiness(self, root: PieceInstance) -> Callable[[], bool]:
        """Return the check whether a piece is resumed as of now, except for a lost connection."""
        is_looked_through = self.sleeping.readiness(root)
        channel = self.parts.channel(root.space.name)

        def is_ready() -> bool:
            state = self.states.get(root)
            if (
                state is not None
                and (state in self.under_way or state.asked)
                and channel is not None
                and channel.is_up()
            ):
                return False
            if not is_looked_through():
                return False
            arriving = [node for node in self._loads.nodes() if node.as_of and node.live and self._may_arrive(node)]
            return not arriving or set(root.all_nodes()).isdisjoint(arriving)

        return is_ready

    def _may_arrive(self, node: Node) -> bool:
        """Return True if the document that a node waits for may still arrive."""
        core = self.core
        channel = self.parts.channel(core.name_of(node.home) or "")
        awaited = core.scheduler.loads.awaited_by(node)
        is_waiting = awaited is not None and core.why_not(awaited) is None
        return is_waiting and channel is not None and channel.is_up()

    def drop_fingerprints(self) -> None:
        """Forget all fingerprints, because the code of classes was replaced (hot reload)."""
        self.fingerprints.forget()
        self.sleeping.wake_all()

    # ---- nodes -------------------------------------------------------------------------------------

    def add_node(self, instance: PieceInstance, node: Node, spec: NodeSpec, identity: NodeIdentity | None) -> None:
        """Resume a node of a piece that was registered, hold it until its observation is known, or let it run."""
        channel = self.parts.channel(instance.space.name)
        if channel is None or not channel.driver.session.runs.is_on:
            return
        root = instance.root
        state = self.states.get(root)
        if state is None:
            state = self.states[root] = self.begin(root, channel)
        if identity is not None:
            node.opaque = self.fingerprints.why_opaque(instance.cls, identity.code)
            facts = NodeDescription(self, instance, root, spec, identity)
            node.reporter = RunReporter(channel.driver.session.runs, facts, self.core.scheduler.limits)
        if not state.is_over:
            self.core.scheduler.hold(node, state.document)
        if identity is not None:
            if state.is_over and not state.table and not state.as_of:
                self.counts["nothing is known"] += 1
                return
            registered = RegisteredNode(instance, node, identity)
            if state.as_of and (identity.is_new or (instance.is_new and instance is not root)):
                self.counts["nothing is known"] += 1
            elif state.as_of and identity.key(instance.child_id) not in state.table:
                self.lookup.ask_for(root, state, channel, registered)
            elif state.is_over and not state.table:
                self.counts["nothing is known"] += 1
            elif state.is_over:
                self._todo.append(registered)
                self._bring_back()
            else:
                state.held.append(registered)

    @contextmanager
    def batch_nodes(self) -> Iterator[None]:
        """Resume the nodes that are registered in the context together, at its end."""
        if self._is_bringing:
            yield
            return
        self._is_bringing = True
        try:
            yield
        finally:
            self._is_bringing = False
            self._bring_back()

    def begin(self, root: PieceInstance, channel: SpaceChannel) -> ResumeState:
        """Begin to query the observations of a piece, unless none of its nodes ever ran."""
        state = ResumeState(self.waits_for(root))
        if root.is_new or self.parts.tasks.is_closed:
            state.is_over = True  # None of its nodes ever ran.
        else:
            self.under_way[state] = channel
            self.parts.tasks.begin(self._look_up_piece(root, state, channel), f"resuming {root!r}")
        return state

    def waits_for(self, root: PieceInstance) -> Document:
        """Return a document that no replica shows; nodes are held on it until an answer is here."""
        return Document(DocKey(SPACE_SCOPE, f"what is known of {root.id}"), self._waited_for)

    # ---- nodes that are gone -----------------------------------------------------------------------

    def drop_rows(self, instance: PieceInstance, member: str, here: Container[str]) -> None:
        """Withdraw the observations of elements of an `each` that are not among the keys `here`."""
        state, channel = self.states.get(instance.root), self.parts.channel(instance.space.name)
        if state is None or not state.table:
            return
        before = f"{instance.child_id}{BETWEEN}"
        rows = [key for key in state.table if key[0] == row_of(member) and key[1].startswith(before)]
        gone = [key for key in rows if key[1].removeprefix(before) not in here]
        ids = [child_name(instance.id, member, key[1].removeprefix(before)) for key in gone]
        if ids:
            gone += [key for key in state.table if any(is_below(key[1], id) for id in ids)]
        for key in dict.fromkeys(gone):
            observed, _ = state.table.pop(key)
            if channel is not None:
                _withdraw(channel, instance, observed.node)

    def drop_child(self, instance: PieceInstance, child: str) -> None:
        """Withdraw the observations of a child that is gone: a later child of that name is another one."""
        root, channel = instance.root, self.parts.channel(instance.space.name)
        state = self.states.get(root)
        if state is not None:
            for key in [key for key in state.table if is_below(key[1], child)]:
                del state.table[key]
        if channel is not None and channel.driver.session.runs.is_on:
            _withdraw(channel, instance, NodeKey(root.id, root.generation, "", child))

    # ---- sleeping pieces ---------------------------------------------------------------------------

    def open_asleep(self, instance: PieceInstance, user: str, session: str) -> Coroutine[Any, Any, bool]:
        """Put a piece to sleep that is about to be opened, if it is known to be clean without reading its record."""
        return self.sleeping.bulk_open.open_asleep(instance, user, session)

    def load_cells(self, instance: PieceInstance) -> Coroutine[Any, Any, None]:
        """Wait until the cells that are held for a sleeping piece are loaded, or will not arrive."""
        return self.sleeping.bulk_open.load_cells(instance)

    def prepare_open(self, instance: PieceInstance, user: str, session: str) -> Coroutine[Any, Any, None]:
        """Put a piece to sleep that is about to be opened and whose record was read, if it is known to be clean."""
        return self.sleeping.prepare_open(instance, user, session)

    def may_sleep(self, root: PieceInstance) -> bool:
        """Return whether `prepare_open` may put a piece to sleep. False: it is known not to be clean."""
        return self.sleeping.may_be_clean(root)

    def may_have_more_nodes(self, root: PieceInstance) -> bool:
        """Return whether stored nodes of a piece or its children may exist that are not registered here."""
        state = self.states.get(root)
        return state is not None and bool(state.as_of)

    def is_asleep(self, root: PieceInstance) -> bool:
        """Return whether a piece is open without nodes."""
        return self.sleeping.is_asleep(root)

    def wake_piece(self, root: PieceInstance) -> None:
        """Register all nodes of a sleeping piece. Each is resumed or runs."""
        self.sleeping.wake_piece(root)

    def start_effects(self, instance: PieceInstance) -> Coroutine[Any, Any, None]:
        """Register the effects of a sleeping piece before an event is handled by it or by one of its children."""
        return self.sleeping.start_effects(instance)

    def forget_piece(self, instance: PieceInstance) -> None:
        """Release a piece that was stopped."""
        self.states.pop(instance, None)
        self.sleeping.forget(instance)

    # ---- querying a piece ---------------------------------------------------------------------------------

    async def _look_up_piece(self, root: PieceInstance, state: ResumeState, channel: SpaceChannel) -> None:
        core = self.core
        try:
            if not root.space.replica.confirmed.seq:  # Nothing was ever loaded here: wait for the connection.
                await core.observers.until(lambda: channel.is_up() or root.space.ended is not None)
            await self._ask(root, state, channel)
            await self.load_classes(root, [known for known, _ in state.table.values()])
            await load_record_of_inputs(core, self.parts.tasks, root, round(self.parts.policy.answer_ms * 1_000))
            _drop_members(root, state, channel)
            state.foreign_answers = await self.foreign_reads.ask([known for known, _ in state.table.values()])
        finally:
            del self.under_way[state]
        state.is_over = True
        for node in root.all_nodes():  # Nodes that were registered before were resumed, or have run.
            if node.reporter is not None and node.is_known:
                state.table.pop(key_of(node.reporter.describe().node), None)
        held, state.held = state.held, []
        self.bring_back(held)
        self.foreign_reads.release_if_unread(state.foreign_answers)
        core.scheduler.release_held(state.document)
        core.request_tick()

    async def _ask(self, root: PieceInstance, state: ResumeState, channel: SpaceChannel) -> None:
        """Load all observations of a piece, page by page. Without an answer to each page, none of them counts."""
        after = None
        for _ in range(self.parts.limits.piece_pages):
            question = QueryObservations(0, root.id, None, "", None, after, self.parts.limits.page)
            page = await self.parts.ask_engine(channel, question)
            if not isinstance(page, Observations):
                state.table.clear()
                self.counts["nothing could be asked"] += 1
                return
            for each in page.observed:
                state.table[key_of(each.node)] = (each, page.seq)
                state.generation = max(state.generation, each.node.generation)
            after = page.next
            if after is None:
                return

    # ---- resuming nodes -------------------------------------------------------------------------------

    def bring_back(self, registered: list[RegisteredNode]) -> None:
        """Resume nodes whose observations are in the table of their piece."""
        self._todo.extend(registered)
        self._bring_back()

    def _bring_back(self) -> None:
        """Install the queued nodes whose observations still hold, with the writers of their inputs. The others run."""
        if self._is_bringing or not self._todo:
            return  # The call that is under way handles them.
        self._is_bringing = True
        self._pinned = []
        found: list[tuple[RegisteredNode, Observed, int]] = []
        scheduler = self.core.scheduler
        try:
            self.core.outside_run(lambda: self._collect(found))
        finally:
            self._is_bringing = False
        for registered, observed, seq in found:
            if self._is_held_again(registered):
                continue
            if seq == TO_RUN:
                self.core.outside_run(lambda e=registered, o=observed: scheduler.reconnect(e.node, o.reads))  # type: ignore[misc]
                continue
            # I7: it is notified of a change of each input.
            if not all(
                self._is_told(registered, read.doc) for read in observed.reads
            ) or not self.foreign_reads.has_writers(observed):
                self.counts[Reason.NO_WRITER.value] += 1
            elif self._is_installed(registered, observed, seq):
                self.counts["clean"] += 1
            elif self._queries_again(registered, observed, seq):
                continue
            else:
                self.counts["written since it was asked for"] += 1
        self._pinned = []

    def _is_held_again(self, registered: RegisteredNode) -> bool:
        """Hold a node whose whole piece is queried meanwhile. Return False if it is not."""
        state, node = self.states.get(registered.instance.root), registered.node
        if state is None or state.is_over or node.removed:
            return False
        state.held.append(registered)
        self.core.scheduler.hold(node, state.document)
        return True

    def _queries_again(self, registered: RegisteredNode, observed: Observed, seq: int) -> bool:
        """Query a node again if a document that it read was written since the answer, perhaps at another place."""
        root = registered.instance.root
        state, channel = self.states.get(root), self.parts.channel(root.space.name)
        documents = [root.space.replica.documents.get(read.doc) for read in observed.reads]
        is_behind = any(each is not None and each.value is not NOT_HERE and each.written > seq for each in documents)
        if (
            state is None
            or channel is None
            or not (state.as_of and is_behind and registered.tries < self.parts.limits.node_questions)
        ):
            return False
        registered.tries += 1
        self.lookup.ask_for(root, state, channel, registered)
        return True

    def _is_installed(self, registered: RegisteredNode, observed: Observed, seq: int) -> bool:
        state, scheduler = self.states.get(registered.instance.root), self.core.scheduler
        held = () if state is None else self.foreign_reads.held(state.foreign_answers, observed)
        node = registered.node
        is_back = self.core.outside_run(lambda: scheduler.resume(node, observed.reads, seq, held))
        if is_back:
            node.remembered = Remembered(observed.cause, observed.changed_at, observed.verified_at, observed.took_us)
        return is_back

    def _collect(self, found: list[tuple[RegisteredNode, Observed, int]]) -> None:
        for _ in range(self.parts.limits.writer_depth):
            while self._todo:
                registered = self._todo.popleft()
                if self._is_held_again(registered):
                    continue
                known = self._take_observation(registered)
                if known is not None:
                    found.append((registered, *known))
            for registered, observed, seq in found:
                for read in observed.reads:
                    self._register_writers(registered, read.doc, is_needed=seq != TO_RUN)
                self.foreign_reads.register_writers(observed)
            if not self._todo:
                return
        self._todo.clear()

    def _take_observation(self, registered: RegisteredNode) -> tuple[Observed, int] | None:
        """Take the observation of a node that can be installed or connected (`TO_RUN`). None: it runs as a new node."""
        instance, node, identity = registered.instance, registered.node, registered.identity
        state = self.states.get(instance.root)
        if state is None or node.removed or node.reporter is None:
            return None
        known = state.table.pop(identity.key(instance.child_id), None)
        if known is None:
            self.counts["nothing is known"] += 1
            return None
        why = self._why_not(registered, known[0])
        if why is None:
            return known
        self.counts[_counter(why, node)] += 1
        # I7: its inputs are demanded until it has run, and run before it, as without a restart.
        return (known[0], TO_RUN) if why in STALE else None

    def _why_not(self, registered: RegisteredNode, observed: Observed) -> Reason | None:
        """Judge a node, and restore its rows or its child. Return the reason why it has to run, or None."""
        reporter, identity = registered.node.reporter, registered.identity
        assert reporter is not None
        state = self.states.get(registered.instance.root)
        there = None if state is None else self.foreign_reads.why_not(state.foreign_answers, observed)
        reason = judge(reporter.describe(), self.implied(registered.instance, identity, observed), observed, there)
        if reason is None:
            return None if self._restores(registered, observed) else Reason.KEEPS
        if reason is Reason.FAILED and not identity.is_keeper:
            self._restores(registered, observed)  # A failed run removes no rows.
        if reason is Reason.WRITTEN:
            reporter.set_cause(observed)
            # I7: its run finds the rows that are gone, or whether its child is another one, as without a restart; their
            # observations are withdrawn with them.
            if not identity.is_keeper:
                self._restores(registered, observed)
            elif state is not None and state.as_of and not self._restores(registered, observed):
                self.sleeping.wake_piece(registered.instance.root)
        return reason

    def _restores(self, registered: RegisteredNode, observed: Observed) -> bool:
        restore = registered.identity.restore
        return restore is None or restore(observed.children)

    def implied(self, instance: PieceInstance, identity: NodeIdentity, observed: Observed) -> str | None:
        """Return the fingerprint of the declarations behind the reads of a stored observation. None: unknown."""
        space = instance.space.name
        reads = [(space, read.doc) for read in observed.reads] + [(read.space, read.doc) for read in observed.foreign]
        return self.fingerprints.defaults.of_reads_by(instance, identity, reads)

    async def load_classes(self, root: PieceInstance, observed: Iterable[Observed]) -> None:
        """Load the classes of the pieces whose documents some nodes read."""
        docs = dict.fromkeys([read.doc for each in observed for read in each.reads])
        await self.fingerprints.defaults.arrived(root.space, docs, round(self.parts.policy.answer_ms * 1_000))

    # ---- writers of inputs ---------------------------------------------------------------------

    def _register_writers(self, registered: RegisteredNode, doc: DocKey, *, is_needed: bool = True) -> None:
        """Register the nodes that write a document, if it is of a member of a piece that is open here."""
        # fault+ resume.makers_not_opened: return
        root = registered.instance.root
        if writers.has_writer(root.space, doc):
            return
        if writers.owner_of(self.parts.pieces, root.space, doc)[0] is None:
            if doc.id.startswith(root.id + SEPARATOR):
                if is_needed:
                    self.sleeping.wake_piece(root)  # The document is of a child that is not registered.
            else:
                self._pinned.append(writers.named(self.parts.pieces, root.space, doc))
        writers.register_writers(self.parts.pieces, registered.instance.space, doc)

    def _is_told(self, registered: RegisteredNode, doc: DocKey) -> bool:
        """Return True if a node is notified when the writers of a document have to run."""
        # fault resume.makers_not_opened: return True
        # fault resume.own_writer_sought: reader = None
        reader = (registered.instance, registered.identity.member)
        return writers.notifies_readers(self.parts.pieces, registered.instance.space, doc, reader)
