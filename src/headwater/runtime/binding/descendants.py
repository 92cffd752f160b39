"""Children by their ids: a child has no record, and is found through the pieces that keep it.

Whoever keeps it is brought up to date first, inside a run as for any other reader of an `each` or a `child`. So what
was stored of a child, a link to it or a handle that a piece was given, leads to it again in any runtime. Makes nothing
that its keeper would not make.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote

from headwater.errors import AbsentError
from headwater.pieces.declarations import ChildMember, EachMember
from headwater.pieces.names import SEPARATOR, child_name

if TYPE_CHECKING:
    from headwater.runtime.binding.home import Home
    from headwater.runtime.binding.pieces import Pieces
    from headwater.runtime.space import LocalSpace


def descendant(pieces: Pieces, space: LocalSpace, id: str) -> Home | None:
    """Inside a run: the child with that id. None: nobody keeps one."""
    root = id.partition(SEPARATOR)[0]
    home: Home | None = pieces.known(space.name, root) or pieces.records.found(space, root)
    while home is not None and home.id != id:
        home = None if home.is_stopped else _below(home, id)
    return home


async def pulled(pieces: Pieces, root: Home, id: str) -> Home:
    """Outside a run: the child with that id. Whoever keeps it is brought up to date, which may take a while."""
    home: Home | None = root
    while home is not None and home.id != id:
        at = None if home.is_stopped else _keeper(home, id)
        home = None if at is None else await pieces.coordinator(home, at[0]).pulled(at[1])
    if home is None:
        raise AbsentError(f"{root.space.name} has no piece {id!r} any more: what kept it is gone")
    return home


def _below(home: Home, id: str) -> Home | None:
    """The child of a piece that another id leads through."""
    at = _keeper(home, id)
    return None if at is None else home.pieces.coordinator(home, at[0]).child(at[1])


def _keeper(home: Home, id: str) -> tuple[EachMember | ChildMember, str] | None:
    """The member, and the element of it, that an id leads through. One that is too long to be read leads nowhere."""
    if not id.startswith(home.id + SEPARATOR):
        return None
    stored, _, rest = id[len(home.id) + 1 :].partition(SEPARATOR)
    text = unquote(rest.partition(SEPARATOR)[0], encoding="latin-1")
    members: list[EachMember | ChildMember] = [*home.outline.of(EachMember), *home.outline.of(ChildMember)]
    for member in members:
        name = child_name(home.id, member.stored, text)
        if unquote(stored, encoding="latin-1") == member.stored and (id == name or id.startswith(name + SEPARATOR)):
            return member, text
    return None
