"""Frames: the commits of one flush travel together. Results have no commits before a wave."""

from __future__ import annotations

from headwater.data.patch import add, increment, replace
from headwater.engine.limits import Limits
from headwater.protocol.commit import Commit
from headwater.protocol.messages import Ack, Transact
from headwater.replica.limits import ReplicaLimits
from headwater.replica.transaction import Transaction
from tests.unit.replica.kit import Client, Told, Work, bump, counting, doc, putting, together

D, E = doc("d"), doc("e")


def noting(key: str = "saw") -> Work:
    """Derive something in e from d.x."""

    def work(transaction: Transaction) -> None:
        value = transaction.read(D, ("x",))
        transaction.write(E, add((key,), value))

    return work


def frames(client: Client) -> list[tuple[Commit, ...]]:
    return [message.commits for message in client.session.outgoing if isinstance(message, Transact)]


def numbers(client: Client) -> list[list[int]]:
    return [[commit.local_seq for commit in frame] for frame in frames(client)]


def test_consecutive_computations_wait_and_travel_together() -> None:
    world = counting("a")
    (a,) = world.clients
    tolds = [a.do(putting("d", replace(("x",), number)), derived=True) for number in (1, 2, 3)]
    assert frames(a) == []
    a.session.flush()
    assert numbers(a) == [[2, 3, 4]]
    world.settle()
    assert all(told.landed for told in tolds)
    assert len(world.engine.changes().items) == 4


def test_commits_of_one_flush_travel_together() -> None:
    world = counting("a")
    (a,) = world.clients
    for derived in (True, True, False, True):
        a.do(putting("d", increment(("x",))), derived=derived)
    a.session.flush()
    assert numbers(a) == [[2, 3, 4, 5]]
    world.settle()
    assert world.value("d") == {"n": 0, "x": 4}


def test_commit_after_another_message_is_in_a_frame_of_its_own() -> None:
    world = counting("a")
    (a,) = world.clients
    a.do(putting("d", increment(("x",))))
    a.session.outgoing.append(Ack(a.replica.confirmed.seq, 0))
    a.do(putting("d", increment(("x",))))
    assert numbers(a) == [[2], [3]]


def test_frame_of_commits_of_one_flush_is_at_most_as_long_as_its_limit() -> None:
    world = counting("a")
    (a,) = world.clients
    a.replica.limits = ReplicaLimits(frame_bytes=3_000)
    for number in range(5):
        a.do(putting("d", replace(("x",), str(number) * 1_000)))
    assert numbers(a) == [[2, 3], [4, 5], [6]]
    world.settle()
    assert world.value("d") == {"n": 0, "x": "4" * 1_000}


def test_a_wave_larger_than_a_frame_may_be_is_sent_as_several() -> None:
    world = counting("a", limits=Limits(frame_commits=512))
    (a,) = world.clients
    tolds = [a.do(putting("d", increment(("x",))), derived=True) for _ in range(600)]
    a.session.flush()
    assert all(len(frame) <= 512 for frame in frames(a))
    world.settle()
    assert all(told.landed for told in tolds)


def test_read_that_is_older_than_a_write_of_its_frame_is_judged_by_its_basis() -> None:
    """A resource has reads that are older than its commit."""
    world = counting("a")
    (a,) = world.clients
    older = a.replica.begin(derived=True)
    noting()(older)
    a.do(putting("d", replace(("x",), 5)), derived=True)
    told = Told()
    a.replica.commit(older, told)
    a.session.flush()
    ((_, second),) = frames(a)
    assert [read.path for read in second.reads] == [("x",)]
    world.settle()
    assert not told.landed
    assert world.value("e") == {"n": 0}


def test_rejected_commit_takes_its_readers_of_the_same_frame_with_it() -> None:
    world = counting("a", "b")
    a, b = world.clients
    b.do(bump("d"))
    b.send()
    first = a.do(together(bump("d"), putting("d", replace(("x",), 5))), derived=True)
    second = a.do(noting(), derived=True)
    a.session.flush()
    world.settle()
    assert not first.landed
    assert not second.landed
    assert world.value("e") == {"n": 0}
    assert len(a.replica.pending) == 0


def test_engine_and_replica_agree_which_commits_of_a_frame_are_rejected() -> None:
    """C6"""
    world = counting("a", "b")
    a, b = world.clients
    b.do(bump("d"))
    b.send()
    under = a.do(together(bump("d"), putting("d", replace(("x",), 1))))
    writes = a.do(putting("d", replace(("x",), 2)), derived=True)
    reads = a.do(noting(), derived=True)
    a.session.flush()
    world.settle()
    assert not under.landed
    assert writes.landed
    assert len(reads.calls) == 1
    logged = [change.commit.local_seq for change in world.engine.changes().items if change.session == "a"]
    assert reads.landed == (reads.calls[0][0].local_seq in logged)
    assert a.shows("e") == world.value("e")


def test_lost_frame_is_replayed_as_one_frame() -> None:
    """No commit comes between two commits of one frame."""
    world = counting("a", "b")
    a, b = world.clients
    a.do(putting("d", replace(("x",), 5)), derived=True)
    told = a.do(noting(), derived=True)
    a.session.flush()
    a.again()
    while not frames(a):
        assert a.send() + a.hear()
    a.send(1)
    b.do(putting("d", replace(("x",), 99)))
    b.send()
    world.settle()
    entries = world.engine.changes().items
    assert told.landed
    seen = next(change for change in entries if change.commit.local_seq == 3 and change.session == "a")
    assert world.engine.read(D, at=seen.seq).value == {"n": 0, "x": 5}


def test_a_wave_replayed_after_half_a_verdict_keeps_its_order() -> None:
    world = counting("a")
    (a,) = world.clients
    tolds = [a.do(putting("d", increment(("x",))), derived=True) for _ in range(4)]
    a.session.flush()
    a.send()
    a.again()
    world.settle()
    assert all(told.landed for told in tolds)
    assert world.value("d") == {"x": 4, "n": 0}


def test_a_layer_that_fell_before_its_wave_left_is_not_sent() -> None:
    world = counting("a", "b")
    a, b = world.clients
    b.do(bump("d"))
    b.send()
    under = a.do(bump("d"))
    over = a.do(lambda t: t.write(E, add(("saw",), t.read(D, ("n",)))), derived=True)
    beside = a.do(putting("e", add(("k",), 1)), derived=True)
    a.send()
    a.hear()
    assert not under.landed
    assert len(over.calls) == 1
    a.session.flush()
    assert numbers(a) == [[beside_local(a)]]
    world.settle()
    assert beside.landed
    assert world.value("e") == {"n": 0, "k": 1}


def beside_local(client: Client) -> int:
    (layer,) = client.replica.pending.live()
    return layer.local_seq
