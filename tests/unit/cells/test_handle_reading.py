"""Handles that are read: values, defaults, views, and what a handle is not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from headwater.cells.handle_base import NotAValue
from headwater.cells.model import Json
from headwater.data.value import ABSENT
from headwater.errors import AbsentError, AuthoringError, InvalidValueError, NotReadyError, UpstreamFailedError
from tests.unit.cells.handle_kit import Address, Card, Cards, Hand, Line


def test_what_was_set_is_read_at_once() -> None:
    hand = Hand()
    cell = hand.cell(int, 1)
    assert cell.get() == 1
    cell.set(2)
    assert cell.get() == 2


def test_something_absent_raises_and_names_the_address() -> None:
    cell = Hand().cell(int, id="count")
    with pytest.raises(AbsentError, match=r"nothing is at space:count: write it first, or read it with get\(default\)"):
        cell.get()
    assert cell.get(7) == 7
    assert cell.get(None) is None
    assert not cell.exists()


def test_a_default_is_read_as_long_as_nothing_is_written_and_is_not_stored() -> None:
    hand = Hand()
    cell = hand.cell(tuple[Line, ...], default=())
    assert cell.get() == ()
    assert cell.exists()
    assert hand.stored(cell) is ABSENT
    cell.push(Line(sku="tea", cents=450))
    assert cell.get() == (Line(sku="tea", cents=450),)
    cell.delete()
    assert cell.get() == ()


def test_a_default_that_does_not_fit_the_type_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="the default of shop/n does not fit: at the root: expected int"):
        Hand().cell(int, id="n", default="x")


def test_a_typed_value_is_decoded_once_per_version_and_elements_are_kept() -> None:
    hand = Hand()
    lines = hand.cell(tuple[Line, ...], (Line(sku="a", cents=1), Line(sku="b", cents=2)))
    first = lines.get()
    assert lines.get() is first
    lines.push(Line(sku="c", cents=3))
    second = lines.get()
    assert second is not first
    assert second[0] is first[0]
    assert second[1] is first[1]


def test_the_handle_of_a_part_is_the_same_so_that_it_decodes_once() -> None:
    hand = Hand()
    cards = hand.cell(Cards, {"a": Card(title="x")})
    assert cards.key("a") is cards.key("a")
    assert cards.key("a").get() is cards.key("a").get()
    assert cards.key("a").at(lambda c: c.title) is cards.key("a").at(lambda c: c.title)
    assert cards.key("a").at(lambda c: c.title).get() == "x"


def test_a_field_that_was_not_stored_reads_as_its_default() -> None:
    hand = Hand()
    hand.cell(Json, {"title": "old"}, id="card")
    card = hand.cell(Card, id="card")
    assert card.get() == Card(title="old")
    assert card.at(lambda c: c.points).get() == 1
    assert card.at(lambda c: c.points).exists()
    assert card.at(lambda c: c.address.town).get() == "unknown"


def test_a_part_of_something_absent_reads_the_same_part_of_the_default() -> None:
    card = Hand().cell(Card, default=Card(title="new", address=Address(town="Ulm")))
    assert card.at(lambda c: c.title).get() == "new"
    assert card.at(lambda c: c.address.town).get() == "Ulm"


def test_what_is_stored_as_something_else_says_so_and_where() -> None:
    hand = Hand()
    hand.cell(str, "text", id="x")
    with pytest.raises(InvalidValueError, match="expected int"):
        hand.cell(int, id="x").get()


# ---- subscriptions -----------------------------------------------------------------------------------


def test_an_effect_runs_again_only_when_what_it_read_differs() -> None:
    hand = Hand()
    card = hand.cell(Card, Card(title="a", points=1))
    titles = hand.seen(lambda: card.at(lambda c: c.title).get())
    card.set(Card(title="a", points=5))
    hand.settle()
    assert titles == ["a"]
    card.at(lambda c: c.title).set("b")
    hand.settle()
    assert titles == ["a", "b"]


def test_exists_hears_of_appearing_and_vanishing_and_of_nothing_else() -> None:
    hand = Hand()
    cards = hand.cell(Cards, {}, default={})
    seen = hand.seen(lambda: cards.key("a").exists())
    cards.key("a").set(Card(title="1"))
    hand.settle()
    cards.key("a").at(lambda c: c.title).set("2")
    hand.settle()
    cards.key("b").set(Card(title="3"))
    hand.settle()
    cards.key("a").delete()
    hand.settle()
    assert seen == [False, True, False]


def test_a_reader_of_an_absent_entry_wakes_when_it_appears() -> None:
    hand = Hand()
    cards = hand.cell(Cards, default={})
    seen = hand.seen(lambda: cards.key("a").at(lambda c: c.title).get("none"))
    cards.key("a").set(Card(title="here"))
    hand.settle()
    assert seen == ["none", "here"]


def test_absence_in_a_run_fails_the_node_which_wakes_when_there_is_something() -> None:
    hand = Hand()
    cell = hand.cell(int)
    seen = hand.seen(cell.get)
    assert seen == []
    assert [type(failure.error) for failure in hand.errors] == [AbsentError]
    cell.set(3)
    hand.settle()
    assert seen == [3]


# ---- views -------------------------------------------------------------------------------------------


def test_a_view_records_only_what_is_touched() -> None:
    hand = Hand()
    cards = hand.cell(Cards, {"a": Card(title="x"), "b": Card(title="y")})
    runs = hand.seen(lambda: cards.view()["a"].title)
    cards.key("b").at(lambda c: c.title).set("z")
    cards.key("a").at(lambda c: c.points).set(9)
    cards.key("c").set(Card(title="new"))
    hand.settle()
    assert runs == ["x"]
    cards.key("a").at(lambda c: c.title).set("X")
    hand.settle()
    assert runs == ["x", "X"]


def test_length_and_iteration_of_a_view_hear_of_keys_only() -> None:
    hand = Hand()
    cards = hand.cell(Cards, {"a": Card(title="x")})
    lengths = hand.seen(lambda: len(cards.view()))
    keys = hand.seen(lambda: tuple(cards.view()))
    cards.key("a").at(lambda c: c.title).set("y")
    hand.settle()
    assert (lengths, keys) == ([1], [("a",)])
    cards.key("b").set(Card(title="z"))
    hand.settle()
    assert (lengths, keys) == ([1, 2], [("a",), ("a", "b")])


def test_a_view_of_something_absent_raises_and_wakes_when_it_is_there() -> None:
    hand = Hand()
    cards = hand.cell(Cards)
    seen = hand.seen(lambda: len(cards.view()))
    assert isinstance(hand.errors[0].error, AbsentError)
    cards.set({"a": Card(title="x")})
    hand.settle()
    assert seen == [1]


def test_a_view_of_a_default_wakes_when_something_is_written() -> None:
    hand = Hand()
    cards = hand.cell(Cards, default={})
    seen = hand.seen(lambda: len(cards.view()))
    cards.key("a").set(Card(title="x"))
    hand.settle()
    assert seen == [0, 1]


def test_a_view_outside_a_run_reads_what_was_visible_when_it_was_opened() -> None:
    hand = Hand()
    cards = hand.cell(Cards, {"a": Card(title="x")})
    view = cards.view()
    cards.set({})
    assert list(view) == ["a"]
    assert list(cards.view()) == []


def test_a_view_from_outside_cannot_be_used_inside_a_run() -> None:
    hand = Hand()
    cards = hand.cell(Cards, {"a": Card(title="x")})
    view = cards.view()
    hand.seen(lambda: len(view))
    assert "was opened outside this run: call view() inside it" in str(hand.errors[0].error)


def test_a_view_of_another_run_cannot_be_used_in_this_one() -> None:
    hand = Hand()
    cards = hand.cell(Cards, {"a": Card(title="x")})
    kept: list[Any] = []
    hand.seen(lambda: kept.append(cards.view()))
    hand.seen(lambda: len(kept[0]))
    assert "was opened outside this run" in str(hand.errors[0].error)


def test_a_view_of_a_computed_is_of_its_fresh_value() -> None:
    hand = Hand()
    count = hand.cell(int, 1)
    listed = hand.computed(lambda: tuple(range(count.get())), tuple[int, ...])
    seen = hand.seen(lambda: tuple(listed.view()))
    count.set(3)
    hand.settle()
    assert seen == [(0,), (0, 1, 2)]


# ---- readiness ---------------------------------------------------------------------------------------


def test_outside_a_run_a_computed_that_never_ran_says_await_pull() -> None:
    hand = Hand()
    total = hand.computed(lambda: 1)
    with pytest.raises(NotReadyError, match=r"was never computed: await pull\(\) first"):
        total.get()
    hand.seen(total.get)
    assert total.get() == 1


def test_outside_a_run_a_document_that_is_not_here_says_await_pull() -> None:
    hand = Hand()
    cell = hand.core.cell("shop", "far", int)
    with pytest.raises(NotReadyError, match=r"space:far has not arrived yet: await pull\(\) first"):
        cell.get()


def test_outside_a_run_a_computed_that_failed_raises_with_its_cause() -> None:
    hand = Hand()
    total = hand.computed(lambda: 1 // 0)
    seen = hand.seen(total.get)
    with pytest.raises(UpstreamFailedError) as caught:
        total.get()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert seen == []


def test_a_failure_is_told_once_and_not_again_by_everybody_who_reads_it() -> None:
    hand = Hand()
    total = hand.computed(lambda: 1 // 0)
    twice = hand.computed(lambda: total.get() * 2)
    hand.seen(twice.get)
    hand.seen(twice.get)
    assert [type(failure.error) for failure in hand.errors] == [ZeroDivisionError]


# ---- what a handle is not ----------------------------------------------------------------------------

USES: dict[str, Callable[[Any], object]] = {
    "truth": bool,
    "negation": lambda h: not h,
    "iteration": list,
    "membership": lambda h: "x" in h,
    "length": len,
    "formatting": lambda h: f"{h}",
    "a format spec": lambda h: f"{h:>5}",
    "str": str,
    "percent formatting": lambda h: "%s" % h,  # noqa: UP031
    "equality with a value": lambda h: h == 1,
    "inequality with a value": lambda h: h != "x",
    "order": lambda h: h < 1,
    "reversed order": lambda h: h <= 1,
    "addition": lambda h: h + 1,
    "addition from the right": lambda h: 1 + h,
    "sum": lambda h: sum([h]),
    "subscript": lambda h: h["x"],
    "int": int,
    "float": float,
    "index": lambda h: [1, 2][h],
    "unpacking": lambda h: [*h],
    "negative": lambda h: -h,
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_handle_used_as_a_value_says_write_get(use: Callable[[Any], object]) -> None:
    cell = Hand().cell(int, 1, id="count")
    with pytest.raises(AuthoringError, match=r"<Cell space:count> is a handle, not a value, .* write \.get\(\)"):
        use(cell)


def test_a_handle_can_be_shown_hashed_and_compared_with_handles() -> None:
    hand = Hand()
    one, other = hand.cell(int, 1, id="a"), hand.cell(int, 1, id="a")
    assert repr(one) == "<Cell space:a>"
    assert one == one  # noqa: PLR0124
    assert one != other
    assert {one: 1}[one] == 1


def test_a_handle_has_no_room_for_attributes() -> None:
    cell = Hand().cell(int, 1)
    with pytest.raises(AttributeError):
        cell.total = 3  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        cell.get = lambda: 3  # type: ignore[method-assign, assignment]


def test_a_handle_of_a_class_without_slots_has_no_room_for_attributes_either() -> None:
    """As a compiled handle: it has a dictionary, and nothing may be put there."""

    class Loose(NotAValue):
        def __repr__(self) -> str:
            return "<Loose>"

        def get(self) -> int:
            return 1

    cell: Any = Loose()
    with pytest.raises(AttributeError, match=r"has no attribute 'total': a handle holds nothing\. Write \.set\(\)"):
        cell.total = 3
    with pytest.raises(AttributeError):
        cell.get = 3
    assert cell.get() == 1
    assert vars(cell) == {}


def test_streams_and_topics_are_no_values_either() -> None:
    hand = Hand()
    stream, topic = hand.core.stream("shop", "s", int), hand.core.topic("shop", "t", int)
    with pytest.raises(AuthoringError, match=r"is a handle, not a value, and has no truth: write \.post\(event\)"):
        bool(stream)
    with pytest.raises(AuthoringError, match=r"has no comparison with a value: write \.emit\(record\) to emit one"):
        assert topic == 1  # type: ignore[comparison-overlap]
    assert topic in {topic}


@pytest.mark.parametrize(
    ("of", "value"),
    [
        (int, lambda other: other),
        (Json, lambda other: {"a": [other]}),
        (tuple[int, ...], lambda other: (1, other)),
        (Mapping[str, int], lambda other: {"a": other}),
        (Line, lambda other: Line(sku="x", cents=other)),
        (int | None, lambda other: other),
    ],
    ids=["int", "Json", "tuple", "Mapping", "Model", "union"],
)
def test_a_handle_that_is_written_as_a_value_names_get(of: Any, value: Callable[[Any], Any]) -> None:
    hand = Hand()
    other = hand.cell(int, 1)
    with pytest.raises(InvalidValueError, match=r"it is a handle, not a value, so write \.get\(\)"):
        hand.cell(of).set(value(other))


def test_a_handle_that_is_used_as_a_key_names_get() -> None:
    hand = Hand()
    with pytest.raises(AuthoringError, match=r"is not a valid key here: .* so write \.get\(\)"):
        hand.cell(Mapping[str, int], {}).key(hand.cell(str, "a"))


def test_a_coroutine_is_no_value_and_is_not_left_behind() -> None:
    async def later(value: int) -> int:
        raise AssertionError("nobody awaits this")

    hand = Hand()
    cell = hand.cell(int, 1)
    with pytest.raises(InvalidValueError, match="nothing here awaits, so await it before"):
        cell.update(later)
    with pytest.raises(InvalidValueError, match="nothing here awaits, so await it before"):
        hand.cell(Json).set(later(1))


# ---- whose it is -------------------------------------------------------------------------------------


@pytest.mark.parametrize("look", ["get", "exists", "view", "absent"])
def test_a_handle_that_another_thread_reads_during_a_run_is_no_part_of_it(look: str) -> None:
    hand = Hand()
    mine, theirs = hand.cell(int, 1), hand.cell(Mapping[str, int], {"a": 1})
    far = hand.core.cell("shop", "far", int)
    errors: list[Exception] = []

    def elsewhere() -> None:
        try:
            {"get": theirs.get, "exists": theirs.exists, "view": lambda: theirs.view()["a"], "absent": far.view}[look]()
        except Exception as error:
            errors.append(error)

    def run() -> int:
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        return int(mine.get())

    seen = hand.seen(run)
    assert [str(error) for error in errors] == [
        "a runtime belongs to one thread: call rt.call(fn) to have fn called there, as in rt.call(piece.total.pull)"
    ]
    theirs.key("a").set(2)
    hand.settle()
    assert seen == [1]
    mine.set(2)
    hand.settle()
    assert seen == [1, 2]


def test_a_handle_used_on_another_thread_names_rt_call() -> None:
    hand = Hand()
    cell = hand.cell(int, 1)
    part = hand.cell(Mapping[str, int], {"a": 1}).key("a")
    apart = hand.core.current.apart
    caught: list[str] = []

    def elsewhere(work: Callable[[], object]) -> None:
        try:
            work()
        except AuthoringError as error:
            caught.append(str(error))

    uses = [cell.get, cell.exists, lambda: cell.set(2), cell.increment, cell.delete, lambda: cell.sink(print)]
    uses += [part.get, lambda: part.set(2), part.increment, part.delete]
    for use in uses:
        thread = threading.Thread(target=elsewhere, args=(use,))
        thread.start()
        thread.join()
    assert len(caught) == len(uses)
    assert all("a runtime belongs to one thread: call rt.call(fn)" in text for text in caught)
    assert (cell.get(), part.get()) == (1, 1)
    assert hand.core.current.apart == apart  # None was even begun.


@pytest.mark.parametrize("use", [lambda c: c.get(), lambda c: c.set(2), lambda c: c.increment()])
def test_a_handle_of_another_runtime_is_refused_inside_a_run(use: Callable[[Any], object]) -> None:
    mine, other = Hand(), Hand()
    foreign = other.cell(int, 1)
    mine.effect(lambda: use(foreign))
    mine.settle()
    assert "a run of another runtime is open: inside it, use the handles of that runtime" in str(mine.errors[0].error)
    assert foreign.get() == 1


def test_two_runtimes_on_one_thread_do_not_disturb_each_other_outside_runs() -> None:
    mine, other = Hand(), Hand()
    a, b = mine.cell(int, 1), other.cell(int, 2)
    assert (a.get(), b.get()) == (1, 2)
    seen = mine.seen(a.get)
    b.set(3)
    a.set(4)
    mine.settle()
    other.settle()
    assert (seen, b.get()) == ([1, 4], 3)


def test_a_mapping_reads_its_keys_by_their_type() -> None:
    hand = Hand()
    counts = hand.cell(Mapping[str, int], {"a": 1})
    assert counts.key("a").get() == 1
    with pytest.raises(AuthoringError, match="is not a valid key here"):
        counts.key(3)
    with pytest.raises(AuthoringError, match="has no keys"):
        hand.cell(int, 1).key("a")
