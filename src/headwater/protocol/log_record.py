"""The log record: the stored form of one accepted frame, and the decoding of parts of it.

A record holds the accepted commits of one frame, in order, each as the exact bytes that a replay is compared with
(C10), together with the seq of the previous write to each document that it writes. These back pointers make the
history of one document a list that starts at its head, so that no index row is written per patch. An operation that
changed nothing when it was admitted is no write: it has `DROPPED` in place of that seq.

An entry also carries the observations of the runs behind its commit that the engine writes back to its table later.

A commit may write thousands of documents, and rebuilding one of them must cost only its own part. The structs here
leave everything else encoded. They are for bytes from the engine's own log only, which were checked when they were
accepted: skipped parts are not checked again. `engine.verify` decodes whole commits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Raw

from headwater.data.address import DocKey
from headwater.data.codec import ext_hook
from headwater.data.limits import STORED_VALUE_LIMITS
from headwater.data.patch import Patch, validate_patch
from headwater.protocol.commit import NO_PROVENANCE, NodeResult, Operation, Provenance, encode_patches

DROPPED: Final = -1
"""In the place of a back pointer: the operation changed nothing, and is no part of the history of its document."""


class Entry(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """One accepted commit, still encoded, and per operation the seq of the write before it (0: none), or `DROPPED`.

    `observed` are observations of its runs, as `engine.observations` encodes them, that the table does not have yet.
    """

    commit: msgspec.Raw
    previous: tuple[int, ...]
    observed: tuple[bytes, ...] = ()


Observed = Mapping[int, Sequence[bytes]]
"""Observations by the places of their commits."""
_NOTHING: Final[Observed] = {}
_decoder = msgspec.msgpack.Decoder(tuple[Entry, ...])
_encode_part = msgspec.msgpack.Encoder().encode
_ENTRY: Final = b"\x92"  # MessagePack: an array of two
_OBSERVED: Final = b"\x93"  # an array of three
_ONE: Final = b"\x91\x92"  # an array of one entry


def encode_record(entries: list[tuple[bytes, tuple[int, ...]]], observed: Observed = _NOTHING) -> bytes:
    """The record of a frame. The commits are encoded already, so their bytes are joined, not encoded again."""
    if len(entries) == 1 and not observed:
        encoded, previous = entries[0]
        return _ONE + encoded + _encode_part(previous)
    parts = [_array_of(len(entries))]
    for place, (encoded, previous) in enumerate(entries):
        if place in observed:
            parts += (_OBSERVED, encoded, _encode_part(previous), _encode_part(observed[place]))
        else:
            parts += (_ENTRY, encoded, _encode_part(previous))
    return b"".join(parts)


def _array_of(length: int) -> bytes:
    """The MessagePack header of an array."""
    if length < 16:
        return bytes((0x90 | length,))
    return b"\xdc" + length.to_bytes(2, "big") if length < 2**16 else b"\xdd" + length.to_bytes(4, "big")


def decode_record(body: bytes) -> tuple[Entry, ...]:
    return _decoder.decode(body)


class EncodedOperation(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """An operation whose patches are still encoded."""

    doc: DocKey
    patches: Raw


class CommitOutline(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The beginning of a commit: its number, and its operations, still encoded."""

    local_seq: int
    operations: tuple[EncodedOperation, ...] = ()


class _Origin(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A commit of which only its provenance is decoded."""

    local_seq: int
    operations: Raw = Raw()
    reads: Raw = Raw()
    preconditions: Raw = Raw()
    branch: Raw = Raw()
    events: Raw = Raw()
    records: Raw = Raw()
    provenance: Provenance = NO_PROVENANCE
    results: tuple[NodeResult, ...] = ()


_outline_decoder = msgspec.msgpack.Decoder(CommitOutline)
_patches_decoder = msgspec.msgpack.Decoder(tuple[Patch, ...], ext_hook=ext_hook)
_origin_decoder = msgspec.msgpack.Decoder(_Origin)


def decode_outline(data: bytes | Raw) -> CommitOutline:
    """Decode which documents a commit writes, and none of its patches."""
    return _outline_decoder.decode(data)


def charged_bytes(encoded: bytes | Raw, operations: int) -> list[int]:
    """The bytes that each document of a commit is charged for it: the size of its own patches.

    A commit of one operation is charged as a whole, which is no less than its patches and needs no decoding.
    """
    if operations == 1:
        return [len(encoded)]
    # fault log_record.documents_charged_whole_commit: return [len(encoded)] * operations
    return [len(operation.patches) for operation in _outline_decoder.decode(encoded).operations]


def sizes_charged(encoded: bytes, operations: Sequence[Operation]) -> list[int]:
    """The same for a commit that was just encoded, without decoding it."""
    if len(operations) == 1:
        return [len(encoded)]
    return [len(encode_patches(operation.patches)) for operation in operations]


def decode_patches(data: Raw) -> tuple[Patch, ...]:
    """The patches of one operation, frozen."""
    return tuple([validate_patch(patch, STORED_VALUE_LIMITS) for patch in _patches_decoder.decode(data)])


def decode_provenance(data: bytes | Raw, doc: DocKey | None = None) -> Provenance:
    """Who made a commit, and why, without decoding the rest; of a wave, the result that wrote a document."""
    origin = _origin_decoder.decode(data)
    if not origin.results or doc is None:
        return origin.provenance
    place = [operation.doc for operation in decode_outline(data).operations].index(doc)
    return [result.provenance for result in origin.results for _ in range(result.operations)][place]
