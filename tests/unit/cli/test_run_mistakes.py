"""What somebody writes wrongly who runs an application for the first time, and what they are told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import headwater
from headwater.cli.app import run
from headwater.cli.loading import load_application
from headwater.errors import AbsentError, AuthoringError
from tests.unit.cli.kit_app import SHOP, imported, write_app
from tests.unit.cli.test_run import LIMIT_S, running

BEGINNING = "async def start(rt: headwater.Runtime) -> None:"


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    with imported():
        yield


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("def start(rt):\n    return\n\n\nasync def other(rt):", "start is not awaited, and opens nothing"),
        ("async def start():\n    return\n\n\nasync def other(rt):", "start cannot be called with the runtime"),
    ],
)
def test_a_beginning_that_is_none_is_shown_how_to_write_one(tmp_path: Path, written: str, told: str) -> None:
    assert BEGINNING in SHOP
    write_app(tmp_path, SHOP.replace(BEGINNING, written))
    with running(tmp_path, "shop.py") as served:
        line = served.until(served.err, "headwater: ")
        assert (told in line, line.endswith("write async def start(rt: headwater.Runtime) -> None\n")) == (True, True)
        assert served.process.wait(LIMIT_S) == 1


def test_an_application_that_opens_nothing_is_told_so_and_runs(tmp_path: Path) -> None:
    write_app(tmp_path, SHOP.replace(BEGINNING, "async def other(rt: headwater.Runtime) -> None:"))
    with running(tmp_path, "shop.py", "--json") as served:
        assert served.url().startswith("http://")
        assert "async def start(rt" in served.until(served.err, "nothing is open")
        assert served.stop()[0] == 0


def test_application_that_may_not_write_a_space_is_told_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    app, data = write_app(tmp_path), tmp_path / "data"
    with running(tmp_path, "shop.py", "--json") as served:
        served.url()
        assert served.stop()[0] == 0
    assert run(["keys", "new", str(data)]) == 0
    with running(tmp_path, "shop.py", "--json", "--owner", "ann", secure=True) as served:
        line = served.until(served.err, "may not write the space shop")
        assert "headwater set data shop 'space:$access' '{\"owners\": [\"ann\"]}' --app FILE" in line
        served.url()
        assert served.stop()[0] == 0
    access = '{"owners": ["ann"]}'
    assert run(["set", str(data), "shop", "space:$access", access, "--app", str(app)]) == 0
    with running(tmp_path, "shop.py", "--json", "--owner", "ann", secure=True) as served:
        served.url()
        assert served.stop()[0] == 0
        assert "may not write" not in served.said


def test_command_on_a_directory_that_is_not_served_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def main() -> None:
        async with headwater.open(tmp_path):
            assert run(["log", str(tmp_path), "shop"]) == 1

    headwater.run(main)
    assert "which does not serve it, so that no command can ask it. Stop that process first" in capsys.readouterr().err


def test_text_without_quotes_is_shown_with_the_name_of_its_argument(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["send", str(tmp_path), "shop", "ann.add", "text=tea"]) == 1
    assert "Put a text in quotes: 'text=\"tea\"'." in capsys.readouterr().err


def test_a_class_that_is_not_there_names_those_that_are(tmp_path: Path) -> None:
    file = write_app(tmp_path, SHOP + "\n\nclass Other(Piece):\n    pass\n")
    with pytest.raises(AuthoringError, match=r"has no class Crt\. Its classes of pieces: Cart, Other\.$"):
        load_application(f"{file}:Crt")


@pytest.mark.parametrize("name", ["missing.py", "deeper/missing.py"])
def test_a_file_that_is_not_there_is_said_to_be_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AbsentError, match=f"^{name} is not a Python file: no file has this name"):
        load_application(name)


def test_a_worker_without_a_space_is_told_how_to_name_one(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["worker", str(write_app(tmp_path)), "--url", "ws://127.0.0.1:1"]) == 1
    assert capsys.readouterr().err == "headwater: say which spaces to work for: --space shop, once for each\n"
