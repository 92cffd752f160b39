"""One place has one spot, however many handles lead to it and whoever comes or goes while they are looked at."""

from __future__ import annotations

from headwater.scheduler.node import check_node
from tests.unit.cells.handle_kit import Hand


def test_a_spot_that_its_last_reader_leaves_in_the_middle_of_a_run_is_still_the_one() -> None:
    """The run looked at it before; another handle of the same cell must not make it a second one."""
    hand = Hand()
    one = hand.cell(int, 1, id="cell")
    two = hand.core.cell("shop", "cell", int)
    other = hand.effect(one.get)
    hand.settle()
    seen: list[int] = []

    def look() -> None:
        seen.append(one.get())
        hand.core.remove(other)
        seen.append(two.get())

    node = hand.effect(look)
    hand.settle()
    assert seen == [1, 1]
    assert len(node.reads) == 2  # The place, and the end.
    one.set(2)
    hand.settle()
    assert seen == [1, 1, 2, 2]
    assert not hand.errors
    check_node(node)


def test_documents_that_several_handles_led_to_are_let_go_with_their_readers() -> None:
    hand = Hand()
    one, late = hand.cell(int, 1, id="cell"), hand.computed(lambda: hand.core.cell("shop", "cell", int).get())
    node = hand.effect(lambda: (one.get(), late.get()))
    hand.settle()
    assert one.document.twig is not None
    hand.core.remove(node)
    hand.core.remove(next(iter(hand.core.scheduler.registry)))
    assert one.document.twig is None
