"""Links: followed under tracking, through chains and into other spaces, and written through."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from headwater.cells.model import Model
from headwater.data.address import Link
from headwater.data.value import ABSENT
from headwater.errors import AbsentError, AuthoringError
from tests.unit.cells.handle_kit import Card, Cards, Hand


class Pair(Model):
    one: Link
    name: str = ""


def link(id: str, *path: str | int, space: str | None = None) -> Link:
    return Link(space=space, id=id, path=path)


def test_a_handle_on_a_link_reads_what_the_link_leads_to() -> None:
    hand = Hand()
    hand.cell(int, 7, id="target")
    hand.cell(Link, link("target"), id="x")
    assert hand.cell(int, id="x").get() == 7
    assert hand.cell(int, id="x").exists()


def test_a_handle_of_a_link_reads_the_link_itself() -> None:
    hand = Hand()
    hand.cell(int, 7, id="target")
    assert hand.cell(Link, link("target"), id="x").get() == link("target")
    assert hand.cell(Link | None, id="x").get() == link("target")


def test_a_link_on_the_way_is_followed_with_the_rest_of_the_path() -> None:
    hand = Hand()
    hand.cell(Cards, {"a": Card(title="there")}, id="cards")
    hand.cell(Link, link("cards"), id="x")
    assert hand.cell(Cards, id="x").key("a").at(lambda c: c.title).get() == "there"


def test_a_link_to_a_part_of_a_document_is_followed_there() -> None:
    hand = Hand()
    hand.cell(Cards, {"a": Card(title="there")}, id="cards")
    hand.cell(Link, link("cards", "a"), id="x")
    assert hand.cell(Card, id="x").get() == Card(title="there")


def test_a_reader_wakes_for_the_target_and_for_the_link_and_for_nothing_else() -> None:
    hand = Hand()
    a, b = hand.cell(int, 1, id="a"), hand.cell(int, 2, id="b")
    pointer = hand.cell(Link, link("a"), id="x")
    x = hand.cell(int, id="x")
    seen = hand.seen(x.get)
    a.set(10)
    hand.settle()
    assert seen == [1, 10]
    b.set(20)
    hand.settle()
    assert seen == [1, 10]
    pointer.set(link("b"))
    hand.settle()
    assert seen == [1, 10, 20]
    a.set(11)
    hand.settle()
    assert seen == [1, 10, 20]


def test_reader_through_a_link_sees_the_delete_of_a_value_equal_to_the_default_of_the_target() -> None:
    hand = Hand()
    target = hand.cell(int, 7, id="target", default=7)
    hand.cell(Link, link("target"), id="x")
    x = hand.cell(int, id="x")
    values, presences = hand.seen(lambda: x.get(0)), hand.seen(x.exists)
    x.delete()  # A delete of the cell itself would store its default.
    hand.settle()
    assert target.get() == 7
    assert (values, presences) == ([7, 0], [True, False])


def test_following_a_link_is_a_read_of_its_shape_and_of_the_target() -> None:
    hand = Hand()
    hand.cell(Cards, {"a": Card(title="x")}, id="cards")
    hand.cell(Link, link("cards"), id="p")
    x = hand.cell(Cards, id="p")
    node = hand.effect(lambda: x.key("a").at(lambda c: c.title).get())
    hand.settle()
    reads = {(repr(spot.document), spot.path, spot.depth.name) for spot in node.reads if spot is not None}
    assert ("document space:p", (), "SHAPE") in reads
    assert ("document space:cards", ("a", "title"), "DEEP") in reads
    assert not any("cards" in document and path == () for document, path, _ in reads)


def test_a_view_through_a_link_records_only_what_is_touched() -> None:
    hand = Hand()
    cards = hand.cell(Cards, {"a": Card(title="x"), "b": Card(title="y")}, id="cards")
    pointer = hand.cell(Link, link("cards"), id="p")
    x = hand.cell(Cards, id="p")
    seen = hand.seen(lambda: x.view()["a"].title)
    cards.key("b").at(lambda c: c.title).set("z")
    hand.settle()
    assert seen == ["x"]
    hand.cell(Cards, {"a": Card(title="other")}, id="others")
    pointer.set(link("others"))
    hand.settle()
    assert seen == ["x", "other"]


def test_a_chain_of_links_is_followed() -> None:
    hand = Hand()
    hand.cell(int, 7, id="d")
    for name, to in (("a", "b"), ("b", "c"), ("c", "d")):
        hand.cell(Link, link(to), id=name)
    assert hand.cell(int, id="a").get() == 7


def test_a_circle_of_links_is_found_and_named_and_heals_when_one_points_elsewhere() -> None:
    hand = Hand()
    hand.cell(int, 7, id="target")
    a = hand.cell(Link, link("b"), id="a")
    hand.cell(Link, link("a"), id="b")
    x = hand.cell(int, id="a")
    with pytest.raises(AuthoringError, match="links go round in circles: space:a -> space:b -> space:a"):
        x.get()
    seen = hand.seen(x.get)
    assert "round in circles" in str(hand.errors[0].error)
    a.set(link("target"))
    hand.settle()
    assert seen == [7]


def test_a_link_into_itself_is_found() -> None:
    hand = Hand()
    hand.cell(Link, link("a", "x"), id="a")
    with pytest.raises(AuthoringError, match="links go round in circles: space:a -> space:a"):
        hand.cell(int, id="a").get()


def test_a_link_that_cannot_be_followed_is_replaced_by_whoever_sets_or_deletes_where_it_stands() -> None:
    hand = Hand()
    hand.cell(Link, link("b"), id="a")
    hand.cell(Link, link("a"), id="b")
    hand.cell(Link, link("c"), id="c")
    hand.cell(Mapping[str, Link], {"k": link("d", "k"), "l": link("e")}, id="d")
    hand.cell(int, 5, id="e")
    a, c, d = hand.cell(int, id="a"), hand.cell(int, id="c"), hand.cell(Mapping[str, int], id="d")
    a.set(7)
    c.delete()
    d.key("k").set(8)
    d.key("l").set(9)
    hand.settle()
    assert (a.get(), hand.cell(int, id="b").get(), c.get(None), d.key("k").get()) == (7, 7, None, 8)
    assert hand.cell(int, id="e").get() == 9  # One that can be followed is.


def test_a_link_above_what_is_set_is_not_replaced() -> None:
    hand = Hand()
    hand.cell(Link, link("a"), id="a")
    with pytest.raises(AuthoringError, match="round in circles"):
        hand.cell(Mapping[str, int], id="a").key("k").set(1)
    assert hand.cell(Link, id="a").get() == link("a")


def test_a_chain_of_links_has_an_end() -> None:
    hand = Hand()
    hand.cell(int, 7, id="l40")
    for number in range(40):
        hand.cell(Link, link(f"l{number + 1}"), id=f"l{number}")
    with pytest.raises(AuthoringError, match=r"links go too far: .* Let one of them point elsewhere"):
        hand.cell(int, id="l0").get()
    assert hand.cell(int, id="l20").get() == 7


def test_a_sink_on_a_link_wakes_when_the_target_appears_later() -> None:
    hand = Hand()
    pointer = hand.cell(Link, id="x")
    x = hand.cell(int, id="x")
    seen: list[int] = []
    x.sink(seen.append)
    hand.settle()
    pointer.set(link("target"))
    hand.settle()
    assert seen == []
    hand.cell(int, 7, id="target")
    hand.settle()
    assert seen == [7]
    assert not hand.errors


def test_a_write_through_a_link_lands_at_the_target() -> None:
    hand = Hand()
    target = hand.cell(int, 1, id="target")
    pointer = hand.cell(Link, link("target"), id="x")
    x = hand.cell(int, id="x")
    x.set(5)
    x.increment(2)
    x.update(lambda n: n * 10)
    assert target.get() == 70
    assert pointer.get() == link("target")
    x.delete()
    assert hand.stored(target) is ABSENT
    assert pointer.get() == link("target")


def test_a_write_through_a_link_stands_on_the_link() -> None:
    hand = Hand()
    hand.cell(int, 1, id="target")
    hand.cell(Link, link("target"), id="x")
    x = hand.cell(int, id="x")
    hand.settle()
    x.set(5)
    (layer,) = hand.spaces["shop"].replica.pending.live()
    assert [(read.doc.id, read.path, read.depth.name) for read in layer.commit.reads] == [("x", (), "SHAPE")]


def test_a_part_is_written_through_a_link_to_something_that_is_made_by_its_default() -> None:
    hand = Hand()
    hand.cell(Link, link("cards"), id="x")
    x = hand.cell(Cards, id="x", default={})
    x.key("a").set(Card(title="made"))
    assert hand.cell(Cards, id="cards").get()["a"] == Card(title="made")


def test_a_link_inside_a_value_leads_to_a_cell_of_its_own() -> None:
    hand = Hand()
    hand.cell(Card, Card(title="x"), id="card")
    hand.cell(Pair, Pair(one=link("card")), id="pair")
    pair = hand.cell(Pair, id="pair")
    assert pair.at(lambda p: p.one).get() == link("card")
    cards = hand.cell(Cards, id="cards")
    hand.cell(Mapping[str, Link], {"a": link("card")}, id="cards")
    cards.key("a").at(lambda c: c.title).set("written through")
    assert hand.cell(Card, id="card").get().title == "written through"
    with pytest.raises(AbsentError, match="because nothing is at space:cards#/b"):
        cards.key("b").at(lambda c: c.title).set("nowhere")


def test_a_link_to_another_space_is_read_and_wakes_and_is_written_there() -> None:
    hand = Hand("shop", "stock")
    target = hand.cell(int, 1, id="tea", space="stock")
    hand.cell(Link, link("tea", space="stock"), id="x")
    x = hand.cell(int, id="x")
    seen = hand.seen(x.get)
    target.set(2)
    hand.settle()
    assert seen == [1, 2]
    x.set(3)
    x.increment()
    assert target.get() == 4
    hand.settle()
    assert seen == [1, 2, 4]


def test_a_link_to_a_space_that_this_runtime_does_not_have_says_so() -> None:
    hand = Hand()
    hand.cell(Link, link("tea", space="stock"), id="x")
    with pytest.raises(AuthoringError, match="this runtime has no space 'stock': open it first"):
        hand.cell(int, id="x").get()


def test_a_link_without_a_space_stays_in_the_space_it_is_stored_in() -> None:
    hand = Hand("shop", "stock")
    hand.cell(int, 1, id="n", space="shop")
    hand.cell(int, 2, id="n", space="stock")
    hand.cell(Link, link("n"), id="y", space="stock")
    hand.cell(Link, link("y", space="stock"), id="x")
    assert hand.cell(int, id="x").get() == 2
