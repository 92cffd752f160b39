"""A directory has one owner process: a second one is refused, and a dead one lets go."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.clock import VirtualClock
from headwater.data.patch import replace
from headwater.engine.directory import LOCK_FILE, Directory
from headwater.engine.engine import Engine
from headwater.errors import DirectoryInUseError, InvalidValueError, StorageError
from headwater.protocol.commit import Commit, TopicRecord
from headwater.protocol.reactions import Claim, Claimed, Subscribe
from tests.unit.engine.kit import value_of, write

OWN = "import sys; from headwater.engine.directory import Directory; d = Directory(sys.argv[1]); "
HOLD = OWN + "print('owned', flush=True); sys.stdin.readline()"


def owner(path: Path) -> subprocess.Popen[str]:
    """Another process that owns the directory until it gets a line, or is killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "owned\n"
    return process


def ended(process: subprocess.Popen[str]) -> int:
    process.communicate("\n", timeout=30)
    return process.returncode


class TestOwnership:
    def test_a_second_process_is_refused_and_told_who_the_owner_is(self, tmp_path: Path) -> None:
        process = owner(tmp_path)
        try:
            with pytest.raises(DirectoryInUseError) as caught:
                Directory(tmp_path)
            assert str(caught.value) == (
                f"{tmp_path} is owned by process {process.pid}. Stop that process, or, if it serves the "
                "directory, connect to it with headwater.connect."
            )
        finally:
            assert ended(process) == 0

    def test_a_process_started_second_is_the_one_that_is_refused(self, tmp_path: Path) -> None:
        with Directory(tmp_path) as directory:
            directory.space("shop")
            ran = subprocess.run(
                [sys.executable, "-c", OWN, str(tmp_path)], capture_output=True, text=True, check=False
            )
            assert ran.returncode == 1
            assert f"is owned by process {os.getpid()}" in ran.stderr
            assert directory.space("shop").last_seq == 0  # and the first goes on undisturbed

    def test_the_same_process_cannot_own_it_twice_either(self, tmp_path: Path) -> None:
        with Directory(tmp_path), pytest.raises(DirectoryInUseError, match=f"owned by process {os.getpid()}"):
            Directory(tmp_path)

    def test_a_killed_owner_frees_it_at_once(self, tmp_path: Path) -> None:
        process = owner(tmp_path)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=30)
        with Directory(tmp_path) as directory:
            assert directory.spaces() == []

    def test_an_owner_that_ended_frees_it(self, tmp_path: Path) -> None:
        assert ended(owner(tmp_path)) == 0
        Directory(tmp_path).close()
        Directory(tmp_path).close()

    def test_a_stale_lock_file_means_nothing(self, tmp_path: Path) -> None:
        (tmp_path / LOCK_FILE).write_text("999999\nleft behind, and longer than a number\n")
        with Directory(tmp_path):
            assert (tmp_path / LOCK_FILE).read_text() == f"{os.getpid()}\n"

    def test_an_owner_that_wrote_no_number_is_unknown(self, tmp_path: Path) -> None:
        with Directory(tmp_path):
            (tmp_path / LOCK_FILE).write_text("")
            with pytest.raises(DirectoryInUseError, match="is owned by process unknown"):
                Directory(tmp_path)

    def test_a_process_that_is_started_by_the_owner_does_not_inherit_the_lock(self, tmp_path: Path) -> None:
        directory = Directory(tmp_path)
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, text=True)
        directory.close()
        Directory(tmp_path).close()
        child.communicate("\n", timeout=30)


class TestSpaces:
    def test_a_space_is_a_file_that_is_made_by_its_first_commit(self, tmp_path: Path) -> None:
        with Directory(tmp_path / "deep" / "er") as directory:
            assert directory.spaces() == []
            for name in ("shop", "bakery", "unused"):
                engine = directory.space(name)
                assert directory.space(name) is engine
                engine.open_session("s")
                if name != "unused":
                    engine.submit("s", Commit(1, (write("d", replace((), 1)),)))
            assert directory.spaces() == ["bakery", "shop"]
            assert directory.file_of("shop") == tmp_path / "deep" / "er" / "shop.space"

    def test_what_was_written_is_there_at_the_next_opening(self, tmp_path: Path) -> None:
        with Directory(tmp_path) as directory:
            engine = directory.space("shop")
            engine.open_session("s")
            engine.submit("s", Commit(1, (write("d", replace((), 1)),)))
        with Directory(tmp_path) as directory:
            assert value_of(directory.space("shop"), "d") == 1
            assert not value_of(directory.space("other"), "d")

    @pytest.mark.parametrize("name", ["", "Shop", "../shop", "shop.space", "a/b", "1a", "a" * 65])
    def test_a_bad_name_makes_no_file(self, tmp_path: Path, name: str) -> None:
        with Directory(tmp_path) as directory:
            with pytest.raises(InvalidValueError, match="cannot name a space: use 1 to 64 lower-case letters"):
                directory.space(name)
            assert directory.spaces() == []

    def test_other_files_are_no_spaces(self, tmp_path: Path) -> None:
        (tmp_path / "notes.txt").write_text("x")
        with Directory(tmp_path) as directory:
            directory.space("shop").fork("b")
            assert directory.spaces() == ["shop"]

    def test_a_file_that_cannot_be_opened_leaves_the_other_spaces_alone(self, tmp_path: Path) -> None:
        (tmp_path / "broken.space").write_bytes(b"no database" * 1_000)
        with Directory(tmp_path) as directory:
            with pytest.raises(StorageError, match=r"broken\.space"):
                directory.space("broken")
            assert directory.space("shop").last_seq == 0


class TestClosing:
    def test_closing_twice_is_harmless_and_a_closed_directory_opens_nothing(self, tmp_path: Path) -> None:
        directory = Directory(tmp_path)
        directory.space("shop")
        directory.close()
        directory.close()
        with pytest.raises(StorageError, match=r"was closed here\. Open the directory again\."):
            directory.space("shop")

    def test_what_cannot_be_a_directory_is_said(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("x")
        with pytest.raises(StorageError, match=r"cannot be a data directory: .*file"):
            Directory(tmp_path / "file")


def test_new_owner_ends_leases_of_dead_owners_and_of_no_other_worker(tmp_path: Path) -> None:
    clock = VirtualClock()

    def claim(engine: Engine, worker: str, limit: int = 1) -> list[tuple[str, int, int]]:
        answer = engine.deliver(Claim(1, worker, ("r",), limit, lease_us=30_000_000))
        assert isinstance(answer, Claimed)
        return [(grant.hold.key, grant.attempt, grant.lost) for grant in answer.grants]

    with Directory(tmp_path, clock=clock) as directory:
        engine = directory.space("s")
        engine.open_session("ann")
        engine.deliver(Subscribe(1, "r", "orders", "now"))
        engine.submit("ann", Commit(1, records=tuple(TopicRecord("orders", key, 1) for key in ("a", "b"))))
        (key, *_), (other, *_) = *claim(engine, f"{directory.life}/one"), *claim(engine, "remote")
        assert claim(engine, f"{directory.life}/two") == []
        engine.end_leases_of_former_owners(directory.life)
        assert claim(engine, f"{directory.life}/two") == [], "its own process lives"
    with Directory(tmp_path, clock=clock) as directory:
        engine = directory.space("s")
        assert claim(engine, f"{directory.life}/one", 2) == [(key, 1, 1)]
        assert claim(engine, "another", 2) == [], "a worker on a connection may still run"
        clock.advance(30_000_000)
        assert (other, 1, 1) in claim(engine, "another", 2)
