"""The store port on SQLite: the tables of one space and the statements on them. Nothing is decided here."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path as FilePath
from typing import Any, Final

import apsw

from headwater.data.address import DocKey
from headwater.engine.store.checksummed_tables import (
    BRANCHES,
    DOCUMENTS,
    EVENTS,
    HEADS,
    LOG_COLUMNS,
    MARKS,
    RECORDS,
    SEALED,
    SESSIONS,
    SNAPSHOTS,
    sum_before,
)
from headwater.engine.store.database import Database, Synchronous
from headwater.engine.store.delivery_sql import DeliveryTables
from headwater.engine.store.observation_sql import ObservationTables
from headwater.engine.store.port import (
    DOCUMENTS_MADE,
    BranchRow,
    EventRow,
    HeadRow,
    LogRow,
    MarksRow,
    Part,
    RecordRow,
    SessionRow,
    SnapshotRow,
    Visited,
)
from headwater.engine.store.row_checksum import row_seal
from headwater.errors import LimitError

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
        return int(DOCUMENTS.opened(row)[0]) if row else None

    def key_of(self, doc: int) -> DocKey | None:
        row = self._db.one(DOCUMENTS.select + "WHERE doc=?", (doc,))
        return DocKey._make(DOCUMENTS.opened(row)[1:]) if row else None

    def put_doc(self, doc: int, key: DocKey) -> None:
        DOCUMENTS.add(self._db, (doc, *key))

    def last_doc(self) -> int:
        return self._db.number("SELECT max(doc) FROM documents")

    def docs_of_scope(self, scope: str, after: str, limit: int) -> list[tuple[int, str]]:
        rows = self._db.all(DOCUMENTS.select + "WHERE scope=? AND id>? ORDER BY id LIMIT ?", (scope, after, limit))
        return [(doc, id) for doc, _, id in map(DOCUMENTS.opened, rows)]

    def head(self, branch: int, doc: int) -> HeadRow | None:
        row = self._db.one(HEADS.select + "WHERE branch=? AND doc=?", (branch, doc))
        return HeadRow._make(HEADS.opened(row)) if row else None

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
        return MarksRow._make(MARKS.opened(row)) if row else None

    def put_marks(self, row: MarksRow) -> None:
        MARKS.put(self._db, row)

    # ---- branches --------------------------------------------------------------------------------

    def branches(self) -> list[BranchRow]:
        rows = map(BRANCHES.opened, self._db.all(BRANCHES.select + "ORDER BY branch"))
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
        return EventRow._make(EVENTS.opened(row)) if row else None

    def put_events(self, rows: Iterable[EventRow]) -> None:
        EVENTS.add_all(self._db, rows)

    def events_after(self, after: tuple[int, str], limit: int) -> list[EventRow]:
        rows = self._db.all(EVENTS.select + "WHERE (seq, id)>(?,?) ORDER BY seq, id LIMIT ?", (*after, limit))
        return [EventRow._make(EVENTS.opened(row)) for row in rows]

    def events_due(self, branch: int, due_by_us: int, after: tuple[int, str], limit: int) -> list[EventRow]:
        rows = self._db.all(
            EVENTS.select + "WHERE branch=? AND (seq, id)>(?,?) AND due_us<=? ORDER BY seq, id LIMIT ?",
            (branch, *after, due_by_us, limit),
        )
        return [EventRow._make(EVENTS.opened(row)) for row in rows]

    def next_due(self, branch: int, after_us: int) -> int | None:
        """Return the due time of the first event after a time; None if there is none."""
        found = "SELECT due_us FROM events WHERE branch=? AND due_us>? ORDER BY due_us LIMIT 1"
        row = self._db.one(found, (branch, after_us))
        return int(row[0]) if row else None

    def last_event(self, branch: int) -> int:
        """Return the seq of the newest event; 0 if there is none."""
        return self._db.number("SELECT max(seq) FROM events WHERE branch=?", (branch,))

    def drop_event(self, branch: int, id: str) -> tuple[int, int] | None:
        """Delete an event and return its seq and its seal; None if the branch has no such event."""
        row = self._db.one("DELETE FROM events WHERE id=? AND branch=? RETURNING seq, seal", (id, branch))
        return (row[0], row[1]) if row else None

    def drop_events(self, branch: int, before_seq: int) -> int:
        """Delete all events of a branch. Return the sum of the seals of those before a seq."""
        total = self._db.number("SELECT sum(seal) FROM events WHERE branch=? AND seq<?", (branch, before_seq))
        EVENTS.drop(self._db, "branch=?", (branch,))
        return total

    def put_records(self, rows: Iterable[RecordRow]) -> None:
        RECORDS.add_all(self._db, rows)

    def records_after(self, topic: str, after: tuple[int, int], limit: int) -> list[RecordRow]:
        found = RECORDS.select + "WHERE topic=? AND (seq, ordinal)>(?,?) ORDER BY seq, ordinal LIMIT ?"
        return [RecordRow._make(RECORDS.opened(row)) for row in self._db.all(found, (topic, *after, limit))]


def _session(row: tuple[Any, ...]) -> SessionRow:
    held = SESSIONS.opened(row)
    return SessionRow(held[0], held[1], held[2], held[3], bool(held[4]), held[5], held[6], held[7])
