"""Naming and restoring a child in the observation of its row: its class, and the origin of each input.

An input is named by its origin in the maker: the element, or a member of the maker, including the maker's own inputs.
An input from elsewhere has no name; then the child cannot be restored without a run of its row. `remade` makes unbound
pieces; binding them is left to the caller.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from headwater.cells.handle import Input
from headwater.pieces.declarations import Declaration, GivenMember
from headwater.pieces.handles import Handler
from headwater.pieces.piece import Piece
from headwater.runtime.pieces.inputs import OtherScopeHandle, same_inputs

if TYPE_CHECKING:
    from headwater.runtime.pieces.children.coordinator import ChildRow
    from headwater.runtime.pieces.instance import PieceInstance

ELEMENT: Final = "element"
MEMBER: Final = "member "


def kept_by(
    instance: PieceInstance, row: ChildRow, element_of: Callable[[ChildRow], Input[Any] | None]
) -> tuple[str, ...] | None:
    """Return the child of a row as texts. Empty: no child. None: an input of the child cannot be named."""
    child = row.child
    if child is None:
        return ()
    said = [child.schema.name]
    element = element_of(row)
    for name, value in sorted((child.inputs or {}).items()):
        origin = _origin(instance, element, value)
        if origin is None:
            return None
        said.append(f"{name}={origin}")
    return tuple(said)


def remade(
    instance: PieceInstance, classes: tuple[type[Piece], ...], element: Input[Any] | None, said: tuple[str, ...]
) -> Piece | None:
    """Return the unbound piece that the texts name. None: its class or an input is not known here."""
    cls = next((each for each in classes if each.__schema__.name == said[0]), None)
    if cls is None:
        return None
    inputs: dict[str, Any] = {}
    for each in said[1:]:
        name, _, origin = each.partition("=")
        found = _from(instance, element, origin)
        if found is None:
            return None
        inputs[name] = found
    return cls(**inputs)


def _origin(instance: PieceInstance, element: Input[Any] | None, value: Any) -> str | None:
    if element is not None and _same(value, element):
        return ELEMENT
    for member in (_member(instance, value), *instance.schema.of(GivenMember)):
        if member is not None and _same(value, instance.view("space").handle(member)):
            return f"{MEMBER}{member.stored}"
    return None


def _member(instance: PieceInstance, value: Any) -> Declaration | None:
    """Return the member of the piece that a handle may belong to."""
    if isinstance(value, (Handler, OtherScopeHandle)):
        declared = value.declaration() if isinstance(value, OtherScopeHandle) else value.member
        return declared if instance.schema.get(declared.stored) is declared else None
    id, _, stored = value.document.key.id.rpartition(":") if isinstance(value, Input) else ("", "", "")
    return instance.schema.get(stored) if id == instance.id else None


def _from(instance: PieceInstance, element: Input[Any] | None, origin: str) -> Any:
    if origin == ELEMENT:
        return element
    member = instance.schema.get(origin.removeprefix(MEMBER))
    if member is None:
        return None
    handle = instance.view("space").handle(member)
    # A recorded input may be refused to the child; the access check needs a run of the row.
    return (
        None
        if instance.pieces.link_access.is_asked_about(instance, handle) and isinstance(member, GivenMember)
        else handle
    )


def _same(one: Any, other: Any) -> bool:
    return same_inputs({"": one}, {"": other})
