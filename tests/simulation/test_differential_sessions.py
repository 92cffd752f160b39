"""The engine remembers of a session exactly what it has to, through evictions, restarts and compaction."""

from __future__ import annotations

from collections import Counter

import pytest

from headwater.data.address import Depth, DocKey
from headwater.data.patch import Patch, add, increment, replace
from headwater.engine import Limits
from headwater.engine.verify import NaiveSpace
from headwater.protocol.commit import Commit, Operation, Read
from headwater.testing.differential.agreement import SessionMemory
from headwater.testing.differential.draws import DOCS
from headwater.testing.differential.harness import replay
from headwater.testing.differential.schedules import Acknowledge, Compact, Profile, Restart, Step, Submit

A, B = DOCS[0], DOCS[1]


def one(session: str, *frame: Commit) -> Submit:
    return Submit(((session, frame),))


def write(number: int, doc: DocKey, *patches: Patch) -> Commit:
    return Commit(number, (Operation(doc, patches),))


EARLY = write(1, A, replace(("x",), 1))  # there is nothing to replace yet
EARLY_TOO = write(2, A, replace(("x",), 1))
ROOM = write(1, A, add((), {"x": 0, "y": 0}))  # from now on there is

STORIES: dict[str, tuple[Limits, list[Step]]] = {
    "evicted_session": (Limits(cached_sessions=1), [one("p", EARLY), one("q", ROOM), one("p", EARLY)]),
    "latest_session": (
        Limits(cached_sessions=1),
        [
            one("r", ROOM),
            one("r", write(2, A, increment(("y",)))),
            one("r", Commit(3)),
            one("r", Commit(4, reads=(Read(A, ("x",), Depth.DEEP, 1, ((3, 3),)),))),
        ],
    ),
    "restart": (
        Limits(),
        [one("p", write(1, B, add((), 1)), EARLY_TOO), one("q", ROOM), Restart(False), one("p", EARLY_TOO)],
    ),
    "acknowledgement": (
        Limits(),
        [one("p", EARLY), one("p", EARLY_TOO), one("q", ROOM), Acknowledge("p", 1), Restart(True), one("p", EARLY_TOO)],
    ),
    "compaction": (Limits(), [one("p", EARLY), one("q", ROOM), Compact(1), one("p", EARLY)]),
}


def played(name: str) -> tuple[str | None, Counter[str]]:
    limits, steps = STORIES[name]
    profile = Profile(steps=0, sessions=4, lie=0.0, eager=0.0, docs=DOCS, reads=(0,), limits=limits)
    counts: Counter[str] = Counter()
    return replay(0, profile, steps, counts), counts


@pytest.mark.parametrize("name", STORIES)
def test_session_is_remembered_exactly(name: str) -> None:
    found, counts = played(name)
    assert found is None
    assert counts["extra"] == 0


def test_a_rejection_that_nothing_stored_is_forgotten_by_a_restart() -> None:
    profile = Profile(steps=0, sessions=4, lie=0.0, eager=0.0, docs=DOCS, reads=(0,), limits=Limits())
    counts: Counter[str] = Counter()
    assert replay(0, profile, [one("p", EARLY), one("q", ROOM), Restart(True), one("p", EARLY)], counts) is None
    assert (counts["accepted"], counts["rejected"]) == (2, 1)


def test_the_least_recently_used_session_is_let_go_with_its_verdicts_stored() -> None:
    naive = NaiveSpace()
    sessions = SessionMemory(naive, Limits(cached_sessions=2))
    for key in "pqr":
        sessions.used(key)
        naive.refuse(key, Commit(7))
    sessions.used("p")
    naive.accept("p", Commit(8))
    sessions.group_ended()
    assert [sessions.since(key) for key in "pqr"] == [0, 1, 0]
    sessions.restarted()
    assert naive.judged == {"q": 7}
