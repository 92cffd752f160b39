"""Versions of piece classes: rolling deploys between processes, and new code inside a running process.

Generations. The record of a piece stores the fingerprints of its members and the version of its class as of the last
time the piece was opened, and a generation number that rises each time they differ from the stored ones. Every derived
run depends on the number (`generation_check`), so that admission rejects commits that an older version of the class has
in flight. An older version that sees a newer number reports one error and stops running the piece. Handlers of the
older version continue: an event is a change that a sender asked for. A member without a fingerprint counts as unchanged
here, and members that store no result (effects, handlers, reactions) do not count.

Claims. Of two codes with the same version, the first is in charge until no process that runs it is connected: before a
piece is opened, or computed where it is only named, the engine is asked whether connected sessions have claimed another
code of its class (`claim`). A
higher version has claims of its own, and takes over by the generation; a lower one is refused by the record.

Replacing classes (`changed`, `renew`). Fingerprints decide which members run again: a member with an equal fingerprint
stays clean, whatever else changed in its file. A member without a fingerprint counts as changed here. Readers of a
member that runs again are notified of a new value as usual, and of an equal value not at all.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

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
    FunctionMember,
    HandlerMember,
    MaterializerMember,
    ReactionMember,
    ResourceMember,
)
from headwater.pieces.fingerprints.fingerprint import Fingerprint, Fingerprinter
from headwater.pieces.piece import Piece
from headwater.protocol.messages import ClaimCode
from headwater.runtime.pieces.fold.fold import Folding
from headwater.runtime.pieces.identity import KEYS
from headwater.runtime.pieces.idle import instances_of
from headwater.runtime.pieces.records import classes as imported_classes
from headwater.runtime.pieces.records import stored_name

if TYPE_CHECKING:
    from headwater.runtime.pieces.instance import PieceInstance
    from headwater.runtime.pieces.registry import PieceRegistry
    from headwater.runtime.writing.space_channel import SpaceChannel

__all__ = ["changed", "described", "fingerprints", "renew"]


class CodeVersions:
    """The version of its class (the generation) that runs each open piece of one runtime."""

    __slots__ = ("is_only",)

    def __init__(self, *, is_only: bool) -> None:
        """`is_only`: no other process connects to the spaces, so that no code has to be claimed."""
        self.is_only = is_only

    async def claim(self, instance: PieceInstance, channel: SpaceChannel | None) -> None:
        """Before a piece is run: refuse it if connected programs run other code of this version of its class."""
        if channel is None or self.is_only or not (members := self.members(instance.cls)):
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

    def members(self, cls: type[Piece]) -> Mapping[str, str]:
        """Return the fingerprints of the derived members of a class and of its possible children, by name."""
        classes = with_children(cls)
        code = tuple([fn.__code__ for each in classes for fn in each.__schema__.functions()])
        known = cls.__schema__.digests
        if known is None or known[0] != code:  # The code of a member may have been patched.
            found: dict[str, str] = {}
            for each in classes:
                described, name = described_members(each), each.__schema__.name
                for stored in _derived(each):
                    digest = described[stored].digest if stored in described else None
                    if digest is not None:
                        found[f"{name}.{stored}"] = digest
            known = cls.__schema__.digests = (code, found, tuple(sorted(set(_cells(classes)))))
        return known[1]

    def cells(self, cls: type[Piece]) -> tuple[str, ...]:
        """Return the cells of a class and of its possible children, each with its class, by their stored names."""
        self.members(cls)
        known = cls.__schema__.digests
        assert known is not None
        return known[2]

    def digest(self, cls: type[Piece], member: Declaration, *, keys: bool = False) -> str:
        """Return the fingerprint of a member, or of its element keys, as commits carry it (I8). Empty: not known."""
        schema = cls.__schema__
        found = schema.digests[1] if schema.digests is not None else self.members(cls)
        return found.get(f"{schema.name}.{KEYS if keys else ''}{member.stored}", "")

    def code_of(self, cls: type[Piece], member: Declaration) -> str | None:
        """Return the fingerprint of one member. None: the member has none."""
        return self.members(cls).get(f"{cls.__schema__.name}.{member.stored}")

    def is_newer(self, cls: type[Piece], stored: Mapping[str, str]) -> bool:
        """Return whether a member of a class has another fingerprint than the stored one."""
        now = self.members(cls)
        return any(stored.get(name) != digest for name, digest in now.items())


def _derived(cls: type[Piece]) -> Iterator[str]:
    """Yield the names of members whose results are stored. Other members do not make a new generation."""
    for member in cls.__schema__:
        if not isinstance(member, (EffectMember, HandlerMember, ReactionMember)):
            yield member.stored
            yield KEYS + member.stored


def _cells(classes: Iterable[type[Piece]]) -> Iterator[str]:
    for cls in classes:
        for member in cls.__schema__.of(CellMember):
            yield f"{stored_name(cls)}.{member.stored}"


def with_children(cls: type[Piece]) -> list[type[Piece]]:
    """Return a class and the classes of all its possible descendants."""
    found = [cls]
    for each in found:
        schema = each.__schema__
        for member in schema if bool(schema.of(EachMember)) or bool(schema.of(ChildMember)) else ():
            if isinstance(member, (EachMember, ChildMember)):
                found += [made for made in schema.elements(member).pieces if made not in found]
    return found


_described: WeakKeyDictionary[type[Piece], tuple[tuple[object, ...], Mapping[str, Fingerprint]]] = WeakKeyDictionary()
"""By class: the code of its members, and their fingerprints. All runtimes of a process say the same of one class."""


def described_members(cls: type[Piece]) -> Mapping[str, Fingerprint]:
    """Return the fingerprints of the members of a class by stored name. A class is looked at once in a process.

    It is looked at again if the code of a member was replaced.
    """
    code = _code_of(cls)
    known = _described.get(cls)
    if known is None or known[0] != code:
        known = _described[cls] = (code, _describe(cls))
    return known[1]


def _code_of(cls: type[Piece]) -> tuple[object, ...]:
    return tuple([fn.__code__ for fn in cls.__schema__.functions()])


def _describe(cls: type[Piece]) -> dict[str, Fingerprint]:
    return {at[1]: found for at, found in described((cls,)).items()}


@cache
def describe_imported() -> None:
    """Look at all classes that are imported from files, before the first piece of the process runs.

    A run may change globals that members of other classes refer to. In a notebook, code that a class refers to may be
    defined after the first run: a class is looked at there when its first piece runs, as is one that is imported later.
    """
    # fault+ fingerprint.classes_described_when_opened: return
    for cls in imported_classes():
        if getattr(sys.modules.get(cls.__module__), "__file__", None) is None:
            continue
        try:
            found = _describe(cls)
        except Exception:  # Of the author's code. It is raised again where a piece of the class is opened.
            continue
        if all(each.digest is not None for each in found.values()):  # A name may be defined later.
            _described[cls] = (_code_of(cls), found)


def forget_fingerprints(members: Collection[tuple[str, str]]) -> None:
    """Describe members anew whose code was replaced in the running process.

    The other members keep their fingerprints: runs have changed globals meanwhile.
    """
    for cls, (_, found) in [*_described.items()]:
        gone = {stored for owner, stored in members if owner == cls.__schema__.name}
        now = _describe(cls) if gone else {}
        _described[cls] = (_code_of(cls), {**found, **{each: now[each] for each in gone & now.keys()}})
    for cls in imported_classes():
        cls.__schema__.digests = None


Fingerprints = Mapping[tuple[str, str], str | None]


def fingerprints(classes: Iterable[type[Piece]]) -> Fingerprints:
    """Return the fingerprints of the members of classes, by class name and member name."""
    return {at: found.digest for at, found in described(classes).items()}


def described(classes: Iterable[type[Piece]]) -> Mapping[tuple[str, str], Fingerprint]:
    """Return the same as `fingerprints`, each with its components or the reason why it is missing."""
    maker = Fingerprinter()
    found: dict[tuple[str, str], Fingerprint] = {}
    for cls in classes:
        schema = cls.__schema__
        for member in schema:
            at = (schema.name, member.stored)
            if isinstance(member, FoldMember):
                # Elements and results are decoded by their types; an element may come from the default of the source.
                extra = (member.remove, member.by, member.start, member.source)
                found[at] = maker.of(member.add, owner=cls, types=schema.typing.types(member), extra=extra)
            elif isinstance(member, FunctionMember):
                found[at] = maker.of(member.fn, owner=cls, extra=_declared(member))
                if isinstance(member, EachMember):
                    chosen = [each for each in (member.key, member.order) if each is not None]
                    # Which elements there are depends on how they are stored, too.
                    types = schema.typing.types(member)[:1]
                    found[schema.name, KEYS + member.stored] = _together(
                        [maker.of(each, owner=cls, types=types, extra=(member.source,)) for each in (*chosen, _no_key)]
                    )
    return found


def _declared(member: FunctionMember) -> tuple[object, ...]:
    """Return the declared outputs or the source of a member, which limit its code."""
    if isinstance(member, ComputedMember):
        return tuple([each.stored for each in member.writes])
    if isinstance(member, EachMember):
        return (member.source,)  # An element may come from the default of the source.
    return tuple([each.stored for each in member.envelope]) if isinstance(member, MaterializerMember) else ()


def _no_key() -> None:
    """Stand in for the key function of an `each` without one, so that the source is still fingerprinted."""


def _together(found: list[Fingerprint]) -> Fingerprint:
    whys = [each.why for each in found if each.digest is None]
    if whys:
        return Fingerprint(digest=None, why="; ".join(whys))
    return Fingerprint(digest=" ".join([each.digest or "" for each in found]), kinds=found[0].kinds if found else "")


def changed(before: Fingerprints, after: Fingerprints) -> frozenset[tuple[str, str]]:
    """Return the members whose fingerprint differs or is missing."""
    return frozenset(at for at, digest in after.items() if digest is None or before.get(at) != digest)


def renew(pieces: PieceRegistry, members: frozenset[tuple[str, str]]) -> None:
    """Invalidate the nodes of these members in every piece of a runtime. They run again when they are demanded."""
    forget_fingerprints(members)
    pieces.node_source.drop_fingerprints()
    for instance in pieces.instances():
        for member in instance.schema:
            at = (instance.schema.name, member.stored)
            if at in members:
                _renew(pieces, instance, member)
            if (at[0], KEYS + at[1]) in members:
                _renew_keys(pieces, instance, member)
    pieces.core.request_tick()


def replace_former_children(instance: PieceInstance) -> None:
    """Run each row again whose child is of a class that was defined again: it makes a child of the new class."""
    for home in instances_of(instance):
        for coordinator in home.coordinators.values():
            for row in coordinator.rows.values():
                if row.child is not None and row.node is not None and row.child.schema.is_former:
                    instance.pieces.core.scheduler.outdate(row.node)


def _renew(pieces: PieceRegistry, instance: PieceInstance, member: Declaration) -> None:
    coordinator = instance.coordinators.get(member)
    if coordinator is not None:
        for row in coordinator.rows.values():
            if row.node is not None:
                row.node.fingerprint = instance.digest(member)
                pieces.core.scheduler.outdate(row.node)
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
            pieces.core.scheduler.outdate(node)


def _renew_keys(pieces: PieceRegistry, instance: PieceInstance, member: Declaration) -> None:
    coordinator = instance.coordinators.get(member)
    if coordinator is not None:
        coordinator.node.fingerprint = instance.digest(member, keys=True)
        pieces.core.scheduler.outdate(coordinator.node)
    for node in instance.nodes:
        if node.id == f"{instance.space.name}/{instance.id}:{member.stored}/elements":
            node.fingerprint = instance.digest(member, keys=True)
            pieces.core.scheduler.outdate(node)
