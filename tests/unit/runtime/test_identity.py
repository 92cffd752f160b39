"""The difference between two observations of a node, in words."""

from __future__ import annotations

from headwater.runtime.pieces.identity import changes, kind_of, with_kinds
from tests.unit.pieces.test_fingerprint_changes import SHOP, of


def test_what_two_observations_of_a_node_differ_in_is_told_in_words() -> None:
    made = with_kinds("computation", of(SHOP).kinds)
    assert kind_of(made) == "computation"
    assert changes(made, with_kinds("computation", of(SHOP.replace("RATE = 2", "RATE = 3")).kinds)) == ("a constant",)
    assert changes(made, with_kinds("materializer", of(SHOP).kinds)) == ("what kind of member it is",)
    # For all else is the same.
    assert changes(made, made) == ("what it was given, what its reads are by default, or where it writes",)
    assert changes("computation", made) == ("something that it refers to",)
    assert changes("computation", "computation") == ("something that it refers to",)
