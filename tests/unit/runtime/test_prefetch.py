"""Documents that a reader of many children is likely to miss next are asked for in growing, bounded numbers."""

from __future__ import annotations

from headwater.data.address import DocKey
from headwater.replica import Document, Replica
from headwater.runtime.core.limits import RUNTIME_LIMITS
from headwater.runtime.pieces.child_set import Listing


def test_what_is_asked_for_ahead_stops_growing_however_often_something_was_missed() -> None:
    listing, home = Listing(), Replica()
    listing.note_shown(None, ("a", "b"))
    asked = [listing.request_size(Document(DocKey("space", f"d{n}"), home), "price") for n in range(40)]
    assert asked[:4] == [64, 512, RUNTIME_LIMITS.prefetched_most, RUNTIME_LIMITS.prefetched_most]
    assert asked[-1] == RUNTIME_LIMITS.prefetched_most
