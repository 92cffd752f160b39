"""What there is in a space, for somebody who named something that is not: pieces, and what one of them keeps.

Looks at what is stored, since that needs no application; a cell that still has its default is not stored. Owns these
sentences. Looks through so many documents and no more.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any, Final

from headwater.data.address import SPACE_SCOPE, DocKey
from headwater.data.value import Absent
from headwater.engine.engine import Engine
from headwater.pieces.names import SEPARATOR, document_id
from headwater.protocol.commit import MAIN

__all__ = ["members_there", "pieces_there"]

RECORD: Final = "@"
PAGE: Final = 200
PAGES: Final = 10
SHOWN: Final = 8


def pieces_there(engine: Engine, name: str, branch: str = MAIN) -> str:
    """Which pieces a space has, those with a similar name first. Empty: it has none."""
    found: list[str] = []
    after: str | None = ""
    for _ in range(PAGES):
        page = engine.documents(SPACE_SCOPE, branch=branch, after=after or "", limit=PAGE)
        ids = [each.doc.id.rpartition(":") for each in page.items]
        found += [id for id, _, stored in ids if stored == RECORD and SEPARATOR not in id]
        after = page.next
        if after is None:
            break
    return f" Pieces there: {_some(name, found, more=after is not None)}." if found else ""


def members_there(engine: Engine, id: str, member: str, branch: str = MAIN) -> str:
    """What a piece keeps. Empty: there is no such piece."""
    record: Any = engine.read(DocKey(SPACE_SCOPE, document_id(id, RECORD)), branch=branch).value
    if isinstance(record, Absent):
        return ""
    head = document_id(id, "")
    page = engine.documents(SPACE_SCOPE, branch=branch, after=head, limit=PAGE)
    stored = [each.doc.id.removeprefix(head) for each in page.items if each.doc.id.startswith(head)]
    found = [name for name in stored if name != RECORD and "/" not in name]
    kept = f"It keeps {_some(member, found)}" if found else "It keeps nothing yet"
    return f" {kept}; a cell that still has its default is known to the application only: --app FILE."


def _some(name: str, found: list[str], *, more: bool = False) -> str:
    """A few of many, those first that were perhaps meant."""
    close = get_close_matches(name, found, SHOWN)
    listed = [*close, *[each for each in sorted(found) if each not in close]]
    return ", ".join(listed[:SHOWN]) + (", ..." if more or len(listed) > SHOWN else "")
