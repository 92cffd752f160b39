"""Generations: two versions of one class at once, as in a rolling deploy. The older one derives nothing any more.

A piece's record says what its members did when it was last opened, by fingerprint, and counts how often that was
something else. Every derived run of an open piece reads that number, so that admission refuses what an older version
had on its way; an older version that hears of a newer one says so, once, and stops. Handlers go on: events are changes
that somebody meant. What has no fingerprint counts as unchanged, and what derives nothing does not count.

New code for pieces that run: which members do something else now, and having just those run again.

Fingerprints decide: a member whose fingerprint is the same stays clean, whatever else changed in its file. One that has
none counts as changed. Readers hear of a new value as of any other, and of an equal one not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from headwater.errors import AuthoringError
from headwater.pieces.declarations import (
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
from headwater.runtime.pieces.fold.fold import Folding
from headwater.runtime.pieces.identity import KEYS

if TYPE_CHECKING:
    from headwater.cells.handle import Input
    from headwater.runtime.api.runtime import Runtime
    from headwater.runtime.pieces.instance import PieceInstance
    from headwater.runtime.pieces.registry import PieceRegistry

__all__ = ["changed", "described", "fingerprints", "renew"]


class CodeVersions:
    """Which version of its class each open piece of one runtime is run by."""

    __slots__ = ("_numbers", "_pieces")

    def __init__(self, pieces: PieceRegistry) -> None:
        self._pieces = pieces
        self._numbers: dict[PieceInstance, Input[int]] = {}  # where the number of an open piece is read

    def members(self, cls: type[Piece]) -> Mapping[str, str]:
        """What the members of a class do, and those of the children it may have, by name."""
        classes = with_children(cls)
        code = tuple(code for each in classes for member in each.__schema__ for code in _code(member))
        known = cls.__schema__.digests
        if known is None or known[0] != code:  # What runs may have been patched.
            found = fingerprints(classes)
            kept = {at for each in classes for at in _derived(each)}
            known = cls.__schema__.digests = (
                code,
                {f"{at[0]}.{at[1]}": digest for at, digest in found.items() if digest is not None and at in kept},
            )
        return known[1]

    def patched(self) -> None:
        """Code was taken in while it runs: what members do is to be looked at anew."""
        waiting: list[type[Piece]] = [Piece]
        for cls in waiting:  # It grows: classes that derive from others come behind them.
            waiting += cls.__subclasses__()
            if cls is not Piece:
                cls.__schema__.digests = None

    def digest(self, cls: type[Piece], member: Declaration, *, keys: bool = False) -> str:
        """What one member does, or how it finds the keys of its elements, as commits say it (I8). Empty: not known."""
        outline = cls.__schema__
        found = outline.digests[1] if outline.digests is not None else self.members(cls)
        return found.get(f"{outline.name}.{KEYS if keys else ''}{member.stored}", "")

    def code_of(self, cls: type[Piece], member: Declaration) -> str | None:
        """What one member does, by fingerprint. None: nobody can know."""
        return self.members(cls).get(f"{cls.__schema__.name}.{member.stored}")

    def is_newer(self, cls: type[Piece], stored: Mapping[str, str]) -> bool:
        """Whether a class does something else than what was stored of it."""
        now = self.members(cls)
        return any(stored.get(name) != digest for name, digest in now.items())

    def check(self, home: PieceInstance) -> None:
        """Inside a run that derives something of a piece: refuse it where a newer version runs that piece."""
        if home.generation:
            number = self._numbers.get(home)
            if number is None:
                number = self._numbers[home] = self._pieces.records.generation(home)
            now = number.get(0)
            if now > home.generation:
                raise self._outdated(home, now)

    def forget(self, home: PieceInstance) -> None:
        self._numbers.pop(home, None)

    def _outdated(self, home: PieceInstance, now: int) -> AuthoringError:
        error = AuthoringError(
            f"{home!r} is run by a newer version of its class ({now}, this is {home.generation}): what this program "
            "derives of it is refused. Start it again with the new code."
        )
        core = self._pieces.core

        def stop() -> None:
            if home.is_open:
                home.stop()
                core.report(f"{home.space.name}/{home.id}", error)

        core.afterwards(stop)
        return error


def _code(member: Declaration) -> Iterator[object]:
    """What is looked at to know whether a member was patched."""
    if isinstance(member, FunctionMember):
        yield member.fn.__code__
    elif isinstance(member, FoldMember):
        for fn in (member.add, member.remove, member.by):
            yield getattr(fn, "__code__", fn)


def _derived(cls: type[Piece]) -> Iterator[tuple[str, str]]:
    """The members of a class whose results are stored. What else it does makes no other generation."""
    outline = cls.__schema__
    for member in outline:
        if not isinstance(member, (EffectMember, HandlerMember, ReactionMember)):
            yield outline.name, member.stored
            yield outline.name, KEYS + member.stored


def with_children(cls: type[Piece]) -> list[type[Piece]]:
    """A class, and those of the children that its members may keep, however far down."""
    found = [cls]
    for each in found:
        outline = each.__schema__
        for member in outline:
            if isinstance(member, (EachMember, ChildMember)):
                found += [made for made in outline.elements(member).pieces if made not in found]
    return found


Fingerprints = Mapping[tuple[str, str], str | None]


def fingerprints(classes: Iterable[type[Piece]]) -> Fingerprints:
    """What the members of classes do, by the name of the class and of the member."""
    return {at: found.digest for at, found in described(classes).items()}


def described(classes: Iterable[type[Piece]]) -> Mapping[tuple[str, str], Fingerprint]:
    """The same, with why there is no fingerprint, and with what it is made of."""
    maker = Fingerprinter()
    found: dict[tuple[str, str], Fingerprint] = {}
    for cls in classes:
        outline = cls.__schema__
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


def _renew(runtime: Runtime, home: PieceInstance, member: Declaration) -> None:
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


def _renew_keys(runtime: Runtime, home: PieceInstance, member: Declaration) -> None:
    coordinator = home.coordinators.get(member)
    if coordinator is not None:
        coordinator.node.fingerprint = home.digest(member, keys=True)
        runtime.core.scheduler.outdate(coordinator.node)
    for node in home.nodes:
        if node.id == f"{home.space.name}/{home.id}:{member.stored}/elements":
            node.fingerprint = home.digest(member, keys=True)
            runtime.core.scheduler.outdate(node)
