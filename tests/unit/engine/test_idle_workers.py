"""Workers that leave room open: what a commit emits is given to them with it, or to nobody, and everybody is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.engine.engine import Engine
from headwater.engine.limits import DEFAULT_LIMITS, Limits
from headwater.engine.store.sqlite import SqliteStore
from headwater.protocol.commit import Commit, TopicRecord
from headwater.protocol.messages import FromEngine, Transact
from headwater.protocol.reactions import (
    Claim,
    Claimed,
    DeliveryFailure,
    Finish,
    Grant,
    Outcome,
    Subscribe,
    TargetsDue,
    WatchTargets,
)
from tests.unit.engine.delivery_kit import LEASE_US, World, as_a, payloads
from tests.unit.engine.hub_kit import Raw
from tests.unit.replica.kit import World as Hub


def offering(world: World, by: str = "w", *, room: int = 10, reactions: tuple[str, ...] = ("r",), **of: int) -> Claimed:
    """Claim, and leave the rest of the room open."""
    question = Claim(2, by, reactions, room, of.get("records", 10), LEASE_US, lane="default")
    answer = as_a(Claimed, world.engine.deliver(question))
    world.engine.delivery.idle_workers.register(by, question, room - len(answer.grants))
    return answer


def given(world: World) -> dict[str, list[Grant]]:
    found, _ = world.engine.delivery.idle_workers.take_given()
    return {str(by): each.grants for by, each in found.items()}


class TestGiving:
    def test_the_commit_that_emits_gives_its_target_away(self) -> None:
        world = World()
        world.subscribe()
        offering(world)
        world.commit(TopicRecord("orders", "a", 1, "p"), TopicRecord("orders", "a", 2, "p"))
        (grant,) = given(world)["w"]
        assert (payloads(grant), grant.attempt, grant.lost) == ([1, 2], 0, 0)
        assert world.targets()["a"].state == "leased"
        assert world.claim(worker="other") == [], "it is somebody's"
        assert world.done(grant).late == ()
        assert world.targets()["a"].state == "idle"

    def test_what_nobody_has_room_for_is_due_and_everybody_is_to_be_told(self) -> None:
        world = World()
        world.subscribe()
        offering(world, room=1)
        world.emit("a", 1)
        assert not world.engine.delivery.idle_workers.is_more
        world.emit("b", 2)
        found, is_more = world.engine.delivery.idle_workers.take_given()
        assert ([*found], is_more) == (["w"], True)
        assert payloads(world.claim_one(worker="other")) == [2]

    def test_a_target_that_somebody_has_is_given_to_nobody_else(self) -> None:
        world = World()
        world.subscribe()
        offering(world, "v")
        offering(world, "w")
        world.emit("a", 1)
        world.emit("a", 2)
        (first,) = given(world)["v"]
        assert payloads(first) == [1]
        world.done(first)
        assert payloads(world.claim_one()) == [2], "in order, to whoever asks"

    def test_whoever_was_given_something_comes_last(self) -> None:
        world = World()
        world.subscribe()
        for by in "uvw":
            offering(world, by)
        for key in "abcd":
            world.emit(key, key)
        assert {by: [grant.hold.key for grant in each] for by, each in given(world).items()} == {
            "u": ["a", "d"],
            "v": ["b"],
            "w": ["c"],
        }

    def test_whoever_claims_again_keeps_its_turn(self) -> None:
        world = World()
        world.subscribe()
        for by in "vw":
            offering(world, by)
        world.emit("a", 1)
        offering(world, "w")
        world.emit("b", 2)
        assert [*given(world)] == ["v", "w"]
        offering(world, "v")
        world.emit("c", 3)
        assert [*given(world)] == ["v"], "it is its turn"

    def test_whoever_has_not_answered_what_it_was_told_comes_after_all_who_have(self) -> None:
        world = World()
        world.subscribe()
        offers = world.engine.delivery.idle_workers
        for by in "vw":
            offering(world, by)
        world.emit("a", 1)
        assert [*given(world)] == ["v"]
        for by in "vw":
            offers.note_sent(by)
        for key in "bcd":
            offers.note_answer("w")
            offering(world, "w")
            world.emit(key, 2)
            assert [*given(world)] == ["w"], "the other one stands still"
            offers.note_sent("w")
        world.emit("e", 3)
        assert [*given(world)] == ["w"], "it was silent for a shorter time"
        offers.drop("w")
        world.emit("f", 4)
        assert [*given(world)] == ["v"], "there is nobody else"

    def test_a_claim_that_leaves_nothing_open_takes_the_offer_back(self) -> None:
        world = World()
        world.subscribe()
        offering(world)
        offering(world, room=0)
        world.emit("a", 1)
        assert given(world) == {}
        assert world.targets()["a"].state == "due"

    def test_a_paused_reaction_and_one_that_looks_through_earlier_records_are_not_given(self) -> None:
        world = World(limits=Limits(page=1))
        world.emit("a", 1, 2, 3)
        world.subscribe("late", since="beginning")
        world.subscribe("paused")
        world.operate("pause", "paused")
        question = Claim(2, "w", ("late", "paused"), 9, 9, LEASE_US, lane="default")
        world.engine.delivery.idle_workers.register("w", question, 9)
        world.emit("a", 4)
        assert given(world) == {}
        assert payloads(world.claim_one("late", records=1)) == [1], "the first one first"
        assert world.targets("paused")["a"].state == "due"

    def test_a_record_that_failed_before_is_not_overtaken(self) -> None:
        world = World()
        world.subscribe()
        world.emit("a", 1)
        world.fail(world.claim_one(), wait_us=5_000)
        offering(world)
        world.emit("a", 2)
        assert given(world) == {}
        world.clock.advance(5_000)
        assert payloads(world.claim_one()) == [1]

    def test_more_than_a_worker_wants_at_once_or_than_a_message_holds_waits(self) -> None:
        world = World(limits=Limits(claim_bytes=100))
        world.subscribe()
        offering(world, records=1)
        world.commit(TopicRecord("orders", "a", 1, "p"), TopicRecord("orders", "a", 2, "p"))
        world.emit("b", "x" * 200)
        (grant,) = given(world)["w"]
        assert payloads(grant) == [1]
        assert world.done(grant).next_us == 0
        assert {key: target.state for key, target in world.targets().items()} == {"a": "due", "b": "due"}

    def test_records_on_a_branch_are_given_to_nobody(self) -> None:
        world = World()
        world.subscribe()
        world.engine.fork("side")
        offering(world)
        world.emit("a", 1, branch="side")
        assert given(world) == {}

    def test_a_reaction_that_is_named_twice_is_one(self) -> None:
        world = World()
        world.subscribe()
        offering(world, reactions=("r", "r"), room=2)
        for key in "abc":
            world.emit(key, 1)
        assert [grant.hold.key for grant in given(world)["w"]] == ["a", "b"]

    def test_one_worker_has_so_many_offers_and_no_more(self) -> None:
        offers = World().engine.delivery.idle_workers
        for number in range(DEFAULT_LIMITS.worker_lanes + 5):
            offers.register("w", Claim(1, "w", (f"r{number}",), 1, 1, 1, lane=f"l{number}"), 1)
        assert [
            offers.find(f"r{number}", 0) is not None
            for number in (0, DEFAULT_LIMITS.worker_lanes - 1, DEFAULT_LIMITS.worker_lanes)
        ] == [True, True, False]
        offers.drop("w")
        assert offers.find("r0", 0) is None


class TestTheDisk:
    def test_what_was_given_and_not_finished_is_taken_over_when_its_lease_ends(self, tmp_path: Path) -> None:
        world = World(SqliteStore(tmp_path / "s"))
        world.subscribe()
        offering(world)
        world.emit("a", 1)
        (lost,) = given(world)["w"]
        world.engine.close()
        again = World(SqliteStore(tmp_path / "s"), clock=world.clock)
        assert again.claim(worker="other") == []
        again.clock.advance(LEASE_US)
        grant = again.claim_one(worker="other")
        assert (grant.attempt, grant.lost, payloads(grant)) == (1, 1, [1]), "a crash costs an attempt"
        assert grant.hold.token != lost.hold.token
        assert again.done(lost).late == (lost.hold,)

    def test_no_token_is_given_twice_though_a_commit_made_the_first_one(self, tmp_path: Path) -> None:
        tokens = set()
        for turn in range(3):
            world = World(SqliteStore(tmp_path / "s"))
            world.subscribe()
            question = Claim(2, "w", ("r",), 9, 9, LEASE_US, lane="default")
            world.engine.delivery.idle_workers.register("w", question, 9)
            world.emit(f"key {turn}", turn)
            (grant,) = given(world)["w"]
            tokens.add(grant.hold.token)
            world.engine.close()
        assert len(tokens) == 3

    def test_a_commit_that_does_not_land_gives_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        world = World(SqliteStore(tmp_path / "s"))
        world.subscribe()
        offering(world)
        with monkeypatch.context() as patch:
            patch.setattr(SqliteStore, "commit", _fails)
            with pytest.raises(RuntimeError, match="planted"):
                world.commit(TopicRecord("orders", "a", 1, "p"))
        found, is_more = world.engine.delivery.idle_workers.take_given()
        assert (found, is_more) == ({}, True), "whoever waits looks again"
        assert world.targets() == {}


def _fails(_: object) -> None:
    raise RuntimeError("planted")


# ---- over connections ----------------------------------------------------------------------------------------


def hub() -> tuple[Hub, Raw, Raw, Raw]:
    """One who emits and two workers, who watch and leave room open."""
    world = Hub()
    emitter, one, two = (Raw(world, name) for name in ("emitter", "one", "two"))
    emitter.say(Subscribe(1, "r", "orders"))
    for raw in (one, two):
        raw.say(WatchTargets(7))
    return world, emitter, one, two


def opens(raw: Raw, room: int = 5) -> None:
    raw.say(Claim(8, raw.peer.session, ("r",), room, 5, LEASE_US, lane="default"))


def emits(raw: Raw, number: int, *keys: str) -> None:
    raw.say(Transact((Commit(number, records=tuple(TopicRecord("orders", key, key, "p") for key in keys)),)))


def told(raw: Raw) -> list[tuple[list[str], bool]]:
    return [([g.hold.key for g in m.grants], m.is_more) for m in raw.heard if isinstance(m, TargetsDue)]


class TestBeingTold:
    def test_whoever_is_given_it_hears_that_and_all_others_that_there_may_be_something(self) -> None:
        _, emitter, one, two = hub()
        opens(one)
        emits(emitter, 1, "a")
        assert told(one) == [([], True), (["a"], False)]
        assert told(two) == [([], True), ([], True)], "it has to know when the lease ends"
        (_, due) = [m for m in one.heard if isinstance(m, TargetsDue)]
        last = due.grants[0].records[0]
        one.say(Finish(9, (Outcome(due.grants[0].hold, (last.seq, last.ordinal)),)))
        emits(emitter, 2, "a")
        assert told(one)[2:] == [(["a"], False)]

    def test_who_was_given_a_part_hears_that_there_is_more(self) -> None:
        _, emitter, one, two = hub()
        opens(one, 1)
        emits(emitter, 1, "a", "b")
        assert told(one)[1:] == [(["a"], True)]
        assert told(two)[1:] == [([], True)]

    def test_two_who_were_given_something_hear_of_each_other(self) -> None:
        _, emitter, one, two = hub()
        opens(one)
        opens(two)
        emits(emitter, 1, "a", "b")
        assert told(one)[1:] == [(["a"], True)]
        assert told(two)[1:] == [(["b"], True)]

    def test_one_that_stands_still_is_given_one_target_and_no_more_while_another_one_answers(self) -> None:
        _, emitter, one, two = hub()
        opens(one)
        opens(two)
        for number, key in enumerate("abcdef", 1):
            emits(emitter, number, key)
            opens(two)  # It was told that there may be something, or was given it, and says so.
        assert [key for keys, _ in told(one) for key in keys] == ["a"]
        assert [key for keys, _ in told(two) for key in keys] == [*"bcdef"]

    def test_a_topic_without_a_reaction_is_told_to_nobody(self) -> None:
        _, emitter, one, _ = hub()
        opens(one)
        emitter.say(Transact((Commit(1, records=(TopicRecord("other", "a", 1, "p"),)),)))
        assert told(one) == [([], True)]

    def test_who_does_not_watch_or_is_gone_or_watches_no_more_is_given_nothing(self) -> None:
        world, emitter, one, two = hub()
        opens(emitter)
        opens(one)
        opens(two)
        world.hub.lost(one.peer)
        two.say(WatchTargets(7, on=False))
        emits(emitter, 1, "a")
        assert [told(raw) for raw in (emitter, one, two)] == [[], [([], True)], [([], True)]]
        (target,) = as_a(Claimed, emitter.say(Claim(9, "x", ("r",), 5, 5, LEASE_US))[0]).grants
        assert target.hold.key == "a"

    def test_whoever_closes_hears_of_what_it_was_given_before_it_hears_that_it_is_closed(self) -> None:
        world, emitter, one, _ = hub()
        opens(one)
        one.heard.clear()
        frame = Transact((Commit(1, records=(TopicRecord("orders", "a", "a", "p"),)),))
        closing = Claim(9, "one", ("r",), 0, 5, LEASE_US, lane="default")
        world.hub.process([(emitter.peer, frame), (one.peer, closing)])
        world.hub.flush()
        assert [type(each) for each in one.heard][:2] == [TargetsDue, Claimed]
        assert told(one)[0][0] == ["a"]

    def test_a_retry_is_told_to_those_who_did_not_fail_it(self) -> None:
        _, emitter, one, two = hub()
        opens(one)
        emits(emitter, 1, "a")
        (grant,) = [grant for each in one.heard if isinstance(each, TargetsDue) for grant in each.grants]
        two.heard.clear()
        failure = DeliveryFailure(grant.records[0].seq, grant.records[0].ordinal, "E", "no", "f", "retry", 1_000)
        one.say(Finish(9, (Outcome(grant.hold, None, failure),)))
        assert told(two) == [([], True)], "it may be the one that is left when it is due"

    def test_what_is_given_is_on_the_disk_before_it_is_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        _, emitter, one, _ = hub()
        opens(one)
        order: list[str] = []
        commit, send = SqliteStore.commit, one.peer.send

        def committed(store: SqliteStore) -> None:
            commit(store)
            order.append("disk")

        def sent(message: FromEngine) -> None:
            order.append(type(message).__name__)
            send(message)

        monkeypatch.setattr(SqliteStore, "commit", committed)
        monkeypatch.setattr(one.peer, "send", sent)
        emits(emitter, 1, "a")
        assert order == ["disk", "TargetsDue"]


def test_an_engine_that_nobody_watches_gives_nothing_away() -> None:
    world = World()
    assert isinstance(world.engine, Engine)
    world.subscribe()
    world.emit("a", 1)
    assert world.engine.delivery.idle_workers.take_given() == ({}, True)
