"""Every Python block of the documentation runs.

The blocks of one page are one program, run in order in an empty directory. Blocks that show something else
say so in their language: `console`, `text`, ...
"""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
GUIDE = sorted([ROOT / "README.md", *(ROOT / "docs" / "guide").glob("[0-9]*.md")])


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    language: str
    line: int  # Of the first line inside, counted from 1.
    code: str


def blocks(page: str) -> Iterator[Block]:
    """The fenced blocks of a page. One that is never closed is an error."""
    lines = iter(enumerate(page.splitlines(), 1))
    for number, line in lines:
        if not (fence := re.match(r"^( *)(`{3,}|~{3,}) *([\w+-]*)", line)):
            continue
        indent, mark, language = fence.groups()
        inside: list[str] = []
        for _, inner in lines:
            if re.fullmatch(rf" *{mark}{mark[0]}* *", inner):
                break
            inside.append(inner.removeprefix(indent))
        else:
            raise AssertionError(f"the block that begins at line {number} is never closed")
        yield Block(language=language, line=number + 1, code="".join(f"{text}\n" for text in inside))


def run_blocks(page: Path, text: str) -> int:
    """Run the Python blocks of a page as one program. Returns how many there were."""
    program = types.ModuleType("__main__")
    program.__file__ = str(page)
    sys.modules["__main__"] = program  # Annotations are resolved through the module that a class names.
    count = 0
    for block in blocks(text):
        if block.language == "python":
            count += 1
            # Empty lines in front, so that a traceback shows the line of the page.
            code = compile("\n" * (block.line - 1) + block.code, str(page), "exec", dont_inherit=True)
            exec(code, program.__dict__)
    return count


@pytest.fixture(autouse=True)
def empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])  # Put back afterwards.
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_python_blocks_of_a_page_run(page: Path) -> None:
    run_blocks(page, page.read_text())


@pytest.mark.parametrize("page", GUIDE, ids=lambda page: page.stem)
def test_a_page_of_the_guide_can_be_run_again_on_what_it_left(page: Path) -> None:
    for _ in range(2):
        run_blocks(page, page.read_text())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_block_says_its_language(page: Path) -> None:
    unnamed = [block.line - 1 for block in blocks(page.read_text()) if not block.language]
    assert not unnamed, f"blocks without a language at lines {unnamed}; write ```text if it is not code"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_to_files_of_the_project_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text())
    local = [target for target in targets if "://" not in target]
    missing = [target for target in local if not (page.parent / target).exists()]
    assert not missing


class TestTheRunner:
    def test_blocks_share_names_and_other_languages_are_left_alone(self, tmp_path: Path) -> None:
        page = "```python\nx = 1\n```\ntext\n```console\n$ fail\n```\n~~~python\nassert x == 1\n~~~\n"
        assert run_blocks(tmp_path / "page.md", page) == 2

    def test_a_failing_block_fails_with_the_line_of_the_page(self, tmp_path: Path) -> None:
        page = "one\n\n```python\nok = 1\nassert ok == 2\n```\n"
        with pytest.raises(AssertionError) as caught:
            run_blocks(tmp_path / "page.md", page)
        assert caught.traceback[-1].lineno + 1 == 5

    def test_a_program_s_main_part_runs_and_its_annotations_resolve(self, empty_directory: Path) -> None:
        page = (
            "```python\nfrom __future__ import annotations\nimport typing\n"
            "class A:\n    b: B\nclass B: ...\nassert typing.get_type_hints(A) == {'b': B}\n"
            "if __name__ == '__main__':\n    open('made', 'w').close()\n```\n"
        )
        run_blocks(empty_directory / "page.md", page)
        assert (empty_directory / "made").exists()

    def test_an_unclosed_block_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(AssertionError, match="begins at line 2 is never closed"):
            run_blocks(tmp_path / "page.md", "text\n```python\nx = 1\n")

    def test_an_indented_block_in_a_list_runs(self, tmp_path: Path) -> None:
        assert run_blocks(tmp_path / "page.md", "- item\n\n  ```python\n  x = 1\n  ```\n") == 1
