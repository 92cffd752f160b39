"""A space that may not exist yet: its file is made by the first commit, not by the first reader.

Until then everything is in memory: the sessions, and an empty space. Content that must survive (a commit, a branch, a
reader in another space) makes the file and moves the memory into it, in one transaction and before any answer. Nothing
else about a store changes here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path as FilePath

from headwater.engine.store.database import Database, Synchronous
from headwater.engine.store.port import BranchRow, LogRow
from headwater.engine.store.sqlite import SqliteStore

MEMORY = ":memory:"


class LazyFileStore(SqliteStore):
    """One space in one SQLite file, which is there from the first commit on."""

    __slots__ = ("_check", "_is_needed", "_path", "_root", "_synchronous")

    def __init__(
        self,
        path: str | FilePath,
        *,
        synchronous: Synchronous = "FULL",
        check: Callable[[], object] = bool,
    ) -> None:
        """`check` raises if a file must not be made any more, because its directory is another one now."""
        self._check = check
        self._synchronous: Synchronous = synchronous
        self._is_needed = False  # the open transaction has something that must survive
        self._root: BranchRow | None = None  # the branch that a new space begins with
        self._path: FilePath | None = FilePath(path)  # where the file will be; None: it is there
        if self._path.exists():
            self._path = None
        super().__init__(path if self._path is None else MEMORY, synchronous=synchronous)

    # ---- what makes the file -----------------------------------------------------------------------

    def append(self, row: LogRow) -> None:
        super().append(row)
        self._is_needed = True

    def put_branch(self, row: BranchRow) -> None:
        super().put_branch(row)
        if row.parent:
            self._is_needed = True
        else:
            self._root = row

    def commit(self) -> None:
        super().commit()
        if self._path is not None and self._is_needed:
            self._move(self._path)
        self._is_needed = False

    def _move(self, path: FilePath) -> None:
        """C6: everything committed in memory is on the disk when this returns; if it fails, `reopen` decides."""
        self._check()
        memory = self._db
        file = Database(str(path), synchronous=self._synchronous, vfs=None)
        try:
            file.copy(memory)
        except BaseException:
            file.close()
            raise
        file.visited = memory.visited
        self._db, self._path = file, None
        memory.close()

    def rollback(self) -> None:
        super().rollback()
        self._is_needed = False

    def reopen(self) -> None:
        """Start over with the content of the disk: the file, if it was made, or an empty space."""
        self._is_needed = False
        if self._path is not None and self._path.exists():
            self._db.close()
            self._db = Database(str(self._path), synchronous=self._synchronous, vfs=None)
            self._path = None
        else:
            super().reopen()
        if self._root is not None and not self.branches():
            self.begin()
            self.put_branch(self._root)
            self.commit()
