"""What a second outside attack found about intents: equal is what reads as equal, also if another version stored it."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.data.value import Value
from tests.unit.cells.handle_kit import Hand, Line

STORED: dict[str, Value] = {
    "with a field of a newer version": {"sku": "b", "cents": 5, "qty": 1, "colour": "red"},
    "from before a field had a default": {"sku": "b", "cents": 5},
}


def stored(raw: Value) -> tuple[Hand, Any]:
    hand = Hand()
    lines = hand.cell(tuple[Line, ...], id="lines")
    hand.spaces["shop"].replica.write_whole(lines.document, (raw,), ())
    assert lines.get() == (Line(sku="b", cents=5),)
    return hand, lines


@pytest.mark.parametrize("raw", STORED.values(), ids=STORED.keys())
def test_what_reads_as_equal_is_discarded(raw: Value) -> None:
    _, lines = stored(raw)
    lines.discard(Line(sku="b", cents=5))
    assert lines.get() == ()


@pytest.mark.parametrize("raw", STORED.values(), ids=STORED.keys())
def test_what_reads_as_equal_is_not_added_again(raw: Value) -> None:
    _, lines = stored(raw)
    lines.add(Line(sku="b", cents=5))
    assert lines.get() == (Line(sku="b", cents=5),)
