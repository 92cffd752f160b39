"""Replacing classes of pieces in a running program (hot reload).

Fingerprints decide which members run again: a member with an equal fingerprint stays clean, whatever else changed in
its file. A member without a fingerprint counts as changed here. Readers of a member that runs again are notified of a
new value as usual, and of an equal value not at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from headwater.pieces.declarations import Declaration, ResourceMember
from headwater.runtime.pieces.classes import forget_fingerprints
from headwater.runtime.pieces.fold import Folding
from headwater.runtime.pieces.identity import KEYS

if TYPE_CHECKING:
    from headwater.runtime.core.core import Core
    from headwater.runtime.pieces.instance import PieceInstance
    from headwater.runtime.pieces.ports import NodeSource


def renew(
    core: Core, instances: Iterable[PieceInstance], node_source: NodeSource, members: frozenset[tuple[str, str]]
) -> None:
    """Invalidate the nodes of these members in every piece of a runtime. They run again when they are demanded."""
    forget_fingerprints(members)
    node_source.drop_fingerprints()
    for instance in instances:
        for member in instance.schema:
            at = (instance.schema.name, member.stored)
            if at in members:
                _renew(instance, member)
            if (at[0], KEYS + at[1]) in members:
                _renew_keys(instance, member)
    core.request_tick()


def replace_former_children(instance: PieceInstance) -> None:
    """Run each row again whose child is of a class that was defined again: it makes a child of the new class."""
    for home in instance.with_descendants():
        for child_set in home.child_sets.values():
            for row in child_set.rows.values():
                if row.child is not None and row.node is not None and row.child.schema.is_former:
                    instance.core.scheduler.outdate(row.node)


def _renew(instance: PieceInstance, member: Declaration) -> None:
    child_set = instance.child_sets.get(member)
    if child_set is not None:
        for row in child_set.rows.values():
            if row.node is not None:
                row.node.fingerprint = instance.digest(member)
                instance.core.scheduler.outdate(row.node)
        return
    if isinstance(member, ResourceMember):
        for handle in instance.handles_of(member):
            handle.renew()
    name = f"{instance.space.name}/{instance.id}:{member.stored}"
    for node in instance.nodes:
        if node.id == name or node.id.startswith(f"{name} of "):
            folding: Any = getattr(node.fn, "__self__", None)
            if isinstance(folding, Folding):
                folding.forget()  # The accumulated value comes from the replaced function.
            node.fingerprint = instance.digest(member)
            instance.core.scheduler.outdate(node)


def _renew_keys(instance: PieceInstance, member: Declaration) -> None:
    child_set = instance.child_sets.get(member)
    if child_set is not None:
        child_set.node.fingerprint = instance.digest(member, keys=True)
        instance.core.scheduler.outdate(child_set.node)
    for node in instance.nodes:
        if node.id == f"{instance.space.name}/{instance.id}:{member.stored}/elements":
            node.fingerprint = instance.digest(member, keys=True)
            instance.core.scheduler.outdate(node)
