"""Events, timers, documents and watches of one user in a space are bounded; those of its owners are not."""

from __future__ import annotations

from dataclasses import replace as changed
from typing import Any

import pytest
from msgspec.structs import replace as replaced

from headwater.clock import VirtualClock
from headwater.data.address import DocKey
from headwater.data.patch import replace
from headwater.engine.admission.access import ACCESS
from headwater.engine.engine import Engine
from headwater.engine.limits import DEFAULT_LIMITS
from headwater.engine.store.sqlite import SqliteStore
from headwater.protocol.commit import Operation, SentEvent
from headwater.protocol.messages import Problem, Watched
from headwater.protocol.verdict import Accepted, Rejected, RuleRefused, Verdict
from tests.unit.engine.hub_kit import Raw
from tests.unit.engine.kit import Writer, doc
from tests.unit.replica.kit import World

LIMITS = changed(DEFAULT_LIMITS, user_events=4, user_timers=2, user_documents=2, user_watches=3, user_kept_sessions=2)


def submit(writer: Writer, **fields: Any) -> Verdict:
    """Have one commit with these fields judged."""
    return writer.engine.submit(writer.key, replaced(writer.commit(), **fields))[0]


class Space:
    """A space with an owner, two writers and a reader."""

    def __init__(self) -> None:
        store = SqliteStore(":memory:", synchronous="OFF")
        self.engine = Engine(store, clock=VirtualClock(), limits=LIMITS, access=True)
        roles = {"owners": ["ann"], "writers": ["wes", "will"], "readers": ["rob"]}
        Writer(self.engine, "root").lands(Operation(ACCESS, (replace((), roles),)))
        self._writers = {
            name: Writer(self.engine, f"of-{name}", principal=name) for name in ("ann", "wes", "will", "rob")
        }
        self._sent = 0

    def send_event(self, user: str, due_us: int = 0) -> Verdict:
        self._sent += 1
        return submit(self._writers[user], events=(SentEvent(f"e{self._sent}", "s", None, due_us),))

    def handle(self, user: str, event: str) -> Verdict:
        return submit(self._writers[user], handled=(event,))

    def write(self, user: str, scope: str, id: str) -> Verdict:
        return self._writers[user].send(Operation(DocKey(scope, id), (replace((), 1),)))


def is_refused(verdict: Verdict) -> bool:
    assert isinstance(verdict, Accepted | Rejected)
    if isinstance(verdict, Accepted):
        return False
    assert isinstance(verdict.rejection, RuleRefused)
    assert verdict.rejection.rule == "user_limit"
    return True


def test_stored_events_of_one_user_are_bounded_and_leave_room_for_others() -> None:
    space = Space()
    assert [is_refused(space.send_event("wes")) for _ in range(5)] == [False] * 4 + [True]
    assert not is_refused(space.send_event("will"))
    assert not any(is_refused(space.send_event("ann")) for _ in range(10))
    assert not is_refused(space.handle("will", "e1"))
    assert [is_refused(space.send_event("wes")) for _ in range(2)] == [False, True]


def test_timers_of_one_user_are_bounded() -> None:
    space = Space()
    assert [is_refused(space.send_event("wes", 10**12)) for _ in range(3)] == [False, False, True]
    assert not is_refused(space.send_event("wes"))
    assert not is_refused(space.handle("will", "e1"))
    assert not is_refused(space.send_event("wes", 10**12))


def test_events_are_counted_again_after_a_restart() -> None:
    store = SqliteStore(":memory:", synchronous="OFF")
    engine = Engine(store, clock=VirtualClock(), limits=LIMITS, access=True)
    roles = {"owners": ["ann"], "writers": ["wes"]}
    Writer(engine, "root").lands(Operation(ACCESS, (replace((), roles),)))
    first = Writer(engine, "one", principal="wes")
    for number in range(4):
        submit(first, events=(SentEvent(f"e{number}", "s", None, 0),))
    again = Engine(store, clock=VirtualClock(), limits=LIMITS, access=True)
    assert is_refused(submit(Writer(again, "two", principal="wes"), events=(SentEvent("e9", "s", None, 0),)))


def test_documents_of_a_reader_are_bounded_and_can_still_be_written() -> None:
    space = Space()
    assert [is_refused(space.write("rob", "user:rob", f"d{n}")) for n in range(3)] == [False, False, True]
    assert not is_refused(space.write("rob", "user:rob", "d0"))
    assert not any(is_refused(space.write("wes", "user:wes", f"d{n}")) for n in range(5))


def test_watches_of_all_sessions_of_one_user_are_bounded() -> None:
    world = World(limits=LIMITS)
    one, two = Raw(world, "s1", principal="ann"), Raw(world, "s2", principal="ann")
    assert isinstance(one.watch(doc("a"), doc("b"))[-1], Watched)
    assert isinstance(two.watch(doc("a"), doc("b"))[-1], Problem)
    assert isinstance(two.watch(doc("a"))[-1], Watched)
    other = Raw(world, "s3", principal="bob")
    assert isinstance(other.watch(doc("a"), doc("b"))[-1], Watched)
    world.hub.lost(one.peer)
    world.hub.lost(two.peer)
    assert isinstance(Raw(world, "s4", principal="ann").watch(doc("a"))[-1], Problem)  # Those are kept for a while.


@pytest.mark.parametrize("user", ["ann", "bob"])
def test_kept_watches_of_lost_sessions_are_few_for_one_user(user: str) -> None:
    world = World(limits=LIMITS)
    for number in range(5):
        peer = Raw(world, f"s{number}", principal=user)
        peer.watch(doc(f"d{number}"))
        world.hub.lost(peer.peer)
    assert world.hub.watched == 2
