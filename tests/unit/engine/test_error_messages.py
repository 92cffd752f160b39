"""Every text of the engine and the protocol that a person can meet is read here, as it really comes out.

Each case provokes one message and says what must be in it: what happened, where, and what to do. A last test
collects every sentence in the sources and checks that some case has really produced it, so that a message
cannot be added or changed without somebody reading it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from headwater.data.patch import replace
from headwater.protocol.commit import (
    Commit,
    decode_frame,
    encode_frame,
)
from tests.unit.engine import (
    messages_of_commits,
    messages_of_files,
    messages_of_reactions,
    messages_of_spaces,
)
from tests.unit.engine.kit import write
from tests.unit.engine.messages import CASES

SOURCE = Path(__file__).resolve().parents[3] / "src" / "headwater"

# Their messages are read where their tests are: the verifier's beside it, the others' with the replica.
ELSEWHERE = {
    "engine/verify",
    "engine/admission/access.py",
    "engine/sync",
    "protocol/messages.py",
}
PROVOKED_BY = (
    messages_of_commits,
    messages_of_spaces,
    messages_of_files,
    messages_of_reactions,
)  # importing them registers their cases


# --- reading them ----------------------------------------------------------------------------------------


@cache
def message(name: str) -> str:
    with TemporaryDirectory(prefix="headwater-messages-") as folder:
        return CASES[name][0](Path(folder))


@cache
def produced() -> tuple[str, ...]:
    """What all cases produce. One that produces nothing fails in the test of its own, below."""
    found = []
    for name in CASES:
        try:
            found.append(message(name))
        except Exception:  # it is red by itself; the others are still worth reading
            continue
    return tuple(found)


@pytest.mark.parametrize("name", CASES)
def test_the_message_says_what_happened_where_and_what_to_do(name: str) -> None:
    for fragment in CASES[name][1]:
        assert fragment in message(name)


def test_no_message_is_empty_or_shows_the_inside_of_the_program() -> None:
    for text in produced():
        assert text.strip()
        assert not re.search(r"<[a-z_.]+ object at|Traceback|DocKey\(", text), text


# --- all of them -----------------------------------------------------------------------------------------

_STATEMENT = re.compile(r"\s*(SELECT|INSERT|DELETE|UPDATE|CREATE|ALTER|PRAGMA|WHERE|ORDER|BEGIN|[a-z_]+=excluded)\b")


NAMES = {r"founding\ of\ the\ space"}  # of three words, and no messages


def sentences(code: str) -> Iterator[str]:
    """Every text of the code that reads like a sentence, as a pattern: what is filled in matches anything.

    Docstrings, SQL and texts of fewer than three words are none.
    """
    tree = ast.parse(code)
    outside = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    for node in ast.walk(tree):
        match node:
            case ast.JoinedStr(values=values) if id(node) not in outside:
                pieces = [v.value if isinstance(v, ast.Constant) else None for v in values]
            case ast.Constant(value=str(text)) if id(node) not in outside and id(node) not in parts:
                pieces = [text]
            case _:
                continue
        plain = "".join(piece if isinstance(piece, str) else "{}" for piece in pieces)
        if len(re.findall(r"[a-z']+(?= |$)", plain)) >= 3 and not _STATEMENT.match(plain):
            yield "".join(re.escape(piece) if isinstance(piece, str) else ".*" for piece in pieces)


def sources() -> list[Path]:
    found = [path for layer in ("engine", "protocol") for path in (SOURCE / layer).rglob("*.py")]
    names = {path: path.relative_to(SOURCE).as_posix() for path in found}
    return sorted(p for p, name in names.items() if not any(name.startswith(each) for each in ELSEWHERE))


@pytest.mark.parametrize("path", sources(), ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_every_sentence_in_the_sources_is_produced_by_some_case(path: Path) -> None:
    unread = [
        pattern
        for pattern in sentences(path.read_text())
        if pattern not in NAMES and not any(re.search(pattern, text, re.DOTALL) for text in produced())
    ]
    assert not unread, f"add a case for: {unread}"


def test_the_search_for_sentences_finds_them() -> None:
    code = (
        '"""This docstring is no message of anybody."""\n'
        "def f(x):\n"
        '    run("SELECT a FROM b WHERE c")\n'
        '    raise E(f"the thing {x} is not here. Do {x!r} instead.")\n'
        '    return "two words", "these are three words"\n'
    )
    assert list(sentences(code)) == [
        r"the\ thing\ .*\ is\ not\ here\.\ Do\ .*\ instead\.",
        r"these\ are\ three\ words",
    ]


def test_the_modules_that_are_left_out_exist() -> None:
    assert {name for name in ELSEWHERE if not (SOURCE / name).exists()} == set()


def test_a_frame_survives_the_wire_so_that_the_case_above_is_about_its_value() -> None:
    commit = Commit(1, (write("d", replace((), [1])),))
    assert decode_frame(encode_frame([commit])) == (commit,)
