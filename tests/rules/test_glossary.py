"""The glossary of the architecture page: each noun names a class or a module of the product, and one thing only."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.rules.test_class_names import known_duplicates, places_of_classes

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "ARCHITECTURE.md"
SOURCE = ROOT / "src" / "headwater"
TOOLS = ROOT / "tools"


def nouns() -> list[str]:
    table = PAGE.read_text().split("## Glossary", 1)[1]
    return re.findall(r"^\| (\w[\w ]*) \| .+ \|$", table, re.MULTILINE)[1:]


def product_modules() -> list[Path]:
    return [path for path in SOURCE.rglob("*.py") if path.relative_to(SOURCE).parts[0] != "testing"]


@cache
def words_of_names() -> frozenset[str]:
    """Every word in the names of modules, of classes and of bounds, in lower case and in the singular."""
    names = {path.stem for path in [*product_modules(), *TOOLS.glob("*.py")]}
    for path in product_modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                names.add(node.name)
                if node.name.endswith("Limits"):
                    fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
                    names |= {each.target.id for each in fields if isinstance(each.target, ast.Name)}
    words = {word.lower() for name in names for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}
    return frozenset(words | {singular(word) for word in words})


def singular(word: str) -> str:
    """A word without the ending of the plural: `registries` is of `registry`, `branches` of `branch`."""
    for plural, end in (("ies", "y"), ("sses", "ss"), ("ches", "ch"), ("s", "")):
        if word.endswith(plural) and not word.endswith("ss"):
            return word.removesuffix(plural) + end
    return word


def test_glossary_has_about_forty_five_nouns_in_order() -> None:
    found = nouns()
    assert 40 <= len(found) <= 50
    assert found == sorted(set(found))


def test_nouns_of_the_glossary_are_in_the_singular() -> None:
    assert [noun for noun in nouns() if singular(noun) != noun] == []


@pytest.mark.parametrize(
    ("plural", "noun"), [("Events", "event"), ("registries", "registry"), ("branches", "branch"), ("passes", "pass")]
)
def test_plural_of_a_noun_is_recognized(plural: str, noun: str) -> None:
    assert singular(plural.lower()) == noun


@pytest.mark.parametrize("noun", nouns())
def test_noun_of_the_glossary_names_a_class_or_a_module(noun: str) -> None:
    assert set(noun.split()) <= words_of_names()


def test_class_that_is_named_like_a_noun_of_the_glossary_is_defined_once() -> None:
    """In the singular and in the plural: `Events` may be one class only, like `Event`."""
    known = known_duplicates()
    found = {
        name: places
        for name, places in places_of_classes().items()
        if singular(name.lower()) in nouns() and len(places) > known.get(name, 1)
    }
    assert found == {}
