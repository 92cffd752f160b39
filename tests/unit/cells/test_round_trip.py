"""Laws of encode, decode and merge, for every type that a cell can have."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headwater.cells.codec import codec_for
from headwater.cells.codec_base import TypeCodec
from headwater.cells.containers import JsonCodec, MappingCodec
from headwater.cells.records import RecordCodec
from headwater.cells.unions import UnionCodec
from headwater.data.value import ABSENT, MaybeValue, Value, equal, freeze
from tests.unit.cells import kinds
from tests.unit.cells.kinds import Everything

CODEC = codec_for(Everything)


@given(value=kinds.everything)
def test_what_is_decoded_is_what_was_encoded(value: Everything) -> None:
    assert CODEC.decode(CODEC.encode(value)) == value


@given(value=kinds.everything)
def test_what_is_encoded_is_a_frozen_value(value: Everything) -> None:
    raw = CODEC.encode(value)
    assert equal(freeze(raw), raw)
    assert_exact(raw)


@given(value=kinds.everything)
def test_a_decoded_value_encodes_to_what_it_came_from(value: Everything) -> None:
    raw = CODEC.encode(value)
    assert equal(CODEC.encode(CODEC.decode(raw)), raw)


@given(old=kinds.everything, new=kinds.everything, seed=st.integers(0, 2**32))
def test_a_merged_value_reads_as_the_new_one(old: Everything, new: Everything, seed: int) -> None:
    stored = with_unknown_fields(CODEC.encode(old), CODEC, random.Random(seed))
    assert CODEC.decode(CODEC.merge(stored, new)) == new
    memo = CODEC.memo()
    memo.decode(stored)
    assert memo.decode(memo.merge(stored, new)) == new


@given(old=kinds.everything, new=kinds.everything, seed=st.integers(0, 2**32))
def test_a_merge_keeps_every_unknown_field_of_what_aligns(old: Everything, new: Everything, seed: int) -> None:
    stored = with_unknown_fields(CODEC.encode(old), CODEC, random.Random(seed))
    assert_kept(stored, CODEC.merge(stored, new), CODEC)


@given(value=kinds.everything, seed=st.integers(0, 2**32))
def test_writing_what_is_there_gives_the_very_object_that_is_there(value: Everything, seed: int) -> None:
    stored = with_unknown_fields(CODEC.encode(value), CODEC, random.Random(seed))
    assert CODEC.merge(stored, value) is stored
    memo = CODEC.memo()
    assert memo.merge(stored, memo.decode(stored)) is stored


@given(old=kinds.everything, new=kinds.everything, seed=st.integers(0, 2**32))
def test_the_next_version_from_a_memo_is_the_one_decoded_afresh(old: Everything, new: Everything, seed: int) -> None:
    stored = with_unknown_fields(CODEC.encode(old), CODEC, random.Random(seed))
    memo = CODEC.memo()
    assert memo.decode(stored) == old
    after = memo.merge(stored, new)
    assert memo.decode(after) == CODEC.decode(after) == new


@given(
    old=st.lists(kinds.lines, max_size=8).map(tuple),
    picks=st.lists(st.integers(0, 9), max_size=10, unique=True),
    fresh=kinds.lines,
)
def test_elements_that_move_are_found_again(old: tuple[kinds.Line, ...], picks: list[int], fresh: kinds.Line) -> None:
    codec = codec_for(tuple[kinds.Line, ...])
    raw: Any = tuple(freeze({**codec.encode((line,))[0], "later": n}) for n, line in enumerate(old))  # type: ignore[index, dict-item]
    memo = codec.memo()
    values = memo.decode(raw)
    chosen = tuple(values[pick] if pick < len(values) else fresh for pick in picks)
    merged: Any = memo.merge(raw, chosen)
    assert codec.decode(merged) == chosen
    for pick, item in zip(picks, merged, strict=True):
        assert pick >= len(raw) or item is raw[pick]  # an element that was kept keeps what is unknown in it
    after = memo.decode(merged)
    assert all(now is before for now, before in zip(after, chosen, strict=True) if before is not fresh)


# ---- a second, naive definition of what aligns ------------------------------------------------------------


def with_unknown_fields(raw: Value, codec: TypeCodec[Any], rng: random.Random) -> Value:
    """`raw` as a newer version of the program would have stored it: Models have a field more."""
    if isinstance(codec, UnionCodec):
        return with_unknown_fields(raw, codec.member(raw), rng)
    if isinstance(codec, RecordCodec) and isinstance(raw, dict):
        fields = {field.stored: field.codec for field in codec.fields}
        grown = {k: with_unknown_fields(v, fields[k], rng) if k in fields else v for k, v in raw.items()}
        return {**grown, "later": rng.randrange(1000)} if rng.random() < 0.7 else grown
    if isinstance(codec, MappingCodec) and isinstance(raw, dict):
        return {k: with_unknown_fields(v, codec.element, rng) for k, v in raw.items()}
    if isinstance(raw, tuple) and not isinstance(codec, JsonCodec):
        return tuple(with_unknown_fields(v, element_of(codec, i), rng) for i, v in enumerate(raw))
    return raw


def element_of(codec: Any, index: int) -> TypeCodec[Any]:
    found: TypeCodec[Any] = codec.elements[index] if hasattr(codec, "elements") else codec.element
    return found


def assert_kept(old: MaybeValue, new: Value, codec: TypeCodec[Any]) -> None:
    if isinstance(codec, UnionCodec):
        member = codec.member(new)
        if old is ABSENT or codec.member(old) is not member:
            return
        codec = member
    if isinstance(codec, RecordCodec) and isinstance(old, dict) and isinstance(new, dict):
        assert new.get("later", ABSENT) == old.get("later", ABSENT)
        for field in codec.fields:
            assert_kept(old.get(field.stored, ABSENT), new[field.stored], field.codec)
    elif isinstance(codec, MappingCodec) and isinstance(old, dict) and isinstance(new, dict):
        for key in new.keys() & old.keys():
            assert_kept(old[key], new[key], codec.element)
    elif type(codec).__name__ in ("TupleCodec", "FixedTupleCodec") and isinstance(old, tuple):
        assert isinstance(new, tuple)
        if len(old) == len(new):
            for index, item in enumerate(new):
                assert_kept(old[index], item, element_of(codec, index))


def assert_exact(raw: object) -> None:
    """Only the types that a stored value has, no subclass of them."""
    assert type(raw).__name__ in ("NoneType", "bool", "int", "float", "str", "bytes", "Link", "tuple", "dict")
    if isinstance(raw, Mapping):
        for item in raw.values():
            assert_exact(item)
    elif isinstance(raw, tuple):
        for item in raw:
            assert_exact(item)
