"""New code for pieces that run: which members do something else now, and having just those run again.

Fingerprints decide: a member whose fingerprint is the same stays clean, whatever else changed in its file. One that has
none counts as changed. Readers hear of a new value as of any other, and of an equal one not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from headwater.pieces.declarations import (
    ComputedMember,
    Declaration,
    EachMember,
    FoldMember,
    FunctionMember,
    MaterializerMember,
    ResourceMember,
)
from headwater.pieces.fingerprints.fingerprint import Fingerprint, Fingerprinter
from headwater.runtime.binding.folding import Folding
from headwater.runtime.binding.parts import KEYS

if TYPE_CHECKING:
    from headwater.pieces.piece import Piece
    from headwater.runtime.binding.home import Home
    from headwater.runtime.runtime import Runtime

__all__ = ["changed", "described", "fingerprints", "renew"]

Fingerprints = Mapping[tuple[str, str], str | None]


def fingerprints(classes: Iterable[type[Piece]]) -> Fingerprints:
    """What the members of classes do, by the name of the class and of the member."""
    return {at: found.digest for at, found in described(classes).items()}


def described(classes: Iterable[type[Piece]]) -> Mapping[tuple[str, str], Fingerprint]:
    """The same, with why there is no fingerprint, and with what it is made of."""
    maker = Fingerprinter()
    found: dict[tuple[str, str], Fingerprint] = {}
    for cls in classes:
        outline = cls.__outline__
        for member in outline:
            at = (outline.name, member.stored)
            if isinstance(member, FoldMember):
                # What is added up is read by its type, and so is what that makes; it may be a default of its source.
                extra = (member.remove, member.by, member.start, member.source)
                found[at] = maker.of(member.add, owner=cls, types=outline.typing.types(member), extra=extra)
            elif isinstance(member, FunctionMember):
                found[at] = maker.of(member.fn, owner=cls, extra=_declared(member))
                if isinstance(member, EachMember):
                    chosen = [each for each in (member.key, member.order) if each is not None]
                    found[outline.name, KEYS + member.stored] = _together(
                        [maker.of(each, owner=cls, extra=(member.source,)) for each in (*chosen, _no_key)]
                    )
    return found


def _declared(member: FunctionMember) -> tuple[object, ...]:
    """What a member said that it writes or goes over, which decides what its code may do."""
    if isinstance(member, ComputedMember):
        return tuple([each.stored for each in member.writes])
    if isinstance(member, EachMember):
        return (member.source,)  # An element may be one of its default.
    return tuple([each.stored for each in member.envelope]) if isinstance(member, MaterializerMember) else ()


def _no_key() -> None:
    """In the place of a key function, of which an `each` may have none: what it goes over counts all the same."""


def _together(found: list[Fingerprint]) -> Fingerprint:
    whys = [each.why for each in found if each.digest is None]
    if whys:
        return Fingerprint(digest=None, why="; ".join(whys))
    return Fingerprint(digest=" ".join([each.digest or "" for each in found]), kinds=found[0].kinds if found else "")


def changed(before: Fingerprints, after: Fingerprints) -> frozenset[tuple[str, str]]:
    """The members that do something else, or of which nobody can know."""
    return frozenset(at for at, digest in after.items() if digest is None or before.get(at) != digest)


def renew(runtime: Runtime, members: frozenset[tuple[str, str]]) -> None:
    """Have what these members compute computed again in every piece that is here, as soon as somebody wants it."""
    runtime.pieces.generations.patched()
    runtime.pieces.resuming.patched()
    for home in runtime.pieces.homes():
        for member in home.outline:
            at = (home.outline.name, member.stored)
            if at in members:
                _renew(runtime, home, member)
            if (at[0], KEYS + at[1]) in members:
                _renew_keys(runtime, home, member)
    runtime.core.request_tick()


def _renew(runtime: Runtime, home: Home, member: Declaration) -> None:
    coordinator = home.coordinators.get(member)
    if coordinator is not None:
        for row in coordinator.rows.values():
            if row.node is not None:
                row.node.fingerprint = home.digest(member)
                runtime.core.scheduler.outdate(row.node)
        return
    if isinstance(member, ResourceMember):
        for handle in home.handles_of(member):
            handle.renew()
    name = f"{home.space.name}/{home.id}:{member.stored}"
    for node in home.nodes:
        if node.id == name or node.id.startswith(f"{name} of "):
            folding: Any = getattr(node.fn, "__self__", None)
            if isinstance(folding, Folding):
                folding.forget()  # What it added up was added up by another function.
            node.fingerprint = home.digest(member)
            runtime.core.scheduler.outdate(node)


def _renew_keys(runtime: Runtime, home: Home, member: Declaration) -> None:
    coordinator = home.coordinators.get(member)
    if coordinator is not None:
        coordinator.node.fingerprint = home.digest(member, keys=True)
        runtime.core.scheduler.outdate(coordinator.node)
    for node in home.nodes:
        if node.id == f"{home.space.name}/{home.id}:{member.stored}/elements":
            node.fingerprint = home.digest(member, keys=True)
            runtime.core.scheduler.outdate(node)
