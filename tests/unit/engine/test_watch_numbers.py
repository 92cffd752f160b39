"""Watches have numbers: there are only so many, one that is said again replaces the first, and letting go is cheap."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.data.address import DocKey, Link
from headwater.engine.engine import Engine
from headwater.engine.limits import Limits
from headwater.engine.log.history import HistoricDocument
from headwater.engine.sync.peer import Peer
from headwater.engine.sync.watch_table import WatchTable
from headwater.errors import CorruptionError
from headwater.protocol.commit import Commit
from headwater.protocol.messages import Problem, Selector, Sync, Transact, Unwatch, Watch, Watched
from tests.unit.engine.hub_kit import Raw, put
from tests.unit.engine.kit import doc
from tests.unit.replica.kit import World

D, E = doc("d"), doc("e")


def test_a_session_has_so_many_watches_whatever_they_name() -> None:
    world = World(limits=Limits(watches=5))
    ann = Raw(world, "ann")
    for number in range(5):
        assert isinstance(ann.say(Watch(number, (Selector(D),) if number % 2 else ()))[-1], Watched)
    (problem,) = ann.say(Watch(5, (Selector(D),)))
    assert isinstance(problem, Problem)
    assert (problem.code, problem.fatal, problem.id) == ("limit", False, 5)
    assert "at most 5 watches" in problem.message
    assert len(ann.peer.watches) == 5
    assert isinstance(ann.say(Watch(3, (Selector(D),)))[-1], Watched)  # one of them, once more
    ann.say(Unwatch(3))
    assert isinstance(ann.say(Watch(5, (Selector(D),)))[-1], Watched)


def test_a_watch_that_is_said_again_replaces_the_first() -> None:
    world = World()
    ann, bob = Raw(world, "ann"), Raw(world, "bob")
    ann.watch(D, id=1)
    ann.watch(E, id=1)
    assert set(ann.peer.watched) == {E}
    bob.write(1, put("d", 1))
    assert ann.only(Sync) == []
    bob.write(2, put("e", 1))
    assert len(ann.only(Sync)) == 1
    ann.say(Unwatch(1))
    assert ann.peer.watched == {}
    assert world.hub.watched == 0


def test_a_watch_that_narrows_lets_go_of_what_links_led_to() -> None:
    world = World()
    ann, bob = Raw(world, "ann"), Raw(world, "bob")
    bob.write(1, put("d", {"to": Link(None, "space", "e", ())}))
    ann.watch(D, id=1, follow=True)
    assert set(ann.peer.watched) == {D, E}
    ann.watch(D, id=1)
    assert set(ann.peer.watched) == {D}


def test_a_watch_whose_links_are_followed_no_more_still_lets_go_of_all_it_has() -> None:
    world = World(limits=Limits(follow_documents=2))
    ann, bob = Raw(world, "ann"), Raw(world, "bob")
    bob.write(1, put("d", {"to": tuple(Link(None, "space", f"e{n}", ()) for n in range(2))}))
    ann.watch(D, id=1, follow=True)
    bob.write(2, put("d", {"to": tuple(Link(None, "space", f"e{n}", ()) for n in range(4))}))
    assert any(isinstance(message, Problem) for message in ann.heard)
    assert len(ann.peer.watched) == 3
    ann.say(Unwatch(1))
    assert ann.peer.watched == {}
    assert world.hub.watched == 0


class Counted(dict[DocKey, set[int]]):
    """Counts how often all of it is gone through."""

    searches = 0

    def __iter__(self):  # type: ignore[no-untyped-def]
        self.searches += 1
        return super().__iter__()


def test_letting_go_of_one_document_does_not_look_at_all_the_others() -> None:
    world = World()
    ann = Raw(world, "ann")
    for number in range(50):
        ann.watch(doc(f"d{number}"), id=number)
    counted = Counted(ann.peer.watched)
    ann.peer.watched = counted
    for number in range(50):
        ann.say(Unwatch(number))
    ann.say(Unwatch(99))
    assert counted == {}
    assert counted.searches == 0


def test_a_connection_whose_catching_up_fails_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    first = Raw(world, "s")
    first.watch(D)
    world.hub.lost(first.peer)
    second = Raw(world)

    def failing(self: WatchTable, peer: Peer, seen: int) -> None:
        raise CorruptionError("a row is gone")

    monkeypatch.setattr(WatchTable, "catch_up", failing)
    second.open("s", first.token)
    assert isinstance(second.heard[-1], Problem)
    world.later(60_000_000)
    assert world.hub.watched == 0


class TestCatchingUp:
    def reads(self, monkeypatch: pytest.MonkeyPatch) -> list[DocKey]:
        seen: list[DocKey] = []
        read = Engine.read

        def counted(self: Engine, key: DocKey, **options: Any) -> HistoricDocument:
            seen.append(key)
            return read(self, key, **options)

        monkeypatch.setattr(Engine, "read", counted)
        return seen

    @pytest.mark.parametrize("missed", [0, 1, 3, 9])
    @pytest.mark.parametrize("compacted", [False, True])
    def test_whoever_comes_back_is_told_what_was_written_since_and_nothing_else(
        self, missed: int, compacted: bool
    ) -> None:
        world = World()
        author, ann = Raw(world, "author"), Raw(world, "ann")
        for number in range(6):
            author.write(number + 1, put(f"d{number}", 0))
        for number in range(5):
            ann.watch(doc(f"d{number}"), id=number)
        seen = world.engine.last_seq
        world.hub.lost(ann.peer)
        for number in range(missed):
            author.write(10 + number, put(f"d{number % 6}", number + 1))
        if compacted:
            world.engine.compact(world.engine.last_seq)
        again = Raw(world)
        again.open("ann", ann.token, seen=seen)
        told = [change.doc.id for sync in again.heard if isinstance(sync, Sync) for change in sync.changes]
        assert sorted(told) == sorted({f"d{number % 6}" for number in range(missed)} - {"d5"})

    def test_where_nothing_happened_no_document_is_read(self, monkeypatch: pytest.MonkeyPatch) -> None:
        world = World()
        author, ann = Raw(world, "author"), Raw(world, "ann")
        for number in range(20):
            author.write(number + 1, put(f"d{number}", 0))
            ann.watch(doc(f"d{number}"), id=number)
        seen = world.engine.last_seq
        world.hub.lost(ann.peer)
        read = self.reads(monkeypatch)
        again = Raw(world)
        again.open("ann", ann.token, seen=seen)
        assert read == []
        author.write(99, put("d3", 1))
        world.hub.lost(again.peer)
        read.clear()
        third = Raw(world)
        third.open("ann", again.token, seen=seen)
        assert set(read) == {doc("d3")}

    def test_a_branch_is_told_what_was_written_on_it_alone(self) -> None:
        world = World()
        author = Raw(world, "author")
        for number in range(5):
            author.write(number + 1, put(f"d{number}", 0))
        world.engine.fork("b")
        ann, bob = Raw(world, "ann", branch="b"), Raw(world, "bob", branch="b")
        for number in range(5):
            ann.watch(doc(f"d{number}"), id=number)
        seen = world.engine.last_seq
        world.hub.lost(ann.peer)
        author.write(10, put("d0", 1))
        bob.say(Transact((Commit(1, (put("d1", 1),), branch="b"),)))
        again = Raw(world)
        again.open("ann", ann.token, seen=seen, branch="b")
        told = [change.doc.id for sync in again.heard if isinstance(sync, Sync) for change in sync.changes]
        assert told == ["d1"]
