"""What the engine remembers of a session is known exactly: bugs in letting go of sessions are found.

Each planted bug forgets a little more than it may, or something else than it should.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from headwater.data.address import Depth, DocKey
from headwater.data.patch import Patch, add, increment, replace
from headwater.engine import Limits
from headwater.engine.sessions import Session, Sessions
from headwater.engine.verify import NaiveSpace
from headwater.protocol.commit import Commit, Operation, Read
from headwater.testing.differential import replay
from headwater.testing.draws import DOCS
from headwater.testing.remembering import Remembering
from headwater.testing.schedules import Acknowledge, Compact, Profile, Restart, Step, Submit

A, B = DOCS[0], DOCS[1]
Plant = Callable[[pytest.MonkeyPatch], None]


def let_go_without_storing(patch: pytest.MonkeyPatch) -> None:
    def planted(self: Sessions) -> bool:
        while len(self._by_key) > self._limits.cached_sessions:
            self._by_key.popitem(last=False)
        return False

    patch.setattr(Sessions, "evict", planted)


def let_go_of_the_wrong_ones(patch: pytest.MonkeyPatch) -> None:
    """The latest used instead of the least recently used: its own commits are in the log only."""
    real = Sessions.evict

    def planted(self: Sessions) -> bool:
        for key in reversed(list(self._by_key)):
            self._by_key.move_to_end(key)
        return real(self)

    patch.setattr(Sessions, "evict", planted)


def never_store_rejections(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Sessions, "keep_judged", lambda self, session: None)


def acknowledge_without_the_turn(patch: pytest.MonkeyPatch) -> None:
    def planted(self: Sessions, session: Session, local_seq: int) -> None:
        if local_seq > session.row.acked:
            session.row = session.row._replace(acked=local_seq)
            self._store.put_session(session.row)

    patch.setattr(Sessions, "acknowledge", planted)


def forget_all_at_once(patch: pytest.MonkeyPatch) -> None:
    """A compaction makes sessions forget which commits were theirs."""
    patch.setattr(Sessions, "forget_row", Sessions.forget)


def one(session: str, *frame: Commit) -> Submit:
    return Submit(((session, frame),))


def write(number: int, doc: DocKey, *patches: Patch) -> Commit:
    return Commit(number, (Operation(doc, patches),))


EARLY = write(1, A, replace(("x",), 1))  # there is nothing to replace yet
EARLY_TOO = write(2, A, replace(("x",), 1))
ROOM = write(1, A, add((), {"x": 0, "y": 0}))  # from now on there is

PLANTED: dict[Plant, tuple[Limits, list[Step]]] = {
    let_go_without_storing: (Limits(cached_sessions=1), [one("p", EARLY), one("q", ROOM), one("p", EARLY)]),
    let_go_of_the_wrong_ones: (
        Limits(cached_sessions=1),
        [
            one("r", ROOM),
            one("r", write(2, A, increment(("y",)))),
            one("r", Commit(3)),
            one("r", Commit(4, reads=(Read(A, ("x",), Depth.DEEP, 1, ((3, 3),)),))),
        ],
    ),
    never_store_rejections: (
        Limits(),
        [one("p", write(1, B, add((), 1)), EARLY_TOO), one("q", ROOM), Restart(False), one("p", EARLY_TOO)],
    ),
    acknowledge_without_the_turn: (
        Limits(),
        [one("p", EARLY), one("p", EARLY_TOO), one("q", ROOM), Acknowledge("p", 1), Restart(True), one("p", EARLY_TOO)],
    ),
    forget_all_at_once: (Limits(), [one("p", EARLY), one("q", ROOM), Compact(1), one("p", EARLY)]),
}


def played(plant: Plant) -> tuple[str | None, Counter[str]]:
    limits, steps = PLANTED[plant]
    profile = Profile(steps=0, sessions=4, lie=0.0, eager=0.0, docs=DOCS, reads=(0,), limits=limits)
    counts: Counter[str] = Counter()
    return replay(0, profile, steps, counts), counts


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_what_is_remembered_needs_no_excuse_and_a_bug_in_it_is_found(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, counts = played(plant)
    assert found is None
    assert counts["extra"] == 0
    plant(monkeypatch)
    found, _ = played(plant)
    assert found is not None


def test_a_rejection_that_nothing_stored_is_forgotten_by_a_restart() -> None:
    profile = Profile(steps=0, sessions=4, lie=0.0, eager=0.0, docs=DOCS, reads=(0,), limits=Limits())
    counts: Counter[str] = Counter()
    assert replay(0, profile, [one("p", EARLY), one("q", ROOM), Restart(True), one("p", EARLY)], counts) is None
    assert (counts["accepted"], counts["rejected"]) == (2, 1)


def test_the_least_recently_used_session_is_let_go_with_its_verdicts_stored() -> None:
    naive = NaiveSpace()
    sessions = Remembering(naive, Limits(cached_sessions=2))
    for key in "pqr":
        sessions.used(key)
        naive.refuse(key, Commit(7))
    sessions.used("p")
    naive.accept("p", Commit(8))
    sessions.group_ended()
    assert [sessions.since(key) for key in "pqr"] == [0, 1, 0]
    sessions.restarted()
    assert naive.judged == {"q": 7}
