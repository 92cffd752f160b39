"""Who stands behind whom: writes to one document land in the order in which they were made, whatever they wait for."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from headwater.data.address import DocKey, Link
from headwater.errors import LimitError, LoadError
from headwater.protocol.verdict import Conflict
from headwater.runtime.api.runtime import Runtime
from headwater.runtime.core import plain_writes as standing_module
from headwater.runtime.core.limits import RuntimeLimits
from tests.unit.cells.handle_kit import Hand
from tests.unit.runtime.kit import run
from tests.unit.runtime.test_core_writing import Scripted


def linked(shop: Scripted, *links: str) -> None:
    """These lead to n, which is 100."""
    n = shop.core.cell("shop", "n", int)
    shop.arrive("n", 100)
    for name in links:
        shop.arrive(name)
        shop.core.cell("shop", name, Link).set(n.link())
    shop.confirm()
    shop.core.settle()


def go_on(shop: Scripted) -> None:
    shop.ready = True
    shop.core.heard()
    shop.core.settle()


def test_writes_through_two_links_to_one_document_keep_their_order() -> None:
    shop = Scripted()
    linked(shop, "one", "two")
    one, two, n = (shop.core.cell("shop", name, int) for name in ("one", "two", "n"))
    one.update(lambda value: value + 1)
    shop.ready = False
    shop.conflict(shop.layers()[0])
    shop.core.settle()
    two.update(lambda value: value * 10)
    n.update(lambda value: value + 5)
    assert n.get() == 100
    go_on(shop)
    assert n.get() == 1_015
    assert not shop.core.plain_writes.waits()
    assert shop.replica.open_transactions.count == 0


def test_a_link_is_not_turned_elsewhere_before_what_was_written_through_it() -> None:
    shop = Scripted()
    linked(shop, "one", "two")
    shop.arrive("other", 7)
    one, two, n, other = (shop.core.cell("shop", name, int) for name in ("one", "two", "n", "other"))
    one.update(lambda value: value + 1)
    shop.ready = False
    shop.conflict(shop.layers()[0])
    two.update(lambda value: value * 10)  # It stands behind the other one, and so does whoever turns its link.
    shop.core.cell("shop", "two", Link).set(other.link())
    go_on(shop)
    assert (n.get(), other.get()) == (1_010, 7)
    assert two.get() == 7


def test_those_who_wait_keep_their_order_if_the_first_has_to_wait_for_something_else() -> None:
    shop = Scripted()
    log, *others = (shop.core.cell("shop", name, tuple[int, ...], default=()) for name in ("log", "x", "y"))
    shop.arrive("log", (0,))
    log.update(lambda value: (*value, *others[0].get(), *others[1].get()))
    log.set((7,))
    log.update(lambda value: (*value, 8))
    log.set((*log.get(), 9))
    shop.arrive("x", (1,))
    assert log.get() == (0,)
    log.push(10)
    shop.arrive("y", (2,))
    assert log.get() == (0, 9, 10)
    assert not shop.core.plain_writes.waits()


def test_if_what_a_write_waits_for_is_refused_those_behind_it_go_on() -> None:
    shop = Scripted()
    n, other = shop.core.cell("shop", "n", int), shop.core.cell("shop", "other", int)
    shop.arrive("n", 1)
    n.update(lambda value: value + other.get())
    n.update(lambda value: value * 10)
    shop.core.load_failed(shop.space, [DocKey("space", "other")], LoadError("not for you"))
    shop.core.settle()
    assert n.get() == 10
    assert [failure.node for failure in shop.errors] == ["shop/space:other", "a write outside any run"]
    assert not shop.core.plain_writes.waits()


def test_those_who_stand_behind_a_write_through_a_link_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing_module, "RUNTIME_LIMITS", RuntimeLimits(writes_behind=3))
    shop = Scripted()
    linked(shop, "one", "two")
    one, two, n = (shop.core.cell("shop", name, int) for name in ("one", "two", "n"))
    one.update(lambda value: value + 1)
    shop.ready = False
    shop.conflict(shop.layers()[0])
    n.increment()
    two.increment()
    with pytest.raises(LimitError, match="3 writes wait for document space:one to be written: await them"):
        shop.core.cell("shop", "two", int).increment()
    assert shop.replica.open_transactions.count == 0


def test_an_interrupt_leaves_the_writes_that_waited_with_it_where_they_were() -> None:
    shop = Scripted()
    n = shop.core.cell("shop", "n", int)

    def interrupt(_: int) -> int:
        raise KeyboardInterrupt

    n.update(interrupt)
    n.update(lambda value: value * 10)
    with pytest.raises(KeyboardInterrupt):
        shop.arrive("n", 1)
    shop.core.heard()
    shop.core.settle()
    assert n.get() == 10
    assert [str(failure.error)[:17] for failure in shop.errors] == ["KeyboardInterrupt"]


def test_an_interrupt_leaves_the_writes_that_are_made_again_with_it_where_they_were() -> None:
    shop = Scripted()
    n = shop.core.cell("shop", "n", int)
    shop.arrive("n", 1)
    calls: list[int] = []

    def interrupt_later(value: int) -> int:
        calls.append(value)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return value + 1

    n.update(interrupt_later)
    n.update(lambda value: value * 10)
    shop.replica.revert_unsent()
    with pytest.raises(KeyboardInterrupt):
        shop.core.tick()
    shop.core.settle()
    assert n.get() == 10
    assert len(shop.errors) == 1


def test_without_an_engine_there_is_always_room() -> None:
    async def work() -> None:
        async with Runtime() as rt:
            n, other = rt.cell("shop", "n", int, default=0), rt.cell("shop", "other", int, default=0)
            for number in range(2_000):
                n.set(number)
                other.increment()
            assert (n.get(), other.get()) == (1_999, 2_000)

    run(work)


def test_a_later_write_of_another_key_lands_after_a_whole_one_that_is_made_again() -> None:
    """Whatever the earlier one was told as: it may have been meant for all of the document."""
    shop = Scripted()
    counts = shop.core.cell("shop", "n", Mapping[str, int])
    shop.arrive("n", {"b": 1, "c": 1})
    counts.key("c").update(lambda value: value + 1)
    counts.set({"b": 35})
    counts.key("a").set(38)
    counts.key("b").increment()
    shop.conflict(shop.layers()[0])
    shop.core.heard()
    shop.core.settle()
    assert dict(counts.get()) == {"b": 36, "a": 38}


def test_documents_that_cannot_be_let_go_are_not_tried_over_and_over() -> None:
    hand = Hand()
    space = hand.spaces["shop"]
    asked: list[DocKey] = []
    unwatch = space.channel.unwatch

    class Counting:
        def __getattr__(self, name: str) -> object:
            return getattr(channel, name)

        def unwatch(self, doc: DocKey) -> bool:
            asked.append(doc)
            return unwatch(doc)

    channel, space.channel = space.channel, Counting()  # type: ignore[assignment]
    for number in range(1_200):
        space.release(space.document(f"d{number}"))
    space.trim(256)
    assert len(asked) <= 201


def test_write_that_waits_for_its_document_is_made_after_an_older_one_that_was_rejected_meanwhile() -> None:
    """After a lost connection, the newer write was never sent, and the verdict of the older one comes later."""
    shop = Scripted()
    n = shop.core.cell("shop", "n", tuple[int, ...], default=())
    shop.arrive("n", (0,))
    n.update(lambda value: (*value, 1))
    (older,) = shop.layers()
    older.send(older.local_seq)
    shop.replica.pending.sent(older)
    n.update(lambda value: (*value, 2))
    shop.replica.gap()
    shop.replica.revert_unsent()
    shop.core.settle()
    shop.replica.rejected(older.local_seq, Conflict(dead_layers=(older.local_seq,)))
    shop.core.settle()  # Now both wait for the document.
    shop.arrive("n", (0,))
    assert n.get() == (0, 1, 2)
    assert not shop.core.plain_writes.waits()
