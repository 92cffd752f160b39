"""The pictures of the documentation can be made again."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.browser.kit import browser
from tools.pictures import served, two_people


def test_picture_of_two_people_is_made_from_the_board(tmp_path: Path) -> None:
    path = browser()
    with served(tmp_path) as url, sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        picture = two_people(launched, url)
        launched.close()
    assert picture.startswith(b"\x89PNG")
    assert 10_000 < len(picture) <= 200_000
