"""Forgetting: what is known of nodes that are no more is taken back, so that it speaks for no other one of their names.

Members that a class has no more, elements that left, children that are gone. Says it to the engine; decides nothing.
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

from headwater.pieces.names import child_name
from headwater.protocol.observations import BETWEEN, About, NodeKey, encode_part, is_below
from headwater.runtime.binding.generations import with_children
from headwater.runtime.binding.parts import row_of

if TYPE_CHECKING:
    from headwater.runtime.attached import Attached
    from headwater.runtime.binding.home import Home
    from headwater.runtime.binding.phases import Phase


def members(root: Home, phase: Phase, channel: Attached) -> None:
    """What is known of members that its class, or those of its children, have no more is to be forgotten."""
    for key, (observed, _) in [*phase.table.items()]:
        stored = key[0].removesuffix(row_of("")).partition("/")[0]
        classes = with_children(root.cls) if key[1].partition(BETWEEN)[0] else [root.cls]
        is_there = any(each.__outline__.get(stored) is not None for each in classes)
        if not is_there and root.generation >= observed.node.generation:
            del phase.table[key]
            _gone(channel, root, observed.node)


def left(home: Home, member: str, here: Container[str]) -> None:
    """An `each` found out which elements there are: what is known of others does not come back with their keys."""
    phase, channel = home.root.phase, home.pieces.runtime.channel(home.space.name)
    if phase is None or not phase.table:
        return
    before = f"{home.id if home.parent is not None else ''}{BETWEEN}"
    rows = [key for key in phase.table if key[0] == row_of(member) and key[1].startswith(before)]
    gone = [key for key in rows if key[1].removeprefix(before) not in here]
    ids = [child_name(home.id, member, key[1].removeprefix(before)) for key in gone]
    if ids:
        gone += [key for key in phase.table if any(is_below(key[1], id) for id in ids)]
    for key in dict.fromkeys(gone):
        observed, _ = phase.table.pop(key)
        if channel is not None:
            _gone(channel, home, observed.node)


def is_asleep(home: Home) -> bool:
    """Whether nodes of its children may be known, and not be here to say that they are gone."""
    return home.root.phase is not None and bool(home.root.phase.as_of)


def dropped(home: Home, child: str) -> None:
    """A child of a piece is gone: the next one of that name is another."""
    root, channel = home.root, home.pieces.runtime.channel(home.space.name)
    if root.phase is not None:
        for key in [key for key in root.phase.table if is_below(key[1], child)]:
            del root.phase.table[key]
    if channel is not None and channel.driver.session.runs.is_on:
        _gone(channel, home, NodeKey(root.id, root.generation, "", child))


def _gone(channel: Attached, home: Home, node: NodeKey) -> None:
    channel.driver.session.runs.gone(encode_part(About(node)), home.space.replica.confirmed.seq)
