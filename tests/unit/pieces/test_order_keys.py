"""Ranks: something always fits between two of them, and they stay short."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from headwater.errors import AuthoringError
from headwater.pieces.order_keys import between

DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

printable = st.text(st.characters(exclude_categories=("C", "Zl", "Zp")), max_size=8)
near = st.text("!+-./01:AVyz{é\U0001f600", max_size=6)
neighbours = st.one_of(st.none(), printable, near)


@given(left=neighbours, right=neighbours)
def test_a_rank_sorts_strictly_between_any_two_printable_texts(left: str | None, right: str | None) -> None:
    assume(left is None or right is None or left < right)
    assume(right != "")  # Nothing sorts before the empty text.
    made = between(left, right)
    assert left is None or left < made
    assert right is None or made < right
    assert made
    assert made[-1] in DIGITS[1:]
    assert made == between(left, right)


@given(places=st.lists(st.integers(min_value=0, max_value=2**16), min_size=1, max_size=80))
def test_ranks_made_here_always_have_another_one_between_them_made_of_digits(places: list[int]) -> None:
    ranks: list[str] = []
    for place in places:
        at = place % (len(ranks) + 1)
        left = ranks[at - 1] if at else None
        right = ranks[at] if at < len(ranks) else None
        ranks.insert(at, between(left, right))
    assert ranks == sorted(set(ranks))
    assert set("".join(ranks)) <= set(DIGITS)
    assert max(map(len, ranks)) <= 3 + len(ranks)


def test_ten_thousand_appends_stay_short() -> None:
    rank, longest = between(None, None), 0
    for _ in range(10_000):
        following = between(rank, None)
        assert rank < following
        rank = following
        longest = max(longest, len(rank))
    assert longest <= 6


def test_ten_thousand_insertions_at_the_front_stay_short() -> None:
    rank, longest = between(None, None), 0
    for _ in range(10_000):
        earlier = between(None, rank)
        assert earlier < rank
        rank = earlier
        longest = max(longest, len(rank))
    assert longest <= 6


def test_putting_things_right_behind_or_before_the_same_neighbour_stays_short() -> None:
    first, last = between(None, None), between(between(None, None), None)
    behind, before = last, first
    for _ in range(10_000):
        made = between(first, behind)
        assert first < made < behind
        behind = made
        made = between(before, last)
        assert before < made < last
        before = made
    assert max(len(behind), len(before)) <= 9


@pytest.mark.random
def test_random_insertions_stay_short() -> None:
    for seed in range(3):
        source = random.Random(seed)
        ranks: list[str] = []
        for _ in range(10_000):
            at = source.randint(0, len(ranks))
            ranks.insert(at, between(ranks[at - 1] if at else None, ranks[at] if at < len(ranks) else None))
        assert ranks == sorted(set(ranks))
        assert max(map(len, ranks)) <= 16
        assert sum(map(len, ranks)) / len(ranks) <= 8


def test_inserting_between_the_last_two_on_changing_sides_adds_a_character_in_two() -> None:
    left, right, made = "V", "W", ""
    for turn in range(600):
        made = between(left, right)
        assert left < made < right
        if turn % 2:
            left = made
        else:
            right = made
    assert len(made) <= 600 / 2 + 1


def test_timestamps_are_neighbours_like_any_other() -> None:
    start = datetime(2026, 3, 1, 12, 0, 0, 999_998, tzinfo=UTC)
    stamps = [(start + timedelta(microseconds=n)).isoformat() for n in range(4)]
    assert stamps == sorted(stamps, key=lambda s: s.replace("+", ".0+") if "." not in s else s)
    for left, right in zip(sorted(stamps), sorted(stamps)[1:], strict=False):
        assert left < between(left, right) < right
    assert between(None, min(stamps)) < min(stamps)


def test_a_card_put_behind_a_timestamp_stays_before_those_still_to_come() -> None:
    now = datetime(2026, 3, 1, 12, 0, 0, 5, tzinfo=UTC)
    rank = now.isoformat()
    for _ in range(1_000):
        rank = between(rank, None)
    assert now.isoformat() < rank < (now + timedelta(microseconds=1)).isoformat()
    assert len(rank) <= len(now.isoformat()) + 6


@pytest.mark.parametrize(
    ("left", "right"),
    [("a", "a0"), ("a", "a!"), ("a", "a "), ("", "0"), (None, "000"), (None, " "), ("a", "a\x01"), (None, "\x000")],
)
def test_there_is_room_below_the_lowest_digit_for_foreign_texts(left: str | None, right: str) -> None:
    made = between(left, right)
    assert (left or "") < made < right


@pytest.mark.parametrize(("left", "right"), [("b", "a"), ("V", "V"), ("a1", "a")])
def test_neighbours_in_the_wrong_order_are_refused_by_name(left: str, right: str) -> None:
    with pytest.raises(AuthoringError) as refused:
        between(left, right)
    message = str(refused.value)
    assert message.startswith(f"between({left!r}, {right!r}): ")
    assert "between(" in message.removeprefix("between(")


@pytest.mark.parametrize(("left", "right"), [(None, ""), ("a", "a\0"), (None, "\0")])
def test_where_nothing_can_sort_between_it_says_so(left: str | None, right: str) -> None:
    with pytest.raises(AuthoringError, match="nothing sorts between them: give the right one a new rank"):
        between(left, right)


def test_a_rank_that_is_no_text_is_refused() -> None:
    with pytest.raises(AuthoringError, match=r"between\(1, None\): a rank is a text"):
        between(1, None)  # type: ignore[arg-type]


def test_a_very_long_run_of_the_highest_digit_does_not_explode() -> None:
    assert len(between("z" * 500, None)) <= 510
    assert len(between(None, "0" * 500 + "1")) <= 512
