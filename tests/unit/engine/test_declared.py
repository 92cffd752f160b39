"""Commits that declare the reactions that hear of what they emit: both land, or neither does."""

from __future__ import annotations

from dataclasses import replace as with_
from pathlib import Path

import pytest

from headwater.data.address import Depth, DocKey
from headwater.data.patch import replace
from headwater.engine.admission.access import ACCESS
from headwater.engine.engine import Engine
from headwater.engine.limits import DEFAULT_LIMITS, Limits
from headwater.engine.store.sqlite import SqliteStore
from headwater.engine.verify.oracle import verify_store
from headwater.errors import ProtocolError, StorageError
from headwater.protocol.commit import Commit, Declared, Operation, Read, TopicRecord, decode_commit, encode_commit
from headwater.protocol.messages import Problem, Transact, Verdicts
from headwater.protocol.reactions import Claim, Claimed, QueryReactions, ReactionList, TargetsDue, WatchTargets
from headwater.protocol.verdict import Accepted, Conflict, Rejected, RuleRefused
from tests.unit.engine.delivery_kit import LEASE_US, World, as_a, payloads
from tests.unit.engine.faults import faulty
from tests.unit.engine.hub_kit import Raw
from tests.unit.engine.test_idle_workers import given, offering
from tests.unit.replica.kit import World as Hub

R = Declared("r", "orders")
DOC = DocKey("space", "d")


def order(key: str, payload: object, topic: str = "orders") -> TopicRecord:
    return TopicRecord(topic, key, payload, f"piece {key}")


def names(world: World) -> list[str]:
    return [each.name for each in as_a(ReactionList, world.engine.deliver(QueryReactions(6))).reactions]


def delivered(world: World, *reactions: str) -> dict[str, list[object]]:
    """All that there is to deliver, by key."""
    found: dict[str, list[object]] = {}
    while (claimed := world.claimed(*reactions, limit=2, records=2)).grants or claimed.next_us == 0:
        for grant in claimed.grants:
            found.setdefault(grant.hold.key, []).extend(payloads(grant))
            world.done(grant)
    assert verify_store(world.store).ok, verify_store(world.store)
    return found


class TestWhatItHears:
    def test_a_new_reaction_hears_of_what_its_commit_emits_and_of_nothing_before(self) -> None:
        world = World()
        world.emit("a", "before")
        as_a(Accepted, world.commit(order("a", 1), order("b", 2), declared=(R,)))
        world.emit("a", 3)
        assert not world.reaction().is_filling
        assert delivered(world) == {"a": [1, 3], "b": [2]}

    def test_the_first_commit_of_a_space_may_declare(self) -> None:
        world = World()
        world.commit(order("a", 1), declared=(R, Declared("all", "orders", "beginning")))
        assert delivered(world, "r") == delivered(world, "all") == {"a": [1]}

    def test_one_from_the_beginning_looks_through_what_was_before_and_keeps_the_order(self) -> None:
        world = World(limits=Limits(page=2))
        for number in range(5):
            world.emit("a", number)
            world.emit(f"k{number}", number)
        world.commit(order("a", 5), declared=(Declared("r", "orders", "beginning"),))
        assert world.reaction().is_filling
        found = delivered(world)
        assert found.pop("a") == [0, 1, 2, 3, 4, 5]
        assert found == {f"k{number}": [number] for number in range(5)}

    def test_one_that_is_known_stays_as_it_is_but_for_its_lane_and_its_priority(self) -> None:
        world = World()
        world.subscribe()
        world.emit("a", 1)
        world.commit(order("a", 2), declared=(Declared("r", "orders", "beginning", "slow", 7),))
        assert (world.reaction().lane, world.reaction().priority) == ("slow", 7)
        assert delivered(world) == {"a": [1, 2]}

    def test_one_that_was_retired_stays_so_until_somebody_is_to_deliver_it(self) -> None:
        world = World()
        world.subscribe()
        world.emit("a", 1)
        assert delivered(world) == {"a": [1]}
        world.operate("retire")
        world.emit("a", 2)
        world.commit(order("a", 3), declared=(R,))
        assert delivered(world) == {}, "whoever emits does not undo what an operator did"
        world.subscribe()
        assert delivered(world) == {"a": [2, 3]}

    def test_what_is_declared_twice_is_declared_once(self) -> None:
        world = World()
        world.commit(order("a", 1), declared=(R,))
        assert delivered(world) == {"a": [1]}
        world.commit(order("a", 2), declared=(R,))
        assert not world.subscribe().is_new
        assert delivered(world) == {"a": [2]}
        assert names(world) == ["r"]

    def test_another_process_that_declares_it_behind_the_record_takes_nothing_away(self) -> None:
        """The one that emitted is gone; another one declares, emits and delivers: the first record comes first."""
        world = World()
        world.commit(order("a", "first"), declared=(R,))
        world.subscribe()
        world.emit("a", "second")
        assert delivered(world) == {"a": ["first", "second"]}

    def test_what_is_given_to_a_worker_that_waits_is_given_by_a_commit_that_declares_too(self) -> None:
        world = World()
        offering(world)
        world.commit(order("a", 1), declared=(R,))
        (grant,) = given(world)["w"]
        assert payloads(grant) == [1]
        assert world.done(grant).late == ()
        assert delivered(world) == {}


class TestRefused:
    def conflicting(self, world: World) -> Commit:
        """One that lost against somebody else."""
        as_a(Accepted, world.commit(operations=(Operation(DOC, (replace((), 1),)),)))
        world.local_seq += 1
        read = Read(DOC, (), Depth.DEEP, 0)
        return Commit(world.local_seq, reads=(read,), records=(order("a", 1),), declared=(R,))

    def test_a_commit_that_lost_leaves_no_subscription_and_a_later_one_does(self) -> None:
        world = World()
        (verdict,) = world.engine.submit("emitter", self.conflicting(world))
        assert isinstance(as_a(Rejected, verdict).rejection, Conflict)
        assert names(world) == []
        world.emit("a", "nobody hears")
        world.commit(order("a", 2), declared=(R,))
        assert delivered(world) == {"a": [2]}

    @pytest.mark.parametrize(
        ("declared", "why"),
        [
            (Declared("r", "others"), "reaction 'r' is for the records of 'orders', not of 'others'"),
            (Declared("", "orders"), "'' cannot name a reaction"),
            (Declared("a:b", "orders"), "'a:b' cannot name a reaction"),
        ],
    )
    def test_what_cannot_be_declared_refuses_the_commit(self, declared: Declared, why: str) -> None:
        world = World()
        world.subscribe()
        before = world.engine.last_seq
        refused = as_a(RuleRefused, as_a(Rejected, world.commit(order("a", 1), declared=(declared,))).rejection)
        assert (refused.rule, why in refused.detail) == ("reactions", True), refused
        assert (names(world), world.engine.last_seq) == (["r"], before)

    def test_one_too_many_of_those_that_are_new_refuses_all_of_them(self) -> None:
        world = World(limits=Limits(subscriptions=2))
        world.subscribe()
        new = tuple(Declared(name, "orders") for name in ("b", "c"))
        refused = as_a(RuleRefused, as_a(Rejected, world.commit(order("a", 1), declared=new)).rejection)
        assert "a space has at most 2 reactions" in refused.detail
        assert names(world) == ["r"]
        as_a(Accepted, world.commit(order("a", 1), declared=(R, new[0])))
        assert names(world) == ["r", "b"]

    def test_whoever_may_not_write_declares_nothing(self) -> None:
        engine = Engine(SqliteStore(":memory:"), access=True)
        engine.open_session("own", "ann")
        engine.open_session("look", "bob")
        access = {"owners": ("ann",), "writers": (), "readers": ("bob",)}
        engine.submit("own", Commit(1, (Operation(ACCESS, (replace((), access),)),)))
        own = Operation(DocKey("user:bob", "d"), (replace((), 1),))
        (verdict,) = engine.submit("look", Commit(1, (own,), declared=(R,)))
        assert as_a(RuleRefused, as_a(Rejected, verdict).rejection).rule == "access"
        changed = Operation(ACCESS, (replace((), access),))
        (verdict,) = engine.submit("own", Commit(2, (changed,), declared=(R,)))
        assert "alone in its commit" in as_a(RuleRefused, as_a(Rejected, verdict).rejection).detail

    def test_it_is_outside_the_protocol_on_a_branch_and_twice_in_one_commit(self) -> None:
        world = World()
        world.engine.fork("side")
        with pytest.raises(ProtocolError, match="declares reactions on a branch"):
            world.commit(order("a", 1), branch="side", declared=(R,))
        with pytest.raises(ProtocolError, match="declares a reaction twice"):
            world.commit(order("a", 1), declared=(R, Declared("r", "others")))
        assert names(world) == []


class TestGroups:
    def test_what_one_frame_declares_is_heard_of_by_those_behind_it(self) -> None:
        world = World()
        for name in ("x", "y", "z"):
            world.engine.open_session(name)
        lost = with_frame(1, order("a", "lost"), declared=(R,), reads=(Read(DOC, (), Depth.DEEP, 0),))
        as_a(Accepted, world.commit(operations=(Operation(DOC, (replace((), 1),)),)))
        outcomes = world.engine.submit_group(
            [
                ("x", (lost,)),
                ("y", (with_frame(1, order("a", 1), declared=(R,)), with_frame(2, order("b", 2)))),
                ("z", (with_frame(1, order("a", 3)),)),
            ]
        )
        kinds = [[type(verdict) for verdict in as_a(tuple, outcome)] for outcome in outcomes]
        assert kinds == [[Rejected], [Accepted, Accepted], [Accepted]]
        assert delivered(world) == {"a": [1, 3], "b": [2]}

    def test_a_frame_that_lost_declared_nothing_for_those_behind_it(self) -> None:
        world = World()
        for name in ("x", "y"):
            world.engine.open_session(name)
        as_a(Accepted, world.commit(operations=(Operation(DOC, (replace((), 1),)),)))
        lost = with_frame(1, order("a", "lost"), declared=(R,), reads=(Read(DOC, (), Depth.DEEP, 0),))
        world.engine.submit_group([("x", (lost,)), ("y", (with_frame(1, order("a", 1)),))])
        assert names(world) == []
        world.subscribe()
        assert delivered(world) == {}

    @pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
    @pytest.mark.parametrize("call", ["put_subscription", "add_targets", "append", "commit"])
    def test_a_group_that_the_disk_refuses_takes_its_declarations_along(
        self, tmp_path: Path, call: str, after: bool
    ) -> None:
        """Nothing of it is in memory either: a record that comes next marks what the disk has, and nothing else."""
        store, faults = faulty(SqliteStore(tmp_path / "s.space", synchronous="OFF"))
        world = World(store)
        frame = with_frame(1, order("a", 1), declared=(R,))
        faults.fail_on, faults.after = call, after
        with pytest.raises(StorageError):
            world.engine.submit_group([("emitter", (frame,))])
        landed = world.engine.last_seq == 1
        assert landed == (call == "commit" and after)
        assert names(world) == (["r"] if landed else [])
        world.engine.open_session("emitter")
        (verdict,) = world.engine.submit("emitter", frame)
        assert as_a(Accepted, verdict).replayed == landed, "what has no verdict is said again"
        assert delivered(world) == {"a": [1]}


def with_frame(local_seq: int, *records: TopicRecord, **parts: object) -> Commit:
    return Commit(local_seq, records=records, **parts)  # type: ignore[arg-type]


def former(commit: Commit) -> bytes:
    """The commit as it was written before there was the last field."""
    encoded = encode_commit(commit)
    assert (encoded[0], encoded[-1]) == (0x9C, 0x90), "twelve fields, and the last one is empty"
    return bytes([0x9B]) + encoded[1:-1]


class TestReplays:
    def test_a_replay_after_a_lost_verdict_declares_nothing_again(self) -> None:
        world = World()
        commit = with_frame(1, order("a", 1), declared=(R,))
        world.engine.submit("emitter", commit)
        world.operate("retire")
        (verdict,) = world.engine.submit("emitter", commit)
        assert as_a(Accepted, verdict).replayed
        assert world.reaction().state == "retired", "what it said was said once"

    def test_it_is_part_of_what_a_replay_has_to_repeat(self) -> None:
        world = World()
        world.engine.submit("emitter", with_frame(1, order("a", 1), declared=(R,)))
        with pytest.raises(ProtocolError, match="with other content"):
            world.engine.submit("emitter", with_frame(1, order("a", 1)))

    def test_a_commit_of_a_version_that_knew_nothing_of_it_is_what_it_was(self) -> None:
        commit = with_frame(1, order("a", 1))
        assert decode_commit(former(commit)) == commit


class TestTelling:
    def test_whoever_watches_is_told_with_the_verdict_that_there_are_new_ones(self) -> None:
        world = Hub()
        emitter, worker = Raw(world, "emitter"), Raw(world, "worker")
        told = []
        world.hub.queries.on_subscribed = lambda: told.append(True)
        worker.say(WatchTargets(7))
        worker.heard.clear()
        emitter.say(Transact((with_frame(1, order("a", 1), declared=(R,)),)))
        (due,) = [each for each in worker.heard if isinstance(each, TargetsDue)]
        assert (due.subscriptions, due.is_more, told) == (1, True, [True])
        (grant,) = as_a(Claimed, worker.say(Claim(8, "worker", ("r",), 5, 5, LEASE_US))[-1]).grants
        assert payloads(grant) == [1]
        emitter.say(Transact((with_frame(2, order("b", 2), declared=(R,)),)))
        due = [each for each in worker.heard if isinstance(each, TargetsDue)][-1]
        assert due.subscriptions == 1, "it was known"

    def test_one_from_the_beginning_is_told_though_nothing_was_emitted_with_it(self) -> None:
        world = Hub()
        emitter, worker = Raw(world, "emitter"), Raw(world, "worker")
        emitter.say(Transact((with_frame(1, order("a", 1)),)))
        worker.say(WatchTargets(7))
        worker.heard.clear()
        emitter.say(Transact((with_frame(2, declared=(Declared("r", "orders", "beginning"),)),)))
        (due,) = [each for each in worker.heard if isinstance(each, TargetsDue)]
        assert (due.subscriptions, due.is_more) == (1, True)

    def test_a_session_on_a_branch_is_told_that_it_is_outside_the_protocol(self) -> None:
        world = Hub()
        world.engine.fork("side")
        raw = Raw(world, "emitter", branch="side")
        commit = with_frame(1, order("a", 1), branch="side", declared=(R,))
        assert [type(each) for each in raw.say(Transact((commit,)))] == [Problem]

    def test_what_is_refused_is_told_and_ends_nothing(self) -> None:
        world = Hub(limits=with_(DEFAULT_LIMITS, subscriptions=1))
        emitter = Raw(world, "emitter")
        emitter.say(Transact((with_frame(1, order("a", 1), declared=(R,)),)))
        (heard, *_) = emitter.say(Transact((with_frame(2, order("a", 2), declared=(Declared("s", "orders"),)),)))
        (verdict,) = as_a(Verdicts, heard).verdicts
        assert as_a(RuleRefused, as_a(Rejected, verdict).rejection).rule == "reactions"
        (heard, *_) = emitter.say(Transact((with_frame(3, order("a", 3), declared=(R,)),)))
        assert isinstance(as_a(Verdicts, heard).verdicts[0], Accepted)


class TestVerify:
    def test_a_reaction_that_a_commit_declared_and_that_is_not_there_is_found(self) -> None:
        world = World()
        world.commit(order("a", 1), declared=(R,))
        row = world.engine.delivery.subscriptions.get("r")
        for wrong in (
            row._replace(topic="others"),
            row._replace(start_seq=1, cursor_seq=1, until_seq=1),
            row._replace(name="q"),
        ):
            world.store.begin()
            world.store.delivery.put_subscription(wrong)
            world.store.commit()
            report = verify_store(world.store)
            assert not report.ok
            assert "reaction 'r' was declared for 'orders'" in str(report), report
