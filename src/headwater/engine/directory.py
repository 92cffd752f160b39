"""The data directory: one SQLite file per space, one owner process. A space's first commit makes its file.

The owner holds a lock on `owner.lock` for as long as it runs; the operating system releases the lock when the process
dies, however it dies. A second process gets an error that names the owner and says how to go on.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path as FilePath
from typing import Final

from headwater.clock import Clock, RealClock
from headwater.data.address import check_space, is_space_name
from headwater.engine.admission.access import ANYONE, Founders
from headwater.engine.engine import Engine
from headwater.engine.limits import DEFAULT_LIMITS, Limits
from headwater.engine.store.database import Synchronous
from headwater.engine.store.lazy_file import LazyFileStore
from headwater.errors import DirectoryInUseError, MovedError, StorageError

LOCK_FILE: Final = "owner.lock"
SUFFIX: Final = ".space"


class Directory:
    """Owns a directory of spaces until it is closed. Use it as a context manager."""

    __slots__ = ("_access", "_clock", "_engines", "_founders", "_limits", "_lock", "_path", "_synchronous", "life")

    def __init__(
        self,
        path: str | FilePath,
        *,
        clock: Clock | None = None,
        limits: Limits = DEFAULT_LIMITS,
        synchronous: Synchronous = "FULL",
        access: bool = False,
        founders: Founders = ANYONE,
    ) -> None:
        self._path = FilePath(path)
        self._clock = clock
        self._limits = limits
        self._synchronous: Synchronous = synchronous
        self._access = access
        self._founders = founders
        self._engines: dict[str, Engine] = {}
        try:
            self._path.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = os.open(self._path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StorageError(f"{self._path} cannot be a data directory: {error}") from error
        self._own()
        self.life = (clock or RealClock()).new_token(8)  # names this owner in leases and claims

    def _own(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(self._lock, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(self._lock)
            raise DirectoryInUseError(
                f"{self._path} is owned by process {owner}. Stop that process, or, if it serves the directory, "
                "connect to it with headwater.connect."
            ) from None
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)

    def __enter__(self) -> Directory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def check(self) -> None:
        """MovedError: another directory, or none, is where this one was locked. A file made there would be lost."""
        try:
            there, held = os.stat(self._path / LOCK_FILE), os.fstat(self._lock)
        except FileNotFoundError:
            is_there = False
        else:
            is_there = os.path.samestat(there, held)
        # fault directory.moved_directory_used: if False:
        if not is_there:
            raise MovedError(
                f"the data directory {self._path} was moved, deleted or replaced while this process used it. Nothing "
                "more is stored there. Stop the process, put the directory back, and start again."
            )

    def file_of(self, space: str) -> FilePath:
        check_space(space)
        return self._path / f"{space}{SUFFIX}"

    def open_engine(self, space: str) -> Engine:
        """Return a new engine of a space, to be closed by the caller."""
        self.check()
        store = LazyFileStore(self.file_of(space), synchronous=self._synchronous, check=self.check)
        try:
            engine = Engine(store, clock=self._clock, limits=self._limits, access=self._access, founders=self._founders)
            # The lock is held here, so every former owner of the directory is dead.
            # fault directory.leases_of_dead_owners_kept: pass
            engine.end_leases_of_former_owners(self.life)
        except BaseException:
            store.close()
            raise
        return engine

    def space(self, name: str) -> Engine:
        """The engine of a space, opened on first use. A new space has no file before its first commit."""
        if self._lock < 0:
            raise StorageError(f"{self._path} was closed here. Open the directory again.")
        engine = self._engines.get(name)
        if engine is None:
            engine = self._engines[name] = self.open_engine(name)
        return engine

    def spaces(self) -> list[str]:
        """The spaces that have a file here. Other files, and names that no space can have, are none."""
        files = [file for file in self._path.glob(f"*{SUFFIX}") if file.is_file()]
        return sorted(file.stem for file in files if is_space_name(file.stem))

    def close(self) -> None:
        """Close every space and let the directory go. Closing again does nothing."""
        if self._lock < 0:
            return
        errors = []
        for engine in self._engines.values():
            try:
                engine.close()
            except StorageError as error:
                errors.append(error)
        self._engines.clear()
        os.close(self._lock)
        self._lock = -1
        if errors:
            raise errors[0]
