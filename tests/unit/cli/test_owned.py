"""`branch` and `verify` on a directory that a running process owns go through that process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

import headwater
from headwater.cli.app import run
from headwater.clock import RealClock
from headwater.data.patch import add
from headwater.engine.directory import Directory
from headwater.errors import LimitError, StorageError
from headwater.protocol.commit import Commit
from headwater.server.commands.safe_copy import FOLDER, copy_path, copy_space_file
from headwater.server.operation.limits import DEFAULT_SERVER_LIMITS
from tests.unit.cli.kit_app import write_app
from tests.unit.cli.test_run import running
from tests.unit.engine.kit import write

pytestmark = pytest.mark.thorough

Ask = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Ask:
    def call(*words: object) -> tuple[int, str, str]:
        code = run([str(word) for word in words])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return code, captured.out, captured.err

    return call


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A directory with a space that has a number, and a branch that has another."""
    path = tmp_path / "data"
    with Directory(path, synchronous="OFF") as directory:
        engine = directory.space("shop")
        engine.open_session("ann")
        engine.submit("ann", Commit(1, (write("number", add((), 1)),)))
        engine.fork("better")
        engine.submit("ann", Commit(2, (write("number", add((), 2)),), branch="better"))
        engine.submit("ann", Commit(3, (write("other", add((), 5)),), branch="better"))
    return path


def test_branches_of_an_owned_directory_are_listed_made_compared_merged_and_deleted(
    tmp_path: Path, data: Path, ask: Ask
) -> None:
    app = write_app(tmp_path / "app")
    with running(tmp_path, str(app), "--json", "--data", str(data)) as served:
        url = served.url()
        for where in (data, url):
            names = [each["name"] for each in json.loads(ask("branch", "list", where, "shop", "--json")[1])["branches"]]
            assert names[:2] == ["better", "main"]
            assert "2 changes in 2 documents" in ask("branch", "diff", where, "shop", "better")[1]
        assert ask("branch", "new", data, "shop", "third", "--at", "1")[0] == 0
        assert "does not exist" in ask("branch", "diff", url, "shop", "nope")[2]
        assert ask("branch", "delete", url, "shop", "third") == (0, "branch 'third' is deleted\n", "")
        assert ask("branch", "list", data, "nope")[0] == 1
        heard = asyncio.run(_heard(url, lambda: ask("branch", "merge", data, "shop", "better")))
        assert heard == [1, 2]  # Whoever looks hears of a merge as of any other write.
        assert ask("get", data, "shop", "space:other")[1] == "5\n"
        assert served.stop()[0] == 0


async def _heard(url: str, act: Callable[[], tuple[int, str, str]]) -> list[int]:
    """What somebody sees who looks at the number meanwhile."""
    heard: list[int] = []
    async with headwater.connect(url, token="") as rt:
        number: Any = rt.cell("shop", "number", int)
        async for value in number.watch():
            heard.append(value)
            if len(heard) == 1:
                code, out, _ = await asyncio.to_thread(act)
                assert (code, "merged into 'main'" in out) == (0, True)
            else:
                break
    return heard


def test_a_space_of_an_owned_directory_is_verified_by_a_copy_that_is_gone_afterwards(
    tmp_path: Path, data: Path, ask: Ask
) -> None:
    app = write_app(tmp_path / "app")
    with running(tmp_path, str(app), "--json", "--data", str(data)) as served:
        url = served.url()
        assert ask("set", url, "shop", "space:late", "7")[0] == 0  # It may still be in what is written ahead.
        code, out, err = ask("verify", data / "shop.space")
        assert (code, err) == (0, "")
        assert "every rule holds" in out
        report = json.loads(ask("verify", data / "shop.space", "--json")[1])
        last = json.loads(ask("log", data, "shop", "--json")[1])["commits"][-1]["seq"]
        assert (report["ok"], report["commits"]) == (True, last)
        assert list((data / FOLDER).iterdir()) == []
        assert ask("get", url, "shop", "space:late")[1] == "7\n"  # The engine goes on as before.
        assert ask("set", url, "shop", "space:late", "8")[0] == 0
        assert ask("verify", data / "nope.space")[0] == 2
        assert served.stop()[0] == 0
    assert ask("verify", data / "shop.space")[0] == 0


def test_a_violation_in_an_owned_directory_is_found(tmp_path: Path, data: Path, ask: Ask) -> None:
    connection = apsw.Connection(str(data / "shop.space"))
    connection.cursor().execute("UPDATE log SET at_us = at_us + 1 WHERE seq = 1")
    connection.close()
    app = write_app(tmp_path / "app")
    with running(tmp_path, str(app), "--json", "--data", str(data)) as served:
        served.url()
        code, out, _ = ask("verify", data / "shop.space")
        assert (code, "does not hold" in out) == (1, True)
        assert list((data / FOLDER).iterdir()) == []


def test_only_owners_have_copies_made(tmp_path: Path, data: Path, ask: Ask) -> None:
    app = write_app(tmp_path / "app")
    assert ask("keys", "new", data)[0] == 0
    owned = '{"owners": ["cy"], "writers": [], "readers": ["ann"]}'
    assert ask("set", data, "shop", "space:$access", owned, "--app", app)[0] == 0
    with running(tmp_path, str(app), "--json", "--data", str(data), "--owner", "cy", secure=True) as served:
        served.url()
        assert "with --user" in ask("verify", data / "shop.space")[2]
        assert "'ann' may not" in ask("verify", data / "shop.space", "--user", "ann")[2]
        assert "'ann' may not" in ask("branch", "merge", data, "shop", "better", "--user", "ann")[2]
        assert ask("verify", data / "shop.space", "--user", "cy")[0] == 0


def test_an_owned_space_is_verified_from_any_folder(
    tmp_path: Path, data: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has the directory by another name than the command has, because each is somewhere else."""
    app = write_app(tmp_path / "app")
    with running(tmp_path, str(app), "--json", "--data", data.name) as served:
        served.url()
        (tmp_path / "elsewhere").mkdir()
        for folder, file in ((tmp_path / "elsewhere", data / "shop.space"), (data, Path("shop.space"))):
            monkeypatch.chdir(folder)
            code, out, err = ask("verify", file)
            assert (code, "every rule holds" in out, err) == (0, True, "")
        assert list((data / FOLDER).iterdir()) == []


@pytest.mark.parametrize("name", ["", "..", "/etc", "a/b", "../data"])
def test_what_is_removed_after_a_look_is_a_copy(tmp_path: Path, name: str) -> None:
    with pytest.raises(StorageError, match="not the name of a copy"):
        copy_path(tmp_path / "shop.space", name)


def test_there_are_never_more_than_a_few_copies_and_old_ones_go(tmp_path: Path) -> None:
    file = tmp_path / "shop.space"
    file.write_bytes(b"x")
    now_us = RealClock().now_us()
    made = [copy_space_file(file, now_us) for _ in range(DEFAULT_SERVER_LIMITS.copies)]
    assert all(each.read_bytes() == b"x" for each in made)
    with pytest.raises(LimitError, match="wait for these, or delete"):
        copy_space_file(file, now_us)
    later_us = now_us + 2 * round(DEFAULT_SERVER_LIMITS.copy_s * 1e6)  # However long making them took.
    again = copy_space_file(file, later_us)
    assert [each.exists() for each in made] == [False] * len(made)
    assert list((tmp_path / FOLDER).iterdir()) == [again.parent]


def test_a_copy_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / FOLDER).write_text("in the way")
    with pytest.raises(StorageError, match="cannot hold a copy"):
        copy_space_file(tmp_path / "shop.space", 0)
