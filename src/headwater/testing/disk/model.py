"""A disk with a volatile cache, as plain data: the platter, the cache, and the content after a crash.

A write or truncation reaches the cache; a sync brings the pending data of the file to the platter; names are made
durable apart from content; a crash keeps a part of the rest, by `Loss`, in pieces of a sector, drawn from a seeded
source. The model knows nothing of SQLite, never fails by itself, and records nothing.

Invariant: `apply` is the only way to change a platter, so that replaying recorded operations on a fresh one gives the
same platter as the run that recorded them.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias, assert_never

from headwater.clock import Random

SECTOR_BYTES: Final = 512

# As SQLite's own layer for Unix does it: the first sync of a new journal syncs the directory too. Only then are
# names durable, its own and all others: a deleted journal may come back, and a new file may be gone.
_SYNCED_WITH_DIRECTORY: Final = ("-journal", "-wal", "-copy")

Image: TypeAlias = Mapping[str, bytes]
"""Every file of a disk after a boot: name to content."""


class OpKind(enum.Enum):
    """The operations on a disk."""

    CREATE = "create"
    WRITE = "write"
    TRUNCATE = "truncate"
    SYNC = "sync"
    DELETE = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskOp:
    """One operation. `offset` and `data` belong to a write, `size` to a truncation."""

    kind: OpKind
    file: str
    offset: int = 0
    data: bytes = b""
    size: int = 0
    directory_synced: bool = False  # of a deletion: it is durable when the call returns


class Loss(enum.Enum):
    """The fate of the writes that no sync covered."""

    KEPT = "kept"  # the cache reached the platter in time; also after a killed process
    DROPPED = "dropped"
    TORN = "torn"  # in order up to some byte inside a sector
    REORDERED = "reordered"  # some sectors, an older write over a newer one included
    SCATTERED = "scattered"  # any sectors, some torn, some only as a longer file


class DiskFile:
    """One file, found by at most one name. Open handles keep it alive after its name is gone."""

    __slots__ = ("cached", "durable", "is_new", "pending")

    def __init__(self, content: bytes = b"", *, is_new: bool = False) -> None:
        self.is_new = is_new  # not synced since it was made
        self.durable = bytearray(content)
        self.cached = bytearray(content)  # seen by reads
        self.pending: list[DiskOp] = []  # writes and truncations that no sync covered, oldest first

    def change(self, op: DiskOp) -> None:
        """Write or truncate, in the cache."""
        _change(self.cached, op)
        self.pending.append(op)

    def copy(self) -> DiskFile:
        twin = DiskFile(is_new=self.is_new)
        twin.durable, twin.cached, twin.pending = self.durable[:], self.cached[:], self.pending[:]
        return twin


class Platter:
    """All files of one disk. `sector_garbled`: a torn write destroys its whole sector, not only its own bytes."""

    __slots__ = ("_cached_names", "_durable_names", "sector_garbled")

    def __init__(self, image: Image | None = None, *, sector_garbled: bool = False) -> None:
        self._cached_names = {name: DiskFile(content) for name, content in (image or {}).items()}
        self._durable_names = dict(self._cached_names)
        self.sector_garbled = sector_garbled

    def copy(self) -> Platter:
        twins = {id(file): file.copy() for file in (*self._cached_names.values(), *self._durable_names.values())}
        twin = Platter(sector_garbled=self.sector_garbled)
        twin._cached_names = {name: twins[id(file)] for name, file in self._cached_names.items()}
        twin._durable_names = {name: twins[id(file)] for name, file in self._durable_names.items()}
        return twin

    # ---- while it runs ------------------------------------------------------------------------------------

    def find(self, name: str) -> DiskFile | None:
        return self._cached_names.get(name)

    def visible(self) -> dict[str, bytes]:
        """Return the content that a reader sees now."""
        return {name: bytes(file.cached) for name, file in self._cached_names.items()}

    def apply(self, op: DiskOp) -> None:
        """Do it. Anything but a creation or a deletion needs the file to be there."""
        match op.kind:
            case OpKind.CREATE:
                self._cached_names[op.file] = DiskFile(is_new=True)
            case OpKind.DELETE:
                self._cached_names.pop(op.file, None)
                if op.directory_synced:
                    self._durable_names.pop(op.file, None)
            case OpKind.SYNC:
                file = self._cached_names[op.file]
                for pending in file.pending:
                    _change(file.durable, pending)
                file.pending.clear()
                if file.is_new and op.file.endswith(_SYNCED_WITH_DIRECTORY):
                    self._durable_names = dict(self._cached_names)
                file.is_new = False
            case OpKind.WRITE | OpKind.TRUNCATE:
                self._cached_names[op.file].change(op)
            case _:
                assert_never(op.kind)

    def forget_pending(self, name: str) -> None:
        """A sync failed and the cache now takes its pages for clean: reads see them, no later sync writes them."""
        file = self._cached_names.get(name)
        if file is not None:
            file.pending.clear()

    # ---- when it stops ------------------------------------------------------------------------------------

    def is_settled(self) -> bool:
        """True when every loss leaves the same image."""
        return self._cached_names == self._durable_names and not any(
            file.pending for file in self._cached_names.values()
        )

    def after_crash(self, loss: Loss, random: Random) -> dict[str, bytes]:
        """The files after power failed now and came back."""
        image: dict[str, bytes] = {}
        for name in sorted({*self._cached_names, *self._durable_names}):
            file = self._surviving_file(name, loss, random)
            if file is not None:
                image[name] = self._surviving(file, loss, random)
        return image

    def _surviving_file(self, name: str, loss: Loss, random: Random) -> DiskFile | None:
        cached, durable = self._cached_names.get(name), self._durable_names.get(name)
        if loss is Loss.KEPT:
            return cached
        if loss is Loss.DROPPED or cached is durable:
            return durable
        return random.choice((cached, durable))

    def _surviving(self, file: DiskFile, loss: Loss, random: Random) -> bytes:
        content = bytearray(file.durable)
        pieces = [piece for op in file.pending for piece in _pieces(op)]
        match loss:
            case Loss.DROPPED:
                return bytes(content)
            case Loss.KEPT:
                for piece in pieces:
                    _change(content, piece)
            case Loss.TORN:
                # Half of the tears go into the newest piece: that is where a commit is decided.
                end = len(pieces) - 1 if random.random() < 0.5 else random.randrange(len(pieces) or 1)
                for piece in pieces[: max(end, 0)]:
                    _change(content, piece)
                if pieces:
                    self._tear(content, pieces[end], random)
            case Loss.REORDERED:
                random.shuffle(pieces)
                for piece in pieces[: random.randrange(len(pieces) or 1)]:
                    _change(content, piece)
            case Loss.SCATTERED:
                for piece in pieces:
                    self._scatter(content, piece, random)
            case _:
                assert_never(loss)
        return bytes(content)

    def _scatter(self, content: bytearray, piece: DiskOp, random: Random) -> None:
        drawn = random.random()
        if drawn < 0.5:
            _change(content, piece)
        elif drawn < 0.6:
            self._tear(content, piece, random)
        elif drawn < 0.7 and piece.kind is OpKind.WRITE:
            _lengthen(content, piece.offset + len(piece.data))

    def _tear(self, content: bytearray, piece: DiskOp, random: Random) -> None:
        if piece.kind is not OpKind.WRITE:
            return
        cut = random.randrange(len(piece.data) + 1)
        kept = piece.data[:cut]
        if random.random() < 0.5:
            kept += random.randbytes(len(piece.data) - cut)
        _change(content, DiskOp(kind=OpKind.WRITE, file=piece.file, offset=piece.offset, data=kept))
        if self.sector_garbled:
            first = piece.offset - piece.offset % SECTOR_BYTES
            end = min(first + SECTOR_BYTES, len(content))
            content[first:end] = random.randbytes(max(end - first, 0))


def _pieces(op: DiskOp) -> Iterator[DiskOp]:
    """Return the parts of an operation that a disk may do alone: a write falls apart at the borders of sectors."""
    if op.kind is not OpKind.WRITE:
        yield op
        return
    start = 0
    while start < len(op.data):
        end = start + SECTOR_BYTES - (op.offset + start) % SECTOR_BYTES
        yield DiskOp(kind=OpKind.WRITE, file=op.file, offset=op.offset + start, data=op.data[start:end])
        start = end


def _change(content: bytearray, op: DiskOp) -> None:
    if op.kind is OpKind.TRUNCATE:
        _lengthen(content, op.size)
        del content[op.size :]
    else:
        _lengthen(content, op.offset)
        content[op.offset : op.offset + len(op.data)] = op.data


def _lengthen(content: bytearray, size: int) -> None:
    if len(content) < size:
        content.extend(bytes(size - len(content)))
