"""Attacks with an editor: one cell of one row changed, which `headwater verify` or opening the space has to find."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from headwater.clock import VirtualClock
from headwater.data.address import DocKey
from headwater.data.patch import replace
from headwater.engine.engine import Engine
from headwater.engine.limits import Limits
from headwater.engine.store.sqlite import SqliteStore
from headwater.engine.verify.oracle import verify_file
from headwater.errors import HeadwaterError
from headwater.protocol.commit import Commit, Operation, SentEvent, TopicRecord
from tests.unit.engine.delivery_kit import lease_target

EDITS = {
    "where a branch was merged": "UPDATE branches SET merged_seq=merged_seq+7 WHERE name='b'",
    "that a branch was deleted": "UPDATE branches SET deleted=0 WHERE name='c'",
    "the token of a lease": "UPDATE targets SET token=token+1",
    "the holder of a lease": "UPDATE targets SET holder='thief'",
    "that a lease was given": "DELETE FROM targets",
    "how far a session was judged": "UPDATE sessions SET judged=judged+5 WHERE key='s'",
    "a commit that is kept for its session": "DELETE FROM log WHERE seq=5",
    "whose commit one is that is kept": "UPDATE log SET session=2 WHERE seq=5",
    "an event of long ago": "UPDATE events SET payload=x'81a17107' WHERE id='event 1'",
    "an event of long ago that is gone": "DELETE FROM events WHERE id='event 1'",
    "a record of long ago": "UPDATE records SET key='other' WHERE seq=2",
}


def a_space(file: Path) -> None:
    """Three documents, two branches, a lease, and a history whose beginning was given up."""
    limits = Limits(snapshot_patches=3, marks_patches=2, heads_commits=5)
    engine = Engine(SqliteStore(file, synchronous="OFF"), clock=VirtualClock(seed=1), limits=limits)
    for key in ("s", "t"):
        engine.open_session(key, key)
    for number in range(1, 31):
        write = Operation(DocKey("space", f"d{number % 3}"), (replace((), {"n": number}),))
        events = (SentEvent(f"event {number}", "stream", {"p": number}),) if number % 5 == 1 else ()
        records = (TopicRecord("topic", "key", number),) if number % 5 == 2 else ()
        engine.submit("s", Commit(number, (write,), events=events, records=records))
    engine.fork("b")
    engine.fork("c")
    engine.delete_branch("c")
    lease_target(engine, "key")
    engine.acknowledge("s", 4)
    engine.compact(8)
    engine.close()


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS.keys())
def test_an_edited_row_is_found(tmp_path: Path, edit: str) -> None:
    file = tmp_path / "x.space"
    a_space(file)
    assert verify_file(file).ok
    editor = apsw.Connection(str(file))
    editor.execute(edit)
    assert editor.changes()
    editor.close()
    try:
        found = not verify_file(file).ok
    except HeadwaterError:
        found = True
    assert found
