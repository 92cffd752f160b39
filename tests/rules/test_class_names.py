"""The public classes of the product: each name is defined once, except those of a list that may only shrink."""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

from tools.source_tree import PACKAGE, ROOT, is_apart, modules_of

LIST = ROOT / "tools" / "duplicate_classes.txt"


@cache
def places_of_classes() -> dict[str, list[str]]:
    """The modules that define each public class, by its name."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in modules_of(PACKAGE):
        place = path.relative_to(PACKAGE)
        if is_apart(place.as_posix()):
            continue
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(place.as_posix())
    return dict(found)


def known_duplicates(path: Path = LIST) -> dict[str, int]:
    """The names of the list, each with the number of its definitions."""
    lines = (line.split("#", 1)[0].split() for line in path.read_text().splitlines())
    return {line[0]: int(line[1]) for line in lines if line}


def test_no_further_class_has_the_name_of_another_one() -> None:
    known = known_duplicates()
    more = {name: places for name, places in places_of_classes().items() if len(places) > known.get(name, 1)}
    assert more == {}, "give the new class a name of its own"


def test_list_of_duplicates_has_no_class_that_was_renamed() -> None:
    defined = places_of_classes()
    fewer = {name for name, number in known_duplicates().items() if len(defined.get(name, ())) < number}
    assert fewer == set(), f"lower the numbers in {LIST.name}, or remove the lines"
