"""A rolling deploy: two versions of one class run one piece, and the older one derives nothing any more."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from headwater import Cell, Input, Model, Piece, UpstreamFailedError, cell, computed, each, effect, given, handler
from tests.scenario.pieces_kit import at, run
from tests.scenario.runtime_kit import TRANSPORTS, rig_on

SHOWN: list[str] = []


class OldRow(Piece, name="shop.Row"):
    n: Input[int] = given()

    @computed
    def text(self) -> str:
        return f"old {self.n.get()}"


class OldCart(Piece, name="shop.RollingCart"):
    numbers: Cell[tuple[int, ...]] = cell(default=())
    entries: Cell[Mapping[str, int]] = cell(default={})

    @computed
    def total(self) -> int:
        return sum(self.numbers.get())

    @each(entries)
    def rows(self, n: Cell[int]) -> OldRow:
        return OldRow(n=n)

    @effect
    def show(self) -> None:
        SHOWN.append(f"old {self.total.get()}")

    @handler
    def add(self, n: int) -> None:
        self.numbers.push(n)


class NewRow(Piece, name="shop.Row"):
    n: Input[int] = given()

    @computed
    def text(self) -> str:
        return f"new {self.n.get()}"


class NewCart(Piece, name="shop.RollingCart", version=2):
    numbers: Cell[tuple[int, ...]] = cell(default=())
    entries: Cell[Mapping[str, int]] = cell(default={})

    @computed
    def total(self) -> int:
        return sum(self.numbers.get()) * 100

    @each(entries)
    def rows(self, n: Cell[int]) -> NewRow:
        return NewRow(n=n)

    @effect
    def show(self) -> None:
        SHOWN.append(f"new {self.total.get()}")

    @handler
    def add(self, n: int) -> None:
        self.numbers.push(n)


class Record(Model):
    """What is stored of a piece, in the document that has its id and `:@`."""

    cls: str
    name: str
    inputs: Mapping[str, str]
    generation: int = 1
    members: Mapping[str, str] = {}


def record(rt: object, name: str = "c") -> Record:
    found: Record = rt.cell("s", f"{name}:@", Record).get()  # type: ignore[attr-defined]
    return found


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_older_version_of_a_class_derives_nothing_once_a_newer_one_runs(transport: str, tmp_path: Path) -> None:
    async def work() -> None:
        SHOWN.clear()
        async with rig_on(transport, tmp_path) as rig:
            (one, _), (two, _) = rig.runtime(), rig.runtime()
            old = await one.space("s").open(OldCart, "c")
            await old.add.send(1)
            assert await old.total.pull() == 1
            await one.durable()
            new = await two.space("s").open(NewCart, "c")
            assert await new.total.pull() == 100
            assert record(two).generation == 2
            for _ in range(200):
                await rig.agreed(old.numbers, new.numbers)
                if rig.errors:
                    break
            await old.add.send(2)  # Events are changes that somebody meant.
            await new.add.send(3)
            assert await rig.agreed(old.numbers, new.numbers) == (1, 2, 3)
            assert await new.total.pull() == 600
            with pytest.raises(UpstreamFailedError, match="run by a newer version"):
                await old.total.pull()
            for runtime in rig.runtimes:
                await runtime.durable()
            assert await two.cell("s", "c:total", int).pull() == 600
            told = [str(failure.error) for failure in rig.errors]
            assert any("(2, this is 1)" in each for each in told)
            assert SHOWN[-1] == "new 600"

    run(work)


def test_record_of_a_newer_version_stops_the_older_one_although_no_node_reads_it(tmp_path: Path) -> None:
    async def work() -> None:
        async with rig_on("embedded", tmp_path) as rig:
            (one, _), (two, _) = rig.runtime(), rig.runtime()
            old = await one.space("s").open(OldCart, "c")
            assert await old.total.pull() == 0
            await one.durable()
            ran = one.scheduler.find("s/c:total")
            assert ran is not None
            assert all(spot is None or not spot.document.key.id.endswith(":@") for spot in ran.reads)  # type: ignore[attr-defined]
            await two.space("s").open(NewCart, "c")
            for _ in range(200):
                await rig.agreed(old.numbers)
                if rig.errors:
                    break
            assert [str(failure.error) for failure in rig.errors if "(2, this is 1)" in str(failure.error)]
            assert one.scheduler.find("s/c:total") is None

    run(work)


def test_what_an_older_version_had_on_its_way_is_refused(tmp_path: Path) -> None:
    async def work() -> None:
        async with rig_on("embedded", tmp_path) as rig:
            (one, cable), (two, _) = rig.runtime(), rig.runtime()
            old = await one.space("s").open(OldCart, "c")
            look = old.total.sink(lambda _: None)
            await one.settled()
            await one.durable()
            cable.unplug()
            old.numbers.push(7)
            await one.idle()
            assert old.total.get() == 7  # Shown here, and not sent yet.
            new = await two.space("s").open(NewCart, "c")
            assert await new.total.pull() == 0
            other = new.total.sink(lambda _: None)
            cable.plug_in()
            for _ in range(2_000):
                await two.idle()
                if new.numbers.get() == (7,) and new.total.get() == 700:
                    break
                await two.durable()
                await new.numbers.pull()
            for runtime in rig.runtimes:
                await runtime.durable()
            assert new.total.get() == 700
            look.close()
            other.close()

    run(work)


def test_a_changed_child_makes_another_generation_of_its_parent(tmp_path: Path) -> None:
    async def work() -> None:
        async with at("embedded", tmp_path) as site:
            old = await site.runtime().space("s").open(OldCart, "c", setup=lambda c: c.entries.set({"a": 1}))
            assert await old.rows.get()["a"].text.pull() == "old 1"
            new = await site.runtime().space("s").open(NewCart, "c")
            assert await new.rows.get()["a"].text.pull() == "new 1"
            stored = record(site.runtimes[1])
            assert {name.rpartition(".")[0] for name in stored.members} == {"shop.RollingCart", "shop.Row"}

    run(work)


def test_the_same_code_is_the_same_generation(tmp_path: Path) -> None:
    async def work() -> None:
        async with at("embedded", tmp_path) as site:
            opened = [await site.runtime().space("s").open(OldCart, "c") for _ in range(3)]
            await opened[0].add.send(1)
            assert await site.agreed(*(cart.total for cart in opened)) == 1
            assert [record(rt).generation for rt in site.runtimes] == [1, 1, 1]
            assert site.errors == []

    run(work)


RATES = {"tea": 450}


class Priced(Piece, name="generations.Priced"):
    n: Cell[int] = cell(default=1)

    @computed
    def price(self) -> int:
        return self.n.get() * RATES["tea"]


def test_a_global_that_changes_meanwhile_makes_no_other_generation_in_one_process(tmp_path: Path) -> None:
    async def work() -> None:
        async with at("embedded", tmp_path) as site:
            first = await site.runtime().space("s").open(Priced, "p")
            assert await first.price.pull() == 450
            RATES["milk"] = 120
            second = await site.runtime().space("s").open(Priced, "p")
            first.n.set(2)
            await site.settled()
            assert [await each.price.pull() for each in (first, second)] == [900, 900]
            assert site.errors == []

    run(work)
