"""`headwater run` starts an application on its data, beside a server, and ends it in order."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from headwater.cli.app import run
from headwater.cli.loading import ApplicationError, load_application, page_folder
from headwater.engine.directory import Directory
from headwater.errors import AbsentError, AuthoringError
from tests.unit.cli.kit_app import SHOP, imported, write_app

pytestmark = pytest.mark.thorough

PROGRAM = """
from __future__ import annotations

import headwater
from headwater import Cell, Piece, cell, computed, handler


class Tally(Piece):
    numbers: Cell[tuple[int, ...]] = cell(default=())

    @computed
    def total(self) -> int:
        return sum(self.numbers.get())

    @handler
    def add(self, number: int) -> None:
        self.numbers.push(number)


async def main() -> None:
    async with headwater.open("./data") as rt:
        tally = await rt.space("sums", user="ann").open(Tally, "one")
        await tally.add.send(5)
        print("total", await tally.total.pull(), flush=True)


if __name__ == "__main__":
    headwater.run(main)
"""
LIMIT_S = 120  # Of a process that hangs. Beside busy loops, each start of a program takes many seconds.


class Running:
    """An application in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.said = ""  # on standard error, once it was stopped
        self.out: IO[str] = process.stdout  # type: ignore[assignment]
        self.err: IO[str] = process.stderr  # type: ignore[assignment]

    def until(self, stream: IO[str], wanted: str) -> str:
        """The line that holds a text."""
        for line in stream:
            if wanted in line:
                return line
        raise AssertionError(f"it ended without {wanted!r}: {self.process.wait(LIMIT_S)} {self.err.read()}")

    def url(self) -> str:
        text = ""
        for line in self.out:
            text += line if text or line.startswith("{") else ""
            if line.startswith("}"):
                found: str = json.loads(text)["url"]
                return found
        raise AssertionError(f"it ended: {self.err.read()}")

    def stop(self, number: signal.Signals = signal.SIGINT) -> tuple[int, str]:
        self.process.send_signal(number)
        rest, self.said = self.process.communicate(timeout=LIMIT_S)
        return self.process.returncode, rest


@contextmanager
def running(folder: Path, *words: str, secure: bool = False, command: str = "run") -> Iterator[Running]:
    flags = () if secure else ("--insecure-local",)
    words = (sys.executable, "-m", "headwater.cli", command, *words, "--port", "0", *flags)
    with subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        timer = threading.Timer(LIMIT_S, process.kill)
        timer.start()
        try:
            yield Running(process)
        finally:
            timer.cancel()
            process.kill()


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    with imported():
        yield


def test_a_script_and_headwater_run_work_on_the_same_data(tmp_path: Path) -> None:
    write_app(tmp_path, PROGRAM, name="sums")
    script = subprocess.run(
        [sys.executable, "sums.py"], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=LIMIT_S
    )
    assert script.stdout == "total 5\n"
    with running(tmp_path, "sums.py") as served:
        assert "sums is at http://127.0.0.1:" in served.until(served.out, "is at")
        assert "10" in served.until(served.out, "total")
        assert served.stop(signal.SIGTERM)[0] == 0
    again = subprocess.run(
        [sys.executable, "sums.py"], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=LIMIT_S
    )
    assert again.stdout == "total 15\n"


PROGRAMS = Path(__file__).resolve().parents[2] / "programs"


@pytest.mark.parametrize("name", sorted(file.stem for file in PROGRAMS.glob("*.py") if file.stem != "__init__"))
def test_the_programs_of_the_design_run_as_scripts_and_by_headwater_run_on_the_same_data(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_app(tmp_path, (PROGRAMS / f"{name}.py").read_text(), name=name)

    def script() -> None:
        command = [sys.executable, f"{name}.py"]
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=LIMIT_S)
        assert ran.returncode == 0, ran.stderr

    def commits() -> int:
        if not (tmp_path / "data").exists():
            return 0
        with Directory(tmp_path / "data") as directory:
            return sum(directory.space(each).last_seq for each in directory.spaces())

    script()
    first = commits()
    with running(tmp_path, f"{name}.py", "--json") as served:
        url = served.url()
        if name == "design_block":  # Its `main` runs beside the server; the next script expects that it has ended.
            until_paid(url, 2, capsys)
        code, _ = served.stop(signal.SIGTERM)
        assert code == 0, served.said
    assert commits() >= first
    script()


def until_paid(url: str, times: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Wait until the cart has been paid for: the last thing that the program causes."""
    capsys.readouterr()
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        assert run(["get", url, "shop", "ann.receipts", "--json"]) == 0
        if capsys.readouterr().out.count("paid 450") == times:
            return
        time.sleep(0.05)
    raise AssertionError(f"the cart was not paid for {times} times within {LIMIT_S} s")


def test_its_page_and_its_address_are_given(tmp_path: Path) -> None:
    write_app(tmp_path / "app")
    (tmp_path / "app" / "page").mkdir()
    (tmp_path / "app" / "page" / "index.html").write_text("<p>Our shop</p>")
    with running(tmp_path, "app/shop.py", "--json") as served:
        url = served.url()
        with urllib.request.urlopen(url, timeout=LIMIT_S) as page:
            assert b"Our shop" in page.read()
        assert (tmp_path / "data" / "owner.url").read_text().strip() == url
        assert served.stop() == (0, "")
    assert not (tmp_path / "data" / "owner.url").exists()


def test_a_changed_computed_is_taken_in_while_it_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write_app(tmp_path)
    with running(tmp_path, "shop.py", "--json", "--reload") as served:
        url = served.url()
        assert run(["send", url, "shop", "ann.add", 'line={"sku": "tea", "cents": 450}']) == 0
        file.write_text(file.read_text().replace("line.cents for line", "line.cents * 2 for line"))
        assert served.until(served.err, "taken in") == "taken in: Cart.total\n"
        capsys.readouterr()
        assert run(["get", url, "shop", "ann.total"]) == 0
        assert capsys.readouterr().out == "900\n"
        file.write_text("this is no program\n")
        assert "The previous code goes on." in served.until(served.err, "cannot be compiled")
        assert run(["get", url, "shop", "ann.twice"]) == 0
        assert capsys.readouterr().out == "1800\n"
        assert served.stop()[0] == 0


def test_a_change_of_shape_starts_it_again_on_the_same_data_and_port(tmp_path: Path) -> None:
    file = write_app(tmp_path, SHOP.replace("seen.append(self.label.get())", "print('now', self.label.get())"))
    with running(tmp_path, "shop.py", "--json", "--reload") as served:
        url = served.url()
        file.write_text(
            file.read_text().replace('note: Cell[str] = cell(default="")', 'note: Cell[str] = cell(default="new")')
        )
        served.until(served.err, "starting again")
        assert served.url() == url
        assert served.stop()[0] == 0


def test_a_program_that_fails_ends_with_1_and_says_why(tmp_path: Path) -> None:
    write_app(tmp_path, PROGRAM.replace("await tally.add.send(5)", "raise LookupError('no tea')"), name="sums")
    with running(tmp_path, "sums.py") as served:
        served.until(served.err, "headwater: LookupError: no tea")
        assert served.process.wait(LIMIT_S) == 1


def test_a_beginning_that_fails_ends_it(tmp_path: Path) -> None:
    write_app(tmp_path, SHOP.replace('.open(Cart, "ann")', '.open(Cart, "")'))
    with running(tmp_path, "shop.py") as served:
        served.until(served.err, "cannot name a piece")
        assert served.process.wait(LIMIT_S) == 1


def test_with_reload_a_beginning_that_fails_waits_for_the_next_change(tmp_path: Path) -> None:
    file = write_app(tmp_path)
    good = file.read_text()
    with running(tmp_path, "shop.py", "--json", "--reload") as served:
        url = served.url()
        file.write_text(good.replace('.open(Cart, "ann")', '.open(Cart, "")'))
        served.until(served.err, "starting again")
        served.until(served.err, "cannot name a piece")
        assert served.until(served.err, "when its code changes") == "It starts again when its code changes.\n"
        assert served.url() == url
        file.write_text(good)
        served.until(served.err, "starting again")
        assert served.url() == url
        assert run(["get", url, "shop", "ann.total"]) == 0
        assert served.stop()[0] == 0


def test_with_reload_a_program_that_fails_waits_for_the_next_change(tmp_path: Path) -> None:
    bad = PROGRAM.replace("await tally.add.send(5)", "raise LookupError('no tea')")
    file = write_app(tmp_path, bad, name="sums")
    with running(tmp_path, "sums.py", "--reload") as served:
        served.until(served.err, "headwater: LookupError: no tea")
        file.write_text(PROGRAM)
        served.until(served.err, "starting again")
        assert "5" in served.until(served.out, "total")
        assert served.stop()[0] == 0


class TestLoading:
    def test_a_module_is_named_by_its_file(self, tmp_path: Path) -> None:
        file = write_app(tmp_path)
        module, classes, found = load_application(str(file))
        assert (module.__name__, found) == ("shop", file)
        assert [each.__schema__.name for each in classes] == ["shop.Cart"]
        assert page_folder(found) is None

    def test_one_class_of_it(self, tmp_path: Path) -> None:
        file = write_app(tmp_path, SHOP + "\n\nclass Other(Piece):\n    pass\n")
        assert [each.__name__ for each in load_application(f"{file}:Other")[1]] == ["Other"]
        with pytest.raises(AuthoringError, match="has no class Third"):
            load_application(f"{file}:Third")

    def test_a_folder_with_an_app_in_it(self, tmp_path: Path) -> None:
        write_app(tmp_path / "shop", name="app")
        assert load_application(str(tmp_path / "shop"))[0].__name__ == "app"

    def test_an_import_path(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write_app(tmp_path / "ours", name="market")
        monkeypatch.chdir(tmp_path)
        module, classes, file = load_application("ours.market")
        assert (module.__name__, classes[0].__schema__.name) == ("ours.market", "ours.market.Cart")
        assert file == (tmp_path / "ours" / "market.py").resolve()

    @pytest.mark.parametrize("name", ["missing.py", "no_such_module", "no such file"])
    def test_what_is_not_there(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        monkeypatch.chdir(tmp_path)
        with pytest.raises(AbsentError, match=r"shop\.py"):
            load_application(name)

    def test_a_file_without_pieces(self, tmp_path: Path) -> None:
        with pytest.raises(AuthoringError, match="has no class of pieces"):
            load_application(str(write_app(tmp_path, "x = 1\n")))

    def test_a_program_that_raises_leaves_no_half_module_behind(self, tmp_path: Path) -> None:
        with pytest.raises(ApplicationError, match="ZeroDivisionError"):
            load_application(str(write_app(tmp_path, "1 / 0\n", name="broken_app")))
        assert "broken_app" not in sys.modules

    def test_without_keys_and_without_saying_that_this_is_fine_it_does_not_start(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = write_app(tmp_path)
        assert run(["run", str(file), "--data", str(tmp_path / "data"), "--port", "0"]) == 1
        assert "--insecure-local" in capsys.readouterr().err
