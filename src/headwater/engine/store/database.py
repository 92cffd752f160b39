"""One SQLite connection: opening a space's file, running statements on it, and its transactions.

Write-ahead log, `synchronous=FULL`, and exclusive locking: one connection owns the file, which the directory
lock promises anyway, and no shared memory is needed. Every failure of SQLite leaves here as a `StorageError`
that names the file. Knows no table but the schema's version.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from ctypes import addressof, c_int
from dataclasses import dataclass
from errno import EDQUOT, EFBIG, ENOSPC
from pathlib import Path as FilePath
from typing import Any, Final, Literal

import apsw

from headwater.engine.store.port import Visited
from headwater.engine.store.row_checksum import SEAL_FUNCTION, row_seal
from headwater.engine.store.schema import APPLICATION_ID, DRAFT_APPLICATION_IDS, SCHEMA, SCHEMA_VERSION
from headwater.engine.store.wal import COPY, WalPreallocation, write_again
from headwater.errors import CorruptionError, LimitError, MovedError, NewerVersionError, NotASpaceError, StorageError

Synchronous = Literal["FULL", "NORMAL", "OFF"]
LOGS: Final = ("-wal", f"-wal{COPY}")
"""Files beside a space's file that hold content which is not in it yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLimits:
    """Bounds on the write-ahead log of one file, and on statements."""

    # pages in the write-ahead log before they are moved into the file: 16 MiB, since each move costs two syncs
    checkpoint_pages: int = 4_096
    # bytes that a log may grow to by itself: a space that is hardly used is not made larger
    plain_log_bytes: int = 256 * 1024
    statement_numbers: int = 500  # numbers of documents or nodes in one statement


STORE_LIMITS: Final = StoreLimits()
"""The bounds of the files of a space. They are fixed."""


class Database:
    """The file of one space, open."""

    __slots__ = (
        "_connection",
        "_create",
        "_cursor",
        "_is_doubtful",
        "_is_relaxed",
        "_log",
        "_log_number",
        "_moved",
        "_path",
        "_room",
        "_room_from",
        "_synchronous",
        "_vfs",
        "execute",
        "visited",
    )

    def __init__(
        self,
        path: str,
        *,
        synchronous: Synchronous,
        vfs: str | None,
        create: bool = True,
        room_from: int | None = None,
    ) -> None:
        self._path = path
        self._create = create
        # fault store.never_synced: self._synchronous = "OFF"
        # fault store.synced_at_checkpoints: self._synchronous = "NORMAL"
        self._synchronous = synchronous
        self._vfs = vfs
        self._room_from = STORE_LIMITS.plain_log_bytes if room_from is None and vfs is None else room_from
        self.visited = Visited()
        self._moved = c_int(0)  # SQLite puts its answer here
        self._open()

    # ---- opening ---------------------------------------------------------------------------------

    def _open(self) -> None:
        if self._path != ":memory:" and self._vfs is None:
            if not self._create and not FilePath(self._path).is_file():
                raise StorageError(f"there is no file {self._path}. Nothing was done.")
            check_length(FilePath(self._path))
            if self._create and not FilePath(self._path).exists():
                self._make()
        self._connect()

    def _make(self) -> None:
        """Make a new space under another name first: the file is a whole space from the moment it is there."""
        final, draft = FilePath(self._path), FilePath(f"{self._path}.new")
        for left in (FilePath(f"{final}{suffix}") for suffix in LOGS):
            if left.exists():
                # SQLite would take it for the log of the new file and write its content over the new file.
                raise StorageError(
                    f"{left} is left of a space whose file {final.name} is gone. Put the file back beside it, or "
                    "delete it, and with it the last commits of that space."
                )
        try:
            for suffix in ("", *LOGS):
                FilePath(f"{draft}{suffix}").unlink(missing_ok=True)
            # Values are for the owner of the file alone. SQLite gives the files beside it the same mode.
            # fault store.files_for_all: if False:
            if draft.parent.is_dir():
                os.close(os.open(draft, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
            self._path = str(draft)
            self._connect()
            self.close()
            draft.rename(final)
        except OSError as error:
            raise StorageError(f"cannot make {final}: {error}. Check that the folder exists.") from error
        finally:
            self._path = str(final)

    def _attach(self) -> None:
        """A connection that has the file to itself. It has read the log, and written nothing."""
        if self._vfs is None and FilePath(self._path).is_dir():
            raise NotASpaceError(f"{self._path} is a folder, where the file of a space should be. Move it elsewhere.")
        try:
            self._connection = apsw.Connection(self._path, vfs=self._vfs)
        except apsw.Error as error:
            raise StorageError(f"cannot open {self._path}: {error}. Check that the folder exists.") from error
        # C6: closing moves the log into the file, which must not happen while a sync of it may have failed.
        self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        self._connection.create_scalar_function(SEAL_FUNCTION, row_seal, deterministic=True)
        self._is_doubtful = False
        self._log = self._connection.filename_wal
        self._log_number = 0  # of the file on its disk; 0: nothing was committed yet
        self._cursor = self._connection.cursor()
        self.execute = self._cursor.execute
        try:
            self.run("PRAGMA locking_mode=EXCLUSIVE")  # first: reading in this mode needs no shared memory
            self.number("PRAGMA user_version")  # reading takes the lock
        except BaseException:
            self._discard()
            raise

    def _connect(self) -> None:
        try:
            self._attach()
        except CorruptionError:
            # The file may need a log that was torn while it was written again. No other process has it open: the owner
            # holds a lock, and this process would not have got here.
            if not self._write_log_again(only_if_torn=True):
                raise
            self._attach()
        try:
            # C6: frames in the write-ahead log may never have been synced, and a sync that failed may have left
            # them as if they were: they are made sure of before anything relies on them.
            if self._write_log_again():
                self._discard()  # it has read torn content
                self._attach()
            self._check_header()
            self.run(f"PRAGMA synchronous={self._synchronous}")
            self._is_relaxed = False
            # C6: leaving the mode writes them into the file with a sync, before any of them is answered for.
            # fault store.recovery_not_synced:
            self.run("PRAGMA journal_mode=DELETE")
            self.run("PRAGMA journal_mode=WAL")
            if self._vfs is None:  # a disk of the crash harness has its own, far smaller
                self.run(f"PRAGMA wal_autocheckpoint={STORE_LIMITS.checkpoint_pages}")
            self._room = self._log_room()
            self._make_tables()
        except BaseException:
            self._discard()
            raise

    def _log_room(self) -> WalPreallocation | None:
        """Return the preallocation of the log, or None for a database that does not wait for the disk."""
        if self._room_from is None or self._synchronous != "FULL" or self._path == ":memory:":
            return None
        page_size, pages = self.number("PRAGMA page_size"), self.number("PRAGMA wal_autocheckpoint")
        return WalPreallocation(self._connection, self._vfs, page_size, pages, self._room_from)

    def _write_log_again(self, *, only_if_torn: bool = False) -> bool:
        # fault+ store.recovery_not_synced: return False
        if self._path == ":memory:":
            return False
        try:
            return write_again(self._vfs, self._log, only_if_torn=only_if_torn)
        except apsw.Error as error:
            raise self.failed(error) from error

    def _check_header(self) -> None:
        """Found at open: a file that is not ours, and a newer one. SQLite finds one that lost its end."""
        application = self.number("PRAGMA application_id")
        version = self.number("PRAGMA user_version")
        if application not in (0, APPLICATION_ID, *DRAFT_APPLICATION_IDS) or (
            application == 0 and self.number("SELECT count(*) FROM sqlite_schema")
        ):
            raise NotASpaceError(f"{self._path} is an SQLite file, but not a Headwater space. Choose another file.")
        if application in DRAFT_APPLICATION_IDS:
            raise NotASpaceError(
                f"{self._path} was made by a Headwater from before schema version {SCHEMA_VERSION}, which this one "
                "does not read. Open it with the version that made it, or move it elsewhere. Nothing was done."
            )
        if version < 0 or (application and not version):
            raise CorruptionError(f"{self._path} is damaged: it has schema version {version}. Restore a backup of it.")
        if not version and not self._create:
            raise StorageError(
                f"{self._path} has schema version 0, not {SCHEMA_VERSION}. It is not a space. Nothing was changed."
            )
        if version > SCHEMA_VERSION:
            raise NewerVersionError(
                f"{self._path} has schema version {version}, this Headwater knows versions up to "
                f"{SCHEMA_VERSION}. Upgrade Headwater, or open the file with the version that wrote it."
            )

    def _make_tables(self) -> None:
        """Make the tables of a new file, in one transaction."""
        if self.number("PRAGMA user_version"):
            return
        self.begin()
        self.run(SCHEMA)
        self.run(f"PRAGMA application_id={APPLICATION_ID}")
        self.run(f"PRAGMA user_version={SCHEMA_VERSION}")
        self.commit()

    def reopen(self) -> None:
        """Start over with the content of the disk. A space that was only in memory starts over empty.

        MovedError: another file, or none, is in its place.
        """
        # fault database.moved_file_written: pass
        self._check_place()
        self._check_log()
        self._discard()
        self._create = self._path == ":memory:"  # a file that is gone must not come back empty
        self._open()

    def close(self) -> None:
        # fault+ store.answered_before_commit: if self._connection.in_transaction: self.run("COMMIT")
        try:
            if not self._is_doubtful:
                self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
            self._connection.close()
        except apsw.Error as error:
            raise self.failed(error) from error

    def _discard(self) -> None:
        """Let go of a connection whose state is unknown. Closing may fail for the reason that broke it."""
        try:
            self._connection.close(True)
        except apsw.Error:
            # The disk that failed may fail again here. The file is opened afresh next and judged by its content; this
            # connection's knowledge does not count any more.
            return

    # ---- statements ------------------------------------------------------------------------------

    def failed(self, error: apsw.Error) -> StorageError:
        self._is_doubtful = True
        if isinstance(error, apsw.CorruptError | apsw.NotADBError) or _lacks_table(error):
            return CorruptionError(
                f"{self._path} is damaged: {error}. Run `headwater verify` on a copy, or restore a backup."
            )
        if isinstance(error, apsw.BusyError | apsw.LockedError):
            return StorageError(f"{self._path} is in use by another process: {error}. Stop that process first.")
        if is_disk_full(error, self._connection):
            return StorageError(f"no room left for {self._path}: {error}. Free disk space, then reopen.")
        return StorageError(f"{self._path}: {error}")

    def _no_text(self, error: UnicodeDecodeError) -> CorruptionError:
        return CorruptionError(f"{self._path} holds text that is not UTF-8: {error}. Restore a backup.")

    def run(self, sql: str, values: tuple[Any, ...] = ()) -> None:
        self.visited.statements += 1
        try:
            self.execute(sql, values)
        except apsw.Error as error:
            raise self.failed(error) from error
        except (OverflowError, UnicodeEncodeError) as error:
            raise LimitError(f"a number or a text is too large to be stored: {error}") from error

    def many(self, sql: str, rows: Iterable[tuple[Any, ...]]) -> None:
        self.visited.statements += 1
        try:
            self._cursor.executemany(sql, rows)
        except apsw.Error as error:
            raise self.failed(error) from error
        except (OverflowError, UnicodeEncodeError) as error:
            raise LimitError(f"a number or a text is too large to be stored: {error}") from error

    def all(self, sql: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        visited = self.visited
        visited.statements += 1
        try:
            rows: list[tuple[Any, ...]] = self.execute(sql, values).fetchall()
        except apsw.Error as error:
            raise self.failed(error) from error
        except (OverflowError, UnicodeEncodeError) as error:
            raise LimitError(f"a number or a text is too large to be stored: {error}") from error
        except UnicodeDecodeError as error:
            raise self._no_text(error) from error
        visited.rows += len(rows)
        for row in rows:
            if None in row:  # no column may be empty, so that a torn page is found where it is met
                raise CorruptionError(f"{self._path} has a row with an empty field: {row[:2]}. Restore a backup.")
            last = row[-1]
            if type(last) is bytes:
                visited.bytes += len(last)
        return rows

    def each(self, sql: str, values: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
        """The rows of a whole table, one after the other; on a cursor of its own, since others run meanwhile."""
        self.visited.statements += 1
        try:
            for row in self._connection.execute(sql, values):
                self.visited.rows += 1
                yield row
        except apsw.Error as error:
            raise self.failed(error) from error
        except OverflowError as error:
            raise LimitError(f"a number or a text is too large to be stored: {error}") from error
        except UnicodeDecodeError as error:
            raise self._no_text(error) from error

    def one(self, sql: str, values: tuple[Any, ...] = ()) -> tuple[Any, ...] | None:
        rows = self.all(sql, values)
        return rows[0] if rows else None

    def number(self, sql: str, values: tuple[Any, ...] = ()) -> int:
        """The one number that a statement gives; 0 for the largest of nothing."""
        self.visited.statements += 1
        try:
            number = self.execute(sql, values).get
        except apsw.Error as error:
            raise self.failed(error) from error
        return int(number) if number is not None else 0

    # ---- transactions ----------------------------------------------------------------------------

    def begin(self, *, synced: bool = True) -> None:
        """Begin a transaction. Not `synced`: it is durable with the next synced transaction, in its order."""
        # fault+ store.answered_before_commit: if self._connection.in_transaction: self.run("COMMIT")
        if synced is self._is_relaxed and self._synchronous == "FULL":
            self.run(f"PRAGMA synchronous={'FULL' if synced else 'NORMAL'}")
            self._is_relaxed = not synced
        self.run("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """Commit the open transaction. It is on the disk when this returns."""
        # fault+ store.answered_before_commit: return
        self.run("COMMIT")
        # fault database.moved_file_written: pass
        self._check_place()
        self._check_log()
        if self._room is not None and not self._room.after_commit():
            self._room = None

    def _check_place(self) -> None:
        """C6: a commit in a file that was moved, deleted or replaced is lost at the next start: it is no success."""
        if self._vfs is None and self._path != ":memory:":
            moved = self._moved
            if not moved.value:
                self._connection.file_control("main", apsw.SQLITE_FCNTL_HAS_MOVED, addressof(moved))
            if moved.value:
                self._is_doubtful = True
                raise self._moved_away(self._path)

    def _check_log(self) -> None:
        """C6: a commit in a log that was deleted or replaced is lost, with all since the last checkpoint."""
        if self._vfs is not None or self._path == ":memory:":
            return
        try:
            number = os.stat(self._log).st_ino
        except FileNotFoundError:
            number = 0
        if not self._log_number:
            self._log_number = number
        # fault database.deleted_log_written: if False:
        if number != self._log_number or not number:
            self._is_doubtful = True
            raise self._moved_away(self._log)

    def _moved_away(self, file: str) -> MovedError:
        return MovedError(
            f"{file} was moved, deleted or replaced while this process used it. Nothing more is stored there. Stop the "
            "process, put the file back, and start again."
        )

    def rollback(self) -> None:
        if self._connection.in_transaction:
            self.run("ROLLBACK")

    # The next two are once per commit, so they do without the call to `run`.

    def savepoint(self) -> None:
        self.visited.statements += 1
        try:
            self.execute("SAVEPOINT one")
        except apsw.Error as error:
            raise self.failed(error) from error

    def release(self) -> None:
        self.visited.statements += 1
        try:
            self.execute("RELEASE one")
        except apsw.Error as error:
            raise self.failed(error) from error

    def rollback_to_savepoint(self) -> None:
        self.run("ROLLBACK TO one")
        self.run("RELEASE one")

    def copy(self, other: Database) -> None:
        """Replace all content by that of another database, in one transaction."""
        try:
            with self._connection.backup("main", other._connection, "main") as backup:
                while not backup.done:
                    backup.step()
        except apsw.Error as error:
            raise self.failed(error) from error

    def schema(self) -> dict[str, str]:
        """The statements that made its tables and indexes, by name. Those that SQLite makes itself have none."""
        rows = self.all("SELECT type || ' ' || name, coalesce(sql, '') FROM sqlite_schema")
        return {name: " ".join(sql.split()) for name, sql in rows}

    def check_schema(self) -> None:
        """A table, an index or a trigger that was added, changed or dropped outside is a CorruptionError."""
        new = Database(":memory:", synchronous="OFF", vfs=None)
        try:
            expected, found = new.schema(), self.schema()
        finally:
            new.close()
        strange = sorted(name for name in {*expected, *found} if expected.get(name) != found.get(name))
        if strange:
            raise CorruptionError(
                f"the schema is not the one of its version: {', '.join(strange)} was added, changed or dropped. "
                "Restore a backup."
            )

    @property
    def changes(self) -> int:
        """Rows that the last statement changed."""
        return self._connection.changes()


def _lacks_table(error: apsw.Error) -> bool:
    """Whether a statement found other tables than a space has. Every statement is the store's own."""
    return isinstance(error, apsw.SQLError) and str(error).startswith("no such table")


def is_disk_full(error: apsw.Error, connection: apsw.Connection) -> bool:
    """Whether a statement failed for want of room. For its log and its index SQLite calls that an I/O error."""
    if isinstance(error, apsw.FullError):
        return True
    try:
        # fault database.full_disk_is_damage: return False
        return isinstance(error, apsw.IOError) and connection.system_errno in (ENOSPC, EDQUOT, EFBIG)
    except apsw.ConnectionClosedError:
        return False  # It failed while it was closed, and cannot be asked any more.


def check_length(file: FilePath) -> None:
    """Raise for a file that lost its end, before opening: SQLite would take the rest for the whole file."""
    header = b""
    if file.is_file():
        with file.open("rb") as opened:
            header = opened.read(100)
    wal = FilePath(f"{file}-wal")
    if file.is_file() and not header and not wal.exists():
        raise CorruptionError(
            f"{file} is empty, although a space's file never is. Restore it from a backup, or delete it if the "
            "space was never used."
        )
    if len(header) < 100 or not header.startswith(b"SQLite format 3") or (wal.exists() and wal.stat().st_size):
        return  # new, not ours to judge, or still to be completed from its write-ahead log
    stored = int.from_bytes(header[16:18], "big")
    page_size = 65_536 if stored == 1 else stored
    pages, size = int.from_bytes(header[28:32], "big"), file.stat().st_size
    if size < pages * page_size:
        raise CorruptionError(
            f"{file} is {size} bytes long but its header counts {pages} pages of {page_size}: "
            "the file was cut off. Restore it from a backup."
        )
