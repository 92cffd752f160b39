"""Versions of piece classes: rolling deploys between processes, and new code inside a running process.

Generations. The record of a piece stores the fingerprints of its members and the version of its class as of the last
time the piece was opened, and a generation number that rises each time they differ from the stored ones. Every derived
run depends on the number (`generation_check`), so that admission rejects commits that an older version of the class has
in flight. An older version that sees a newer number reports one error and stops running the piece. Handlers of the
older version continue: an event is a change that a sender asked for. A member without a fingerprint counts as unchanged
here, and members that store no result (effects, handlers, reactions) do not count.

Claims. Of two codes with the same version, the first is in charge until no process that runs it is connected: before a
piece is opened, or computed where it is only named, the engine is asked whether connected sessions have claimed another
code of its class (`claim`). A higher version has claims of its own, and takes over by the generation; a lower one is
refused by the record.

Replacing classes (`changed`, `renew`). Fingerprints decide which members run again: a member with an equal fingerprint
stays clean, whatever else changed in its file. A member without a fingerprint counts as changed here. Readers of a
member that runs again are notified of a new value as usual, and of an equal value not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from headwater.data.ids import derive
from headwater.errors import AuthoringError
from headwater.pieces.declarations import Declaration, ResourceMember
from headwater.protocol.messages import ClaimCode
from headwater.runtime.pieces.classes import forget_fingerprints, member_digests, stored_name
from headwater.runtime.pieces.fold import Folding
from headwater.runtime.pieces.identity import KEYS

if TYPE_CHECKING:
    from headwater.runtime.core.core import Core
    from headwater.runtime.pieces.instance import PieceInstance
    from headwater.runtime.pieces.ports import NodeSource
    from headwater.runtime.writing.space_channel import SpaceChannel


class ClassClaims:
    """The claims that one runtime makes for the code of its classes."""

    __slots__ = ("_channel", "_is_only")

    def __init__(self, channel: Callable[[str], SpaceChannel | None], *, is_only: bool) -> None:
        """`is_only`: no other process connects to the spaces, so that no code has to be claimed."""
        self._channel = channel  # returns the channel of a space by its name; None: the space has no engine
        self._is_only = is_only

    def channel(self, instance: PieceInstance) -> SpaceChannel | None:
        """Return the channel to the engine of a piece. None: no other process can run the piece."""
        return None if self._is_only else self._channel(instance.space.name)

    async def claim(self, instance: PieceInstance) -> None:
        """Before a piece is run: refuse it if connected programs run other code of this version of its class."""
        channel = self.channel(instance)
        if channel is None or not (members := member_digests(instance.cls)):
            return
        schema = instance.schema
        name = derive("class", stored_name(instance.cls), str(schema.version))
        code = derive("code", *[f"{member} {digest}" for member, digest in sorted(members.items())])
        if not await channel.driver.claim_code(ClaimCode(0, name, code)):
            raise AuthoringError(
                f"{instance!r} is not run here: programs that are connected run other code of its class. Open it when "
                f"they have stopped, or, if the code of this program is newer, write class {instance.cls.__name__}("
                f"Piece, version={schema.version + 1}), which takes over from them"
            )


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
