"""The page of limits has every field of every class of limits, with its default, and says which are fixed."""

from __future__ import annotations

import ast
import importlib
import re
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path

from headwater.backoff import Backoff
from headwater.server.operation.limits import Budget, ServerLimits

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "headwater"
PAGE = ROOT / "docs" / "LIMITS.md"
CONSTANTS = "Constants of modules"
BUDGETS = "`Budget`"


def written() -> dict[str, dict[str, str]]:
    """By class, the fields of the page and their defaults."""
    found: dict[str, dict[str, str]] = {}
    for part in PAGE.read_text().split("\n## ")[1:]:
        if part.startswith((CONSTANTS, BUDGETS)):
            continue
        name = re.match(r"`(\w+)`", part)
        assert name, part[:40]
        found[name[1]] = dict(re.findall(r"^\| `(\w+)` \| (.+?) \| .+ \|$", part, re.MULTILINE))
    return found


def declared() -> dict[str, dict[str, str]]:
    """By class, the fields that are numbers or backoffs, and their defaults."""
    found: dict[str, dict[str, str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        relative = path.relative_to(SOURCE)
        if relative.parts[0] == "testing":
            continue
        for node in ast.parse(path.read_text()).body:
            if not isinstance(node, ast.ClassDef):
                continue
            is_pace = (relative.as_posix(), node.name) == ("reactions/drain.py", "Pace")
            if not (is_pace or re.fullmatch(r"\w*(?:Limits|Policy)", node.name)):
                continue
            kind = getattr(importlib.import_module(".".join(("headwater", *relative.with_suffix("").parts))), node.name)
            assert is_dataclass(kind)
            found[node.name] = {
                each.name: "a `Backoff`" if each.default is MISSING else f"{each.default:,}"
                for each in fields(kind)
                if (each.default_factory is MISSING and isinstance(each.default, (int, float)))
                or (each.default_factory is not MISSING and isinstance(each.default_factory(), Backoff))
            }
    return found


def test_page_has_every_limit_with_its_default() -> None:
    assert written() == declared()


def test_page_has_the_budget_of_every_proof() -> None:
    text = PAGE.read_text().split(f"## {BUDGETS}", 1)[1].split("\n## ", 1)[0]
    rows = {
        row[0]: list(row[1:]) for row in re.findall(r"^\| `(\w+)` \| (\S+) \| (\S+) \| (\S+) \| .+ \|$", text, re.M)
    }
    limits = ServerLimits()
    budgets = (limits.nothing, limits.token, limits.right)
    names = [each.name for each in fields(Budget)]
    assert rows == {name: [f"{getattr(budget, name):,}" for budget in budgets] for name in names}


def test_page_has_the_values_of_constants() -> None:
    text = PAGE.read_text().split(f"## {CONSTANTS}\n", 1)[1]
    rows = re.findall(r"^\| `([\w.]+)` \| (.+?) \| .+ \|$", text, re.MULTILINE)
    assert rows
    found = {}
    for name, _ in rows:
        module, _, constant = name.rpartition(".")
        found[name] = f"{getattr(importlib.import_module(f'headwater.{module}'), constant):,}"
    assert dict(rows) == found


def test_classes_that_the_page_calls_fixed_are_accepted_by_no_function() -> None:
    parts = PAGE.read_text().split("\n## ")
    fixed = {part.split("`")[1] for part in parts[1:] if "\n\nFixed." in part and not part.startswith(CONSTANTS)}
    assert fixed == set(re.findall(r"`(\w+)`", parts[0].split("constructors.")[1].split("are fixed")[0]))
    accepted = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.arg) and node.annotation is not None:
                accepted |= set(re.findall(r"\w+", ast.unparse(node.annotation)))
    assert {name for name in declared() if name not in accepted} == fixed
