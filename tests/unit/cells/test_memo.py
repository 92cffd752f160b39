"""A value is decoded once per version, and of the next version only what is new."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from headwater.cells.codec import codec_for
from headwater.cells.containers import Cache, decoded_entry, trimmed
from headwater.cells.model import Json, Model
from headwater.cells.records import RecordCodec
from headwater.data.patch import Patch, apply
from headwater.data.value import MaybeValue, Value
from tests.unit.cells.kinds import Card, Disc, Line, State

SIZE = 10_000


class Board(Model):
    name: str
    cards: tuple[Card, ...]
    by_id: Mapping[str, Card] = {}


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The records that were decoded one by one since."""
    seen: list[str] = []
    leave, again = RecordCodec.leave, RecordCodec.leave_changed

    def counted_leave(self: RecordCodec, raw: Value) -> Any:
        seen.append(self.expected)
        return leave(self, raw)

    def counted_again(self: RecordCodec, old: Value, known: Any, raw: Value) -> Any:
        if not self.native:  # Otherwise `leave` counts it.
            seen.append(self.expected)
        return again(self, old, known, raw)

    monkeypatch.setattr(RecordCodec, "leave", counted_leave)
    monkeypatch.setattr(RecordCodec, "leave_changed", counted_again)
    return seen


def stored_card(title: str) -> dict[str, Value]:
    card = Card(title=title, column="c", rank="r", points=1, weight=0.5, done=False, state=State.OPEN, owner=None)
    raw = codec_for(Card).encode(card)
    assert isinstance(raw, dict)
    return raw


def many() -> tuple[Value, ...]:
    return tuple(stored_card(str(number)) for number in range(SIZE))


def patched(raw: Value, *patches: Patch) -> Value:
    for patch in patches:
        raw = apply(raw, patch)[0]  # type: ignore[assignment]
    return raw


def test_one_changed_element_of_ten_thousand_is_the_only_one_decoded(decoded: list[str]) -> None:
    memo = codec_for(tuple[Card, ...]).memo()
    raw = many()
    before = memo.decode(raw)
    decoded.clear()
    after = memo.decode(patched(raw, Patch("replace", (5_000, "title"), "new")))
    assert decoded == ["Card"]
    assert after[5_000].title == "new"
    assert all(now is then for n, (now, then) in enumerate(zip(after, before, strict=True)) if n != 5_000)


@pytest.mark.parametrize(
    ("patch", "fresh"),
    [
        (Patch("append", (), ((stored_card("a"), stored_card("b")), None)), 2),
        (Patch("append", (), ((stored_card("a"),), SIZE)), 1),  # bounded: every index moves by one
        (Patch("splice", (), (100, 3, ())), 0),
        (Patch("splice", (), (100, 1, (stored_card("a"), stored_card("b")))), 2),
        (Patch("splice", (), (0, SIZE, ())), 0),
    ],
    ids=["append", "bounded append", "removal", "splice", "all removed"],
)
def test_elements_whose_index_changed_are_not_decoded_again(patch: Patch, fresh: int, decoded: list[str]) -> None:
    memo = codec_for(tuple[Card, ...]).memo()
    raw = many()
    memo.decode(raw)
    decoded.clear()
    after = patched(raw, patch)
    assert memo.decode(after) == codec_for(tuple[Card, ...]).decode(after)
    assert len(decoded) == fresh


def test_a_reversed_tuple_decodes_nothing(decoded: list[str]) -> None:
    memo = codec_for(tuple[Card, ...]).memo()
    raw = many()
    before = memo.decode(raw)
    decoded.clear()
    assert memo.decode(raw[::-1]) == before[::-1]
    assert decoded == []


def test_the_same_version_is_the_same_object(decoded: list[str]) -> None:
    memo = codec_for(Card).memo()
    raw = stored_card("x")
    first = memo.decode(raw)
    assert memo.decode(raw) is first
    assert decoded == ["Card"]


def test_parts_of_a_model_are_found_again_too(decoded: list[str]) -> None:
    codec = codec_for(Board)
    memo = codec.memo()
    raw: Value = {"name": "b", "cards": many(), "by_id": {"k": stored_card("k")}}
    before = memo.decode(raw)
    assert before.by_id["k"].title == "k"
    decoded.clear()
    after = memo.decode(patched(raw, Patch("replace", ("cards", 7, "points"), 3)))
    assert decoded == ["Board", "Card"]
    assert after.cards[8] is before.cards[8]
    assert after.by_id["k"] is before.by_id["k"]


def test_a_change_of_an_unknown_field_changes_nothing_that_is_seen() -> None:
    memo = codec_for(Board).memo()
    raw: Value = {"name": "b", "cards": (), "later": 1}
    assert memo.decode(raw) is memo.decode(patched(raw, Patch("replace", ("later",), 2)))


def test_an_entry_of_a_mapping_is_decoded_when_it_is_first_looked_at(decoded: list[str]) -> None:
    memo = codec_for(Mapping[str, Card]).memo()
    raw: Value = {str(n): stored_card(str(n)) for n in range(100)}
    cards = memo.decode(raw)
    assert (len(cards), "7" in cards, list(cards)[:2], decoded) == (100, True, ["0", "1"], [])
    seven = cards["7"]
    assert cards["7"] is seven
    assert decoded == ["Card"]
    after = memo.decode(patched(raw, Patch("replace", ("8", "title"), "new"), Patch("remove", ("9",), None)))
    assert after["7"] is seven
    assert decoded == ["Card"]
    assert after["8"].title == "new"
    assert (cards["8"].title, cards["9"].title) == ("8", "9")  # the version before is still what it was
    assert after["8"].title == "new"


def test_keys_that_come_and_go_leave_nothing_behind() -> None:
    memo = codec_for(Mapping[str, Line]).memo()
    kept: Value = {"sku": "kept", "cents": 1}
    lines: Any = memo.decode({"kept": kept})
    first = lines["kept"]
    for number in range(2_000):
        lines = memo.decode({"kept": kept, str(number): {"sku": "x", "cents": number}})
        assert lines[str(number)].cents == number
    assert lines["kept"] is first


def test_cache_of_entries_is_trimmed_to_those_that_are_stored() -> None:
    codec = codec_for(Line)
    kept: Value = {"sku": "kept", "cents": 1}
    cache: Cache = {}
    first = decoded_entry(cache, "kept", kept, codec)
    for number in range(2_000):
        raw: dict[str, Value] = {"kept": kept, str(number): {"sku": "x", "cents": number}}
        cache = trimmed(cache, raw)
        assert decoded_entry(cache, str(number), raw[str(number)], codec).cents == number
        assert len(cache) < 50
    assert decoded_entry(cache, "kept", kept, codec) is first


def test_json_is_shared_between_versions() -> None:
    memo = codec_for(Json).memo()
    raw: Value = {"a": {"deep": (1, {"x": 1})}, "b": 1}
    before: Any = memo.decode(raw)
    a = before["a"]
    after: Any = memo.decode(patched(raw, Patch("replace", ("b",), 2)))
    assert after["a"] is a
    assert after == {"a": {"deep": (1, {"x": 1})}, "b": 2}


def test_a_tuple_of_scalars_is_the_stored_tuple_itself() -> None:
    raw = ("a", "b")
    assert codec_for(tuple[str, ...]).decode(raw) is raw
    assert codec_for(tuple[float, ...]).decode((1, 0.5)) == (1.0, 0.5)


def test_what_came_out_of_a_memo_is_not_encoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    memo = codec_for(tuple[Card, ...]).memo()
    raw = many()
    cards = memo.decode(raw)
    joined: list[object] = []
    join = RecordCodec.join

    def counted(self: RecordCodec, old: MaybeValue, new: object, known: object, level: int) -> Value:
        joined.append(new)
        return join(self, old, new, known, level)

    monkeypatch.setattr(RecordCodec, "join", counted)
    added = Card(title="n", column="c", rank="r", points=1, weight=1.0, done=True, state=State.DONE, owner="ann")
    after: Any = memo.merge(raw, (*cards[1:], added))
    assert joined == [added]
    assert all(now is then for now, then in zip(after, raw[1:], strict=False))


def test_a_new_element_inherits_nothing_from_one_that_moved() -> None:
    memo = codec_for(tuple[Line, ...]).memo()
    raw: Value = ({"sku": "a", "cents": 1, "qty": 1, "later": 1}, {"sku": "b", "cents": 1, "qty": 1, "later": 2})
    lines = memo.decode(raw)
    assert memo.merge(raw, (lines[1], Line(sku="c", cents=1))) == (
        {"sku": "b", "cents": 1, "qty": 1, "later": 2},
        {"sku": "c", "cents": 1, "qty": 1},
    )


def test_a_value_of_another_kind_than_before_is_decoded_afresh() -> None:
    memo = codec_for(tuple[Disc, ...] | Disc | None).memo()
    assert memo.decode(({"radius": 1.0},)) == (Disc(radius=1.0),)
    assert memo.decode(None) is None
    assert memo.decode({"radius": 2.0}) == Disc(radius=2.0)


def test_a_misfit_leaves_the_memory_as_it_was() -> None:
    memo = codec_for(Line).memo()
    raw: Value = {"sku": "x", "cents": 1}
    before = memo.decode(raw)
    with pytest.raises(ValueError, match="stored at /here: the field 'sku' of Line is missing"):
        memo.decode({"cents": 1}, at=("here",))
    assert memo.decode(raw) is before
    memo.forget()
    assert memo.decode(raw) is not before
    assert memo.decode(raw) == before


def test_a_class_that_changes_its_parts_when_it_is_made_is_never_made_of_parts_of_another() -> None:
    class Counted(Model, kw_only=True):
        n: tuple[Disc, ...]
        m: int = 0
        made: int = 0

        def __post_init__(self) -> None:
            pass

    memo = codec_for(Counted).memo()
    raw: Value = {"n": ({"radius": 1.0},), "m": 1}
    before = memo.decode(raw)
    after = memo.decode(patched(raw, Patch("replace", ("m",), 2)))
    assert after.n == before.n
    assert after.n is not before.n
