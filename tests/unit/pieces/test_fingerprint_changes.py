"""What two fingerprints differ in is told by kind, as far as that can be told. It never decides anything."""

from __future__ import annotations

import pytest

from headwater.pieces.fingerprints.change_kinds import SAID, WIDTH, differing
from headwater.pieces.fingerprints.fingerprint import Fingerprint, Fingerprinter
from tests.unit.pieces.fingerprint_kit import program

SHOP = """
from __future__ import annotations
import headwater
import msgspec
from headwater import Cell, Computed, Piece, cell, computed, fold

RATE = 2
NAMES = {"a": 1}

class Line(headwater.Model):
    sku: str
    cents: int = 1

    def label(self) -> str:
        return self.sku

def scaled(n, by=1):
    return n * RATE * by + len(NAMES)

class Cart(Piece):
    lines: Cell[tuple[Line, ...]] = cell(default=())
    count: Cell[int] = cell(default=0)

    @computed
    def total(self) -> int:
        return scaled(sum(line.cents for line in self.lines.get()) + self.count.get(), by=3)

    @computed
    def packed(self) -> bytes:
        return msgspec.json.encode(self.count.get())

    @computed
    def other(self) -> int:
        return 1
"""


def of(shop: str, member: str = "total") -> Fingerprint:
    with program(shop=shop) as modules:
        cls = modules["shop"].Cart
        found = Fingerprinter().of(vars(cls)[member].fn, owner=cls)
    assert found.digest is not None, found.why
    return found


def test_the_same_program_has_the_same_kinds() -> None:
    assert of(SHOP).kinds == of(f"# moved\n{SHOP}").kinds
    assert len(of(SHOP).kinds) == WIDTH * len(SAID)


@pytest.mark.parametrize(
    ("old", "new", "kinds"),
    [
        ("by=3", "by=4", {"code"}),
        ("n * RATE * by", "by * RATE * n", {"called"}),
        ("by=1", "by=2", {"default"}),
        ("RATE = 2", "RATE = 3", {"constant"}),
        ('{"a": 1}', '{"a": 2}', {"constant"}),
        ("cents: int = 1", "cents: int = 2", {"type"}),
        ("    sku: str\n", "    sku: str\n    qty: int = 1\n", {"type"}),
        ("cell(default=0)", "cell(default=5)", {"declared"}),
        ("count: Cell[int] = cell(default=0)", "count: Cell[float] = cell(default=0)", {"declared"}),
    ],
)
def test_a_change_is_told_by_its_kind(old: str, new: str, kinds: set[str]) -> None:
    assert old in SHOP
    before, after = of(SHOP), of(SHOP.replace(old, new))
    assert before.digest != after.digest
    assert set(differing(before.kinds, after.kinds)) == kinds
    assert of(SHOP, "other") == of(SHOP.replace(old, new), "other")


def test_a_method_of_a_model_counts_for_those_who_read_it() -> None:
    """What a node calls on the values that it reads is code that it stands on."""
    before, after = of(SHOP), of(SHOP.replace("return self.sku", "return self.sku.upper()"))
    assert before.digest != after.digest
    assert of(SHOP, "packed") == of(SHOP.replace("return self.sku", "return self.sku.upper()"), "packed")


def test_with_another_python_nothing_else_is_worth_telling() -> None:
    one = "aaa" * len(SAID)
    assert differing(one, "bbb" * len(SAID)) == ("python",)
    assert differing(one, "aaa" + "bbb" * (len(SAID) - 1)) == tuple(SAID)[1:]
    assert differing("", one) == ()
