"""What is told of every run of a piece's node: which one it is, and what decides what it does.

Everything that decides what a run would do besides what it reads is in the fingerprint: code, what the piece was given,
where results go. Compares nothing and runs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from headwater.data.address import DocKey, doc_text
from headwater.data.ids import derive
from headwater.data.path import Path
from headwater.pieces.declarations import EachMember
from headwater.pieces.fingerprints.fingerprint import Fingerprint, Fingerprinter
from headwater.pieces.names import child_name
from headwater.pieces.piece import Piece
from headwater.protocol.observations import About, NodeKey
from headwater.runtime.binding.giving import Defaults, given_to
from headwater.runtime.binding.ingredients import with_kinds
from headwater.runtime.binding.parts import KEYS, Part, row_of
from headwater.runtime.binding.renewal import described

if TYPE_CHECKING:
    from headwater.runtime.binding.home import Home
    from headwater.scheduler.node import Node
    from headwater.scheduler.registry import NodeSpec

OURS: Final = "="
"""What a fingerprint begins with, so that it is never empty."""
UNKNOWN: Final = Fingerprint(digest=None, why="its class has no such member")


class Codes:
    """What the members of classes do, by fingerprint. Each class is looked at once, until `forget` is called."""

    __slots__ = ("_known", "_wholes", "defaults")

    def __init__(self) -> None:
        self._known: dict[type[Piece], dict[str, Fingerprint]] = {}
        self._wholes: dict[type[Piece], str] = {}
        self.defaults = Defaults()

    def of(self, cls: type[Piece], code: str) -> str | None:
        """None: nobody can know."""
        # fault+ fingerprint.code_ignored: return "="
        if not code:
            return OURS
        said = self._all(cls).get(code, UNKNOWN).digest
        return None if said is None else f"{OURS}{said}"

    def kinds(self, cls: type[Piece], code: str) -> str:
        """What the same is made of, by kind."""
        # fault fingerprint.code_ignored: return ""
        return self._all(cls).get(code, UNKNOWN).kinds if code else ""

    def why(self, cls: type[Piece], code: str) -> str:
        """Why nobody can know what it does. Empty: somebody can."""
        return self._all(cls).get(code, UNKNOWN).why if code else ""

    def _all(self, cls: type[Piece]) -> dict[str, Fingerprint]:
        known = self._known.get(cls)
        if known is None:
            outline = cls.__outline__
            found = {at[1]: said for at, said in described((cls,)).items()}
            for member in outline.of(EachMember):
                # Which elements there are depends on how they are stored, too: their types are part of it.
                keys = found.get(KEYS + member.stored, UNKNOWN)
                gone_over = outline.typing.types(member)[0]
                types = Fingerprinter().of(member.fn, owner=cls, types=(gone_over,))
                is_known = keys.digest is not None and types.digest is not None
                found[KEYS + member.stored] = Fingerprint(
                    digest=f"{keys.digest} {types.digest}" if is_known else None,
                    why="" if is_known else "; ".join([each.why for each in (keys, types) if each.why]),
                    kinds=types.kinds,
                )
            known = self._known[cls] = found
        return known

    def whole(self, cls: type[Piece], made: Callable[[], str]) -> str:
        """What all of a class does, as `made` says it the first time."""
        found = self._wholes.get(cls)
        if found is None:
            found = self._wholes[cls] = made()
        return found

    def look(self, cls: type[Piece]) -> None:
        """Look at a class now, before any of its code has run: what that changes around it is not what it does."""
        if cls not in self._known:
            self._all(cls)

    def forget(self) -> None:
        self._known.clear()
        self._wholes.clear()
        self.defaults.forget()


def about(codes: Codes, home: Home, node: Node, spec: NodeSpec, part: Part, generation: int) -> About:
    """What is the same in every run of a node."""
    member, child, scope, principal = part.key(home)
    root = home.root
    code = codes.of(home.cls, part.code)
    given = given_to(home)
    fingerprint = ""
    if code is not None and given is not None:
        places = [_place(home, part, each.key) for each in node.outputs]
        places += [_place(home, part, inside.key, path) for inside, path in node.envelope]
        # fault fingerprint.always_the_same: fingerprint = "always the same"
        fingerprint = derive("node", code, given, *places)
    key = NodeKey(root.id, generation, member, child, scope, principal)
    # fault fingerprint.always_the_same: kind = spec.kind.value
    kind = with_kinds(spec.kind.value, codes.kinds(home.cls, part.code))
    return About(key, kind, fingerprint, f"{spec.debounce_ms:g}/{spec.throttle_ms:g}")


def _place(home: Home, part: Part, key: DocKey, path: Path = ()) -> str:
    """Where a result goes, seen from its node: the same for all rows of an `each`, and in all pieces of a class.

    What the node is called says the rest, so that nothing is lost. What is said of ten thousand rows is stored once.
    """
    scope, id = key
    row = child_name(home.id, part.member.removesuffix(row_of("")), part.element) if part.element else ""
    for sign, own in (("//", row), ("/", home.id)):
        if own and id.startswith(own):
            id = sign + id[len(own) :]
            break
    else:
        id = f" {id}"
    if part.principal and scope == f"user:{part.principal}":
        scope = "user"
    return doc_text(DocKey(scope, id), path)
