"""The outbox of a client: a file on its own machine with all events that it sent and that have no outcome yet.

An event is in the outbox before anything else happens to it, and leaves it with its outcome. At its next start a
program sends the remaining events again, under the same ids, so that receipts prevent a second handling. One program at
a time has the file open. The outbox decides nothing.
"""

from __future__ import annotations

from typing import Any, Final

import apsw
import msgspec

from headwater.data.codec import enc_hook, ext_hook
from headwater.errors import DirectoryInUseError, LimitError, NewerVersionError, StorageError
from headwater.protocol.commit import SentEvent

__all__ = ["Outbox"]

APPLICATION_ID: Final = 0x48574F42  # "HWOB"
VERSION: Final = 1
_SCHEMA: Final = """
    CREATE TABLE sent (place INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, space TEXT NOT NULL, event BLOB NOT NULL)
"""
_encoder = msgspec.msgpack.Encoder(enc_hook=enc_hook)
_decoder = msgspec.msgpack.Decoder(SentEvent, ext_hook=ext_hook)


class Outbox:
    """The events without an outcome that one program sent, in a file."""

    __slots__ = ("_connection", "_count", "_most", "_path")

    def __init__(self, path: str, most: int = 100_000) -> None:
        """`most`: how many sends it holds. A further one is refused."""
        self._path = path
        self._most = most
        try:
            self._connection = apsw.Connection(path)
            self._connection.execute("PRAGMA locking_mode=EXCLUSIVE")
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute("PRAGMA synchronous=FULL")
            self._open()
            self._count: int = self._connection.execute("SELECT count(*) FROM sent").get
        except apsw.BusyError as error:
            raise DirectoryInUseError(
                f"another program has the outbox {path}: use another file for this one"
            ) from error
        except apsw.Error as error:
            raise self._failed(error) from error

    def _open(self) -> None:
        connection = self._connection
        application = connection.pragma("application_id")
        version = connection.pragma("user_version")
        if not application and not version and not connection.execute("SELECT count(*) FROM sqlite_schema").get:
            with connection:
                connection.execute(_SCHEMA)
                connection.pragma("application_id", APPLICATION_ID)
                connection.pragma("user_version", VERSION)
        elif application != APPLICATION_ID:
            raise StorageError(f"{self._path} is not an outbox: name a file that nothing else uses")
        elif version > VERSION:
            raise NewerVersionError(f"the outbox {self._path} was written by a newer version of Headwater")

    def _failed(self, error: apsw.Error) -> StorageError:
        return StorageError(f"the outbox {self._path} failed: {error}. Events sent now would not be kept.")

    def __len__(self) -> int:
        return self._count

    def put(self, space: str, event: SentEvent) -> None:
        """Store an event. It is on the disk when this returns. An event that is stored already keeps its place."""
        # fault+ outbox.nothing_kept: return
        if self._count >= self._most:
            raise LimitError(f"the outbox {self._path} holds {self._count} sends without an end: wait for a connection")
        try:
            self._connection.execute(
                "INSERT OR IGNORE INTO sent (id, space, event) VALUES (?, ?, ?)",
                (event.id, space, _encoder.encode(event)),
            )
            self._count += self._connection.changes()
        except apsw.Error as error:
            raise self._failed(error) from error

    def remove(self, id: str) -> None:
        """Remove an event that has an outcome."""
        try:
            self._connection.execute("DELETE FROM sent WHERE id=?", (id,))
            self._count -= self._connection.changes()
        except apsw.Error as error:
            raise self._failed(error) from error

    def rows(self) -> list[tuple[str, SentEvent]]:
        """Return the events that an earlier process left, in send order."""
        try:
            found: list[Any] = self._connection.execute("SELECT space, event FROM sent ORDER BY place").fetchall()
            return [(space, _decoder.decode(event)) for space, event in found]
        except apsw.Error as error:
            raise self._failed(error) from error
        except msgspec.MsgspecError as error:
            raise StorageError(f"the outbox {self._path} is damaged: {error}. Move it away and look inside.") from error

    def close(self) -> None:
        self._connection.close()
