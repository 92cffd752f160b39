"""The glossary of the architecture page: each noun names a class or a module of the product, and one thing only."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "ARCHITECTURE.md"
SOURCE = ROOT / "src" / "headwater"


def nouns() -> list[str]:
    table = PAGE.read_text().split("## Glossary", 1)[1]
    return re.findall(r"^\| (\w+) \| .+ \|$", table, re.MULTILINE)[1:]


def product_modules() -> list[Path]:
    return [path for path in SOURCE.rglob("*.py") if path.relative_to(SOURCE).parts[0] != "testing"]


@cache
def words_of_names() -> frozenset[str]:
    """Every word in the names of modules and classes, in lower case and in the singular."""
    names = {path.stem for path in product_modules()}
    for path in product_modules():
        names |= {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)}
    words = {word.lower() for name in names for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}
    return frozenset(words | {word.removesuffix("s") for word in words})


def test_glossary_has_about_forty_nouns_in_order() -> None:
    found = nouns()
    assert 35 <= len(found) <= 50
    assert found == sorted(set(found))


@pytest.mark.parametrize("noun", nouns())
def test_noun_of_the_glossary_names_a_class_or_a_module(noun: str) -> None:
    assert noun in words_of_names()


def test_class_that_is_named_like_a_noun_of_the_glossary_is_defined_once() -> None:
    defined: dict[str, list[str]] = defaultdict(list)
    for path in product_modules():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and node.name.lower() in nouns():
                defined[node.name].append(path.relative_to(SOURCE).as_posix())
    assert {name: places for name, places in defined.items() if len(places) > 1} == {}
