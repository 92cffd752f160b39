"""Two people with a browser each on the board, while the server is killed and comes back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.kit import ROOT, Served, browser, served

BOARD = ROOT / "examples" / "board" / "app.py"
WITHIN_MS = 20_000


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    path = browser()
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield launched
        launched.close()


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Served]:
    with served(BOARD, tmp_path / "data") as running:
        yield running


def person(chromium: Browser, board: Served, name: str, errors: list[str]) -> Page:
    """Somebody in a browser of their own, with the page open."""
    page = chromium.new_context(viewport={"width": 1200, "height": 720}).new_page()
    page.set_default_timeout(WITHIN_MS)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(f"{board.url}?user={name}")
    page.wait_for_function("document.getElementById('state').textContent === 'live'")
    return page


def add(page: Page, column: int, title: str) -> None:
    box = page.locator("section").nth(column).locator("form input")
    box.fill(title)
    box.press("Enter")


def card(page: Page, column: int, title: str) -> None:
    """Wait until a card is in a column."""
    page.locator("section").nth(column).locator("li", has_text=title).wait_for()


def test_two_browsers_share_a_board_through_the_death_of_the_server(
    chromium: Browser, board: Served, tmp_path: Path
) -> None:
    errors: list[str] = []
    ann, bob = person(chromium, board, "ann", errors), person(chromium, board, "bob", errors)
    for title in ("Write the guide", "Draw the map", "Measure twice"):
        add(ann, 0, title)
    for title in ("Write the guide", "Draw the map", "Measure twice"):
        card(bob, 0, title)
    ann.locator("li", has_text="Draw the map").drag_to(ann.locator("section").nth(2).locator("ol"))
    card(bob, 2, "Draw the map")
    bob.wait_for_function("document.querySelector('section:nth-child(3) h2 .points').textContent === '1 point'")

    board.kill()
    ann.wait_for_function("document.getElementById('state').textContent !== 'live'")
    add(ann, 1, "Said while it was down")  # It is sent when the server is back.
    board.start()
    card(bob, 1, "Said while it was down")
    card(ann, 1, "Said while it was down")
    card(bob, 2, "Draw the map")
    for page in (ann, bob):
        assert page.locator("li").count() == 4, page.locator("li").all_inner_texts()
    ann.fill("#title", "Sprint 12")
    bob.wait_for_function("document.getElementById('title').value === 'Sprint 12'")
    ann.screenshot(path=str(tmp_path / "board.png"))
    assert (tmp_path / "board.png").stat().st_size > 10_000
    assert not errors


def test_what_one_types_is_not_taken_from_under_their_fingers(chromium: Browser, board: Served) -> None:
    errors: list[str] = []
    ann, bob = person(chromium, board, "ann", errors), person(chromium, board, "bob", errors)
    ann.wait_for_function("document.getElementById('title').value === 'Our board'")
    ann.locator("#title").press("End")
    ann.locator("#title").press_sequentially(" and more", delay=20)
    bob.wait_for_function("document.getElementById('title').value.endsWith(' and more')")
    assert ann.input_value("#title").endswith(" and more")
    ann.fill("#search", "map")
    add(ann, 0, "Draw the map")
    ann.locator("li.found").wait_for()
    card(bob, 0, "Draw the map")
    assert bob.locator("li.found").count() == 0  # What is searched for is each window's own.
    assert not errors


def test_a_refusal_is_shown_where_it_was_asked_for(chromium: Browser, board: Served) -> None:
    errors: list[str] = []
    ann = person(chromium, board, "ann", errors)
    add(ann, 0, "   ")
    ann.locator("#notice", has_text="a card needs a title").wait_for()
    assert ann.locator("li").count() == 0
    assert not errors
