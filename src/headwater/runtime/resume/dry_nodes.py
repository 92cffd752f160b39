"""Nodes of the current program for stored observations, registered without running any of them.

`DryNodes` replaces resuming in a runtime that is only inspected. Each node with a stored observation is registered as
its piece would register it, including children, which the observations of their makers list. Every node is held, so
that no author code runs, whichever node is demanded. `DryNodes` owns these nodes and the reasons why a node cannot be
registered; it judges none of them.

`FrozenSpace` is the channel of a space in such a runtime: every document of given, unchanging data is loaded as soon as
it is requested. Nothing leaves the runtime: there is no engine and no session, and no event can be sent. Used by
commands that compare a program with stored data.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from headwater.data.address import SPACE_SCOPE, DocKey
from headwater.data.value import MaybeValue
from headwater.errors import HeadwaterError
from headwater.pieces.declarations import (
    ChildMember,
    ComputedMember,
    Declaration,
    EachMember,
    EffectMember,
    FoldMember,
    MaterializerMember,
)
from headwater.pieces.names import SEPARATOR
from headwater.protocol.observations import BETWEEN, About, Observed
from headwater.replica.detached import Detached
from headwater.replica.document import Document
from headwater.replica.feed import Kind, Notification
from headwater.replica.replica import Replica
from headwater.runtime.channel.backend import InMemory
from headwater.runtime.core.local_space import LocalSpace
from headwater.runtime.pieces.classes import class_named
from headwater.runtime.pieces.identity import Key, NodeIdentity
from headwater.runtime.pieces.records import Record, record_document
from headwater.runtime.resume import writers
from headwater.runtime.resume.fingerprint import about, owner_of
from headwater.runtime.resume.resume import Resume
from headwater.scheduler.node import Node, NodeKind
from headwater.scheduler.registry import NodeSpec

if TYPE_CHECKING:
    from headwater.runtime.pieces.instance import PieceInstance
    from headwater.runtime.resume.parts import ResumeParts


Read = Callable[[str, DocKey], MaybeValue]
"""Returns the value of a document of a space."""


class FrozenSpace(Detached):
    """The channel of a space with given data that does not change."""

    __slots__ = ("_read",)

    def __init__(self, replica: Replica, read: Callable[[DocKey], MaybeValue]) -> None:
        super().__init__(replica)
        self._read = read

    def _appear(self, docs: list[DocKey]) -> None:
        replica = self.replica
        replica.shown_anew()
        for doc in docs:
            value = self._read(doc)
            document = replica.confirmed.put(doc, value, 0)
            document.value = value
            replica.feed.emit(Notification(Kind.PULL, document, value, value, None, False, replica.confirmed.seq))
        replica.report()


def attach_dry_nodes(parts: ResumeParts, read: Read) -> DryNodes:
    """Make a runtime without spaces open frozen spaces, and register nodes without running them."""
    core, pieces = parts.core, parts.pieces

    def open_space(name: str) -> LocalSpace:
        replica = Replica()
        return core.add_space(name, replica, FrozenSpace(replica, lambda doc: read(name, doc)))

    core.open_space = open_space
    dry_nodes = DryNodes(parts)
    pieces.connect(replace(pieces.parts, node_source=dry_nodes))
    return dry_nodes


RUNTIME: Final = "runtime:"
_DERIVED: Final = (ComputedMember, MaterializerMember, EachMember, ChildMember, FoldMember)


@dataclass(slots=True, eq=False)
class DryNode:
    """A node of the current program that has a stored observation."""

    instance: PieceInstance
    node: Node
    identity: NodeIdentity
    said: About  # its identity and its fingerprint
    implied: str | None  # the declarations behind its reads; None: not known here
    observed: Observed
    is_kept: bool  # its rows or its child, if it has any, are restored without a run


class DryNodes(Resume):
    """The `NodeSource` of a preview: registers the nodes of a runtime. None of them runs or is resumed."""

    __slots__ = (
        "_is_making",
        "_named_pieces",
        "_never_arrives",
        "_tables",
        "_to_restore",
        "keepers",
        "missing",
        "nodes",
    )

    def __init__(self, parts: ResumeParts) -> None:
        super().__init__(parts, identity=None, backend=InMemory())
        self._to_restore: deque[DryNode] = deque()
        self._is_making = False
        self._named_pieces: dict[PieceInstance, None] = {}  # pieces without observations that other nodes read
        self._never_arrives = Document(DocKey(SPACE_SCOPE, "nothing runs here"), Replica())
        self._tables: dict[tuple[str, str], dict[Key, Observed]] = {}  # by space and piece
        self.nodes: dict[tuple[str, str, Key], DryNode] = {}
        self.keepers: set[Document] = set()  # results of nodes that keep rows or a child
        self.missing: dict[tuple[str, str, Key], str] = {}  # the reason why a node could not be registered

    # ---- the port `NodeSource` --------------------------------------------------------------------

    def is_quiet(self) -> bool:
        return True

    def readiness(self, root: PieceInstance) -> Callable[[], bool]:
        return self.is_quiet

    def add_node(self, instance: PieceInstance, node: Node, spec: NodeSpec, identity: NodeIdentity | None) -> None:
        """Hold a registered node for good. If it has an observation, restore its rows or its child."""
        self.core.scheduler.hold(node, self._never_arrives)
        if identity is None:
            return
        if identity.started is not None:
            self.keepers.update(node.outputs)
        key = identity.key(instance.child_id)
        space, root = instance.space.name, instance.root
        observed = self._tables.get((space, root.id), {}).get(key)
        at = (space, root.id, key)
        if observed is None or at in self.nodes:
            return
        self.fingerprints.why_opaque(instance.cls, identity.code)
        said = about(self.fingerprints, instance, spec, identity, observed.node.generation)
        self._have_records(space, observed)
        implied = self.implied(instance, identity, observed)
        self.nodes[at] = DryNode(instance, node, identity, said, implied, observed, identity.restore is None)
        if identity.restore is not None:
            self._to_restore.append(self.nodes[at])
            if not self._is_making:
                self._restore()

    def _have_records(self, space: str, observed: Observed) -> None:
        """Load the records of the pieces whose documents a node read: these name the classes."""
        core = self.core
        named = [(space, read.doc) for read in observed.reads] + [(each.space, each.doc) for each in observed.foreign]
        for name, doc in dict.fromkeys(named):
            id = owner_of(doc)[0].partition(SEPARATOR)[0]
            if id and self.parts.pieces.find(name, id) is None:
                core.load(record_document(core.space(name), id))

    @contextmanager
    def batch_nodes(self) -> Iterator[None]:
        """Restore the rows and children of the nodes that are registered in the context at its end."""
        if self._is_making:
            yield
            return
        self._is_making = True
        try:
            yield
        finally:
            self._is_making = False
            self._restore()

    def _restore(self) -> None:
        self._is_making = True
        try:
            while self._to_restore:
                dry_node = self._to_restore.popleft()
                restore, children = dry_node.identity.restore, dry_node.observed.children
                assert restore is not None
                # A second time if that failed: the first call may only have requested the documents.
                dry_node.is_kept = restore(children) or restore(children)
        finally:
            self._is_making = False

    def drop_rows(self, instance: PieceInstance, member: str, here: Container[str]) -> None:
        """Do nothing: no observation is withdrawn."""

    def has_writers(self, dry_node: DryNode) -> bool:
        """Return True if every input of a node has its writers registered, or needs none."""
        pieces, observed = self.parts.pieces, dry_node.observed
        places = [(dry_node.instance.space, read.doc) for read in observed.reads]
        places += [(self.core.space(read.space), read.doc) for read in observed.foreign]
        for space, doc in dict.fromkeys(places):
            instance = None if SEPARATOR in doc.id else writers.named(pieces, space, doc)
            if instance is not None:
                self._named_pieces[instance] = None
            self.core.outside_run(lambda space=space, doc=doc: writers.register_writers(pieces, space, doc))  # type: ignore[misc]
        return all(writers.notifies_readers(pieces, space, doc) for space, doc in places)

    # ---- registering stored nodes ----------------------------------------------------------------------------------

    def register_stored(
        self, space: LocalSpace, piece: str, record: Record | None, observed: Iterable[Observed]
    ) -> None:
        """Register the nodes of a piece that have observations and that the program still has."""
        table = {_key(each): each for each in observed}
        self._tables[space.name, piece] = table
        why = "" if record is not None else "its piece is not there any more"
        if record is not None:
            try:
                instance = self.parts.pieces.find_or_make(space, class_named(record.cls), record.name)
            except HeadwaterError as error:
                why = str(error)
            else:
                self.core.outside_run(lambda: self._register_from(instance, table))
        for key in table:
            if (space.name, piece, key) not in self.nodes:
                self.missing.setdefault((space.name, piece, key), why or "nothing in this program is it any more")

    def _register_from(self, root: PieceInstance, table: Mapping[Key, Observed]) -> None:
        by_child: dict[str, list[Key]] = {}
        for key in table:
            by_child.setdefault(key[1].partition(BETWEEN)[0], []).append(key)
        waiting = deque([root])
        while waiting:
            instance = waiting.popleft()
            for key in by_child.get(instance.child_id, ()):
                self._make(instance, key)
            waiting += instance.children()

    def _make(self, instance: PieceInstance, key: Key) -> None:
        """Register the node of a member, as the first use of its handle does."""
        stored, _, scope, principal = key
        member = self._member(instance, stored)
        try:
            if isinstance(member, EffectMember):
                self._show(instance, member, scope.removeprefix(RUNTIME), principal)
            elif isinstance(member, _DERIVED):
                instance.view("user" if scope == "user" else "space", principal if scope == "user" else "").handle(
                    member
                )
        except HeadwaterError as error:
            self.missing[instance.space.name, instance.root.id, key] = str(error)

    def _member(self, instance: PieceInstance, stored: str) -> Declaration | None:
        """Return the member of a node, or of the rows or elements that a node is of."""
        return instance.schema.get(stored) or instance.schema.get(stored.removesuffix(" row").removesuffix("/elements"))

    def _show(self, instance: PieceInstance, member: EffectMember, identity: str, user: str) -> None:
        """Register the node of an effect for its user. Opening the piece would demand it."""
        view = instance.view("session", user, "")
        instance.register(
            NodeSpec(
                id=f"{view.node_id(member.stored)} in {identity!r} for {user!r}",
                kind=NodeKind.EFFECT,
                fn=_nothing,
                home=instance.space.replica,
                returns=False,
                parent=instance.maker,
                debounce_ms=member.debounce_ms,
                throttle_ms=member.throttle_ms,
            ),
            NodeIdentity(member=member.stored, code=member.stored, scope=f"{RUNTIME}{identity}", principal=user),
        )


def _key(each: Observed) -> Key:
    node = each.node
    return (node.member, node.child, node.scope, node.principal)


def _nothing() -> None:
    """Stand for the function of an effect, which is never run."""


OpenDry = Callable[[Read], AbstractAsyncContextManager[DryNodes]]
"""Opens a runtime without an engine for a preview or a shadow run, closed at the end of the context."""
