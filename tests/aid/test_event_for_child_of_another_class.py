"""A stored event for a child is refused once its parent keeps a child of another class in the place of that child."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import headwater
from headwater import Cell, IntentRow, Piece, Runtime, cell, child, handler

LATER = timedelta(milliseconds=300)


class Draft(Piece, name="child_class.Draft"):
    text: Cell[str] = cell(default="")

    @handler
    def write(self, text: str) -> None:
        self.text.set(f"draft {text}")


class Printed(Piece, name="child_class.Printed"):
    margin: Cell[str] = cell(default="")

    @handler
    def write(self, text: str) -> None:
        self.margin.set(f"printed {text}")


class Page(Piece, name="child_class.Page"):
    is_printed: Cell[bool] = cell(default=False)

    @child
    def shown(self) -> Draft | Printed:
        return Printed() if self.is_printed.get() else Draft()

    @handler
    def write_later(self, text: str) -> None:
        shown = self.shown.get()
        shown.write.post_at(LATER, text)


@asynccontextmanager
async def opened(folder: Path, failures: list[BaseException]) -> AsyncIterator[tuple[Runtime, Page]]:
    async with headwater.open(folder) as rt:
        rt.on_error(failures.append)
        yield rt, await rt.space("s", user="ann").open(Page, "p")


async def ended(rt: Runtime) -> str:
    """The state in which the event of the child ends."""

    def of_child() -> list[IntentRow]:
        return [row for row in rt.intents() if row.stream == "s/p/shown/:write"]

    await rt.until(lambda: any(row.ended_us for row in of_child()))
    return of_child()[0].state


def test_stored_event_for_a_child_of_another_class_is_refused(tmp_path: Path) -> None:
    failures: list[BaseException] = []

    async def main() -> None:
        async with opened(tmp_path, failures) as (_, page):
            await page.write_later.send("one")
            page.is_printed.set(True)
        async with opened(tmp_path, failures) as (rt, page):
            assert await asyncio.wait_for(ended(rt), 30) == "refused"
            shown = page.shown.get()
            assert isinstance(shown, Printed)
            assert await shown.margin.pull() == ""

    asyncio.run(main())
    assert ["its piece is gone" in str(each) for each in failures] == [True]


def test_stored_event_for_a_child_whose_class_is_back_is_handled(tmp_path: Path) -> None:
    failures: list[BaseException] = []

    async def main() -> None:
        async with opened(tmp_path, failures) as (_, page):
            await page.write_later.send("one")
            page.is_printed.set(True)
        async with opened(tmp_path, failures) as (rt, page):
            page.is_printed.set(False)
            assert await asyncio.wait_for(ended(rt), 30) == "landed"
            shown = page.shown.get()
            assert isinstance(shown, Draft)
            assert await shown.text.pull() == "draft one"

    asyncio.run(main())
    assert failures == []
