"""Room for the write-ahead log: it is made longer ahead of time, so that a commit overwrites what the file has already.

Syncing a file that has grown syncs its new length and its new blocks, too, which nearly doubles what a commit costs.
SQLite writes a log from its beginning again once it was moved into the space's file, so that only its first pass grows
it; here that pass is given room by writing zeros, in a few steps that double, and never more than one pass needs.

Zeros at the end of a log are no frames: whoever reads it stops there, as at the torn end of a crash. Nothing is synced
here, since the next commit's sync covers it and nothing relies on it. Never writes before the end of the file.
"""

from __future__ import annotations

from typing import Final

import apsw

FIRST: Final = 256 * 1024
"""Bytes that a log may grow to by itself: a space that is hardly used is not made larger."""

_HEADER: Final = 32
_FRAME: Final = 24  # before the page in each frame
_CHUNK: Final = 64 * 1024  # SQLite cuts what is written at once to 17 bits
_OPEN: Final = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_WAL


class LogRoom:
    """Makes the log of one connection longer, in steps, up to what it takes until it is written from its beginning."""

    __slots__ = ("_connection", "_frame", "_most", "_path", "_vfs", "_written", "ends")

    def __init__(self, connection: apsw.Connection, vfs: str | None, page_size: int, pages: int, first: int) -> None:
        self._connection = connection
        self._path = connection.filename_wal
        self._vfs = vfs or ""
        self._frame = _FRAME + page_size
        self._written = self._pages_written()  # before the log was begun
        self._most = _HEADER + self._frame * (pages + pages // 8)  # the last commit before it is moved passes the line
        self.ends = min(first, self._most)  # frames up to here have room, or find it by themselves

    def after_commit(self) -> bool:
        """Make room for what comes next. False: there is enough for ever, or the disk gives none."""
        used = _HEADER + self._frame * (self._pages_written() - self._written)
        if used + self.ends // 8 < self.ends:
            return True
        try:
            self._extend(min(2 * max(used, self.ends), self._most))
        except apsw.Error:
            # A disk that has no room to spare, or fails: the log grows by itself as before, and the commit that
            # meets the same trouble says so.
            return False
        return self.ends < self._most

    def _pages_written(self) -> int:
        return self._connection.status(apsw.SQLITE_DBSTATUS_CACHE_WRITE)[0]

    def _extend(self, end: int) -> None:
        log = apsw.VFSFile(self._vfs, self._path, [_OPEN, 0])
        try:
            at = log.xFileSize()
            while at < end:
                size = min(_CHUNK, end - at)
                log.xWrite(bytes(size), at)
                at += size
            self.ends = end
        finally:
            log.xClose()
