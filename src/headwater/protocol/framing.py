"""A message as one WebSocket frame, and a stream of bytes as whole frames (RFC 6455, section 5.2).

Most messages of this protocol fit one frame and arrive in one read. For these a general parser is most of the work, so
they are parsed here; everything else (a control frame, a message in parts, a broken peer) is cut out whole and left to
a general parser. Never looks into a payload, and keeps no state of a connection.
"""

from __future__ import annotations

import struct
from typing import Final

from websockets.speedups import apply_mask

TEXT: Final = 0x81  # the first byte of a whole message of that kind
BINARY: Final = 0x82
MASKED: Final = 0x80  # in the second byte

unmask = apply_mask
"""The payload of a masked frame, given the four bytes before it."""


def make_frame(payload: bytes, *, text: bool) -> bytes:
    """A message as a server sends it: one frame, not masked."""
    kind, length = TEXT if text else BINARY, len(payload)
    if length < 126:
        return bytes((kind, length)) + payload
    if length < 65_536:
        return struct.pack("!BBH", kind, 126, length) + payload
    return struct.pack("!BBQ", kind, 127, length) + payload


def make_masked_frame(payload: bytes, mask: bytes, *, text: bool) -> bytes:
    """Return a message as a client sends it: one frame, masked with four unpredictable bytes."""
    kind, length = TEXT if text else BINARY, len(payload)
    if length < 126:
        head = bytes((kind, MASKED | length))
    elif length < 65_536:
        head = struct.pack("!BBH", kind, MASKED | 126, length)
    else:
        head = struct.pack("!BBQ", kind, MASKED | 127, length)
    return head + mask + apply_mask(payload, mask)


def find_frame(data: bytes, at: int) -> tuple[int, int]:
    """Return where the payload of the frame at `at` begins, and where the frame ends, which may be beyond the data.

    (0, 0): the header of the frame is not complete.
    """
    size = len(data) - at
    if size < 2:
        return 0, 0
    second = data[at + 1]
    length, begin = second & 127, at + 2
    if length == 126:
        if size < 4:
            return 0, 0
        length, begin = int.from_bytes(data[begin : begin + 2], "big"), begin + 2
    elif length == 127:
        if size < 10:
            return 0, 0
        length, begin = int.from_bytes(data[begin : begin + 8], "big"), begin + 8
    if second & MASKED:
        begin += 4
    return begin, begin + length
