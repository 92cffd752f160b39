"""Whatever is behind standard output, and whatever the names and values are: no traceback, and nothing obeyed."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from headwater.cli.app import run
from headwater.cli.output import escape_json, escape_text, print_answer, print_error, print_table
from headwater.data.patch import add, replace
from headwater.engine.directory import Directory
from headwater.protocol.commit import Commit, Provenance
from tests.unit.engine.kit import write

pytestmark = pytest.mark.thorough

ROOT: Final = Path(__file__).resolve().parents[3]

SESSION: Final = "ann\x1b]0;owned\x07\x1b[31m\n7 forged :heart:"
NODE: Final = "Cart.add\r\x9b2J"
KEY: Final = "no\nte"
VALUE: Final = "caf\u00e9 \U0001f600 \x9b31m \u202egnp \x7f \u2028 end"

OBEYED: Final = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A directory with one space, whose writer means no good, and a branch that collides."""
    path = tmp_path / "data"
    with Directory(path, synchronous="OFF") as directory:
        engine = directory.space("shop")
        engine.open_session(SESSION)
        cart = {KEY: VALUE}
        engine.submit(SESSION, Commit(1, (write("cart", replace((), cart)),), provenance=Provenance(NODE)))
        engine.fork("clash")
        here = Commit(2, (write("cart", replace((KEY,), VALUE + "!"), add(("\x1b[2J",), 1)),), branch="clash")
        there = Commit(3, (write("cart", replace((KEY,), "other")),), provenance=Provenance(NODE))
        engine.submit(SESSION, here)
        engine.submit(SESSION, there)
    return path


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "headwater.cli", *(str(word) for word in words)]


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), **more}


class TestEncodings:
    """A locale that lacks a character gets its escape. What was JSON still is."""

    @pytest.mark.parametrize(
        "locale",
        [
            {"PYTHONIOENCODING": "latin-1"},
            {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        ],
    )
    @pytest.mark.parametrize("more", [[], ["--json"]])
    def test_json_is_the_same_document_in_any_encoding(
        self, data: Path, locale: dict[str, str], more: list[str]
    ) -> None:
        words = command("get", data, "shop", "space:cart", "--at", 1, *more)
        ran = subprocess.run(words, env=environment(**locale), capture_output=True, check=False)
        assert (ran.returncode, ran.stderr) == (0, b"")
        document = json.loads(ran.stdout.decode("latin-1"))
        assert (document["value"] if more else document) == {KEY: VALUE}

    @pytest.mark.parametrize(
        "words", [["log"], ["branch", "diff", "clash"], ["get", "space:caf\u00e9"], ["branch", "--help"]]
    )
    def test_text_is_escaped_where_it_cannot_be_encoded(self, data: Path, words: list[str]) -> None:
        at = 2 if words[0] == "branch" else 1
        places = [data, "shop"] if words[-1] != "--help" else []
        all_words = command(*words[:at], *places, *words[at:])
        env = environment(PYTHONIOENCODING="ascii")
        ran = subprocess.run(all_words, env=env, capture_output=True, check=False)
        assert ran.returncode == (1 if words[0] == "get" else 0)
        assert b"Traceback" not in ran.stderr
        assert (ran.stdout + ran.stderr).isascii()
        assert (b"caf\\u00e9" in ran.stderr) == (words[0] == "get")

    def test_a_path_that_is_no_utf_8_is_shown_escaped(self, tmp_path: Path) -> None:
        odd = os.fsencode(tmp_path) + b"/caf\xe9"
        os.mkdir(odd)
        words: list[str | bytes] = [*command("spaces"), odd]
        ran = subprocess.run(words, env=environment(PYTHONIOENCODING="utf-8"), capture_output=True, check=False)
        assert (ran.returncode, ran.stderr) == (0, b"")
        assert b"caf\\udce9 holds no space yet" in ran.stdout


class TestStreamsThatTakeNothing:
    """The answer is lost, and that is said in one line, with an exit code that means nothing else."""

    WORDS: Final = (["log"], ["get", "space:cart", "--json"], ["--help"])

    def words(self, data: Path, words: list[str]) -> str:
        at = 2 if words[0] == "branch" else 1
        places = [str(data), "shop"] if words[-1] != "--help" else []
        return shlex.join(command(*words[:at], *places, *words[at:]))

    def shell(self, line: str) -> tuple[int, str]:
        ran = subprocess.run(["sh", "-c", line], env=environment(), capture_output=True, text=True, check=False)
        assert "Traceback" not in ran.stderr
        assert "Exception ignored" not in ran.stderr
        return ran.returncode, ran.stderr

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
    @pytest.mark.parametrize("words", WORDS, ids=" ".join)
    def test_a_full_disk(self, data: Path, words: list[str]) -> None:
        code, err = self.shell(f"{self.words(data, words)} >/dev/full")
        assert code == 3
        assert err == (
            "headwater: standard output cannot be written: No space left on device. The answer is lost; "
            "changes that the command made stay.\n"
        )

    @pytest.mark.parametrize("words", WORDS, ids=" ".join)
    def test_a_closed_output(self, data: Path, words: list[str]) -> None:
        code, err = self.shell(f"{self.words(data, words)} >&-")
        assert code == 3
        assert "standard output cannot be written: Bad file descriptor" in err
        assert len(err.splitlines()) == 1

    @pytest.mark.parametrize("words", WORDS, ids=" ".join)
    def test_a_reader_who_left_is_not_talked_to(self, data: Path, words: list[str]) -> None:
        reads, writes = os.pipe()
        os.close(reads)
        line = shlex.split(self.words(data, words))
        ran = subprocess.run(line, env=environment(), stdout=writes, stderr=subprocess.PIPE, check=False)
        os.close(writes)
        assert (ran.returncode, ran.stderr) == (141, b"")

    @pytest.mark.parametrize("ending", ["2>&-", "2>/dev/full"])
    def test_without_standard_error_the_exit_code_is_all_there_is(self, data: Path, ending: str) -> None:
        assert self.shell(f"{self.words(data, ['get', 'space:none'])} {ending}") == (1, "")
        assert self.shell(f"{self.words(data, ['log'])} >&- {ending}") == (3, "")

    def test_what_the_command_changed_stays_changed(self, data: Path) -> None:
        made = shlex.join(command("branch", "new", data, "shop", "quiet"))
        assert self.shell(f"{made} >&-")[0] == 3
        with Directory(data) as directory:
            assert "quiet" in {branch.name for branch in directory.space("shop").branches().items}


class TestOtherPeopleSText:
    """Names and values come from whoever may write. They are shown and never obeyed."""

    @pytest.mark.parametrize(
        "words",
        [["log"], ["branch", "diff", "clash"], ["branch", "merge", "clash"], ["get", "space:cart", "--at", "1"]],
    )
    def test_nothing_in_the_output_is_obeyed(
        self, data: Path, words: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        at = 2 if words[0] == "branch" else 1
        run([*words[:at], str(data), "shop", *words[at:]])
        captured = capsys.readouterr()
        assert OBEYED.findall(captured.out + captured.err) == []
        assert not [line for line in captured.out.splitlines() if line.startswith("7 ")]

    def test_a_log_has_a_line_a_commit_and_the_name_in_full(
        self, data: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(["log", str(data), "shop", "--since", "0", "--limit", "1"]) == 0
        _, line, more = capsys.readouterr().out.splitlines()
        assert r"ann\u001b]0;owned\u0007\u001b[31m\n7 forged :heart: 1" in line
        assert r"Cart.add\r\u009b2J" in line
        assert more == "more: --since 1"

    def test_a_collision_is_one_line(self, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
        run(["branch", "diff", str(data), "shop", "clash"])
        (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("collides: ")]
        assert r"\u001b[31m\n7 forged" in line

    def test_json_says_exactly_what_is_stored(self, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
        run(["log", str(data), "shop", "--json"])
        (first, *_) = json.loads(capsys.readouterr().out)["commits"]
        assert (first["session"], first["node"]) == (SESSION, NODE)
        assert first["writes"][0]["value"] == {KEY: VALUE}

    def test_lines_cells_and_complaints_cannot_break_out(self, capsys: pytest.CaptureFixture[str]) -> None:
        print_answer("one\ntwo")
        print_table(("a",), [("x\ny",), (("first", "sec\x1bond"),)])
        print_error("no\nheadwater: yes", "second line")
        captured = capsys.readouterr()
        assert [line.strip() for line in captured.out.splitlines()] == [
            r"one\ntwo", "a", r"x\ny", "first", r"sec\u001bond",
        ]  # fmt: skip
        assert captured.err == "headwater: no\\nheadwater: yes\nsecond line\n"

    def test_ordinary_text_is_left_as_it_is(self) -> None:
        for text in (
            "plain",
            "\u010desk\u00fd \u0627\u0644\u0639\u0631\u0628\u064a\u0629",
            "\U0001f468\u200d\U0001f469",
            "",
        ):
            assert escape_text(text) == escape_json(text) == text
        assert escape_json('{\n  "a": 1\n}') == '{\n  "a": 1\n}'
