"""Keys of rows and names of pieces may hold any text. One bad row never fails the others of its `each`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import headwater
from headwater import Cell, Input, Piece, Runtime, cell, computed, each, effect, given, handler

KEYS = ("plain", "\u2028", "x\u2029y", "%u2028", "\u2028" * 300, "\x00", "\x85", "a/b:c%", "")
NAMES = ("p\u2028", "\u2029", "p%u2028", "q\u2029" + "z" * 300)


class Row(Piece, name="texts.Row"):
    number: Cell[int] = given()
    note: Cell[str] = cell(default="")

    @computed
    def double(self) -> int:
        return self.number.get() * 2

    @handler
    def write(self, note: str) -> None:
        self.note.set(note)


class Sheet(Piece, name="texts.Sheet"):
    numbers: Cell[Mapping[str, int]] = cell(default={})
    texts: Cell[tuple[str, ...]] = cell(default=())

    @each(numbers)
    def rows(self, number: Cell[int]) -> Row:
        return Row(number=number)

    @each(texts, key=lambda text: text)
    def lengths(self, text: Cell[str]) -> int:
        return len(text.get())

    @handler
    def put(self, key: str, number: int) -> None:
        self.numbers.key(key).set(number)


class Looker(Piece, name="texts.Looker"):
    double: Input[int] = given()

    @computed
    def more(self) -> int:
        return self.double.get() + 1


def test_rows_and_pieces_of_any_text_are_found_again(tmp_path: Path) -> None:
    """The second process opens the pieces without a run; a link to a row leads to it by its id alone."""

    async def fill() -> None:
        async with headwater.open(tmp_path) as rt:
            space = rt.space("s")
            for name in NAMES:
                sheet = await space.open(Sheet, name)
                for number, key in enumerate(KEYS):
                    await sheet.put.send(key, number)
                sheet.texts.set(KEYS)
                await rt.settled()
                for number, (key, row) in enumerate((await sheet.rows.pull()).items()):
                    await row.write.send(key)
                    looker = Looker(double=row.double)
                    assert await (await space.open(looker, f"{name} {number}")).more.pull() == number * 2 + 1

    async def check() -> None:
        errors: list[BaseException] = []
        async with headwater.open(tmp_path) as rt:
            rt.on_error(errors.append)
            space = rt.space("s")
            for name in NAMES:
                for number in range(len(KEYS)):
                    assert await space.piece(Looker, f"{name} {number}").more.pull() == number * 2 + 1
                sheet = await space.open(Sheet, name)
                rows = await sheet.rows.pull()
                assert {key: await row.note.pull() for key, row in rows.items()} == {key: key for key in KEYS}
                assert dict(await sheet.lengths.pull()) == {key: len(key) for key in KEYS}
            assert len((await space.find(Sheet)).items) == len(NAMES)
        assert errors == []

    headwater.run(fill)
    headwater.run(check)


shown: list[str] = []


class Ranked(Piece, name="texts.Ranked"):
    text: Cell[str] = given()

    @effect
    def show(self) -> None:
        shown.append(self.text.get())


class Ranking(Piece, name="texts.Ranking"):
    texts: Cell[Mapping[str, str]] = cell(default={})

    @each(texts, order=lambda text: int(text))
    def rows(self, text: Cell[str]) -> Ranked:
        return Ranked(text=text)


def test_element_that_cannot_be_ordered_fails_its_own_row_only(tmp_path: Path) -> None:
    async def work() -> None:
        for number in range(2):  # The second process finds the pieces as the first one left them.
            shown.clear()
            errors: list[BaseException] = []
            async with headwater.open(tmp_path) as rt:
                rt.on_error(errors.append)
                ranking = await rt.space("s").open(Ranking, "r")
                if number == 0:
                    ranking.texts.set({"b": "2", "bad": "no number", "a": "1"})
                    await rt.settled()
                    assert sorted(shown) == ["1", "2"]
                assert [type(error) for error in errors] == [ValueError]
                ranking.texts.key("c").set(f"3{number}")
                await rt.settled()
                assert shown[-1] == f"3{number}"

    headwater.run(work)


def test_element_that_can_be_ordered_again_has_a_row() -> None:
    async def work() -> None:
        async with Runtime() as rt:
            ranking = await rt.space("s").open(Ranking, "r", setup=lambda r: r.texts.set({"a": "x", "b": "2"}))
            ranking.texts.key("a").set("1")
            await rt.settled()
            assert list(ranking.rows.get()) == ["a", "b"]

    headwater.run(work)
