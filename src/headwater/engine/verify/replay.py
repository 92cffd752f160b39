"""The replay: every accepted commit, judged once more at its place by the plain definition of the rules.

Walks over the log and checks that its rows follow one another (chain, seqs), that each commit was admissible when it
was accepted (C1 to C5, C7, C10), and that the events and records that it sent are stored. Of the engine it knows only
the stored forms. Stops at the first violation. Checks that compaction made impossible are noted, not guessed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import assert_never

import msgspec

from headwater.data.address import Depth, DocKey, doc_text
from headwater.data.change import overlaps
from headwater.data.codec import encode
from headwater.data.limits import STORED_VALUE_LIMITS
from headwater.data.patch import Patch, PatchError, apply
from headwater.data.value import Absent, MaybeValue, equal
from headwater.engine.log.heads import restored
from headwater.engine.log.log import COMPACTED_CHAIN, COMPACTED_SEQ, chained, number_in_meta
from headwater.engine.store.port import EventRow, LogRow, SnapshotRow, Store
from headwater.engine.verify.document_history import DocumentHistories, DocumentHistory, DocumentWrite, differences
from headwater.engine.verify.naive import names, numbers, same
from headwater.engine.verify.report import VERIFY_LIMITS, RuleBroken
from headwater.errors import CorruptionError, HeadwaterError
from headwater.protocol.commit import (
    Commit,
    EntityAbsent,
    LeaseHeld,
    OriginCommitted,
    Read,
    decode_commit,
    parts_of,
)
from headwater.protocol.log_record import DROPPED, Entry, charged_bytes, decode_record
from headwater.protocol.reactions import target_of

Progress = Callable[[int, int], object]
"""Called now and then with the last seq that was replayed and the last there is."""


class Replay:
    """Walks the log of one space. `run` raises `Broken` at the first violation."""

    __slots__ = (
        "_chain",
        "_progress",
        "_seqs",
        "_sessions",
        "_store",
        "_waves",
        "commits",
        "declared",
        "events",
        "expected",
        "kept_from",
        "last_seq",
        "lines",
        "records",
        "unchecked",
    )

    def __init__(self, store: Store, lines: DocumentHistories, progress: Progress | None) -> None:
        self._store = store
        self._progress = progress
        self._sessions: set[int] = set()
        self._seqs: dict[tuple[int, int], tuple[int, int]] = {}  # (session, local_seq) to (seq, branch)
        self._waves: set[tuple[int, int]] = set()  # (session, local_seq) of those that are waves
        self.lines = lines
        self.commits = 0
        self.events: dict[str, EventRow] = {}  # those that no later commit of their branch handled, as they were sent
        self.records: Counter[str] = Counter()  # by topic
        self.declared: dict[str, tuple[int, str]] = {}  # the first commit that declared a reaction, and for which topic
        self.unchecked: Counter[str] = Counter()  # checks that compaction made impossible
        self.kept_from = number_in_meta(store, COMPACTED_SEQ, 1)
        self._chain = number_in_meta(store, COMPACTED_CHAIN, 0)
        self.expected = self.kept_from
        last = store.last_row()
        self.last_seq = last.seq + last.commits - 1 if last is not None else 0

    def run(self) -> None:
        self._take_up_old_rows()
        seq = self.kept_from - 1
        while rows := self._store.rows_after(seq, VERIFY_LIMITS.log_rows):
            for row in rows:
                self._check_row(row)
                for place, entry in enumerate(self._entries(row)):
                    self._replay(row, row.seq + place, entry)
                    if self._progress is not None and self.commits % VERIFY_LIMITS.report_commits == 0:
                        self._progress(row.seq + place, self.last_seq)
            seq = rows[-1].seq
        if self._progress is not None:
            self._progress(self.last_seq, self.last_seq)

    # ---- rows ------------------------------------------------------------------------------------

    def _take_up_old_rows(self) -> None:
        """Rows before the kept history stay for sessions that may name them. Not all their neighbours do."""
        before: LogRow | None = None
        while rows := self._store.rows_after(before.seq if before is not None else 0, VERIFY_LIMITS.log_rows):
            for row in rows:
                if before is not None and before.seq + before.commits == row.seq:
                    self._check_chain(before.chain, row)
                if row.seq >= self.kept_from:
                    return
                for place, entry in enumerate(self._entries(row)):
                    commit = self._decoded(entry, row.seq + place)
                    self._seqs[row.session, commit.local_seq] = (row.seq + place, row.branch)
                    if commit.results:
                        self._waves.add((row.session, commit.local_seq))
                self.unchecked["rows kept only for their sessions: whether they were admissible"] += 1
                before = row

    def _check_chain(self, before: int, row: LogRow) -> int:
        chain = chained(before, row)
        if chain != row.chain:
            raise RuleBroken("chain", row.seq, f"the row's checksum is {row.chain}, its content gives {chain}")
        return chain

    def _check_row(self, row: LogRow) -> None:
        if row.seq != self.expected:
            raise RuleBroken("gap", row.seq, f"the log goes on at seq {row.seq}, {self.expected} is missing")
        self._chain = self._check_chain(self._chain, row)
        if row.session not in self._sessions:
            if self._store.session(row.session) is None:
                raise RuleBroken("session", row.seq, f"session {row.session} is not known")
            self._sessions.add(row.session)
        branch = self.lines.branches.get(row.branch)
        if branch is None or row.seq <= branch.fork_seq:
            raise RuleBroken("branch", row.seq, f"it is on branch {row.branch}, which does not exist then")
        self.expected = row.seq + row.commits

    def _entries(self, row: LogRow) -> Sequence[Entry]:
        try:
            entries = decode_record(row.body)
        except (msgspec.MsgspecError, ValueError) as error:
            raise RuleBroken("record", row.seq, f"the row cannot be read: {error}") from error
        if len(entries) != row.commits or not entries:
            raise RuleBroken("record", row.seq, f"the row holds {len(entries)} commits and says {row.commits}")
        first, last = self._decoded(entries[0], row.seq), self._decoded(entries[-1], row.seq)
        if (first.local_seq, last.local_seq) != (row.local_seq, row.local_last):
            raise RuleBroken(
                "record",
                row.seq,
                f"the row says commits {row.local_seq} to {row.local_last}, it holds {first.local_seq} to "
                f"{last.local_seq}",
            )
        return entries

    def _decoded(self, entry: Entry, seq: int) -> Commit:
        try:
            return decode_commit(entry.commit)
        except (msgspec.MsgspecError, ValueError, HeadwaterError) as error:
            raise RuleBroken("record", seq, f"the commit cannot be read: {error}") from error

    # ---- commits ---------------------------------------------------------------------------------

    def _replay(self, row: LogRow, seq: int, entry: Entry) -> None:
        commit = self._decoded(entry, seq)
        if commit.branch != self.lines.branches[row.branch].name:
            raise RuleBroken("branch", seq, f"its row is on branch {row.branch}, it says {commit.branch!r}")
        self._check_turn(row, seq, commit)
        if row.branch in self.lines.unknown:
            self.unchecked["commits on deleted branches that began before the kept history"] += 1
        else:
            self._check_preconditions(row, seq, commit)
            self._check_wave(seq, commit)
            self._check_layers(row, seq, commit)
            for read in _reads_of(commit):
                self._check_read(row, seq, read)
            self._write(row, seq, commit, entry)
        self._check_outgoing(row, seq, commit)
        self._seqs[row.session, commit.local_seq] = (seq, row.branch)
        if commit.results:
            self._waves.add((row.session, commit.local_seq))
        self.commits += 1

    def _check_turn(self, row: LogRow, seq: int, commit: Commit) -> None:
        key = (row.session, 0)
        last = self._seqs.get(key, (0, 0))[0]
        if commit.local_seq <= last:
            raise RuleBroken(
                "C5", seq, f"commit {commit.local_seq} of session {row.session} comes after {last}: out of order"
            )
        self._seqs[key] = (commit.local_seq, 0)  # No commit has the number 0, so the place is free.

    def _check_preconditions(self, row: LogRow, seq: int, commit: Commit) -> None:
        for precondition in commit.preconditions:
            match precondition:
                case OriginCommitted(local_seq):
                    holds = (row.session, local_seq) in self._seqs or self._is_lost(row, local_seq)
                case EntityAbsent(doc):
                    holds = self.lines.value(row.branch, doc)[1] == 0
                case LeaseHeld(name, token):
                    holds = token <= _last_token(self._store, name)
                    self.unchecked["lease_held preconditions: the log does not keep who held a lease"] += 1
                case _:
                    assert_never(precondition)
            if not holds:
                raise RuleBroken("precondition", seq, f"{precondition} did not hold")

    def _is_lost(self, row: LogRow, local_seq: int) -> bool:
        """Whether that commit's row may have been dropped by compaction."""
        if self.kept_from == 1:
            return False
        session = self._store.session(row.session)
        if session is not None and (session.closed or local_seq <= session.acked):
            self.unchecked["references to commits whose rows were compacted away"] += 1
            return True
        return False

    # ---- reads -----------------------------------------------------------------------------------

    def _check_layers(self, row: LogRow, seq: int, commit: Commit) -> None:
        """C4: every layer it stands on was accepted, and is on its branch."""
        for read in _reads_of(commit):
            for layer in numbers(read.layers):
                self._check_result_is_there(row, seq, read.doc, layer)
        named = [layer for read in _reads_of(commit) if read.layers for layer in numbers(read.layers)]
        for layer in named:
            if not 0 < layer < commit.local_seq:
                raise RuleBroken("C3", seq, f"it names layer {layer}, which is not an earlier commit of its session")
            place = self._seqs.get((row.session, layer))
            if place is None:
                if not self._is_lost(row, layer):
                    raise RuleBroken("C4", seq, f"it depends on layer {layer}, which was not accepted")
            elif not self.lines.shows(row.branch, place[1], place[0]):
                raise RuleBroken("C4", seq, f"it depends on layer {layer}, which its branch does not show")

    def _check_wave(self, seq: int, commit: Commit) -> None:
        """C4, C7: each accepted result has its operations, and the results that it read are accepted, too."""
        if not commit.results:
            return
        if sum([result.operations for result in commit.results]) != len(commit.operations):
            raise RuleBroken("C7", seq, "its results do not have its operations")
        written: set[DocKey] = set()
        parts = parts_of(commit)
        for place, part in enumerate(parts):
            if not part.operations:
                continue
            for at in part.after:
                if at >= place or not parts[at].operations:
                    raise RuleBroken("C4", seq, f"result {place} depends on result {at}, which was not accepted")
            seen = written.intersection([read.doc for read in part.reads])
            if seen:
                raise RuleBroken("C1", seq, f"result {place} missed the write to {doc_text(min(seen))} before it")
            written.update([operation.doc for operation in part.operations])

    def _check_result_is_there(self, row: LogRow, seq: int, doc: DocKey, layer: int) -> None:
        """C4: a read over a wave is one of a document of its accepted results."""
        place = self._seqs.get((row.session, layer))
        if place is not None and (row.session, layer) in self._waves:
            logged = self._store.row_at(place[0])
            wave = None if logged is None else self._decoded(self._entries(logged)[place[0] - logged.seq], seq)
            if wave is not None and not any(operation.doc == doc for operation in wave.operations):
                raise RuleBroken("C4", seq, f"it depends on a result of wave {layer}, which was not accepted")

    def _check_read(self, row: LogRow, seq: int, read: Read) -> None:
        if not 0 <= read.seq < row.seq:
            raise RuleBroken("C3", seq, f"{_shown(read)} has a basis that was not there yet")
        if read.seq < self.kept_from - 1:
            self.unchecked["reads whose basis lies before the kept history: writes up to there"] += 1
        missed = self._find_missed_write(row, read)
        if missed:
            raise RuleBroken("C1", seq, f"{_shown(read)} missed the write at seq {missed}")
        if read.layers and not self._sees_all_of_array(row, read):
            self._check_view(row, seq, read)

    def _find_missed_write(self, row: LogRow, read: Read) -> int:
        """The latest write after the basis, shown here and not named, that changed the address read; or 0."""
        for write in self.lines.after(row.branch, read.doc, read.seq, read.path, read.depth):
            if write.session == row.session and names(read, write.local_seq):
                continue
            for touch in write.changed:
                if overlaps(touch, read.path, read.depth):
                    return write.seq
        return 0

    def _sees_all_of_array(self, row: LogRow, read: Read) -> bool:
        """True if no other session wrote to the arrays that the read looks into: then its layers did the same."""
        cut = next((place for place, step in enumerate(read.path) if isinstance(step, int)), len(read.path))
        wider = Read(read.doc, read.path[:cut], Depth.DEEP, read.seq, read.layers)
        return not self._find_missed_write(row, wider)

    def _check_view(self, row: LogRow, seq: int, read: Read) -> None:
        """C1: the state that the read saw, the branch at the basis and then its layers, is the state of the branch."""
        if read.seq < self.kept_from - 1:
            return  # Already noted: the basis cannot be rebuilt.
        view = self._folded(row.branch, read.doc, read.seq)
        for layer in numbers(read.layers):
            place = self._seqs.get((row.session, layer))
            if place is not None and place[0] > read.seq:
                try:
                    view = self._with(view, read.doc, place[0])
                except PatchError:
                    return  # No client can have had this view, so there is nothing to compare.
        if not same(view, self.lines.value(row.branch, read.doc)[0], read):
            raise RuleBroken("C1", seq, f"{_shown(read)} saw what the branch does not show")

    def _folded(self, branch: int, key: DocKey, at: int) -> MaybeValue:
        """A document in the past, from the log. Slow, and hardly ever needed."""
        line, row = self.lines.find(branch, key), self.lines.branches[branch]
        if line is not None and line.base_seq and line.base_seq <= at:
            value = line.base
        else:
            value = self._folded(row.parent, key, min(at, row.fork_seq)) if row.parent else Absent.ABSENT
        for written in line.seqs if line is not None else ():
            if written <= at:
                value = self._with(value, key, written)
        return value

    def _with(self, value: MaybeValue, key: DocKey, seq: int) -> MaybeValue:
        row = self._store.row_at(seq)
        if row is None:
            raise RuleBroken("gap", seq, "the row has vanished while it was verified")
        commit = self._decoded(self._entries(row)[seq - row.seq], seq)
        for operation in commit.operations:
            if operation.doc == key:
                value = _applied(value, operation.patches)
        return value

    # ---- writes ----------------------------------------------------------------------------------

    def _write(self, row: LogRow, seq: int, commit: Commit, entry: Entry) -> None:
        if len(entry.previous) != len(commit.operations):
            raise RuleBroken("previous", seq, f"it has {len(entry.previous)} back pointers")
        if len({operation.doc for operation in commit.operations}) < len(commit.operations):
            raise RuleBroken("C7", seq, "it names a document in two operations")
        sizes = charged_bytes(entry.commit, len(commit.operations))
        for operation, previous, size in zip(commit.operations, entry.previous, sizes, strict=True):
            key = operation.doc
            before, _ = self.lines.value(row.branch, key)
            try:
                after = _applied(before, operation.patches)
            except PatchError as error:
                raise RuleBroken("C7", seq, f"its write to {doc_text(key)} does not apply: {error}") from error
            if previous == DROPPED:
                if not equal(before, after):
                    raise RuleBroken("previous", seq, f"it changes {doc_text(key)} and says that it does not write it")
                continue
            line = self.lines.find(row.branch, key) or self._begun(row.branch, key, seq, before)
            if previous != line.last_seq:
                raise RuleBroken(
                    "previous",
                    seq,
                    f"the write to {doc_text(key)} before it was at {line.last_seq}, it says {previous}",
                )
            write = DocumentWrite(
                seq, row.session, commit.local_seq, size, len(entry.commit), differences(before, after)
            )
            self.lines.record(row.branch, line, write, after)
            if seq in line.snapshots:
                self._check_snapshot(row.branch, key, line)

    def _begun(self, branch: int, key: DocKey, seq: int, value: MaybeValue) -> DocumentHistory:
        doc = self._store.doc_of(key)
        if doc is None:
            raise RuleBroken("documents", seq, f"{doc_text(key)} is written and not among the documents")
        line = DocumentHistory(doc, value, 0)
        line.snapshots = dict(self._store.snapshot_seqs(branch, doc))
        self.lines.begin(branch, key, line)
        return line

    def _check_snapshot(self, branch: int, key: DocKey, line: DocumentHistory) -> None:
        seq = line.last_seq
        stored = self._store.snapshot_at_or_before(branch, line.doc, seq)
        if stored is None or stored.seq != seq or not equal(snapshot_value(stored), line.value):
            raise RuleBroken("snapshot", seq, f"the stored snapshot of {doc_text(key)} is not what folding gives")

    # ---- what it sent ----------------------------------------------------------------------------

    def _check_outgoing(self, row: LogRow, seq: int, commit: Commit) -> None:
        """Keep sent events until they are handled: those left at the end must be stored, and no others."""
        is_gone = self.lines.branches[row.branch].deleted
        sent: dict[str, EventRow] = {}
        for event in commit.events:
            if event.id in sent or event.id in self.events:
                before = self.events[event.id].seq if event.id in self.events else seq
                raise RuleBroken("events", seq, f"event {event.id!r} was sent at {before}, too")
            sent[event.id] = EventRow(
                event.id, seq, event.stream, event.due_us, encode(event.payload), row.branch, row.at_us, row.session
            )
        for id in commit.handled:
            known = self.events.get(id)
            if known is not None and known.branch == row.branch:
                del self.events[id]
        if not is_gone:
            self.events.update(sent)  # those of a deleted branch were deleted with it, at an unknown time
        for each in commit.declared:
            self.declared.setdefault(each.reaction, (seq, each.topic))
        for place, record in enumerate(commit.records):
            self.records[record.topic] += 1
            rows = self._store.records_after(record.topic, (seq, place - 1), 1)
            stored = rows[0] if rows else None
            payload = encode(record.payload)
            expected = (seq, place, record.topic, record.key, payload, record.source, row.branch, row.at_us)
            if stored is None or tuple(stored) != expected:
                raise RuleBroken("records", seq, f"record {place} to {record.topic!r} is stored as {stored}")


def _reads_of(commit: Commit) -> tuple[Read, ...]:
    """The reads that a commit was accepted with: of a wave, those of its accepted results."""
    if not commit.results:
        return commit.reads
    places = {place for result in commit.results if result.operations for place in result.reads}
    return tuple([commit.reads[place] for place in sorted(places)])


def _last_token(store: Store, lease: str) -> int:
    """The highest token that the lease of a target has had. -1: there is no such target."""
    named = target_of(lease)
    if named is None:
        return -1
    numbers = [row.reaction for row in store.delivery.subscriptions() if row.name == named[0]]
    target = store.delivery.target(numbers[0], named[1]) if numbers else None
    return -1 if target is None else target.token


def snapshot_value(row: SnapshotRow) -> MaybeValue:
    """The value of a stored snapshot."""
    try:
        return restored(row)
    except CorruptionError as error:
        raise RuleBroken("snapshot", row.seq, str(error)) from error


def _applied(value: MaybeValue, patches: tuple[Patch, ...]) -> MaybeValue:
    for patch in patches:
        value = apply(value, patch, STORED_VALUE_LIMITS)[0]
    return value


def _shown(read: Read) -> str:
    return f"the read of {doc_text(read.doc, read.path)} at seq {read.seq}"
