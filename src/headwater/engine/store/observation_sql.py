"""The statements on observations: names, observations and readers. Decides nothing.

Part of the store on SQLite. A row that was edited outside is left out of lists: to a reader that is the same as a node
without an observation. `verify` finds the edit by its seal, and a missing row by their number.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

from headwater.data.address import DocKey
from headwater.engine.store.checksummed_tables import DOCUMENTS, NAMES, OBSERVATIONS, READERS, ChecksummedTable
from headwater.engine.store.database import STORE_LIMITS, Database
from headwater.engine.store.port import NodeNumbers, ObservationRow, ReaderRow
from headwater.engine.store.row_checksum import observation_seal

T = TypeVar("T", int, str)

_PUT: Final = "INSERT OR REPLACE INTO observations VALUES (?,?,?,?,?,?,?,?,?)"  # costs half as much as an upsert
_KEY: Final = "branch=? AND piece=? AND generation=? AND member=? AND child=? AND scope=?"
# Equal columns first, and then a range: so SQLite begins at the row itself, and not at the first one of the branch.
_AFTER: Final = "WHERE branch=? AND (piece, generation, member, child, scope)>(?,?,?,?,?)"
_AFTER_IN_PIECE: Final = "WHERE branch=? AND piece=? AND (generation, member, child, scope)>(?,?,?,?)"
_ORDER: Final = " ORDER BY branch, piece, generation, member, child, scope LIMIT ?"
_PIECES: Final = (  # From each to the next, without the rows between them.
    "SELECT piece FROM (WITH RECURSIVE found(piece) AS ("
    "SELECT min(piece) FROM observations WHERE branch=?1 AND piece>?2 UNION ALL"
    " SELECT (SELECT min(piece) FROM observations WHERE branch=?1 AND piece>found.piece) FROM found"
    " WHERE found.piece IS NOT NULL LIMIT ?3) SELECT piece FROM found) WHERE piece IS NOT NULL"
)


class ObservationTables:
    """Names, observations and readers of one space. `SqliteStore` inherits these methods of the store port."""

    __slots__ = ("_db",)

    _db: Database

    @property
    def changes_made(self) -> int:
        return self._db.number("SELECT total_changes()")

    def name_of(self, number: int) -> str | None:
        row = self._db.one(NAMES.select + "WHERE number=?", (number,))
        return str(NAMES.opened(row)[1]) if row else None

    def number_of(self, name: str) -> int | None:
        row = self._db.one(NAMES.select + "WHERE name=?", (name,))
        return int(NAMES.opened(row)[0]) if row else None

    def names_of(self, numbers: Iterable[int]) -> dict[int, str]:
        """The names behind numbers. Those that have none are left out."""
        found: dict[int, str] = {}
        for some, places in _together(numbers):
            found.update(
                [NAMES.opened(row) for row in self._db.all(NAMES.select + f"WHERE number IN ({places})", some)]
            )
        return found

    def numbers_of(self, names: Iterable[str]) -> dict[str, int]:
        """The numbers of names. Those that have none are left out."""
        found: dict[str, int] = {}
        for some, places in _together(names):
            rows = self._db.all(NAMES.select + f"WHERE name IN ({places})", some)
            found.update({name: number for number, name in map(NAMES.opened, rows)})
        return found

    def add_name(self, name: str) -> int:
        number = self._db.number("SELECT max(number) FROM names") + 1
        NAMES.add(self._db, (number, name))
        return number

    def drop_names(self, after: int, limit: int, used: Container[int]) -> tuple[int | None, int]:
        """Look at so many names after a number and drop those that are not used.

        Answers the last that was looked at, None if there are no more, and how many were dropped.
        """
        rows = self._db.all("SELECT number FROM names WHERE number>? ORDER BY number LIMIT ?", (after, limit))
        numbers = [number for (number,) in rows]
        unused = [number for number in numbers if number not in used]
        for some, places in _together(unused):
            NAMES.drop(self._db, f"number IN ({places})", some)
        return numbers[-1] if len(numbers) == limit else None, len(unused)

    def observation(self, key: NodeNumbers) -> ObservationRow | None:
        rows = list(_whole(OBSERVATIONS, self._db.all(OBSERVATIONS.select + "WHERE " + _KEY, key)))
        return ObservationRow._make(rows[0]) if rows else None

    def observations_after(self, after: NodeNumbers, limit: int, *, in_piece: bool = False) -> list[ObservationRow]:
        """Rows of the branch, or only of the piece, that `after` names. Fewer than so many: there are no more."""
        found: list[ObservationRow] = []
        where = _AFTER_IN_PIECE if in_piece else _AFTER
        while True:
            rows = self._db.all(OBSERVATIONS.select + where + _ORDER, (*after, limit))
            found += map(ObservationRow._make, _whole(OBSERVATIONS, rows))
            if len(rows) < limit or len(found) >= limit:
                return found[:limit]
            after = NodeNumbers._make(rows[-1][1:7])  # Some were left out: the page is filled with those that follow.

    def observations_holding(
        self, branch: int, pieces: Iterable[int], limit: int, holds: Sequence[bytes]
    ) -> list[ObservationRow]:
        """Rows of pieces whose body holds one of these strings of bytes. Fewer than so many: there are no more."""
        found: list[ObservationRow] = []
        having = " OR ".join(["instr(body, ?)"] * len(holds))
        for some, places in _together(pieces):
            where = f"WHERE branch=? AND piece IN ({places}) AND ({having}) LIMIT ?"
            left = limit
            while True:
                rows = self._db.all(OBSERVATIONS.select + where, (branch, *some, *holds, left))
                whole = [*map(ObservationRow._make, _whole(OBSERVATIONS, rows))]
                if len(rows) < left or len(whole) >= limit:
                    break
                left *= 2  # Some were left out: the page is filled with those that follow.
            found += whole
            if len(found) >= limit:
                break
        return found[:limit]

    def put_observations(self, rows: Iterable[ObservationRow], added: int) -> None:
        """`added`: how many of them were not there."""
        self._db.many(_PUT, [(*row, observation_seal(*row)) for row in rows])
        OBSERVATIONS.count(self._db, added)

    def drop_observations(self, keys: Iterable[NodeNumbers]) -> None:
        for key in keys:
            OBSERVATIONS.drop(self._db, _KEY, key)

    def newest_generation(self, branch: int, piece: int) -> int | None:
        row = self._db.one(
            "SELECT generation FROM observations WHERE branch=? AND piece=? ORDER BY generation DESC LIMIT 1",
            (branch, piece),
        )
        return int(row[0]) if row else None

    def observed_pieces(self, branch: int, after: int, limit: int) -> list[int]:
        rows = self._db.all(_PIECES, (branch, after, limit))
        return [piece for (piece,) in rows]

    def observations_of(self, branch: int, member: int, pieces: Iterable[int]) -> list[ObservationRow]:
        """The rows of one member of several pieces that are of no generation."""
        found: list[ObservationRow] = []
        for some, places in _together(pieces):
            where = f"WHERE branch=? AND piece IN ({places}) AND generation=0 AND member=? AND child='' AND scope=0"
            found += map(
                ObservationRow._make,
                _whole(OBSERVATIONS, self._db.all(OBSERVATIONS.select + where, (branch, *some, member))),
            )
        return found

    def reader(self, doc: int, branch: int, piece: int) -> int:
        """How many nodes of the piece read it."""
        return self._db.number("SELECT nodes FROM readers WHERE doc=? AND branch=? AND piece=?", (doc, branch, piece))

    def counted_readers(self, doc: int, branch: int, pieces: Iterable[int]) -> dict[int, int]:
        """How many nodes of each of these pieces read it. Those of which none does are left out."""
        found: dict[int, int] = {}
        for some, places in _together(pieces):
            sql = f"SELECT piece, nodes FROM readers WHERE doc=? AND branch=? AND piece IN ({places})"
            found.update(self._db.all(sql, (doc, branch, *some)))
        return found

    def put_readers(self, rows: Iterable[ReaderRow], added: int) -> None:
        """Without any node there is no row. `added`: how many more rows there are then."""
        held, over = [row for row in rows if row.nodes], [row[:3] for row in rows if not row.nodes]
        self._db.many("INSERT OR REPLACE INTO readers VALUES (?,?,?,?,?)", [(*row, READERS.seal(*row)) for row in held])
        self._db.many("DELETE FROM readers WHERE doc=? AND branch=? AND piece=?", over)
        READERS.count(self._db, added)

    def readers_of(self, doc: int, branch: int, after: int, limit: int) -> list[int]:
        rows = self._db.all(
            "SELECT piece FROM readers WHERE doc=? AND branch=? AND piece>? ORDER BY piece LIMIT ?",
            (doc, branch, after, limit),
        )
        return [piece for (piece,) in rows]

    def readers_met(self, branch: int, after: int) -> dict[int, int]:
        """The pieces whose nodes read a document whose head was written after a seq, each with the last such seq."""
        return dict(
            self._db.all(
                "SELECT readers.piece, max(heads.seq) FROM heads CROSS JOIN readers"
                " ON readers.doc=heads.doc AND readers.branch=heads.branch"
                " WHERE heads.branch=? AND heads.seq>? GROUP BY readers.piece",
                (branch, after),
            )
        )

    def count_readers(self, branch: int) -> int:
        return self._db.number("SELECT count(*) FROM readers WHERE branch=?", (branch,))

    def has_absent_readers(self) -> bool:
        """True if a node reads a document that was never written."""
        return self._db.one("SELECT doc FROM readers WHERE doc<0 LIMIT 1") is not None

    def rename_readers(self, doc: int, into: int) -> None:
        """Give readers of a document that was absent its number, now that it has one."""
        for row in self._db.all(READERS.select + "WHERE doc=?", (doc,)):
            held = READERS.opened(row)
            READERS.drop(self._db, "doc=? AND branch=? AND piece=?", held[:3])
            READERS.put(self._db, (into, *held[1:]))

    def drop_observed_branch(self, branch: int) -> None:
        for sealed in (OBSERVATIONS, READERS):
            sealed.drop(self._db, "branch=?", (branch,))

    def head_seqs(self, branch: int, docs: Iterable[int] | None, after: int = 0) -> dict[int, int]:
        """The last writes to documents, as far as their heads were written back. Those never written are left out.

        None: of all documents, those that were written after a seq.
        """
        if docs is None:
            return dict(self._db.all("SELECT doc, seq FROM heads WHERE branch=? AND seq>?", (branch, after)))
        found: dict[int, int] = {}
        for some, places in _together(docs):
            found.update(
                self._db.all(f"SELECT doc, seq FROM heads WHERE branch=? AND doc IN ({places})", (branch, *some))
            )
        return found

    def written_of(self, branch: int, scope: str, ids: Iterable[str]) -> dict[str, int]:
        """The last writes to documents of a scope by their ids, as far as their heads were written back."""
        found: dict[str, int] = {}
        for some, places in _together(ids):
            sql = (
                "SELECT documents.id, heads.seq FROM documents CROSS JOIN heads"
                " ON heads.branch=? AND heads.doc=documents.doc"
                f" WHERE documents.scope=? AND documents.id IN ({places})"
            )
            found.update(self._db.all(sql, (branch, scope, *some)))
        return found

    def keys_of(self, docs: Iterable[int]) -> dict[int, DocKey]:
        """The names of documents. Those that have none are left out."""
        found: dict[int, DocKey] = {}
        for some, places in _together(docs):
            rows = _whole(DOCUMENTS, self._db.all(DOCUMENTS.select + f"WHERE doc IN ({places})", some))
            found.update({doc: DocKey(scope, id) for doc, scope, id in rows})
        return found


def _together(numbers: Iterable[T]) -> Iterator[tuple[tuple[T, ...], str]]:
    """As many as one statement takes at once, and its places for them."""
    rest = iter(numbers)
    while some := tuple(islice(rest, STORE_LIMITS.statement_numbers)):
        yield some, ",".join("?" * len(some))


def _whole(sealed: ChecksummedTable, rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    return (row[1:] for row in rows if row[0] == sealed.seal(*row[1:]))
