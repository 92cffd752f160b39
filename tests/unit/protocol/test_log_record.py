"""The log record keeps the bytes of every commit exactly, with the pointers back."""

from __future__ import annotations

import msgspec
import pytest

from headwater.data.address import DocKey
from headwater.data.patch import replace
from headwater.protocol.commit import Commit, Operation, decode_commit, encode_commit
from headwater.protocol.log_record import decode_record, encode_record


def entry(number: int) -> tuple[bytes, tuple[int, ...]]:
    commit = Commit(number, (Operation(DocKey("space", "d"), (replace((), number),)),))
    return encode_commit(commit), (number - 1,)


@pytest.mark.parametrize("count", [1, 2, 15, 16, 1_000, 65_535, 65_536])
def test_any_number_of_commits_comes_back_byte_for_byte(count: int) -> None:
    entries = [entry(number) for number in range(1, count + 1)]
    decoded = decode_record(encode_record(entries))
    assert len(decoded) == count
    for index in {0, count // 2, count - 1}:
        assert (bytes(decoded[index].commit), decoded[index].previous) == entries[index]
        assert decode_commit(decoded[index].commit).local_seq == index + 1


def test_a_commit_without_operations_has_no_pointers() -> None:
    (only,) = decode_record(encode_record([(encode_commit(Commit(1)), ())]))
    assert only.previous == ()


def test_it_is_plain_message_pack() -> None:
    body = encode_record([entry(1), entry(2)])
    assert msgspec.msgpack.decode(body)[1][1] == [1]


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x01", b"\x91\x91\x01", b"\x91\x93\x01\x90\x91\x01"])
def test_other_bytes_are_no_record(body: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode_record(body)
