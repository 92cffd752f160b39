"""`headwater backup`, `restore` and `verify DIR`, also while a server is using the directory."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headwater.cli.app import run
from headwater.cli.directory import announce_address, format_url
from headwater.data.patch import replace
from headwater.engine.directory import Directory
from headwater.engine.engine import Engine
from headwater.server import Server
from tests.unit.engine.kit import Writer, value_of, write

SPACES = ("pads", "shop")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    with Directory(folder) as directory:
        for name in SPACES:
            Writer(directory.space(name), "ann").lands(write("d", replace((), f"first of {name}")))
    return folder


def add(engine: Engine, key: str, value: str) -> None:
    Writer(engine, key).lands(write("d", replace((), value)))


def value(folder: Path, space: str) -> object:
    with Directory(folder) as directory:
        return value_of(directory.space(space), "d")


@contextmanager
def served(folder: Path) -> Iterator[Server]:
    """A server of the directory on a thread of its own, without keys."""
    started = threading.Event()
    made: list[Server] = []

    async def serve() -> None:
        server = Server(folder, port=0, insecure_local=True, classes=())
        made.append(server)
        with announce_address(folder, format_url(*server.address)):
            task = asyncio.create_task(server.run_until_stopped())
            while not server.started:
                await asyncio.sleep(0)
            for space in SPACES:
                await server.service.spaces.enter(space)
            started.set()
            await task

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        started.wait()
        yield made[0]
    finally:
        made[0].stop()
        thread.join()


def test_backup_of_a_served_directory_has_every_commit_that_was_acknowledged(data: Path, tmp_path: Path) -> None:
    with served(data) as server:
        server.call_in_space("shop", lambda engine: add(engine, "bob", "second"))
        assert run(["backup", str(data), str(tmp_path / "b1")]) == 0
        server.call_in_space("shop", lambda engine: add(engine, "cat", "third"))
        assert not list((data / "copies").iterdir())
    assert value(data, "shop") == "third"
    assert run(["restore", str(tmp_path / "b1"), str(tmp_path / "new")]) == 0
    assert [value(tmp_path / "new", name) for name in SPACES] == ["first of pads", "second"]


def test_backup_is_complete_or_has_another_name(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = (data / "shop.space").read_bytes()
    (data / "shop.space").write_bytes(content[: len(content) // 2])
    assert run(["backup", str(data), str(tmp_path / "b1")]) == 1
    assert "shop" in capsys.readouterr().err
    assert not (tmp_path / "b1").exists()
    assert run(["backup", str(data), str(tmp_path / "b1"), "--space", "pads"]) == 0
    assert sorted(each.name for each in (tmp_path / "b1").iterdir()) == ["backup.json", "pads.space"]
    assert run(["backup", str(data), str(tmp_path / "b1"), "--space", "pads"]) == 1
    assert "exists already" in capsys.readouterr().err


def test_restore_replaces_nothing_unasked_and_keeps_what_it_replaces(data: Path, tmp_path: Path) -> None:
    assert run(["backup", str(data), str(tmp_path / "b1")]) == 0
    with Directory(data) as directory:
        add(directory.space("shop"), "bob", "second")
    assert run(["restore", str(tmp_path / "b1"), str(data)]) == 1
    assert value(data, "shop") == "second"
    assert run(["restore", str(tmp_path / "b1"), str(data), "--replace", "--space", "shop"]) == 0
    assert value(data, "shop") == "first of shop"
    (kept,) = (data / "replaced").iterdir()
    assert value(kept, "shop") == "second"


def test_restore_writes_nothing_if_one_file_was_changed(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["backup", str(data), str(tmp_path / "b1")]) == 0
    with (tmp_path / "b1" / "shop.space").open("r+b") as file:
        file.seek(5_000)
        file.write(b"\x00\x01\x02")
    assert run(["restore", str(tmp_path / "b1"), str(tmp_path / "new")]) == 1
    assert "not those that were backed up" in capsys.readouterr().err
    assert not list((tmp_path / "new").glob("*.space"))


def test_backup_that_was_verified_can_be_restored(data: Path, tmp_path: Path) -> None:
    assert run(["backup", str(data), str(tmp_path / "b1")]) == 0
    assert run(["verify", str(tmp_path / "b1")]) == 0
    assert run(["restore", str(tmp_path / "b1"), str(tmp_path / "new")]) == 0


def test_restore_into_a_directory_in_use_is_refused(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["backup", str(data), str(tmp_path / "b1")]) == 0
    with Directory(data):
        assert run(["restore", str(tmp_path / "b1"), str(data), "--replace"]) == 1
    assert "is owned by process" in capsys.readouterr().err


def test_verify_of_a_directory_tells_of_every_space(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify", str(data)]) == 0
    assert capsys.readouterr().out.count("every rule holds") == 2
    content = (data / "pads.space").read_bytes()
    (data / "pads.space").write_bytes(content[:6_000])
    assert run(["verify", str(data), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["ok"], found["spaces"]["pads"]["ok"], found["spaces"]["shop"]["ok"]) == (False, False, True)


def test_verify_of_a_directory_works_while_it_is_served(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with served(data):
        assert run(["verify", str(data)]) == 0
    assert capsys.readouterr().out.count("every rule holds") == 2
