"""A preview says before a start what that start runs, and why."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from headwater import Cell, Piece, cell, computed, effect
from tests.scenario.pieces_kit import run
from tests.scenario.preview_kit import content, named, previewed
from tests.scenario.resume_kit import SPACE, Shop, filled, process
from tests.scenario.test_resume import ALL, Doubled, NewCounter, OldCounter


async def _first(folder: Path) -> None:
    async with process(folder) as first:
        await filled(await first.open())
        await first.settled()


async def _ran(folder: Path) -> set[str]:
    async with process(folder) as again:
        await again.open()
        return again.taken()


class TestWhatAStartRuns:
    def test_of_a_clean_space_nothing(self, tmp_path: Path) -> None:
        async def story() -> None:
            await _first(tmp_path)
            found = await previewed(tmp_path)
            assert (len(found.nodes), len(found.of("clean"))) == (ALL, ALL)
            assert found.totals()["reasons"] == {}
            assert await _ran(tmp_path) == set()

        run(story)

    def test_of_a_write_its_readers_and_perhaps_theirs(self, tmp_path: Path) -> None:
        async def story() -> None:
            await _first(tmp_path)
            async with process(tmp_path) as other:
                await other.space.piece(Shop, "a").put.send("k1", 20)
            found = await previewed(tmp_path)
            ran = await _ran(tmp_path)
            assert named(found, "rerun") <= ran <= named(found, "rerun") | named(found, "may")
            assert {"a/rows/k1:cost", "a:sub", "a:sum", "a:prices/k1 row"} <= named(found, "rerun")
            assert {"a:total", "a:costs", "a:show", "a:posted"} <= named(found, "may")
            (sub,) = [each for each in found.nodes if each.node == "a:sub"]
            assert sub.reason == "a value that it read was written"
            assert any(detail.startswith("space:a:items at seq ") for detail in sub.details)
            assert found.totals()["rerun_us"] >= sub.took_us > 0

        run(story)

    def test_of_elements_that_came_and_left(self, tmp_path: Path) -> None:
        async def story() -> None:
            await _first(tmp_path)
            async with process(tmp_path) as other:
                shop = other.space.piece(Shop, "a")
                await shop.put.send("k9", 9)
                await shop.drop.send("k0")
                await shop.note.send("l1", -1)
            found = await previewed(tmp_path)
            ran = await _ran(tmp_path)
            assert named(found, "rerun") - {"a/rows/k0:cost", "a:prices/k0 row", "a:rows/k0 row"} <= ran
            new = {each for each in ran if "k9" in each}
            assert ran - new <= named(found, "rerun") | named(found, "may")

        run(story)

    def test_of_other_code_exactly_that(self, tmp_path: Path) -> None:
        async def story() -> None:
            async with process(tmp_path) as first:
                assert await (await first.open("c", OldCounter)).total.pull() == 1
            found = await previewed(tmp_path)  # The class of that name that was imported last is the new one.
            assert [(each.node, each.reason) for each in found.of("rerun")] == [("c:total", "its code has changed")]
            assert found.of("rerun")[0].details == ("its own code",)
            async with process(tmp_path) as again:
                assert await again.space.piece(NewCounter, "c").total.pull() == 101
                assert again.taken() == {"c:total"}

        run(story)

    def test_of_a_piece_that_is_opened_with_one_member_changed(self, tmp_path: Path) -> None:
        """As many of its nodes as one change of a class makes run, whether that is the one or all of its piece."""

        async def story() -> None:
            async with process(tmp_path) as first:
                await first.open("o", OldPair)
                await first.settled()
            found = await previewed(tmp_path)
            reasons = {each.node.partition(",")[0]: each.reason for each in found.of("rerun")}
            assert reasons["o:one"] == "its code has changed"
            assert set(reasons.values()) <= {"its code has changed", "another member of its piece does something else"}
            async with process(tmp_path) as again:
                await again.open("o", NewPair)
                ran = again.taken()
            assert named(found, "rerun") <= ran <= named(found, "rerun") | named(found, "may")
            assert "o:one" in ran

        run(story)

    def test_of_pieces_that_were_given_members_of_others(self, tmp_path: Path) -> None:
        async def story() -> None:
            async with process(tmp_path) as first:
                plain: Any = await first.open("w", Plain)
                await first.space.open(Doubled(n=plain.value), "d")
                assert await first.space.piece(Doubled, "d").twice.pull() == 2
                await first.settled()
            found = await previewed(tmp_path)
            assert {each.node: each.fate for each in found.nodes} == {"d:twice": "clean", "w:value": "clean"}
            async with process(tmp_path) as other:
                await other.rt.space(SPACE).transact(lambda: other.space.piece(Plain, "w").n.set(5))
            found = await previewed(tmp_path)
            assert {each.node: each.fate for each in found.nodes} == {"d:twice": "may", "w:value": "rerun"}

        run(story)

    def test_nothing_is_written_and_nothing_runs(self, tmp_path: Path) -> None:
        async def story() -> None:
            async with process(tmp_path) as first:
                telltale: Any = await first.open("t", Telltale)
                await telltale.told.pull()
            calls = list(CALLED)
            before = content(tmp_path)
            assert (await previewed(tmp_path)).nodes
            assert calls == CALLED
            assert content(tmp_path) == before

        run(story)


class Plain(Piece, name="preview.Plain"):
    n: Cell[int] = cell(default=1)

    @computed
    def value(self) -> int:
        return self.n.get()


class OldPair(Piece, name="preview.Pair"):
    n: Cell[int] = cell(default=1)

    @computed
    def one(self) -> int:
        return self.n.get()

    @computed
    def other(self) -> int:
        return self.n.get() + 1

    @effect
    def show(self) -> None:
        self.one.get(), self.other.get()


class NewPair(Piece, name="preview.Pair"):
    n: Cell[int] = cell(default=1)

    @computed
    def one(self) -> int:
        return self.n.get() * 5

    @computed
    def other(self) -> int:
        return self.n.get() + 1

    @effect
    def show(self) -> None:
        self.one.get(), self.other.get()


CALLED: list[str] = []


class Telltale(Piece, name="preview.Telltale"):
    n: Cell[int] = cell(default=1)

    @computed
    def told(self) -> int:
        CALLED.append("told")
        return self.n.get()


class TestWhatCannotBeKnown:
    def test_it_says_why(self, tmp_path: Path) -> None:
        async def story() -> None:
            async with process(tmp_path) as first:
                blind: Any = await first.open("b", Blind)
                assert await blind.seen.pull() == 1
            found = await previewed(tmp_path)
            (seen,) = [each for each in found.nodes if each.node == "b:seen"]
            assert (seen.fate, seen.reason) == ("rerun", "its code has no fingerprint")
            assert "FILE" in seen.details[0]
            assert found.totals()["unknown"] == 1

        run(story)

    def test_a_class_that_is_not_there_says_what_to_import(self, tmp_path: Path) -> None:
        """Another program made the piece: this one never imported its class."""
        program, data = tmp_path / "passing.py", tmp_path / "data"
        program.write_text(PASSING)
        subprocess.run([sys.executable, str(program), str(data)], check=True, timeout=60)

        async def story() -> None:
            found = await previewed(data)
            (total,) = found.nodes
            assert (total.fate, total.reason) == ("gone", "it is not in this program")
            assert "import preview" in total.details[0]

        run(story)


PASSING = """
import asyncio, pathlib, sys
from headwater import Cell, Piece, Runtime, cell, computed

class Passing(Piece, name="preview.Passing"):
    n: Cell[int] = cell(default=1)

    @computed
    def total(self) -> int:
        return self.n.get()

async def main() -> None:
    async with Runtime(pathlib.Path(sys.argv[1]), observe=True) as rt:
        space = rt.space("shop")
        passing = await space.open(Passing, "p")
        await passing.total.pull()
        await rt.settled()
        await space.transact(lambda: passing.n.set(2))
        await rt.durable()

asyncio.run(main())
"""

FILE = open(__file__, encoding="utf-8")  # noqa: SIM115 (what nobody can compare)


class Blind(Piece, name="preview.Blind"):
    n: Cell[int] = cell(default=1)

    @computed
    def seen(self) -> int:
        return self.n.get() + int(FILE.closed)
