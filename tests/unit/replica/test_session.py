"""The replica's end of a conversation that outlives its connections: opening, resuming, replaying, closing."""

from __future__ import annotations

import pytest

from headwater.data.patch import add, increment, replace
from headwater.engine.limits import Limits
from headwater.errors import AuthoringError, ProtocolError
from headwater.protocol.messages import (
    Bye,
    Hello,
    Open,
    Opened,
    Sync,
    Transact,
    Verdicts,
    Watch,
    Watched,
    Welcome,
)
from headwater.protocol.verdict import Accepted, Conflict
from headwater.replica.feed import Kind
from headwater.replica.replica import Replica
from headwater.replica.session import LinkState, Session
from tests.unit.replica.kit import Client, Told, World, bump, counting, doc, local_seqs

D = doc("d")
EXPIRY_US = Limits().session_kept_us


def forget_watches(client: Client) -> None:
    """The connection is lost for so long that the engine lets its watches go."""
    client.down()
    client.world.later(EXPIRY_US + 1)


def opened(client: Client) -> Opened:
    return [message for message in client.received if isinstance(message, Opened)][-1]


def sent_of(client: Client, kind: type) -> list[object]:
    return [message for message in client.sent if isinstance(message, kind)]


class TestOpening:
    def test_it_says_hello_then_opens_then_is_up(self) -> None:
        session = Session(Replica(), space="x", key="a", new_token=lambda: "next", token="jwt")
        session.connected()
        assert list(session.outgoing) == [Hello((1,), ("waves", "follow"), "jwt")]
        assert session.link is LinkState.GREETING
        session.receive(Welcome(1))
        assert session.outgoing[-1] == Open("x", "a", "", "next", watching=())
        session.receive(Opened("a", 0, False))
        assert session.link.value == "up"

    def test_branch_is_chosen_before_anything_is_shown(self) -> None:
        session = Session(Replica(), space="x", key="a", new_token=lambda: "next")
        session.replica.choose_branch("draft")
        session.connected()
        session.receive(Welcome(1))
        assert session.outgoing[-1] == Open("x", "a", "", "next", branch="draft", watching=())
        session.replica.confirmed.move_to(1)
        with pytest.raises(AuthoringError, match="'other' is chosen too late: 'draft' is shown already"):
            session.replica.choose_branch("other")

    def test_another_version_is_refused_and_named(self) -> None:
        session = Session(Replica(), space="x", key="a", new_token=lambda: "next")
        session.connected()
        with pytest.raises(ProtocolError, match="speaks version 2 of the protocol, not 1"):
            session.receive(Welcome(2))

    @pytest.mark.parametrize(
        "message",
        [
            Opened("a", 0, False),
            Verdicts((Accepted(1, 1),)),
            Watched(1, 0, ()),
            Sync(1, ()),
        ],
        ids=lambda message: type(message).__name__,
    )
    def test_messages_before_their_time_break_the_protocol_and_change_nothing(self, message: object) -> None:
        session = Session(Replica(), space="x", key="a", new_token=lambda: "next")
        session.connected()
        with pytest.raises(ProtocolError):
            session.receive(message)  # type: ignore[arg-type]
        assert session.replica.confirmed.seq == 0
        assert session.link is LinkState.GREETING

    def test_a_second_greeting_or_opening_breaks_the_protocol(self) -> None:
        world = counting("a")
        (a,) = world.clients
        with pytest.raises(ProtocolError, match="greeted twice"):
            a.session.receive(Welcome(1))
        with pytest.raises(ProtocolError, match="not asked for"):
            a.session.receive(Opened("a", 0, True))

    def test_an_engine_that_goes_back_is_not_believed(self) -> None:
        world = counting("a")
        (a,) = world.clients
        seq = a.replica.confirmed.seq
        with pytest.raises(ProtocolError, match=f"seq {seq - 1} after seq {seq}"):
            a.session.receive(Sync(seq - 1, ()))
        assert a.replica.confirmed.seq == seq


class TestResuming:
    def test_watches_are_not_reinstalled_on_true_resume(self) -> None:
        world = counting("a", "b")
        a, b = world.clients
        before = len(sent_of(a, Watch))
        a.again()
        world.settle()
        assert opened(a).resumed
        assert len(sent_of(a, Watch)) == before
        b.do(bump("d"))
        world.settle()
        assert a.shows("d") == {"n": 1, "x": 0}

    def test_what_happened_meanwhile_arrives_as_one_difference(self) -> None:
        world = counting("a", "b")
        a, b = world.clients
        a.down()
        for _ in range(3):
            b.do(bump("d"))
            world.settle()
        a.heard.clear()
        a.up()
        world.settle()
        assert opened(a).resumed
        assert a.kinds() == [Kind.INTEGRATE]
        assert a.shows("d") == {"n": 3, "x": 0}
        assert a.replica.confirmed.seq == world.engine.last_seq

    def test_after_long_absence_everything_is_read_again_and_only_differences_are_told(self) -> None:
        world = counting("a", "b")
        a, b = world.clients
        forget_watches(a)
        b.do(bump("d"))
        world.settle()
        a.heard.clear()
        a.up()
        world.settle()
        assert not opened(a).resumed
        assert [(n.kind, [c.doc.id for c in n.changes]) for n in a.heard] == [(Kind.RESET, ["d"])]
        assert a.mirror.differences() == []
        b.do(bump("e"))
        world.settle()
        assert a.shows("e") == {"n": 1}

    def test_a_gap_hides_what_is_not_known_to_be_current(self) -> None:
        world = counting("a")
        (a,) = world.clients
        forget_watches(a)
        assert a.shows("d") == {"n": 0, "x": 0}
        a.up()
        while not a.is_up:
            assert a.send() + a.hear()
        assert not a.replica.is_here(D)
        assert a.session.is_loading()
        world.settle()
        assert a.replica.is_here(D)
        assert not a.session.is_loading()

    def test_a_gap_loses_nothing_pending(self) -> None:
        world = counting("a", "b")
        a, b = world.clients
        told = a.write("d", increment(("n",)))
        a.send()
        forget_watches(a)
        b.write("d", increment(("n",), 10))
        world.settle()
        assert told.calls == []
        a.up()
        world.settle()
        assert told.landed
        assert a.shows("d") == world.value("d") == {"n": 11, "x": 0}
        assert len(a.replica.pending) == 0
        assert a.mirror.differences() == []

    def test_a_commit_that_never_arrived_is_replayed_byte_for_byte(self) -> None:
        world = counting("a")
        (a,) = world.clients
        told = a.do(bump("d"))
        first = a.session.outgoing[-1]
        a.again()
        world.settle()
        replayed = [message for message in a.sent if isinstance(message, Transact)][-1]
        assert replayed == first
        assert told.landed
        assert world.value("d") == {"n": 1, "x": 0}

    def test_a_commit_whose_verdict_was_lost_lands_once(self) -> None:
        world = counting("a")
        (a,) = world.clients
        told = a.write("d", increment(("n",)))
        a.send()
        a.again()
        world.settle()
        assert opened(a).landed == ((2, 2),)
        assert told.landed
        assert world.value("d") == {"n": 1, "x": 0}
        assert a.shows("d") == {"n": 1, "x": 0}

    def test_a_rejection_whose_verdict_was_lost_is_repeated(self) -> None:
        world = counting("a", "b")
        a, b = world.clients
        b.do(bump("d"))
        b.send()
        told = a.do(bump("d"))
        a.send()
        a.again()
        world.settle()
        assert isinstance(told.rejection, Conflict)
        assert [collision.session for collision in told.rejection.collisions] == ["b"]
        assert a.shows("d") == {"n": 1, "x": 0}

    def test_layers_never_sent_are_reverted_and_may_be_made_again_at_once(self) -> None:
        world = counting("a")
        (a,) = world.clients
        on_the_wire = a.do(bump("d"))
        a.down()
        again: list[Told] = []
        transaction = a.replica.begin()
        bump("d")(transaction)
        a.replica.commit(transaction, lambda layer, why: again.append(a.do(bump("d"))) if why else None)
        assert a.shows("d") == {"n": 2, "x": 0}
        a.up()
        world.settle()
        assert on_the_wire.landed
        assert again[0].landed
        assert world.value("d") == a.shows("d") == {"n": 2, "x": 0}
        assert a.mirror.differences() == []

    def test_a_reverted_layer_says_that_it_is_dead_itself(self) -> None:
        world = counting("a")
        (a,) = world.clients
        a.down()
        first, second = a.do(bump("d")), a.do(bump("d"))
        a.up()
        world.settle()
        assert first.rejection == Conflict(dead_layers=(first.calls[0][0].local_seq,))
        assert isinstance(second.rejection, Conflict)
        assert a.shows("d") == {"n": 0, "x": 0}

    def test_several_commits_in_flight_keep_their_order_over_reconnections(self) -> None:
        world = counting("a")
        (a,) = world.clients
        tolds = [a.do(bump("d")) for _ in range(5)]
        for delivered in (2, 1, 0):
            a.again()
            while not a.is_up:
                assert a.send(1) + a.hear(1)
            a.send(delivered)
        a.again()
        world.settle()
        assert [told.landed for told in tolds] == [True] * 5
        assert world.value("d") == {"n": 5, "x": 0}

    def test_a_connection_that_breaks_at_any_message_changes_nothing(self) -> None:
        """Whatever was said before the break, the next connection ends at the same place."""
        for cut in range(12):
            world = counting("a", "b")
            a, b = world.clients
            tolds = [a.do(bump("d")), a.write("e", increment(("n",)))]
            b.write("e", increment(("n",), 10))
            for step in range(cut):
                (a.send if step % 2 else a.hear)(1)
            world_step = b.send()
            assert world_step or cut
            for kept in range(cut % 3):
                a.hear(kept)
            a.again()
            for step in range(cut):
                (a.hear if step % 2 else a.send)(1)
            a.again()
            world.settle()
            assert all(told.landed for told in tolds), cut
            assert a.shows("e") == b.shows("e") == {"n": 11}, cut
            assert a.mirror.differences() == [], cut

    def test_a_resumed_session_goes_on_after_what_was_judged(self) -> None:
        """A process that starts anew with the key and token of its session does not number commits twice."""
        world = counting("a")
        (a,) = world.clients
        a.do(bump("d"))
        world.settle()
        a.down()
        again = world.join("a")
        again.opens_with(a.token())
        world.settle()
        again.session.watch([doc("f")])
        world.settle()
        told = again.write("f", replace((), 1))
        world.settle()
        assert told.landed
        assert local_seqs([told.calls[0][0]]) == [3]
        assert world.value("f") == 1


class TestClosing:
    def test_goodbye_is_said_when_nothing_is_owed(self) -> None:
        world = counting("a")
        (a,) = world.clients
        a.do(bump("d"))
        world.settle()
        a.session.close()
        assert a.session.outgoing[-1] == Bye(2)
        a.send()
        assert world.hub.sessions == 0
        assert a.session.link is LinkState.GONE

    def test_a_closed_session_cannot_be_taken_up_again(self) -> None:
        world = counting("a")
        (a,) = world.clients
        token = a.token()
        a.session.close()
        a.send()
        other = world.join("a")
        other.opens_with(token)
        world.settle()
        assert other.session.link is LinkState.GONE

    def test_work_without_an_end_keeps_it_open(self) -> None:
        world = counting("a")
        (a,) = world.clients
        a.do(bump("d"))
        with pytest.raises(ProtocolError, match="still has commits without an end"):
            a.session.close()
        assert a.is_up


def test_the_stack_is_sent_in_order_and_judged_in_order() -> None:
    world = counting("a", "b")
    a = world.clients[0]
    tolds = [a.do(bump("d")) for _ in range(4)]
    assert local_seqs(a.replica.pending.live()) == [2, 3, 4, 5]
    a.send()
    order: list[int] = []
    for told in tolds:
        assert told.calls == []
    a.replica.feed.subscribe(lambda n: order.append(n.seq))
    world.settle()
    assert all(told.landed for told in tolds)
    assert world.value("d") == {"n": 4, "x": 0}
    assert order == sorted(order)


def test_what_an_open_transaction_stands_on_is_not_given_up_before_it_is_over() -> None:
    """C4: the engine may forget what is acknowledged, and would call a layer dead that landed."""
    world = World()
    client = world.join("a")
    client.up()
    client.watch("d")
    world.settle()
    client.write("d", add((), {"n": 0}))
    world.settle()
    client.write("d", replace(("n",), 1))  # commit 2, which the transaction may name
    opened = client.replica.begin()
    opened.read(doc("d"), ("n",))
    for value in range(6):
        client.write("d", replace(("n",), value))
        world.settle()
    assert client.acked() == 1
    client.replica.drop(opened)
    client.write("d", replace(("n",), 9))
    world.settle()
    assert client.acked() > 1
