"""Where a card of the board may be dropped."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser

from tests.browser.kit import Served
from tests.browser.test_board import add, board, card, chromium, person

__all__ = ["board", "chromium"]


@pytest.mark.parametrize("where", ["form input", "h2", "ol"])
def test_a_card_is_moved_wherever_in_a_column_it_is_dropped(chromium: Browser, board: Served, where: str) -> None:
    errors: list[str] = []
    ann = person(chromium, board, "ann", errors)
    add(ann, 0, "Buy tea")
    card(ann, 0, "Buy tea")
    done = ann.locator("section").nth(2)
    ann.locator("li", has_text="Buy tea").drag_to(done.locator(where))
    card(ann, 2, "Buy tea")
    assert done.locator("form input").input_value() == ""
    assert not errors


def test_a_card_that_is_dropped_on_a_field_of_the_page_writes_nothing_into_it(
    chromium: Browser,
    board: Served,
) -> None:
    errors: list[str] = []
    ann = person(chromium, board, "ann", errors)
    add(ann, 0, "Buy tea")
    card(ann, 0, "Buy tea")
    ann.locator("li", has_text="Buy tea").drag_to(ann.locator("#search"))
    assert ann.input_value("#search") == ""
    card(ann, 0, "Buy tea")
    assert not errors
