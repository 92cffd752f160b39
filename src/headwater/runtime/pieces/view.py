"""`ScopedView`: a piece as one run sees it, for all users, for one user, or for one session.

A view owns its handles. A member of a wider scope is shared with the view of that scope; a member of a narrower scope
can only be passed on: an `OtherScopeHandle` stands for a member of one user or one session in a run that is for all
users or sessions. A child that it is passed to reads it for a user. Reading or writing it in such a run raises an error
that says why. A handle is created at its first use, which registers the node that computes
its value (`handles`). A view also registers the effects of its user and session, and the nodes that keep children while
the piece is open. It runs no node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn

from headwater.cells.handle_base import NotAValue
from headwater.data.address import SPACE_SCOPE, DocKey, Link, check_scope
from headwater.data.ids import derive
from headwater.errors import AuthoringError
from headwater.pieces.declarations import (
    SCOPES,
    CellMember,
    ChildMember,
    ComputedMember,
    Declaration,
    EachMember,
    EffectMember,
    FoldMember,
    GivenMember,
    HandlerMember,
    MaterializerMember,
    ResourceMember,
    Scope,
)
from headwater.pieces.handles import Computed
from headwater.pieces.names import document_id
from headwater.replica.document import Document
from headwater.runtime.channel.sessions import called, stable_name
from headwater.runtime.pieces.identity import NodeIdentity
from headwater.scheduler.node import Node, NodeKind
from headwater.scheduler.registry import NodeSpec

if TYPE_CHECKING:
    from headwater.pieces.piece import Context, Piece
    from headwater.runtime.channel.sessions import UserSessions
    from headwater.runtime.core.core import Core
    from headwater.runtime.pieces.child_set import ChildHandle, EachHandle
    from headwater.runtime.pieces.instance import PieceInstance
    from headwater.runtime.pieces.ports import EventSender

WHILE_OPEN: Final = " while it is open"
"""Part of the ids of nodes whose only task is to keep children while a piece is open."""

_OWN = (GivenMember, HandlerMember, EachMember, ChildMember)
"""Members whose handle depends on the user and session of the view, whatever their scope."""


_COMPUTED = (ComputedMember, FoldMember, ResourceMember)
"""Members whose value is computed by a node, and may be computed for each session."""


Makers = Mapping[type[Declaration], Callable[["ScopedView", Any], Any]]
"""By kind of member: makes the handle of a member for a view of the member's own scope. It is called once, and at every
use of an input that the record of the piece names: access to that is checked each time."""


@dataclass(frozen=True, slots=True)
class ViewParts:
    """The parts of a runtime that the views of its pieces use. Made once, by the composition of the runtime."""

    makers: Makers
    events: EventSender
    sessions: UserSessions


class ScopedView:
    """The members of a piece for the runs of one scope, user and session."""

    __slots__ = ("__weakref__", "_parts", "handles", "instance", "piece", "recorded", "scope", "session", "user")

    def __init__(self, parts: ViewParts, instance: PieceInstance, scope: Scope, user: str, session: str) -> None:
        self._parts = parts
        self.instance = instance
        self.scope = scope
        self.user = user
        self.session = session
        self.handles: dict[Declaration, Any] = {}
        self.recorded: dict[Declaration, Any] = {}  # inputs that the record names (`links.Links.make_input`)
        self.piece: Piece = object.__new__(instance.cls)
        object.__setattr__(self.piece, "__bound__", self)
        object.__setattr__(self.piece, "__inputs__", {})

    def handle(self, member: Declaration) -> Any:
        """Return the handle of a member, created at its first use."""
        found = self.handles.get(member)
        if found is not None:
            return found
        core = self.instance.core
        if core.is_own_thread():
            return self._find_or_make(member)
        return core.on_own_thread(partial(self._find_or_make, member))

    def _find_or_make(self, member: Declaration) -> Any:
        """Make the handle of a member, unless it was made while another thread waited for its turn."""
        found = self.handles.get(member)
        if found is not None:
            return found
        instance = self.instance
        if instance.is_stopped and instance.has_left and not isinstance(member, GivenMember):
            return self._handle_of_replacement(member)  # Inputs belong to the maker.
        if instance.inputs is None and isinstance(member, GivenMember):
            return self._make_own(member)
        found = self._make(member)
        if found is not None:
            self.handles[member] = found
            if isinstance(member, ComputedMember) and member.writes:
                self._make_other_writers(member)
        return found

    def _make_other_writers(self, member: ComputedMember) -> None:
        """Make the other nodes that write the cells of a member: readers look for writers only while there are none."""
        for each in member.writes:
            for other in self.instance.schema.writers_of(each):
                if other.scope == self.scope == member.scope:
                    self.handle(other)

    def has_owner(self, scope: Scope) -> bool:
        """Return whether a member of that scope has an owner here: it is not the space's, and its owner is known."""
        return scope != "space" and bool(self.user if scope == "user" else self.session)

    def drop_handles(self) -> None:
        """Drop all handles after the piece stopped: a later access creates new ones, with new nodes."""
        self.handles.clear()
        self.recorded.clear()

    def _make(self, member: Declaration) -> Any:
        instance = self.instance
        if self.scope != "space":
            self._check_owner(member)
        if member.scope == "session" == self.scope and not isinstance(member, _OWN):
            owner = instance.view_of_session(self.session) or self
            if self.user and self.user != owner.user:
                raise AuthoringError(
                    f"{member!r}: session {called(self.session)!r} is a window of {owner.user!r}. Write rt.space("
                    f"{instance.space.name!r}, user={self.user!r}, session=...) with one of {self.user!r}'s own"
                )
            if isinstance(member, _COMPUTED) and owner is not self:
                return owner.handle(member)  # A session has one value, that of its user.
        if instance.is_let_go and isinstance(member, (ComputedMember, FoldMember)) and member.scope == self.scope:
            return self._make_for_successor(member)
        if isinstance(member, _OWN) or member.scope == self.scope:
            return self._make_own(member)
        if SCOPES.index(member.scope) > SCOPES.index(self.scope):
            return OtherScopeHandle(instance, member)
        return instance.view(member.scope, self.user, self.session).handle(member)

    def _make_own(self, member: Declaration) -> Any:
        make = self._parts.makers.get(type(member))
        if make is None:
            raise AuthoringError(f"{member!r} has no handle")
        return make(self, member)

    def _make_for_successor(self, member: Declaration) -> Computed[Any]:
        """Return a handle of a stopped child that looks for the successor when read: the keeper may keep it again."""
        instance = self.instance
        made: Computed[Any] = Computed(instance.core, self.document(member.stored), instance.schema.codec(member))

        made.set_maker(lambda: self._handle_after(member))
        return made

    def maker(self, member: Declaration) -> Callable[[], object]:
        """Return the function that a handle calls when its document has no writer."""
        return partial(self._make_writer, member)

    def _make_writer(self, member: Declaration) -> Any:
        return self._handle_after(member) if self.instance.is_stopped else self.handle(member)

    def maker_of_cell(self, member: Declaration, writers: Sequence[Declaration]) -> Callable[[], object]:
        """Return the function that a cell calls when no node writes its document and a run reads it.

        I4: it registers the nodes that write the cell. In a child that is gone it raises, so that the reader notices.
        """

        def make() -> object:
            if self.instance.is_stopped:
                return self._handle_after(member)
            return [self.handle(each) for each in writers]

        return make

    def _handle_after(self, member: Declaration) -> Any:
        """Inside a run: return the handle of the same member in the child that replaced this stopped one."""
        instance = self.instance.successor()
        if instance is None:
            raise self.instance.ended_error()
        return instance.view(self.scope, self.user, self.session).handle(member)

    def _handle_of_replacement(self, member: Declaration) -> Any:
        """Return the same, also outside a run, for a child whose row is gone: it is here if there is one."""
        instance = self.instance.replacement()
        if instance is None:
            raise self.instance.ended_error()
        return instance.view(self.scope, self.user, self.session).handle(member)

    def view_of_successor(self) -> ScopedView:
        """Inside a run: return the view of the child that replaced this stopped one, or this view."""
        instance = self.instance.successor() if self.instance.is_stopped else None
        return self if instance is None else instance.view(self.scope, self.user, self.session)

    def seen_in(self, instance: PieceInstance, scope: Scope | None = None) -> ScopedView:
        """Return the view of another piece for the same user and session."""
        here = self.instance.space.name
        session = self._parts.sessions.there(here, instance.space.name, self.user, self.session)
        return instance.view(self.scope if scope is None else scope, self.user, session)

    def drop_computed(self) -> list[Declaration]:
        """Drop the handles of members computed for the session, and return these members."""
        found: list[Declaration] = []
        found += [each for each in self.handles if isinstance(each, _COMPUTED) and each.scope == "session"]
        for each in found:
            del self.handles[each]
        return found

    def _check_owner(self, member: Declaration) -> None:
        """Raise at once if a member belongs to a user or a session and the view has none."""
        if isinstance(member, _OWN) or member.scope == "space" or member.kind == "effect":
            return
        if self.scope == "user" and member.scope == "session":
            return
        if not self.has_owner(member.scope):
            raise AuthoringError(
                f"{member!r} has one value for each {member.scope}, and no {member.scope} is named: write "
                f"rt.space({self.instance.space.name!r}, {member.scope}=...)"
            )

    @property
    def owner(self) -> str:
        """The scope of its documents."""
        match self.scope:
            case "space":
                return "space"
            case "user":
                return f"user:{self.user}"
            case _:
                return f"session:{self.session}"

    def scopes(self) -> tuple[str, ...]:
        """Return the scopes that the view may see: its own and the wider ones."""
        match self.scope:
            case "space":
                return (self.owner,)
            case "user":
                return SPACE_SCOPE, self.owner
            case _:
                return SPACE_SCOPE, f"user:{self.user}", self.owner

    def document(self, stored: str) -> Document:
        """Return the document of a member of this scope."""
        instance = self.instance
        id = f"{instance.id}:{stored}"  # As `document_id` makes it.
        if self.scope == "space":
            return instance.space.replica.documents.of(DocKey(SPACE_SCOPE, id))
        return instance.space.document(id, check_scope(self.owner))

    def result_document(self, stored: str) -> Document:
        """Return the document of the result of a member's node. A transient child has results of its own.

        A child with the same id may be running, and its results stay those of its own nodes.
        """
        return self.document(f"{stored}/apart" if self.instance.is_transient else stored)

    def cell_documents(self) -> list[Document]:
        """Return the documents of the piece's own cells, those of a user or session only if the view has one."""
        return self._documents(self.instance.schema.of(CellMember))

    def documents(self) -> list[Document]:
        """Return the documents of the piece: its cells, its outputs and the notes beside them, but no elements."""
        return self._documents(self.instance.schema)

    def _documents(self, members: Iterable[Declaration]) -> list[Document]:
        instance = self.instance
        of, id = instance.space.replica.documents.of, instance.id
        found: list[Document] = []
        for each in members:
            if each.scope == "space":
                found += [of(DocKey(SPACE_SCOPE, f"{id}:{name}")) for name in document_names(each)]
            elif self.has_owner(each.scope):
                owner = instance.view(each.scope, self.user, self.session)
                found += [owner.document(name) for name in document_names(each)]
        return found

    def node_id(self, stored: str) -> str:
        """Return the id of the node of a member, as in messages and traces."""
        suffix = "" if self.scope == "space" else f" of {self.owner}"
        if self.instance.is_transient:
            suffix += " in a transaction"
        return f"{self.instance.space.name}/{self.instance.id}:{stored}{suffix}"

    def context(self) -> Context:
        return self._parts.events.context(self)

    # ---- nodes of an open piece --------------------------------------------------------------------

    def register_effect(self, member: EffectMember) -> Node:
        """Register the node of an effect, for the user and the session of the view."""
        instance = self.instance
        return instance.register(
            NodeSpec(
                id=self.effect_id(member),
                kind=NodeKind.EFFECT,
                fn=partial(member.fn, self.piece),
                home=instance.space.replica,
                returns=False,
                parent=instance.maker,
                transient=member.transient,
                debounce_ms=member.debounce_ms,
                throttle_ms=member.throttle_ms,
                no_auto_debounce=not member.auto_debounce,
            ),
            self._effect_identity(member),
        )

    def effect_id(self, member: EffectMember) -> str:
        """Return the id of the node of an effect."""
        # One runtime may act for several users, all in the same session.
        whose = f", {self.user!r}" if self.user else ""
        return f"{self.node_id(member.stored)}{whose}"

    def runs_at_each_start(self, member: EffectMember) -> bool:
        """Return whether an effect runs at each start, by declaration or because its runtime has no stable identity."""
        return self._effect_identity(member) is None

    def _effect_identity(self, member: EffectMember) -> NodeIdentity | None:
        """Return the identity of an effect. None: its runtime cannot be recognized."""
        if member.every_start or (scope := self.effect_scope()) is None:
            return None
        return NodeIdentity(member=member.stored, code=member.stored, scope=scope, principal=self.user)

    def effect_scope(self) -> str | None:
        """Return the scope of effects: one runtime runs them for one user, and again in each window that has a name.

        None: the runtime cannot be recognized.
        """
        identity = self.instance.runtime_identity
        if identity is None:
            return None
        window = stable_name(self.session)
        return f"runtime:{derive('window', identity, window) if window else identity}"

    def register_keeper(self, member: Declaration) -> Node:
        """Register a node that demands the children of a member while the piece is open."""
        handle: EachHandle[Any, Any] | ChildHandle[Any] = self.handle(member)
        instance = self.instance

        def look() -> None:
            handle.now.read_all_rows()

        return instance.register(
            NodeSpec(
                id=f"{self.node_id(member.stored)}{WHILE_OPEN}",
                kind=NodeKind.EFFECT,
                fn=look,
                home=instance.space.replica,
                returns=False,
                parent=instance.maker,
                no_auto_debounce=True,
            )
        )

    def link(self) -> Link:
        """Return a value that points at the piece."""
        return Link(self.instance.space.name, "space", document_id(self.instance.id, "@"))

    def describe(self) -> str:
        return f"{self.instance.name!r} of {self.instance.space.name}"


def document_names(member: Declaration) -> tuple[str, ...]:
    """Return the names of the documents that a member has in each piece, whichever elements that has."""
    name = member.stored
    match member:
        case CellMember() | ComputedMember() | MaterializerMember() | ChildMember():
            return (name,)
        case EachMember():
            beside = [f"{name}/elements"] if member.key is not None else []
            return (name, *beside, f"{name}/due") if member.forget else (name, *beside)
        case FoldMember():
            return (name, f"{name}/folded")
        case ResourceMember():
            return (name, f"{name}/result", f"{name}/claim")
        case _:
            return ()


_REFUSED: Final = (
    *("get", "exists", "view", "pull", "watch", "sink", "value"),
    *("set", "update", "delete", "push", "add", "discard", "increment"),
)


class OtherScopeHandle(NotAValue):
    """A member of a narrower scope than the run that names it."""

    __slots__ = ("_instance", "_member", "_way")
    __narrow__ = True

    def __init__(self, instance: PieceInstance, member: Declaration, way: tuple[tuple[str, Any], ...] = ()) -> None:
        self._instance = instance
        self._member = member
        self._way = way

    @property
    def core(self) -> Core:
        """The core of the runtime that the handle belongs to."""
        return self._instance.core

    def declaration(self) -> Declaration:
        """Return the member that the handle stands for or leads into."""
        return self._member

    def place(self) -> str | None:
        """Return the place of the member as text. None: the handle leads into the member, and that path has no text."""
        return None if self._way else f"{self._instance.id}:{self._member.stored}"

    def key(self, k: Any, /) -> OtherScopeHandle:
        return OtherScopeHandle(self._instance, self._member, (*self._way, ("key", k)))

    def at(self, path: Callable[[Any], Any], /) -> OtherScopeHandle:
        return OtherScopeHandle(self._instance, self._member, (*self._way, ("at", path)))

    def seen_by(self, view: ScopedView) -> Any:
        """Return the handle of the member, and of the path below it, for the user and session of a view."""
        handle = view.seen_in(self._instance).handle(self._member)
        for step, argument in self._way:
            handle = getattr(handle, step)(argument)
        return handle

    def same(self, other: object) -> bool:
        """Return whether another handle leads to the same place."""
        return (
            isinstance(other, OtherScopeHandle)
            and self._instance is other._instance
            and self._member is other._member
            and self._way == other._way
        )

    def __repr__(self) -> str:
        return f"<{self._member!r} of one {self._member.scope}>"


def _refusing(what: str) -> Callable[..., NoReturn]:
    def refuse(self: OtherScopeHandle, *_: object, **__: object) -> NoReturn:
        scope = self._member.scope
        raise AuthoringError(
            f"{what}() of {self!r}: this run is for all {scope}s alike. Read it in a @computed(scope={scope!r}), in an "
            "@effect or in a @handler."
        )

    return refuse


for _what in _REFUSED:
    setattr(OtherScopeHandle, _what, _refusing(_what))
