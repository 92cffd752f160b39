"""A piece as a whole: what decides what runs of it, and whether all of that is clean here and known to the engine.

A runtime that leaves says of each piece that it ran whether that is so. The next one, with the same code, the same
inputs and the same users, then asks for the piece and not for its nodes. Owns what has to hold for that; what cannot be
said of all of a piece is not said. Runs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from headwater.data.ids import derive
from headwater.pieces.declarations import (
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
from headwater.pieces.piece import Piece
from headwater.protocol.observations import WHOLE, About, Footprint, NodeKey, encode_part
from headwater.replica.document import Document
from headwater.runtime.binding.generations import with_children
from headwater.runtime.binding.making import WHILE_OPEN
from headwater.runtime.binding.observed import Codes, given_to
from headwater.runtime.binding.onward import nodes_of
from headwater.runtime.binding.parts import KEYS
from headwater.scheduler.node import CLEAN, Node
from headwater.scheduler.persistence import Account

if TYPE_CHECKING:
    from headwater.replica.runs import Runs
    from headwater.runtime.binding.home import Home


def decides(codes: Codes, home: Home, users: tuple[str, ...], identity: str | None) -> str:
    """A fingerprint of all that decides what runs of a piece besides what it reads. Empty: it cannot be known."""
    code = codes.whole(home.cls, lambda: _code(codes, home.cls, identity))
    given = given_to(home)
    if not code or given is None:
        return ""
    return derive("whole", code, given, str(home.generation), *sorted(users))


def _code(codes: Codes, cls: type[Piece], identity: str | None) -> str:
    """The same of all pieces of a class, and of the children that they may have."""
    said = [f"={identity}" if identity is not None else "-"]
    for each in with_children(cls):
        outline = each.__outline__
        for member in outline:
            is_child = each is not cls
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
    for node in nodes:
        if not node.live or WHILE_OPEN in node.id:
            continue
        account = node.account
        if account is None:
            if node not in roots:
                return False
        elif not _is_told(node, cast(Account, account), own):
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
    """Tell the engine that a piece is clean as of a seq."""
    node = NodeKey(root.id, root.generation, WHOLE)
    runs.noted(encode_part(About(node, "", fingerprint)), encode_part(Footprint()), seq)
