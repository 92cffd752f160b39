"""The page of limits has every field of every class of limits, with its default."""

from __future__ import annotations

import ast
import importlib
import re
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "headwater"


def written() -> dict[str, dict[str, str]]:
    """By class, the fields of the page and their defaults."""
    found: dict[str, dict[str, str]] = {}
    for part in (ROOT / "docs" / "LIMITS.md").read_text().split("\n## ")[1:]:
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
            if not (isinstance(node, ast.ClassDef) and re.fullmatch(r"\w*(?:Limits|Policy)", node.name)):
                continue
            kind = getattr(importlib.import_module(".".join(("headwater", *relative.with_suffix("").parts))), node.name)
            assert is_dataclass(kind)
            found[node.name] = {
                each.name: "a `Backoff`" if each.default is MISSING else f"{each.default:,}"
                for each in fields(kind)
                if each.default is MISSING or isinstance(each.default, (int, float))
            }
    return found


def test_page_has_every_limit_with_its_default() -> None:
    assert written() == declared()
