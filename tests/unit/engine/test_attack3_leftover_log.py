"""A write-ahead log whose file is gone belongs to nobody: a new space must not take it up."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from headwater.data.address import DocKey
from headwater.data.patch import replace
from headwater.engine.engine import Engine
from headwater.engine.store.sqlite import SqliteStore
from headwater.errors import StorageError
from headwater.protocol.commit import Commit, Operation


def test_a_new_space_does_not_take_up_the_log_of_one_that_was_deleted(tmp_path: Path) -> None:
    old, new = tmp_path / "old.space", tmp_path / "new.space"
    engine = Engine(SqliteStore(str(old)))
    engine.open_session("s", "ann")
    secret = DocKey("space", "secret")
    for number in range(1, 11):
        engine.submit("s", Commit(number, (Operation(secret, (replace((), number),)),)))
    shutil.copy(f"{old}-wal", f"{new}-wal")  # As a process that died leaves it, after the file itself was deleted.
    engine.close()
    with pytest.raises(StorageError, match="is left of a space"):
        SqliteStore(str(new))
    assert not new.exists()
