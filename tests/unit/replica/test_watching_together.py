"""Many documents that are asked for as one: they arrive together, and each is let go by itself."""

from __future__ import annotations

import pytest

from headwater.data.address import DocKey, Link
from headwater.data.patch import replace
from headwater.data.value import MaybeValue
from headwater.engine.limits import Limits
from headwater.protocol.messages import Unwatch, Watch, Watched
from headwater.replica.confirmed import NotHere
from tests.unit.replica.kit import Client, World, doc

NAMES = ("a", "b", "c", "d")


def _pair(limits: Limits | None = None) -> tuple[World, Client, Client]:
    world = World("reader", "writer", limits=limits or Limits())
    reader, writer = world.clients
    writer.watch(*NAMES)
    world.settle()
    for name in NAMES:
        writer.write(name, replace((), {"n": 0}))
    world.settle()
    return world, reader, writer


def _ask(client: Client, *ids: str, ahead: tuple[str, ...] = ()) -> None:
    client.session.watch([doc(id) for id in ids], ahead=[doc(id) for id in ahead])


def _seen(client: Client, *ids: str) -> list[MaybeValue]:
    return [client.shows(id) for id in ids]


def _asked(client: Client) -> list[tuple[DocKey, ...]]:
    return [tuple([each.doc for each in said.selectors]) for said in client.sent if isinstance(said, Watch)]


def test_they_arrive_in_one_message_and_are_followed_from_then_on() -> None:
    world, reader, writer = _pair()
    _ask(reader, "a", "b", ahead=("b", "c"))
    world.settle()
    assert [len(each.documents) for each in reader.received if isinstance(each, Watched)] == [3]
    for name in NAMES[:3]:
        writer.write(name, replace(("n",), 1))
    world.settle()
    assert _seen(reader, "a", "b", "c") == [{"n": 1}] * 3
    assert not reader.session.is_loading()
    _ask(reader, "a", ahead=("c",))
    reader.watch("b", "c")
    world.settle()
    assert _asked(reader) == [(doc("a"), doc("b"), doc("c"))], "none of them is asked for again"


def test_each_is_let_go_by_itself_and_the_last_one_with_the_watch() -> None:
    world, reader, writer = _pair()
    _ask(reader, "a", "b")
    world.settle()
    assert reader.session.unwatch(doc("a"))
    world.settle()
    writer.write("a", replace(("n",), 1))
    writer.write("b", replace(("n",), 1))
    world.settle()
    assert _seen(reader, "b") == [{"n": 1}]
    with pytest.raises(NotHere):
        reader.replica.begin().read(doc("a"))
    assert not [said for said in reader.sent if isinstance(said, Unwatch)]
    reader.watch("a")
    world.settle()
    assert _seen(reader, "a") == [{"n": 1}], "it is asked for by itself"
    assert reader.session.unwatch(doc("b"))
    world.settle()
    assert len([said for said in reader.sent if isinstance(said, Unwatch)]) == 1
    writer.write("a", replace(("n",), 2))
    world.settle()
    assert _seen(reader, "a") == [{"n": 2}]


def test_if_all_are_too_many_those_that_somebody_waits_for_are_asked_for_one_by_one() -> None:
    world, reader, _ = _pair(Limits(watches=4))
    failed: list[object] = []
    reader.session.on_load_failed = lambda docs, error: failed.extend(docs)
    reader.watch("x", "y")
    world.settle()
    _ask(reader, "a", ahead=("b", "c", "d"))
    reader.watch("b")
    world.settle()
    assert _seen(reader, "a", "b") == [{"n": 0}] * 2
    assert not failed
    assert not reader.replica.is_here(doc("c"))
    assert not reader.session.is_loading()
    reader.watch("c")
    world.settle()
    assert failed == [doc("c")], "now somebody is told"


def test_so_are_those_that_somebody_waits_for_since_they_are_on_their_way() -> None:
    world, reader, _ = _pair(Limits(watches=4))
    reader.watch("x", "y")
    world.settle()
    _ask(reader, "a", ahead=("b", "c"))
    _ask(reader, "b", ahead=("c",))
    world.settle()
    assert _seen(reader, "a", "b") == [{"n": 0}] * 2
    assert not reader.replica.is_here(doc("c"))
    assert not reader.session.is_loading()


def test_if_all_are_too_long_when_they_come_again_each_comes_by_itself() -> None:
    limits = Limits(answer_bytes=10_000)
    world, reader, writer = _pair(limits)
    _ask(reader, "a", ahead=("b", "c"))
    world.settle()
    reader.session.unwatch(doc("c"))
    reader.drop()
    world.later(limits.session_kept_us + 1)
    for name in NAMES:
        writer.write(name, replace((), {"text": "x" * 6_000}))
    writer.pump()
    reader.again()
    world.settle()
    assert [len(str(each)) > 6_000 for each in _seen(reader, "a", "b")] == [True, True]
    assert not reader.replica.is_here(doc("c"))
    assert _asked(reader)[-2:] == [(doc("a"),), (doc("b"),)]


def test_what_is_on_its_way_is_not_let_go() -> None:
    world, reader, _ = _pair()
    _ask(reader, "a", "b")
    assert not reader.session.unwatch(doc("a"))
    world.settle()
    assert reader.session.unwatch(doc("a"))


def test_one_of_them_can_be_followed_to_where_its_links_lead() -> None:
    world, reader, writer = _pair()
    writer.write("a", replace((), {"to": Link(None, "space", "b")}))
    world.settle()
    _ask(reader, "a", "c")
    reader.watch("a", follow=True)
    world.settle()
    assert _seen(reader, "b", "c") == [{"n": 0}] * 2
    writer.write("a", replace((), {"n": 1}))
    writer.write("c", replace(("n",), 1))
    world.settle()
    assert _seen(reader, "a", "c") == [{"n": 1}] * 2


@pytest.mark.parametrize("is_late", [False, True])
def test_they_come_back_with_a_connection(is_late: bool) -> None:
    world, reader, writer = _pair()
    _ask(reader, "a", "b", "c")
    world.settle()
    reader.session.unwatch(doc("c"))
    reader.drop()
    if is_late:
        world.later(Limits().session_kept_us + 1)
    writer.write("a", replace(("n",), 1))
    writer.pump()
    reader.again()
    world.settle()
    assert _seen(reader, "a", "b") == [{"n": 1}, {"n": 0}]
    writer.write("b", replace(("n",), 1))
    world.settle()
    assert _seen(reader, "a", "b") == [{"n": 1}] * 2
