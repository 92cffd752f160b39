"""`preview` and `verify --resume`: before a deploy, with the code that is to be deployed, beside whoever runs now."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headwater.cli.app import run
from headwater.cli.data import verify
from headwater.engine.directory import Directory
from headwater.server.commands.safe_copy import FOLDER
from tests.unit.cli.kit_app import SHOP, imported, write_app
from tests.unit.cli.test_run import LIMIT_S, running

pytestmark = pytest.mark.thorough

Ask = Callable[..., tuple[int, str, str]]
TEA = 'line={"sku": "tea", "cents": 450}'
WHOLE = "another member of its piece does something else"


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    with imported():
        yield


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Ask:
    def call(*words: object) -> tuple[int, str, str]:
        with imported():
            code = run([str(word) for word in words])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return code, captured.out, captured.err

    return call


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    return write_app(tmp_path / "app")


@pytest.fixture
def data(tmp_path: Path, shop: Path, ask: Ask) -> Path:
    """A cart with tea in it, and all that it shows."""
    path = tmp_path / "data"
    path.mkdir()
    assert ask("send", path, "shop", "Cart:ann.add", TEA, "--app", shop, "--user", "ann")[0] == 0
    assert ask("get", path, "shop", "ann.label", "--app", shop)[0] == 0
    assert ask("get", path, "shop", "ann.weight", "--app", shop)[0] == 0
    return path


@pytest.fixture
def next_version(tmp_path: Path) -> Callable[[str, str], Path]:
    """The application with a change, in a folder of its own."""

    def write(old: str, new: str) -> Path:
        assert old in SHOP
        return write_app(tmp_path / "next", SHOP.replace(old, new))

    return write


def told(ask: Ask, *words: object) -> dict[str, Any]:
    """What a preview says, as JSON. It is asked in a process of its own: a class of one name is in one place there."""
    made: dict[str, Any] = json.loads(_elsewhere("preview", *words, "--json"))
    return made


def changed(found: dict[str, Any]) -> list[Any]:
    """The nodes that do something else themselves."""
    return [each for each in found["nodes"] if each["fate"] == "rerun" and each["reason"] != WHOLE]


def _elsewhere(*words: object) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "headwater.cli", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


def test_the_same_code_runs_nothing_again(data: Path, shop: Path, ask: Ask) -> None:
    code, out, err = ask("preview", shop, "--data", data)
    assert (code, err) == (0, "")
    assert out == "of 4 nodes, 0 nodes would run again: 0 us by their last runs\n"
    assert ask("preview", shop, "--data", data, "--check")[0] == 0


@pytest.mark.parametrize(
    ("old", "new", "runs", "because"),
    [
        ("return number * RATE", "return RATE * number", {"ann:twice"}, "a function that it calls"),
        ("RATE = 2", "RATE = 3", {"ann:twice"}, "a constant"),
        ("def scaled(number: int)", "def scaled(number: int, by: int = 1)", {"ann:twice"}, "a default"),
        ("cents: int\n", "cents: int\n    qty: int = 1\n", {"ann:total", "ann:weight"}, "a field of a Model"),
        ('note: Cell[str] = cell(default="")', 'note: Cell[str] = cell(default="?")', {"ann:label"}, "its default"),
        ("line.cents for line", "1 + line.cents for line", {"ann:total"}, "its own code"),
        ("lambda n, line: n + 1", "lambda n, line: n + 2", {"ann:weight"}, "its own code"),
        (
            "    @computed\n    def label",
            "    @computed(writes=(note,))\n    def label",
            {"ann:label"},
            "or writes",
        ),
        ("    @computed\n    def label", "    @computed(debounce_ms=5)\n    def label", {"ann:label"}, "debounce"),
    ],
)
def test_what_changed_is_told_of_those_that_stand_on_it(
    data: Path, ask: Ask, next_version: Callable[[str, str], Path], old: str, new: str, runs: set[str], because: str
) -> None:
    found = told(ask, next_version(old, new), "--data", data)
    again = {each["node"]: each for each in changed(found)}
    assert again.keys() == runs
    assert all(any(because in detail for detail in each["details"]) for each in again.values()), again
    everything = [each for each in found["nodes"] if each["fate"] == "rerun"]
    assert found["totals"]["rerun"] == len(everything) == sum(found["totals"]["reasons"].values())
    assert found["totals"]["rerun_us"] == sum(each["took_us"] for each in everything) > 0


def test_a_new_member_a_lost_one_and_readers_are_told_apart(
    data: Path, shop: Path, ask: Ask, next_version: Callable[[str, str], Path], tmp_path: Path
) -> None:
    with running(tmp_path, str(shop), "--json", "--data", str(data)) as served:
        served.url()  # It opens the cart, which says what the members of its class do.
        assert served.stop()[0] == 0
    assert ask("get", data, "shop", "ann.weight", "--app", shop)[0] == 0
    app = next_version("    weight = fold(lines", "    mass = fold(lines")
    found = told(ask, app, "--data", data)
    fates = {each["node"]: each["fate"] for each in found["nodes"] if each["reason"] != WHOLE}
    assert fates == {"ann:weight": "gone"}
    assert found["new"] == [{"space": "shop", "piece": "ann", "member": "mass"}]
    out = _elsewhere("preview", app, "--data", data)
    assert "shop/ann:mass is new: it runs when its value is first demanded" in out
    assert "1 are not in this program any more" in out
    found = told(ask, next_version("RATE = 2", "RATE = 3"), "--data", data, "--all")
    fates = {each["node"]: (each["fate"], each["reason"]) for each in found["nodes"]}
    assert fates["ann:twice"] == ("rerun", "its code has changed")
    assert fates["ann:label"] in (("may", "it reads a value that is computed again"), ("rerun", WHOLE))
    assert fates["ann:total"] in (("clean", ""), ("rerun", WHOLE))


def test_a_check_fails_if_anything_would_run_again(
    data: Path, ask: Ask, next_version: Callable[[str, str], Path]
) -> None:
    app = next_version("RATE = 2", "RATE = 3")
    words = [sys.executable, "-m", "headwater.cli", "preview", str(app), "--data", str(data)]
    for more, code in (([], 0), (["--check"], 1)):
        done = subprocess.run([*words, *more], capture_output=True, text=True, timeout=LIMIT_S, check=False)
        assert (done.returncode, done.stderr) == (code, "")
        assert "of 4 nodes, " in done.stdout
        assert "  1: its code has changed" in done.stdout


def test_a_directory_where_nothing_was_computed_yet(tmp_path: Path, shop: Path, ask: Ask) -> None:
    path = tmp_path / "data"
    path.mkdir()
    assert ask("send", path, "shop", "Cart:ann.add", TEA, "--app", shop, "--user", "ann")[0] == 0
    code, out, err = ask("preview", shop, "--data", path, "--check")
    assert (code, err) == (0, "")
    assert "no run of a node is stored there" in out


def test_what_cannot_be_read_is_bad_usage(tmp_path: Path, data: Path, shop: Path, ask: Ask) -> None:
    code, out, err = ask("preview", shop, "--data", tmp_path / "nowhere")
    assert (code, out) == (2, "")
    assert "is not a directory" in err
    code, out, err = ask("preview", tmp_path / "nothing.py", "--data", data)
    assert (code, out) == (2, "")
    assert "is not a Python file" in err
    assert ask("preview", shop, "--data", data, "--space", "nope")[0] == 1


def test_a_directory_that_somebody_serves_is_looked_at_through_them(
    tmp_path: Path, data: Path, shop: Path, ask: Ask, next_version: Callable[[str, str], Path]
) -> None:
    with running(tmp_path, str(shop), "--json", "--data", str(data)) as served:
        url = served.url()
        app = next_version("RATE = 2", "RATE = 3")
        for words in (("--data", data), ("--url", url)):
            found = told(ask, app, *words)
            assert [each["node"] for each in changed(found)] == ["ann:twice"]
        said = json.loads(_elsewhere("verify", data, "--resume", shop, "--json"))
        assert (said["ok"], said["findings"]) == (True, [])
        assert said["checked"] >= 3
        assert list((data / FOLDER).iterdir()) == []
        assert ask("send", url, "shop", "ann.add", TEA)[0] == 0  # It goes on as before.
        assert served.stop()[0] == 0


LEAKY = SHOP.replace("return number * RATE", "return number * int(os.environ['HEADWATER_TEST_RATE'])").replace(
    "import headwater\n", "import os\n\nimport headwater\n", 1
)


def test_a_leak_is_found_in_the_shadow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: Ask) -> None:
    app = write_app(tmp_path / "app", LEAKY)
    data = tmp_path / "data"
    data.mkdir()
    monkeypatch.setenv("HEADWATER_TEST_RATE", "2")
    assert ask("send", data, "shop", "Cart:ann.add", TEA, "--app", app, "--user", "ann")[0] == 0
    assert ask("get", data, "shop", "ann.label", "--app", app)[0] == 0
    for where in (data, data / "shop.space"):
        code, out, err = ask("verify", where, "--resume", app)
        assert (code, err) == (0, "")
        assert "3 clean nodes ran again on a copy, and every result equals its stored value" in out
        assert "left out: 0 effects, and 0 nodes that would run at a start anyway" in out
    monkeypatch.setenv("HEADWATER_TEST_RATE", "3")
    code, out, _ = ask("verify", data, "--resume", app)
    assert code == 1
    assert "shop/ann:twice (computation) claims to be clean, and would change space:ann:twice from 900 to 1350" in out
    code, out, _ = ask("verify", data, "--resume", app, "--json")
    assert code == 1
    (finding,) = json.loads(out)["findings"]
    assert (finding["node"], finding["stored"], finding["new"]) == ("ann:twice", 900, 1350)
    assert ask("get", data, "shop", "ann.twice")[1] == "900\n"
    assert list((data / FOLDER).iterdir()) == []


def test_a_bar_shows_how_far_it_is_on_a_terminal(
    data: Path, shop: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[tuple[int, int]] = []

    class Bar:
        def __init__(self, *columns: object, console: object, transient: bool) -> None:
            assert transient

        def __enter__(self) -> Bar:
            return self

        def __exit__(self, *_: object) -> None: ...

        def add_task(self, title: str, *, total: int | None) -> int:
            return 1

        def update(self, task: int, *, completed: int, total: int) -> None:
            drawn.append((completed, total))

    monkeypatch.setattr(verify, "Progress", Bar)
    monkeypatch.setattr(verify, "console", lambda *, stderr: SimpleNamespace(is_terminal=stderr))
    assert ask("verify", data, "--resume", shop)[0] == 0
    assert drawn == [(done, 4) for done in range(5)]
    drawn.clear()
    assert ask("verify", data, "--resume", shop, "--json")[0] == 0
    assert drawn == []


def test_a_directory_that_a_program_has_and_does_not_serve_is_told(
    data: Path, shop: Path, ask: Ask, tmp_path: Path
) -> None:
    with Directory(data):
        for words in (("verify", data, "--resume", shop), ("preview", shop, "--data", data)):
            code, out, err = ask(*words)
            assert (code in (1, 2), out) == (True, "")
            assert "Stop that process first" in err
    assert list((data / FOLDER).iterdir()) == []


def test_a_shadow_needs_data_and_an_application(tmp_path: Path, data: Path, shop: Path, ask: Ask) -> None:
    assert ask("verify", tmp_path / "nowhere", "--resume", shop)[0] == 2
    assert ask("verify", shop, "--resume", shop)[0] == 2
    assert ask("verify", data, "--resume", tmp_path / "nothing.py")[0] == 2


def test_they_say_how_they_are_used(ask: Ask) -> None:
    for command in ("preview", "verify", "nodes", "backlog"):
        code, out, _ = ask(command, "--help")
        assert code == 0
        assert "Example" in out
