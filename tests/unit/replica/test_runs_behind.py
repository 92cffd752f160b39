"""A run that changed nothing is told behind the commits that it stands on, and many of them wait only so long."""

from __future__ import annotations

from headwater.protocol.commit import Commit
from headwater.protocol.messages import Transact
from headwater.replica.limits import ReplicaLimits
from headwater.replica.observation_queue import ObservationQueue
from tests.unit.replica.kit import World, doc


def _runs() -> ObservationQueue:
    runs = ObservationQueue()
    runs.is_on = True
    return runs


def _frame(*local_seqs: int) -> Transact:
    return Transact(tuple(Commit(number, ()) for number in local_seqs))


def test_what_stands_on_a_commit_of_a_frame_is_told_with_the_next_one() -> None:
    runs = _runs()
    runs.noted(b"on nothing", b"", 7)
    runs.noted(b"on the frame", b"", 7, (((3, 3),), ()))
    runs.noted(b"on one before", b"", 7, (((1, 2),),))
    first = runs.with_frame(_frame(3, 4))
    assert [run.about for run in first.observations] == [b"on nothing", b"on one before"]
    second = runs.with_frame(_frame(5))
    assert [run.about for run in second.observations] == [b"on the frame"]
    assert runs.taken() == ()


def test_without_a_frame_everything_is_told() -> None:
    runs = _runs()
    runs.noted(b"a", b"", 7, (((3, 3),),))
    assert [run.about for run in runs.taken()] == [b"a"]


def test_what_is_never_taken_is_bounded() -> None:
    runs = ObservationQueue(ReplicaLimits(noted_runs=20, noted_waiting=100))
    runs.is_on = True
    for number in range(110):
        runs.noted(b"%d" % number, b"", 7)
    kept = runs.taken()
    assert len(kept) == 90
    assert kept[-1].about == b"109"


def test_what_stands_on_commits_that_were_not_sent_yet_waits_for_them() -> None:
    """More runs than travel at once: those behind what is still here are told when that is on its way."""
    world = World("ann")
    (ann,) = world.clients
    ann.session.runs.is_on = True
    ann.watch("d")
    world.settle()
    layer = ann.replica.write_whole(ann.replica.documents.of(doc("d")), 1, (), derived=True)
    assert layer is not None
    ann.replica.make_commits()
    session = ann.session
    session.runs.noted(b"on what was sent", b"", 7)
    session.runs.noted(b"on what was not", b"", 7, (((layer.local_seq, layer.local_seq),),))
    session.tell_runs()
    (told,) = [each for each in session.outgoing if isinstance(each, Transact)]
    assert [run.about for run in told.observations] == [b"on what was sent"]
    session.flush()
    session.tell_runs()
    last = session.outgoing[-1]
    assert isinstance(last, Transact)
    assert [run.about for run in last.observations] == [b"on what was not"]
