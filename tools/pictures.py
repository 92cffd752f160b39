"""Makes the pictures of the documentation, from a real browser.

    .venv/bin/python -m tools.pictures

Two people, each in a browser session of their own, work on `examples/board`; both windows are put side by side in
`docs/pictures/board.png`. Needs the packages of `./dev check` and a browser.
"""

from __future__ import annotations

import base64
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, Page, sync_playwright

from tools import dev

ROOT: Final = Path(__file__).resolve().parent.parent
BOARD: Final = ROOT / "examples" / "board" / "app.py"
PICTURES: Final = ROOT / "docs" / "pictures"
WIDTH: Final = 920  # of a window, in which the columns stand side by side
HEIGHT: Final = 380
SHOWN: Final = 600  # the width of a window in the picture
MARGIN: Final = 16
SCALE: Final = 1.5

SIDE_BY_SIDE: Final = """
<style>
  body {{ margin: 0; padding: {margin}px; display: flex; gap: {margin}px; background: #d8dde3; }}
  img {{ width: {width}px; border-radius: 6px; box-shadow: 0 1px 5px #0005; }}
</style>
<img src="data:image/png;base64,{ann}"><img src="data:image/png;base64,{bob}">
"""


@contextmanager
def served(data: Path) -> Iterator[str]:
    """Run the board and yield its address."""
    command = [sys.executable, "-m", "headwater.cli", "run", str(BOARD), "--data", str(data), "--port", "0"]
    command.append("--insecure-local")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[-1]  # "app is at URL"
        finally:
            process.terminate()


def person(browser: Browser, url: str, name: str) -> Page:
    """Open the board for a user, in a session of its own."""
    page = browser.new_context(viewport={"width": WIDTH, "height": HEIGHT}, device_scale_factor=SCALE).new_page()
    page.goto(f"{url}?user={name}")
    page.wait_for_function("document.getElementById('state').textContent === 'live'")
    return page


def add(page: Page, column: int, title: str) -> None:
    """Add a card, and wait until it is shown."""
    section = page.locator("section").nth(column)
    section.locator("form input").fill(title)
    section.locator("form input").press("Enter")
    section.locator("li", has_text=title).wait_for()


def two_people(browser: Browser, url: str) -> bytes:
    """Return the picture of the board in the windows of two people."""
    ann, bob = person(browser, url, "ann"), person(browser, url, "bob")
    add(ann, 0, "Write the guide")
    add(bob, 0, "Draw the map")
    add(ann, 1, "Measure twice")
    add(bob, 2, "Choose a name")
    ann.locator("#title").fill("Sprint 12")
    ann.locator("#search").fill("guide")
    bob.wait_for_function("document.getElementById('title').value === 'Sprint 12'")
    ann.locator("li.found").wait_for()
    for page in (ann, bob):
        page.wait_for_function("document.querySelectorAll('li').length === 4")
        page.evaluate("document.activeElement.blur()")
    both = browser.new_context(device_scale_factor=SCALE).new_page()
    both.set_viewport_size({"width": 2 * SHOWN + 3 * MARGIN, "height": HEIGHT * SHOWN // WIDTH + 2 * MARGIN})
    shots = [base64.b64encode(page.screenshot()).decode() for page in (ann, bob)]
    both.set_content(SIDE_BY_SIDE.format(margin=MARGIN, width=SHOWN, ann=shots[0], bob=shots[1]), wait_until="load")
    return both.screenshot()


def main() -> int:
    path = dev.browser()
    if path is None:
        print("there is no browser: apt-get install chromium", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as scratch, served(Path(scratch)) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        picture = two_people(browser, url)
        browser.close()
    PICTURES.mkdir(exist_ok=True)
    (PICTURES / "board.png").write_bytes(picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
