"""An answer has room for so many bytes, and that is looked at while it is collected."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from headwater.data.address import DocKey, Link
from headwater.data.patch import replace
from headwater.data.value import MaybeValue
from headwater.engine.engine import Engine
from headwater.engine.limits import Limits
from headwater.engine.sync.peer import AnswerBudget, PeerState, size_of_patches
from headwater.errors import LimitError
from headwater.protocol.messages import Ack, Answer, FromEngine, Open, Opened, Problem, Query, Sync, Watched, Whole
from tests.unit.engine.hub_kit import Raw, put
from tests.unit.engine.kit import doc
from tests.unit.replica.kit import World

LONG = "x" * 300
LIMITS = Limits(answer_bytes=1_000, sync_patches=1)


def long_documents(limits: Limits = LIMITS, count: int = 8) -> tuple[World, Raw]:
    """Documents of 300 bytes each; three fit into an answer, four do not."""
    world = World(limits=limits)
    author = Raw(world, "author")
    for number in range(count):
        author.write(number + 1, put(f"d{number}", LONG))
    return world, author


def rewrite(author: Raw, first: int, *ids: str) -> None:
    """Each document twice, so that it is told as a whole."""
    for turn in range(2):
        for place, id in enumerate(ids):
            author.write(first + turn * len(ids) + place, put(id, f"{turn}{LONG}"))


def read_documents(world: World, monkeypatch: pytest.MonkeyPatch) -> list[DocKey]:
    """The documents that are read from now on, in order."""
    seen: list[DocKey] = []
    read_all = Engine.read_all

    def counted(self: Engine, docs: Sequence[DocKey], *, branch: str) -> Iterator[tuple[DocKey, int, MaybeValue]]:
        for found in read_all(self, docs, branch=branch):
            seen.append(found[0])
            yield found

    monkeypatch.setattr(Engine, "read_all", counted)
    return seen


class TestRoom:
    def test_what_fits_is_taken_and_what_does_not_is_refused(self) -> None:
        room = AnswerBudget(10)
        room.take(4)
        room.take(6)
        with pytest.raises(LimitError, match="over 10 bytes"):
            room.take(1)

    def test_the_next_answer_has_all_the_room_again(self) -> None:
        room = AnswerBudget(10)
        room.take(10)
        room.begin()
        room.take(10)

    def test_it_says_once_that_as_much_was_collected_as_one_answer_may_hold(self) -> None:
        room = AnswerBudget(10)
        said = []
        for _ in range(6):
            room.begin()
            room.take(5)
            said.append(room.is_spent())
        assert said == [False, True, False, True, False, True]

    def test_patches_have_about_the_size_of_what_they_carry(self) -> None:
        assert 300 < size_of_patches((replace(("a", "b"), LONG),)) < 400


class TestWatching:
    def test_a_watch_that_has_no_room_is_refused_by_its_number_and_nothing_of_it_is_watched(self) -> None:
        world, author = long_documents()
        ann = Raw(world, "ann")
        (problem,) = ann.watch(*[doc(f"d{n}") for n in range(4)], id=7)
        assert isinstance(problem, Problem)
        assert (problem.code, problem.fatal, problem.id) == ("limit", False, 7)
        assert ann.peer.state is PeerState.OPEN
        assert (ann.peer.watches, ann.peer.watched) == ({}, {})
        author.write(99, put("d0", 1))
        assert ann.only(Sync) == []

    def test_documents_past_the_limit_are_not_even_read(self, monkeypatch: pytest.MonkeyPatch) -> None:
        world, _ = long_documents()
        ann = Raw(world, "ann")
        seen = read_documents(world, monkeypatch)
        ann.watch(*[doc(f"d{n}") for n in range(8)])
        assert len(seen) == 4

    def test_a_watch_that_cannot_be_widened_goes_on_as_it_was(self) -> None:
        world = World(limits=LIMITS)
        author = Raw(world, "author")
        author.write(1, put("d0", {"to": tuple(Link(None, "space", f"d{n}", ()) for n in range(1, 5))}))
        for number in range(1, 5):
            author.write(number + 1, put(f"d{number}", LONG))
        ann = Raw(world, "ann")
        ann.watch(doc("d0"))
        (problem,) = ann.watch(doc("d0"), follow=True)
        assert isinstance(problem, Problem)
        assert set(ann.peer.watched) == {doc("d0")}
        author.write(99, put("d0", 1))
        assert isinstance(ann.heard[-1], Sync)

    def test_several_watches_may_hold_together_more_than_one_answer(self) -> None:
        world, _ = long_documents()
        ann = Raw(world, "ann")
        for number in range(8):
            ann.watch(doc(f"d{number}"), id=number)
        assert len(ann.only(Watched)) == 8


class TestAsking:
    def test_a_page_ends_where_the_room_does_and_says_how_to_go_on(self) -> None:
        world, _ = long_documents()
        ann = Raw(world, "ann")
        pages: list[list[str]] = []
        after: str | None = ""
        while after is not None:
            (answer,) = ann.say(Query(1, "space", "", None, after))
            assert isinstance(answer, Answer)
            pages.append([state.doc.id for state in answer.documents])
            after = answer.next
        assert pages == [["d0", "d1", "d2"], ["d3", "d4", "d5"], ["d6", "d7"]]

    def test_documents_that_are_gone_do_not_hide_those_behind_them(self) -> None:
        world, author = long_documents(count=5)
        for number in (1, 2, 3):
            author.write(90 + number, put(f"d{number}", "short"))
        ann = Raw(world, "ann")
        (first,) = ann.say(Query(1, "space", "", None, "", 2))
        assert isinstance(first, Answer)
        (second,) = ann.say(Query(2, "space", "", None, first.next or "", 2))
        assert isinstance(second, Answer)
        assert [state.doc.id for state in (*first.documents, *second.documents)] == ["d0", "d1", "d2", "d3"]

    def test_one_document_that_has_no_room_is_refused(self) -> None:
        world = World(limits=Limits(answer_bytes=1_000))
        Raw(world, "author").write(1, put("d", "x" * 2_000))
        (problem,) = Raw(world, "ann").say(Query(3, "space", "d"))
        assert isinstance(problem, Problem)
        assert (problem.code, problem.fatal, problem.id) == ("limit", False, 3)


class TestTelling:
    def watching_all(self, world: World) -> Raw:
        ann = Raw(world, "ann")
        for number in range(8):
            ann.watch(doc(f"d{number}"), id=number)
        return ann

    def test_more_news_than_one_message_holds_end_the_connection_and_keep_no_watch(self) -> None:
        world, author = long_documents(Limits(answer_bytes=1_000, sync_patches=1, sync_window=1))
        ann = self.watching_all(world)
        assert ann.peer.unacked == 1  # one Sync on the way: what follows is merged
        rewrite(author, 60, "d0", "d1", "d2", "d3")
        (problem,) = ann.say(Ack(world.engine.last_seq))
        assert isinstance(problem, Problem)
        assert (problem.code, problem.fatal) == ("limit", True)
        assert ann.peer.state is PeerState.CLOSED
        assert ann.peer.watched == {}
        again = Raw(world)
        again.open("ann", ann.token, seen=ann.peer.heard_seq)
        (opened,) = again.heard
        assert isinstance(opened, Opened)
        assert not opened.resumed  # It asks for everything again, and each answer has room.
        for number in range(8):
            again.watch(doc(f"d{number}"), id=number)
        assert len(again.only(Watched)) == 8

    def test_whoever_missed_more_than_one_message_holds_asks_for_everything_again(self) -> None:
        world, author = long_documents()
        ann = self.watching_all(world)
        seen = world.engine.last_seq
        world.hub.lost(ann.peer)
        rewrite(author, 60, "d0", "d1", "d2", "d3")
        again = Raw(world)
        again.open("ann", ann.token, seen=seen)
        (opened,) = again.heard
        assert isinstance(opened, Opened)
        assert not opened.resumed
        assert again.peer.watched == {}
        assert again.watch(doc("d0"))[-1:] == again.only(Watched)

    def test_whoever_missed_less_is_told_that_alone(self) -> None:
        world, author = long_documents()
        ann = self.watching_all(world)
        seen = world.engine.last_seq
        world.hub.lost(ann.peer)
        rewrite(author, 60, "d0", "d1", "d2")
        again = Raw(world)
        again.open("ann", ann.token, seen=seen)
        opened, sync = again.heard
        assert isinstance(opened, Opened)
        assert opened.resumed
        assert isinstance(sync, Sync)
        assert [change.doc.id for change in sync.changes] == ["d0", "d1", "d2"]

    def test_a_slow_peer_holds_few_bytes_of_changes(self) -> None:
        world, author = long_documents(Limits(sync_bytes=1_000, sync_window=1, sync_patches=16))
        ann = self.watching_all(world)
        for number in range(60, 70):
            author.write(number, put(f"d{number % 5}", f"{number}{LONG}"))
            assert ann.peer.held <= 5, "the documents that were written"
        (sync,) = ann.say(Ack(world.engine.last_seq))
        assert isinstance(sync, Sync)
        assert {change.doc.id for change in sync.changes} == {f"d{n}" for n in range(5)}
        wholes = [change for change in sync.changes if isinstance(change, Whole)]
        assert len(sync.changes) - len(wholes) <= 3, "patches of 300 bytes each, where 1,000 bytes may be held"
        assert {change.doc.id: change.value[:2] for change in wholes} == {
            change.doc.id: str(65 + int(change.doc.id[1:])) for change in wholes
        }

    def test_a_lost_connection_holds_no_changes_at_all(self) -> None:
        world, author = long_documents(Limits())
        ann = self.watching_all(world)
        seen = world.engine.last_seq
        author.write(60, put("d0", 1))
        world.hub.lost(ann.peer)
        author.write(61, put("d1", 1))
        assert ann.peer.held == 0
        again = Raw(world)
        again.open("ann", ann.token, seen=seen)
        sync = again.heard[-1]
        assert isinstance(sync, Sync)
        assert [change.doc.id for change in sync.changes] == ["d0", "d1"]


def test_what_many_peers_ask_for_leaves_before_more_is_collected() -> None:
    world, _ = long_documents()
    waiting: list[FromEngine] = []
    most = 0

    def leave() -> None:
        nonlocal most
        most = max(most, len(waiting))
        waiting.clear()

    world.hub.on_answered = leave
    ann = Raw(world, "ann")
    ann.peer.send = waiting.append
    ann.say(*[Query(number, "space", f"d{number % 8}") for number in range(100)])
    leave()
    assert most == 4  # of 300 bytes each, where an answer may have 1,000


def test_an_open_with_many_commits_on_the_wire_is_refused() -> None:
    world = World(limits=Limits(in_flight=3))
    ann = Raw(world)
    (problem,) = ann.say(Open("x", "ann", "", "t", sent=(1, 2, 3, 4)))
    assert isinstance(problem, Problem)
    assert problem.code == "limit"
