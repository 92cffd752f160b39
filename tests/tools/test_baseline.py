"""The counters of `./dev baseline`, on a small package with known sizes and cycles."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools import baseline, source_tree

MODULE = '''"""A docstring
of two lines."""

# A comment.
LIMIT = 3  # Counted: there is code before the comment.
"""What LIMIT is."""


def act(first: int,
        second: int) -> str:
    """One more docstring."""
    return """text
of two lines"""
'''


def package(folder: Path, modules: dict[str, str]) -> Path:
    root = folder / "sample"
    for name, source in modules.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    return root


def test_code_lines_leave_out_blanks_comments_and_docstrings() -> None:
    assert source_tree.code_lines(MODULE) == 5


def test_sizes_are_those_of_each_folder_and_empty_modules_are_not_counted(tmp_path: Path) -> None:
    root = package(
        tmp_path,
        {
            "__init__.py": '"""Nothing."""\n',
            "a.py": "x = 1\ny = 2\n",
            "inner/b.py": "z = 3\n",
            "testing/kit.py": "k = 1\n",
        },
    )
    sizes = baseline.sizes_by_folder(root)
    assert sizes == {
        ".": {"code_lines": 2, "modules": 1},
        "inner": {"code_lines": 1, "modules": 1},
        "testing": {"code_lines": 1, "modules": 1},
    }
    product = baseline.total(size for folder, size in sizes.items() if not source_tree.is_apart(folder))
    assert product == {"code_lines": 3, "modules": 2}


def test_a_group_resolves_folders_and_refuses_a_path_that_is_gone(tmp_path: Path) -> None:
    root = package(tmp_path, {"a.py": "x = 1\n", "inner/__init__.py": "", "inner/b.py": "y = 1\nz = 2\n"})
    assert baseline.group(root, ["a.py", "inner"]) == {
        "code_lines": 3,
        "modules": 2,
        "paths": ["a.py", "inner/b.py"],
    }
    with pytest.raises(FileNotFoundError, match=r"gone\.py"):
        baseline.group(root, ["gone.py"])


def test_imports_count_under_type_checking_inside_functions_and_relative(tmp_path: Path) -> None:
    root = package(
        tmp_path,
        {
            "__init__.py": "",
            "a.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from sample.inner.b import thing\n",
            "inner/__init__.py": "from . import b\n",
            "inner/b.py": "def late():\n    import sample.c\n",
            "c.py": "from .inner import b\nfrom sample import a\nimport json\n",
            "d.py": "from sample import a\n",
        },
    )
    assert source_tree.import_graph(root) == {
        "sample": set(),
        "sample.a": {"sample.inner.b"},
        "sample.inner": {"sample.inner.b"},
        "sample.inner.b": {"sample.c"},
        "sample.c": {"sample.inner.b", "sample.a"},
        "sample.d": {"sample.a"},
    }
    assert baseline.cycles(root) == {
        "sizes": [3],
        "members": [["sample.a", "sample.c", "sample.inner.b"]],
    }


def test_strongly_connected_components_of_a_known_graph() -> None:
    graph = {
        "a": ["b"],
        "b": ["c", "d"],
        "c": ["a"],
        "d": ["e"],
        "e": ["f"],
        "f": ["e", "g"],
        "g": [],
        "h": ["a", "h"],
    }
    assert source_tree.strongly_connected(graph) == [["a", "b", "c"], ["e", "f"]]


def test_a_long_chain_needs_no_recursion() -> None:
    graph = {str(number): [str((number + 1) % 5_000)] for number in range(5_000)}
    assert [len(component) for component in source_tree.strongly_connected(graph)] == [5_000]


def test_every_listed_path_of_this_project_exists() -> None:
    for listed in baseline.GROUPS.values():
        assert baseline.group(source_tree.PACKAGE, listed)["modules"] > 0


def test_the_import_cycles_of_the_file_are_of_one_commit() -> None:
    """A module that is renamed or merged later stays in the file as it was called when the file was written."""
    found = json.loads(baseline.TARGET.read_text())["code"]["import_cycles"]
    assert [len(set(component)) for component in found["members"]] == found["sizes"]
    assert all(component == sorted(component) for component in found["members"])


def test_times_are_the_processors_and_one_that_could_not_be_had_says_why() -> None:
    figures = [
        ("change.1.set", 1.23456, "ms", ""),
        ("change.1.remote.latency", 3.0, "ms", ""),
        ("change.9.set", None, "ms", "did not finish in 60 s"),
    ]
    assert baseline.times(figures) == {
        "change.1.set": {"value": 1.235, "unit": "ms"},
        "change.9.set": {"value": None, "unit": "ms", "why": "did not finish in 60 s"},
    }


def test_writing_the_file_anew_keeps_the_coverage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = package(tmp_path, {"a.py": "x = 1\n"})
    target = tmp_path / "baseline.json"
    target.write_text(json.dumps({"coverage": {"lines": 91.5}, "walks": "old"}))
    monkeypatch.setattr(baseline, "ROOT", tmp_path)
    monkeypatch.setattr(baseline, "TARGET", target)
    monkeypatch.setattr(baseline, "code", lambda: baseline.sizes_by_folder(root))
    monkeypatch.setattr(baseline, "count_walks", dict)
    monkeypatch.setattr(baseline, "measured", lambda _sizes: iter(()))
    assert baseline.main() == 0
    written = json.loads(target.read_text())
    assert written["coverage"] == {"lines": 91.5}
    assert written["code"] == {".": {"code_lines": 1, "modules": 1}}
    assert written["walks"] == {}

    target.unlink()
    baseline.main()
    assert "coverage" not in json.loads(target.read_text())
