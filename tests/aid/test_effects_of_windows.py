"""Each named window of a user shows its own effects, also after a restart."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

import headwater
from headwater import Cell, Piece, cell, effect

LOG = "aid.windows"


class Page(Piece, name="aid.windows.Page"):
    title: Cell[str] = cell(default="A")

    @effect
    def show(self) -> None:
        # A log of Python has a fingerprint; a list of this test has none, and its effects would run at each start.
        logging.getLogger("aid.windows").info("%s: %s", self.ctx.session, self.title.get())


async def _open(folder: Path, *windows: str) -> None:
    """Open the piece in some windows of one user, one after the other, in a runtime of its own."""
    async with headwater.open(folder) as runtime:
        for window in windows:
            await runtime.space("one", user="ann", session=window).open(Page, "s")
            await runtime.settled()


def _shown(caplog: pytest.LogCaptureFixture) -> list[str]:
    shown = [each.getMessage() for each in caplog.records if each.name == LOG]
    caplog.clear()
    return shown


@pytest.mark.parametrize("before", [("left",), ("left", "right")], ids=["one window before", "two windows before"])
def test_window_that_is_new_after_a_restart_shows_its_effects(
    before: tuple[str, ...], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOG)
    asyncio.run(_open(tmp_path / "data", *before))
    assert _shown(caplog) == [f"{window}: A" for window in before]
    asyncio.run(_open(tmp_path / "data", *before, "new"))
    assert _shown(caplog) == ["new: A"]
    asyncio.run(_open(tmp_path / "data", "newer", *before))
    assert _shown(caplog) == ["newer: A"]
