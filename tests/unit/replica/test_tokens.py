"""Whose session it is: tokens that rotate, openings that get lost, takeovers, and the end of a session."""

from __future__ import annotations

import pytest

from headwater.errors import ProtocolError, SessionExpiredError
from headwater.protocol.messages import (
    Open,
    Problem,
)
from headwater.protocol.verdict import RuleRefused
from headwater.replica.session import LinkState, Session
from tests.unit.replica.kit import bump, counting, doc

D = doc("d")


class TestTokens:
    def test_the_token_rotates_with_every_opening(self) -> None:
        world = counting("a")
        (a,) = world.clients
        for _ in range(3):
            a.again()
            world.settle()
        opens = [message for message in a.sent if isinstance(message, Open)]
        assert [message.resume for message in opens] == ["", *[message.following for message in opens[:-1]]]
        assert len({message.following for message in opens}) == 4

    @pytest.mark.parametrize("lost", ["open", "opened"])
    @pytest.mark.parametrize("times", [1, 2, 20])
    def test_an_opening_lost_on_either_way_any_number_of_times_is_no_theft(self, lost: str, times: int) -> None:
        world = counting("a")
        (a,) = world.clients
        told = a.do(bump("d"))
        for _ in range(times):
            a.again()
            a.send(1)
            a.hear(1)
            assert a.session.link is LinkState.OPENING
            if lost == "opened":
                a.send(1)
                a.hear(0)
        a.again()
        world.settle()
        assert a.is_up
        assert a.errors == []
        assert told.landed

    def test_lost_openings_of_both_kinds_in_any_order_are_no_theft(self) -> None:
        for pattern in range(2**6):
            world = counting("a")
            (a,) = world.clients
            for place in range(6):
                a.again()
                a.send(1)
                a.hear(1)
                a.send(1 if pattern >> place & 1 else 0)
                if pattern >> place & 1 and place % 2:
                    a.hear(1)  # the answer arrived, a refused token among them; what it caused did not
            a.again()
            world.settle()
            assert a.is_up, f"{pattern:06b}"
            assert a.errors == [], f"{pattern:06b}"

    def test_a_takeover_revokes_the_other_connection(self) -> None:
        world = counting("a")
        (a,) = world.clients
        thief = world.join("a")
        thief.opens_with(a.token())
        told = a.do(bump("d"))
        world.settle()
        assert thief.is_up
        assert a.session.link is LinkState.GONE
        assert isinstance(a.errors[0], SessionExpiredError)
        assert len(told.calls) == 1

    def test_a_stolen_token_does_not_work_twice(self) -> None:
        world = counting("a")
        (a,) = world.clients
        stolen = a.token()
        a.again()
        world.settle()
        thief = world.join("a")
        thief.opens_with(stolen)
        world.settle()
        assert thief.session.link is LinkState.GONE
        assert a.is_up
        a.do(bump("d"))
        world.settle()
        assert world.value("d") == {"n": 1, "x": 0}

    def test_a_session_is_not_opened_by_its_name_alone(self) -> None:
        world = counting("a")
        stranger = world.join("a")
        world.settle()
        assert stranger.session.link is LinkState.GONE
        assert world.clients[0].is_up


class TestExpiry:
    def test_unanswered_commits_become_failed_intents_and_never_new_commits(self) -> None:
        world = counting("a")
        (a,) = world.clients
        sent, unsent_reader = a.do(bump("d")), a.do(bump("d"))
        a.session.receive(Problem("session_gone", "it is over"))
        assert isinstance(sent.rejection, RuleRefused)  # not a conflict: a conflict is worth a retry
        assert len(unsent_reader.calls) == 1
        assert a.session.link is LinkState.GONE
        assert len(a.replica.pending) == 0
        assert a.shows("d") == {"n": 0, "x": 0}
        assert list(a.session.outgoing) == []
        assert a.mirror.differences() == []

    def test_somebody_hears_of_it_and_nothing_can_be_sent_any_more(self) -> None:
        world = counting("a")
        (a,) = world.clients
        a.session.receive(Problem("stale_token", "used before"))
        assert [type(error) for error in a.errors] == [SessionExpiredError]
        with pytest.raises(SessionExpiredError, match="Open a new one"):
            a.session.connected()

    def test_layers_that_had_landed_are_not_taken_back(self) -> None:
        world = counting("a")
        (a,) = world.clients
        told = a.do(bump("d"))
        a.send()
        a.hear(1)
        assert told.landed
        a.session.receive(Problem("revoked", "another"))
        assert a.shows("d") == {"n": 1, "x": 0}
        assert len(told.calls) == 1

    def test_a_new_session_on_the_same_replica_goes_on(self) -> None:
        world = counting("a")
        (a,) = world.clients
        told = a.do(bump("d"))
        a.send()
        a.hear(1)
        a.session.receive(Problem("revoked", "another"))
        assert told.landed
        a.session = Session(a.replica, space="x", key="a2", new_token=world.clock.new_token)
        a.down()
        a.up()
        a.watch("d", "e")
        world.settle()
        again = a.do(bump("d"))
        world.settle()
        assert again.landed
        assert world.value("d") == a.shows("d") == {"n": 2, "x": 0}

    @pytest.mark.parametrize("code", ["protocol", "storage", "limit"])
    def test_other_problems_are_heard_and_a_fatal_one_ends_the_connection_only(self, code: str) -> None:
        world = counting("a")
        (a,) = world.clients
        a.session.receive(Problem(code, "mind this", fatal=False))
        assert "mind this" in str(a.errors[-1])
        with pytest.raises(ProtocolError, match="out with you"):
            a.session.receive(Problem(code, "out with you"))
        a.again()
        world.settle()
        assert a.is_up
