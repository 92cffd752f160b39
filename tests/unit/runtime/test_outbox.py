"""The file of an outbox: what is put stays until it is removed, in order, and a file that is no outbox is refused."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from headwater.errors import DirectoryInUseError, LimitError, NewerVersionError, StorageError
from headwater.protocol.commit import SentEvent
from headwater.runtime.events.outbox import Outbox


def test_what_is_put_stays_until_it_is_removed(tmp_path: Path) -> None:
    path = str(tmp_path / "sent.outbox")
    events = [SentEvent(f"e{n}", "s/p:go", {"n": n, "b": b"x"}, n) for n in range(3)]
    box = Outbox(path)
    for event in events:
        box.put("s", event)
        box.put("s", event)  # A second time is nothing.
    box.remove("e1")
    box.remove("nothing")
    assert len(box) == 2
    box.close()
    again = Outbox(path)
    assert again.rows() == [("s", events[0]), ("s", events[2])]
    with pytest.raises(DirectoryInUseError, match="another program has the outbox"):
        Outbox(path)
    again.close()


def test_a_file_that_is_no_outbox_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    connection = apsw.Connection(str(other))
    connection.execute("CREATE TABLE t (x)")
    connection.close()
    with pytest.raises(StorageError, match="is not an outbox"):
        Outbox(str(other))
    (tmp_path / "text").write_text("no database at all, but long enough to be read as one" * 40)
    with pytest.raises(StorageError):
        Outbox(str(tmp_path / "text"))
    newer = str(tmp_path / "newer")
    Outbox(newer).close()
    connection = apsw.Connection(newer)
    connection.pragma("user_version", 99)
    connection.close()
    with pytest.raises(NewerVersionError, match="newer version"):
        Outbox(newer)


def test_an_outbox_is_bounded_and_says_when_it_is_damaged(tmp_path: Path) -> None:
    path = str(tmp_path / "box")
    box = Outbox(path, most=1)
    box.put("s", SentEvent("e1", "s/p:go", {}))
    with pytest.raises(LimitError, match="holds 1 sends without an end"):
        box.put("s", SentEvent("e2", "s/p:go", {}))
    box.close()
    connection = apsw.Connection(path)
    connection.execute("UPDATE sent SET event=x'00'")
    connection.close()
    box = Outbox(path)
    with pytest.raises(StorageError, match="is damaged"):
        box.rows()
    box.close()
