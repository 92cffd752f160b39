"""A piece as a whole: what decides what runs of it, and whether all of that is clean here and known to the engine.

A runtime that leaves says of each piece that it ran whether that is so. The next one, with the same code, the same
inputs and the same users, then asks for the piece and not for its nodes. Owns what has to hold for that; what cannot be
said of all of a piece is not said. Runs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from headwater.data.ids import derive
from headwater.pieces.declarations import (
    CellMember,
    ComputedMember,
    EachMember,
    EffectMember,
    FoldMember,
    FunctionMember,
    HandlerMember,
    MaterializerMember,
    ReactionMember,
    ResourceMember,
)
from headwater.pieces.names import SEPARATOR
from headwater.pieces.piece import Piece
from headwater.protocol.observations import WHOLE, About, Footprint, NodeKey, encode_part
from headwater.replica.document import Document
from headwater.runtime.binding.generations import with_children
from headwater.runtime.binding.giving import given_to, inputs_of, owner_of
from headwater.runtime.binding.making import WHILE_OPEN
from headwater.runtime.binding.observed import Codes
from headwater.runtime.binding.onward import nodes_of
from headwater.runtime.binding.parts import KEYS
from headwater.scheduler.node import CLEAN, Node
from headwater.scheduler.persistence import Account

if TYPE_CHECKING:
    from headwater.replica.runs import Runs
    from headwater.runtime.binding.home import Home


def decides(
    codes: Codes, home: Home, users: tuple[str, ...], identity: str | None, generation: int | None = None
) -> str:
    """A fingerprint of all that decides what runs of a piece besides what it reads. Empty: it cannot be known."""
    code = codes.whole(home.cls, lambda: _code(codes, home.cls, identity))
    given = given_to(home)
    # What was read of another space is asked there, for each node.
    inputs = [each for each in inputs_of(home) if each[0] == home.space.name]
    # I7: what makes an input, or what it is by default, is for another class to say.
    defaults = codes.defaults.of_reads(home.pieces, inputs)
    if not code or given is None or defaults is None:
        return ""
    counted = home.generation if generation is None else generation
    return derive("whole", code, given, defaults, str(counted), *sorted(users))


def _code(codes: Codes, cls: type[Piece], identity: str | None) -> str:
    """The same of all pieces of a class, and of the children that they may have."""
    said = [f"={identity}" if identity is not None else "-"]
    for each in with_children(cls):
        outline = each.__outline__
        for member in outline:
            is_child = each is not cls
            if isinstance(member, CellMember):
                # A link may lead to it, from where nobody names it.
                declared = codes.defaults.of_member(each, member.stored)
                if declared is None:
                    return ""
                said.append(f"{outline.name}.{member.stored} {declared}")
            if isinstance(member, (ResourceMember, ReactionMember)):
                return ""  # What it waits for is not known to the engine.
            if isinstance(member, HandlerMember):
                if is_child and member.every_ms is not None:
                    return ""  # Somebody has to send it.
                continue
            if isinstance(member, EffectMember) and (identity is None or member.every_start):
                if is_child:
                    return ""  # It runs at each start, for each child.
                continue
            if isinstance(member, (FunctionMember, FoldMember)):
                names = [member.stored, *([KEYS + member.stored] if isinstance(member, EachMember) else ())]
                for name in names:
                    known = codes.of(each, name)
                    if known is None:
                        return ""
                    said.append(f"{outline.name}.{name} {known}")
                times = [getattr(member, time, 0) for time in ("debounce_ms", "throttle_ms")]
                said.append(f"{times[0]:g}/{times[1]:g}")
    return derive("code", *said)


def writes_elsewhere(cls: type[Piece]) -> bool:
    """Whether a member writes more than its result. Whoever reads that has to find its node: it must not be asleep."""
    outline = cls.__outline__
    return bool(outline.of(MaterializerMember)) or any(each.writes for each in outline.of(ComputedMember))


def is_clean(root: Home) -> bool:
    """Whether everything of a piece that anybody here demands is clean, and told as such."""
    nodes = nodes_of(root)
    own, roots = set(nodes), set(root.nodes)
    given = {doc.id for space, doc in inputs_of(root) if space == root.space.name}
    for node in nodes:
        if not node.live or WHILE_OPEN in node.id:
            continue
        account = node.account
        if account is None:
            if node not in roots:
                return False
        elif not _is_told(node, cast(Account, account), own) or not _is_own(root, node, given):
            return False
    return True


def _is_own(root: Home, node: Node, given: set[str]) -> bool:
    """Whether all that it read is the piece's own, or was given to it: its class and its inputs say what that is."""
    for spot in node.reads:
        if spot is not None:
            key = cast(Document, spot.document).key
            owner = owner_of(key)[0].partition(SEPARATOR)[0]
            if owner and owner != root.id and key.id not in given:
                return False
    return True


def _is_told(node: Node, account: Account, own: set[Node]) -> bool:
    if node.status != CLEAN or node.error is not None or node.loading is not None:
        return False
    if not (account.is_told if node.runs else node.as_of) or node.elsewhere:
        return False  # What it read of other spaces is asked there, for each node.
    for spot in node.reads:
        # What others make is not part of the piece, and would not come with it.
        if spot is not None and any(writer not in own for writer in cast(Document, spot.document).writers):
            return False
    return True


def say(runs: Runs, root: Home, fingerprint: str, seq: int) -> None:
    """Tell the engine that a piece is clean as of a seq. No fingerprint: it is not, whatever was said before."""
    node = NodeKey(root.id, root.generation, WHOLE)
    runs.noted(encode_part(About(node, "", fingerprint)), encode_part(Footprint()), seq)
