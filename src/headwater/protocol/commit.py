"""The commit: a change that a session asks the engine to accept, all of it or nothing (C7).

Every struct is positional on the wire, so that a field can be added at the end with a default and an older peer's bytes
still decode. Values inside are frozen (`data.value`): the builder of a commit freezes them, `decode_frame` and
`decode_record` do it for bytes. Nothing here decides anything.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from headwater.data.address import Depth, DocKey
from headwater.data.codec import enc_hook, ext_hook
from headwater.data.limits import DEFAULT_VALUE_LIMITS, STORED_VALUE_LIMITS, ValueLimits
from headwater.data.patch import Patch, validate_patch
from headwater.data.path import Path, check_path
from headwater.data.value import Value, freeze, is_frozen
from headwater.errors import InvalidValueError, ProtocolError
from headwater.protocol.message import Number
from headwater.protocol.reactions import Since

MAIN: Final = "main"
"""The branch every space begins with."""


class Read(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """One address that a transaction read, and the state that the read stood on.

    The view was the branch at `seq` plus the session's own pending commits named by `layers`, inclusive ranges of
    `local_seq`. Without layers it is a confirmed read. C3: both are the truth, never rounded.
    """

    doc: DocKey
    path: Path
    depth: Depth
    seq: int
    layers: tuple[tuple[int, int], ...] = ()


class Operation(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """The patches of one commit to one document, applied in order."""

    doc: DocKey
    patches: tuple[Patch, ...]


class OriginCommitted(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="origin_committed"):
    """The commit of this session with that `local_seq` was accepted."""

    local_seq: int


class EntityAbsent(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="entity_absent"):
    """The document was never written on this branch. A deleted document counts as present."""

    doc: DocKey


class LeaseHeld(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="lease_held"):
    """The lease is still the one with this fencing token."""

    name: str
    token: int


Precondition = OriginCommitted | EntityAbsent | LeaseHeld


class SentEvent(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An event sent inside the transaction: stored with the commit that caused it, due at `due_us`."""

    id: str
    stream: str
    payload: Any
    due_us: int = 0


def event_id_of(row: str, payload: Value) -> str:
    """Return the id of the event that a stored row is about: the row's own, or the one that its sender gave."""
    said = payload.get("id") if isinstance(payload, Mapping) else None
    return said if isinstance(said, str) else row


class TopicRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A record emitted to a topic; `key` orders it among the records of the same target, `source` is who emitted it."""

    topic: str
    key: str
    payload: Any
    source: str = ""


class Delivered(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A record that was delivered to a reaction: the position of its target moves with the commit.

    The commit carries `lease_held` for that target. `keeps`: the lease goes on after it.
    """

    reaction: str
    key: str
    seq: Number
    ordinal: Number
    keeps: bool = False


class Declared(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A reaction that receives the records of its commit, and every record that is emitted to the topic after it.

    As with `Subscribe`: one that is known already stays as it is, but for its lane and its priority.
    """

    reaction: str
    topic: str
    since: Since = "now"
    lane: str = ""
    priority: Number = 0


class Provenance(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The writer of a commit, and the reason: the node, its code's fingerprint and the addresses whose change made it
    run.

    `hops` counts how often the cause of a derived commit went from one session to another, one derived commit leading
    to the next: 0 for authored commits, and for commits derived from those alone (I6).
    """

    node: str = ""
    fingerprint: str = ""
    causes: tuple[tuple[DocKey, Path], ...] = ()
    derived: bool = False
    hops: Number = 0


NO_PROVENANCE: Final = Provenance()


class NodeResult(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """One result of a wave: the operations of the commit that are its own, and what it stands on.

    The operations of a wave are those of its results, one after the other. `reads` are places among the reads of the
    commit, and `after` are the places of earlier results of the wave that it read: it is accepted with these or not at
    all. In the log, a result that was not accepted has no operations.
    """

    provenance: Provenance
    operations: Number
    reads: tuple[Number, ...] = ()
    after: tuple[Number, ...] = ()


class Commit(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """One transaction of one session. `local_seq` rises within the session and names it for ever (C10).

    A commit with `results` is a wave. Each result is judged by itself, as a commit with its operations and reads would
    be, and those that are accepted have the one seq of the wave. The reads of a wave are a table for its results.
    """

    local_seq: int
    operations: tuple[Operation, ...] = ()
    reads: tuple[Read, ...] = ()
    preconditions: tuple[Precondition, ...] = ()
    branch: str = MAIN
    events: tuple[SentEvent, ...] = ()
    records: tuple[TopicRecord, ...] = ()
    provenance: Provenance = NO_PROVENANCE
    results: tuple[NodeResult, ...] = ()
    handled: tuple[str, ...] = ()  # ids of stored events of its branch that are over with it; one not stored is nothing
    delivered: tuple[Delivered, ...] = ()  # records that were delivered to reactions with it
    declared: tuple[Declared, ...] = ()  # reactions that hear of its records, and may be new to the space


Frame = Sequence[Commit]
"""Commits that travel together: one store transaction, a verdict each."""

_encoder = msgspec.msgpack.Encoder(enc_hook=enc_hook)
_frame_decoder = msgspec.msgpack.Decoder(tuple[Commit, ...], ext_hook=ext_hook)
_commit_decoder = msgspec.msgpack.Decoder(Commit, ext_hook=ext_hook)

encode_commit = _encoder.encode
"""The one encoding of a commit: the log stores it and a replay is compared with it (C10)."""


encode_patches = _encoder.encode
"""The encoding of the patches of an operation, as they are in that of its commit."""


def encode_frame(frame: Frame) -> bytes:
    return _encoder.encode(tuple(frame))


class Checked(tuple[Commit, ...]):
    """A frame whose values were checked against `limits` and frozen, so that no receiver checks them again."""

    limits: ValueLimits


def checked_frame(frame: Frame, limits: ValueLimits) -> Checked:
    """The frame with every value checked and frozen, or ProtocolError."""
    known: set[int] = set()
    checked = Checked([checked_commit(commit, limits, known) for commit in frame])
    checked.limits = limits
    return checked


class WellFormed(tuple[Commit, ...]):
    """A frame that a session of this process made of objects of the right types. Its values are not checked yet."""


def decode_frame(data: bytes, limits: ValueLimits = DEFAULT_VALUE_LIMITS) -> Checked:
    """Bytes from a peer. Every value is checked and frozen; anything else is a ProtocolError that says where."""
    try:
        frame = _frame_decoder.decode(data)
    except (msgspec.MsgspecError, InvalidValueError, ValueError, RecursionError) as error:
        raise ProtocolError(f"the frame is not a sequence of commits: {error}") from error
    return checked_frame(frame, limits)


def decode_commit(data: bytes | msgspec.Raw) -> Commit:
    """Bytes from our own log, checked when they were accepted: freezes, and lets errors through."""
    commit = _commit_decoder.decode(data)
    return checked_commit(commit, STORED_VALUE_LIMITS)


class _Key(msgspec.Struct, frozen=True, array_like=True):
    """The beginning of a commit: enough to know which one it is."""

    local_seq: int


_key_decoder = msgspec.msgpack.Decoder(_Key)


def without(commit: Commit, docs: Container[DocKey]) -> Commit:
    """A commit without its operations on these documents."""
    kept = tuple([operation for operation in commit.operations if operation.doc not in docs])
    results: list[NodeResult] = []
    for part, result in zip(parts_of(commit), commit.results, strict=False):
        count = len([operation for operation in part.operations if operation.doc not in docs])
        results.append(result if count == result.operations else msgspec.structs.replace(result, operations=count))
    return msgspec.structs.replace(commit, operations=kept, results=tuple(results))


class CommitPart(NamedTuple):
    """What one result of a wave wrote and read, or all of another commit."""

    provenance: Provenance
    operations: tuple[Operation, ...]
    reads: tuple[Read, ...]
    after: tuple[int, ...] = ()  # the places of results of the wave that it read


def parts_of(commit: Commit) -> list[CommitPart]:
    """The results of a wave, or the one part of any other commit."""
    if not commit.results:
        return [CommitPart(commit.provenance, commit.operations, commit.reads)]
    parts: list[CommitPart] = []
    begin = 0
    for result in commit.results:
        end = begin + result.operations
        reads = tuple([commit.reads[place] for place in result.reads])
        parts.append(CommitPart(result.provenance, commit.operations[begin:end], reads, result.after))
        begin = end
    return parts


def part_that_wrote(commit: Commit, doc: DocKey) -> CommitPart:
    """The result of a wave that wrote a document; all of any other commit."""
    parts = parts_of(commit)
    written = [part for part in parts if any(operation.doc == doc for operation in part.operations)]
    return written[0] if written else CommitPart(commit.provenance, commit.operations, commit.reads)


def origins_of(commit: Commit) -> Sequence[Provenance]:
    """The provenance of each operation."""
    if not commit.results:
        return [commit.provenance] * len(commit.operations)
    return [result.provenance for result in commit.results for _ in range(result.operations)]


def without_results(commit: Commit, lost: Iterable[int]) -> Commit:
    """A wave without the operations of the results at these places: the form in which the log keeps it."""
    parts = parts_of(commit)
    return without(commit, {operation.doc for place in lost for operation in parts[place].operations})


def lost_results(commit: Commit) -> tuple[int, ...]:
    """The places of the results of a logged wave that were not accepted."""
    return tuple([place for place, result in enumerate(commit.results) if not result.operations])


def local_seq_of(data: bytes | msgspec.Raw) -> int:
    """The number of an encoded commit, without decoding the rest."""
    return _key_decoder.decode(data).local_seq


def is_sound(frame: Iterable[Commit], limits: ValueLimits) -> bool:
    """True if `checked_frame` would return a frame that is equal to this one, which is well-formed.

    It needs few calls for the commits of handlers and results. False: `checked_frame` decides.
    """
    try:
        for commit in frame:
            for operation in commit.operations:
                for kind, path, arg in operation.patches:
                    value = arg
                    if kind == "append" and type(arg) is tuple and len(arg) == 2:
                        value, keep = arg
                        if type(value) is not tuple or keep is not None:
                            return False
                    elif kind not in ("add", "replace"):
                        return False
                    if path:
                        check_path(path, limits)
                    if not is_frozen(value, limits, len(path)):
                        return False
            for read in commit.reads:
                if read.path:
                    check_path(read.path, limits)
            for event in commit.events:
                if not is_frozen(event.payload, limits):
                    return False
            for record in commit.records:
                if not is_frozen(record.payload, limits):
                    return False
    except InvalidValueError:
        return False
    return True


def checked_commit(commit: Commit, limits: ValueLimits, known: set[int] | None = None) -> Commit:
    """The same commit with every foreign path and value checked and frozen.

    `known`: the `id` of each read that was checked before. Results of one wave share the objects of their reads.
    """
    operations: list[Operation] = []
    events = commit.events
    records = commit.records
    try:
        for operation in commit.operations:
            patches: list[Patch] = []
            for patch in operation.patches:
                patches.append(validate_patch(patch, limits))  # A comprehension would be one more call.
            operations.append(Operation(operation.doc, tuple(patches)))
        for read in commit.reads:
            if known is None or id(read) not in known:
                check_path(read.path, limits)
                if known is not None:
                    known.add(id(read))
        if events:
            events = tuple([SentEvent(e.id, e.stream, freeze(e.payload, limits), e.due_us) for e in events])
        if records:
            records = tuple([TopicRecord(r.topic, r.key, freeze(r.payload, limits), r.source) for r in records])
    except InvalidValueError as error:
        raise ProtocolError(f"commit {commit.local_seq} holds a value no document can hold: {error}") from error
    return msgspec.structs.replace(commit, operations=tuple(operations), events=events, records=records)
