"""The statements on what nodes last did: names, observations, readers and mirrors. Decides nothing.

Part of the store on SQLite. A row that was edited outside is left out of what is listed: to whoever resumes, that is
the same as a node of which nothing is known. Verifying finds it, and that one is missing, by its seal and their number.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

from headwater.data.address import DocKey
from headwater.engine.store.database import Database
from headwater.engine.store.port import MirrorRow, NodeNumbers, ObservationRow, ReaderRow
from headwater.engine.store.seal import observation_seal
from headwater.engine.store.sealed import DOCUMENTS, MIRRORS, NAMES, OBSERVATIONS, READERS, Sealed

_PUT: Final = "INSERT OR REPLACE INTO observations VALUES (?,?,?,?,?,?,?,?,?)"  # half of what an upsert costs
_KEY: Final = "branch=? AND piece=? AND generation=? AND member=? AND child=? AND scope=?"
_AFTER: Final = "WHERE (branch, piece, generation, member, child, scope)>(?,?,?,?,?,?)"
_ORDER: Final = "ORDER BY branch, piece, generation, member, child, scope LIMIT ?"
_TOGETHER: Final = 500  # numbers in one statement


def name_of(db: Database, number: int) -> str | None:
    row = db.one(NAMES.select + "WHERE number=?", (number,))
    return str(NAMES.opened(row)[1]) if row else None


def number_of(db: Database, name: str) -> int | None:
    row = db.one(NAMES.select + "WHERE name=?", (name,))
    return int(NAMES.opened(row)[0]) if row else None


def add_name(db: Database, name: str) -> int:
    number = db.number("SELECT max(number) FROM names") + 1
    NAMES.add(db, (number, name))
    return number


def drop_names(db: Database, after: int, limit: int, used: Container[int]) -> tuple[int | None, int]:
    """Look at so many names after a number and drop those that are not used.

    Answers the last that was looked at, None if there are no more, and how many were dropped.
    """
    rows = db.all("SELECT number FROM names WHERE number>? ORDER BY number LIMIT ?", (after, limit))
    numbers = [number for (number,) in rows]
    unused = [number for number in numbers if number not in used]
    for some, places in _together(unused):
        NAMES.drop(db, f"number IN ({places})", some)
    return numbers[-1] if len(numbers) == limit else None, len(unused)


def observation(db: Database, key: NodeNumbers) -> ObservationRow | None:
    rows = list(_whole(OBSERVATIONS, db.all(OBSERVATIONS.select + "WHERE " + _KEY, key)))
    return ObservationRow._make(rows[0]) if rows else None


def observations_after(
    db: Database, after: NodeNumbers, limit: int, holds: Sequence[bytes] = ()
) -> list[ObservationRow]:
    """Rows of the branch that `after` names. Fewer than so many: there are no more.

    `holds`: only those of the piece that it names whose body holds one of these strings of bytes.
    """
    found: list[ObservationRow] = []
    having = f"AND piece=? AND ({' OR '.join(['instr(body, ?)'] * len(holds))}) " if holds else ""
    which = (after.piece, *holds) if holds else ()
    while True:
        where = f"{_AFTER} AND branch=? {having}{_ORDER}"
        rows = db.all(OBSERVATIONS.select + where, (*after, after.branch, *which, limit))
        found += map(ObservationRow._make, _whole(OBSERVATIONS, rows))
        if len(rows) < limit or len(found) >= limit:
            return found[:limit]
        after = NodeNumbers._make(rows[-1][1:7])  # Some were left out: the page is filled with those that follow.


def put_observations(db: Database, rows: Iterable[ObservationRow], added: int) -> None:
    """`added`: how many of them were not there."""
    db.many(_PUT, [(*row, observation_seal(*row)) for row in rows])
    OBSERVATIONS.count(db, added)


def drop_observations(db: Database, keys: Iterable[NodeNumbers]) -> None:
    for key in keys:
        OBSERVATIONS.drop(db, _KEY, key)


def newest_generation(db: Database, branch: int, piece: int) -> int | None:
    row = db.one(
        "SELECT generation FROM observations WHERE branch=? AND piece=? ORDER BY generation DESC LIMIT 1",
        (branch, piece),
    )
    return int(row[0]) if row else None


def observed_pieces(db: Database, branch: int, after: int, limit: int) -> list[int]:
    found: list[int] = []
    while len(found) < limit:
        row = db.one(
            "SELECT piece FROM observations WHERE branch=? AND piece>? ORDER BY piece LIMIT 1",
            (branch, found[-1] if found else after),
        )
        if row is None:
            break
        found.append(int(row[0]))
    return found


def reader(db: Database, doc: int, branch: int, piece: int) -> int:
    """How many nodes of the piece read it."""
    return db.number("SELECT nodes FROM readers WHERE doc=? AND branch=? AND piece=?", (doc, branch, piece))


def put_readers(db: Database, rows: Iterable[ReaderRow], added: int) -> None:
    """Without any node there is no row. `added`: how many more rows there are then."""
    held, over = [row for row in rows if row.nodes], [row[:3] for row in rows if not row.nodes]
    db.many("INSERT OR REPLACE INTO readers VALUES (?,?,?,?,?)", [(*row, READERS.seal(*row)) for row in held])
    db.many("DELETE FROM readers WHERE doc=? AND branch=? AND piece=?", over)
    READERS.count(db, added)


def readers_of(db: Database, doc: int, branch: int, after: int, limit: int) -> list[int]:
    rows = db.all(
        "SELECT piece FROM readers WHERE doc=? AND branch=? AND piece>? ORDER BY piece LIMIT ?",
        (doc, branch, after, limit),
    )
    return [piece for (piece,) in rows]


def count_readers(db: Database, branch: int) -> int:
    return db.number("SELECT count(*) FROM readers WHERE branch=?", (branch,))


def mirror_owners(db: Database, branch: int) -> list[int]:
    return [owner for (owner,) in db.all("SELECT DISTINCT owner FROM mirrors WHERE branch=?", (branch,))]


def has_absent_readers(db: Database) -> bool:
    """Whether anybody reads a document that was never written."""
    return db.one("SELECT doc FROM readers WHERE doc<0 LIMIT 1") is not None


def rename_readers(db: Database, doc: int, into: int) -> None:
    """A document has a number from now on: whoever read it before is a reader of that."""
    for row in db.all(READERS.select + "WHERE doc=?", (doc,)):
        held = READERS.opened(row)
        READERS.drop(db, "doc=? AND branch=? AND piece=?", held[:3])
        READERS.put(db, (into, *held[1:]))


def drop_observed_branch(db: Database, branch: int) -> None:
    for sealed in (OBSERVATIONS, READERS, MIRRORS):
        sealed.drop(db, "branch=?", (branch,))


def mirrors_after(db: Database, branch: int, owner: int, piece: int, limit: int) -> list[MirrorRow]:
    rows = db.all(
        MIRRORS.select + "WHERE branch=? AND owner=? AND piece>? ORDER BY piece LIMIT ?", (branch, owner, piece, limit)
    )
    return [MirrorRow._make(row) for row in _whole(MIRRORS, rows)]


def put_mirror(db: Database, row: MirrorRow) -> None:
    """Without a body there is no row."""
    if row.body:
        MIRRORS.put(db, row)
    else:
        MIRRORS.drop(db, "branch=? AND owner=? AND piece=?", row[:3])


def head_seqs(db: Database, branch: int, docs: Iterable[int] | None, after: int = 0) -> dict[int, int]:
    """The last writes to documents, as far as their heads were written back. Those never written are left out.

    None: of all documents, those that were written after a seq.
    """
    if docs is None:
        return dict(db.all("SELECT doc, seq FROM heads WHERE branch=? AND seq>?", (branch, after)))
    found: dict[int, int] = {}
    for some, places in _together(docs):
        found.update(db.all(f"SELECT doc, seq FROM heads WHERE branch=? AND doc IN ({places})", (branch, *some)))
    return found


def keys_of(db: Database, docs: Iterable[int]) -> dict[int, DocKey]:
    """The names of documents. Those that have none are left out."""
    found: dict[int, DocKey] = {}
    for some, places in _together(docs):
        rows = _whole(DOCUMENTS, db.all(DOCUMENTS.select + f"WHERE doc IN ({places})", some))
        found.update({doc: DocKey(scope, id) for doc, scope, id in rows})
    return found


def _together(numbers: Iterable[int]) -> Iterator[tuple[tuple[int, ...], str]]:
    """As many as one statement takes at once, and its places for them."""
    rest = iter(numbers)
    while some := tuple(islice(rest, _TOGETHER)):
        yield some, ",".join("?" * len(some))


def _whole(sealed: Sealed, rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    return (row[1:] for row in rows if row[0] == sealed.seal(*row[1:]))
