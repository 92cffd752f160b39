"""Finding the pieces of a space: what it costs, and classes that are not imported."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from headwater import AuthoringError, Cell, Input, Piece, cell, computed, each, given
from headwater.protocol.messages import Answer, Query
from headwater.runtime.pieces.classes import class_named
from tests.scenario.pieces_kit import at, run


class Row(Piece, name="offering.Row"):
    text: Input[str] = given()
    note: Cell[str] = cell(default="")

    @computed
    def upper(self) -> str:
        return self.text.get().upper()


class Full(Piece, name="offering.Full"):
    rows: Cell[Mapping[str, str]] = cell(default={})

    @each(rows)
    def views(self, text: Input[str]) -> Row:
        return Row(text=text)

    @computed
    def all(self) -> str:
        return " ".join(view.upper.get() for view in self.views.get().values())


def test_finding_pieces_does_not_go_over_what_is_in_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        async with at("embedded", tmp_path) as site:
            rt = site.runtime()
            space = rt.space("s")
            rows = {f"row {number:03}": "x" for number in range(300)}
            names = ["big", "big0", "big00", "big9", "bi", "big/", "big:", "biga"]

            def fill(full: Full) -> None:
                full.rows.set(rows if full.ctx.name == "big" else {})

            for name in names:
                await space.open(Full, name, setup=fill)
            await rt.settled()
            await rt.durable()
            asked = 0
            channel = rt.channel("s")
            assert channel is not None
            query = channel.driver.query

            async def counting(message: Query) -> Answer:
                nonlocal asked
                asked += 1
                return await query(message)

            monkeypatch.setattr(type(channel.driver), "query", lambda _, message: counting(message))
            found = (await space.find(Full)).items
            assert sorted(piece.ctx.name for piece in found) == sorted(names)
            assert asked <= len(names)  # 1,500 documents are in the first one alone.

    run(work, too_long_s=60)


def test_a_piece_whose_class_is_not_imported_says_what_to_import(tmp_path: Path) -> None:
    async def work() -> None:
        async with at("embedded", tmp_path) as site:

            class Gone(Piece, name="lost.shop.Gone"):
                n: Cell[int] = cell(default=0)

            rt = site.runtime()
            space = rt.space("s")
            await space.open(Gone, "g")
            Gone.__schema__.name = "lost.elsewhere"  # Nothing has the old name any more.
            with pytest.raises(AuthoringError, match=r"not imported: import lost\.shop first"):
                class_named("lost.shop.Gone")

    run(work)
