"""What is told to whom, and when: callbacks, acknowledgements, readiness, answers, and bounds on all of it."""

from __future__ import annotations

import pytest

from headwater.data.address import Depth
from headwater.data.patch import increment, replace
from headwater.engine.limits import Limits
from headwater.errors import LoadError
from headwater.protocol.messages import (
    Ack,
    Answer,
    Open,
    Problem,
    Query,
    Transact,
)
from headwater.protocol.verdict import Collision, Conflict
from headwater.replica.pending import Layer
from tests.unit.replica.kit import Client, Told, bump, counting, doc, putting

D = doc("d")


class TestCallbacks:
    @pytest.mark.parametrize(
        "path", ["landed", "rejected", "cascade", "refused", "reverted", "no-op", "read-only", "expired"]
    )
    def test_every_callback_is_called_exactly_once_on_every_path(self, path: str) -> None:
        world = counting("a", "b")
        a, b = world.clients
        tolds = [Told(), Told()]
        transaction = a.replica.begin()
        work = bump("d")
        if path in ("rejected", "cascade", "refused"):
            b.do(bump("d"))
            b.send()
        if path in ("cascade", "refused"):
            a.do(bump("d"))
            transaction = a.replica.begin()
        if path == "reverted":
            a.down()
        if path == "read-only":
            transaction.read(D)
        elif path == "no-op":
            transaction.write(D, replace(("n",), 0))
        else:
            work(transaction)
        if path == "refused":
            world.settle()
        made = a.replica.commit(transaction, *tolds)
        if path == "reverted":
            a.up()
        if path == "expired":
            a.session.receive(Problem("revoked", "another"))
        else:
            world.settle()
            a.again()
            world.settle()
        good = path in ("landed", "no-op", "read-only")
        for told in tolds:
            assert len(told.calls) == 1
            assert told.landed == good
        if isinstance(made, Layer):
            assert not made.settled

    def test_a_callback_that_raises_is_contained_on_every_path(self) -> None:
        world = counting("a", "b")
        a, b = world.clients
        trouble = RuntimeError("a bad callback")

        def bad(*_: object) -> None:
            raise trouble

        def commit(*works: object) -> Told:
            told = Told()
            transaction = a.replica.begin(derived=True)
            for work in works:
                work(transaction)  # type: ignore[operator]
            a.replica.commit(transaction, bad, told)
            return told

        b.do(bump("d"))
        b.send()
        tolds = [
            commit(bump("d")),  # rejected
            commit(bump("d")),  # falls with it
            commit(putting("e", increment(("n",)))),  # lands, in the same frame
            commit(),  # read-only
        ]
        a.session.flush()
        world.settle()
        assert [told.landed for told in tolds] == [False, False, True, True]
        assert a.raised == [trouble] * 4
        assert a.shows("d") == world.value("d")
        assert len(a.replica.pending) == 0


class TestAcknowledging:
    def test_every_sync_and_arrival_is_acknowledged_with_its_seq(self) -> None:
        world = counting("a", "b")
        a, b = world.clients
        a.sent.clear()
        b.do(bump("d"))
        world.settle()
        (ack,) = [message for message in a.sent if isinstance(message, Ack)]
        assert ack.seq == world.engine.last_seq

    def test_verdicts_are_acknowledged_once_nothing_will_name_them_again(self) -> None:
        world = counting("a", "b")
        a, b = world.clients
        a.do(bump("d"))
        a.send()
        a.hear(1)  # the verdict, not what covers it: the layer can still be named
        b.do(bump("e"))
        b.send()
        assert a.acked() == 1
        world.settle()
        assert a.acked() == 2

    def test_a_commit_on_the_wire_holds_back_the_acknowledgement(self) -> None:
        world = counting("a", "b")
        a, b = world.clients
        waiting = a.do(bump("d"))
        b.do(bump("e"))
        b.send()
        a.hear()
        acks = [message for message in a.session.outgoing if isinstance(message, Ack)]
        assert [ack.local_seq for ack in acks] == [1]
        world.settle()
        assert waiting.landed

    def test_what_landed_at_an_opening_counts_as_heard(self) -> None:
        world = counting("a")
        (a,) = world.clients
        a.do(bump("d"))
        a.send()
        a.again()
        world.settle()
        assert a.acked() == 2


class TestReadiness:
    def conflict(self, seq: int) -> Conflict:
        return Conflict((Collision(D, ("n",), Depth.DEEP, 0, seq, "b", ""),))

    def test_retrying_is_useful_once_the_winner_is_here(self) -> None:
        world = counting("a", "b")
        a, b = world.clients
        b.do(bump("d"))
        b.send()
        told = a.do(bump("d"))
        a.send()
        a.hear(1)
        while not told.calls:
            a.hear(1)
        assert isinstance(told.rejection, Conflict)
        if a.replica.confirmed.seq < told.rejection.collisions[0].seq:
            assert not a.session.ready(told.rejection)
        world.settle()
        assert a.session.ready(told.rejection)
        again = a.do(bump("d"))
        world.settle()
        assert again.landed
        assert world.value("d") == {"n": 2, "x": 0}

    def test_every_winner_counts_not_the_first(self) -> None:
        world = counting("a")
        (a,) = world.clients
        here = a.replica.confirmed.seq
        both = Conflict((*self.conflict(here).collisions, *self.conflict(here + 1).collisions))
        assert a.session.ready(self.conflict(here))
        assert not a.session.ready(both)

    def test_a_loser_who_no_longer_watches_the_document_becomes_ready_too(self) -> None:
        """Otherwise it is held until somebody happens to write something that it does watch."""
        world = counting("a", "b")
        a, b = world.clients
        transaction = a.replica.begin()
        transaction.read(D, ("n",))
        bump("e")(transaction)
        assert a.session.unwatch(D)
        world.settle()
        b.do(bump("d"))
        world.settle()
        told = Told()
        a.replica.commit(transaction, told)
        world.settle()
        assert isinstance(told.rejection, Conflict)
        assert a.session.ready(told.rejection)

    def test_without_a_connection_it_is_never_useful(self) -> None:
        world = counting("a")
        (a,) = world.clients
        a.down()
        assert not a.session.ready(self.conflict(1))


class TestBounds:
    def test_commits_in_flight_are_bounded_and_all_of_them_land(self) -> None:
        world = counting("a", limits=Limits(in_flight=600))
        (a,) = world.clients
        tolds = [a.write("e", increment(("n",))) for _ in range(700)]
        on_the_wire = sum(len(m.commits) for m in a.session.outgoing if isinstance(m, Transact))
        assert on_the_wire <= 600
        world.settle()
        assert all(told.landed for told in tolds)
        assert world.value("e") == {"n": 700}

    def test_a_session_with_very_much_on_the_wire_can_still_come_back(self) -> None:
        world = counting("a", limits=Limits(in_flight=600))
        (a,) = world.clients
        tolds = [a.write("e", increment(("n",))) for _ in range(700)]
        a.again()
        world.settle()
        assert a.is_up
        assert all(len(told.calls) == 1 for told in tolds)
        landed = sum(told.landed for told in tolds)
        assert landed >= 1
        assert world.value("e") == a.shows("e") == {"n": landed}

    def test_settled_layers_and_answered_loads_leave_nothing_behind(self) -> None:
        world = counting("a", "b")
        a, b = world.clients
        for number in range(50):
            a.do(bump("d"))
            a.watch(f"x{number}")
            world.settle()
            assert a.session.unwatch(doc(f"x{number}"))
            b.do(bump("e"))
            world.settle()
        session = a.session
        assert len(a.replica.pending) == 0
        assert not session.is_loading()
        assert len(a.replica.confirmed) == 2
        assert len(session.outgoing) == 0
        assert a.peer is not None
        assert len(a.peer.watched) == 2
        a.again()
        world.settle()
        (*_, opening) = [message for message in a.sent if isinstance(message, Open)]
        assert opening.watching is not None
        assert len(opening.watching) == 2


class TestAsking:
    def ask(self, client: Client, **options: object) -> list[Answer | LoadError]:
        replies: list[Answer | LoadError] = []
        client.session.query(Query(0, "space", **options), replies.append)  # type: ignore[arg-type]
        return replies

    def test_a_query_is_answered_once_and_leaves_no_watch(self) -> None:
        world = counting("a", "b")
        b = world.clients[1]
        c = world.join("c")
        world.settle()
        replies = self.ask(c, doc="d")
        world.settle()
        (answer,) = replies
        assert isinstance(answer, Answer)
        assert answer.documents[0].get() == {"n": 0, "x": 0}
        heard = len(c.heard)
        b.do(bump("d"))
        world.settle()
        assert len(c.heard) == heard
        assert not c.replica.is_here(D)

    def test_the_past_and_pages_can_be_asked_for(self) -> None:
        world = counting("a")
        (a,) = world.clients
        a.do(bump("d"))
        world.settle()
        past, page = self.ask(a, doc="d", at=1), self.ask(a, limit=1)
        world.settle()
        assert isinstance(past[0], Answer)
        assert past[0].documents[0].get() == {"n": 0, "x": 0}
        assert isinstance(page[0], Answer)
        assert [state.doc.id for state in page[0].documents] == ["d"]
        assert page[0].next is not None

    def test_a_refused_query_is_an_error_for_whoever_asked(self) -> None:
        world = counting("a")
        (a,) = world.clients
        replies = self.ask(a, doc="d", at=99)
        world.settle()
        assert isinstance(replies[0], LoadError)
        assert "99" in str(replies[0])
        assert a.is_up

    @pytest.mark.parametrize("when", ["before", "during", "expired", "reconnected"])
    def test_a_query_without_a_connection_fails_instead_of_waiting_for_ever(self, when: str) -> None:
        world = counting("a")
        (a,) = world.clients
        if when == "before":
            a.down()
        replies = self.ask(a, doc="d")
        if when == "during":
            a.down()
        elif when == "expired":
            a.session.receive(Problem("revoked", "another"))
        elif when == "reconnected":
            a.again()
            world.settle()
        assert [type(reply) for reply in replies] == [LoadError]
