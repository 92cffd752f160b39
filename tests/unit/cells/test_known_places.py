"""The places that a stored value of a type decides."""

from __future__ import annotations

from collections.abc import Mapping

from headwater import Model
from headwater.cells.codec import codec_for
from headwater.cells.typed_path import known_places
from headwater.data.address import Depth


class Card(Model):
    title: str
    count: int = 5


def test_known_places_include_a_field_that_was_deleted() -> None:
    """The deleted field has its default, and is not stored: a plain delete over such a Model failed with KeyError."""
    places = known_places(codec_for(Mapping[str, Card]), {"b": {"title": "Tea"}}, ("rows",))
    assert (("rows", "b", "title"), Depth.DEEP) in places
    assert (("rows", "b", "count"), Depth.DEEP) in places
