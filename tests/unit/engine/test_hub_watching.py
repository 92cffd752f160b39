"""Watching and asking, seen from the engine: one cut, limits, and refusals that keep the connection."""

from __future__ import annotations

import pytest

from headwater.data.address import DocKey, Link
from headwater.data.patch import replace
from headwater.engine.limits import Limits
from headwater.engine.sync.peer import PeerState
from headwater.protocol.messages import (
    Answer,
    FromEngine,
    Problem,
    Query,
    Sync,
    Unwatch,
    Watched,
)
from tests.unit.engine.hub_kit import Raw, put
from tests.unit.engine.kit import doc
from tests.unit.replica.kit import World

D, E = doc("d"), doc("e")


class TestWatching:
    def test_a_watch_answers_with_one_cut_in_the_order_asked(self) -> None:
        world = World()
        ann = Raw(world, "ann")
        ann.write(1, put("e", 1))
        (watched,) = [m for m in ann.watch(E, D) if isinstance(m, Watched)]
        assert [(state.doc, state.seq, state.present) for state in watched.documents] == [(E, 1, True), (D, 0, False)]

    def test_a_document_of_two_watches_is_told_once_and_kept_until_both_are_gone(self) -> None:
        world = World()
        ann, bob = Raw(world, "ann"), Raw(world, "bob")
        ann.watch(D, id=1)
        ann.watch(D, E, id=2)
        bob.write(1, put("d", 1))
        last = ann.heard[-1]
        assert isinstance(last, Sync)
        assert len(last.changes) == 1
        ann.say(Unwatch(2))
        bob.write(2, put("d", 2), put("e", 2))
        last = ann.heard[-1]
        assert isinstance(last, Sync)
        assert [change.doc for change in last.changes] == [D]
        ann.say(Unwatch(1))
        heard = len(ann.heard)
        bob.write(3, put("d", 3))
        assert len(ann.heard) == heard
        assert world.hub.watched == 0

    def test_unwatching_what_is_not_watched_is_harmless(self) -> None:
        world = World()
        assert Raw(world, "ann").say(Unwatch(77)) == []

    def test_the_number_of_watched_documents_is_limited_and_a_refusal_keeps_the_connection(self) -> None:
        world = World(limits=Limits(watches=2))
        ann = Raw(world, "ann")
        ann.watch(D, id=1)
        ann.watch(D, E, id=2)
        said = ann.watch(doc("f"), id=3)
        assert said == [Problem("limit", "a session watches at most 2 documents. Unwatch some first.", False, 3)]
        assert ann.peer.state is PeerState.OPEN
        assert any(isinstance(message, Watched) for message in ann.watch(D, id=1)), "it watches d already"
        ann.say(Unwatch(2))
        assert any(isinstance(message, Watched) for message in ann.watch(doc("f"), id=3))

    def test_the_number_of_selectors_is_limited(self) -> None:
        world = World(limits=Limits(watch_selectors=2))
        ann = Raw(world, "ann")
        said = ann.watch(D, E, doc("f"), id=4)
        assert said == [Problem("limit", "a watch names at most 2 documents. Send several.", False, 4)]
        assert ann.peer.watched == {}

    def test_following_past_its_limit_is_refused_by_name(self) -> None:
        world = World(limits=Limits(follow_documents=2))
        ann = Raw(world, "ann")
        ann.write(1, put("d", [Link(id=str(number)) for number in range(3)]))
        (problem,) = ann.watch(D, id=5, follow=True)
        assert problem == Problem("limit", "links from space:d lead to more than 2 documents", False, 5)
        assert ann.peer.watched == {}
        assert any(isinstance(message, Watched) for message in ann.watch(D, id=6))

    def test_one_who_writes_too_many_links_stops_nobody(self) -> None:
        world = World("good", limits=Limits(follow_documents=2))
        (good,) = world.clients
        good.watch("d", "e")
        follower, evil = Raw(world, "follower"), Raw(world, "evil")
        follower.watch(D, follow=True)
        world.settle()
        evil.write(1, put("d", [Link(id=str(number)) for number in range(3)]))
        world.settle()
        assert good.shows("d") == world.value("d")
        told = good.write("e", replace((), 1))
        world.settle()
        assert told.landed

    @pytest.mark.parametrize(
        "key", [DocKey("", ""), DocKey("space", ""), DocKey("moon", "x"), DocKey("space", "x" * 999)]
    )
    def test_impossible_names_are_refused(self, key: DocKey) -> None:
        world = World()
        ann = Raw(world, "ann")
        (problem,) = ann.watch(key, id=9)
        assert isinstance(problem, Problem)
        assert (problem.id, problem.fatal) == (9, False)
        assert ann.peer.watched == {}


class TestAsking:
    def ask(self, peer: Raw, **options: object) -> FromEngine:
        (said,) = peer.say(Query(7, **{"scope": "space", **options}))  # type: ignore[arg-type]
        return said

    def test_one_document_now_and_then(self) -> None:
        world = World()
        ann = Raw(world, "ann")
        ann.write(1, put("d", 1))
        ann.write(2, put("d", 2))
        now, then, never = self.ask(ann, doc="d"), self.ask(ann, doc="d", at=1), self.ask(ann, doc="nope")
        assert isinstance(now, Answer)
        assert isinstance(then, Answer)
        assert isinstance(never, Answer)
        assert [answer.documents[0].get() for answer in (now, then)] == [2, 1]
        assert not never.documents[0].present
        assert (now.id, now.seq) == (7, 2)

    def test_a_scope_by_pages_up_to_the_limit(self) -> None:
        world = World(limits=Limits(query_documents=2))
        ann = Raw(world, "ann")
        for number, id in enumerate("abcde", 1):
            ann.write(number, put(id, number))
        found: list[str] = []
        after = ""
        while True:
            answer = self.ask(ann, after=after, limit=1_000)
            assert isinstance(answer, Answer)
            assert len(answer.documents) <= 2
            found += [state.doc.id for state in answer.documents]
            if answer.next is None:
                break
            after = answer.next
        assert found == list("abcde")

    def test_a_page_of_the_past_is_of_the_past_or_refused(self) -> None:
        world = World()
        ann = Raw(world, "ann")
        ann.write(1, put("d", 1))
        ann.write(2, put("d", 2))
        answer = self.ask(ann, at=1)
        if isinstance(answer, Answer):
            assert answer.documents[0].get() == 1
        else:
            assert isinstance(answer, Problem)
            assert (answer.id, answer.fatal) == (7, False)

    @pytest.mark.parametrize("at", [3, 2**53 - 1])
    def test_a_seq_that_does_not_exist_is_a_problem_of_that_query_only(self, at: int) -> None:
        world = World()
        ann = Raw(world, "ann")
        ann.write(1, put("d", 1))
        answer = self.ask(ann, doc="d", at=at)
        assert isinstance(answer, Problem)
        assert (answer.code, answer.fatal, answer.id) == ("absent", False, 7)
        assert ann.peer.state is PeerState.OPEN
