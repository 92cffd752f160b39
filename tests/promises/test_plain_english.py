"""Messages, the guide and the README are in plain English; the README is the front page.

A sentence fails if it is of a kind that readers could not understand: "X is no Y", or a pronoun such as "whoever" in
the place of a user, a session or a program.
"""

from __future__ import annotations

import ast
import re
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

import headwater

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(headwater.__file__).parent
MODULES = sorted(
    path
    for path in PACKAGE.rglob("*.py")
    # The other folders of `testing` are for Headwater's own tests.
    if path.relative_to(PACKAGE).parts[0] != "testing" or "author" in path.relative_to(PACKAGE).as_posix()
)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]
TEMPLATES = sorted((PACKAGE / "cli" / "templates").rglob("*.txt"))

PRONOUNS = re.compile(r"\b(?:nobody|somebody|anybody|everybody|whoever|whomever)\b", re.IGNORECASE)
IS_NO = re.compile(r"(?<!there )(?<!There )\b(?:is|are|was|were) (?:no|none)\b(?! longer)")
UNCLEAR = re.compile(r"is another\b(?! \w)|are others\b|comes? out differently|came out differently|\bstands? on\b")
PICTURE_BYTES = 200_000


def messages(code: str) -> Iterator[tuple[int, str]]:
    """The texts of a module that have several words and are not docstrings. A value in a text is shown as `{}`."""
    tree = ast.parse(code)
    apart = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    apart |= {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if id(node) in apart:
            continue
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        if " " in text:
            yield node.lineno, text


def unclear(text: str) -> list[str]:
    return [found[0] for pattern in (PRONOUNS, IS_NO, UNCLEAR) for found in pattern.finditer(text)]


def test_messages_have_no_unclear_sentence() -> None:
    found = {
        f"{path.relative_to(PACKAGE).as_posix()}:{line}": text
        for path in MODULES
        for line, text in messages(path.read_text())
        if unclear(text)
    }
    assert found == {}


@pytest.mark.parametrize("page", [*PAGES, *TEMPLATES], ids=lambda page: page.name)
def test_pages_have_no_unclear_sentence(page: Path) -> None:
    text = " ".join(page.read_text().split())
    assert [
        text[max(0, at.start() - 60) : at.end() + 20] for p in (PRONOUNS, IS_NO, UNCLEAR) for at in p.finditer(text)
    ] == []


@pytest.mark.parametrize(
    "text",
    [
        "./data is no directory",
        "which is no JSON",
        "its code is another",
        "its times are others",
        "and nothing came out differently",
        "'ann' is none",
        "Whoever names one to the runtime is in it",
        "Nobody may any more what a session kept that is over",
    ],
)
def test_search_finds_unclear_sentences(text: str) -> None:
    assert unclear(text)


@pytest.mark.parametrize("text", ["there is no space 'shop'", "it is no longer held", "is another process there?"])
def test_search_leaves_plain_sentences_alone(text: str) -> None:
    assert not unclear(text)


def test_front_page_has_its_parts_in_order() -> None:
    text = (ROOT / "README.md").read_text()
    parts = (
        "![",
        "pip install",
        "./dev demo",
        "class Cart(Piece)",
        "## What it promises",
        "## What it costs",
        "## When not to use it",
        "## Where to read on",
    )
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    summary = text.split("\n\n")[1]
    assert len(re.findall(r"\.(?:\s|$)", summary)) == 3
    assert "headwater.engine" not in text


def test_picture_of_the_front_page_is_small_and_shows_two_windows() -> None:
    (name,) = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", (ROOT / "README.md").read_text())
    data = (ROOT / name).read_bytes()
    assert data.startswith(b"\x89PNG")
    assert len(data) <= PICTURE_BYTES
    width, height = struct.unpack(">II", data[16:24])
    assert width > 2 * height


@pytest.mark.parametrize(
    ("page", "texts"),
    [
        ("2-reading-and-writing.md", ("`await rt.idle()`", "`await rt.settled()`", "`await rt.durable()`")),
        ("3-graphs.md", ("`ctx.launch(Job(...))`", "`ctx.follow(link)`", "`@materializer(envelope=(big,))`")),
        ("4-async-work.md", ("`async def work(rt)`", "`ctx.now(every_ms=1_000)`", "**Refresh.**")),
        ("7-sharing.md", ("**set every shared cell directly**",)),
        ("9-performance.md", ("**automatic debounce**", "## Limits")),
    ],
)
def test_guide_has_reference_for(page: str, texts: tuple[str, ...]) -> None:
    text = (ROOT / "docs" / "guide" / page).read_text()
    assert [each for each in texts if each not in text] == []
