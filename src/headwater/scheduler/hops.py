"""How far a change came over other sessions before it was shown here. Decides nothing; spec 001, I6."""

from __future__ import annotations

from typing import Final

from headwater.protocol.ways import Ways
from headwater.replica.feed import Changed

UNKNOWN: Final = -1
"""In the place of hops: a document arrived as a whole, or something was taken back."""


def hops_of(change: Changed, ways: object | None) -> int:
    """How far a change came that nobody here wrote."""
    way = ways.get(change.document.key) if isinstance(ways, Ways) else None
    return UNKNOWN if way is None else way.hops
