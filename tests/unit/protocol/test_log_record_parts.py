"""A part of a commit is what decoding all of it would have given for that part."""

from __future__ import annotations

import msgspec
import pytest

from headwater.data.address import Depth, DocKey, Link
from headwater.data.patch import append, replace
from headwater.protocol.commit import (
    NO_PROVENANCE,
    Commit,
    NodeResult,
    Operation,
    OriginCommitted,
    Provenance,
    Read,
    SentEvent,
    TopicRecord,
    encode_commit,
)
from headwater.protocol.log_record import (
    charged_bytes,
    decode_outline,
    decode_patches,
    decode_provenance,
    sizes_charged,
)

A, B = DocKey("space", "a"), DocKey("user:ann", "b")
COMMIT = Commit(
    7,
    (
        Operation(A, (replace(("k", 0), {"l": (1, b"\x00", Link(None, "space", "b", ()))}), append((), ("y",)))),
        Operation(B, ()),
    ),
    (Read(A, ("k",), Depth.SHAPE, 3, ((4, 5),)),),
    (OriginCommitted(6),),
    "side",
    (SentEvent("e", "stream", {"x": 1}, 11),),
    (TopicRecord("topic", "key", None),),
    Provenance("node", "print", ((A, ("k",)),), derived=True),
    (NodeResult(Provenance("first"), 1), NodeResult(Provenance("lost"), 0), NodeResult(Provenance("second"), 1)),
)


def test_the_outline_names_what_is_written_and_leaves_it_encoded() -> None:
    outline = decode_outline(encode_commit(COMMIT))
    assert outline.local_seq == 7
    assert [operation.doc for operation in outline.operations] == [A, B]
    assert [decode_patches(each.patches) for each in outline.operations] == [op.patches for op in COMMIT.operations]


def test_patches_come_back_frozen() -> None:
    (operation,) = decode_outline(encode_commit(Commit(1, (Operation(A, (replace((), [1, [2]]),)),)))).operations
    (patch,) = decode_patches(operation.patches)
    assert patch.arg == (1, (2,))


def test_the_provenance_is_found_behind_everything_else() -> None:
    assert decode_provenance(encode_commit(COMMIT)) == COMMIT.provenance
    assert decode_provenance(encode_commit(Commit(1))) == NO_PROVENANCE
    assert decode_provenance(encode_commit(Commit(1)), A) == NO_PROVENANCE


def test_sizes_are_charged_alike_before_and_after_a_commit_is_stored() -> None:
    for commit in (COMMIT, Commit(1, COMMIT.operations[:1]), Commit(1)):
        encoded = encode_commit(commit)
        assert sizes_charged(encoded, commit.operations) == charged_bytes(encoded, len(commit.operations))


def test_the_provenance_of_a_document_is_that_of_the_result_that_wrote_it() -> None:
    assert [decode_provenance(encode_commit(COMMIT), doc).node for doc in (A, B)] == ["first", "second"]


def test_bytes_of_an_older_version_lack_parts_at_the_end() -> None:
    short = msgspec.msgpack.encode([3])
    assert decode_outline(short).operations == ()
    assert decode_provenance(short) == NO_PROVENANCE


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x01", msgspec.msgpack.encode([1, "x"]), encode_commit(COMMIT)[:-1]])
def test_bytes_that_are_no_commit_are_refused(data: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode_outline(data)
