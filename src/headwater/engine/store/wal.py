"""The write-ahead log of a space's file: `WalPreallocation` makes it longer ahead of time, `write_again` makes a log
durable that was found at open.

Preallocation. Syncing a file that has grown also syncs its new length and blocks, which nearly doubles the cost of a
commit. SQLite writes a log from its beginning again once it was moved into the space's file, so that only the first
pass grows it; that pass gets room by writing zeros, in a few steps that double, and never more than one pass needs.
Zeros at the end of a log are no frames: readers stop there, as at the torn end of a crash. Nothing is synced here,
since the next commit's sync covers it. Never writes before the end of the file.

Writing again. After a failed sync, a system may take the pages for clean: reads see them, and no later sync writes
them. Moving them into the file would then overwrite it in place without a durable log behind it, and a power failure in
the middle could not be repaired. So the same bytes are written again and synced before the log is relied on. Written
again, bytes may be torn, although they were safe before: a copy of the log is made first, in a file of its own, and a
process that finds a copy beside a log that differs from it writes the copy back. Knows nothing of a log but its first
32 bytes. The caller holds the lock of the space's file.
"""

from __future__ import annotations

from struct import Struct, unpack
from typing import Final
from zlib import crc32

import apsw

_HEADER: Final = 32  # bytes of a log before its first frame
_FRAME: Final = 24  # before the page in each frame
_CHUNK: Final = 64 * 1024  # SQLite limits one write to 17 bits and reports a full disk as success
_OPEN: Final = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_WAL  # a new file is synced together with its folder


class WalPreallocation:
    """Makes the log of one connection longer, in steps, up to the length of one pass."""

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
        """Make room for the next commits. False: there is enough for ever, or the disk gives none."""
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


COPY: Final = "-copy"
_TRAILER: Final = Struct("<4sQI")  # of a copy: a mark, the length and the checksum of the bytes before it
_MARK: Final = b"HWLC"


def write_again(vfs: str | None, log: str, *, only_if_torn: bool = False) -> bool:
    """Write a log that is there once more, and sync it. True: it was torn, and is whole again. Raises apsw.Error."""
    files = apsw.VFS(f"headwater-log-{vfs}-{log}", base=vfs or "")
    try:
        return _WalResync(files, vfs or "", log).run(only_if_torn)
    finally:
        files.unregister()


class _WalResync:
    """One log, and its copy beside it."""

    __slots__ = ("_copy", "_files", "_log", "_vfs")

    def __init__(self, files: apsw.VFS, vfs: str, log: str) -> None:
        self._files = files
        self._vfs = vfs
        self._log = log
        self._copy = log + COPY

    def run(self, only_if_torn: bool) -> bool:
        if not self._is_there(self._log):
            self._drop_copy()
            return False
        log = self._opened(self._log, _OPEN)
        try:
            size = log.xFileSize()
            is_torn = self._was_interrupted(log, size)
            if is_torn:
                self._write_back(log)
            elif only_if_torn:
                return False
            elif size > _HEADER:
                self._drop_copy()  # It is not known whether the log was synced.
                self._make_copy(log, size)
                self._write_back(log)
        finally:
            log.xClose()
        self._drop_copy()
        return is_torn

    def _was_interrupted(self, log: apsw.VFSFile, size: int) -> bool:
        """True if there is a whole copy of this very log, and the log differs from it."""
        if not size or not self._is_there(self._copy):
            return False
        copy = self._opened(self._copy, _OPEN)
        try:
            length = copy.xFileSize() - _TRAILER.size
            if length <= _HEADER or size > length:
                return False
            trailer = copy.xRead(_TRAILER.size, length)
            checksum = _checksum(copy, length)
            if trailer != _TRAILER.pack(_MARK, length, checksum):
                return False
            header = log.xRead(min(_HEADER, size), 0)
            is_of_another = header != copy.xRead(_HEADER, 0) and _is_header(header)
            return not is_of_another and (size != length or _checksum(log, size) != checksum)
        finally:
            copy.xClose()

    def _make_copy(self, log: apsw.VFSFile, size: int) -> None:
        copy = self._opened(self._copy, _OPEN | apsw.SQLITE_OPEN_CREATE)
        try:
            _write(log, copy, size)
            copy.xWrite(_TRAILER.pack(_MARK, size, _checksum(log, size)), size)
            copy.xSync(apsw.SQLITE_SYNC_FULL)
        finally:
            copy.xClose()

    def _write_back(self, log: apsw.VFSFile) -> None:
        copy = self._opened(self._copy, _OPEN)
        try:
            _write(copy, log, copy.xFileSize() - _TRAILER.size)
            log.xSync(apsw.SQLITE_SYNC_FULL)
        finally:
            copy.xClose()

    def _drop_copy(self) -> None:
        if self._is_there(self._copy):
            self._files.xDelete(self._copy, True)

    def _is_there(self, path: str) -> bool:
        return self._files.xAccess(path, apsw.SQLITE_ACCESS_EXISTS)

    def _opened(self, path: str, flags: int) -> apsw.VFSFile:
        return apsw.VFSFile(self._vfs, path, [flags, 0])


def _write(source: apsw.VFSFile, target: apsw.VFSFile, size: int) -> None:
    for offset in range(0, size, _CHUNK):
        target.xWrite(source.xRead(min(_CHUNK, size - offset), offset), offset)


def _checksum(file: apsw.VFSFile, size: int) -> int:
    checksum = 0
    for offset in range(0, size, _CHUNK):
        checksum = crc32(file.xRead(min(_CHUNK, size - offset), offset), checksum)
    return checksum


def _is_header(header: bytes) -> bool:
    """Whether this is the whole beginning of some log: it ends with a checksum of its own."""
    if len(header) < _HEADER:
        return False
    numbers = unpack(">6I" if header[3] & 1 else "<6I", header[:24])
    first = second = 0
    for place in range(0, 6, 2):
        first = (first + numbers[place] + second) & 0xFFFFFFFF
        second = (second + numbers[place + 1] + first) & 0xFFFFFFFF
    return unpack(">2I", header[24:]) == (first, second)
