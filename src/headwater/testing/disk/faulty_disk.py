"""A disk in memory that SQLite can use and a test can break: an apsw VFS over `model`.

Its faults: a crash before or after the n-th operation, an I/O error, a full disk, a sync that fails with its data on
the platter or without. Open a store on it with `SqliteStore("shop.space", vfs=disk.vfs)`; it needs exclusive locking,
as there is no shared memory. The same calls with the same seeded source give the same disk.

Handles of a process that was killed, or of a machine that lost power, stay usable and change nothing but their own
copy, so that the rest of a dead engine can be closed. Temporary files never fail and survive nothing.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Final, cast

import apsw

from headwater.clock import Random
from headwater.testing.disk.model import SECTOR_BYTES, DiskFile, DiskOp, Image, Loss, OpKind, Platter

ALL_KINDS: Final = frozenset(OpKind)
FOR_GOOD: Final = 1 << 62


class Mode(enum.Enum):
    """How an operation goes wrong."""

    CRASH_BEFORE = "crash before"  # the power fails, and the operation did not happen
    CRASH_AFTER = "crash after"  # the power fails, and the operation reached the cache (a sync: the platter)
    IO_ERROR = "I/O error"  # nothing happened; the data of a failed sync stays pending
    FULL = "disk full"
    SYNC_DONE = "sync done, reported as failed"
    SYNC_LOST = "sync failed, its pages taken for clean"  # reads still see them, no later sync writes them
    READ_ERROR = "read error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """From the `at`-th operation of these kinds on, so many of them go wrong, until the disk is healed."""

    mode: Mode
    at: int = 1
    kinds: frozenset[OpKind] = ALL_KINDS  # READ_ERROR counts reads instead
    times: int = 1

    def __str__(self) -> str:
        kinds = "" if self.kinds == ALL_KINDS else f" {'/'.join(sorted(kind.value for kind in self.kinds))}"
        return f"{self.mode.value} at{kinds} operation {self.at}, {self.times} times"


class FaultyDisk(apsw.VFS):
    """One disk. `on_op` hears of every operation after it happened; crashes and failures are not operations."""

    def __init__(
        self,
        label: str = "faulty-disk",
        *,
        on_op: Callable[[DiskOp], None] | None = None,
        sector_garbled: bool = False,
    ) -> None:
        # The name is for the whole process, and a second disk of the same name would take its place.
        self.vfs = f"{label}-{id(self):x}"
        super().__init__(self.vfs, base="")
        self.operations = 0
        self.reads = 0
        self.failed = 0  # operations and reads that a fault hit
        self.on_op = on_op
        self._sector_garbled = sector_garbled
        self._boots = 0
        self._off = False
        self._fault: Fault | None = None
        self._left = 0
        self._platter = Platter(sector_garbled=sector_garbled)

    # ---- for tests ----------------------------------------------------------------------------------------------

    @property
    def is_off(self) -> bool:
        """The power failed. Every operation raises until `reboot` or `load`."""
        return self._off

    def arm(self, fault: Fault) -> None:
        """Let it happen. One fault at a time: a new one replaces the last."""
        self._fault, self._left = fault, fault.at

    def heal(self) -> None:
        """End all faults. Lost data stays lost."""
        self._fault = None

    def kill_process(self) -> None:
        """Drop every handle while the machine runs on: writes are seen, and synced or not as before."""
        self._boot(self._platter.copy())

    def reboot(self, loss: Loss, random: Random) -> None:
        """The power failed, or fails now, and is back."""
        self.load(self._platter.after_crash(loss, random))

    def load(self, content: Image | Platter) -> None:
        """Replace the content: by an image that is durable, or by a platter with its pending writes."""
        fresh = content if isinstance(content, Platter) else Platter(content, sector_garbled=self._sector_garbled)
        self._boot(fresh)

    def image(self) -> dict[str, bytes]:
        """Return the content that a reader sees now."""
        return self._platter.visible()

    def platter(self) -> Platter:
        """A copy of all there is, durable and pending."""
        return self._platter.copy()

    def _boot(self, platter: Platter) -> None:
        self._platter = platter
        self._boots += 1
        self._off = False
        self._fault = None

    # ---- faults ---------------------------------------------------------------------------------------------

    def _is_hit(self, kind: OpKind | None) -> Fault | None:
        """The fault that this operation (None: a read) meets, if it meets one."""
        if self._off:
            raise apsw.IOError("the machine is off")
        fault = self._fault
        if fault is None:
            return None
        if kind is None:
            if fault.mode is not Mode.READ_ERROR:
                return None
        elif fault.mode is Mode.READ_ERROR or kind not in fault.kinds:
            return None
        self._left -= 1
        if self._left > 0:
            return None
        if self._left <= 1 - fault.times:
            self._fault = None
        self.failed += 1
        return fault

    def perform(self, op: DiskOp) -> None:
        """For the handles of this disk: do one operation, or fail as armed."""
        fault = self._is_hit(op.kind)
        if fault is None:
            self._done(op)
            return
        mode = fault.mode
        if mode in (Mode.CRASH_AFTER, Mode.SYNC_DONE):
            self._done(op)
        elif mode is Mode.SYNC_LOST and op.kind is OpKind.SYNC:
            self._platter.forget_pending(op.file)
        if mode in (Mode.CRASH_BEFORE, Mode.CRASH_AFTER):
            self._off = True
        if mode is Mode.FULL:
            raise apsw.FullError(f"{op.kind.value} of {op.file}: no space left")
        raise apsw.IOError(f"{op.kind.value} of {op.file}: {mode.value}")

    def _done(self, op: DiskOp) -> None:
        self._platter.apply(op)
        self.operations += 1
        if self.on_op is not None:
            self.on_op(op)

    def reading(self, name: str) -> None:
        """For the handles of this disk: a read is about to happen."""
        self.reads += 1
        if self._is_hit(None) is not None:
            raise apsw.IOError(f"read of {name}: {Mode.READ_ERROR.value}")

    def is_current(self, name: str, file: DiskFile) -> bool:
        """Whether operations on this file still reach this disk."""
        return self._platter.find(name) is file

    # ---- the VFS --------------------------------------------------------------------------------------------

    def xFullPathname(self, name: str) -> str:
        # The boot it was opened in is part of every path that a connection uses later on: a connection from
        # before a crash must not delete the files from after it when it is closed.
        return f"/{self._boots}/{name.rpartition('/')[2]}"

    def _own(self, path: str) -> str | None:
        """The file's name, or None for a path from before the last boot."""
        _, boot, name = path.split("/", 2)
        return name if int(boot) == self._boots else None

    def xOpen(self, path: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        flags[1] = flags[0]
        name = None if path is None else self._own(path if isinstance(path, str) else path.filename())
        if name is None:  # A temporary file, or one of a connection from before the last boot: private.
            return cast(apsw.VFSFile, _Handle(self, "", DiskFile()))
        if self._platter.find(name) is None and flags[0] & apsw.SQLITE_OPEN_CREATE:
            self.perform(DiskOp(kind=OpKind.CREATE, file=name))
        file = self._platter.find(name)
        if file is None:
            raise apsw.CantOpenError(f"{name} cannot be opened")
        return cast(apsw.VFSFile, _Handle(self, name, file))  # apsw asks for the methods, not for the class

    def xDelete(self, path: str, syncdir: bool) -> None:
        name = self._own(path)
        if name is not None:
            self.perform(DiskOp(kind=OpKind.DELETE, file=name, directory_synced=syncdir))

    def xAccess(self, path: str, flags: int) -> bool:
        name = self._own(path)
        return name is not None and self._platter.find(name) is not None

    def excepthook(
        self,
        etype: type[BaseException] | None,
        evalue: BaseException | None,
        etraceback: TracebackType | None,
    ) -> bool:
        return _was_arranged(evalue)

    @property
    def device_characteristics(self) -> int:
        return 0 if self._sector_garbled else apsw.SQLITE_IOCAP_POWERSAFE_OVERWRITE


class _Handle:
    """One open file of one connection."""

    __slots__ = ("_disk", "_file", "_name")

    def __init__(self, disk: FaultyDisk, name: str, file: DiskFile) -> None:
        self._disk = disk
        self._name = name
        self._file = file

    def xRead(self, amount: int, offset: int) -> bytes:
        if self._disk.is_current(self._name, self._file):
            self._disk.reading(self._name)
        return bytes(self._file.cached[offset : offset + amount])

    def xWrite(self, data: bytes, offset: int) -> None:
        self._perform(DiskOp(kind=OpKind.WRITE, file=self._name, offset=offset, data=bytes(data)))

    def xTruncate(self, size: int) -> None:
        self._perform(DiskOp(kind=OpKind.TRUNCATE, file=self._name, size=size))

    def xSync(self, flags: int) -> None:
        self._perform(DiskOp(kind=OpKind.SYNC, file=self._name))

    def _perform(self, op: DiskOp) -> None:
        if self._disk.is_current(self._name, self._file):
            self._disk.perform(op)
        elif op.kind is not OpKind.SYNC:
            self._file.change(op)

    def xFileSize(self) -> int:
        return len(self._file.cached)

    def xSectorSize(self) -> int:
        return SECTOR_BYTES

    def xDeviceCharacteristics(self) -> int:
        return self._disk.device_characteristics

    def xFileControl(self, op: int, ptr: int) -> bool:
        return False

    def xCheckReservedLock(self) -> bool:
        return False

    def excepthook(
        self,
        etype: type[BaseException] | None,
        evalue: BaseException | None,
        etraceback: TracebackType | None,
    ) -> bool:
        return _was_arranged(evalue)

    # One connection at a time: the directory's owner has seen to that.
    def xLock(self, level: int) -> None: ...
    def xUnlock(self, level: int) -> None: ...
    def xClose(self) -> None: ...


def _was_arranged(error: BaseException | None) -> bool:
    """True: nothing to report. SQLite goes on after some errors, as it does with any disk; apsw then asks here.

    An arranged fault is an apsw.Error. Anything else is a mistake in this module, and is to be seen.
    """
    return isinstance(error, apsw.Error)


@contextmanager
def arranged_faults_unreported() -> Iterator[None]:
    """Keep arranged faults from the hook for uncatchable exceptions, which is not a place for them.

    apsw calls that hook, too, where SQLite goes on after a failure of the disk.
    """
    report = sys.unraisablehook

    def report_others(unraisable: sys.UnraisableHookArgs) -> None:
        # fault disk.arranged_faults_reported: if True:
        if not _was_arranged(unraisable.exc_value):
            report(unraisable)

    sys.unraisablehook = report_others
    try:
        yield
    finally:
        sys.unraisablehook = report
