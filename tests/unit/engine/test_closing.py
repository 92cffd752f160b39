"""What an engine has said stands, also after it was closed and opened again."""

from __future__ import annotations

from pathlib import Path

from headwater.clock import VirtualClock
from headwater.data.address import Depth, DocKey
from headwater.data.patch import replace
from headwater.engine.engine import Engine
from headwater.engine.store.lazy_file import LazyFileStore
from headwater.protocol.commit import Commit, Operation, Read
from headwater.protocol.verdict import Rejected

D = DocKey("space", "d")


def opened(path: Path) -> Engine:
    return Engine(LazyFileStore(path), clock=VirtualClock(seed=1))


def test_a_rejection_that_no_accepted_frame_carried_along_is_kept_by_an_orderly_close(tmp_path: Path) -> None:
    path = tmp_path / "s.space"
    engine = opened(path)
    engine.open_session("ann")
    engine.open_session("bob")
    engine.submit("ann", Commit(1, (Operation(D, (replace((), 1),)),)))
    engine.submit("ann", Commit(2, (Operation(D, (replace((), 2),)),)))
    late = Commit(1, (Operation(D, (replace((), 9),)),), (Read(D, (), Depth.DEEP, 1),))
    assert isinstance(engine.submit("bob", late)[0], Rejected)
    engine.close()
    engine = opened(path)
    engine.open_session("bob")
    assert isinstance(engine.submit("bob", late)[0], Rejected)  # C6: and not judged anew
    engine.close()
