"""The checker of histories finds every planted anomaly, and none in histories of a serial program."""

from __future__ import annotations

import random
from math import inf

import pytest

from tests.histories.list_append import Outcome, Transaction, check

OK, FAILED, UNKNOWN = Outcome.OK, Outcome.FAILED, Outcome.UNKNOWN


def t(
    id: str,
    began: float,
    ended: float,
    outcome: Outcome = OK,
    *,
    reads: dict[str, tuple[str, ...]] | None = None,
    **appends: str,
) -> Transaction:
    return Transaction(id, began, ended, outcome, reads or {}, appends)


PLANTED = {
    "aborted read": [t("a", 0, 1, FAILED, x="1"), t("b", 0, 9, reads={"x": ("1",)})],
    "value of nobody": [t("b", 0, 9, reads={"x": ("1",)})],
    "duplicate": [t("a", 0, 1, x="1"), t("b", 0, 9, reads={"x": ("1", "1")})],
    "incompatible order": [
        t("a", 0, 9, x="1"),
        t("b", 0, 9, x="2"),
        t("c", 0, 9, reads={"x": ("1", "2")}),
        t("d", 0, 9, reads={"x": ("2",)}),
    ],
    "G0": [
        t("a", 0, 9, x="1", y="1"),
        t("b", 0, 9, x="2", y="2"),
        t("c", 0, 9, reads={"x": ("1", "2"), "y": ("2", "1")}),
    ],
    "G1c": [
        t("a", 0, 9, x="1", reads={"y": ("2",)}),
        t("b", 0, 9, y="2", reads={"x": ("1",)}),
    ],
    "G2": [  # write skew: each read what the other was about to append to
        t("a", 0, 9, x="1", reads={"y": ()}),
        t("b", 0, 9, y="2", reads={"x": ()}),
        t("c", 0, 9, reads={"x": ("1",), "y": ("2",)}),
    ],
    "real time": [t("a", 0, 1, x="1"), t("b", 2, 3, reads={"x": ()}), t("c", 4, 5, reads={"x": ("1",)})],
}


@pytest.mark.parametrize("kind", PLANTED)
def test_planted_anomaly_is_found_and_named(kind: str) -> None:
    assert kind in {each.kind for each in check(PLANTED[kind])}


def test_read_skew_is_found() -> None:
    """One transaction saw a state before and after another one."""
    history = [
        t("a", 0, 9, x="1", y="1"),
        t("b", 0, 9, reads={"x": ("1",), "y": ()}),
        t("c", 0, 9, reads={"y": ("1",)}),
    ]
    assert [each.kind for each in check(history)] == ["G2"]


def test_lost_update_is_found() -> None:
    """Both read the empty list and appended, and only one value is there."""
    history = [t("a", 0, 9, x="1", reads={"x": ()}), t("b", 0, 9, x="2", reads={"x": ()})]
    assert [each.kind for each in check(history, {"x": ("1", "2")})] == ["G2"]
    assert [each.kind for each in check(history, {"x": ("1",)})] == ["lost append"]


def test_unknown_transactions_may_have_happened_late_or_never() -> None:
    history = [
        t("a", 0, inf, UNKNOWN, x="1"),
        t("b", 5, 6, reads={"x": ()}),
        t("c", 7, 8, reads={"x": ("1",)}),
        t("d", 0, inf, UNKNOWN, y="2"),
        t("e", 9, 10, reads={"y": ()}),
    ]
    assert check(history, {"x": ("1",), "y": ()}) == []


def serial(seed: int, count: int) -> tuple[list[Transaction], dict[str, tuple[str, ...]]]:
    """A history of a serial program, whose transactions take effect at a moment between their begin and end."""
    chance = random.Random(seed)
    lists: dict[str, tuple[str, ...]] = dict.fromkeys("xyz", ())
    history = []
    for number in range(count):
        read, written = chance.choice("xyz"), chance.choice("xyz")
        outcome = chance.choices([OK, UNKNOWN, FAILED], [8, 1, 1])[0]
        reads = {read: lists[read], written: lists[written]}
        happens = outcome is OK or (outcome is UNKNOWN and chance.random() < 0.5)
        if happens:
            lists[written] = (*lists[written], str(number))
        began, ended = number - chance.random() * 3, number + chance.random() * 3
        ends = inf if outcome is UNKNOWN else ended
        history.append(Transaction(str(number), began, ends, outcome, reads, {written: str(number)}))
    chance.shuffle(history)
    return history, lists


@pytest.mark.parametrize("seed", range(20))
def test_serial_histories_have_no_anomaly_and_one_stale_read_is_found(seed: int) -> None:
    history, final = serial(seed, 200)
    assert check(history, final) == []
    late = Transaction("late", 1_000, 1_001, OK, {"x": final["x"][:-1]}, {})
    assert [each.kind for each in check([*history, late], final)] == ["real time"]
