"""Checks of the tables beside the log: branches, heads, snapshots, the write index, events, reactions and observations.

Rows that follow from the log are compared with it, some before the replay (names, branches, the beginning of a
compacted history), the rest after it. None of them is needed to know the content of a space; the engine trusts them to
be fast.

Rows about reactions must be possible: every record has the targets of its subscriptions, a target with records to
deliver can be claimed or was blocked, and parked records and attempts are of records that exist. Claims are not in the
log, so that positions are believed as far as they are possible.

Rows about nodes must be possible, too: no observation that no run can have left, and no reader that the index lacks. A
missing observation is no violation, since its node is then unknown and runs; a removed row is seen by their number.
Never repairs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

import msgspec

from headwater.data.address import Depth, DocKey, doc_text
from headwater.data.path import Path
from headwater.data.value import MAX_INT
from headwater.engine.log.branches import MAIN_ID
from headwater.engine.log.log import COMPACTED_SEQ, KEPT_SUM, number_in_meta
from headwater.engine.log.write_index import NO_SESSION_ID, WriteIndex
from headwater.engine.observations.codec import (
    Body,
    NodeState,
    StoredDoc,
    docs_of,
    first_of,
    forms_of,
    number_of_absent,
)
from headwater.engine.store.port import (
    CLAIMS_EPOCH,
    DOCUMENTS_MADE,
    HEADS_SEQ,
    NEVER,
    BranchRow,
    HeadRow,
    NodeNumbers,
    ObservationRow,
    ParkedState,
    Part,
    Store,
    SubscriptionRow,
    SubscriptionState,
    TargetPhase,
    TargetRow,
)
from headwater.engine.verify.document_history import DocumentHistories, DocumentHistory
from headwater.engine.verify.replay import Replay, snapshot_value
from headwater.engine.verify.report import VERIFY_LIMITS, RuleBroken
from headwater.errors import CorruptionError
from headwater.protocol.commit import MAIN


def check_observed(store: Store, replay: Replay) -> None:
    """Every observation of every branch, and the index of readers that follows from them."""
    for branch in replay.lines.branches.values():
        readers: Counter[tuple[int, int]] = Counter()  # by document and piece
        after = first_of(branch.branch, 0)
        while rows := store.observations_after(after, VERIFY_LIMITS.table_rows):
            if branch.deleted:
                raise RuleBroken("observations", 0, f"branch {branch.name!r} was deleted and has observations")
            for row in rows:
                _check(store, replay, row, readers)
            after = rows[-1].key
        _check_readers(store, branch.branch, readers)


def _check(store: Store, replay: Replay, row: ObservationRow, readers: Counter[tuple[int, int]]) -> None:
    name = f"the observation of node {row.piece}.{row.generation}.{row.member}"
    forms = forms_of(row)
    if forms is None:
        raise RuleBroken("observations", 0, f"{name} cannot be read")
    state, body = forms
    _check_names(store, row.key, state, name)
    if not state.changed_at <= state.verified_at <= replay.last_seq:
        raise RuleBroken(
            "observations",
            state.verified_at,
            f"{name} was changed at {state.changed_at} and verified at {state.verified_at}, and the log ends at "
            f"{replay.last_seq}",
        )
    if store.session(state.session) is None:
        raise RuleBroken("observations", state.verified_at, f"{name} is of session {state.session}, which is not known")
    if state.changed_at >= replay.kept_from:
        written = store.row_at(state.changed_at)
        if written is None or written.branch != row.branch:
            raise RuleBroken("observations", state.changed_at, f"{name} was changed by a commit of another branch")
    for doc in {_index_of(store, doc) for doc in docs_of(body.reads)}:
        readers[doc, row.piece] += 1
    _check_docs(store, state, body, name)


def _check_names(store: Store, key: NodeNumbers, state: NodeState, name: str) -> None:
    named = (key.piece, key.member, key.scope, state.kind, state.fingerprint, state.gate, state.failed)
    for number in named:
        if number and store.name_of(number) is None:
            raise RuleBroken("names", 0, f"{name} names text {number}, which is not stored")


def _check_docs(store: Store, state: NodeState, body: Body, name: str) -> None:
    docs = docs_of(body.reads)
    if isinstance(state.cause, tuple):
        docs[state.cause[0]] = None
    for doc in docs:
        if isinstance(doc, int) and store.key_of(doc) is None:
            raise RuleBroken("observations", state.verified_at, f"{name} has read document {doc}, which has no name")


def _index_of(store: Store, doc: StoredDoc) -> int:
    return doc if isinstance(doc, int) else store.doc_of(DocKey(*doc)) or number_of_absent(*doc)


def _check_readers(store: Store, branch: int, readers: Counter[tuple[int, int]]) -> None:
    """A piece whose nodes read a document is found by it, with as many nodes as do."""
    for (doc, piece), nodes in readers.items():
        found = store.reader(doc, branch, piece)
        if found != nodes:
            raise RuleBroken(
                "readers", 0, f"{nodes} nodes of piece {piece} read document {doc}, the index says {found}"
            )
    listed = store.count_readers(branch)
    if listed != len(readers):
        raise RuleBroken("readers", 0, f"the index lists {listed} readers on branch {branch}, there are {len(readers)}")


_EPOCH = 2**32


def check_delivered(store: Store, replay: Replay) -> None:
    """Check every subscription with its targets, parked records and attempts."""
    rows = store.delivery.subscriptions()
    _check_declared({row.name: row for row in rows}, replay)
    for row in rows:
        if (
            row.state not in tuple(SubscriptionState)
            or max(row.until_seq, row.cursor_seq, row.start_seq) > replay.last_seq
        ):
            raise RuleBroken(
                "subscriptions", row.until_seq, f"reaction {row.name!r} is at a place that the log has not"
            )
        _check_records(store, row)
        _check_targets(store, row, replay.last_seq)
        _check_passed(store, row)


def _check_declared(rows: dict[str, SubscriptionRow], replay: Replay) -> None:
    """C7: a reaction that a commit declares is there with that commit, and receives the commit's records."""
    for name, (seq, topic) in replay.declared.items():
        row = rows.get(name)
        if row is None or row.topic != topic or row.start > (seq - 1, MAX_INT):
            raise RuleBroken(
                "subscriptions", seq, f"reaction {name!r} was declared for {topic!r}, and is stored as {row}"
            )


def _check_records(store: Store, row: SubscriptionRow) -> None:
    """C7: a record has its target with the commit that emitted it, or once the backlog was marked."""
    if row.state == SubscriptionState.RETIRED:
        return
    after, known = row.start, set[str]()
    while records := store.records_after(row.topic, after, VERIFY_LIMITS.table_rows):
        for record in records:
            place = (record.seq, record.ordinal)
            is_due = record.seq > row.until_seq or place <= row.cursor
            if record.branch != MAIN_ID or not is_due or record.key in known:
                continue
            if store.delivery.target(row.reaction, record.key) is None:
                raise RuleBroken(
                    "targets", record.seq, f"reaction {row.name!r} has no target for {record.key!r}, which was emitted"
                )
            known.add(record.key)
        after = (records[-1].seq, records[-1].ordinal)


def _check_targets(store: Store, row: SubscriptionRow, last_seq: int) -> None:
    epoch = number_in_meta(store, CLAIMS_EPOCH, 0)
    after: str | None = None
    while targets := store.delivery.targets_after(row.reaction, after, VERIFY_LIMITS.table_rows):
        for target in targets:
            name = f"target {target.key!r} of reaction {row.name!r}"
            if why := _impossible(target, last_seq, epoch):
                raise RuleBroken("targets", target.seq, f"{name} {why}")
            again = store.delivery.parked_of(row.reaction, target.key, ParkedState.REPLAY, MAX_INT)
            if len(again) != target.replays:
                raise RuleBroken(
                    "parked", target.seq, f"{name} has {len(again)} records to be tried again, it says {target.replays}"
                )
            is_behind = store.delivery.has_record(row.topic, MAIN_ID, target.key, target.position)
            if (
                target.state == TargetPhase.IDLE
                and is_behind
                and row.state != SubscriptionState.RETIRED
                and not row.is_filling
            ):
                raise RuleBroken(
                    "targets", target.seq, f"{name} has something to deliver, and no worker would be given it"
                )
        after = targets[-1].key


def _impossible(target: TargetRow, last_seq: int, epoch: int) -> str:
    if target.state not in tuple(TargetPhase):
        return f"is in state {target.state}, which there is not"
    if (target.due_us == NEVER) != (target.state in (TargetPhase.IDLE, TargetPhase.BLOCKED)):
        return f"is due at {target.due_us} and in state {TargetPhase(target.state).name}"
    if bool(target.holder) != (target.state == TargetPhase.LEASED):
        return f"is with {target.holder!r} and in state {TargetPhase(target.state).name}"
    if target.seq > last_seq:
        return f"is at record {target.position}, and the log ends at {last_seq}"
    if target.token // _EPOCH > epoch:
        return f"was given away with token {target.token}, and there were {epoch} epochs"
    return ""


def _check_passed(store: Store, row: SubscriptionRow) -> None:
    """Check that parked records and attempts are of records of their target."""
    places = ("", -1, -1)
    while parked := store.delivery.parked_after(row.reaction, places, VERIFY_LIMITS.table_rows):
        for each in parked:
            target, record = (
                store.delivery.target(row.reaction, each.key),
                store.delivery.record(row.topic, (each.seq, each.ordinal)),
            )
            is_known = target is not None and record is not None and record.key == each.key
            if target is None or not is_known or each.state not in tuple(ParkedState):
                raise RuleBroken(
                    "parked", each.seq, f"{row.name!r} passed over a record that {each.key!r} does not have"
                )
            if (each.seq, each.ordinal) > target.position:
                raise RuleBroken(
                    "parked", each.seq, f"{row.name!r} passed over a record that {each.key!r} comes to yet"
                )
        places = (parked[-1].key, parked[-1].seq, parked[-1].ordinal)
    slots = ("", -1, -1, -1)
    while attempts := store.delivery.attempts_after(row.reaction, slots, VERIFY_LIMITS.table_rows):
        for tried in attempts:
            if store.delivery.target(row.reaction, tried.key) is None:
                raise RuleBroken(
                    "attempts", tried.seq, f"{row.name!r} tried to deliver to {tried.key!r}, which has no target"
                )
        slots = (attempts[-1].key, attempts[-1].seq, attempts[-1].ordinal, attempts[-1].slot)


_DERIVED = (Part.HEADS, Part.SNAPSHOTS, Part.META)  # compared with the log first, since that says more


def begin(store: Store, last_seq: int) -> DocumentHistories:
    """The names and branches, checked, and every document as it was where the kept history begins."""
    _check_seals(store, (part for part in Part if part not in _DERIVED))
    rows = {row.branch: row for row in store.branches()}
    kept_from = number_in_meta(store, COMPACTED_SEQ, 1)
    lines = DocumentHistories(rows)
    for row in rows.values():
        _check_branch(rows, row, last_seq)
        if not row.parent or (row.fork_seq >= kept_from - 1 and row.parent not in lines.unknown):
            continue
        if not row.deleted:
            raise RuleBroken("branch", row.fork_seq, f"branch {row.name!r} begins before the kept history")
        lines.unknown.add(row.branch)
    if kept_from > 1:
        for row in rows.values():
            if not row.deleted:
                _take_up_bases(store, lines, row.branch, kept_from)
    return lines


def _check_seals(store: Store, parts: Iterable[Part]) -> None:
    """Check the seals of rows that nothing else could contradict, such as the name of a document."""
    for part in parts:
        try:
            store.check(part)
        except CorruptionError as error:
            raise RuleBroken(part.value, 0, str(error)) from error


def _check_branch(rows: dict[int, BranchRow], row: BranchRow, last_seq: int) -> None:
    if (row.branch == MAIN_ID) != (row.name == MAIN) or (row.branch == MAIN_ID) != (row.parent == 0):
        raise RuleBroken("branch", 0, f"branch {row.branch} is called {row.name!r} and has parent {row.parent}")
    if row.branch == MAIN_ID:
        if row.deleted or row.fork_seq:
            raise RuleBroken("branch", 0, f"branch {MAIN!r} is deleted or forked")
        return
    parent = rows.get(row.parent)
    if parent is None or row.parent >= row.branch:
        raise RuleBroken("branch", 0, f"branch {row.name!r} has no parent {row.parent}")
    if not parent.fork_seq <= row.fork_seq <= last_seq or row.merged_seq > last_seq:
        raise RuleBroken("branch", 0, f"branch {row.name!r} is forked at {row.fork_seq}, outside its parent")
    if parent.deleted and not row.deleted:
        raise RuleBroken("branch", 0, f"branch {row.name!r} is based on {parent.name!r}, which was deleted")


def _take_up_bases(store: Store, lines: DocumentHistories, branch: int, kept_from: int) -> None:
    """Begin each document with the snapshot that compaction left of it; whether it has a head is checked later."""
    after = 0
    while docs := store.docs_with_snapshots(branch, after, VERIFY_LIMITS.table_rows):
        for doc in docs:
            base = store.snapshot_at_or_before(branch, doc, kept_from - 1)
            if base is None:
                continue
            key = store.key_of(doc)
            if key is None:
                raise RuleBroken("documents", base.seq, f"document {doc} has a snapshot and no name")
            line = DocumentHistory(doc, snapshot_value(base), base.seq)
            line.snapshots = dict(store.snapshot_seqs(branch, doc))
            lines.begin(branch, key, line)
        after = docs[-1]


def _heads(store: Store, branch: int) -> list[HeadRow]:
    found: list[HeadRow] = []
    while rows := store.heads_of_branch(branch, found[-1].doc if found else 0, VERIFY_LIMITS.table_rows):
        found += rows
    return found


def check(store: Store, replay: Replay) -> None:
    """Everything stored beside the log, after all of it was replayed."""
    lines = replay.lines
    live = [row.branch for row in lines.branches.values() if not row.deleted]
    heads_seq = number_in_meta(store, HEADS_SEQ, 0)
    if heads_seq > replay.last_seq:
        raise RuleBroken("heads", heads_seq, f"heads are written up to {heads_seq}, the log ends at {replay.last_seq}")
    heads = {(branch, row.doc): row for branch in live for row in _heads(store, branch)}
    for branch, key, line in lines.items():
        if branch in live:
            name = f"{doc_text(key)} on branch {lines.branches[branch].name!r}"
            _check_head(store, line, heads.pop((branch, line.doc), None), heads_seq, name)
            _check_snapshots(line, name)
            _check_marks(store, branch, line, name)
    for (branch, doc), head in heads.items():
        raise RuleBroken("heads", head.seq, f"document {doc} has a head on branch {branch} that no commit wrote")
    for row in lines.branches.values():
        if row.deleted and store.heads_of_branch(row.branch, 0, 1):
            raise RuleBroken("heads", 0, f"branch {row.name!r} was deleted and has heads")
    _check_counts(store, replay, heads_seq)
    check_observed(store, replay)
    check_delivered(store, replay)
    _check_seals(store, _DERIVED)


def _check_head(store: Store, line: DocumentHistory, head: HeadRow | None, heads_seq: int, name: str) -> None:
    """The row as it must have been when heads were last written back."""
    written = line.written_at(heads_seq)
    if head is None:
        if written:
            raise RuleBroken("heads", written, f"{name} was written and has no head")
        return
    if head.seq != written:
        raise RuleBroken("heads", head.seq, f"{name} was written at {written}, its head says {head.seq}")
    # A snapshot may have been thinned away since; then there are newer ones, which recovery finds.
    thinned = max(line.snapshots, default=0) > heads_seq
    if head.base_seq and head.base_seq not in line.snapshots and not thinned:
        raise RuleBroken("heads", head.seq, f"{name} is based on a snapshot at {head.base_seq}, which is missing")
    since = list(line.between(head.base_seq, head.seq))
    found = (head.patches, head.patch_bytes)
    expected = (len(since), sum(write.size for write in since))
    # Earlier versions charged a document the whole of each commit that wrote it.
    most = sum(write.commit_size for write in since)
    if head.patches != expected[0] or not expected[1] <= head.patch_bytes <= most:
        raise RuleBroken("heads", head.seq, f"the head of {name} counts {found} patches and bytes, not {expected}")
    if head.base_seq in line.snapshots:
        base = store.snapshot_at_or_before(head.branch, head.doc, head.base_seq)
        size = len(base.body) if base is not None else 0
        ordinal = line.snapshots[head.base_seq] or head.ordinal  # one that compaction made is outside the numbering
        if (head.base_bytes, head.ordinal) != (size, ordinal):
            raise RuleBroken(
                "heads",
                head.seq,
                f"the head of {name} is based on snapshot {head.ordinal} of {head.base_bytes} bytes, which is number "
                f"{ordinal} of {size}",
            )


def _check_snapshots(line: DocumentHistory, name: str) -> None:
    for seq in line.snapshots:
        if seq != line.base_seq and line.written_at(seq) != seq:
            raise RuleBroken("snapshot", seq, f"{name} has a snapshot at {seq}, where nothing wrote it")


def _check_marks(store: Store, branch: int, line: DocumentHistory, name: str) -> None:
    """C2: the stored index may know of more writes than there were, never of fewer."""
    row = store.marks(branch, line.doc)
    if row is None:
        if line.base_seq:
            raise RuleBroken("marks", line.base_seq, f"{name} was compacted and has no write index")
        return
    try:
        marks = WriteIndex.decode(row.body, 2**62)
    except (msgspec.MsgspecError, ValueError, TypeError, IndexError) as error:
        raise RuleBroken("marks", row.seq, f"the write index of {name} cannot be read: {error}") from error
    if marks.newest() > row.seq:
        raise RuleBroken("marks", row.seq, f"the write index of {name} names seq {marks.newest()}, which is after it")
    latest: dict[tuple[Path, Depth], dict[int, int]] = defaultdict(dict)
    for write in reversed(list(line.between(0, row.seq))):
        for path, keyset in write.changed:
            for end in range(len(path) + 1):
                latest[path[:end], Depth.DEEP][write.session] = write.seq
            latest[path, Depth.SHAPE][write.session] = write.seq
            if keyset and path:
                latest[path[:-1], Depth.SHAPE][write.session] = write.seq
    for (path, depth), by_session in latest.items():
        first, *others = sorted(by_session.items(), key=lambda item: -item[1])
        second = others[0] if others else (NO_SESSION_ID, 0)
        # C3: a session that the index takes for the writer is left out, so it must be asked about, too.
        named = {NO_SESSION_ID, first[0], second[0], *marks.writers(path)}
        for leave_out in named:
            seq = second[1] if leave_out == first[0] else first[1]
            known = marks.latest(path, depth, leave_out)
            if known < seq:
                raise RuleBroken(
                    "marks", seq, f"the write index of {name} says {known} for {path}, leaving out {leave_out}"
                )


def _check_counts(store: Store, replay: Replay, heads_seq: int) -> None:
    """Check that every stored row was written or sent by a commit, and that rows kept from before are unchanged."""
    if number_in_meta(store, KEPT_SUM, 0) != store.sum_before(replay.kept_from):
        raise RuleBroken(
            "kept",
            0,
            f"the rows kept from before seq {replay.kept_from} (rows, events, records) was edited, or lacks some",
        )
    written = len({line.doc for _, _, line in replay.lines.items()})
    if replay.kept_from == 1 and store.last_doc() != written:
        raise RuleBroken("documents", 0, f"{store.last_doc()} documents are listed, {written} were written")
    # Commits on branches that were deleted are never later than the heads: both are written together.
    since = [line.doc for _, _, line in replay.lines.items() if line.last_seq > heads_seq]
    made = max([number_in_meta(store, DOCUMENTS_MADE, 0), *since])
    if store.last_doc() != made:
        raise RuleBroken("documents", 0, f"{store.last_doc()} documents are listed, {made} were made")
    after = (replay.kept_from - 1, "\U0010ffff")
    stored = 0
    while events := store.events_after(after, VERIFY_LIMITS.table_rows):
        for event in events:
            expected = replay.events.get(event.id)
            if expected is None:
                raise RuleBroken("events", event.seq, f"event {event.id!r} is stored, and was not sent or is handled")
            if expected != event:
                raise RuleBroken(
                    "events", event.seq, f"event {event.id!r} is stored as {event[1:]}, not {expected[1:]}"
                )
        stored += len(events)
        after = (events[-1].seq, events[-1].id)
    if stored != len(replay.events):
        missing = next(event for id, event in replay.events.items() if store.event(id) is None)
        raise RuleBroken("events", missing.seq, f"event {missing.id!r} was sent, is not handled, and is not stored")
    for topic, sent in replay.records.items():
        place = (replay.kept_from - 1, 2**62)
        found = 0
        while records := store.records_after(topic, place, VERIFY_LIMITS.table_rows):
            found += len(records)
            place = (records[-1].seq, records[-1].ordinal)
        if found != sent:
            raise RuleBroken("records", 0, f"topic {topic!r} holds {found} records, {sent} were emitted")
