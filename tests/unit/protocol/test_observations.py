"""The parts of an observation that travel as bytes: what is written is read back, and what is none is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.data.address import Depth, DocKey
from headwater.data.limits import DEFAULT_VALUE_LIMITS, ValueLimits
from headwater.errors import ProtocolError
from headwater.protocol.observations import (
    About,
    Footprint,
    NodeKey,
    Touched,
    decode_about,
    decode_footprint,
    encode_part,
)

TEXTS = st.text(max_size=20)
PATHS = st.lists(st.one_of(TEXTS, st.integers(0, 2**40)), max_size=4).map(tuple)
READS = st.builds(Touched, st.builds(DocKey, TEXTS, TEXTS), PATHS, st.sampled_from(Depth))
NODES = st.builds(NodeKey, TEXTS, st.integers(0, 2**53 - 1), TEXTS, TEXTS, TEXTS, TEXTS)


@given(about=st.builds(About, NODES, TEXTS, TEXTS, TEXTS))
def test_what_a_node_is_survives_its_bytes(about: About) -> None:
    assert decode_about(encode_part(about)) == about


@given(footprint=st.builds(Footprint, st.lists(READS, max_size=5).map(tuple), st.lists(TEXTS, max_size=3).map(tuple)))
def test_what_a_node_read_survives_its_bytes(footprint: Footprint) -> None:
    assert decode_footprint(encode_part(footprint), DEFAULT_VALUE_LIMITS) == footprint


@given(data=st.binary(max_size=40))
def test_bytes_of_anything_are_read_or_refused_by_name(data: bytes) -> None:
    for decode in (decode_about, lambda data: decode_footprint(data, DEFAULT_VALUE_LIMITS)):
        try:
            decode(data)
        except ProtocolError:
            continue


@pytest.mark.parametrize("path", [(-1,), ("x",) * 300, (True,), (1.5,), ("\ud800",)])
def test_a_path_that_no_document_has_is_refused(path: tuple[object, ...]) -> None:
    with pytest.raises((ProtocolError, UnicodeEncodeError)):
        decode_footprint(encode_part(Footprint((Touched(DocKey("space", "d"), path),))), ValueLimits())  # type: ignore[arg-type]


def test_the_same_run_has_the_same_bytes() -> None:
    """The engine compares them instead of what is in them."""
    made = [encode_part(Footprint((Touched(DocKey("space", "d"), ("a", 0), Depth.SHAPE),), ("k",))) for _ in range(2)]
    assert made[0] == made[1]
    assert len(encode_part(Footprint((Touched(DocKey("space", "d")),)))) < 20
