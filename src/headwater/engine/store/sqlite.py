"""The store port on SQLite: the tables of one space and the statements on them. Nothing is decided here."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path as FilePath
from typing import Any, Final, TypeVar

import apsw

from headwater.data.address import DocKey
from headwater.engine.store.checksummed_tables import (
    ATTEMPTS,
    BRANCHES,
    DOCUMENTS,
    EVENTS,
    HEADS,
    LOG_COLUMNS,
    MARKS,
    NAMES,
    OBSERVATIONS,
    PARKED,
    READERS,
    RECORDS,
    SEALED,
    SESSIONS,
    SNAPSHOTS,
    SUBSCRIPTIONS,
    TARGETS,
    ChecksummedTable,
    sum_before,
)
from headwater.engine.store.database import STORE_LIMITS, Database, Synchronous
from headwater.engine.store.port import (
    DOCUMENTS_MADE,
    NEVER,
    AttemptRow,
    BranchRow,
    DroppedEvent,
    EventRow,
    HeadRow,
    LogRow,
    MarksRow,
    NodeNumbers,
    ObservationRow,
    ParkedRow,
    Part,
    Place,
    ReaderRow,
    RecordRow,
    SessionRow,
    SnapshotRow,
    SubscriptionRow,
    TargetRow,
    Visited,
)
from headwater.engine.store.row_checksum import observation_seal, row_seal
from headwater.errors import LimitError

# SQLite uses a partial index only where the statement repeats its condition.
_DUE: Final = f"INDEXED BY targets_by_due WHERE reaction=? AND due_us<{NEVER}"
_BLOCKED: Final = "INDEXED BY targets_blocked WHERE reaction=? AND state=3"
_KEYED: Final = "INDEXED BY records_by_key WHERE topic=? AND branch=? AND key=? AND (seq, ordinal)>(?,?)"

_OVER: Final = (
    "SELECT reaction, key, seq, ordinal, slot FROM attempts AS tried WHERE reaction=? AND key=? AND"
    " (seq, ordinal)<=(?,?) AND NOT EXISTS (SELECT 1 FROM parked WHERE parked.reaction=tried.reaction AND"
    " parked.key=tried.key AND parked.seq=tried.seq AND parked.ordinal=tried.ordinal)"
)


class DeliveryTables:
    """The tables of reactions in one space's file: subscriptions, targets, parked records and attempts.

    Rows are found by due time through an index that leaves out rows which are not due at all, so that a claim costs the
    same however many targets there are.
    """

    __slots__ = ("_db",)

    def __init__(self, db: Database) -> None:
        self._db = db

    # ---- subscriptions ---------------------------------------------------------------------------

    def subscriptions(self) -> list[SubscriptionRow]:
        rows = self._db.all(SUBSCRIPTIONS.select + "ORDER BY reaction")
        return [SubscriptionRow._make(SUBSCRIPTIONS.check_row(row)) for row in rows]

    def put_subscription(self, row: SubscriptionRow) -> None:
        SUBSCRIPTIONS.put(self._db, row)

    # ---- targets ---------------------------------------------------------------------------------

    def target(self, reaction: int, key: str) -> TargetRow | None:
        row = self._db.one(TARGETS.select + "WHERE reaction=? AND key=?", (reaction, key))
        return TargetRow._make(TARGETS.check_row(row)) if row else None

    def add_targets(self, rows: list[TargetRow]) -> None:
        TARGETS.add_all(self._db, rows)
        TARGETS.count(self._db, len(rows))

    def put_targets(self, rows: Iterable[TargetRow]) -> None:
        TARGETS.put_all(self._db, rows)

    def claimable(self, reaction: int, now_us: int, limit: int) -> list[TargetRow]:
        rows = self._db.all(TARGETS.select + _DUE + " AND due_us<=? ORDER BY due_us LIMIT ?", (reaction, now_us, limit))
        return [TargetRow._make(TARGETS.check_row(row)) for row in rows]

    def leased_by_others(self, reaction: int, owner: str, after_us: int, limit: int) -> list[TargetRow]:
        found = (
            f"{TARGETS.select}INDEXED BY targets_by_due WHERE reaction=? AND due_us>? AND due_us<{NEVER}"
            " AND instr(holder, '/')>0 AND instr(holder, ?)<>1 LIMIT ?"
        )
        rows = self._db.all(found, (reaction, after_us, f"{owner}/", limit))
        return [TargetRow._make(TARGETS.check_row(row)) for row in rows]

    def next_due(self, reaction: int) -> int | None:
        row = self._db.one(f"SELECT due_us FROM targets {_DUE} ORDER BY due_us LIMIT 1", (reaction,))
        return int(row[0]) if row else None

    def last_known(self, reaction: int, among: int) -> int:
        ends = [f"SELECT began_us, since_us FROM targets {_DUE} ORDER BY due_us {way} LIMIT ?" for way in ("", "DESC")]
        both = " UNION ALL ".join([f"SELECT max(began_us, since_us) AS at FROM ({each})" for each in ends])
        return self._db.number(f"SELECT coalesce(max(at), 0) FROM ({both})", (reaction, among, reaction, among))

    def is_behind(self, reaction: int, topic: str, branch: int, through: int) -> bool:
        some = f"SELECT key AS target, seq AS at, ordinal AS nth, replays FROM targets {_DUE}"
        behind = (
            "SELECT 1 FROM records INDEXED BY records_by_key WHERE topic=? AND branch=? AND key=target"
            " AND (seq, ordinal)>(at, nth) AND seq<=?"
        )
        found = f"SELECT 1 FROM ({some}) WHERE replays>0 OR EXISTS ({behind}) LIMIT 1"
        return self._db.one(found, (reaction, topic, branch, through)) is not None

    def due_after(self, reaction: int, after: str | None, limit: int) -> list[TargetRow]:
        found = f"{TARGETS.select}{_DUE} AND key{_than(after)}? ORDER BY key LIMIT ?"
        rows = self._db.all(found, (reaction, after or "", limit))
        return [TargetRow._make(TARGETS.check_row(row)) for row in rows]

    def targets_after(self, reaction: int, after: str | None, limit: int) -> list[TargetRow]:
        found = f"{TARGETS.select}WHERE reaction=? AND key{_than(after)}? ORDER BY key LIMIT ?"
        rows = self._db.all(found, (reaction, after or "", limit))
        return [TargetRow._make(TARGETS.check_row(row)) for row in rows]

    def blocked_after(self, reaction: int, after: str | None, limit: int) -> list[TargetRow]:
        found = f"{TARGETS.select}{_BLOCKED} AND key{_than(after)}? ORDER BY key LIMIT ?"
        rows = self._db.all(found, (reaction, after or "", limit))
        return [TargetRow._make(TARGETS.check_row(row)) for row in rows]

    def count_due(self, reaction: int, most: int) -> int:
        return self._db.number(f"SELECT count(*) FROM (SELECT 1 FROM targets {_DUE} LIMIT ?)", (reaction, most))

    def count_blocked(self, reaction: int, most: int) -> int:
        return self._db.number(f"SELECT count(*) FROM (SELECT 1 FROM targets {_BLOCKED} LIMIT ?)", (reaction, most))

    def count_parked(self, reaction: int, most: int) -> int:
        some = "SELECT count(*) FROM (SELECT 1 FROM parked WHERE reaction=? LIMIT ?)"
        return self._db.number(some, (reaction, most))

    def oldest(self, reaction: int, among: int) -> int | None:
        some = f"SELECT min(since_us) FROM (SELECT since_us FROM targets {_DUE} ORDER BY due_us LIMIT ?)"
        return self._db.number(some, (reaction, among)) or None

    # ---- records ---------------------------------------------------------------------------------

    def records_of(self, topic: str, branch: int, key: str, after: Place, limit: int) -> list[RecordRow]:
        rows = self._db.all(
            RECORDS.select + _KEYED + " ORDER BY seq, ordinal LIMIT ?", (topic, branch, key, *after, limit)
        )
        return [RecordRow._make(RECORDS.check_row(row)) for row in rows]

    def has_record(self, topic: str, branch: int, key: str, after: Place) -> bool:
        return self._db.one(f"SELECT seq FROM records {_KEYED} LIMIT 1", (topic, branch, key, *after)) is not None

    def next_emitted(self, topic: str, branch: int, key: str, after: Place) -> int | None:
        found = f"SELECT emitted_us FROM records {_KEYED} ORDER BY seq, ordinal LIMIT 1"
        row = self._db.one(found, (topic, branch, key, *after))
        return int(row[0]) if row else None

    def record(self, topic: str, place: Place) -> RecordRow | None:
        row = self._db.one(RECORDS.select + "WHERE topic=? AND seq=? AND ordinal=?", (topic, *place))
        return RecordRow._make(RECORDS.check_row(row)) if row else None

    # ---- what was passed over --------------------------------------------------------------------

    def parked(self, reaction: int, key: str, place: Place) -> ParkedRow | None:
        row = self._db.one(
            PARKED.select + "WHERE reaction=? AND key=? AND seq=? AND ordinal=?", (reaction, key, *place)
        )
        return ParkedRow._make(PARKED.check_row(row)) if row else None

    def put_parked(self, row: ParkedRow) -> None:
        PARKED.put(self._db, row)

    def drop_parked(self, row: ParkedRow) -> None:
        PARKED.drop(self._db, "reaction=? AND key=? AND seq=? AND ordinal=?", row[:4])

    def drop_failures(self, reaction: int, key: str) -> None:
        PARKED.drop(self._db, "reaction=? AND key=?", (reaction, key))
        ATTEMPTS.drop(self._db, "reaction=? AND key=?", (reaction, key))

    def parked_after(self, reaction: int, after: tuple[str, int, int], limit: int) -> list[ParkedRow]:
        rows = self._db.all(
            PARKED.select + "WHERE reaction=? AND (key, seq, ordinal)>(?,?,?) ORDER BY key, seq, ordinal LIMIT ?",
            (reaction, *after, limit),
        )
        return [ParkedRow._make(PARKED.check_row(row)) for row in rows]

    def parked_of(self, reaction: int, key: str, state: int, limit: int) -> list[ParkedRow]:
        rows = self._db.all(
            PARKED.select + "WHERE reaction=? AND key=? AND state=? ORDER BY seq, ordinal LIMIT ?",
            (reaction, key, state, limit),
        )
        return [ParkedRow._make(PARKED.check_row(row)) for row in rows]

    # ---- attempts --------------------------------------------------------------------------------

    def put_attempt(self, row: AttemptRow) -> None:
        ATTEMPTS.put(self._db, row)

    def drop_attempts(self, reaction: int, key: str, place: Place) -> None:
        ATTEMPTS.drop(self._db, f"(reaction, key, seq, ordinal, slot) IN ({_OVER})", (reaction, key, *place))

    def attempts_after(self, reaction: int, after: tuple[str, int, int, int], limit: int) -> list[AttemptRow]:
        rows = self._db.all(
            ATTEMPTS.select
            + "WHERE reaction=? AND (key, seq, ordinal, slot)>(?,?,?,?) ORDER BY key, seq, ordinal, slot LIMIT ?",
            (reaction, *after, limit),
        )
        return [AttemptRow._make(ATTEMPTS.check_row(row)) for row in rows]


def _than(after: str | None) -> str:
    """A key may be empty, so that the first page begins with it."""
    return ">=" if after is None else ">"


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
    """Names, observations and readers of one space. `SqliteStore` inherits these methods of the store port.

    A row that was edited outside is left out of lists: to a reader that is the same as a node without an observation.
    `verify` finds the edit by its seal, and a missing row by their number.
    """

    __slots__ = ("_db",)

    _db: Database

    @property
    def changes_made(self) -> int:
        return self._db.number("SELECT total_changes()")

    def name_of(self, number: int) -> str | None:
        row = self._db.one(NAMES.select + "WHERE number=?", (number,))
        return str(NAMES.check_row(row)[1]) if row else None

    def number_of(self, name: str) -> int | None:
        row = self._db.one(NAMES.select + "WHERE name=?", (name,))
        return int(NAMES.check_row(row)[0]) if row else None

    def names_of(self, numbers: Iterable[int]) -> dict[int, str]:
        """The names behind numbers. Those that have none are left out."""
        found: dict[int, str] = {}
        for some, places in _together(numbers):
            found.update(
                [NAMES.check_row(row) for row in self._db.all(NAMES.select + f"WHERE number IN ({places})", some)]
            )
        return found

    def numbers_of(self, names: Iterable[str]) -> dict[str, int]:
        """The numbers of names. Those that have none are left out."""
        found: dict[str, int] = {}
        for some, places in _together(names):
            rows = self._db.all(NAMES.select + f"WHERE name IN ({places})", some)
            found.update({name: number for number, name in map(NAMES.check_row, rows)})
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

    def counts_of_readers(self, branch: int, piece: int, docs: Iterable[int]) -> dict[int, int]:
        """How many nodes of the piece read each of these documents. Those that none reads are left out."""
        found: dict[int, int] = {}
        for some, places in _together(docs):
            sql = f"SELECT doc, nodes FROM readers WHERE doc IN ({places}) AND branch=? AND piece=?"
            found.update(self._db.all(sql, (*some, branch, piece)))
        return found

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

    def rename_readers(self, renamed: Mapping[int, int]) -> None:
        """Give readers of documents that were absent the numbers of these, now that they have some."""
        for some, places in _together(renamed):
            for row in self._db.all(READERS.select + f"WHERE doc IN ({places})", some):
                held = READERS.check_row(row)
                READERS.drop(self._db, "doc=? AND branch=? AND piece=?", held[:3])
                READERS.put(self._db, (renamed[held[0]], *held[1:]))

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


_APPEND: Final = "INSERT INTO log VALUES (?,?,?,?,?,?,?,?,?)"
_PUT_HEAD: Final = (
    "INSERT INTO heads VALUES (?,?,?,?,?,?,?,?,?) ON CONFLICT (branch, doc) DO UPDATE SET seq=excluded.seq,"
    " base_seq=excluded.base_seq, base_bytes=excluded.base_bytes, patches=excluded.patches,"
    " patch_bytes=excluded.patch_bytes, ordinal=excluded.ordinal, seal=excluded.seal"
)
_LOG: Final = f"SELECT {LOG_COLUMNS} FROM log "
_SNAPSHOT: Final = "SELECT branch, doc, seq, ordinal, present, body FROM snapshots "


class SqliteStore(ObservationTables):
    """One space in one SQLite file, or in memory when the path is `:memory:`."""

    __slots__ = ()

    def __init__(
        self,
        path: str | FilePath,
        *,
        synchronous: Synchronous = "FULL",
        vfs: str | None = None,
        create: bool = True,
        room_from: int | None = None,
    ) -> None:
        """`room_from`: bytes from which on the write-ahead log is given room, where not by itself (a `vfs`)."""
        self._db = Database(str(path), synchronous=synchronous, vfs=vfs, create=create, room_from=room_from)

    @property
    def visited(self) -> Visited:
        return self._db.visited

    @property
    def delivery(self) -> DeliveryTables:
        return DeliveryTables(self._db)

    # ---- transactions ----------------------------------------------------------------------------

    def begin(self, *, synced: bool = True) -> None:
        self._db.begin(synced=synced)

    def commit(self) -> None:
        self._db.commit()

    def rollback(self) -> None:
        self._db.rollback()

    def savepoint(self) -> None:
        self._db.savepoint()

    def release(self) -> None:
        self._db.release()

    def rollback_to_savepoint(self) -> None:
        self._db.rollback_to_savepoint()

    def reopen(self) -> None:
        self._db.reopen()

    def close(self) -> None:
        self._db.close()

    # ---- meta ------------------------------------------------------------------------------------

    def meta(self, key: str) -> str | None:
        row = self._db.one("SELECT value FROM meta WHERE key=?", (key,))
        return row[0] if row else None

    def put_meta(self, key: str, value: str) -> None:
        self._db.run("INSERT OR REPLACE INTO meta VALUES (?,?,?)", (key, value, row_seal(key, value)))

    # ---- the log ---------------------------------------------------------------------------------

    def append(self, row: LogRow) -> None:
        self._db.visited.statements += 1
        try:
            self._db.execute(_APPEND, row)
        except apsw.Error as error:
            raise self._db.failed(error) from error
        except OverflowError as error:
            raise LimitError(f"a number is too large to be stored: {error}") from error

    def last_row(self) -> LogRow | None:
        row = self._db.one(_LOG + "ORDER BY seq DESC LIMIT 1")
        return LogRow._make(row) if row else None

    def row_at(self, seq: int) -> LogRow | None:
        row = self._db.one(_LOG + "WHERE seq<=? ORDER BY seq DESC LIMIT 1", (seq,))
        return LogRow._make(row) if row else None

    def rows_after(self, seq: int, limit: int) -> list[LogRow]:
        return [LogRow._make(row) for row in self._db.all(_LOG + "WHERE seq>? ORDER BY seq LIMIT ?", (seq, limit))]

    def row_of_session(self, session: int, local_seq: int) -> LogRow | None:
        row = self._db.one(
            _LOG + "WHERE session=? AND local_seq<=? ORDER BY local_seq DESC LIMIT 1", (session, local_seq)
        )
        return LogRow._make(row) if row else None

    def drop_rows(self, before_seq: int) -> int:
        self._db.run(
            "DELETE FROM log WHERE seq + count <= ? AND EXISTS (SELECT 1 FROM sessions WHERE"
            # fault store.keys_compacted: " sessions.session = log.session)",
            " sessions.session = log.session AND (sessions.closed OR log.local_last <= sessions.acked))",
            (before_seq,),
        )
        return self._db.changes

    # ---- documents, heads, snapshots, marks ------------------------------------------------------

    def doc_of(self, key: DocKey) -> int | None:
        row = self._db.one(DOCUMENTS.select + "WHERE scope=? AND id=?", key)
        return int(DOCUMENTS.check_row(row)[0]) if row else None

    def key_of(self, doc: int) -> DocKey | None:
        row = self._db.one(DOCUMENTS.select + "WHERE doc=?", (doc,))
        return DocKey._make(DOCUMENTS.check_row(row)[1:]) if row else None

    def docs_of(self, keys: Iterable[DocKey]) -> dict[DocKey, int]:
        """The numbers of documents. Those that have none are left out."""
        by_scope: dict[str, list[str]] = {}
        for scope, id in keys:
            by_scope.setdefault(scope, []).append(id)
        found: dict[DocKey, int] = {}
        for scope, ids in by_scope.items():
            for some, places in _together(ids):
                rows = self._db.all(DOCUMENTS.select + f"WHERE scope=? AND id IN ({places})", (scope, *some))
                found.update({DocKey(scope, id): doc for doc, _, id in map(DOCUMENTS.check_row, rows)})
        return found

    def put_docs(self, rows: Iterable[tuple[int, DocKey]]) -> None:
        DOCUMENTS.add_all(self._db, [(doc, *key) for doc, key in rows])

    def last_doc(self) -> int:
        return self._db.number("SELECT max(doc) FROM documents")

    def docs_of_scope(self, scope: str, after: str, limit: int) -> list[tuple[int, str]]:
        rows = self._db.all(DOCUMENTS.select + "WHERE scope=? AND id>? ORDER BY id LIMIT ?", (scope, after, limit))
        return [(doc, id) for doc, _, id in map(DOCUMENTS.check_row, rows)]

    def head(self, branch: int, doc: int) -> HeadRow | None:
        row = self._db.one(HEADS.select + "WHERE branch=? AND doc=?", (branch, doc))
        return HeadRow._make(HEADS.check_row(row)) if row else None

    def put_heads(self, rows: Iterable[HeadRow]) -> None:
        # fault+ store.heads_apart: self.commit(), self.begin()
        self._db.many(_PUT_HEAD, [(*row, row_seal(*row)) for row in rows])
        self.put_meta(DOCUMENTS_MADE, str(self.last_doc()))

    def heads_of_branch(self, branch: int, after_doc: int, limit: int) -> list[HeadRow]:
        after = f"SELECT {HEADS.columns} FROM heads WHERE branch=? AND doc>? ORDER BY doc LIMIT ?"
        return [HeadRow._make(row) for row in self._db.all(after, (branch, after_doc, limit))]

    def put_snapshot(self, row: SnapshotRow) -> None:
        SNAPSHOTS.add(self._db, row)

    def snapshot_at_or_before(self, branch: int, doc: int, seq: int) -> SnapshotRow | None:
        row = self._db.one(
            _SNAPSHOT + "WHERE branch=? AND doc=? AND seq<=? ORDER BY seq DESC LIMIT 1", (branch, doc, seq)
        )
        return SnapshotRow(row[0], row[1], row[2], row[3], bool(row[4]), row[5]) if row else None

    def snapshot_seq_after(self, branch: int, doc: int, seq: int) -> int | None:
        after = "SELECT seq FROM snapshots WHERE branch=? AND doc=? AND seq>? ORDER BY seq LIMIT 1"
        row = self._db.one(after, (branch, doc, seq))
        return int(row[0]) if row else None

    def docs_with_snapshots(self, branch: int, after_doc: int, limit: int) -> list[int]:
        some = "SELECT DISTINCT doc FROM snapshots WHERE branch=? AND doc>? ORDER BY doc LIMIT ?"
        return [doc for (doc,) in self._db.all(some, (branch, after_doc, limit))]

    def snapshot_seqs(self, branch: int, doc: int) -> list[tuple[int, int]]:
        rows = self._db.all("SELECT seq, ordinal FROM snapshots WHERE branch=? AND doc=? ORDER BY seq", (branch, doc))
        return [(row[0], row[1]) for row in rows]

    def older_snapshot(self, branch: int, doc: int, than: int) -> tuple[int, int] | None:
        row = self._db.one(
            "SELECT seq, ordinal FROM snapshots WHERE branch=? AND doc=? ORDER BY seq DESC LIMIT 1 OFFSET ?",
            (branch, doc, than),
        )
        return (row[0], row[1]) if row else None

    def drop_snapshot(self, branch: int, doc: int, seq: int) -> None:
        SNAPSHOTS.drop(self._db, "branch=? AND doc=? AND seq=?", (branch, doc, seq))

    def marks(self, branch: int, doc: int) -> MarksRow | None:
        row = self._db.one(MARKS.select + "WHERE branch=? AND doc=?", (branch, doc))
        return MarksRow._make(MARKS.check_row(row)) if row else None

    def put_marks(self, row: MarksRow) -> None:
        MARKS.put(self._db, row)

    # ---- branches --------------------------------------------------------------------------------

    def branches(self) -> list[BranchRow]:
        rows = map(BRANCHES.check_row, self._db.all(BRANCHES.select + "ORDER BY branch"))
        return [BranchRow(r[0], r[1], r[2], r[3], r[4], bool(r[5]), r[6]) for r in rows]

    def put_branch(self, row: BranchRow) -> None:
        BRANCHES.put(self._db, row)

    def drop_branch_data(self, branch: int) -> None:
        for sealed in (HEADS, SNAPSHOTS, MARKS):
            sealed.drop(self._db, "branch=?", (branch,))

    # ---- sessions --------------------------------------------------------------------------------

    def session_of(self, key: str) -> SessionRow | None:
        row = self._db.one(SESSIONS.select + "WHERE key=?", (key,))
        return _session(row) if row else None

    def session(self, session: int) -> SessionRow | None:
        row = self._db.one(SESSIONS.select + "WHERE session=?", (session,))
        return _session(row) if row else None

    def put_session(self, row: SessionRow) -> None:
        SESSIONS.put(self._db, row)

    def last_session(self) -> int:
        return self._db.number("SELECT max(session) FROM sessions")

    # ---- what was edited outside -----------------------------------------------------------------

    def check(self, part: Part) -> None:
        SEALED[part].check(self._db)

    def check_schema(self) -> None:
        """A table, an index or a trigger that was added, changed or dropped outside is a CorruptionError."""
        self._db.check_schema()

    def sum_before(self, seq: int) -> int:
        return sum_before(self._db, seq)

    # ---- events, topic records -------------------------------------------------------------------

    def event(self, id: str) -> EventRow | None:
        row = self._db.one(EVENTS.select + "WHERE id=?", (id,))
        return EventRow._make(EVENTS.check_row(row)) if row else None

    def put_events(self, rows: Iterable[EventRow]) -> None:
        EVENTS.add_all(self._db, rows)

    def events_after(self, after: tuple[int, str], limit: int) -> list[EventRow]:
        rows = self._db.all(EVENTS.select + "WHERE (seq, id)>(?,?) ORDER BY seq, id LIMIT ?", (*after, limit))
        return [EventRow._make(EVENTS.check_row(row)) for row in rows]

    def events_due(self, branch: int, due_by_us: int, after: tuple[int, str], limit: int) -> list[EventRow]:
        rows = self._db.all(
            EVENTS.select + "WHERE branch=? AND (seq, id)>(?,?) AND due_us<=? ORDER BY seq, id LIMIT ?",
            (branch, *after, due_by_us, limit),
        )
        return [EventRow._make(EVENTS.check_row(row)) for row in rows]

    def next_due(self, branch: int, after_us: int) -> int | None:
        """Return the due time of the first event after a time; None if there is none."""
        found = "SELECT due_us FROM events WHERE branch=? AND due_us>? ORDER BY due_us LIMIT 1"
        row = self._db.one(found, (branch, after_us))
        return int(row[0]) if row else None

    def last_event(self, branch: int) -> int:
        """Return the seq of the newest event; 0 if there is none."""
        return self._db.number("SELECT max(seq) FROM events WHERE branch=?", (branch,))

    def drop_event(self, branch: int, id: str) -> DroppedEvent | None:
        """Delete an event and return what is needed to count it; None if the branch has no such event."""
        row = self._db.one(
            "DELETE FROM events WHERE id=? AND branch=? RETURNING seq, seal, due_us, session", (id, branch)
        )
        return DroppedEvent._make(row) if row else None

    def count_events(self, principal: str) -> tuple[int, int]:
        """Count the events that sessions of a principal sent, and of these the ones with a time."""
        found = "SELECT count(*), total(due_us>0) FROM events JOIN sessions USING (session) WHERE principal=?"
        row = self._db.one(found, (principal,))
        assert row is not None
        return int(row[0]), int(row[1])

    def count_documents(self, scope: str, most: int) -> int:
        """Count the documents of a scope that have a number, up to `most`."""
        return self._db.number("SELECT count(*) FROM (SELECT 1 FROM documents WHERE scope=? LIMIT ?)", (scope, most))

    def drop_events(self, branch: int, before_seq: int) -> int:
        """Delete all events of a branch. Return the sum of the seals of those before a seq."""
        total = self._db.number("SELECT sum(seal) FROM events WHERE branch=? AND seq<?", (branch, before_seq))
        EVENTS.drop(self._db, "branch=?", (branch,))
        return total

    def put_records(self, rows: Iterable[RecordRow]) -> None:
        RECORDS.add_all(self._db, rows)

    def records_after(self, topic: str, after: tuple[int, int], limit: int) -> list[RecordRow]:
        found = RECORDS.select + "WHERE topic=? AND (seq, ordinal)>(?,?) ORDER BY seq, ordinal LIMIT ?"
        return [RecordRow._make(RECORDS.check_row(row)) for row in self._db.all(found, (topic, *after, limit))]


def _session(row: tuple[Any, ...]) -> SessionRow:
    held = SESSIONS.check_row(row)
    return SessionRow(held[0], held[1], held[2], held[3], bool(held[4]), held[5], held[6], held[7])
