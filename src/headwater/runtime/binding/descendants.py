"""Children by their ids: a child has no record, and is found through the pieces that keep it.

Inside a run: whoever keeps it is brought up to date first, as for any other reader of an `each` or a `child`. So what
was stored of a child, a link to it or a handle that a piece was given, leads to it again in any runtime. Makes nothing
that its keeper would not make.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote

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


def _below(home: Home, id: str) -> Home | None:
    """The child of a piece that another id leads through. An id that is too long to be read leads nowhere."""
    if not id.startswith(home.id + SEPARATOR):
        return None
    stored, _, rest = id[len(home.id) + 1 :].partition(SEPARATOR)
    text = unquote(rest.partition(SEPARATOR)[0], encoding="latin-1")
    members: list[EachMember | ChildMember] = [*home.outline.of(EachMember), *home.outline.of(ChildMember)]
    for member in members:
        name = child_name(home.id, member.stored, text)
        if unquote(stored, encoding="latin-1") == member.stored and (id == name or id.startswith(name + SEPARATOR)):
            return home.pieces.coordinator(home, member).child(text)
    return None
