"""What restarts once left stale for good, ran for nothing or told wrong: each is a short history of some starts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from headwater import Cell, Input, Link, Model, Piece, cell, computed, each, effect, fold, given, handler, link
from tests.scenario.pieces_kit import run
from tests.scenario.preview_kit import answer, named, previewed, shadow_of
from tests.scenario.resume_kit import SPACE, observed, process

WAS = 2


class Row(Piece, name="attacked.Row"):
    n: Cell[int] = given()
    rate: Input[int] = given()

    @computed
    def cost(self) -> int:
        return self.n.get() * self.rate.get()


class WideRow(Piece, name="attacked.Kept"):
    n: Cell[int] = given()

    @computed
    def cost(self) -> int:
        return self.n.get()

    @computed
    def lost(self) -> int:
        return self.n.get()


class SlimRow(Piece, name="attacked.Kept"):
    n: Cell[int] = given()

    @computed
    def cost(self) -> int:
        return self.n.get()


class Wide(Piece, name="attacked.Keeper"):
    items: Cell[Mapping[str, int]] = cell(default={})

    @each(items)
    def rows(self, n: Cell[int]) -> WideRow:
        return WideRow(n=n)


class Slim(Piece, name="attacked.Keeper"):
    items: Cell[Mapping[str, int]] = cell(default={})

    @each(items)
    def rows(self, n: Cell[int]) -> SlimRow:
        return SlimRow(n=n)


def _rates(default: int) -> tuple[type[Piece], type[Piece]]:
    class Rates(Piece, name="attacked.Rates"):
        rate: Cell[int] = cell(default=default)
        other: Cell[int] = cell(default=1)

    return Rates, _bill()


def _derived_rates() -> tuple[type[Piece], type[Piece]]:
    class Rates(Piece, name="attacked.Rates"):
        other: Cell[int] = cell(default=1)

        @computed
        def rate(self) -> int:
            return 30 * self.other.get()

    return Rates, _bill()


def _bill() -> type[Piece]:
    class Bill(Piece, name="attacked.Bill"):
        rate: Input[int] = given()

        @computed
        def cost(self) -> int:
            return self.rate.get()

        @effect
        def show(self) -> None:
            self.cost.get()

    return Bill


def _linked() -> type[Piece]:
    class Linked(Piece, name="attacked.Linked"):
        far: Cell[Link[Cell[int]] | None] = cell(default=None)

        @computed
        def cost(self) -> int:
            far = self.far.get()
            return 0 if far is None else self.ctx.follow(far).get()

        @effect
        def show(self) -> None:
            self.cost.get()

    return Linked


def _sum(entry: Any) -> int:
    """All fields of a record, whichever it has."""
    return 0 if entry is None else sum(getattr(entry, name) for name in entry.__struct_fields__)


class Summed(Piece, name="attacked.Summed"):
    far: Input[int] = given()  # It is given something else: a type checker would say so.

    @computed
    def sum(self) -> int:
        return _sum(self.far.get())

    @effect
    def show(self) -> None:
        self.sum.get()


class Followed(Piece, name="attacked.Followed"):
    far: Cell[Link[Cell[int]] | None] = cell(default=None)

    @computed
    def sum(self) -> int:
        far = self.far.get()
        return 0 if far is None else _sum(self.ctx.follow(far).get())

    @effect
    def show(self) -> None:
        self.sum.get()


def _entries_slim() -> type[Piece]:
    class Entry(Model):
        n: int

    class Entries(Piece, name="attacked.Entries"):
        kept: Cell[Entry | None] = cell(default=None)

        @computed
        def made(self) -> Entry | None:
            return self.kept.get()

        @staticmethod
        def start(entries: Any) -> None:
            entries.kept.set(Entry(n=1))

    return Entries


def _entries_wide() -> type[Piece]:
    class Entry(Model):
        n: int
        more: int = 7

    class Entries(Piece, name="attacked.Entries"):
        kept: Cell[Entry | None] = cell(default=None)

        @computed
        def made(self) -> Entry | None:
            return self.kept.get()

    return Entries


async def _billed(folder: Path, classes: tuple[type[Piece], type[Piece]]) -> tuple[int, set[str]]:
    """What the bill says after a start, and what ran until then."""
    rates_class, bill_class = classes
    async with process(folder) as one:
        rates: Any = await one.space.open(rates_class, "a")
        bill: Any = await one.space.open(bill_class(rate=rates.rate), "b")  # type: ignore[call-arg]
        await one.settled()
        ran = one.taken()
        assert not one.errors
        return await bill.cost.pull(), ran


class TestWhatIsReadWhereNothingWasWritten:
    def test_another_default_of_a_cell_reaches_whoever_was_given_it(self, tmp_path: Path) -> None:
        async def story() -> None:
            assert await _billed(tmp_path, _rates(WAS)) == (2, {"b:cost", "b:show"})
            assert await _billed(tmp_path, _rates(WAS)) == (2, set())
            again = await previewed_with(tmp_path, _rates(5))
            assert again == {"b:cost"}
            assert await _billed(tmp_path, _rates(5)) == (5, {"b:cost", "b:show"})
            assert await _billed(tmp_path, _rates(5)) == (5, set())

        run(story)

    def test_so_does_that_the_cell_is_a_computed_now(self, tmp_path: Path) -> None:
        async def story() -> None:
            await _billed(tmp_path, _rates(WAS))
            await _billed(tmp_path, _rates(WAS))
            assert await _billed(tmp_path, _derived_rates()) == (30, {"a:rate", "b:cost", "b:show"})
            for n in (2, 3):
                async with process(tmp_path) as one:
                    rates_class, bill_class = _derived_rates()
                    rates: Any = await one.space.open(rates_class, "a")
                    bill: Any = await one.space.open(bill_class, "b")
                    await one.settled()
                    assert one.taken() == set()
                    rates.other.set(n)
                    await one.settled()
                    assert {"b:cost", "b:show"} <= one.taken(), "the effect is told, whoever sleeps"
                    assert await bill.cost.pull() == 30 * n

        run(story)

    @pytest.mark.parametrize("then", [lambda: _rates(50), _derived_rates])
    def test_and_whoever_follows_a_link_to_it(self, tmp_path: Path, then: Any) -> None:
        async def started(classes: tuple[type[Piece], type[Piece]], *, is_first: bool = False) -> tuple[int, set[str]]:
            async with process(tmp_path) as one:
                rates: Any = await one.space.open(classes[0], "a")
                linked: Any = await one.space.open(_linked(), "b")
                if is_first:
                    linked.far.set(link(rates.rate))
                await one.settled()
                return await linked.cost.pull(), one.taken() & {"b:cost", "b:show"}

        async def story() -> None:
            assert await started(_rates(WAS), is_first=True) == (2, {"b:cost", "b:show"})
            assert await started(_rates(WAS)) == (2, set())
            value, ran = await started(then())
            assert (value, ran) == (50 if value == 50 else 30, {"b:cost", "b:show"})
            assert await started(then()) == (value, set())

        run(story)

    def test_the_rows_of_an_each_that_were_given_a_cell_of_their_maker_run_with_its_new_default(
        self, tmp_path: Path
    ) -> None:
        def version(default: int) -> type[Piece]:
            class Sheet(Piece, name="attacked.Sheet"):
                items: Cell[Mapping[str, int]] = cell(default={})
                rate: Cell[int] = cell(default=default)

                @each(items)
                def rows(self, n: Cell[int]) -> Row:
                    return Row(n=n, rate=self.rate)

                @computed
                def total(self) -> int:
                    return sum(row.cost.get() for row in self.rows.get().values())

            return Sheet

        async def started(default: int) -> tuple[int, set[str]]:
            async with process(tmp_path) as one:
                sheet: Any = await one.space.open(
                    version(default), "a", setup=lambda made: made.items.set({"k1": 1, "k2": 2})
                )
                value = await sheet.total.pull()
                await one.settled()
                return value, one.taken()

        async def story() -> None:
            assert (await started(2))[0] == 6
            assert await started(2) == (6, set())
            assert (await started(5))[0] == 15
            assert await started(5) == (15, set())

        run(story)

    @pytest.mark.parametrize("name", ["kept", "made"])
    @pytest.mark.parametrize("way", ["given", "link"])
    def test_another_field_of_a_type_reaches_whoever_reads_it_without_naming_it(
        self, tmp_path: Path, name: str, way: str
    ) -> None:
        async def started(version: Any, *, is_first: bool = False) -> tuple[int, set[str]]:
            async with process(tmp_path) as one:
                entries: Any = await one.space.open(version, "a")
                if is_first:
                    entries.start(entries)
                    await one.settled()
                far = getattr(entries, name)
                reader: Any = await one.space.open(Summed(far=far) if way == "given" else Followed, "b")
                if is_first and way == "link":
                    reader.far.set(link(far))
                await one.settled()
                return await reader.sum.pull(), one.taken() & {"b:sum", "b:show"}

        async def story() -> None:
            assert await started(_entries_slim(), is_first=True) == (1, {"b:sum", "b:show"})
            assert await started(_entries_slim()) == (1, set())
            assert await started(_entries_wide()) == (8, {"b:sum", "b:show"})
            assert await started(_entries_wide()) == (8, set())

        run(story)

    @pytest.mark.parametrize("kind", ["fold", "each"])
    def test_what_goes_over_a_cell_goes_over_its_new_default(self, tmp_path: Path, kind: str) -> None:
        def version(n: int) -> type[Piece]:
            class Folded(Piece, name="attacked.Over"):
                items: Cell[Mapping[str, int]] = cell(default={"a": n})
                out = fold(items, start=0, add=lambda total, x: total + x, remove=lambda total, x: total - x)

            class Each(Piece, name="attacked.Over"):
                items: Cell[Mapping[str, int]] = cell(default={"a": n})

                @each(items)
                def out(self, n: Cell[int]) -> int:
                    return n.get()

            return Folded if kind == "fold" else Each

        async def started(n: int) -> object:
            async with process(tmp_path) as one:
                over: Any = await one.space.open(version(n), "a")
                value = await over.out.pull()
                return sum(value.values()) if kind == "each" else value

        async def story() -> None:
            assert [await started(n) for n in (2, 2, 3, 3)] == [2, 2, 3, 3]

        run(story)


async def previewed_with(folder: Path, classes: tuple[type[Piece], type[Piece]]) -> set[str]:
    """Which nodes would run again with these classes, which are the newest of their names."""
    assert all(classes)
    return named(await previewed(folder), "rerun")


def _counted(version: int) -> type[Piece]:
    """A class one member of which, that nobody demands, does something else in each version."""

    class Counted(Piece, name="attacked.Counted"):
        n: Cell[int] = cell(default=1)
        never: Cell[int] = cell(default=7)

        @computed
        def cost(self) -> int:
            return 2 * self.n.get()

        @computed
        def unread(self) -> int:
            return version

        @effect
        def show(self) -> None:
            self.cost.get()

        @effect
        def hello(self) -> None:
            self.never.get()

        @handler
        def put(self) -> None:
            self.n.increment(1)

    return Counted


class TestAnotherGeneration:
    def test_a_version_in_which_nothing_that_is_known_changed_runs_nothing_then_or_later(self, tmp_path: Path) -> None:
        async def story() -> None:
            runs = []
            for version in (1, 1, 2, 2, 2):
                async with process(tmp_path) as one:
                    piece: Any = await one.space.open(_counted(version), "a")
                    await one.settled()
                    await piece.cost.pull()
                    await one.settled()
                    runs.append(one.taken())
            assert runs == [{"a:cost", "a:show", "a:hello"}, set(), set(), set(), set()]

        run(story)

    def test_no_tool_says_that_its_nodes_are_dirty(self, tmp_path: Path) -> None:
        async def story() -> None:
            for newest in (_counted(1), _counted(2)):
                async with process(tmp_path) as one:
                    await one.open("a", newest)
            assert {stored.stale for stored in await observed(tmp_path)} == {()}
            assert named(await previewed(tmp_path), "rerun") == set()
            assert (await shadow_of(tmp_path)).not_clean == 0
            assert (await answer("backlog", str(tmp_path), SPACE))["pieces"] == []

        run(story)

    def test_a_member_that_the_class_of_a_child_lost_is_forgotten(self, tmp_path: Path) -> None:
        async def story() -> None:
            kept: type[Piece]
            for kept in (Wide, Slim):
                async with process(tmp_path) as one:
                    sheet: Any = await one.space.open(kept, "a", setup=lambda made: made.items.set({"k": 1}))
                    await one.settled()
                    (row,) = (await sheet.rows.pull()).values()
                    await row.cost.pull()
                    if kept is Wide:
                        await row.lost.pull()
                    await one.settled()
                assert ("lost" in {stored.node.member for stored in await observed(tmp_path)}) is (kept is Wide)

        run(story)

    def test_another_piece_of_the_same_name_is_not_what_the_deleted_one_was(self, tmp_path: Path) -> None:
        async def story() -> None:
            async with process(tmp_path) as one:
                await one.open("a", _counted(1))
            async with process(tmp_path) as one:
                await one.space.delete(one.space.piece(_counted(1), "a"))
                await one.settled()
            async with process(tmp_path) as one:
                piece: Any = one.space.piece(_counted(1), "a")
                await piece.put.send()
                await one.settled()
            async with process(tmp_path) as one:
                await one.open("a", _counted(1))
                assert "a:hello" in one.taken(), "nobody has shown anything of this one"

        run(story)


class TestPreviews:
    def test_what_a_piece_was_given_by_one_without_nodes_is_no_reason_to_run(self, tmp_path: Path) -> None:
        async def story() -> None:
            classes = _rates(WAS)  # The newest of their names, as long as they are held.
            await _billed(tmp_path, classes)
            found = await previewed(tmp_path)
            assert (named(found, "rerun"), "b:cost" in named(found, "clean")) == (set(), True)
            assert (await shadow_of(tmp_path)).checked == 1
            assert classes

        run(story)

    def test_what_was_read_of_another_space_is_not_called_clean_by_this_one(self, tmp_path: Path) -> None:
        async def story() -> None:
            rates_class, bill_class = _rates(WAS)
            async with process(tmp_path) as one:
                rates: Any = await one.rt.space("away").open(rates_class, "a")
                bill: Any = await one.space.open(bill_class(rate=rates.rate), "b")  # type: ignore[call-arg]
                assert await bill.cost.pull() == WAS
                await one.settled()
            (tmp_path / "away.space").unlink()  # Then it cannot be asked.
            where = str(tmp_path), SPACE
            nodes = (await answer("nodes", *where, "--member", "cost", "--piece", "b"))["nodes"]
            assert [(each["state"], each["unasked"]) for each in nodes] == [("unknown", ["away"])]
            backlog = (await answer("backlog", *where))["pieces"]
            assert [(each["piece"], each["dirty"], each["unasked"]) for each in backlog] == [("b", 1, ["away"])]
            last = (await answer("why", *where, "b.cost"))["last_run"]
            assert (last["elsewhere"], last["unasked"]) == (["away"], ["away"])

        run(story)
