"""Tables whose rows carry a checksum (seal): statements that write and read such rows, and checks for missing rows.

A seal shows that a row was edited, never that it is gone. So the number of rows is kept beside some tables; documents
are numbered without a gap; the keys of `meta` are known; and the rows that compaction keeps from before its boundary
are summed up when it runs. A replay of the log misses all other rows. Never repairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from headwater.engine.store.database import Database
from headwater.engine.store.port import CLAIMS_EPOCH, DOCUMENTS_MADE, HEADS_SEQ, Part
from headwater.engine.store.row_checksum import SEAL_FUNCTION, broken_seal, observation_seal, row_seal
from headwater.errors import CorruptionError

_COUNTED: Final = "CAST(CAST(value AS INTEGER)+?2 AS TEXT)"
_COUNT: Final = f"UPDATE meta SET value={_COUNTED}, seal={SEAL_FUNCTION}(key, {_COUNTED}) WHERE key=?1"
LOG_COLUMNS: Final = "seq, count, session, local_seq, local_last, branch, at_us, chain, body"


class ChecksummedTable:
    """One table. `columns` are in the order of the record that a row becomes; the first `keys` of them name it."""

    __slots__ = ("_insert", "_shown", "_update", "columns", "counter", "seal", "select", "table")

    def __init__(
        self,
        table: str,
        columns: str,
        shown: Callable[..., str],
        *,
        keys: int = 1,
        counted: bool = False,
        seal: Callable[..., int] = row_seal,
    ) -> None:
        self.seal = seal  # of the columns
        names = columns.split(", ")
        places = ", ".join(f"?{number}" for number in range(1, len(names) + 2))
        changed = ", ".join(f"{name}=?{number}" for number, name in enumerate([*names[keys:], "seal"], keys + 1))
        named = " AND ".join(f"{name}=?{number}" for number, name in enumerate(names[:keys], 1))
        self.table = table
        self.columns = columns
        self.counter = f"{table}_made" if counted else ""  # the key in `meta`
        self.select = f"SELECT seal, {columns} FROM {table} "
        self._insert = f"INSERT INTO {table} ({columns}, seal) VALUES ({places})"
        self._update = f"UPDATE {table} SET {changed} WHERE {named}"
        self._shown = shown

    def check_row(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the columns of a row, after checking its seal."""
        held = row[1:]
        if row[0] != self.seal(*held):
            raise broken_seal(self._shown(*held))
        return held

    def add(self, db: Database, row: tuple[Any, ...]) -> None:
        db.run(self._insert, (*row, self.seal(*row)))
        if self.counter:
            db.run(_COUNT, (self.counter, 1))

    def add_all(self, db: Database, rows: Iterable[tuple[Any, ...]]) -> None:
        db.many(self._insert, [(*row, self.seal(*row)) for row in rows])

    def count(self, db: Database, n: int) -> None:
        """Add `n` to the row count of the table."""
        if n:
            db.run(_COUNT, (self.counter, n))

    def put(self, db: Database, row: tuple[Any, ...]) -> None:
        """Write a row in place of the one with its name, if there is one."""
        db.run(self._update, (*row, self.seal(*row)))
        if not db.changes:
            self.add(db, row)

    def put_all(self, db: Database, rows: Iterable[tuple[Any, ...]]) -> None:
        """Write rows in place of those with their names, which are there."""
        db.many(self._update, [(*row, self.seal(*row)) for row in rows])

    def drop(self, db: Database, where: str, values: tuple[Any, ...]) -> None:
        db.run(f"DELETE FROM {self.table} WHERE {where}", values)
        dropped = db.changes
        if dropped and self.counter:
            db.run(_COUNT, (self.counter, -dropped))

    def check(self, db: Database) -> None:
        """Read all of it: CorruptionError at the first row that was edited, or if not all are there."""
        found = 0
        for row in db.each(self.select):
            self.check_row(row)
            found += 1
        if self.counter:
            stored = db.one("SELECT value FROM meta WHERE key=?", (self.counter,))
            made = stored[0] if stored else "0"
            if made != str(found):
                raise CorruptionError(
                    f"{made} rows of {self.table} were made and {found} are there: some were deleted or added by "
                    "hand. Restore a backup."
                )


class _Documents(ChecksummedTable):
    """Documents are numbered from 1 on and never dropped. Their number is checked against the log (`verify`)."""

    def check(self, db: Database) -> None:
        super().check(db)
        made, last = db.number("SELECT count(*) FROM documents"), db.number("SELECT max(doc) FROM documents")
        if made != last:
            raise CorruptionError(
                f"there are {made} documents, numbered up to {last}: not all of them. Restore a backup."
            )


class _Meta(ChecksummedTable):
    """Its keys are all there from the beginning."""

    def check(self, db: Database) -> None:
        super().check(db)
        keys = {key for (key,) in db.each("SELECT key FROM meta")}
        if keys != META_KEYS:
            names = ", ".join(sorted(map(repr, keys ^ META_KEYS)))
            raise CorruptionError(f"the space's own numbers lack some or have too many: {names}. Restore a backup.")


DOCUMENTS: Final = _Documents("documents", "doc, scope, id", lambda doc, scope, id: f"document {doc} ({scope}:{id})")
SESSIONS: Final = ChecksummedTable(
    "sessions",
    "session, key, principal, opened_us, closed, judged, resume, acked",
    lambda session, key, *_: f"session {session} ({key!r})",
    counted=True,
)
BRANCHES: Final = ChecksummedTable(
    "branches",
    "branch, name, parent, fork_seq, created_us, deleted, merged_seq",
    lambda branch, name, *_: f"branch {branch} ({name!r})",
    counted=True,
)
MARKS: Final = ChecksummedTable(
    "marks",
    "branch, doc, seq, body",
    lambda branch, doc, *_: f"the write index of document {doc} on branch {branch}",
    keys=2,
    counted=True,
)
EVENTS: Final = ChecksummedTable(
    "events", "id, seq, stream, due_us, payload, branch, stored_us, session", lambda id, *_: f"event {id!r}"
)
RECORDS: Final = ChecksummedTable(
    "records",
    "seq, ordinal, topic, key, payload, source, branch, emitted_us",
    lambda seq, ordinal, topic, *_: f"record {ordinal} of commit {seq} to {topic!r}",
)

HEADS: Final = ChecksummedTable(
    "heads",
    "branch, doc, seq, base_seq, base_bytes, patches, patch_bytes, ordinal",
    lambda branch, doc, *_: f"the head of document {doc} on branch {branch}",
    keys=2,
)
SNAPSHOTS: Final = ChecksummedTable(
    "snapshots",
    "branch, doc, seq, ordinal, present, body",
    lambda branch, doc, seq, *_: f"the snapshot of document {doc} on branch {branch} at seq {seq}",
    keys=3,
    counted=True,
)
NAMES: Final = ChecksummedTable("names", "number, name", lambda number, name: f"name {number} ({name!r})", counted=True)
OBSERVATIONS: Final = ChecksummedTable(
    "observations",
    "branch, piece, generation, member, child, scope, state, body",
    lambda branch, piece, generation, member, *_: f"the observation of node {piece}.{generation}.{member} on {branch}",
    keys=6,
    counted=True,
    seal=observation_seal,
)
READERS: Final = ChecksummedTable(
    "readers",
    "doc, branch, piece, nodes",
    lambda doc, branch, piece, _: f"piece {piece} as a reader of document {doc} on branch {branch}",
    keys=3,
    counted=True,
)
SUBSCRIPTIONS: Final = ChecksummedTable(
    "subscriptions",
    "reaction, name, topic, state, lane, priority, start_seq, start_ordinal, cursor_seq, cursor_ordinal, until_seq, "
    "made_us",
    lambda reaction, name, *_: f"reaction {reaction} ({name!r})",
    counted=True,
)
TARGETS: Final = ChecksummedTable(
    "targets",
    "reaction, key, seq, ordinal, state, due_us, attempt, failures, lost, replays, token, holder, since_us, began_us, "
    "fingerprint",
    lambda reaction, key, *_: f"target {key!r} of reaction {reaction}",
    keys=2,
    counted=True,
)
PARKED: Final = ChecksummedTable(
    "parked",
    "reaction, key, seq, ordinal, state, at_us, fingerprint",
    lambda reaction, key, seq, *_: f"the record of commit {seq} that target {key!r} of reaction {reaction} passed over",
    keys=4,
    counted=True,
)
ATTEMPTS: Final = ChecksummedTable(
    "attempts",
    "reaction, key, seq, ordinal, slot, attempt, how, began_us, ended_us, error, message, fingerprint",
    lambda reaction, key, seq, *_: f"an attempt of target {key!r} of reaction {reaction} at commit {seq}",
    keys=5,
    counted=True,
)
META: Final = _Meta("meta", "key, value", lambda key, value: f"the space's {key!r}, {value!r},")

SEALED: Final = {
    Part.DOCUMENTS: DOCUMENTS,
    Part.SESSIONS: SESSIONS,
    Part.BRANCHES: BRANCHES,
    Part.MARKS: MARKS,
    Part.EVENTS: EVENTS,
    Part.RECORDS: RECORDS,
    Part.HEADS: HEADS,
    Part.SNAPSHOTS: SNAPSHOTS,
    Part.META: META,
    Part.NAMES: NAMES,
    Part.OBSERVATIONS: OBSERVATIONS,
    Part.READERS: READERS,
    Part.SUBSCRIPTIONS: SUBSCRIPTIONS,
    Part.TARGETS: TARGETS,
    Part.PARKED: PARKED,
    Part.ATTEMPTS: ATTEMPTS,
}
META_KEYS: Final = frozenset(
    {
        *(sealed.counter for sealed in SEALED.values() if sealed.counter),
        *(HEADS_SEQ, DOCUMENTS_MADE, "compacted_seq", "compacted_chain", "kept_sum", CLAIMS_EPOCH),
    }
)


def sum_before(db: Database, seq: int) -> int:
    """The sum of the seals of all that commits before a seq left: rows of the log, events, records."""
    total = sum(row_seal(*row) for row in db.each(f"SELECT {LOG_COLUMNS} FROM log WHERE seq<?", (seq,)))
    for table in (EVENTS.table, RECORDS.table):
        total += db.number(f"SELECT sum(seal) FROM {table} WHERE seq<?", (seq,))
    return total
