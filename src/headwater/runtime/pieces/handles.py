"""Creation of the handle and the node of a member of a piece, by kind of member (`OWN_MAKERS`).

Each is created once per `ScopedView`, at its first use. Handlers, inputs, folds and resources have handles of
`runtime.events`, `links`, `fold` and `resource`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headwater.cells.cell import Cell
from headwater.cells.runtime_port import Topic
from headwater.data.address import SPACE_SCOPE, DocKey
from headwater.data.ids import derive
from headwater.errors import AuthoringError
from headwater.pieces.declarations import (
    CellMember,
    ChildMember,
    ComputedMember,
    Declaration,
    EachMember,
    EffectMember,
    FoldMember,
    MaterializerMember,
    ReactionMember,
    ResourceMember,
    TopicMember,
)
from headwater.pieces.handles import Computed, Effect, Reaction
from headwater.replica.document import Document
from headwater.runtime.channel.sessions import stable_name
from headwater.runtime.core.nodes import encoder
from headwater.runtime.pieces.identity import NodeIdentity, part_of
from headwater.scheduler.node import Node, NodeKind
from headwater.scheduler.registry import NodeSpec

if TYPE_CHECKING:
    from headwater.runtime.pieces.children.coordinator import ChildHandle, EachHandle
    from headwater.runtime.pieces.view import Makers, ScopedView

WHILE_OPEN: Final = " while it is open"
"""Part of the ids of nodes whose only task is to keep children while a piece is open."""


def _cell(view: ScopedView, member: CellMember) -> Cell[Any]:
    instance = view.instance
    codec = instance.schema.codec(member)
    made: Cell[Any] = Cell(instance.core, view.document(member.stored), codec, (), codec.encode(member.default))
    # fault cells.side_writers_not_demanded: writers: list[Declaration] = []
    writers = [each for each in instance.schema.writers_of(member) if each.scope == member.scope]
    if writers or instance.parent is not None:
        made.set_maker(view.maker_of_cell(member, writers))
    return made


def _computed(view: ScopedView, member: ComputedMember | MaterializerMember) -> Computed[Any]:
    instance = view.instance
    document = view.result_document(member.stored)
    handle: Computed[Any] = Computed(instance.core, document, instance.schema.codec(member))
    id = view.node_id(member.stored)
    is_materializer = isinstance(member, MaterializerMember)
    writes = member.writes if isinstance(member, ComputedMember) else ()
    instance.register(
        NodeSpec(
            id=id,
            kind=NodeKind.MATERIALIZER if is_materializer else NodeKind.COMPUTATION,
            fn=partial(member.fn, view.piece),
            home=instance.space.replica,
            outputs=(document, *[_written(view, member, each) for each in writes]) if writes else (document,),
            encode=encoder(id, handle),
            envelope=_envelope(view, member) if isinstance(member, MaterializerMember) else (),
            declared=_named(view, member),
            parent=instance.maker,
            transient=member.transient,
            debounce_ms=member.debounce_ms,
            throttle_ms=member.throttle_ms,
            fingerprint=instance.digest(member),
        ),
        part_of(view.scope, view.user, member),
    )
    handle.set_maker(view.maker(member))
    return handle


def _written(view: ScopedView, member: Declaration, target: Declaration) -> Document:
    handle = view.handle(target)
    if not isinstance(handle, Cell) or handle.path:
        raise AuthoringError(
            f"{member!r} writes {target!r}, which is not a whole cell of its scope: name a cell of the class that has "
            "the same scope"
        )
    return handle.document


def _envelope(view: ScopedView, member: MaterializerMember) -> tuple[tuple[Document, Any], ...]:
    handles = [view.handle(each) for each in member.envelope]
    for each, handle in zip(member.envelope, handles, strict=True):
        if not isinstance(handle, Cell):
            raise AuthoringError(f"{member!r} writes inside {each!r}, which is only read: declare a Cell")
    return tuple((handle.document, handle.path) for handle in handles)


def _named(view: ScopedView, member: ComputedMember | MaterializerMember) -> tuple[Document, ...]:
    """Return the outputs of computed members of the same scope that the code names: these are to run first."""
    named = view.instance.schema.computed_by_name(member)
    return tuple([view.document(each.stored) for each in named if each.scope == view.scope]) if named else ()


def shown_as(view: ScopedView, member: EffectMember) -> str:
    """Return the id of the node of an effect."""
    # One runtime may act for several users, all in the same session.
    whose = f", {view.user!r}" if view.user else ""
    return f"{view.node_id(member.stored)}{whose}"


def is_always_shown(view: ScopedView, member: EffectMember) -> bool:
    """Return whether an effect runs at each start, by declaration or because its runtime has no stable identity."""
    return _shown_by(view, member) is None


def show(view: ScopedView, member: EffectMember) -> Node:
    """Register the node of an effect, for a user and a session."""
    instance = view.instance
    return instance.register(
        NodeSpec(
            id=shown_as(view, member),
            kind=NodeKind.EFFECT,
            fn=partial(member.fn, view.piece),
            home=instance.space.replica,
            returns=False,
            parent=instance.maker,
            transient=member.transient,
            debounce_ms=member.debounce_ms,
            throttle_ms=member.throttle_ms,
            no_auto_debounce=not member.auto_debounce,
        ),
        _shown_by(view, member),
    )


def _shown_by(view: ScopedView, member: EffectMember) -> NodeIdentity | None:
    """Return the identity of an effect. None: its runtime cannot be recognized."""
    if member.every_start or (scope := shown_in(view)) is None:
        return None
    return NodeIdentity(member=member.stored, code=member.stored, scope=scope, principal=view.user)


def shown_in(view: ScopedView) -> str | None:
    """Return the scope of effects: one runtime shows them to one user, and again in each window that has a name.

    None: the runtime cannot be recognized.
    """
    identity = view.instance.runtime_identity
    if identity is None:
        return None
    window = stable_name(view.session)
    return f"runtime:{derive('window', identity, window) if window else identity}"


def _topic(view: ScopedView, member: TopicMember) -> Topic[Any]:
    instance = view.instance
    return Topic(instance.core, view.document(member.stored), instance.schema.codec(member), instance)


def _children(view: ScopedView, member: EachMember | ChildMember) -> Any:
    return view.instance.child_set(member).handle(view)


def _effect(view: ScopedView, member: EffectMember) -> Effect:
    id = shown_as(view, member)
    return Effect(id, lambda delays: view.instance.set_delays(id, delays))


def _reaction(view: ScopedView, member: ReactionMember) -> Reaction:
    return Reaction(view.node_id(member.stored))


OWN_MAKERS: Final[Makers] = {
    CellMember: _cell,
    ComputedMember: _computed,
    MaterializerMember: _computed,
    TopicMember: _topic,
    EachMember: _children,
    ChildMember: _children,
    EffectMember: _effect,
    ReactionMember: _reaction,
}
"""Makers of the handles that need nothing but the view of their piece. The composition of a runtime adds the others."""


def cells_of(view: ScopedView) -> list[Document]:
    """Return the documents of a piece's own cells, those of a user or session only if the view has one."""
    return _documents(view, view.instance.schema.of(CellMember))


def documents_of(view: ScopedView) -> list[Document]:
    """Return the documents of a piece: its cells, its outputs and the notes beside them, but none of its elements."""
    return _documents(view, view.instance.schema)


def _documents(view: ScopedView, members: Iterable[Declaration]) -> list[Document]:
    instance = view.instance
    of, id = instance.space.replica.documents.of, instance.id
    found: list[Document] = []
    for each in members:
        if each.scope == "space":
            found += [of(DocKey(SPACE_SCOPE, f"{id}:{name}")) for name in document_names(each)]
        elif view.has_owner(each.scope):
            owner = instance.view(each.scope, view.user, view.session)
            found += [owner.document(name) for name in document_names(each)]
    return found


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


def keep_children(view: ScopedView, member: Declaration) -> Node:
    """Register a node that demands the children of a member while its piece is open."""
    handle: EachHandle[Any, Any] | ChildHandle[Any] = view.handle(member)
    instance = view.instance

    def look() -> None:
        handle.now.keep()

    return instance.register(
        NodeSpec(
            id=f"{view.node_id(member.stored)}{WHILE_OPEN}",
            kind=NodeKind.EFFECT,
            fn=look,
            home=instance.space.replica,
            returns=False,
            parent=instance.maker,
            no_auto_debounce=True,
        )
    )
