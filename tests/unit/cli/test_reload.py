"""Reloading takes in what changed in an application's code, and runs exactly that."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from headwater.cli.loading import load_application
from headwater.cli.process.reload import Reload
from headwater.runtime.api.runtime import Runtime
from tests.unit.cli.kit_app import SHOP, imported, write_app

pytestmark = pytest.mark.thorough


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    with imported():
        yield


class Shop:
    """A shop that runs, its file, and how often its members ran."""

    def __init__(self, file: Path, module: ModuleType, rt: Runtime, reload: Reload, cart: Any) -> None:
        self.file = file
        self.module: Any = module
        self.rt = rt
        self.reload = reload
        self.cart = cart

    def runs(self) -> dict[str, int]:
        return {node.id.partition(":")[2].partition(" of ")[0]: node.runs for node in self.rt.core.scheduler.registry}

    def look(self) -> bool:
        return self.reload.apply_changes((self.rt,)) and self.reload.can_be_imported()

    def write(self, old: str, new: str) -> None:
        text = self.file.read_text()
        assert text.count(old) == 1
        self.file.write_text(text.replace(old, new))
        state = self.file.stat()
        os.utime(self.file, ns=(state.st_atime_ns, state.st_mtime_ns + 1_000_000))

    async def edit(self, old: str, new: str) -> tuple[bool, dict[str, int]]:
        """Change the file. Answers whether that needs a new start, and what ran."""
        before = self.runs()
        self.write(old, new)
        needs_start = self.look()
        await self.rt.settled()
        return needs_start, {name: runs - before[name] for name, runs in self.runs().items() if runs != before[name]}


def in_shop(tmp_path: Path, act: Callable[[Shop], Awaitable[None]], text: str = SHOP) -> None:
    async def main() -> None:
        file = write_app(tmp_path / "app", text)
        module, _, _ = load_application(str(file))
        async with Runtime(str(tmp_path / "data")) as rt:
            shop = rt.space("shop", user="ann")
            cart: Any = await shop.open(vars(module)["Cart"], "ann")
            await cart.add.send(vars(module)["Line"](sku="tea", cents=450))
            await rt.settled()
            await act(Shop(file, module, rt, Reload(str(file), file, module), cart))

    asyncio.run(main())


def test_nothing_changed_runs_nothing(tmp_path: Path) -> None:
    async def act(shop: Shop) -> None:
        assert not shop.look()
        os.utime(shop.file)  # Saved again, with the same text.
        before = shop.runs()
        assert not shop.look()
        await shop.rt.settled()
        assert shop.runs() == before

    in_shop(tmp_path, act)


def test_a_changed_computed_runs_and_its_readers_if_its_value_changed(tmp_path: Path) -> None:
    async def act(shop: Shop) -> None:
        needs_start, ran = await shop.edit("line.cents for line", "line.cents + 1 for line")
        assert (needs_start, ran) == (False, {"total": 1, "twice": 1, "label": 1, "show": 1})
        assert await shop.cart.total.pull() == 451
        assert shop.module.seen[-1] == ": 902"

    in_shop(tmp_path, act)


def test_a_changed_computed_with_an_equal_value_runs_alone(tmp_path: Path) -> None:
    async def act(shop: Shop) -> None:
        needs_start, ran = await shop.edit("line.cents for line", "0 + line.cents for line")
        assert (needs_start, ran) == (False, {"total": 1})

    in_shop(tmp_path, act)


def test_comments_and_lines_that_moved_run_nothing(tmp_path: Path) -> None:
    async def act(shop: Shop) -> None:
        assert await shop.edit("RATE = 2", '"""About prices."""\n\n# twice\nRATE = 2') == (False, {})
        assert await shop.edit("0 + " if False else "def scaled", "# helps\ndef scaled") == (False, {})

    in_shop(tmp_path, act)


@pytest.mark.parametrize(
    ("old", "new"), [("RATE = 2", "RATE = 3"), ("number * RATE", "number * 3")], ids=["a constant", "a function"]
)
def test_a_member_runs_again_when_something_that_it_uses_changed(tmp_path: Path, old: str, new: str) -> None:
    async def act(shop: Shop) -> None:
        needs_start, ran = await shop.edit(old, new)
        assert (needs_start, ran) == (False, {"twice": 1, "label": 1, "show": 1})
        assert await shop.cart.twice.pull() == 1350

    in_shop(tmp_path, act)


def test_a_changed_handler_runs_nothing_and_is_used_for_the_next_event(tmp_path: Path) -> None:
    async def act(shop: Shop) -> None:
        assert await shop.edit("return line.cents\n", "return -line.cents\n") == (False, {})
        assert await shop.cart.add.send(shop.module.Line(sku="tea", cents=1)) == -1

    in_shop(tmp_path, act)


def test_a_changed_effect_shows_again(tmp_path: Path) -> None:
    async def act(shop: Shop) -> None:
        assert await shop.edit("seen.append(self", "seen.append('new ' + self") == (False, {"show": 1})
        assert shop.module.seen[-1] == "new : 900"

    in_shop(tmp_path, act)


def test_two_changes_one_after_the_other_are_both_taken_in(tmp_path: Path) -> None:
    async def act(shop: Shop) -> None:
        await shop.edit("line.cents for line", "line.cents + 1 for line")
        needs_start, ran = await shop.edit("line.cents + 1 for line", "line.cents + 2 for line")
        assert (needs_start, ran["total"]) == (False, 1)
        assert await shop.cart.total.pull() == 452

    in_shop(tmp_path, act)


def test_a_file_that_does_not_compile_leaves_the_old_code_running(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def act(shop: Shop) -> None:
        assert await shop.edit("return number * RATE", "return number *") == (False, {})
        assert "shop.py cannot be compiled" in capsys.readouterr().err
        needs_start, ran = await shop.edit("return number *\n", "return number * 5\n")
        assert (needs_start, ran["twice"]) == (False, 1)
        assert await shop.cart.twice.pull() == 2250

    in_shop(tmp_path, act)


def test_statements_that_raise_change_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def act(shop: Shop) -> None:
        needs_start, ran = await shop.edit("RATE = 2\n", "RATE = 7\nOTHER = 1 // 0\n")
        assert (needs_start, ran) == (False, {})
        assert "ZeroDivisionError" in capsys.readouterr().err
        assert (shop.module.RATE, await shop.cart.twice.pull()) == (2, 900)

    in_shop(tmp_path, act)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    cents: int\n", "    cents: int\n    qty: int = 1\n"),
        ('    note: Cell[str] = cell(default="")', '    note: Cell[str] = cell(default="x")'),
        ("    @effect\n", "    @effect(debounce_ms=5)\n"),
        ("def add(self, line: Line)", "def add(self, line: Line, often: int = 1)"),
        ("n + 1, remove", "n + 2, remove"),
        ('open(Cart, "ann")', 'open(Cart, "bob")'),
    ],
    ids=["a field", "a default", "an option", "an argument", "a fold", "its beginning"],
)
def test_what_changes_the_shape_of_a_class_needs_a_new_start(tmp_path: Path, old: str, new: str) -> None:
    async def act(shop: Shop) -> None:
        needs_start, _ = await shop.edit(old, new)
        assert needs_start

    in_shop(tmp_path, act)


def test_a_program_that_cannot_start_does_not_replace_one_that_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def act(shop: Shop) -> None:
        needs_start, ran = await shop.edit("    cents: int\n", "    cents: no_such_type.at_all\n")
        assert (needs_start, ran) == (False, {})
        assert "The previous code goes on." in capsys.readouterr().err
        assert (await shop.edit("no_such_type.at_all", "int"))[0] is False
        assert await shop.cart.total.pull() == 450

    in_shop(tmp_path, act)


def test_a_module_that_the_application_imports_is_looked_at_too(tmp_path: Path) -> None:
    write_app(tmp_path / "app", "def scaled(number: int) -> int:\n    return number * 2\n", name="prices")
    text = SHOP.replace("import headwater\n", "import headwater\nfrom prices import scaled\n", 1)
    text = text.replace("def scaled(number: int) -> int:\n    return number * RATE\n", "")

    async def act(shop: Shop) -> None:
        prices = Shop(shop.file.parent / "prices.py", shop.module, shop.rt, shop.reload, shop.cart)
        needs_start, ran = await prices.edit("number * 2", "number * 3")
        assert (needs_start, ran) == (False, {"twice": 1, "label": 1, "show": 1})
        assert await shop.cart.twice.pull() == 1350

    in_shop(tmp_path, act, text)


HELPED = SHOP.replace("import headwater\n", "import headwater\nfrom prices import RATE\n", 1).replace(
    "RATE = 2\n", "", 1
)


def _in_helped_shop(tmp_path: Path, act: Callable[[Shop, Shop], Awaitable[None]], text: str = HELPED) -> None:
    """Run a shop that imports a constant of another module. `act` gets the shop and the other module."""
    write_app(tmp_path / "app", "RATE = 2\n", name="prices")

    async def both(shop: Shop) -> None:
        await act(shop, Shop(shop.file.parent / "prices.py", shop.module, shop.rt, shop.reload, shop.cart))

    in_shop(tmp_path, both, text)


@pytest.mark.parametrize("alias", ["RATE", "FACTOR"])
def test_constant_that_another_module_imported_by_name_gets_its_new_value(tmp_path: Path, alias: str) -> None:
    text = HELPED
    if alias != "RATE":
        text = text.replace("import RATE", "import RATE as FACTOR").replace("number * RATE", "number * FACTOR")

    async def act(shop: Shop, prices: Shop) -> None:
        needs_start, ran = await prices.edit("RATE = 2", "RATE = 3")
        assert (needs_start, ran) == (False, {"twice": 1, "label": 1, "show": 1})
        assert await shop.cart.twice.pull() == 1350

    _in_helped_shop(tmp_path, act, text)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("import RATE\n", "import RATE\nDOUBLED = RATE * 2\n"),
        ("from prices import RATE\n", "import prices\nRATE = prices.RATE * 2\n"),
        ("number: int) -> int", "number: int, rate: int = RATE) -> int"),
    ],
    ids=["another constant", "an attribute", "a default"],
)
def test_constant_that_was_used_at_import_needs_a_new_start(tmp_path: Path, old: str, new: str) -> None:
    assert old in HELPED

    async def act(shop: Shop, prices: Shop) -> None:
        assert (await prices.edit("RATE = 2", "RATE = 3"))[0]

    _in_helped_shop(tmp_path, act, HELPED.replace(old, new, 1))


def test_constant_that_follows_from_a_changed_one_needs_a_new_start(tmp_path: Path) -> None:
    async def act(shop: Shop) -> None:
        assert (await shop.edit("RATE = 2\n", "RATE = 3\n"))[0]

    in_shop(tmp_path, act, SHOP.replace("RATE = 2\n", "RATE = 2\nDOUBLED = RATE * 2\n", 1))


ROWS = """
from __future__ import annotations

from collections.abc import Mapping

import headwater
from headwater import Cell, Input, Pending, Piece, Ready, cell, computed, each, fold, given, handler, resource


class Line(headwater.Model):
    sku: str
    cents: int


def priced(cents: int) -> int:
    return cents + 1


async def weighed(sku: str) -> int:
    return len(sku)


class Row(Piece):
    line: Input[Line] = given()

    @computed
    def label(self) -> str:
        return f"{self.line.get().sku} {self.line.get().cents}"

    @computed
    def size(self) -> int:
        return len(self.label.get())


class Cart(Piece):
    lines: Cell[Mapping[str, Line]] = cell(default={})
    chosen: Cell[str] = cell(default="tea")

    @each(lines)
    def rows(self, line: Cell[Line]) -> Row:
        return Row(line=line)

    @each(lines)
    def prices(self, line: Cell[Line]) -> int:
        return priced(line.get().cents)

    total = fold(
        lines, start=0, add=lambda n, line: n + priced(line.cents), remove=lambda n, line: n - priced(line.cents)
    )

    @resource(chosen)
    async def weight(self, sku: str) -> int:
        return await weighed(sku)

    @handler
    def add(self, line: Line) -> None:
        self.lines.key(line.sku).set(line)
"""


class TestOfWhatChangesItsShape:
    def test_a_changed_member_of_a_child_runs_in_every_child(self, tmp_path: Path) -> None:
        async def act(shop: Shop) -> None:
            await shop.cart.add.send(shop.module.Line(sku="milk", cents=120))
            await shop.rt.settled()
            rows = shop.cart.rows.get()
            looks = [row.size.sink(lambda _: None) for row in rows.values()]
            await shop.rt.settled()
            before = {node.id: node.runs for node in shop.rt.core.scheduler.registry}
            needs_start, _ = await shop.edit('f"{self.line.get().sku} {self', 'f"{self.line.get().sku}:{self')
            ran = {node.id: node.runs - before[node.id] for node in shop.rt.core.scheduler.registry}
            assert not needs_start
            # The same length: whoever reads the label does run, and whoever reads the size does not.
            assert {id.rpartition(":")[2]: runs for id, runs in ran.items() if runs} == {"label": 1, "size": 1}
            assert {await row.label.pull() for row in rows.values()} == {"milk:120", "tea:450"}
            assert shop.cart.rows.get()["tea"] is rows["tea"]
            for look in looks:
                look.close()

        in_shop(tmp_path, act, ROWS)

    def test_the_rows_of_an_each_and_a_fold_are_made_again_by_what_they_use_now(self, tmp_path: Path) -> None:
        async def act(shop: Shop) -> None:
            looks = [shop.cart.prices.sink(lambda _: None), shop.cart.total.sink(lambda _: None)]
            await shop.rt.settled()
            assert await shop.cart.total.pull() == 451
            needs_start, _ = await shop.edit("return cents + 1", "return cents + 2")
            assert not needs_start
            assert dict(await shop.cart.prices.pull()) == {"tea": 452}
            assert await shop.cart.total.pull() == 452
            for look in looks:
                look.close()

        in_shop(tmp_path, act, ROWS)

    def test_a_resource_is_fetched_again_by_its_new_code(self, tmp_path: Path) -> None:
        async def act(shop: Shop) -> None:
            states: list[Any] = []
            look = shop.cart.weight.sink(states.append)

            async def until(value: int) -> None:
                async with asyncio.timeout(20):
                    async for state in shop.cart.weight.watch():
                        if getattr(state, "value", None) == value:
                            return

            await until(3)
            needs_start, _ = await shop.edit("return len(sku)", "return len(sku) * 10")
            assert not needs_start
            await until(30)
            look.close()

        in_shop(tmp_path, act, ROWS)
