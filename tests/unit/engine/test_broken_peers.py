"""A peer whose way to send fails is closed, loudly; its space, and everybody else in it, goes on."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from headwater.data.patch import replace
from headwater.engine.engine import Engine
from headwater.engine.limits import DEFAULT_LIMITS
from headwater.engine.store.sqlite import SqliteStore
from headwater.engine.sync.host import InlineHost, ThreadHost
from headwater.engine.sync.peer import Peer, PeerState
from headwater.protocol.commit import Commit, Operation
from headwater.protocol.messages import (
    FromEngine,
    FromReplica,
    Open,
    Opened,
    Problem,
    Query,
    Renew,
    Renewed,
    Selector,
    Sync,
    Transact,
    Unwatch,
    Verdicts,
    Watch,
    Watched,
)
from headwater.protocol.verdict import Accepted
from tests.unit.engine.kit import doc

D = doc("d")


class DeafError(Exception):
    """What a transport of somebody else's may raise."""


class Ear:
    """A peer that remembers what it was told, and fails at one kind of message."""

    def __init__(self, key: str, *, deaf_to: type | None = None) -> None:
        self.key = key
        self.told: list[FromEngine] = []
        self.deaf_to = deaf_to
        self.tries = 0
        self.peer = Peer(self._hear, DEFAULT_LIMITS)
        self.peer.greet("")

    def _hear(self, message: FromEngine) -> None:
        if self.deaf_to is not None and isinstance(message, self.deaf_to):
            self.tries += 1
            raise DeafError(f"{self.key} cannot hear {type(message).__name__}")
        self.told.append(message)

    def only(self, kind: type) -> list[FromEngine]:
        return [message for message in self.told if isinstance(message, kind)]


class Space:
    def __init__(self) -> None:
        self.failures: list[Exception] = []
        self.stopped: list[BaseException] = []
        self.host = ThreadHost(
            Engine(SqliteStore(":memory:", synchronous="OFF")),
            on_failed=self.stopped.append,
            on_peer_failed=self.failures.append,
        )

    def say(self, ear: Ear, *messages: FromReplica) -> None:
        for message in messages:
            self.host.post(ear.peer, message)
        self.host.call(lambda engine, hub: None)

    def sessions(self) -> int:
        return self.host.call(lambda engine, hub: hub.sessions)


@pytest.fixture
def space() -> Iterator[Space]:
    made = Space()
    yield made
    made.host.close()


def write(local_seq: int) -> Transact:
    return Transact((Commit(local_seq, (Operation(D, (replace((), local_seq),)),)),))


def opened(key: str, resume: str = "", following: str = "t") -> Open:
    return Open("x", key, resume, following)


WATCH = Watch(1, (Selector(D),))


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Opened, None),
        (Verdicts, write(1)),
        (Watched, WATCH),
        (Renewed, Renew("token")),
        (Problem, Query(1, "user:somebody", "d", 99)),
        (Problem, Watch(2, (Selector(doc("d", "no such scope")),))),
    ],
    ids=["Opened", "Verdicts", "Watched", "Renewed", "a query's Problem", "a watch's Problem"],
)
def test_only_the_peer_that_cannot_be_told_is_closed(space: Space, kind: type, message: FromReplica | None) -> None:
    good, bad = Ear("good"), Ear("bad", deaf_to=kind)
    space.say(good, opened("good"), WATCH)
    space.say(bad, opened("bad"), *([message] if message is not None else []))
    assert [str(error) for error in space.failures] == [f"bad cannot hear {kind.__name__}"]
    assert isinstance(space.failures[0], DeafError)
    assert bad.peer.state is PeerState.CLOSED
    assert space.sessions() == 1
    space.say(good, write(1))
    assert Verdicts((Accepted(1, space.host.call(lambda engine, hub: engine.last_seq)),)) in good.told
    assert good.only(Sync)
    assert space.host.failed is None
    assert space.stopped == []


def test_a_peer_that_breaks_while_news_are_spread_leaves_the_others_theirs(space: Space) -> None:
    ears = [Ear(f"e{number}", deaf_to=Sync if number in (1, 3) else None) for number in range(5)]
    for ear in ears:
        space.say(ear, opened(ear.key), WATCH)
    space.say(ears[0], write(1))
    assert [len(ear.only(Sync)) for ear in ears] == [1, 0, 1, 0, 1]
    assert sorted(map(str, space.failures)) == ["e1 cannot hear Sync", "e3 cannot hear Sync"]
    space.say(ears[2], write(1))
    assert [ear.tries for ear in ears] == [0, 1, 0, 1, 0]  # nothing is tried on a way that failed
    assert space.sessions() == 3


def test_its_session_comes_back_and_hears_what_it_missed(space: Space) -> None:
    bad = Ear("bad", deaf_to=Verdicts)
    space.say(bad, opened("bad", following="t1"), WATCH, write(1))
    assert len(space.failures) == 1
    again = Ear("bad")
    space.say(again, Open("x", "bad", "t1", "t2", sent=(1,)))
    (first,) = again.only(Opened)
    assert isinstance(first, Opened)
    assert (first.resumed, first.landed) == (True, ((1, 1),))  # C10: it is in the log, once
    assert again.only(Sync)
    space.say(again, write(2), Unwatch(1))
    assert len(again.only(Verdicts)) == 1


def test_what_a_broken_peer_had_sent_before_is_judged_and_what_it_sends_later_is_not(space: Space) -> None:
    bad = Ear("bad", deaf_to=Verdicts)
    space.say(bad, opened("bad"))
    space.host.post(bad.peer, write(1))
    space.host.call(lambda engine, hub: None)
    space.say(bad, write(2))
    assert space.host.call(lambda engine, hub: engine.last_seq) == 1


def test_a_takeover_from_a_peer_that_cannot_be_told_so_goes_on(space: Space) -> None:
    old, new = Ear("s", deaf_to=Problem), Ear("s")
    space.say(old, opened("s", "", "t1"))
    space.say(new, opened("s", "t1", "t2"))
    assert new.only(Opened)
    assert old.peer.state is PeerState.CLOSED
    assert len(space.failures) == 1
    space.say(new, write(1))
    assert new.only(Verdicts)


def test_without_anybody_who_asked_it_is_told_like_an_uncaught_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    uncaught: list[object] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: uncaught.append(args.exc_value))
    host = ThreadHost(Engine(SqliteStore(":memory:", synchronous="OFF")))
    bad = Ear("bad", deaf_to=Opened)
    host.post(bad.peer, opened("bad"))
    host.call(lambda engine, hub: None)
    assert [str(error) for error in uncaught] == ["bad cannot hear Opened"]
    assert host.failed is None
    host.close()


def test_a_space_that_stops_tells_everybody_even_if_one_cannot_be_told(space: Space) -> None:
    bad, good = Ear("bad", deaf_to=Problem), Ear("good")
    for ear in (bad, good):
        space.say(ear, opened(ear.key))

    def explode(*_: object) -> None:
        raise RuntimeError("a defect")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("headwater.engine.sync.hub.Hub.process", explode)
        space.host.post(good.peer, write(1))
        space.host.close()
    assert [type(message) for message in good.told][-1:] == [Problem]
    assert [str(error) for error in space.stopped] == ["a defect"]
    assert [str(error) for error in space.failures] == ["bad cannot hear Problem"]


def test_whoever_runs_it_inline_gets_the_error_itself() -> None:
    host = InlineHost(Engine(SqliteStore(":memory:", synchronous="OFF")))
    bad = Ear("bad", deaf_to=Opened)
    with pytest.raises(DeafError):
        host.post(bad.peer, opened("bad"))
    host.close()
