"""Making sure of a write-ahead log that was found: the same bytes are written again and synced before it is relied on.

After a sync that failed, a system may take the pages for clean: reads see them, and no later sync writes them. Moving
them into the file would then overwrite it in place with a log behind it that is not on the disk, and if the power
failed in the middle nothing could mend it. Written again, the pages are dirty, and the sync that follows is one.

Bytes that are written again may be torn, although they were safe before. So a copy of the log is made first, in a file
of its own, and whoever finds a copy beside a log that differs from it was interrupted by a power failure and writes it
back. Knows nothing of what is in the log but its first 32 bytes. Whoever calls holds the lock of the space's file.
"""

from __future__ import annotations

from struct import Struct, unpack
from typing import Final
from zlib import crc32

import apsw

COPY: Final = "-copy"
_HEADER: Final = 32  # bytes of a log before its first frame
_TRAILER: Final = Struct("<4sQI")  # of a copy: whose it is, the length and the checksum of what is before it
_MARK: Final = b"HWLC"
_CHUNK: Final = 64 * 1024  # SQLite cuts what is written at once to 17 bits, and takes nothing for a full disk
_OPEN: Final = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_WAL  # a new one is synced together with its folder


def write_again(vfs: str | None, log: str, *, only_if_torn: bool = False) -> bool:
    """Write a log that is there once more, and sync it. True: it was torn, and is whole again. Raises apsw.Error."""
    files = apsw.VFS(f"headwater-log-{vfs}-{log}", base=vfs or "")
    try:
        return _Rewriting(files, vfs or "", log).run(only_if_torn)
    finally:
        files.unregister()


class _Rewriting:
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
                self._drop_copy()  # Of what is there by now, nobody knows whether it was synced.
                self._make_copy(log, size)
                self._write_back(log)
        finally:
            log.xClose()
        self._drop_copy()
        return is_torn

    def _was_interrupted(self, log: apsw.VFSFile, size: int) -> bool:
        """Whether there is a whole copy of this very log, and the log is not what it was."""
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
