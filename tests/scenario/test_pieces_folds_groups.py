"""`fold(by=...)`: groups that are no texts, and what is said where nobody can know what they are."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from datetime import date
from pathlib import Path

import pytest

from headwater import AuthoringError, Cell, Computed, Model, Piece, UpstreamFailedError, cell, fold
from tests.scenario.pieces_kit import alone, at, run


class Kind(enum.Enum):
    TEA = "tea"
    MILK = "milk"


class Level(enum.IntEnum):
    LOW = 1


class Row(Model):
    kind: Kind
    day: date
    number: int = 0
    level: Level = Level.LOW
    note: str | None = None
    is_paid: bool = False


def decade(row: Row) -> int:
    return row.number // 10


class Book(Piece):
    rows: Cell[Mapping[str, Row]] = cell(default={})
    by_kind = fold(rows, by=lambda row: row.kind, start=0, add=lambda n, _: n + 1, remove=lambda n, _: n - 1)
    by_day = fold(rows, by=lambda row: row.day, start=0, add=lambda n, _: n + 1, remove=lambda n, _: n - 1)
    by_number = fold(rows, by=lambda row: row.number, start=0, add=lambda n, _: n + 1, remove=lambda n, _: n - 1)
    by_level = fold(rows, by=lambda row: row.level, start=0, add=lambda n, _: n + 1, remove=lambda n, _: n - 1)
    by_decade = fold(rows, by=decade, start=0, add=lambda n, _: n + 1, remove=lambda n, _: n - 1)
    by_text = fold(rows, by=lambda row: row.kind.value, start=0, add=lambda n, _: n + 1, remove=lambda n, _: n - 1)
    tens = fold(rows, by=lambda row: row.number // 10, start=0, add=lambda n, _: n + 1, remove=lambda n, _: n - 1)
    said: Computed[Mapping[int, int]] = fold(
        rows, by=lambda row: row.number // 10, start=0, add=lambda n, _: n + 1, remove=lambda n, _: n - 1
    )
    paid = fold(rows, by=lambda row: row.is_paid, start=0, add=lambda n, _: n + 1, remove=lambda n, _: n - 1)
    notes = fold(rows, by=lambda row: row.note, start=0, add=lambda n, _: n + 1, remove=lambda n, _: n - 1)


TEA = Row(kind=Kind.TEA, day=date(2026, 11, 15), number=12)
MILK = Row(kind=Kind.MILK, day=date(2026, 11, 15), number=17)
FOUND = {
    "by_kind": {Kind.TEA: 1, Kind.MILK: 1},
    "by_day": {date(2026, 11, 15): 2},
    "by_number": {12: 1, 17: 1},
    "by_level": {Level.LOW: 2},
    "by_decade": {1: 2},
    "by_text": {"tea": 1, "milk": 1},
    "said": {1: 2},
}


def test_groups_are_what_the_field_is_that_by_names_and_are_found_again(tmp_path: Path) -> None:
    async def work() -> None:
        async with at("embedded", tmp_path) as site:
            book = await site.runtime().space("s").open(Book, "b")
            book.rows.set({"a": TEA, "b": MILK})
            for name, groups in FOUND.items():
                assert await getattr(book, name).pull() == groups, name
            await site.settled()
            again = site.runtime().space("s").piece(Book, "b")
            for name, groups in FOUND.items():
                assert await getattr(again, name).pull() == groups, name
            book.rows.key("a").delete()
            assert await book.by_kind.pull() == {Kind.MILK: 1}

    run(work)


def test_a_group_that_is_no_text_and_was_not_declared_says_what_to_write() -> None:
    async def work() -> None:
        async with alone() as (rt, _):
            book = rt.space("s").piece(Book, "b")
            book.rows.set({"a": TEA})
            says = r"Book\.tens: by= answered 1, .* Write tens: Computed\[Mapping\[int, int\]\] = fold\(\.\.\.\)"
            with pytest.raises(UpstreamFailedError, match=says) as failed:
                await book.tens.pull()
            assert isinstance(failed.value.__cause__, AuthoringError)
            with pytest.raises(UpstreamFailedError, match=r"answers a text, an int, an enum or a date, and not False"):
                await book.paid.pull()
            with pytest.raises(UpstreamFailedError, match=r"by= answered None, and its groups are str"):
                await book.notes.pull()

    run(work)
