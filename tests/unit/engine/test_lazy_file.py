"""The first commit of a space makes its file: whoever looks, asks or only opens a session before it makes none."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.data.address import DocKey
from headwater.data.patch import replace
from headwater.data.value import ABSENT
from headwater.engine.directory import Directory
from headwater.engine.engine import Engine
from headwater.engine.store.database import Database
from headwater.engine.store.lazy_file import LazyFileStore
from headwater.engine.verify.oracle import verify_file
from headwater.errors import ProtocolError, StorageError
from headwater.protocol.commit import MAIN, Commit, Operation
from headwater.protocol.verdict import Accepted

D = DocKey("space", "d")


def write(local_seq: int, value: int, branch: str = MAIN) -> Commit:
    return Commit(local_seq, (Operation(D, (replace((), value),)),), branch=branch)


def test_an_unknown_space_can_be_read_and_makes_no_file(tmp_path: Path) -> None:
    with Directory(tmp_path) as directory:
        engine = directory.space("shop")
        assert engine.read(D).value is ABSENT
        engine.open_session("s")
        assert engine.documents("space").items == ()
        assert directory.spaces() == []
    assert [file.name for file in tmp_path.iterdir()] == ["owner.lock"]


def test_the_first_commit_makes_the_file_and_keeps_what_was_there(tmp_path: Path) -> None:
    with Directory(tmp_path) as directory:
        engine = directory.space("shop")
        engine.resume_session("s", "ann", "", "next")
        assert isinstance(engine.submit("s", write(1, 1))[0], Accepted)
        assert directory.spaces() == ["shop"]
        assert isinstance(engine.submit("s", write(2, 2))[0], Accepted)
    assert verify_file(tmp_path / "shop.space").violation is None
    with Directory(tmp_path) as directory:
        engine = directory.space("shop")
        assert engine.read(D).value == 2
        assert engine.session("s").last == 2
        with pytest.raises(ProtocolError, match="was used before"):
            engine.resume_session("s", "ann", "", "again")
        engine.resume_session("s", "ann", "next", "after")


def test_a_rejected_first_commit_makes_no_file(tmp_path: Path) -> None:
    with Directory(tmp_path) as directory:
        engine = directory.space("shop")
        engine.open_session("s")
        assert not isinstance(engine.submit("s", write(1, 1, branch="none"))[0], Accepted)
        assert directory.spaces() == []


def test_a_branch_makes_the_file_since_it_must_survive(tmp_path: Path) -> None:
    with Directory(tmp_path) as directory:
        directory.space("forked").fork("b")
        directory.space("opened").open_session("s")
        assert directory.spaces() == ["forked"]
    with Directory(tmp_path) as directory:
        directory.space("forked").fork("c", parent="b")


def test_a_space_that_is_there_is_opened_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "shop.space"
    for number in (1, 2, 3):
        engine = Engine(LazyFileStore(file))
        engine.open_session("s")
        engine.submit("s", write(number, number))
        engine.close()
    engine = Engine(LazyFileStore(file))
    assert engine.last_seq == 3
    engine.close()


def test_a_file_that_cannot_be_made_gives_no_verdict_and_the_next_try_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: Database, other: Database) -> None:
        raise StorageError("no room")

    with Directory(tmp_path) as directory:
        engine = directory.space("shop")
        engine.open_session("s")
        with monkeypatch.context() as broken:
            broken.setattr(Database, "copy", fails)
            with pytest.raises(StorageError, match="no room"):
                engine.submit("s", write(1, 1))
        assert engine.last_seq == 0  # the disk decides: nothing landed
        engine.open_session("s")
        assert isinstance(engine.submit("s", write(1, 1))[0], Accepted)
        assert engine.read(D).value == 1


def test_a_session_that_looked_before_the_first_commit_goes_on_after_a_restart(tmp_path: Path) -> None:
    """Its token is forgotten with the rest, and there is nothing yet that a token would guard."""
    with Directory(tmp_path) as directory:
        directory.space("shop").resume_session("s", "ann", "", "t1")
    with Directory(tmp_path) as directory:
        engine = directory.space("shop")
        engine.resume_session("s", "ann", "t1", "t2")
        with pytest.raises(ProtocolError, match="was used before"):
            engine.resume_session("s", "ann", "t1", "t3")
        assert isinstance(engine.submit("s", write(1, 1))[0], Accepted)
