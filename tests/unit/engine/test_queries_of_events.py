"""Stored events over a connection: who may ask for them, who is told of new ones, and that nobody is told in vain."""

from __future__ import annotations

import pytest

from headwater.data.patch import append, remove_value
from headwater.engine.admission.access import ACCESS
from headwater.engine.limits import Limits
from headwater.errors import LoadError
from headwater.protocol.commit import Commit, Operation, SentEvent
from headwater.protocol.messages import (
    Encoding,
    EventsStored,
    Problem,
    QueryEvents,
    StoredEvents,
    Transact,
    WatchEvents,
)
from headwater.replica.transaction import Transaction
from tests.unit.engine.hub_kit import Raw, put
from tests.unit.replica.kit import Client, World


def sending(*ids: str, due_us: int = 0) -> tuple[SentEvent, ...]:
    return tuple(SentEvent(id, "cart.add", {"of": id}, due_us) for id in ids)


def space() -> tuple[World, Raw, Raw, Raw]:
    """ann owns it, will writes, rob reads."""
    world = World(access=True)
    ann = Raw(world, "ann-session", principal="ann")
    ann.write(1, put("d", 1))
    ann.write(2, Operation(ACCESS, (append(("readers",), ["rob"]), append(("writers",), ["will"]))))
    return world, ann, Raw(world, "will-session", principal="will"), Raw(world, "rob-session", principal="rob")


def newest(raw: Raw) -> list[int]:
    return [message.newest for message in raw.heard if isinstance(message, EventsStored)]


class TestAsking:
    def test_a_page_says_where_the_next_one_begins_and_when_more_is_due(self) -> None:
        _, ann, will, _ = space()
        ann.say(Transact((Commit(3, events=sending("a", "b")), Commit(4, events=sending("c", due_us=70)))))
        (page,) = will.say(QueryEvents(9, 10, limit=1))
        assert isinstance(page, StoredEvents)
        assert (page.id, page.seq, [event.id for event in page.events]) == (9, 5, ["a"])
        assert (page.next, page.next_due_us) == ((4, "a"), 70)
        assert page.next is not None
        (last,) = will.say(QueryEvents(10, 10, page.next, 1_000_000))
        assert isinstance(last, StoredEvents)
        assert ([event.id for event in last.events], last.next) == (["b"], None)

    def test_readers_may_neither_ask_nor_be_told_and_their_connection_stays(self) -> None:
        world, ann, _, rob = space()
        asked = rob.say(QueryEvents(5), WatchEvents(6))
        assert [(type(m), m.code, m.fatal, m.id) for m in asked if isinstance(m, Problem)] == [
            (Problem, "access", False, 5),
            (Problem, "access", False, 6),
        ]
        assert "may use its stored events, and 'rob' may not write it" in asked[0].message  # type: ignore[union-attr]
        ann.say(Transact((Commit(3, events=sending("a")),)))
        assert newest(rob) == []
        assert not rob.peer.is_closed()
        assert world.hub.sessions == 3

    def test_readers_may_not_handle_events(self) -> None:
        world, ann, will, rob = space()
        ann.say(Transact((Commit(3, events=sending("a", "b")),)))
        rob.say(Transact((Commit(1, handled=("a",)),)))
        rob.say(
            Transact(
                (
                    Commit(
                        2, (Operation(put("x", 1).doc._replace(scope="user:rob"), put("x", 1).patches),), handled=("a",)
                    ),
                )
            )
        )
        assert [event.id for event in world.engine.events().items] == ["a", "b"]
        will.say(Transact((Commit(1, handled=("a",)),)))
        assert [event.id for event in world.engine.events().items] == ["b"]

    def test_a_change_of_access_handles_no_events(self) -> None:
        world, ann, _, _ = space()
        ann.say(Transact((Commit(3, events=sending("a")),)))
        ann.say(Transact((Commit(4, (Operation(ACCESS, (append(("readers",), ["eve"]),)),), handled=("a",)),)))
        assert [event.id for event in world.engine.events().items] == ["a"]

    def test_a_page_is_as_long_as_an_answer_may_be(self) -> None:
        world = World(limits=Limits(query_documents=2, answer_bytes=10_000))
        raw = Raw(world, "s")
        events = tuple(SentEvent(f"e{n}", "s", "x" * 4_000) for n in range(5))
        raw.say(Transact((Commit(1, events=events),)))
        (page,) = raw.say(QueryEvents(1, limit=5))
        assert isinstance(page, StoredEvents)
        assert ([event.id for event in page.events], page.next) == (["e0", "e1"], (1, "e1"))


class TestBeingTold:
    def test_who_asks_hears_what_is_stored_and_then_of_what_others_store(self) -> None:
        _, ann, will, _ = space()
        ann.say(WatchEvents(7))
        will.say(WatchEvents(8))
        assert (newest(ann), newest(will)) == ([0], [0])
        ann.say(Transact((Commit(3, events=sending("a")),)))
        assert (newest(ann), newest(will)) == ([0], [0, 4]), "not of one's own"
        will.say(Transact((Commit(1, events=sending("b")),)))
        assert (newest(ann), newest(will)) == ([0, 5], [0, 4])
        ann.say(Transact((Commit(4, handled=("a", "b")),)))
        ann.write(5, put("d", 2))
        assert (newest(ann), newest(will)) == ([0, 5], [0, 4]), "nothing was stored"

    def test_several_commits_of_one_step_are_told_once(self) -> None:
        world, ann, will, _ = space()
        will.say(WatchEvents(8))
        frames = [Transact((Commit(number, events=sending(f"e{number}")),)) for number in range(3, 9)]
        world.hub.process([(ann.peer, frame) for frame in frames])
        assert newest(will) == [0, 9]

    def test_the_last_question_counts_and_it_can_be_taken_back(self) -> None:
        _, ann, will, _ = space()
        will.say(WatchEvents(8), WatchEvents(9))
        ann.say(Transact((Commit(3, events=sending("a")),)))
        assert [m.id for m in will.heard if isinstance(m, EventsStored)] == [8, 9, 9]
        will.say(WatchEvents(9, False))
        ann.say(Transact((Commit(4, events=sending("b")),)))
        assert newest(will) == [0, 0, 4]

    def test_events_of_another_branch_concern_nobody_here(self) -> None:
        world, ann, _, _ = space()
        world.engine.fork("side")
        side = Raw(world, "side-session", principal="will", branch="side")
        side.say(WatchEvents(1))
        ann.say(Transact((Commit(3, events=sending("a")),)))
        assert newest(side) == [0]
        other = Raw(world, "other-session", principal="ann", branch="side")
        other.say(Transact((Commit(1, branch="side", events=sending("b")),)))
        assert newest(side) == [0, 5]

    def test_who_may_not_write_any_more_hears_that_and_nothing_further(self) -> None:
        _, ann, will, _ = space()
        will.say(WatchEvents(8))
        ann.write(3, Operation(ACCESS, (remove_value(("writers",), "will"), append(("readers",), ["will"]))))
        ann.say(Transact((Commit(4, events=sending("a")),)))
        ann.say(Transact((Commit(5, events=sending("b")),)))
        problems = [m for m in will.heard if isinstance(m, Problem)]
        assert [(m.code, m.fatal, m.id) for m in problems] == [("access", False, 8)]
        assert newest(will) == [0]

    def test_a_lost_connection_is_forgotten(self) -> None:
        world, ann, will, _ = space()
        will.say(WatchEvents(8))
        world.hub.lost(will.peer)
        ann.say(Transact((Commit(3, events=sending("a")),)))
        assert newest(will) == [0]

    def test_events_that_a_merge_or_the_host_itself_stored_are_told_too(self) -> None:
        world, _, will, _ = space()
        will.say(WatchEvents(8))
        world.engine.open_session("own")
        world.engine.submit("own", Commit(1, events=sending("a")))
        world.hub.process(())
        assert newest(will) == [0, 4]


# ---- from the replica's side -----------------------------------------------------------------------------------


def told(client: Client) -> list[int | LoadError]:
    heard: list[int | LoadError] = []
    client.session.queries.watch_events(heard.append)
    return heard


def store(client: Client, *ids: str) -> None:
    def work(transaction: Transaction) -> None:
        transaction.events.extend(sending(*ids))

    client.do(work)


@pytest.mark.parametrize("encoding", ["msgpack", "json"])
class TestOfAReplica:
    def test_an_event_is_stored_asked_for_and_handled(self, encoding: Encoding) -> None:
        world = World()
        ann, bob = world.join("ann", encoding=encoding), world.join("bob", encoding=encoding)
        world.settle()
        heard = told(bob)
        world.settle()
        store(ann, "a", "b")
        world.settle()
        assert heard == [0, 1]
        pages: list[StoredEvents | LoadError] = []
        bob.session.queries.ask_events(pages.append, due_by_us=0)
        world.settle()
        (page,) = pages
        assert isinstance(page, StoredEvents)
        assert [(event.id, event.stream, event.payload) for event in page.events] == [
            ("a", "cart.add", {"of": "a"}),
            ("b", "cart.add", {"of": "b"}),
        ]
        bob.do(lambda transaction: transaction.handled.append("a"))
        world.settle()
        assert [event.id for event in world.engine.events().items] == ["b"]
        assert len(bob.replica.pending) == 0

    def test_being_told_outlives_the_connection(self, encoding: Encoding) -> None:
        world = World()
        ann, bob = world.join("ann", encoding=encoding), world.join("bob", encoding=encoding)
        heard = told(bob)
        assert heard == [], "there is no connection yet"
        world.settle()
        assert heard == [0]
        bob.down()
        store(ann, "a")
        world.settle()
        bob.up()
        world.settle()
        assert heard == [0, 1]
        store(ann, "b")
        world.settle()
        assert heard == [0, 1, 2]
        bob.session.queries.watch_events(None)
        world.settle()
        store(ann, "c")
        bob.again()
        world.settle()
        assert heard == [0, 1, 2]

    def test_a_question_without_a_connection_or_right_is_answered_with_an_error(self, encoding: Encoding) -> None:
        world, _, _, _ = space()
        rob = world.join("rob-replica", principal="rob", encoding=encoding)
        pages: list[StoredEvents | LoadError] = []
        rob.session.queries.ask_events(pages.append)
        assert [str(page) for page in pages] == ["stored events cannot be read: there is no connection"]
        world.settle()
        heard = told(rob)
        rob.session.queries.ask_events(pages.append)
        world.settle()
        assert [type(answer) for answer in (*pages[1:], *heard)] == [LoadError, LoadError]
        rob.session.queries.ask_events(pages.append)
        rob.down()
        assert [type(page) for page in pages] == [LoadError] * 3
        assert rob.errors == []


def test_a_transaction_that_only_handles_has_something_to_tell() -> None:
    world = World("ann")
    (ann,) = world.clients
    transaction = ann.replica.begin()
    assert transaction.is_empty()
    transaction.handled.append("a")
    assert not transaction.is_empty()
    layer = ann.replica.commit(transaction)
    assert layer is not None
    world.settle()
    assert world.engine.last_seq == 1
