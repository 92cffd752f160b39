"""Creation of the handle and the node of a member of a piece, by kind of member (`OWN_MAKERS`).

Each is created once per `ScopedView`, at its first use. Handlers, inputs, folds and resources have handles of
`runtime.events`, `links`, `fold` and `resource`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headwater.cells.cell import Cell
from headwater.cells.runtime_port import Topic
from headwater.errors import AuthoringError
from headwater.pieces.declarations import (
    CellMember,
    ChildMember,
    ComputedMember,
    Declaration,
    EachMember,
    EffectMember,
    MaterializerMember,
    ReactionMember,
    TopicMember,
)
from headwater.pieces.handles import Computed, Effect, Reaction
from headwater.replica.document import Document
from headwater.runtime.core.nodes import encoder
from headwater.runtime.pieces.identity import part_of
from headwater.scheduler.node import NodeKind
from headwater.scheduler.registry import NodeSpec

if TYPE_CHECKING:
    from headwater.runtime.pieces.view import Makers, ScopedView


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


def _topic(view: ScopedView, member: TopicMember) -> Topic[Any]:
    instance = view.instance
    return Topic(instance.core, view.document(member.stored), instance.schema.codec(member), instance)


def _children(view: ScopedView, member: EachMember | ChildMember) -> Any:
    return view.instance.child_set(member).handle(view)


def _effect(view: ScopedView, member: EffectMember) -> Effect:
    id = view.effect_id(member)
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
