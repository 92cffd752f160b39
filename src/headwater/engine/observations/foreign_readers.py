"""Readers in other spaces: the pieces of other spaces that read documents here, and the reads of local pieces
elsewhere.

A mirror points back at its owner: a space, a branch of it and a piece. It is no mark: the head of a document tells that
it was written since, so that no commit pays for readers in other spaces, and a mirror that arrives late, after a crash
between the two spaces, finds the missed writes. Owns the update of a piece's mirror; never decides whether a node is
clean: a process that resumes a node asks that here, by the function that admits commits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from headwater.data.address import DocKey
from headwater.engine.observations.codec import MirrorBody, NameCache, decode_mirror, encode_form, forms_of
from headwater.engine.observations.interned_names import InternedNames
from headwater.engine.store.port import MirrorRow, NodeNumbers, Store
from headwater.protocol.commit import MAIN
from headwater.protocol.mirrors import Abroad, Mirror
from headwater.protocol.observations import NodeKey

BETWEEN: Final = "\0"
"""Between a space and its branch, where an owner is named. It is in no name of either."""

SeqsOfDocuments = Callable[[Iterable[tuple[str, str]]], dict[tuple[str, str], int]]
"""When documents were last written, by scope and id."""


def owner_text(space: str, branch: str) -> str:
    """An owner as one name."""
    return space if branch == MAIN else f"{space}{BETWEEN}{branch}"


def store_reader(store: Store, names: InternedNames, branch: int, said: Mirror, most: int) -> None:
    """Store the reads of a piece of another space in this one, inside the open store transaction."""
    texts = (owner_text(said.owner, said.branch), said.piece)
    if not said.docs and None in [store.number_of(text) for text in texts]:
        return  # There is none to be taken away.
    owner, piece = map(names.number_of, texts)
    store.put_mirror(said_row(store, branch, owner, piece, said, most))


def said_row(store: Store, branch: int, owner: int, piece: int, said: Mirror, most: int) -> MirrorRow:
    """Return the row of a piece's mirror after a report. Without a body there is none."""
    docs = dict(said.docs)
    stored = _stored(store, branch, owner, piece)
    at = said.at or 0
    if said.at is not None and stored is not None and said.at <= stored.at:
        # Another process with the piece open may know more: too much is found, never too little.
        known = dict(stored.docs)
        both = {doc: min(known.get(doc, seq), seq) for doc, seq in docs.items()} | {
            doc: seq for doc, seq in known.items() if doc not in docs
        }
        docs, at = (both if len(both) <= most else docs), stored.at
    body = encode_form(MirrorBody(tuple(docs.items()), at)) if docs else b""
    # fault mirrors.body_lost: return MirrorRow(branch, owner, piece, b"")
    return MirrorRow(branch, owner, piece, body)


def _stored(store: Store, branch: int, owner: int, piece: int) -> MirrorBody | None:
    rows = store.mirrors_after(branch, owner, piece - 1, 1)
    return _opened(rows[0]) if rows and rows[0].piece == piece else None


def _opened(row: MirrorRow) -> MirrorBody | None:
    """None: it cannot be read, and is as if it were not there until it is written anew."""
    try:
        return decode_mirror(row.body)
    except (msgspec.MsgspecError, ValueError):
        return None


def readers_changed_since(
    store: Store, branch: int, owner: str, last: str, size: int, written: SeqsOfDocuments
) -> tuple[list[tuple[str, DocKey, int]], str | None]:
    """Documents that pieces of an owner read, and that were written since, by piece."""
    number = store.number_of(owner)
    if number is None:
        return [], None
    rows = store.mirrors_after(branch, number, store.number_of(last) or 0 if last else 0, size)
    found: list[tuple[str, DocKey, int]] = []
    texts = NameCache(store)
    for row in rows:
        body = _opened(row)
        docs = body.docs if body is not None else ()
        seqs = written([(doc.scope, doc.id) for doc, _ in docs])
        late = [(doc, seqs[doc.scope, doc.id]) for doc, seq in docs if seqs[doc.scope, doc.id] > seq]
        found += [(texts.name(row.piece), doc, seq) for doc, seq in late]
    return found, texts.name(rows[-1].piece) if len(rows) == size else None


def read_elsewhere(store: Store, after: NodeNumbers, size: int, most: int) -> tuple[tuple[Abroad, ...], NodeKey | None]:
    """Return the reads of some of a piece's nodes in other spaces, as of the earliest seq that one of them saw."""
    found: dict[tuple[str, str, DocKey], int] = {}
    rows = store.observations_after(after, size, in_piece=True)
    following: NodeKey | None = None
    for looked, row in enumerate(rows, 1):
        forms = forms_of(row)
        for read in forms[0].foreign if forms is not None else ():
            at = (read.space, read.branch, read.doc)
            found[at] = min(found.get(at, read.seq), read.seq)
        if len(found) >= most or looked == size:
            following = NameCache(store).node(row.key)
            break
    return tuple([Abroad(*at, seq) for at, seq in found.items()]), following
