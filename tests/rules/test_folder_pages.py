"""The page of each folder of the product, which is the docstring of its `__init__`: it names the modules of the folder,
the packages and rooms that import it, and the module to start with."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tools.source_tree import PACKAGE, import_graph, is_apart, module_name

ROOT_NAME = PACKAGE.name

LOADED_BY_NAME = {"cli.data": "cli.app", "cli.process": "cli.app"}
"""Importers that name a module in a text: `cli.app` has a table of commands."""


def folders() -> list[str]:
    paths = sorted(path.parent.relative_to(PACKAGE) for path in PACKAGE.rglob("__init__.py"))
    return [path.as_posix() for path in paths if path.parts]


def page(folder: str) -> str:
    text = ast.get_docstring(ast.parse((PACKAGE / folder / "__init__.py").read_text()))
    assert text
    return " ".join(text.split())


def modules(folder: str) -> set[str]:
    """The modules and the folders with modules of a folder. The entry point of `python -m` needs no mention."""
    found = {path.stem for path in (PACKAGE / folder).glob("*.py")}
    found |= {path.parent.name for path in (PACKAGE / folder).glob("*/__init__.py")}
    return found - {"__init__", "__main__"}


def names(text: str) -> set[str]:
    """The names in backticks, without the ending of a file or a folder."""
    return {name.removesuffix("/").removesuffix(".py") for name in re.findall(r"`([\w./]+)`", text)}


def sentence(text: str, beginning: str) -> str:
    found = re.search(rf"(?<![a-z] ){beginning} .+?\.(?= |$)", text)
    return found[0] if found else ""


@cache
def imports() -> dict[str, set[str]]:
    return import_graph(PACKAGE)


def importers(folder: str) -> set[str]:
    """The packages that import a folder; of the folder's own package the rooms and modules, by their dotted names.

    A module counts as the part that the deepest common folder has of it. The `__init__` of a folder above, which lists
    public names, does not count, and `testing` counts for its own folders only.
    """
    name = ".".join((ROOT_NAME, *Path(folder).parts))
    found = {LOADED_BY_NAME[key] for key in [".".join(Path(folder).parts)] if key in LOADED_BY_NAME}
    for module, imported in imports().items():
        if _is_inside(module, name) or _is_inside(name, module):
            continue
        if any(_is_inside(each, name) for each in imported):
            found.add(_part(module, name))
    return {each for each in found if is_apart(folder) or not is_apart(each.replace(".", "/"))}


def _is_inside(module: str, folder: str) -> bool:
    return f"{module}.".startswith(f"{folder}.")


def _part(module: str, folder: str) -> str:
    steps = module.split(".")
    common = sum(1 for at in range(len(steps)) if _is_inside(folder, ".".join(steps[: at + 1])))
    return ".".join(steps[1 : common + 1])


def test_names_of_modules_are_those_of_the_import_graph() -> None:
    assert module_name(PACKAGE, PACKAGE / "engine" / "log" / "log.py") in imports()


@pytest.mark.parametrize("folder", folders())
def test_page_names_every_module_of_its_folder(folder: str) -> None:
    text = page(folder)
    for beginning in ("Imported by", "Imports"):
        text = text.replace(sentence(text, beginning) or beginning, "")
    named = {step for name in names(text) for step in name.split(".")}
    assert modules(folder) - named == set()


@pytest.mark.parametrize("folder", folders())
def test_page_names_the_importers_of_its_folder(folder: str) -> None:
    written = sentence(page(folder), "Imported by")
    assert written, "the page has no sentence `Imported by ...`"
    assert names(written) == importers(folder)


@pytest.mark.parametrize("folder", folders())
def test_page_says_where_to_start_reading(folder: str) -> None:
    written = re.search(r"Start with `([\w./]+)`", page(folder))
    assert written, "the page has no sentence `Start with ...`"
    (name,) = names(written[0])
    assert name.split(".")[0] in modules(folder)
