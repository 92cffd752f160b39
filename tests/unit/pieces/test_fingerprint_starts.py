"""Fingerprints: the same on every start, other under another version, and fast."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headwater.pieces.fingerprints import fingerprint as fingerprint_module
from headwater.pieces.fingerprints import origin
from headwater.pieces.fingerprints.fingerprint import Fingerprinter
from headwater.pieces.fingerprints.origin import CodeOrigin, Origins
from tests.unit.pieces.fingerprint_kit import digest, program

pytestmark = pytest.mark.thorough

SHOP = """
from __future__ import annotations
import enum, functools, logging
from dataclasses import dataclass, field
from decimal import Decimal
from headwater.cells.model import Model
from pydantic import BaseModel
from typing import NamedTuple
import helpers

log = logging.getLogger(__name__)
NAMES = {"a", "b", "c", "d", "e"}
FROZEN = frozenset(["x", ("y", 1), Decimal("1"), None, 2, helpers.tax])
NOBODY = object()

class Kind(enum.Flag):
    A = 1
    B = 2

class Line(Model):
    sku: str
    cents: int = 3
    kind: Kind = Kind.A | Kind.B

class Form(BaseModel):
    name: str = "x"

class Pair(NamedTuple):
    x: int = 1

@dataclass
class Point:
    x: list[int] = field(default_factory=list)

@functools.lru_cache
def cached(n): return n

class Cart:
    def total(self, line: Line) -> int:
        log.info("%s", __name__)
        if line.sku in {"p", "q", "r", "s", "t"}:
            return self.plain(line)
        return cached(line.cents), NOBODY, FROZEN, Form, Point(), Pair(2)
    def plain(self, line: Line) -> int:
        return [helpers.tax(n) for n in NAMES]

if __name__ == "__main__":
    from headwater.pieces.fingerprints.fingerprint import fingerprint_of
    print(fingerprint_of(vars(Cart)["total"], owner=Cart))
"""
HELPERS = "def tax(n):\n    return n + 1\n"
IMPORTING = """
import shop
from headwater.pieces.fingerprints.fingerprint import fingerprint_of
print(fingerprint_of(vars(shop.Cart)["total"], owner=shop.Cart))
"""


def start(folder: Path, *arguments: str, seed: int = 0) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": str(folder)}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "digest='" in done.stdout, done.stdout
    return done.stdout


def write(folder: Path, shop: str = SHOP) -> Path:
    folder.mkdir()
    (folder / "shop.py").write_text(shop)
    (folder / "helpers.py").write_text(HELPERS)
    (folder / "main.py").write_text(IMPORTING)
    return folder


def test_every_start_of_the_same_program_has_the_same_fingerprint(tmp_path: Path) -> None:
    one, other = write(tmp_path / "one"), write(tmp_path / "other", SHOP.replace("NAMES", "# moved\n\nNAMES", 1))
    starts = {
        start(one, "main.py", seed=1),
        start(one, "main.py", seed=2),  # from the stored bytecode now
        start(one, "-B", "main.py", seed=3),
        start(one, "-c", f"import decimal, helpers, csv\n{IMPORTING}", seed=4),
        start(other, "main.py", seed=5),  # another folder, other line numbers
        start(one, "shop.py", seed=6),  # as a script
        start(one, "-m", "shop", seed=7),
    }
    assert len(starts) == 1, starts


def test_the_version_of_python_and_of_our_rules_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    source = "def total(): return 1\n"
    before = digest(source)
    monkeypatch.setattr(fingerprint_module, "PYTHON", "cpython 3.99")
    python = digest(source)
    monkeypatch.undo()
    monkeypatch.setattr(fingerprint_module, "RULES", origin.RULES + 1)
    assert len({before, python, digest(source)}) == 3


def test_the_version_of_a_package_counts_for_who_names_it_and_for_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    named = "import msgspec\ndef total(n): return msgspec.json.encode(n)\n"
    model = "from headwater.cells.model import Model\nclass A(Model):\n    x: int\ndef total(a: A): return a.x\n"
    before = digest(named), digest(model)
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "99.0")
    after = digest(named), digest(model)
    assert before[0] != after[0]
    assert before[1] == after[1]  # What a Model is made of is our own affair.


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        ("builtins", CodeOrigin.STANDARD),
        ("math", CodeOrigin.STANDARD),
        ("os.path", CodeOrigin.STANDARD),
        ("json.decoder", CodeOrigin.STANDARD),
        ("wave", CodeOrigin.STANDARD),
        (None, CodeOrigin.STANDARD),
        ("msgspec._core", CodeOrigin.PACKAGE),
        ("_pytest.fixtures", CodeOrigin.PACKAGE),
        ("typing_extensions", CodeOrigin.PACKAGE),
        ("headwater.cells.model", CodeOrigin.OURS),
        ("tests.unit.pieces.fingerprint_kit", CodeOrigin.APPLICATION),
        ("nowhere.at.all", CodeOrigin.APPLICATION),
    ],
)
def test_every_module_has_an_origin(module: str | None, expected: CodeOrigin) -> None:
    assert Origins().of(module) is expected


def test_a_package_is_named_with_its_version() -> None:
    assert Origins().version("_pytest.fixtures") == f"pytest=={importlib.metadata.version('pytest')}"
    assert Origins().version("msgspec") == f"msgspec=={importlib.metadata.version('msgspec')}"


def test_a_module_of_the_application_may_have_the_name_of_one_of_the_library() -> None:
    one = digest("import queue\ndef total(): return queue.size()\n", queue="def size(): return 1\n")
    two = digest("import queue\ndef total(): return queue.size()\n", queue="def size(): return 2\n")
    assert one != two


def many_classes(classes: int, members: int) -> str:
    lines = ["from headwater.cells.model import Model", "import helpers"]
    for n in range(classes):
        lines += [f"class Line{n}(Model):", "    sku: str", "    cents: int = 1", f"class Cart{n}:"]
        for m in range(members):
            lines += [
                f"    def total{m}(self, line: Line{n}) -> int:",
                f"        found = [helpers.tax(each.cents) for each in self.lines.get() if each.sku == 'a{m}']",
                f"        return sum(found) + self.plain(line.cents) + {m}",
            ]
        lines += ["    def plain(self, n):", "        return helpers.tax(n) + 1"]
    return "\n".join(lines)


def test_a_thousand_members_of_a_hundred_classes_are_looked_at_once_each() -> None:
    with program(helpers=HELPERS, shop=many_classes(100, 10)) as modules:
        made = Fingerprinter()
        owners = [cls for name, cls in vars(modules["shop"]).items() if name.startswith("Cart")]
        members = [(cls, vars(cls)[f"total{n}"]) for cls in owners for n in range(10)]
        began = time.perf_counter()
        found = [made.of(fn, owner=cls) for cls, fn in members]
        took = time.perf_counter() - began
        print(f"1,000 members of 100 classes: {took * 1_000:.0f} ms")
        assert len({each.digest for each in found}) == 1_000
        # Every function, class and helper once: 1,000 members, 100 plain methods, 100 Models, one helper.
        assert made.described == 1_201
        began = time.perf_counter()
        assert found == [made.of(fn, owner=cls) for cls, fn in members]
        print(f"once more: {(time.perf_counter() - began) * 1_000:.0f} ms")
