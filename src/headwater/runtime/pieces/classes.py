"""The imported classes of pieces by their stored names, and the fingerprints of their members.

A fingerprint stands for the code and the declarations of one member (`pieces.fingerprints`). It depends on the class
alone, so that all runtimes of a process share it. The record of a piece stores the fingerprints of its class and of the
classes of its possible children; `generation_check` says what follows if they differ.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

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
)
from headwater.pieces.fingerprints.fingerprint import Fingerprint, Fingerprinter
from headwater.pieces.piece import Piece
from headwater.runtime.pieces.identity import KEYS

if TYPE_CHECKING:
    from headwater.pieces.declarations import TopicMember

__all__ = ["changed", "described", "fingerprints"]


def imported_classes() -> Collection[type[Piece]]:
    """Return every imported class of pieces, the newest last. One that was defined again replaces the former one."""
    newest: dict[str, type[Piece]] = {}
    waiting: list[type[Piece]] = list(Piece.__subclasses__())
    for cls in waiting:  # The list grows: subclasses are appended behind their bases.
        # A class that was refused has no schema, and is a subclass until its error is forgotten.
        # fault records.refused_classes_listed: if True:
        if "__schema__" in vars(cls):
            schema = cls.__schema__
            if schema.number >= newest.setdefault(schema.name, cls).__schema__.number:
                newest[schema.name] = cls
            waiting += cls.__subclasses__()
    return sorted(newest.values(), key=lambda cls: cls.__schema__.number)


def stored_name(cls: type[Piece]) -> str:
    """Return the stored name of a class for its topics and reactions.

    A renamed class keeps its former name there, as its members do.
    """
    return cls.__schema__.was or cls.__schema__.name


def topic_name(cls: type[Piece], topic: TopicMember) -> str:
    """Return the name of a topic in subscriptions: its class and the member."""
    return f"{stored_name(cls)}.{topic.stored}"


def class_named(name: str) -> type[Piece]:
    """Return the class that a record names."""
    found = None
    for cls in imported_classes():
        schema = cls.__schema__
        if schema.name == name:
            return cls
        if found is None and schema.was == name:
            found = cls
    if found is None:
        module = name.rpartition(".")[0]
        raise AuthoringError(
            f"there is a piece of class {name}, which this program has not imported: import {module} first. Where a "
            "server answers, start it with the application: headwater run APP.py"
        )
    return found


# ---- fingerprints ----------------------------------------------------------------------------------------


def member_digests(cls: type[Piece]) -> Mapping[str, str]:
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


def cell_names(cls: type[Piece]) -> tuple[str, ...]:
    """Return the cells of a class and of its possible children, each with its class, by their stored names."""
    member_digests(cls)
    known = cls.__schema__.digests
    assert known is not None
    return known[2]


def member_digest(cls: type[Piece], member: Declaration, *, keys: bool = False) -> str:
    """Return the fingerprint of a member, or of its element keys, as commits carry it (I8). Empty: not known."""
    schema = cls.__schema__
    found = schema.digests[1] if schema.digests is not None else member_digests(cls)
    return found.get(f"{schema.name}.{KEYS if keys else ''}{member.stored}", "")


def has_other_code(cls: type[Piece], stored: Mapping[str, str]) -> bool:
    """Return whether a member of a class has another fingerprint than the stored one."""
    now = member_digests(cls)
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
                    found[schema.name, KEYS + member.stored] = _combine(
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


def _combine(found: list[Fingerprint]) -> Fingerprint:
    whys = [each.why for each in found if each.digest is None]
    if whys:
        return Fingerprint(digest=None, why="; ".join(whys))
    return Fingerprint(digest=" ".join([each.digest or "" for each in found]), kinds=found[0].kinds if found else "")


def changed(before: Fingerprints, after: Fingerprints) -> frozenset[tuple[str, str]]:
    """Return the members whose fingerprint differs or is missing."""
    return frozenset(at for at, digest in after.items() if digest is None or before.get(at) != digest)
