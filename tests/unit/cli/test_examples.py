"""The examples are applications that `headwater run` starts, with a page that a browser is given."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pytest

from headwater.cli.app import run
from tests.unit.cli.test_run import LIMIT_S, running

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


@pytest.mark.parametrize(
    ("name", "space", "sent", "asked", "shown"),
    [
        ("board", "team", ["main.add", 'column="todo"', 'title="Tea"'], "main.points", {"todo": 1}),
        ("poll", "poll", ["main.vote", 'option="tea"'], "main.tally", {"tea": 1}),
        ("agent", "agent", ["main.ask", 'question="Where does a river begin?"'], "main.question", None),
    ],
)
def test_an_example_is_served_and_answers(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    space: str,
    sent: list[str],
    asked: str,
    shown: object,
) -> None:
    with running(tmp_path, str(EXAMPLES / name / "app.py"), "--json") as served:
        url = served.url()
        with urllib.request.urlopen(url, timeout=LIMIT_S) as page:
            assert "/headwater.js" in page.read().decode() or (EXAMPLES / name / "page" / f"{name}.js").is_file()
        assert run(["send", url, space, *sent, "--user", "ann"]) == 0
        capsys.readouterr()
        assert run(["get", url, space, asked, "--user", "ann"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found == (shown or "Where does a river begin?")
        assert served.stop()[0] == 0
