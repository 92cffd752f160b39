"""Attacks on a replay: the commit that it repeats is in the log, but its bytes are damaged."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from headwater.data.address import DocKey
from headwater.data.patch import append, replace
from headwater.engine.engine import Engine
from headwater.engine.store.sqlite import SqliteStore
from headwater.errors import CorruptionError
from headwater.protocol.commit import Commit, Operation

DOC = DocKey("space", "d")


def test_replaying_a_commit_whose_row_is_damaged_says_that_it_is(tmp_path: Path) -> None:
    file = tmp_path / "x.space"
    engine = Engine(SqliteStore(file, synchronous="OFF"))
    engine.open_session("s")
    second = Commit(2, (Operation(DOC, (append((), [2]),)),))
    engine.submit("s", Commit(1, (Operation(DOC, (replace((), [1]),)),)))
    engine.submit("s", second)
    engine.submit("s", Commit(3, (Operation(DOC, (append((), [3]),)),)))
    engine.close()
    editor = apsw.Connection(str(file))
    body = editor.execute("SELECT body FROM log WHERE seq=2").get
    assert isinstance(body, bytes)
    editor.execute("UPDATE log SET body=? WHERE seq=2", (body.replace(b"append", b"\x82ppend"),))
    editor.close()
    engine = Engine(SqliteStore(file, synchronous="OFF"))
    engine.open_session("s")
    with pytest.raises(CorruptionError):
        engine.submit("s", second)
    engine.close()
