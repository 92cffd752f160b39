"""Reading a part of a commit: which documents it writes, one of its operations, or who made it.

A commit may write thousands of documents, and rebuilding one of them must cost what that one needs. Owns the
shapes that leave everything else encoded. For bytes from our own log only, which were checked when they were
accepted: what is skipped here is not checked again. Whoever verifies decodes whole commits.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

from headwater.data.address import DocKey
from headwater.data.codec import ext_hook
from headwater.data.limits import STORED_VALUE_LIMITS
from headwater.data.patch import Patch, validate_patch
from headwater.protocol.commit import NO_PROVENANCE, Provenance


class EncodedOperation(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """An operation whose patches are still encoded."""

    doc: DocKey
    patches: Raw


class Outline(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The beginning of a commit: which one it is, and what it writes."""

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


_outline_decoder = msgspec.msgpack.Decoder(Outline)
_patches_decoder = msgspec.msgpack.Decoder(tuple[Patch, ...], ext_hook=ext_hook)
_origin_decoder = msgspec.msgpack.Decoder(_Origin)


def decode_outline(data: bytes | Raw) -> Outline:
    """What a commit writes, without decoding any of it."""
    return _outline_decoder.decode(data)


def charged_bytes(encoded: bytes | Raw, operations: int) -> list[int]:
    """The bytes that each document of a commit is charged for it: the size of its own patches.

    A commit of one operation is charged as a whole, which is no less than its patches and needs no decoding.
    """
    if operations == 1:
        return [len(encoded)]
    # fault partial.documents_charged_whole_commit: return [len(encoded)] * operations
    return [len(operation.patches) for operation in _outline_decoder.decode(encoded).operations]


def decode_patches(data: Raw) -> tuple[Patch, ...]:
    """The patches of one operation, frozen."""
    return tuple([validate_patch(patch, STORED_VALUE_LIMITS) for patch in _patches_decoder.decode(data)])


def decode_provenance(data: bytes | Raw) -> Provenance:
    """Who made a commit, and why, without decoding the rest."""
    return _origin_decoder.decode(data).provenance
