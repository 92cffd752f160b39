"""What nodes did, for the work that a crash interrupts: runs that made commits, and runs that changed nothing.

Nothing is drawn for it, so that a workload with runs is otherwise the one without. Some nodes are run by several
sessions, pieces get new generations, nodes go, and some documents that are read are written later, or never.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from headwater.data.address import DocKey
from headwater.protocol.commit import Commit, Frame
from headwater.protocol.observations import About, Footprint, NodeKey, Observation, Touched, encode_part

COUNTS: Final = DocKey("space", "counts")


def observed_of(key: str, frame: Frame, last_seq: int, created: Sequence[DocKey]) -> tuple[Observation, ...]:
    """Runs that made every other commit of a frame, and one in front of it that changed nothing."""
    first = frame[0].local_seq
    runs = [
        _run(f"{key}-{commit.local_seq % 3}", commit, last_seq, created) for commit in frame if commit.local_seq % 2
    ]
    quiet = _run(f"shared-{first % 4}", Commit(first), last_seq, created)
    return (msgspec.structs.replace(quiet, local_seq=0, gone=first % 11 == 0), *runs)


def _run(piece: str, commit: Commit, last_seq: int, created: Sequence[DocKey]) -> Observation:
    number = commit.local_seq
    node = NodeKey(piece, 1 + number // 30, f"member-{number % 5}", f"key-{number}" if number % 7 == 0 else "")
    docs = (COUNTS, DocKey("space", "draft-notes"), DocKey("space", f"made-ann-{number + 3}"), *created[-1:])
    reads = tuple(Touched(doc, ("by",) if doc == COUNTS else ()) for doc in docs[number % 2 :])
    return Observation(
        encode_part(About(node, "computed", f"code-{number // 20}")),
        encode_part(Footprint(reads, ("c1", "c2") if number % 3 else ())),
        number,
        number,
        last_seq,
        cause=0,
        took_us=number,
    )
