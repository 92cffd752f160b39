"""Handles that are written: whole values, parts, intents, and what a write implies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

import msgspec
import pytest

from headwater.cells.model import Json
from headwater.data.value import ABSENT
from headwater.errors import AbsentError, AuthoringError, InvalidValueError, LimitError
from headwater.replica.feed import Notification
from headwater.replica.transaction import BEHIND
from tests.unit.cells.handle_kit import Address, Card, Cards, Hand, Line


def told(hand: Hand) -> list[Notification]:
    """Every notification of the space, from now on."""
    heard: list[Notification] = []
    hand.spaces["shop"].replica.feed.subscribe(heard.append)
    return heard


def test_setting_what_is_there_changes_nothing() -> None:
    hand = Hand()
    cell = hand.cell(int, 1)
    heard = told(hand)
    cell.set(1)
    assert heard == []


def test_setting_what_only_a_pending_write_says_is_said_again() -> None:
    hand = Hand()
    cell = hand.cell(int, 1)
    hand.settle()
    cell.set(2)
    cell.set(2)
    assert len(hand.spaces["shop"].replica.pending) == 2  # The first may fall, and the second must not fall with it.


def test_a_value_of_another_type_is_refused_where_it_enters() -> None:
    hand = Hand()
    cell = hand.cell(int, 1)
    with pytest.raises(InvalidValueError, match="expected int, found 'x'"):
        cell.set("x")
    far = hand.core.cell("shop", "far", int)
    with pytest.raises(InvalidValueError, match="expected int"):
        far.set("x")
    assert cell.get() == 1


def test_fields_that_this_version_does_not_know_are_kept() -> None:
    hand = Hand()
    raw = hand.cell(Json, {"title": "a", "colour": "red"}, id="card")
    card = hand.cell(Card, id="card")
    card.set(Card(title="b"))
    assert raw.get()["colour"] == "red"
    assert raw.get()["title"] == "b"


def test_update_reads_and_replaces() -> None:
    hand = Hand()
    cell = hand.cell(int, 1)
    cell.update(lambda n: n + 1)
    assert cell.get() == 2


def test_update_of_something_absent_starts_from_the_default_or_raises() -> None:
    hand = Hand()
    counted = hand.cell(int, default=10)
    counted.update(lambda n: n + 1)
    assert counted.get() == 11
    with pytest.raises(AbsentError):
        hand.cell(int).update(lambda n: n + 1)


def test_update_that_raises_writes_nothing_and_raises() -> None:
    hand = Hand()
    cell = hand.cell(int, 1)
    with pytest.raises(ZeroDivisionError):
        cell.update(lambda n: n // 0)
    assert cell.get() == 1
    cell.set(2)
    assert cell.get() == 2


def test_two_updates_in_a_row_both_read_what_was_there() -> None:
    hand = Hand()
    cell = hand.cell(int, 0)
    for _ in range(50):
        cell.update(lambda n: n + 1)
        commit = hand.spaces["shop"].replica.pending.live()[-1]
        assert commit.commit.reads, "an update without its read could overwrite what somebody else wrote"
    assert cell.get() == 50


# ---- parts -------------------------------------------------------------------------------------------


def test_a_field_is_written_alone() -> None:
    hand = Hand()
    card = hand.cell(Card, Card(title="a"))
    heard = told(hand)
    card.at(lambda c: c.title).set("b")
    assert card.get() == Card(title="b")
    assert heard[0].touched == [("title",)]


def test_a_part_of_a_default_makes_the_rest_of_it_too() -> None:
    hand = Hand()
    card = hand.cell(Card, default=Card(title="a", points=3))
    card.at(lambda c: c.title).set("b")
    assert card.get() == Card(title="b", points=3)
    assert hand.stored(card)["points"] == 3


def test_a_part_of_a_field_that_was_never_stored_makes_the_field() -> None:
    hand = Hand()
    hand.cell(Json, {"title": "old"}, id="card")
    card = hand.cell(Card, id="card")
    card.at(lambda c: c.address.town).set("Ulm")
    assert card.get() == Card(title="old", address=Address(street="unknown", town="Ulm"))


def test_a_mapping_is_made_by_its_first_key() -> None:
    hand = Hand()
    counts = hand.cell(Mapping[str, Mapping[str, int]])
    counts.key("a").key("x").increment()
    counts.key("a").key("y").set(5)
    assert {k: dict(v) for k, v in counts.get().items()} == {"a": {"x": 1, "y": 5}}


def test_a_field_of_an_entry_that_is_not_there_cannot_be_written() -> None:
    hand = Hand()
    cards = hand.cell(Cards, {}, default={})
    with pytest.raises(AbsentError, match=r"cannot be written, because nothing is at space:c1#/a: write that first"):
        cards.key("a").at(lambda c: c.title).set("x")
    assert dict(cards.get()) == {}


def test_making_what_a_type_implies_stands_on_its_absence() -> None:
    """Two writers who both make a Mapping for their first key must not overwrite each other."""
    hand = Hand()
    cards = hand.cell(Cards, default={})
    cards.key("a").set(Card(title="x"))
    replica = hand.spaces["shop"].replica
    (layer,) = replica.pending.live()
    assert [(read.path, read.depth.name) for read in layer.commit.reads] == [((), "SHAPE")]
    cards.key("b").set(Card(title="y"))
    (read,) = replica.pending.live()[-1].commit.reads  # It lands after a write that may be rejected, or not at all.
    assert (read.path, read.layers) == (BEHIND, ((layer.local_seq, layer.local_seq),))
    hand.settle()
    cards.key("c").set(Card(title="z"))
    assert replica.pending.live()[-1].commit.reads == ()  # Now it is there: disjoint keys do not collide.


def test_an_intent_reads_nothing_even_where_nothing_is() -> None:
    hand = Hand()
    replica = hand.spaces["shop"].replica
    lines = hand.cell(tuple[str, ...], default=())
    lines.push("a")
    hand.cell(int).increment()
    assert [layer.commit.reads for layer in replica.pending.live()] == [(), ()]


# ---- intents -----------------------------------------------------------------------------------------


def test_push_appends_and_keeps_the_last() -> None:
    hand = Hand()
    log = hand.cell(tuple[str, ...])
    log.push("a", "b")
    log.push("c", keep=2)
    assert log.get() == ("b", "c")
    log.push()
    assert log.get() == ("b", "c")


def test_push_on_a_default_that_holds_something_keeps_it() -> None:
    hand = Hand()
    log = hand.cell(tuple[str, ...], default=("first",))
    log.push("second")
    assert log.get() == ("first", "second")


def test_add_and_discard_are_a_set() -> None:
    hand = Hand()
    for of in (frozenset[str], tuple[str, ...]):
        tags = hand.cell(of)
        tags.add("a")
        tags.add("b")
        tags.add("a")
        assert sorted(tags.get()) == ["a", "b"]
        tags.discard("a")
        tags.discard("never there")
        assert list(tags.get()) == ["b"]


def test_increment_starts_from_nothing_or_from_the_default() -> None:
    hand = Hand()
    count = hand.cell(int)
    count.increment()
    count.increment(4)
    assert count.get() == 5
    begun = hand.cell(int, default=10)
    begun.increment(-1)
    assert begun.get() == 9
    share = hand.cell(float)
    share.increment(0.5)
    assert share.get() == 0.5


@pytest.mark.parametrize(
    ("act", "of", "value", "message"),
    [
        (lambda c: c.push(1), int, 1, r"push needs a cell of a tuple, <Cell space:x> is int"),
        (lambda c: c.push("a"), frozenset[str], frozenset(), r"push needs a cell of a tuple"),
        (lambda c: c.add(1), int, 1, r"add needs a cell of a tuple or a frozenset"),
        (lambda c: c.discard(1), str, "x", r"discard needs a cell of a tuple or a frozenset"),
        (lambda c: c.increment(), str, "x", r"increment needs a cell of int or float, <Cell space:x> is str"),
        (lambda c: c.increment("a"), int, 1, r"expected int"),
        (lambda c: c.increment(True), int, 1, r"expected int"),
        (lambda c: c.push("a", keep=-1), tuple[str, ...], (), r"keep=-1: write how many elements stay, 0 or more"),
        (lambda c: c.push(3), tuple[str, ...], (), r"expected str, found 3"),
    ],
)
def test_an_intent_that_does_not_fit_the_type_is_refused(
    act: Callable[[Any], object], of: Any, value: Any, message: str
) -> None:
    cell = Hand().cell(of, value, id="x")
    with pytest.raises(AuthoringError, match=message):
        act(cell)
    assert cell.get() == value


def test_an_intent_on_something_of_another_type_says_so() -> None:
    hand = Hand()
    hand.cell(str, "text", id="x")
    with pytest.raises(AuthoringError, match="cannot be incremented"):
        hand.cell(int, id="x").increment()


def test_a_sum_that_no_number_can_hold_is_refused() -> None:
    count = Hand().cell(int, 2**53 - 1)
    with pytest.raises(LimitError, match="would lose digits"):
        count.increment()


def test_delete_removes_and_is_harmless_where_nothing_is() -> None:
    hand = Hand()
    cards = hand.cell(Cards, {"a": Card(title="x")})
    cards.key("a").delete()
    cards.key("a").delete()
    assert dict(cards.get()) == {}
    cards.delete()
    assert hand.stored(cards) is ABSENT
    cards.delete()


def test_a_field_without_a_default_cannot_be_deleted() -> None:
    hand = Hand()
    card = hand.cell(Card, Card(title="x", points=3))
    with pytest.raises(AuthoringError, match="is a field without a default and cannot be deleted: set it instead"):
        card.at(lambda c: c.title).delete()
    card.at(lambda c: c.points).delete()
    assert card.get() == Card(title="x")


# ---- inside runs -------------------------------------------------------------------------------------


def test_an_undeclared_write_in_a_run_raises_where_it_happens() -> None:
    hand = Hand()
    cell = hand.cell(int, 1, id="count")
    hand.effect(lambda: cell.set(2))
    hand.settle()
    assert "writes space:count, which it did not declare" in str(hand.errors[0].error)
    assert cell.get() == 1


def test_a_declared_side_write_lands_with_the_run_and_is_read_back_inside_it() -> None:
    hand = Hand()
    source, log = hand.cell(int, 1), hand.cell(tuple[int, ...], default=())
    inside: list[Any] = []

    def run() -> Any:
        log.push(source.get())
        inside.append(log.get())
        return source.get()

    total = hand.computed(run, writes=(log.document,))
    hand.seen(total.get)
    source.set(2)
    hand.settle()
    assert (log.get(), inside) == ((1, 2), [(1,), (1, 2)])
    assert not hand.errors


def test_parts_and_intents_on_a_typed_cell_inside_a_run() -> None:
    hand = Hand()
    source = hand.cell(str, "a")
    cards = hand.cell(Cards, default={})

    def run() -> int:
        name = source.get()
        card = cards.key(name)
        if not card.exists():
            card.set(Card(title=name))
        card.at(lambda c: c.points).increment()
        return len(cards.get())

    count = hand.computed(run, writes=(cards.document,))
    seen = hand.seen(count.get)
    source.set("b")
    hand.settle()
    assert seen == [1, 2]
    assert {key: card.points for key, card in cards.get().items()} == {"a": 2, "b": 2}
    assert not hand.errors


# ---- what is not here yet ----------------------------------------------------------------------------


def test_writes_to_a_document_that_is_not_here_wait_for_it_in_order() -> None:
    hand = Hand()
    lines = hand.core.cell("shop", "far", tuple[Line, ...], default=())
    lines.push(Line(sku="a", cents=1))
    lines.update(lambda all_: (*all_, Line(sku="b", cents=2)))
    lines.push(Line(sku="c", cents=3))
    assert [line.sku for line in lines.get()] == ["a", "b", "c"]


def test_a_field_inside_a_default_is_deleted_and_its_own_default_is_left() -> None:
    hand = Hand()
    card = hand.cell(Card, default=Card(title="x", points=5))
    card.at(lambda c: c.points).delete()
    assert card.get() == Card(title="x", points=1)
    stored = hand.stored(card)
    card.at(lambda c: c.points).delete()  # Every card has points: nothing is left to be taken away.
    assert hand.stored(card) is stored
    fresh = hand.cell(Card, default=Card(title="x"))
    with pytest.raises(AuthoringError, match="cannot be deleted: set it instead"):
        fresh.at(lambda c: c.title).delete()
    assert hand.stored(fresh) is ABSENT


def test_deleting_an_entry_of_a_default_twice_in_one_transaction_is_deleting_it_once() -> None:
    hand = Hand()
    cards = hand.cell(Cards, default={"a": Card(title="x"), "b": Card(title="y")})
    seen = hand.seen(lambda: sorted(cards.get()))
    cards.key("a").delete()
    cards.key("a").delete()
    hand.settle()
    assert seen == [["a", "b"], ["b"]]


def test_deleting_a_cell_puts_its_default_back() -> None:
    hand = Hand()
    cards = hand.cell(Cards, default={"a": Card(title="x")})
    cards.delete()
    assert sorted(cards.get()) == ["a"]
    assert sorted(hand.stored(cards)) == ["a"]


def test_an_increment_does_not_go_past_the_bounds_of_its_type() -> None:
    hand = Hand()
    cell = hand.cell(Annotated[int, msgspec.Meta(le=5)], 5)
    with pytest.raises(AuthoringError, match=r"would not look at the bounds of its type: use update\(fn\)"):
        cell.increment()
    with pytest.raises(InvalidValueError):
        cell.update(lambda value: value + 1)
    assert cell.get() == 5
