"""The seal of a row: a checksum over its columns, for rows that nothing else in the space vouches for.

A commit is covered by the chain of the log and a snapshot by its own seal. The name of a document, the last verdict of
a session and the holder of a lease are each in one row only. Computes seals, and raises the error of a broken one.
Never reads or writes a row.
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

from headwater.errors import CorruptionError

SEAL_FUNCTION: Final = "headwater_seal"
"""The name under which SQL statements call `row_seal`."""

_PLAIN: Final = frozenset((int, str))
"""Types that are sealed as text. Most rows have no others."""


def row_seal(*columns: object) -> int:
    """The checksum of a row. Text that cannot be stored has one, too: refusing it is the store's."""
    if _PLAIN.issuperset(map(type, columns)):
        return crc32("\0".join(map(str, columns)).encode("utf-8", "surrogatepass"))
    texts, bodies = [], []
    for column in columns:
        if type(column) is bytes:
            bodies.append(column)
            texts.append(f"{len(column)} bytes")  # the bytes themselves follow the texts
        else:
            texts.append(str(int(column)) if type(column) is bool else str(column))  # as SQLite has them
    seal = crc32("\0".join(texts).encode("utf-8", "surrogatepass"))
    for body in bodies:
        seal = crc32(body, seal)
    return seal


def observation_seal(
    branch: int, piece: int, generation: int, member: int, child: str, scope: int, state: bytes, body: bytes
) -> int:
    """The same for rows of which one is written with every run of a node: quicker, since their columns are known."""
    key = f"{branch},{piece},{generation},{member},{scope},{len(state)},{child}"
    return crc32(body, crc32(state, crc32(key.encode("utf-8", "surrogatepass"))))


def broken_seal(what: str) -> CorruptionError:
    """Return the error for a row that does not match its checksum. `what` names the row."""
    return CorruptionError(
        f"the row of {what} does not match its checksum: it was edited or torn. Run `headwater verify`, and restore "
        "a backup."
    )
