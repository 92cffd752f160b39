"""What came of targets is written with the commits behind it: one fsync for both, and nobody hears of it before."""

from __future__ import annotations

import pytest

from headwater.engine.limits import Limits
from headwater.engine.store.sqlite import SqliteStore
from headwater.errors import StorageError
from headwater.protocol.commit import Commit, TopicRecord
from headwater.protocol.messages import FromReplica, Problem, Transact, Verdicts
from headwater.protocol.reactions import (
    Claim,
    Claimed,
    Finish,
    Finished,
    Grant,
    Outcome,
    QueryTargets,
    Subscribe,
    TargetPage,
    TargetsDue,
    WatchTargets,
)
from tests.unit.engine.delivery_kit import LEASE_US, as_a
from tests.unit.engine.hub_kit import Raw
from tests.unit.replica.kit import World


@pytest.fixture
def world() -> World:
    return World(limits=Limits(claim_targets=2))


def emit(number: int, *keys: str) -> Transact:
    return Transact((Commit(number, records=tuple(TopicRecord("orders", key, key, "p") for key in keys)),))


def done(grant: Grant, id: int = 9) -> Finish:
    last = grant.records[-1]
    return Finish(id, (Outcome(grant.hold, (last.seq, last.ordinal)),))


def claimed(raw: Raw) -> Grant:
    (grant,) = as_a(Claimed, raw.say(Claim(8, "w", ("r",), 1, 5, LEASE_US))[-1]).grants
    return grant


def states(raw: Raw) -> dict[str, str]:
    found = as_a(TargetPage, raw.say(QueryTargets(3, "r", limit=100))[-1]).targets
    return {each.key: each.state for each in found}


class Disk:
    """Counts what is committed to the store, and what was said by then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *raws: Raw) -> None:
        self.commits = 0
        self.said: list[int] = []
        commit = SqliteStore.commit

        def committed(store: SqliteStore) -> None:
            self.said.append(sum(len(raw.heard) for raw in raws))
            commit(store)
            self.commits += 1

        monkeypatch.setattr(SqliteStore, "commit", committed)


def together(world: World, *said: tuple[Raw, FromReplica]) -> None:
    world.hub.process([(raw.peer, message) for raw, message in said])


def test_an_acknowledgement_shares_the_fsync_of_the_commit_behind_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = Raw(world, "s")
    raw.say(Subscribe(1, "r", "orders"), emit(1, "a"))
    grant = claimed(raw)
    raw.heard.clear()
    disk = Disk(monkeypatch, raw)
    together(world, (raw, done(grant)), (raw, emit(2, "a")))
    assert (disk.commits, disk.said) == (1, [0]), "nothing is said before it is on the disk"
    kinds = [type(message) for message in raw.heard if isinstance(message, Finished | Verdicts)]
    assert kinds == [Finished, Verdicts], "in the order in which they were asked"
    assert states(raw) == {"a": "due"}
    assert claimed(raw).records[0].seq == 2


def test_without_a_commit_it_is_done_all_the_same(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = Raw(world, "s")
    raw.say(Subscribe(1, "r", "orders"), emit(1, "a"))
    grant = claimed(raw)
    disk = Disk(monkeypatch, raw)
    assert [type(message) for message in raw.say(done(grant))] == [Finished]
    assert (disk.commits, states(raw)) == (1, {"a": "idle"})


def test_what_is_asked_behind_it_sees_it(world: World) -> None:
    raw = Raw(world, "s")
    raw.say(Subscribe(1, "r", "orders"), emit(1, "a"))
    found = raw.say(done(claimed(raw)), QueryTargets(3, "r"))
    assert [type(message) for message in found] == [Finished, TargetPage]
    assert [each.state for each in as_a(TargetPage, found[1]).targets] == ["idle"]


def test_an_acknowledgement_behind_a_commit_comes_after_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = Raw(world, "s")
    raw.say(Subscribe(1, "r", "orders"), emit(1, "a"))
    grant = claimed(raw)
    disk = Disk(monkeypatch, raw)
    together(world, (raw, emit(2, "b")), (raw, done(grant)), (raw, emit(3, "c")))
    assert disk.commits == 2
    assert states(raw) == {"a": "idle", "b": "due", "c": "due"}


def test_one_that_is_refused_takes_no_other_along(world: World) -> None:
    raw, other = Raw(world, "s"), Raw(world, "t")
    raw.say(Subscribe(1, "r", "orders"), emit(1, "a"))
    grant = claimed(raw)
    too_much = Finish(7, (Outcome(grant.hold),) * 3)
    raw.heard.clear()
    together(world, (other, too_much), (raw, done(grant)), (raw, emit(2, "b")))
    (problem,) = [message for message in other.heard if isinstance(message, Problem)]
    assert (problem.id, problem.fatal) == (7, False)
    assert any(isinstance(message, Verdicts) for message in raw.heard)
    assert states(raw) == {"a": "idle", "b": "due"}


def test_an_acknowledgement_stays_though_the_commit_behind_it_is_refused(world: World) -> None:
    raw = Raw(world, "s")
    raw.say(Subscribe(1, "r", "orders"), emit(1, "a"))
    grant = claimed(raw)
    together(world, (raw, done(grant)), (raw, Transact((Commit(2, branch="main", handled=("x",) * 100_000),))))
    assert states(raw) == {"a": "idle"}


def test_a_disk_that_fails_leaves_both_undone_and_everybody_starts_over(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = Raw(world, "s")
    raw.say(Subscribe(1, "r", "orders"), emit(1, "a"))
    grant = claimed(raw)
    raw.heard.clear()
    with monkeypatch.context() as patch:
        patch.setattr(SqliteStore, "commit", _full)
        together(world, (raw, done(grant)), (raw, emit(2, "b")))
    assert [type(message) for message in raw.heard] == [Problem], "neither is answered"
    assert raw.peer.is_closed()


def test_who_gives_back_with_a_commit_behind_it_has_the_others_told(world: World) -> None:
    raw, other = Raw(world, "s"), Raw(world, "t")
    raw.say(Subscribe(1, "r", "orders"), emit(1, "a"))
    grant = claimed(raw)
    other.say(WatchTargets(5))
    other.heard.clear()
    together(world, (raw, Finish(6, (Outcome(grant.hold),))), (raw, Transact((Commit(2),))))
    assert [type(message) for message in other.heard] == [TargetsDue]
    assert states(raw) == {"a": "due"}


def _full(_: object) -> None:
    raise StorageError("no room left (planted)")
