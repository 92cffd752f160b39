"""The check of the layout finds what it is there to find: each bound is exceeded once in a small package."""

from __future__ import annotations

from pathlib import Path

from tools import rooms


def package(root: Path, texts: dict[str, str]) -> Path:
    """Write a package with one module per path."""
    base = root / "headwater"
    for name, text in {"__init__.py": '"""A package."""\n', **texts}.items():
        path = base / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return base


def figures(base: Path) -> dict[str, rooms.Figure]:
    return {figure.name: figure for figure in rooms.measured(base, base.parent / "tests")}


def test_folder_with_too_many_modules_is_named(tmp_path: Path) -> None:
    base = package(tmp_path, {f"data/m{n}.py": "x = 1\n" for n in range(rooms.FOLDER_MOST + 1)})
    found = figures(base)[f"folders of more than {rooms.FOLDER_MOST} modules"]
    assert not found.met()
    assert found.places == (f"data: {rooms.FOLDER_MOST + 1} modules",)


def test_modules_with_a_docstring_only_are_not_counted(tmp_path: Path) -> None:
    base = package(tmp_path, {"data/__init__.py": '"""Values."""\n', "data/a.py": "x = 1\n", "testing/b.py": "x = 1\n"})
    assert figures(base)["product modules"].value == 1


def test_component_of_imports_for_type_checkers_is_measured(tmp_path: Path) -> None:
    circle = {
        f"data/m{n}.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n"
        f"    from headwater.data.m{(n + 1) % 9} import x\nx = 1\n"
        for n in range(9)
    }
    found = figures(package(tmp_path, circle))["largest component of imports"]
    assert (found.value, found.met()) == (9, False)


def test_component_across_rooms_is_refused(tmp_path: Path) -> None:
    texts = {
        "runtime/a/one.py": "from headwater.runtime.b import two\n",
        "runtime/b/two.py": "def later():\n    from headwater.runtime.a import one\n",
    }
    found = figures(package(tmp_path, texts))["components across rooms"]
    assert (found.value, found.met()) == (1, False)


def test_module_with_one_importer_is_named_unless_it_has_tests(tmp_path: Path) -> None:
    texts = {
        "data/a.py": "from headwater.data import b, named, tried\n",
        "data/b.py": "x = 1\n",
        "data/tried.py": "x = 1\n",
        "data/named.py": "x = 1\n",
    }
    base = package(tmp_path, texts)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_named.py").write_text("")
    (tmp_path / "tests/test_a.py").write_text("from headwater.data.tried import x\n")
    found = figures(base)["modules with one importer and without tests of their own"]
    assert found.places == ("headwater.data.b <- headwater.data.a",)


def test_vague_words_are_counted_in_comments_and_docstrings_and_not_in_code(tmp_path: Path) -> None:
    base = package(
        tmp_path,
        {"engine/__init__.py": "x = 1\n", "engine/a.py": '"""Says what is there."""\n\nwhat = "whoever"  # nobody\n'},
    )
    found = figures(base)["vague words per 1,000 words of comments in engine"]
    assert found.value == 400
    assert [place.rpartition(" ")[2] for place in found.places] == ["nobody", "what"]
