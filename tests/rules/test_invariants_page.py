"""docs/INVARIANTS.md ties every invariant to the line that upholds it and to the test that attacks it.

A section looks like this, with any number of files and tests:

    ### C7 A commit is atomic
    ...
    Enforced: src/headwater/engine/commit_group.py
    Test: tests/invariants/test_c07_atomic.py::test_a_crash_leaves_all_or_nothing

and the file named has a comment that begins `# C7:` at the line that matters.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
REQUIRED = [f"C{n}" for n in range(1, 12)]


def problems(page: str, root: Path, required: list[str]) -> list[str]:
    """Everything that is wrong with the page, in words."""
    return [*wrong_sections(page, root, required), *unlisted_comments(page, root)]


def sections(page: str) -> list[tuple[str, str]]:
    """The number of each invariant with the text under its heading."""
    parts = re.split(r"^#{1,6} ", page, flags=re.MULTILINE)[1:]
    return [(found[1], part) for part in parts if (found := re.match(r"([CI]\d+)\b", part))]


def wrong_sections(page: str, root: Path, required: list[str]) -> Iterator[str]:
    listed = sections(page)
    counts = Counter(number for number, _ in listed)
    yield from (f"{number} is not listed" for number in required if number not in counts)
    yield from (f"{number} is listed {count} times" for number, count in counts.items() if count > 1)
    for number, text in listed:
        files = [name for line in labelled("Enforced", text) for name in re.findall(r"[\w./-]+\.py", line)]
        tests = [name for line in labelled("Test", text) for name in re.findall(r"[\w./-]+\.py(?:::\w+)+", line)]
        if not files:
            yield f"{number} has no line 'Enforced: path/to/file.py'"
        if not tests:
            yield f"{number} has no line 'Test: tests/path.py::test_name'"
        for name in files:
            if not (root / name).is_file():
                yield f"{number} is enforced in {name}, which does not exist"
            elif number not in numbers_in_comments((root / name).read_text()):
                yield f"{number} is enforced in {name}, which has no comment '# {number}: ...'"
        for name in tests:
            path, *inside = name.split("::")
            if not (root / path).is_file():
                yield f"{number} is tested by {name}, but {path} does not exist"
            elif not has_function((root / path).read_text(), inside):
                yield f"{number} is tested by {name}, but {path} has no such test"


def labelled(label: str, text: str) -> list[str]:
    """What follows `Enforced:` or `Test:`, on its line and on the indented ones below it."""
    return re.findall(rf"^[-* ]*{label}s?:\**(.*(?:\n[ \t]+\S.*)*)", text, flags=re.MULTILINE)


def numbers_in_comments(code: str) -> set[str]:
    tokens = tokenize.generate_tokens(io.StringIO(code).readline)
    comments = [token.string for token in tokens if token.type == tokenize.COMMENT]
    return {number for comment in comments for number in re.findall(r"(?:^#|[,.;]) *([CI]\d+):", comment)}


def has_function(code: str, names: list[str]) -> bool:
    body: list[ast.stmt] = ast.parse(code).body
    *classes, function = names
    for name in classes:
        body = next((node.body for node in body if isinstance(node, ast.ClassDef) and node.name == name), [])
    defined = (ast.FunctionDef, ast.AsyncFunctionDef)
    return any(isinstance(node, defined) and node.name == function for node in body)


def unlisted_comments(page: str, root: Path) -> Iterator[str]:
    listed = {number for number, _ in sections(page)}
    for path in sorted((root / "src").rglob("*.py")):
        for number in sorted(numbers_in_comments(path.read_text()) - listed):
            yield f"{path.relative_to(root)} has a comment '# {number}:', but the page does not list {number}"


def test_every_invariant_names_a_line_and_a_test_that_exist() -> None:
    assert problems((ROOT / "docs" / "INVARIANTS.md").read_text(), ROOT, REQUIRED) == []


class TestTheReaderOfThePage:
    GOOD = "# Invariants\n\n### C1 All of it\n\nBecause.\n\nEnforced: src/a.py\nTest: tests/test_a.py::test_it\n"

    @pytest.fixture
    def project(self, tmp_path: Path) -> Path:
        (tmp_path / "src").mkdir()
        (tmp_path / "tests").mkdir()
        (tmp_path / "src" / "a.py").write_text("x = 1  # C1: one thing.\ny = '# C2: not a comment'\n")
        (tmp_path / "tests" / "test_a.py").write_text(
            "def test_it(): ...\nclass TestB:\n    async def test_in(self): ...\n"
        )
        return tmp_path

    def test_a_page_that_is_true_has_no_problems(self, project: Path) -> None:
        assert problems(self.GOOD, project, ["C1"]) == []

    def test_emphasis_code_marks_lists_and_classes_are_understood(self, project: Path) -> None:
        page = "## C1: x\n- **Enforced:** `src/a.py`\n- **Tests:**\n  `tests/test_a.py::test_it`,\n"
        page += "  `tests/test_a.py::TestB::test_in`\n"
        assert problems(page, project, ["C1"]) == []
        assert problems(page.replace("test_in", "test_out"), project, ["C1"]) == [
            "C1 is tested by tests/test_a.py::TestB::test_out, but tests/test_a.py has no such test"
        ]

    @pytest.mark.parametrize(
        ("old", "new", "problem"),
        [
            ("src/a.py", "src/b.py", "C1 is enforced in src/b.py, which does not exist"),
            ("Enforced:", "Upheld:", "C1 has no line 'Enforced: path/to/file.py'"),
            ("Test:", "Tried:", "C1 has no line 'Test: tests/path.py::test_name'"),
            (
                "test_a.py",
                "test_b.py",
                "C1 is tested by tests/test_b.py::test_it, but tests/test_b.py does not exist",
            ),
            (
                "test_it",
                "test_no",
                "C1 is tested by tests/test_a.py::test_no, but tests/test_a.py has no such test",
            ),
            (
                "src/a.py",
                "tests/test_a.py",
                "C1 is enforced in tests/test_a.py, which has no comment '# C1: ...'",
            ),
            (
                "# Inv",
                "### C1\nEnforced: src/a.py\nTest: tests/test_a.py::test_it\n# Inv",
                "C1 is listed 2 times",
            ),
        ],
    )
    def test_a_false_page_is_found_out(self, project: Path, old: str, new: str, problem: str) -> None:
        assert problems(self.GOOD.replace(old, new), project, ["C1"]) == [problem]

    def test_a_missing_number_is_named(self, project: Path) -> None:
        assert problems(self.GOOD, project, ["C1", "C2"]) == ["C2 is not listed"]

    def test_a_comment_about_an_unlisted_invariant_is_named(self, project: Path) -> None:
        (project / "src" / "b.py").write_text("# I5: a run never invalidates itself.\n")
        assert problems(self.GOOD, project, ["C1"]) == ["src/b.py has a comment '# I5:', but the page does not list I5"]
