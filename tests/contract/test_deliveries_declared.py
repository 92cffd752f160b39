"""A process that dies, or a disk that fails, at any statement of commits that declare who hears of what they emit.

One story emits before anybody hears, declares with a record, with a record that lost a conflict, in a wave, from the
beginning, and once more after it was retired, which is then taken up; it is cut off at every call of the store, before
it and after it. What is stored then is a record with everybody who was declared with it, or neither. Whoever goes on
with the same commits, byte for byte, ends where an undisturbed story ends: every record is delivered once to each, in
order. `./dev test` tries every twentieth call, `./dev sim` all.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from pathlib import Path

import pytest

from headwater.data.address import Depth, DocKey
from headwater.data.patch import replace
from headwater.engine import Limits
from headwater.engine.store.sqlite import SqliteStore
from headwater.engine.verify import verify_store
from headwater.errors import StorageError
from headwater.protocol.commit import Commit, Declared, Operation, Read, TopicRecord
from headwater.protocol.reactions import QueryReactions, ReactionList
from headwater.protocol.verdict import Accepted, Rejected
from tests.counts import is_exploring
from tests.unit.engine.delivery_kit import World, as_a, payloads
from tests.unit.engine.faults import FaultyStore, faulty

pytestmark = pytest.mark.thorough

LIMITS = Limits(page=2)
DOC = DocKey("space", "d")
STALE = Read(DOC, (), Depth.DEEP, 0)
NEW, LOST, WAVE = (Declared(name, "orders") for name in ("new", "lost", "wave"))
OLD = Declared("old", "orders", "beginning", "slow", 3)


class Killed(BaseException):
    """The process ends here."""


def order(key: str, payload: object) -> TopicRecord:
    return TopicRecord("orders", key, payload, f"piece {key}")


FRAMES: tuple[tuple[Commit, ...], ...] = (
    (Commit(1, (Operation(DOC, (replace((), 1),)),), records=(order("a", 1), order("b", 1))),),
    (Commit(2, records=(order("a", 2),), declared=(NEW,)),),
    (Commit(3, records=(order("a", "never"),), reads=(STALE,), declared=(LOST,)),),
    (Commit(4, records=(order("b", 2),)), Commit(5, records=(order("a", 3), order("c", 1)), declared=(WAVE, NEW))),
    (Commit(6, records=(order("a", 4),), declared=(OLD,)),),
    (Commit(7, records=(order("b", 3),), declared=(LOST,)),),
)
AGAIN = Commit(8, records=(order("c", 2),), declared=(WAVE,))
WANTED: dict[str, dict[str, list[object]]] = {
    "new": {"a": [2, 3, 4], "b": [2, 3], "c": [1, 2]},
    "wave": {"a": [3, 4], "b": [3], "c": [1, 2]},
    "old": {"a": [1, 2, 3, 4], "b": [1, 2, 3], "c": [1, 2]},
    "lost": {"b": [3], "c": [2]},
}
DECLARED = {"new": 2, "wave": 4, "old": 5, "lost": 6}
"""By reaction: the seq of the commit that declares it. The third one loses."""
STEP = 1 if is_exploring() else 20
"""`./dev sim` tries every call of the store, `./dev test` every twentieth: of each kind other ones."""


class Told:
    """What was delivered and acknowledged, or may have been."""

    def __init__(self) -> None:
        self.over: dict[tuple[str, str], list[object]] = defaultdict(list)
        self.doubt: set[tuple[str, str, object]] = set()


def tell(world: World, told: Told) -> None:
    """All of it, from wherever a story before this one was cut off."""
    for frame in FRAMES:
        kinds = [type(verdict) for verdict in world.engine.submit("emitter", *frame)]
        assert kinds == [Rejected if frame[0].local_seq == 3 else Accepted] * len(frame)
        deliver(world, told)
    if world.engine.session("emitter").last < AGAIN.local_seq:
        world.operate("retire", "wave")
    as_a(Accepted, world.engine.submit("emitter", AGAIN)[0])
    deliver(world, told)
    world.subscribe("wave")  # Whoever is to deliver it takes it up again, with what was emitted meanwhile.
    deliver(world, told)


def deliver(world: World, told: Told) -> None:
    for _ in range(100):
        claimed = world.claimed(*WANTED, limit=2, records=2)
        for grant in claimed.grants:
            target = (grant.hold.reaction, grant.hold.key)
            items = {(*target, payload) for payload in payloads(grant)}
            told.doubt |= items
            world.done(grant)
            told.doubt -= items
            told.over[target] += payloads(grant)
        if not claimed.grants and claimed.next_us is None:
            return
        world.clock.advance(claimed.next_us or 0)
    raise AssertionError("there is no end to what is to be delivered")


def check(world: World, told: Told) -> None:
    """Declared with its commit, or not at all; and going on ends as if nothing had happened."""
    stored = {each.name for each in as_a(ReactionList, world.engine.deliver(QueryReactions(1))).reactions}
    last = world.engine.last_seq
    assert stored == {name for name, seq in DECLARED.items() if seq <= last}
    report = verify_store(world.store)
    assert report.ok, report
    world.engine.open_session("emitter")
    tell(world, told)
    for name, keys in WANTED.items():
        for key, wanted in keys.items():
            found = told.over.pop((name, key), [])
            missing = {(name, key, each) for each in wanted if each not in found}
            assert missing <= told.doubt, f"{name} of {key}: {found}, not {wanted}"
            assert found == [each for each in wanted if each in found], f"{name} of {key} is out of order: {found}"
    assert not told.over
    report = verify_store(world.store)
    assert report.ok, report


def opened(folder: Path) -> tuple[World, FaultyStore]:
    folder.mkdir()
    store, faults = faulty(SqliteStore(folder / "s.space", synchronous="OFF"))
    return World(store, limits=LIMITS), faults


def calls(folder: Path) -> int:
    world, faults = opened(folder)
    before = len(faults.calls)
    tell(world, Told())
    made = len(faults.calls) - before
    world.engine.close()
    return made


def test_the_story_is_all_of_it(tmp_path: Path) -> None:
    world, faults = opened(tmp_path / "whole")
    check(world, Told())
    assert {"put_subscription", "add_targets", "put_targets"} <= set(faults.calls)
    world.engine.close()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_process_that_is_killed_at_any_statement_leaves_a_record_with_its_reactions(
    tmp_path: Path, after: bool
) -> None:
    total = calls(tmp_path / "whole")
    assert total > 100
    for at in range(1 + 2 * after if STEP > 1 else 1, total + 1, STEP):
        alive, dead = tmp_path / f"alive {at}", tmp_path / f"dead {at}"
        world, faults = opened(alive)
        told = Told()
        faults.after, faults.error = after, Killed
        faults.fail_at = len(faults.calls) + at
        with pytest.raises(Killed):
            tell(world, told)
        shutil.copytree(alive, dead)  # What a killed process leaves: its files as they are.
        left = World(SqliteStore(dead / "s.space", synchronous="OFF"), clock=world.clock, limits=LIMITS)
        check(left, told)
        left.engine.close()
        world.engine.close()
        shutil.rmtree(dead)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_disk_that_fails_once_at_any_statement_leaves_a_record_with_its_reactions(
    tmp_path: Path, after: bool
) -> None:
    total = calls(tmp_path / "whole")
    for at in range(2 + 2 * after if STEP > 1 else 1, total + 1, STEP):
        world, faults = opened(tmp_path / str(at))
        told = Told()
        faults.after = after
        faults.fail_at = len(faults.calls) + at
        with pytest.raises(StorageError):
            tell(world, told)
        check(world, told)
        world.engine.close()
