"""Mistakes of first programs: the message says what to write."""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater import AuthoringError, Cell, DirectoryInUseError, Piece, cell, computed, handler, resource
from headwater.cli.app import run as command_line
from tests.scenario.pieces_kit import serving


class Shelf(Piece, name="promises.first_steps.Shelf"):
    title: Cell[str] = cell(default="")


def test_open_without_await_says_so(tmp_path: Path) -> None:
    async def main() -> None:
        opening: Any = headwater.open(tmp_path)
        with pytest.raises(AuthoringError, match=r"open\(\.\.\.\)\.space: .* rt = await headwater\.open\(\.\.\.\)"):
            opening.space("shop")
        with pytest.raises(AuthoringError, match=r"async with headwater\.open\(\.\.\.\) as rt"), opening:
            pass
        assert "not awaited yet" in repr(opening)
        async with opening as rt:
            assert rt.space("shop").name == "shop"

    headwater.run(main)


def test_connect_without_await_says_so() -> None:
    opening: Any = headwater.connect("ws://127.0.0.1:1", token="")
    with pytest.raises(AuthoringError, match=r"async with headwater\.connect\(\.\.\.\) as rt"):
        opening.space("shop")
    assert not hasattr(opening, "nonsense")


def test_connect_needs_no_token_of_an_open_server(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as address, headwater.connect(address) as rt:
            await rt.space("shop", user="ann").open(Shelf, "main")

    headwater.run(main)


def test_second_program_on_a_directory_is_told_to_connect(tmp_path: Path) -> None:
    async def main() -> None:
        async with headwater.open(tmp_path):
            with pytest.raises(DirectoryInUseError, match=r"serves the directory, connect to it with headwater\."):
                await headwater.open(tmp_path)

    headwater.run(main)


def test_type_of_a_computed_that_can_change_in_place_names_another() -> None:
    with pytest.raises(AuthoringError, match=r"the type of a stored value: .* Write Mapping\[str, float\]"):

        class Averages(Piece):
            @computed
            def averages(self) -> dict[str, float]:
                return {}


class Ledger(Piece, name="promises.first_steps.Ledger"):
    amounts: Cell[Mapping[str, int]] = cell(default={})
    notes: Cell[tuple[str, ...]] = cell(default=())

    @computed
    def total(self) -> int:
        return sum(self.amounts.get().values())

    @handler
    def note(self, text: str) -> None:
        self.notes.push(text)


def _sets_element(ledger: Any) -> None:
    ledger.amounts["rent"] = 1


def _deletes_element(ledger: Any) -> None:
    del ledger.amounts["rent"]


@pytest.mark.parametrize(
    ("use", "kind", "instead"),
    [
        (lambda ledger: ledger.notes.append("paid"), AttributeError, "write .push(element)"),
        (lambda ledger: ledger.amounts.items(), AttributeError, "write .get().items"),
        (lambda ledger: ledger.amounts.pop("rent"), AttributeError, "write .key(key).delete()"),
        (_sets_element, AuthoringError, "write .key(key).set(value)"),
        (_deletes_element, AuthoringError, "write .key(key).delete()"),
        (lambda ledger: ledger.amounts["rent"], AuthoringError, "write .get()"),
        (lambda ledger: ledger.total.set(3), AttributeError, "write to a cell"),
        (lambda ledger: ledger.note.get(), AttributeError, "write .send(...)"),
    ],
)
def test_use_of_a_handle_as_a_value_names_the_call_to_write(
    use: Callable[[Any], object], kind: type[Exception], instead: str
) -> None:
    async def main() -> None:
        async with headwater.Runtime() as rt:
            ledger = await rt.space("s").open(Ledger, "one")
            with pytest.raises(kind, match=f"is a handle, not a value, and has no .*{re.escape(instead)}"):
                use(ledger)
            assert not hasattr(ledger.total, "set")

    headwater.run(main)


def test_resource_without_an_input_is_refused_when_the_class_is_made() -> None:
    bare: Any = resource
    with pytest.raises(AuthoringError, match=r"@resource price takes one input: write @resource\(cell\)"):

        class Offer(Piece):
            @bare  # type: ignore[untyped-decorator]
            async def price(self) -> int:
                return 1


@pytest.mark.parametrize(
    ("code", "last", "lines"),
    [
        ("import headwater\n\n\ndef work():\n    return nothing\n\n\nwork()\n", "NameError", [8, 5]),
        ("import headwater\n\n\ndef work(:\n", "SyntaxError", [4]),
    ],
)
def test_application_that_cannot_be_imported_shows_its_own_lines_only(
    code: str, last: str, lines: list[int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "broken_app.py"
    file.write_text(code)
    assert command_line(["run", str(file), "--insecure-local"]) == 1
    told = capsys.readouterr().err.splitlines()
    assert told[0] == f"headwater: {file} cannot be imported:"
    assert told[-1].startswith(last)
    assert [line.strip() for line in told if "File " in line and 'broken_app.py"' not in line] == []
    assert [int(line.split("line ")[1].split(",")[0]) for line in told if "File " in line] == lines


def test_star_import_does_not_replace_the_builtin_open() -> None:
    names: dict[str, Any] = {}
    exec("from headwater import *", names)
    assert names.get("open", builtins.open) is builtins.open
    assert names["Piece"] is headwater.Piece
    assert callable(headwater.open)
