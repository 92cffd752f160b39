"""A process that dies, or a disk that fails, at any statement of what workers ask: nothing that was answered is undone.

One story claims, renews, retries, acknowledges, lands with a commit, gives back, parks, skips, replays and back-fills,
and is cut off at every call of the store, before it and after it. Whoever comes next gets each record that was not
acknowledged, in order, and none that was; what was in doubt may be either. A claim that was answered costs an attempt.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headwater.data.codec import decode
from headwater.engine import Limits
from headwater.engine.store.sqlite import SqliteStore
from headwater.engine.verify import verify_store
from headwater.errors import StorageError
from headwater.protocol.commit import TopicRecord
from headwater.protocol.reactions import DeliveryFailure, Grant, Granted, Outcome, Then
from headwater.protocol.verdict import Accepted
from tests.counts import is_exploring
from tests.unit.engine.delivery_kit import LEASE_US, World, as_a, payloads
from tests.unit.engine.faults import FaultyStore, faulty

pytestmark = pytest.mark.thorough

LIMITS = Limits(page=2)
STEP = 1 if is_exploring() else 6
"""`./dev sim` tries every call of the store, `./dev test` every sixth: of each kind other ones."""
Item = tuple[str, str, object]  # of a reaction and a key: what was emitted


class Killed(BaseException):
    """The process ends here."""


class Told:
    """What was answered, and what was asked and has no answer."""

    def __init__(self) -> None:
        self.emitted: list[tuple[str, object]] = []
        self.since: dict[str, int] = {}  # by reaction: how many records there were before those that it wants
        self.over: set[Item] = set()  # acknowledged, or passed over
        self.doubt: set[object] = set()
        self.held: dict[tuple[str, str], Grant] = {}

    @contextmanager
    def asking(self, *items: Item, replays: bool = False) -> Iterator[None]:
        """These are over once it is answered; or not any more."""
        self.doubt.update(items)
        yield
        self.doubt.difference_update(items)
        self.over = self.over.difference(items) if replays else self.over.union(items)


class Story:
    """What a worker and an operator do, one thing after the other, as they hear the answers."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.told = Told()

    def emit(self, *pairs: tuple[str, object]) -> None:
        self.told.doubt.update(pairs)
        records = [TopicRecord("orders", key, payload, f"piece {key}") for key, payload in pairs]
        as_a(Accepted, self.world.commit(*records))
        self.told.doubt.difference_update(pairs)
        self.told.emitted += pairs

    def subscribe(self, reaction: str, *, is_all: bool) -> None:
        self.world.subscribe(reaction, since="beginning" if is_all else "now")
        self.told.since[reaction] = 0 if is_all else len(self.told.emitted)

    def claim(self, reaction: str, key: str) -> Grant:
        for _ in range(10):
            for grant in self.world.claim(reaction, limit=1):
                self.told.held[reaction, grant.hold.key] = grant
                if grant.hold.key == key:
                    return grant
                self.let_go(grant, Outcome(grant.hold))
                self.world.clock.advance(1)  # so that another one is the earliest
        raise AssertionError(f"nobody gives {key} of {reaction}")

    def let_go(self, grant: Grant, outcome: Outcome, over: int = 0) -> None:
        """Say what came of it: the first so many of its records are over."""
        hold = grant.hold
        del self.told.held[hold.reaction, hold.key]
        with self.told.asking(*[(hold.reaction, hold.key, payload) for payload in payloads(grant)[:over]]):
            self.world.finish(outcome)

    def land(self, grant: Grant, place: int, *, keeps: bool) -> None:
        """A commit of its own moves the position; with `keeps` the next record is tried under the same lease."""
        hold = grant.hold
        del self.told.held[hold.reaction, hold.key]
        with self.told.asking((hold.reaction, hold.key, payloads(grant)[place])):
            as_a(Accepted, self.world.deliver_with(grant, place, keeps=keeps))
        if keeps:
            self.told.held[hold.reaction, hold.key] = grant

    def tell(self) -> None:
        world = self.world
        self.emit(("a", 1))
        self.emit(("b", 1), ("a", 2), ("c", 1))
        self.subscribe("old", is_all=True)
        self.subscribe("new", is_all=False)
        for _ in range(4):
            world.claimed("old", limit=0)  # Looks through what was before, two at a time.
        self.emit(("a", 3), ("b", 2))
        self.emit(("a", 4))
        grant = self.claim("old", "a")
        world.renew(grant.hold)
        self.land(grant, 0, keeps=True)
        self.land(grant, 1, keeps=False)
        grant = self.claim("new", "a")
        assert payloads(grant) == [3, 4]
        self.let_go(grant, Outcome(grant.hold, place(grant.records[0]), failure(grant.records[1], "retry")), over=1)
        grant = self.claim("new", "a")
        assert (payloads(grant), grant.attempt) == ([4], 1)
        self.let_go(grant, Outcome(grant.hold, place(grant.records[0])), over=1)
        grant = self.claim("new", "b")
        self.let_go(grant, Outcome(grant.hold, None, failure(grant.records[0], "park")), over=1)
        with self.told.asking(("old", "c", 1)):
            world.operate("skip", "old", key="c")
        with self.told.asking(("new", "b", 2), replays=True):
            world.operate("replay", "new")
        grant = self.claim("new", "b")
        assert grant.replayed
        self.let_go(grant, Outcome(grant.hold, place(grant.records[0])), over=1)
        world.operate("pause", "old")
        world.operate("resume", "old")
        self.emit(("c", 2), ("a", 5))
        self.claim("old", "a")


def place(record: Granted) -> tuple[int, int]:
    return record.seq, record.ordinal


def failure(record: Granted, then: Then) -> DeliveryFailure:
    return DeliveryFailure(record.seq, record.ordinal, "ValueError", "boom", "boom", then)


def check(world: World, told: Told) -> None:
    """Whoever comes next gets what it has to, and nothing else."""
    world.clock.advance(2 * LEASE_US)
    for reaction in told.since:
        world.operate("resume", reaction)
    stored = [(row.key, decode(row.payload)) for row in world.store.records_after("orders", (0, 0), 1_000)]
    assert stored[: len(told.emitted)] == told.emitted
    assert set(stored[len(told.emitted) :]) <= told.doubt
    got: dict[tuple[str, str], list[object]] = defaultdict(list)
    for _ in range(100):
        claimed = world.claimed("old", "new", limit=5, records=3)
        for grant in claimed.grants:
            target = (grant.hold.reaction, grant.hold.key)
            if target in told.held and target not in got:
                assert grant.attempt >= 1, f"{target} was claimed, and it cost nothing"
            got[target] += payloads(grant)
            assert world.done(grant).late == ()
        if not claimed.grants and claimed.next_us is None:
            break
        world.clock.advance(claimed.next_us or 0)
    for reaction, before in told.since.items():
        wanted: dict[str, list[object]] = defaultdict(list)
        for key, payload in stored[before:]:
            wanted[key].append(payload)
        for key, all_ in wanted.items():
            found = got.pop((reaction, key), [])
            must = [p for p in all_ if not {(reaction, key, p)} & (told.over | told.doubt)]
            may = [p for p in all_ if (reaction, key, p) not in told.over or (reaction, key, p) in told.doubt]
            assert found == [payload for payload in may if payload in found], f"{reaction} of {key}: {found} of {may}"
            assert set(must) <= set(found), f"{reaction} of {key}: {found}, and {must} has to come"
    assert not {reaction for reaction, _ in got} & told.since.keys(), got
    report = verify_store(world.store)
    assert report.ok, report


def opened(folder: Path) -> tuple[World, FaultyStore]:
    store, faults = faulty(SqliteStore(folder / "s.space", synchronous="OFF"))
    return World(store, limits=LIMITS), faults


def calls(folder: Path) -> int:
    """How many calls of the store the story has, of an engine that is open."""
    folder.mkdir()
    world, faults = opened(folder)
    before = len(faults.calls)
    Story(world).tell()
    made = len(faults.calls) - before
    world.engine.close()
    return made


def test_the_story_is_all_of_it(tmp_path: Path) -> None:
    """It comes to its end, uses what it should, and what it leaves is right."""
    world, faults = opened(tmp_path)
    story = Story(world)
    story.tell()
    used = {"put_subscription", "add_targets", "put_targets", "put_parked", "drop_parked", "put_attempt"}
    assert used <= set(faults.calls)
    check(world, story.told)
    world.engine.close()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_process_that_is_killed_at_any_statement_leaves_what_was_answered(tmp_path: Path, after: bool) -> None:
    total = calls(tmp_path / "whole")
    assert total > 150
    for at in range(1 + 2 * after if STEP > 1 else 1, total + 1, STEP):
        alive, dead = tmp_path / f"alive {at}", tmp_path / f"dead {at}"
        alive.mkdir()
        world, faults = opened(alive)
        story = Story(world)
        faults.after, faults.error = after, Killed
        faults.fail_at = len(faults.calls) + at
        with pytest.raises(Killed):
            story.tell()
        shutil.copytree(alive, dead)  # What a killed process leaves: its files as they are.
        left = World(SqliteStore(dead / "s.space", synchronous="OFF"), clock=world.clock, limits=LIMITS)
        check(left, story.told)
        left.engine.close()
        world.engine.close()
        shutil.rmtree(dead)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_disk_that_fails_once_at_any_statement_costs_nothing_that_was_answered(tmp_path: Path, after: bool) -> None:
    total = calls(tmp_path / "whole")
    for at in range(2 + 2 * after if STEP > 1 else 1, total + 1, STEP):
        folder = tmp_path / str(at)
        folder.mkdir()
        world, faults = opened(folder)
        story = Story(world)
        faults.after = after
        faults.fail_at = len(faults.calls) + at
        try:
            story.tell()
        except StorageError:
            story.world.engine.open_session("emitter")
        check(world, story.told)
        world.engine.close()
