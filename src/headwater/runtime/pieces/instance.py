"""`PieceInstance`: one piece in one runtime, with its views, inputs, nodes and children.

Two programs in one runtime that name the same piece get the same instance. No node of it runs before it is demanded;
`open` demands its effects, its materializers and its children. `stop` removes all of its nodes.

When a piece stops running here, its readers must not keep an old value. A piece with a demanded reader outside of it is
only named from then on: its nodes stay, without those that run only because the piece is open
(`PieceInstance.close_for_readers`). Otherwise its nodes are removed, and its other readers are invalidated and run when
they are next demanded. The cost is proportional to the size of the piece, once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakValueDictionary

from headwater.cells.handle import Input
from headwater.cells.runtime_port import Delays
from headwater.errors import AbsentError, AuthoringError, GoneError, HeadwaterError
from headwater.pieces.declarations import (
    ChildMember,
    Declaration,
    EachMember,
    EffectMember,
    MaterializerMember,
    Scope,
)
from headwater.pieces.piece import Piece
from headwater.replica.document import NOT_HERE, Document
from headwater.runtime.core.demand import Demand
from headwater.runtime.core.local_space import LocalSpace
from headwater.runtime.pieces.child_set import ChildSet
from headwater.runtime.pieces.classes import member_digest
from headwater.runtime.pieces.generation_check import GenerationCheck
from headwater.runtime.pieces.view import ScopedView
from headwater.scheduler.graph.edges import readers_of_writes
from headwater.scheduler.node import AFRESH, Node
from headwater.scheduler.registry import NodeSpec

if TYPE_CHECKING:
    from headwater.runtime.core.core import Core
    from headwater.runtime.pieces.generation_check import Takeovers
    from headwater.runtime.pieces.identity import NodeIdentity
    from headwater.runtime.pieces.piece_documents import Erasures
    from headwater.runtime.pieces.ports import EventSender, NodeSource
    from headwater.runtime.pieces.registry import PieceRegistry
    from headwater.runtime.pieces.view import ViewParts


@dataclass(frozen=True, slots=True)
class InstanceParts:
    """The parts of a runtime that the instances of its pieces use. Made once, by the composition of the runtime."""

    core: Core
    registry: PieceRegistry
    events: EventSender
    node_source: NodeSource
    erasures: Erasures
    views: ViewParts
    takeovers: Takeovers


class PieceInstance:
    """One piece in one runtime.

    An open piece may be asleep: it is known to be clean, and its nodes are registered only when one of them is demanded
    or an input of one is written (`resume.lazy_resume`).
    """

    __slots__ = (
        "__weakref__",
        "_delays",
        "_generation_check",
        "_held",
        "_kept",
        "_parts",
        "_periods",
        "_shown",
        "_views",
        "_windows",
        "child_sets",
        "cls",
        "core",
        "generation",
        "id",
        "inputs",
        "is_launched",
        "is_let_go",
        "is_made",
        "is_new",
        "is_stopped",
        "is_transient",
        "maker",
        "name",
        "nodes",
        "parent",
        "root",
        "schema",
        "space",
    )

    def __init__(
        self,
        parts: InstanceParts,
        space: LocalSpace,
        cls: type[Piece],
        id: str,
        name: str,
        *,
        inputs: dict[str, Any] | None = None,
        parent: PieceInstance | None = None,
        maker: Node | None = None,
    ) -> None:
        self._parts = parts
        self.core = parts.core
        self.space = space
        self.cls = cls
        self.schema = cls.__schema__
        self.id = id
        self.name = name
        self.inputs = inputs  # the inputs it was made with; None: those of its record
        self.parent = parent  # the piece that keeps it as a child
        self.root: PieceInstance = self if parent is None else parent.root  # its topmost ancestor, or itself
        self.maker = maker  # the node that keeps it; its own nodes are removed with that node
        self.nodes: list[Node] = []
        self.child_sets: dict[Declaration, ChildSet] = {}
        self.generation = 0  # the generation of its class that runs it here (`generation_check`); 0: none does so far
        self._generation_check: GenerationCheck | None = None  # of a piece without a parent, once a node needs it
        self.is_launched = False  # by a handler whose commit has no verdict yet
        self.is_new = False  # it was made in this process: no node of it ever ran
        self.is_made = False  # its record is known to exist
        # For good: its element left, the commit that launched it failed, or its class was defined again.
        self.is_stopped = False
        self.is_transient = False  # it exists in one transaction only
        self.is_let_go = False  # is_stopped, because its keeper stopped, which may keep it again
        # Views with a holder: a program, a node, a running event. Weak, because a server sees many sessions.
        self._views: WeakValueDictionary[tuple[Scope, str, str], ScopedView] = WeakValueDictionary()
        # By session, the view of the user that the session belongs to, as long as that view has a holder.
        self._windows: WeakValueDictionary[str, ScopedView] | None = None  # Few pieces have one.
        self._shown: dict[tuple[str, str], list[Node]] = {}  # effects, by the user and session they are for
        # By user and session: documents that are kept loaded for it, whether or not a node reads them.
        self._held: dict[tuple[str, str], list[Document]] = {}
        self._periods: list[asyncio.Task[None]] = []  # tasks that send the events of periodic handlers
        self._delays: dict[str, Delays] = {}  # those that were set for effects, by the ids of their nodes
        self._kept: dict[Declaration, Node] = {}  # by member: the node that keeps its children while the piece is open

    def __repr__(self) -> str:
        return f"<{self.schema.name} {self.name!r} of {self.space.name}>"

    def view(self, scope: Scope, user: str = "", session: str = "") -> ScopedView:
        """Return the piece as a run of that scope, user and session sees it."""
        key = (scope, user if scope != "space" else "", session if scope == "session" else "")
        found = self._views.get(key)
        if found is None:
            found = ScopedView(self._parts.views, self, *key)
            if scope == "session" and user:
                self._bind_session_to_user(found)
            self._views[key] = found
        return found

    def view_of_session(self, session: str) -> ScopedView | None:
        """Return the view of the user that a session belongs to, if it belongs to one."""
        return None if self._windows is None else self._windows.get(session)

    def _bind_session_to_user(self, view: ScopedView) -> None:
        """Assign a session to the user of a view, and recompute for that user the values computed without a user."""
        if self._windows is None:
            self._windows = WeakValueDictionary()
        if self._windows.setdefault(view.session, view) is not view:
            return  # It belongs to another user; an access to a member of the session raises.
        nobodys = self._views.get(("session", "", view.session))
        if nobodys is not None:
            ids = {view.node_id(member.stored) for member in nobodys.drop_computed()}
            gone = [each for each in self.nodes if each.id in ids]
            readers = _outside_readers(gone)
            for node in gone:
                self.core.outside_run(lambda node=node: self.core.remove(node))  # type: ignore[misc]
                self.nodes.remove(node)
            self.core.invalidate_readers(readers)

    def handles_of(self, member: Declaration) -> list[Any]:
        """Return the handles of a member that exist so far."""
        return [view.handles[member] for view in self._views.values() if member in view.handles]

    def child_set(self, member: EachMember | ChildMember) -> ChildSet:
        """Return the rows of an `each` or a `child`, all of them."""
        found, node_source = self.child_sets.get(member), self._parts.node_source
        if found is None:
            with node_source.batch_nodes():
                found = self.child_sets[member] = self._make_child_set(member)
            if self.is_asleep:
                # In a piece that is awake they are kept already.
                self.core.afterwards(lambda: self.keep_children(member))
        elif found.is_sparse:
            node_source.wake_piece(self.root)  # The caller may want all of its rows.
        return found

    def partial_child_set(self, member: EachMember | ChildMember) -> ChildSet:
        """Return the rows of a member of a sleeping piece: only those that are needed are made."""
        found = self.child_sets.get(member)
        if found is None:
            found = self.child_sets[member] = self._make_child_set(member, is_sparse=True)
        return found

    def _make_child_set(self, member: EachMember | ChildMember, *, is_sparse: bool = False) -> ChildSet:
        parts = self._parts
        return ChildSet(self, member, parts.registry, parts.node_source, parts.erasures, is_sparse=is_sparse)

    def place(self, member: Declaration) -> str:
        """Return the name of a handler in messages and traces."""
        return f"{self.space.name}/{self.id}:{member.stored}"

    def maker_of(self, make: Callable[[], object]) -> Callable[[], object]:
        """Wrap the function that a handle calls when its document has no writer: a stopped piece makes nothing."""
        return lambda: None if self.is_stopped else make()

    def successor(self) -> PieceInstance | None:
        """Inside a run: return the child that is kept now under the id of this stopped one. None: there is none."""
        if self.parent is None:
            return None
        try:
            found = self._parts.registry.find_by_id(self.space, self.id)
        except (AbsentError, AuthoringError):
            return None
        return found if found.cls is self.cls and not found.is_stopped else None

    def replacement(self) -> PieceInstance | None:
        """Return the child that this runtime has now under the id of this stopped one, if it has one."""
        found = self._parts.registry.find(self.space.name, self.id)
        return found if found is not None and found.cls is self.cls and not found.is_stopped else None

    def ended_error(self) -> HeadwaterError:
        """Return the error for using a piece that is over."""
        if self.parent is None and not self.is_launched:
            return AuthoringError(
                f"{self!r} has ended, because its class was defined again: write await space.open("
                f"{self.cls.__name__}, {self.name!r}) with the new class"
            )
        return GoneError(
            f"{self!r} has ended: its key left, its parent stopped, or the commit that launched it failed. Get it from "
            "its parent again"
        )

    @property
    def has_left(self) -> bool:
        """Whether the row that kept this child is gone, or keeps another child now."""
        return self.is_stopped and self.parent is not None and not self.is_let_go

    @property
    def runtime_identity(self) -> str | None:
        """The identity of the runtime over restarts, which names the nodes of effects. None: it has none."""
        return self._parts.node_source.identity

    @property
    def is_asleep(self) -> bool:
        """Whether the piece belongs to one that is open without nodes."""
        return self._parts.node_source.is_asleep(self.root)

    async def start_effects_asleep(self) -> None:
        """Register the effects of a sleeping piece before an event is handled by it or by one of its children."""
        await self._parts.node_source.start_effects(self)

    @property
    def child_id(self) -> str:
        """The id of the piece in the names of its nodes. Empty: it has no parent."""
        return self.id if self.parent is not None else ""

    def generation_check(self) -> GenerationCheck:
        """Return the check that the derived runs of a piece without a parent, and of its children, begin with."""
        found = self._generation_check
        if found is None:
            found = self._generation_check = GenerationCheck(self.core, self._parts.takeovers, self)
        return found

    def check_generation(self) -> None:
        """Stop the piece if a newer version of its class runs it, according to its record."""
        if self._generation_check is not None:
            self._generation_check.is_passed()

    def digest(self, member: Declaration, *, keys: bool = False) -> str:
        """Return the fingerprint of a member, or of its element keys."""
        return member_digest(self.cls, member, keys=keys)

    def register(self, spec: NodeSpec, identity: NodeIdentity | None = None, *, rooted: bool | None = None) -> Node:
        """Register a node of this piece. It is not a child of the open run, whichever run asked for it.

        `identity` names the node over restarts; None: the node is never resumed.
        """
        if self.is_stopped:
            raise self.ended_error()
        spec.is_kept = True  # Demand for a row or a child reaches the nodes that keep it.
        core = self.core
        current = core.current
        run, current.run = current.run, None  # As `Core.outside_run` does.
        try:
            core.check_thread()
            node = core.scheduler.register(spec, rooted=rooted)
        finally:
            current.run = run
        self.nodes.append(node)
        if node.id in self._delays:  # They were set before, and come before the first change that it is told of.
            self.core.set_delays(node, self._delays[node.id])
        if spec.outputs or spec.envelope:
            guard = node.guard = self.root.generation_check()
            if not self.root.is_open:
                self.space.hold([guard.document])  # A newer version may open the piece later.
            if guard.document.value is NOT_HERE:
                core.load(guard.document)  # The piece slept, and was opened without its record, or is only named.
        self._parts.registry.idle.note_use(self)
        self._parts.node_source.add_node(self, node, spec, identity)
        if run is not None and run.node is not None and run.log is None:
            # The new node may write a document that the reader's last run read when a removed node wrote it. From here
            # on the open run checks the freshness of each read instead of comparing with its last reads (I1).
            run.log = [spot for spot in run.reads[: run.place] if spot is not None]
            run.reads, run.place = AFRESH, 0
        return node

    # ---- running here ------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        return bool(self._shown)

    def open(self, user: str, session: str, *, is_back: bool = True) -> None:
        """Run its effects for a user and a session, and keep its children, until it is stopped.

        `is_back`: the piece may sleep together with its root. A child that a run made just now may not.
        """
        if (user, session) in self._shown:
            return
        view = self.view("session", user, session)
        shown = self._shown[user, session] = []
        for node in self.nodes:
            if node.reporter is not None:
                node.reporter.forget()  # From now on the node belongs to the generation that was opened.
        if self._generation_check is not None:
            self._generation_check.run_refused_nodes()
        if not self._periods:
            self._periods = self._parts.events.start_periods(self)
        is_asleep = self.is_asleep
        if is_asleep and is_back and len(self._shown) == 1:
            if self.parent is None:
                self._hold(user, session, view.cell_documents())
            self._register_keepers(is_asleep=True)
            shown += [
                view.register_effect(each) for each in self.schema.of(EffectMember) if view.runs_at_each_start(each)
            ]
            return
        if self.parent is None and (user, session) not in self._held:
            self.request(user, session)
        if is_asleep and is_back:
            self._parts.node_source.wake_piece(self.root)  # Cleanness is known for the first user and session only.
        self._register_keepers()
        self._register_effects(view, shown)
        for child in self.children():
            child.open(user, session)

    def request(self, user: str, session: str) -> list[Document]:
        """Request all documents of the piece that a user and a session need, and keep them until it is closed for them.

        The record of the piece is requested with them.

        Return them. An attempt of a node would stop at each one that is not here.
        """
        found = self._held.get((user, session))
        documents = self.view("session", user, session).documents() if found is None else found
        # fault+ opening.documents_one_by_one: documents = self.view("session", user, session).cell_documents()
        if found is None:
            self._hold(user, session, documents)
        record = self.generation_check().document
        self.space.load(*[each for each in (*documents, record) if each.value is NOT_HERE])
        return documents

    def _hold(self, user: str, session: str, documents: list[Document]) -> None:
        self._held[user, session] = documents
        # With the record, which says whether a newer version of the class runs the piece.
        self.space.hold([*documents, self.generation_check().document])

    def release(self, user: str, session: str) -> None:
        """Release the documents that were requested for a user and a session."""
        others = {each for whose, documents in self._held.items() if whose != (user, session) for each in documents}
        self.space.let_loose([each for each in self._held.pop((user, session), ()) if each not in others])
        if not self._held:
            self.space.let_loose([self.generation_check().document])

    @property
    def held(self) -> list[Document]:
        """The documents that are kept loaded for it, whether or not a node reads them."""
        return [each for documents in self._held.values() for each in documents]

    def _register_keepers(self, *, is_asleep: bool = False) -> None:
        """Register the nodes that keep its children, and those that write cells, which readers of these must find."""
        has_children = bool(self.schema.of(EachMember)) or bool(self.schema.of(ChildMember))
        for member in self.schema if has_children else ():
            # Programs take children from handles as soon as the piece is open. Values can wait until they are read.
            if isinstance(member, (EachMember, ChildMember)) and not (
                is_asleep and self.schema.elements(member).value is not None
            ):
                self.keep_children(member)
        for each in self.schema.side_writers():
            if each.scope == "space":
                self.view("space").handle(each)

    def keep_children(self, member: EachMember | ChildMember) -> None:
        """Keep the children of a member here as long as the piece is open."""
        if self.is_open and member not in self._kept:
            self._kept[member] = self.view("space").register_keeper(member)

    def _register_effects(self, view: ScopedView, shown: list[Node]) -> None:
        """Register the effects that have no node yet, and the nodes that write cells for a user or a session."""
        there = {node.id for node in self.nodes}
        effects = self.schema.of(EffectMember)
        shown += [view.register_effect(each) for each in effects if view.effect_id(each) not in there]
        for each in self.schema.side_writers():
            # fault materializers.of_a_scope_not_opened: if False:
            if view.has_owner(each.scope):
                view.handle(each)

    def _end_materializers(self, user: str, session: str) -> None:
        """Remove the materializers of a user or session for whom the piece was closed, unless their writes are read."""
        for each in self.schema.of(MaterializerMember):
            is_left = each.scope == "session" or (each.scope == "user" and all(user != one for one, _ in self._shown))
            view = self._views.get((each.scope, user, session if each.scope == "session" else ""))
            if is_left and view is not None and each in view.handles:
                self._drop_materializer(view, each)

    def _drop_materializer(self, view: ScopedView, member: MaterializerMember) -> None:
        """Remove a materializer that nothing demands any more, unless its writes are read."""
        id = view.node_id(member.stored)
        ended = [node for node in self.nodes if node.id == id]
        if any(reader.live for node in ended for reader in readers_of_writes(node)):
            return
        del view.handles[member]
        for node in ended:
            self.core.outside_run(lambda node=node: self.core.remove(node))  # type: ignore[misc]
            self.nodes.remove(node)

    def register_all(self) -> None:
        """Register everything of a piece that was open and asleep, and of its children."""
        for child_set in self.child_sets.values():
            child_set.make_listed_rows()
        self._register_keepers()
        for (user, session), shown in self._shown.items():
            self._register_effects(self.view("session", user, session), shown)
        for child in self.children():
            child.register_all()

    def start_effects(self) -> None:
        """Register the effects of a piece that is open and asleep, and those of its children."""
        for (user, session), shown in self._shown.items():
            self._register_effects(self.view("session", user, session), shown)
        for child in self.children():
            child.start_effects()

    def add_effect(self, node: Node, user: str, session: str) -> Node:
        """Add a registered node to the effects for a user and a session."""
        self._shown[user, session].append(node)
        return node

    def set_delays(self, id: str, delays: Delays) -> None:
        """Change the delays of an effect, by the id of its node, until the piece is stopped."""
        self._delays[id] = delays.filled_from(self._delays.get(id, delays))
        for node in self.nodes:
            if node.id == id:
                self.core.set_delays(node, delays)

    def is_loading(self) -> bool:
        """Return whether one of its effects or keepers waits for a document that may still arrive.

        A resumed node waits for each document it read that is not here.
        """
        core = self.core
        for node in [node for nodes in (self._kept.values(), *self._shown.values()) for node in nodes]:
            loading = core.scheduler.loads.awaited_by(node)
            awaited = [] if loading is None else [loading]
            if node.as_of:
                read = [cast(Document, spot.document) for spot in node.reads if spot is not None]
                awaited += [document for document in read if document.value is NOT_HERE]
            if any(core.why_not(document) is None for document in awaited):
                return True
        return False

    def views(self) -> list[ScopedView]:
        """Return the views that have a holder."""
        return list(self._views.values())

    def opened_for(self) -> tuple[tuple[str, str], ...]:
        """Return the users and sessions that the piece is open for."""
        return tuple(self._shown)

    def children(self) -> list[PieceInstance]:
        return [child for each in self.child_sets.values() for child in each.instances()]

    def with_descendants(self) -> list[PieceInstance]:
        """Return the piece and all its descendants."""
        found = [self]
        for each in found:
            found += each.children()
        return found

    def all_nodes(self) -> list[Node]:
        """Return the nodes of the piece and of its descendants."""
        return [node for each in self.with_descendants() for node in each.nodes]

    def close(self, user: str, session: str) -> bool:
        """Stop running the piece for one user and session.

        Return False, without effect, if it is not open for them or is open for no other user and session.
        """
        if (user, session) not in self._shown or len(self._shown) == 1:
            return False
        gone = dict.fromkeys(self._shown.pop((user, session)))
        self.release(user, session)
        for child in self.children():
            child.close(user, session)
        for node in gone:
            self.core.outside_run(lambda node=node: self.core.remove(node))  # type: ignore[misc]
        self.nodes = [each for each in self.nodes if each not in gone]
        self._end_materializers(user, session)
        return True

    def stop(self, *, is_read_on: bool = False, is_let_go: bool = False, is_replaced: bool = False) -> None:
        """Remove all nodes of the piece from this runtime. Documents stay; a child or an unconfirmed launch is over.

        `is_read_on`: it is computed further for demanded readers outside of it, as a piece that is only named.
        `is_let_go`: the piece is a child that stops with its keeper, which may keep it again.
        `is_replaced`: the class was defined again, and an instance of the new class takes the place of this one.
        """
        if self.is_stopped:
            return
        self.is_stopped = self.parent is not None or self.is_launched or is_replaced
        readers = _outside_readers(self.all_nodes()) if is_read_on and not self.is_stopped else {}
        # fault pieces.rows_stopped: if False:
        if any(map(_is_demanded, readers)):
            self._parts.registry.forget_instance(self)
            self._parts.node_source.forget_piece(self)
            self.close_for_readers()
            self.space.hold([self.generation_check().document])  # As that of every piece that is only named.
            self._parts.registry.idle.note_use(self)
            return
        self.is_let_go = is_let_go
        for child_set in self.child_sets.values():
            for child in child_set.instances():
                child.stop(is_let_go=is_let_go or not self.is_stopped)
        self._parts.registry.forget_instance(self)
        self._parts.node_source.forget_piece(self)
        self._cancel_periods()

        def remove() -> None:
            for node in self.nodes:
                self.core.remove(node)

        read_here = self.documents() if self.has_left and not self.is_transient else []
        self.core.outside_run(remove)
        self.core.scheduler.writers_left(read_here)  # They find the child that replaced it, or a `GoneError`.
        self.nodes.clear()
        for user, session in tuple(self._held):
            self.release(user, session)
        if self._generation_check is not None:
            self.space.let_loose([self._generation_check.document])
        for view in self._views.values():
            view.drop_handles()  # A holder of the piece that reads again gets new nodes.
        self._shown.clear()
        self._kept.clear()
        self._delays.clear()
        self.child_sets.clear()
        self.is_new = False
        self.core.invalidate_readers(readers)

    def close_for_readers(self) -> None:
        """End what runs only because the piece is open, and what it sleeps by. It is computed further for readers."""
        self.is_new = False
        for child_set in self.child_sets.values():
            child_set.rest()
        for child in self.children():
            child.close_for_readers()
        self._cancel_periods()
        for node in self.keepers():
            self.core.outside_run(lambda node=node: self.core.remove(node))  # type: ignore[misc]
        self.nodes = [node for node in self.nodes if not node.removed]
        for user, session in tuple(self._held):
            self.release(user, session)
        self._shown.clear()
        self._kept.clear()
        self._delays.clear()
        for view in self.views():
            for each in self.schema.of(MaterializerMember):
                if each in view.handles and each.scope == view.scope:
                    self._drop_materializer(view, each)

    def keepers(self) -> list[Node]:
        """Return its effects, and the nodes that keep its children, while it is open."""
        return [*self._kept.values(), *dict.fromkeys(node for nodes in self._shown.values() for node in nodes)]

    def _cancel_periods(self) -> None:
        for task in self._periods:
            task.cancel()
        self._periods.clear()

    def documents(self) -> list[Document]:
        """Return its own documents that were used here: those that others can read. Inputs are of other pieces."""
        used = [
            handle.document
            for view in self._views.values()
            for handle in view.handles.values()
            if isinstance(handle, Input)
        ]
        own = f"{self.id}:"
        # fault pieces.observers_of_inputs_read_again: own = ""
        found = [*used, *(document for node in self.nodes for document in node.outputs)]
        return [document for document in dict.fromkeys(found) if document.key.id.startswith(own)]


def _outside_readers(nodes: list[Node]) -> dict[Node, None]:
    """Return the readers of some nodes that are not among these nodes."""
    own = set(nodes)
    return {each: None for node in nodes for each in readers_of_writes(node) if each not in own}


def _is_demanded(reader: Node) -> bool:
    """Return whether a reader is demanded, other than by an event or a write that waits for a value."""
    return reader.live and not isinstance(getattr(reader.fn, "__self__", None), Demand)
