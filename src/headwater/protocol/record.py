"""The log record: what one accepted frame looks like on disk.

A record holds the accepted commits of one frame, in order, each as the exact bytes a replay is compared with
(C10), together with the seq of the previous write to each document it writes. Those back pointers make the
history of one document a list that starts at its head, so that no index row is written per patch. An operation that
changed nothing when it was admitted is no write: it has `DROPPED` in the place of that seq.
"""

from __future__ import annotations

from typing import Final

import msgspec

DROPPED: Final = -1
"""In the place of a back pointer: the operation changed nothing, and is no part of the history of its document."""


class Entry(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """One accepted commit, still encoded, and per operation the seq of the write before it (0: none), or `DROPPED`."""

    commit: msgspec.Raw
    previous: tuple[int, ...]


_decoder = msgspec.msgpack.Decoder(tuple[Entry, ...])
_encode_previous = msgspec.msgpack.Encoder().encode
_ENTRY: Final = b"\x92"  # MessagePack: an array of two
_ONE: Final = b"\x91\x92"  # an array of one entry


def encode_record(entries: list[tuple[bytes, tuple[int, ...]]]) -> bytes:
    """The record of a frame. The commits are encoded already, so their bytes are joined, not encoded again."""
    if len(entries) == 1:
        encoded, previous = entries[0]
        return _ONE + encoded + _encode_previous(previous)
    parts = [_array_of(len(entries))]
    for encoded, previous in entries:
        parts += (_ENTRY, encoded, _encode_previous(previous))
    return b"".join(parts)


def _array_of(length: int) -> bytes:
    """The MessagePack header of an array."""
    if length < 16:
        return bytes((0x90 | length,))
    return b"\xdc" + length.to_bytes(2, "big") if length < 2**16 else b"\xdd" + length.to_bytes(4, "big")


def decode_record(body: bytes) -> tuple[Entry, ...]:
    return _decoder.decode(body)
