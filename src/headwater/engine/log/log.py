"""The log: appending accepted frames, and walking back through the history of one document.

Owns the next seq and the running checksum. A row's `chain` is a checksum over the row and the chain before it, so that
every reader finds an edited, missing or reordered row (`verify`). The log never decides whether a commit is accepted.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

import msgspec
from msgspec import Raw

from headwater.data.address import DocKey
from headwater.data.patch import Patch
from headwater.engine.limits import DEFAULT_LIMITS, Limits
from headwater.engine.store.port import HEADS_SEQ, LogRow, Store
from headwater.errors import CorruptionError, HeadwaterError, InvariantViolation
from headwater.protocol.commit import Commit, Provenance, decode_commit, local_seq_of
from headwater.protocol.log_record import (
    DROPPED,
    Entry,
    decode_outline,
    decode_patches,
    decode_provenance,
    decode_record,
    encode_record,
)

_FIELDS: Final = Struct("<7q")  # the fields that a row's checksum covers beside its body: all before `chain`

_OPERATION_BYTES: Final = 300  # that an operation of an outline takes in memory, beside its share of the row

COMPACTED_SEQ: Final = "compacted_seq"
"""Meta key: history before this seq was compacted away; the rows still there are kept for their sessions."""


COMPACTED_CHAIN: Final = "compacted_chain"
"""Meta key: the chain value that the first kept row continues."""


KEPT_SUM: Final = "kept_sum"
"""Meta key: the sum over rows kept from before `COMPACTED_SEQ`, which the chain does not cover any more."""


def number_in_meta(store: Store, key: str, default: int) -> int:
    value = store.meta(key)
    if value is None:
        return default
    if not value.isdecimal():
        raise CorruptionError(f"the space records {value!r} as its {key}, which is not a number. Restore a backup.")
    return int(value)


class Revision(NamedTuple):
    """One commit's patches to one document, and the seq of the write before it."""

    seq: int
    session: int
    local_seq: int
    previous: int
    patches: tuple[Patch, ...]


class LoggedOperations(NamedTuple):
    """The writes of one commit: per document the seq of the write before it, and its patches, still encoded."""

    session: int
    local_seq: int
    operations: dict[DocKey, tuple[int, Raw]]
    bytes_held: int  # an estimate of its memory: encoded parts are views of their whole row


def chained(chain: int, row: LogRow) -> int:
    """The chain value of a row that follows one whose value is `chain`."""
    return crc32(row.body, crc32(_FIELDS.pack(*row[:7]), chain))


class OpenFrame:
    """The frame being judged: its admitted commits already count, its row is not written yet."""

    __slots__ = ("at_us", "branch", "entries", "local_last", "local_seq", "observed", "seq", "session")

    def __init__(self, session: int, branch: int, at_us: int, seq: int) -> None:
        self.session = session
        self.branch = branch
        self.at_us = at_us
        self.seq = seq
        self.local_seq = self.local_last = 0
        self.entries: list[tuple[bytes, tuple[int, ...]]] = []
        self.observed: dict[int, list[bytes]] = {}  # by place in `entries`


class Log:
    """The accepted frames of one space, in order."""

    __slots__ = (
        "_at_us",
        "_chain",
        "_limits",
        "_open",
        "_outline_bytes",
        "_outlines",
        "_read",
        "_store",
        "kept_from",
        "next_seq",
        "replayed",
        "written_back",
    )

    def __init__(self, store: Store, limits: Limits = DEFAULT_LIMITS) -> None:
        self._store = store
        self._limits = limits
        self.reload()

    def reload(self) -> None:
        """Take the end of the log from the store: at open, and whenever a transaction did not commit."""
        self._open: OpenFrame | None = None
        self._read: tuple[LogRow, tuple[Entry, ...]] | None = None  # the row that was read last
        # Large commits that were walked through lately: their documents are often read one after the other.
        self._outlines: OrderedDict[int, LoggedOperations] = OrderedDict()
        self._outline_bytes = 0
        last = self._store.last_row()
        self._chain = last.chain if last else 0
        self._at_us = last.at_us if last else 0
        self.next_seq = last.seq + last.commits if last else 1
        self.written_back = number_in_meta(self._store, HEADS_SEQ, 0)
        self.replayed = self.last_seq - self.written_back  # commits and results that opening would replay, about
        self.kept_from = number_in_meta(self._store, COMPACTED_SEQ, 1)
        if last is not None:
            self._check_end(last)

    def _check_end(self, last: LogRow) -> None:
        before = self._store.row_at(last.seq - 1)
        if before is not None and before.seq + before.commits != last.seq and last.seq > self.kept_from:
            raise CorruptionError(
                f"the log jumps from seq {before.seq + before.commits - 1} to {last.seq}: rows are missing. "
                "Run `headwater verify`, and restore a backup."
            )
        follows = last.seq == 1 if before is None else before.seq + before.commits == last.seq
        if follows and chained(before.chain if before else 0, last) != last.chain:
            raise CorruptionError(
                f"the last log row (seq {last.seq}) does not match its checksum: it was edited or torn. "
                "Run `headwater verify`, and restore a backup."
            )

    @property
    def last_seq(self) -> int:
        return self.next_seq - 1

    def chain_at(self, seq: int) -> int | None:
        """Return the chain value that identifies this log up to `seq`, or None if the log does not end there."""
        return self._chain if seq == self.last_seq else None

    def may_have_ended_at(self, seq: int, chain: int) -> bool:
        """True if a client may have seen this log end at `seq` with that chain value, as far as that is known.

        A file that was restored from a backup, or begun anew, and has grown since, is another log from there on.
        """
        if seq >= self.last_seq:
            return seq == self.last_seq and chain == self._chain
        if seq < self.kept_from:
            return True  # Compacted away: nothing is left that could tell.
        row = self._store.row_at(seq)
        return row is not None and row.seq + row.commits == seq + 1 and row.chain == chain

    # ---- appending -------------------------------------------------------------------------------

    def next_time(self, now_us: int) -> int:
        """Return a time that is not before the last commit's, also if the clock was set back."""
        self._at_us = max(self._at_us, now_us)
        return self._at_us

    def open_frame(self, session: int, branch: int, at_us: int) -> None:
        """Commits admitted from now on are of one frame, and will be one row."""
        self._open = OpenFrame(session, branch, at_us, self.next_seq)

    def admit(self, local_seq: int, encoded: bytes, previous: tuple[int, ...], *, results: int = 1) -> int:
        """Give an admitted commit of the open frame its seq. `results`: of a wave, their number."""
        frame = self._open
        if frame is None:
            raise InvariantViolation("a commit was admitted outside a frame")
        if not frame.entries:
            frame.local_seq = local_seq
        frame.local_last = local_seq
        frame.entries.append((encoded, previous))
        seq = self.next_seq
        self.next_seq = seq + 1
        self.replayed += results
        return seq

    def attach(self, observed: list[bytes]) -> None:
        """Store observations in the row, with the commit that was admitted last."""
        frame = self._open
        if frame is None:
            raise InvariantViolation("a commit was admitted outside a frame")
        frame.observed[len(frame.entries) - 1] = observed

    def close_frame(self) -> bool:
        """Write the row of the open frame. False: nothing of it was admitted, and there is none."""
        frame = self._open
        self._open = None
        if frame is None or not frame.entries:
            return False
        body = encode_record(frame.entries, frame.observed)
        fields = (
            frame.seq,
            len(frame.entries),
            frame.session,
            frame.local_seq,
            frame.local_last,
            frame.branch,
            frame.at_us,
        )
        self._chain = crc32(body, crc32(_FIELDS.pack(*fields), self._chain))
        self._store.append(LogRow(*fields, self._chain, body))
        return True

    # ---- reading ---------------------------------------------------------------------------------

    def entry(self, seq: int) -> tuple[int, Entry]:
        """The session and the encoded bytes of the commit with this seq."""
        frame = self._open
        if frame is not None and seq >= frame.seq:
            if seq >= self.next_seq:
                raise CorruptionError(f"something points at commit {seq}, but the log ends at {self.last_seq}")
            encoded, previous = frame.entries[seq - frame.seq]
            return frame.session, Entry(Raw(encoded), previous)
        row, entries = self._row(seq)
        return row.session, entries[seq - row.seq]

    def _row(self, seq: int) -> tuple[LogRow, tuple[Entry, ...]]:
        """Return the row of a stored commit, with its decoded entries."""
        last = self._read
        if last is not None and last[0].seq <= seq < last[0].seq + last[0].commits:
            return last  # the same row again, as in a wave
        row = self._store.row_at(seq)
        if row is None or seq >= row.seq + row.commits:
            raise CorruptionError(f"the log has no commit with seq {seq}, though something points at it")
        try:
            entries = decode_record(row.body)
        except (msgspec.MsgspecError, ValueError, TypeError) as error:
            raise CorruptionError(f"the log row of seq {row.seq} cannot be read: {error}") from error
        if len(entries) != row.commits:
            raise CorruptionError(f"the log row of seq {row.seq} holds {len(entries)} commits, not {row.commits}")
        self._read = (row, entries)
        return row, entries

    def decoded(self, seq: int, encoded: bytes | Raw) -> Commit:
        try:
            return decode_commit(encoded)
        except (msgspec.MsgspecError, ValueError, HeadwaterError) as error:
            raise _unreadable(seq, error) from error

    def history(self, seq: int, key: DocKey, *, down_to: int) -> Iterator[Revision]:
        """The writes to one document after `down_to`, latest first, beginning with the one at `seq`.

        Of a commit that writes other documents, too, only the part that is asked for is decoded.
        """
        while seq > down_to:
            revision = _revision(seq, self._outlines.get(seq) or self._outline(seq), key)
            yield revision
            seq = revision.previous

    def histories(self, spans: Mapping[DocKey, tuple[int, int]]) -> dict[DocKey, list[Revision]]:
        """For each document the same as `history` from the first to the second seq of its span.

        The walk visits commits from the latest to the oldest, so that each is looked through once for all documents.
        """
        found: dict[DocKey, list[Revision]] = {key: [] for key in spans}
        waiting: dict[int, list[DocKey]] = {}  # the documents whose next revision is at a seq
        for key, (seq, down_to) in spans.items():
            if seq > down_to:
                waiting.setdefault(seq, []).append(key)
        seqs = [-seq for seq in waiting]
        heapify(seqs)
        while seqs:
            seq = -heappop(seqs)
            written = self._outlines.get(seq) or self._outline(seq)
            for key in waiting.pop(seq):
                revision = _revision(seq, written, key)
                found[key].append(revision)
                if revision.previous > spans[key][1]:
                    if revision.previous not in waiting:
                        heappush(seqs, -revision.previous)
                    waiting.setdefault(revision.previous, []).append(key)
        return found

    def _outline(self, seq: int) -> LoggedOperations:
        session, entry = self.entry(seq)
        try:
            outline = decode_outline(entry.commit)
        except (msgspec.MsgspecError, ValueError) as error:
            raise _unreadable(seq, error) from error
        # A commit with fewer back pointers than operations does not write the operations that have none.
        places = zip(outline.operations, entry.previous, strict=False)
        operations = {operation.doc: (at, operation.patches) for operation, at in places if at != DROPPED}
        read = self._read
        if (
            len(operations) < self._limits.outline_operations
            or read is None
            or (self._open is not None and seq >= self._open.seq)
        ):
            return LoggedOperations(session, outline.local_seq, operations, 0)
        held = len(read[0].body) + _OPERATION_BYTES * len(operations)
        written = LoggedOperations(session, outline.local_seq, operations, held)
        self._keep_outline(seq, written)
        return written

    def _keep_outline(self, seq: int, written: LoggedOperations) -> None:
        outlines = self._outlines
        outlines[seq] = written
        self._outline_bytes += written.bytes_held
        while len(outlines) > 1 and self._outline_bytes > self._limits.outline_bytes:
            self._outline_bytes -= outlines.popitem(last=False)[1].bytes_held

    def branch_of(self, seq: int) -> int:
        """The branch that a commit was made on."""
        return self._row(seq)[0].branch

    def written_by(self, seq: int) -> tuple[DocKey, ...]:
        """The documents that a commit writes."""
        return tuple((self._outlines.get(seq) or self._outline(seq)).operations)

    def writer_of(self, seq: int, doc: DocKey) -> tuple[int, str] | None:
        """The session and node of a commit that wrote a document, or None if it was compacted away or there is none."""
        if seq < self.kept_from:
            return None
        session, entry = self.entry(seq)
        return session, _provenance(seq, entry, doc).node

    def only_derived(self, seq: int, key: DocKey, *, after: int) -> bool:
        """True if derived commits made every write to a document after `after`, the last of them at `seq`.

        False if there is none, and if history is not kept that far.
        """
        if seq <= after:
            return False
        while seq > after:
            if seq < self.kept_from or not _provenance(seq, self.entry(seq)[1]).derived:
                return False
            seq = _revision(seq, self._outlines.get(seq) or self._outline(seq), key).previous
        return True


def _provenance(seq: int, entry: Entry, doc: DocKey | None = None) -> Provenance:
    try:
        return decode_provenance(entry.commit, doc)
    except (msgspec.MsgspecError, ValueError, IndexError) as error:
        raise _unreadable(seq, error) from error


def _revision(seq: int, written: LoggedOperations, key: DocKey) -> Revision:
    """One document's part of a commit, decoded."""
    found = written.operations.get(key)
    if found is None:
        raise CorruptionError(f"commit {seq} does not write {key.scope}:{key.id}, though its head says so")
    previous, encoded = found
    if previous >= seq:
        raise CorruptionError(f"commit {seq} names {previous} as the write before it")
    try:
        patches = decode_patches(encoded)
    except (msgspec.MsgspecError, ValueError) as error:
        raise _unreadable(seq, error) from error
    return Revision(seq, written.session, written.local_seq, previous, patches)


def local_seq_at(seq: int, encoded: bytes) -> int:
    """The number that a commit of the log has in its session, without decoding the rest."""
    try:
        return local_seq_of(encoded)
    except (msgspec.MsgspecError, ValueError) as error:
        raise _unreadable(seq, error) from error


def _unreadable(seq: int, error: Exception) -> CorruptionError:
    return CorruptionError(f"commit {seq} in the log cannot be read: {error}")


def entries_of(row: LogRow) -> Sequence[Entry]:
    """All commits of a row, still encoded."""
    try:
        return decode_record(row.body)
    except (msgspec.MsgspecError, ValueError, TypeError) as error:
        raise CorruptionError(f"the log row of seq {row.seq} cannot be read: {error}") from error
