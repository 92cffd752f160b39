"""The statements on subscriptions, targets, parked records and attempts. Decides nothing.

Part of the store on SQLite. Rows are found by due time through an index that leaves out rows which are not due at all,
so that a claim costs the same however many targets there are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from headwater.engine.store.checksummed_tables import ATTEMPTS, PARKED, RECORDS, SUBSCRIPTIONS, TARGETS
from headwater.engine.store.database import Database
from headwater.engine.store.port import NEVER, AttemptRow, ParkedRow, Place, RecordRow, SubscriptionRow, TargetRow

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
    """The tables of reactions in one space's file."""

    __slots__ = ("_db",)

    def __init__(self, db: Database) -> None:
        self._db = db

    # ---- subscriptions ---------------------------------------------------------------------------

    def subscriptions(self) -> list[SubscriptionRow]:
        rows = self._db.all(SUBSCRIPTIONS.select + "ORDER BY reaction")
        return [SubscriptionRow._make(SUBSCRIPTIONS.opened(row)) for row in rows]

    def put_subscription(self, row: SubscriptionRow) -> None:
        SUBSCRIPTIONS.put(self._db, row)

    # ---- targets ---------------------------------------------------------------------------------

    def target(self, reaction: int, key: str) -> TargetRow | None:
        row = self._db.one(TARGETS.select + "WHERE reaction=? AND key=?", (reaction, key))
        return TargetRow._make(TARGETS.opened(row)) if row else None

    def add_targets(self, rows: list[TargetRow]) -> None:
        TARGETS.add_all(self._db, rows)
        TARGETS.count(self._db, len(rows))

    def put_targets(self, rows: Iterable[TargetRow]) -> None:
        TARGETS.put_all(self._db, rows)

    def claimable(self, reaction: int, now_us: int, limit: int) -> list[TargetRow]:
        rows = self._db.all(TARGETS.select + _DUE + " AND due_us<=? ORDER BY due_us LIMIT ?", (reaction, now_us, limit))
        return [TargetRow._make(TARGETS.opened(row)) for row in rows]

    def leased_by_others(self, reaction: int, owner: str, after_us: int, limit: int) -> list[TargetRow]:
        found = (
            f"{TARGETS.select}INDEXED BY targets_by_due WHERE reaction=? AND due_us>? AND due_us<{NEVER}"
            " AND instr(holder, '/')>0 AND instr(holder, ?)<>1 LIMIT ?"
        )
        rows = self._db.all(found, (reaction, after_us, f"{owner}/", limit))
        return [TargetRow._make(TARGETS.opened(row)) for row in rows]

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
        return [TargetRow._make(TARGETS.opened(row)) for row in rows]

    def targets_after(self, reaction: int, after: str | None, limit: int) -> list[TargetRow]:
        found = f"{TARGETS.select}WHERE reaction=? AND key{_than(after)}? ORDER BY key LIMIT ?"
        rows = self._db.all(found, (reaction, after or "", limit))
        return [TargetRow._make(TARGETS.opened(row)) for row in rows]

    def blocked_after(self, reaction: int, after: str | None, limit: int) -> list[TargetRow]:
        found = f"{TARGETS.select}{_BLOCKED} AND key{_than(after)}? ORDER BY key LIMIT ?"
        rows = self._db.all(found, (reaction, after or "", limit))
        return [TargetRow._make(TARGETS.opened(row)) for row in rows]

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
        return [RecordRow._make(RECORDS.opened(row)) for row in rows]

    def has_record(self, topic: str, branch: int, key: str, after: Place) -> bool:
        return self._db.one(f"SELECT seq FROM records {_KEYED} LIMIT 1", (topic, branch, key, *after)) is not None

    def next_emitted(self, topic: str, branch: int, key: str, after: Place) -> int | None:
        found = f"SELECT emitted_us FROM records {_KEYED} ORDER BY seq, ordinal LIMIT 1"
        row = self._db.one(found, (topic, branch, key, *after))
        return int(row[0]) if row else None

    def record(self, topic: str, place: Place) -> RecordRow | None:
        row = self._db.one(RECORDS.select + "WHERE topic=? AND seq=? AND ordinal=?", (topic, *place))
        return RecordRow._make(RECORDS.opened(row)) if row else None

    # ---- what was passed over --------------------------------------------------------------------

    def parked(self, reaction: int, key: str, place: Place) -> ParkedRow | None:
        row = self._db.one(
            PARKED.select + "WHERE reaction=? AND key=? AND seq=? AND ordinal=?", (reaction, key, *place)
        )
        return ParkedRow._make(PARKED.opened(row)) if row else None

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
        return [ParkedRow._make(PARKED.opened(row)) for row in rows]

    def parked_of(self, reaction: int, key: str, state: int, limit: int) -> list[ParkedRow]:
        rows = self._db.all(
            PARKED.select + "WHERE reaction=? AND key=? AND state=? ORDER BY seq, ordinal LIMIT ?",
            (reaction, key, state, limit),
        )
        return [ParkedRow._make(PARKED.opened(row)) for row in rows]

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
        return [AttemptRow._make(ATTEMPTS.opened(row)) for row in rows]


def _than(after: str | None) -> str:
    """A key may be empty, so that the first page begins with it."""
    return ">=" if after is None else ">"
