"""Commits as bytes: what was sent is what arrives, and anything else is refused where it enters."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headwater.data.address import Depth, DocKey, Link
from headwater.data.limits import DEFAULT_VALUE_LIMITS, ValueLimits
from headwater.data.patch import Patch, add, append, increment, replace, splice
from headwater.data.value import Value
from headwater.errors import ProtocolError
from headwater.protocol.commit import (
    MAIN,
    Commit,
    EntityAbsent,
    LeaseHeld,
    Operation,
    OriginCommitted,
    Provenance,
    Read,
    SentEvent,
    TopicRecord,
    checked_frame,
    decode_commit,
    decode_frame,
    encode_commit,
    encode_frame,
    is_sound,
)

D = DocKey("space", "d")


def as_value(raw: Any) -> Value:
    """Return an object as if it were a value, for checks that have to find out."""
    found: Value = raw
    return found


FULL = Commit(
    7,
    (
        Operation(D, (replace((), {"a": [1, 2.5, None, True, b"\x00", "ä"], "$x": Link(id="other", path=("p", 1))}),)),
        Operation(
            DocKey("user:ann", "e"), (append(("l",), [1], keep=3), splice(("m",), 0, 1, []), increment(("n",), -2))
        ),
    ),
    (
        Read(D, ("a", 0), Depth.DEEP, 5),
        Read(D, (), Depth.SHAPE, 6, ((1, 3), (5, 5))),
    ),
    (OriginCommitted(6), EntityAbsent(D), LeaseHeld("mail", 4)),
    "dev",
    (SentEvent("e1", "Cart.add", {"line": ("tea", 1)}, 99),),
    (TopicRecord("orders", "k", [b"raw"]),),
    Provenance("Cart.add", "f00", ((D, ("a",)),), True),
)


def plain(commit: Commit) -> list[Any]:
    """A commit as a peer would write it, to be bent by a test."""
    decoded: list[Any] = msgspec.msgpack.decode(encode_commit(commit))
    return decoded


def frame_of(*commits: object) -> bytes:
    return msgspec.msgpack.encode(list(commits))


def test_every_field_survives_the_way_to_bytes_and_back() -> None:
    frozen = decode_frame(encode_frame([FULL]))[0]
    assert decode_frame(encode_frame([frozen])) == (frozen,)
    assert frozen.records[0].payload == (b"raw",)  # an array is a tuple once it has entered
    assert decode_commit(encode_commit(frozen)) == frozen
    assert encode_commit(decode_commit(encode_commit(frozen))) == encode_commit(frozen)


def test_an_empty_commit_is_on_main_and_asks_for_nothing() -> None:
    commit = Commit(1)
    assert (commit.branch, commit.operations, commit.reads, commit.preconditions) == (MAIN, (), (), ())
    assert decode_frame(encode_frame([commit])) == (commit,)


def test_a_commit_of_an_older_peer_that_lacks_the_last_fields_is_understood() -> None:
    assert decode_frame(frame_of([1], [2, []])) == (Commit(1), Commit(2))


def test_the_encoding_is_the_same_for_equal_commits() -> None:
    again = Commit(*(getattr(FULL, name) for name in FULL.__struct_fields__))
    assert encode_commit(again) == encode_commit(FULL)


def test_what_arrives_is_frozen_and_shares_nothing_with_the_bytes() -> None:
    (commit,) = decode_frame(encode_frame([Commit(1, (Operation(D, (add(("k",), [[1], {"a": [2]}]),)),))]))
    patch = commit.operations[0].patches[0]
    assert patch.arg == ((1,), {"a": (2,)})
    assert patch.path == ("k",)


@pytest.mark.parametrize(
    "data",
    [b"", b"\xc1", b"\x01", frame_of("x"), frame_of([]), frame_of(["1"]), frame_of([1, "x"]), frame_of([1] * 20)],
    ids=["empty", "no-msgpack", "a-number", "text", "no-number", "text-number", "no-operations", "too-many-fields"],
)
def test_bytes_that_are_no_frame_are_a_protocol_error(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="the frame is not a sequence of commits"):
        decode_frame(data)


@pytest.mark.parametrize(
    ("bend", "says"),
    [
        (lambda c: c[1][0][1][0].__setitem__(1, ["a", -1]), "step 1 of a path is -1"),
        (lambda c: c[1][0][1][0].__setitem__(2, float("nan")), "nan"),
        (lambda c: c[1][0][1][0].__setitem__(2, 2**60), "integer"),
        (lambda c: c[2][0].__setitem__(1, ["x" * 20_000]), "bytes long"),
        (lambda c: c[5][0].__setitem__(2, {1: "number as a key"}), "key"),
        (lambda c: c[6][0].__setitem__(2, [2**60]), "integer"),
    ],
    ids=["path", "nan", "large-int", "long-step", "payload-key", "record-payload"],
)
def test_a_value_that_no_document_can_hold_is_refused_with_its_place(bend: Any, says: str) -> None:
    bent = plain(FULL)
    bend(bent)
    with pytest.raises(ProtocolError) as caught:
        decode_frame(frame_of(bent))
    assert "commit 7 holds a value no document can hold" in str(caught.value)
    assert says in str(caught.value).lower()


@pytest.mark.parametrize(
    "bend",
    [
        lambda c: c[2][0].__setitem__(2, 9),
        lambda c: c[3][0].__setitem__(0, "no_such_precondition"),
        lambda c: c.__setitem__(4, 5),
        lambda c: c[1][0][1][0].__setitem__(0, "explode"),
        lambda c: c[2][0].append("more"),
    ],
    ids=["depth", "precondition", "branch", "kind", "unknown-field"],
)
def test_what_no_version_of_the_protocol_has_is_refused(bend: Any) -> None:
    bent = plain(FULL)
    bend(bent)
    with pytest.raises(ProtocolError, match="the frame is not a sequence of commits"):
        decode_frame(frame_of(bent))


def test_limits_can_be_tightened_for_a_peer_and_never_apply_to_our_own_log() -> None:
    deep = Commit(1, (Operation(D, (replace((), [[[[1]]]]),)),))
    with pytest.raises(ProtocolError, match="nested more than 3 deep"):
        decode_frame(encode_frame([deep]), ValueLimits(depth=3))
    assert decode_commit(encode_commit(deep)) == deep


def test_a_frame_of_nothing_decodes_and_is_refused_later_by_the_engine() -> None:
    assert decode_frame(frame_of()) == ()


@pytest.mark.parametrize(
    ("patch", "is_sound_patch"),
    [
        (Patch("replace", ("a",), {"b": (1, "ü")}), True),
        (Patch("append", (), ((1, 2), None)), True),
        (Patch("append", (), (as_value([1, 2]), None)), False),
        (Patch("replace", (), "\ud800"), False),
        (Patch("replace", (), as_value([1])), False),
        (Patch("replace", ("\ud800",), 1), False),
        (Patch("increment", (), 1), False),
        (Patch("remove", (), None), False),
    ],
)
def test_sound_frame_is_left_as_it_is_by_the_check(patch: Patch, is_sound_patch: bool) -> None:
    frame = (Commit(1, (Operation(DocKey("space", "d"), (patch,)),)),)
    assert is_sound(frame, DEFAULT_VALUE_LIMITS) == is_sound_patch
    if is_sound_patch:
        assert checked_frame(frame, DEFAULT_VALUE_LIMITS) == frame
