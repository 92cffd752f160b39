"""Ids that follow from their cause.

Owns the derivation of ids: the same cause gives the same id, on every machine and in every retry, so that
doing something twice makes one thing. It never mints anything from chance or from a clock; times are passed
in. Invariants: two different lists of parts never meet by construction (every part is tagged and length
prefixed, every kind has its own domain); the algorithm never changes, because ids are stored.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import Final

from headwater.data.text import shown
from headwater.errors import InvalidValueError

__all__ = ["ID_LENGTH", "derive", "derive_cached", "event_id", "minted_at", "minted_id"]

_DOMAIN: Final = b"headwater.id.1"
_DIGEST_BYTES: Final = 20
ID_LENGTH: Final = _DIGEST_BYTES * 8 // 5
CACHED_IDS: Final = 4_096  # derivations that are remembered in a process

# Twelve digits of base 32 hold microseconds for 36,000 years. The alphabet ascends, so ids sort by mint time.
_TIME_DIGITS: Final = 12
_TIME_END: Final = 32**_TIME_DIGITS
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuv"
_TWOS: Final = tuple([high + low for high in _DIGITS for low in _DIGITS])
_EVENT_ID: Final = re.compile(rf"[0-9a-v]{{{_TIME_DIGITS}}}-[0-9a-v]{{{ID_LENGTH}}}")


def derive(kind: str, *parts: str | int | bytes) -> str:
    """The id of the thing of `kind` that `parts` cause: 32 characters of `0-9a-v`."""
    tagged = []
    for part in (kind, *parts):
        if type(part) is str and part.isascii():  # The most common parts, without a call.
            tagged.append(b"s%d:%b" % (len(part), part.encode()))
        elif type(part) is int:
            digits = b"%d" % part
            tagged.append(b"i%d:%b" % (len(digits), digits))
        else:
            tagged.append(_part_bytes(part))
    joined = b"".join(tagged)
    digest = hashlib.blake2b(joined, digest_size=_DIGEST_BYTES, person=_DOMAIN)
    n = int.from_bytes(digest.digest(), "big")
    # Without a comprehension: every event has two ids.
    # fmt: off
    return "".join((
        _TWOS[n >> 150], _TWOS[n >> 140 & 1023], _TWOS[n >> 130 & 1023], _TWOS[n >> 120 & 1023],
        _TWOS[n >> 110 & 1023], _TWOS[n >> 100 & 1023], _TWOS[n >> 90 & 1023], _TWOS[n >> 80 & 1023],
        _TWOS[n >> 70 & 1023], _TWOS[n >> 60 & 1023], _TWOS[n >> 50 & 1023], _TWOS[n >> 40 & 1023],
        _TWOS[n >> 30 & 1023], _TWOS[n >> 20 & 1023], _TWOS[n >> 10 & 1023], _TWOS[n & 1023],
    ))
    # fmt: on


@lru_cache(maxsize=CACHED_IDS)
def derive_cached(kind: str, *parts: str) -> str:
    """Return `derive(kind, *parts)`, for parts that come again, such as those of all pieces of a class."""
    return derive(kind, *parts)


def _part_bytes(part: str | int | bytes) -> bytes:
    """Return a part with its tag and its length in front."""
    if isinstance(part, str):
        try:
            data = part.encode()
            return b"s%d:%b" % (len(data), data)
        except UnicodeEncodeError:
            message = f"id part {shown(part)} holds a lone surrogate: decode the text correctly"
            raise InvalidValueError(message) from None
    if isinstance(part, bytes):
        return b"b%d:%b" % (len(part), part)
    if isinstance(part, int) and not isinstance(part, bool):
        data = b"%d" % part
        return b"i%d:%b" % (len(data), data)
    raise InvalidValueError(f"id part {shown(part)} is a {type(part).__name__}: use a str, an int or bytes")


def event_id(origin: str, stream: str, counter: int, minted_us: int) -> str:
    """The id of event number `counter` that `origin` sent to `stream`. Carries its mint time."""
    if type(minted_us) is not int or not 0 <= minted_us < _TIME_END:
        raise InvalidValueError(f"an event cannot be minted at {shown(minted_us)}: use integer microseconds since 1970")
    n = minted_us
    time = f"{_TWOS[n >> 50]}{_TWOS[n >> 40 & 1023]}{_TWOS[n >> 30 & 1023]}{_TWOS[n >> 20 & 1023]}"
    time += f"{_TWOS[n >> 10 & 1023]}{_TWOS[n & 1023]}"
    return f"{time}-{derive('event', origin, stream, counter, minted_us)}"


def minted_at(event_id: str) -> int:
    """When the event was minted, in microseconds."""
    if not isinstance(event_id, str) or not _EVENT_ID.fullmatch(event_id):
        raise InvalidValueError(f"{shown(event_id)} is not an event id: pass the return value of event_id() unchanged")
    return int(event_id[:_TIME_DIGITS], 32)


def minted_id(event_id: str, counter: int) -> str:
    """Document number `counter` that the handler of the event made. A retry gets the same ones."""
    return derive("minted", event_id, counter)
