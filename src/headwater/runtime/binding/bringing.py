"""Bringing in single nodes of a sleeping piece, by what they are called over restarts, with those that they are in.

A node of a child needs the child, which the row of an `each` keeps; that row comes first, without the others of its
`each`. Owns how names lead to members. Decides nothing about what is clean, and runs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import unquote

from headwater.errors import HeadwaterError
from headwater.pieces.declarations import (
    ChildMember,
    ComputedMember,
    EachMember,
    EffectMember,
    FoldMember,
    MaterializerMember,
    ResourceMember,
)
from headwater.pieces.names import SEPARATOR, child_name
from headwater.protocol.observations import BETWEEN, Observed
from headwater.runtime.binding.making import show, shown_as
from headwater.runtime.binding.parts import Key, named, row_of
from headwater.scheduler.node import Node

if TYPE_CHECKING:
    from headwater.runtime.binding.home import Home
    from headwater.runtime.binding.phases import Phase
    from headwater.runtime.binding.resuming import Resuming


async def have_awake(resuming: Resuming, root: Home, names: tuple[str, ...]) -> list[Node] | None:
    """The nodes of a sleeping piece that what is known of all of it does not speak for. None: they cannot be had."""
    found = [named(name) for name in names]
    # Those that keep rows come first, with all of them.
    return await _registered(resuming, root, dict.fromkeys(sorted(found, key=lambda key: key[0].endswith(row_of("")))))


async def brought(resuming: Resuming, root: Home, found: dict[Key, Observed], seq: int) -> list[Node] | None:
    """These nodes of a piece, registered; each then comes back, or runs. None: not all can be had by themselves."""
    await resuming.have_classes(root, found.values())
    return await _registered(resuming, root, {key: (observed, seq) for key, observed in found.items()})


async def _registered(
    resuming: Resuming, root: Home, found: Mapping[Key, tuple[Observed, int] | None]
) -> list[Node] | None:
    phase = root.phase
    assert phase is not None
    # Its children are being made: whoever is in them comes after them.
    await resuming.pieces.core.observing.until(lambda: not phase.asked or root.phase is not phase)
    phase.asked += 1
    try:
        return await _nodes(resuming, root, phase, found)
    except HeadwaterError:
        return None  # Whoever is to run runs, and is told.
    finally:
        phase.asked -= 1
        resuming.elsewhere.over(phase)
        resuming.pieces.core.observing.look()


async def _nodes(
    resuming: Resuming, root: Home, phase: Phase, found: Mapping[Key, tuple[Observed, int] | None]
) -> list[Node] | None:
    rows: dict[Key, None] = {}
    for member, child, _, _ in found:
        home_id, _, text = child.partition(BETWEEN)
        if member.endswith(row_of("")):
            rows.update(dict.fromkeys(_of_row(root, home_id, member.removesuffix(row_of("")), text)))
        above = _above(root, home_id) if home_id else []
        if above is None:
            return None
        for parent, stored, at in above:
            rows.update(dict.fromkeys(_of_row(root, parent, stored, at)))
    for key, known in found.items():
        if known is not None:
            phase.table.setdefault(key, known)
    # I7: a node that read another space comes back only if that space was asked.
    await resuming.asking.compare_elsewhere(root, phase, [known[0] for known in found.values() if known is not None])
    missing = [key for key, known in found.items() if known is None]
    if not await resuming.asking.known(root, phase, [*missing, *(key for key in rows if key not in found)]):
        return None
    if root.phase is not phase:
        return None
    nodes: list[Node] = []
    for key in found:
        node = resuming.pieces.outside(lambda key=key: _node(root, key))  # type: ignore[misc]
        if node is None:
            return None
        nodes.append(node)
        phase.table.pop(key, None)  # It was here before.
    return nodes


def _of_row(root: Home, home_id: str, stored: str, text: str) -> list[Key]:
    """The coordinator of a row, and the row itself."""
    child = "" if home_id in ("", root.id) else home_id
    return [(stored, child, "", ""), (row_of(stored), f"{child}{BETWEEN}{text}" if text else child, "", "")]


def _above(root: Home, id: str) -> list[tuple[str, str, str]] | None:
    """The rows that lead to a child: for each the piece that keeps it, the member and the key. None: it is too long."""
    found: list[tuple[str, str, str]] = []
    parent = root.id
    while parent != id:
        if not id.startswith(parent + SEPARATOR):
            return None
        stored, _, rest = id[len(parent) + 1 :].partition(SEPARATOR)
        member = unquote(stored, encoding="latin-1")
        text = unquote(rest.partition(SEPARATOR)[0], encoding="latin-1")
        found.append((parent, member, text))
        name = child_name(parent, member, text)
        if id != name and not id.startswith(name + SEPARATOR):
            return None
        parent = name
    return found


def _node(root: Home, key: Key) -> Node | None:
    """The node with a name, whatever leads to it included. None: it is not to be had by itself."""
    stored, child, scope, principal = key
    home_id, _, text = child.partition(BETWEEN)
    home: Home | None = root
    for parent, name, at in (_above(root, home_id) or []) if home_id else []:
        keeper = root if parent == root.id else root.pieces.known(root.space.name, parent)
        row = None if keeper is None else _row(keeper, name, at)
        home = None if row is None else row[0]
    if home is None:
        return None
    outline = home.outline
    keepers: list[EachMember | ChildMember] = [*outline.of(EachMember), *outline.of(ChildMember)]
    for each in keepers:
        if stored == row_of(each.stored):
            found = _row(home, each.stored, text)
            return None if found is None else found[1]
    member = outline.get(stored)
    if isinstance(member, EffectMember):
        return _effect(home, member, principal)
    if isinstance(member, (EachMember, ChildMember)):
        coordinator = home.pieces.coordinator(home, member)
        return None if coordinator.is_sparse else coordinator.node
    if not isinstance(member, (ComputedMember, FoldMember, MaterializerMember, ResourceMember)):
        return None
    if member.scope != (scope or "space"):
        return None
    facet = home.facet(member.scope, principal)
    document = facet.handle(member).document
    return next((each for each in document.writers if isinstance(each, Node) and each.outputs[0] is document), None)


def _row(home: Home, stored: str, text: str) -> tuple[Home | None, Node | None] | None:
    """The child of a row, and its node."""
    member = home.outline.get(stored)
    if not isinstance(member, (EachMember, ChildMember)):
        return None
    row = home.pieces.sparse(home, member).row(text)
    return None if row is None else (row.child, row.node)


def _effect(home: Home, member: EffectMember, user: str) -> Node | None:
    """The effect of the one whom the piece is open for."""
    for whose, session in home.opened_for():
        if whose == user:
            facet = home.facet("session", user, session)
            id = shown_as(facet, member)
            there = next((node for node in home.nodes if node.id == id), None)
            return there or home.shows(show(facet, member), user, session)
    return None
