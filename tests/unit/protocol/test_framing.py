"""Framing: frames as RFC 6455 has them, read back by a general parser, and cut out of any stream of bytes."""

from __future__ import annotations

import pytest
from websockets.frames import Frame
from websockets.streams import StreamReader

from headwater.protocol.framing import BINARY, MASKED, TEXT, find_frame, make_frame, make_masked_frame, unmask

LENGTHS = [0, 1, 125, 126, 65_535, 65_536, 100_000]
MASK = b"\x01\x80\xff\x00"


def parsed(data: bytes, *, masked: bool) -> Frame:
    reader = StreamReader()
    reader.feed_data(data)
    with pytest.raises(StopIteration) as read:
        next(Frame.parse(reader.read_exact, mask=masked))
    frame = read.value.value
    assert isinstance(frame, Frame)
    return frame


@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("masked", [False, True])
def test_a_frame_is_read_as_it_was_meant(length: int, text: bool, masked: bool) -> None:
    payload = bytes(n % 251 for n in range(length))
    data = make_masked_frame(payload, MASK, text=text) if masked else make_frame(payload, text=text)
    frame = parsed(data, masked=masked)
    assert bytes(frame.data) == payload
    assert frame.fin
    assert frame.opcode.name == ("TEXT" if text else "BINARY")


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("masked", [False, True])
def test_a_frame_is_cut_out_wherever_it_is(length: int, masked: bool) -> None:
    payload = bytes(n % 251 for n in range(length))
    frame = make_masked_frame(payload, MASK, text=False) if masked else make_frame(payload, text=True)
    data = b"before" + frame + b"behind"
    begin, end = find_frame(data, 6)
    assert end == 6 + len(frame)
    assert data[6] == (BINARY if masked else TEXT)
    assert bool(data[7] & MASKED) is masked
    assert (unmask(data[begin:end], data[begin - 4 : begin]) if masked else data[begin:end]) == payload


@pytest.mark.parametrize("length", LENGTHS)
def test_of_a_frame_whose_head_is_not_here_nothing_is_told_and_of_one_with_a_head_where_it_ends(length: int) -> None:
    frame = make_masked_frame(bytes(length), MASK, text=False)
    head = 2 if length < 126 else 4 if length < 65_536 else 10
    for here in range(head):
        assert find_frame(frame[:here], 0) == (0, 0)
    for here in (head, min(head + 4, len(frame)), len(frame)):
        assert find_frame(frame[:here], 0) == (head + 4, len(frame))
