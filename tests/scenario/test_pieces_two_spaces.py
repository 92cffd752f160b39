"""Pieces of one space that were given handles of another: they read there, wake for it, and write only at home."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater import AuthoringError, Cell, HandlerFailed, Input, Piece, cell, computed, given, handler
from tests.scenario.pieces_kit import PLACES, at, run


class Prices(Piece):
    tea: Cell[int] = cell(default=450)
    log: Cell[tuple[str, ...]] = cell(default=())

    @handler
    def note(self, text: str) -> None:
        self.log.push(text)


class Stall(Piece):
    price: Input[int] = given()
    theirs: Cell[tuple[str, ...]] = given()
    sold: Cell[int] = cell(default=0)

    @computed
    def taken(self) -> int:
        return self.price.get() * self.sold.get()

    def doubled(self, n: int) -> int:
        """A plain method: it runs inside whoever calls it, and reads for that one."""
        return 2 * n * self.price.get()

    @computed
    def hoped_for(self) -> int:
        return self.doubled(self.sold.get())

    @handler
    def sell(self, n: int) -> int:
        self.sold.increment(n)
        return self.price.get() * n

    @handler
    def sell_and_tell(self, n: int) -> None:
        self.sold.increment(n)
        self.theirs.push(f"{n} sold")


@pytest.mark.parametrize("place", PLACES)
def test_what_is_read_in_another_space_wakes_its_reader(place: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with at(place, tmp_path) as site:
            rt = site.runtime()
            prices = await rt.space("market").open(Prices, "p")
            stall = await rt.space("street").open(Stall(price=prices.tea, theirs=prices.log), "s")
            assert await stall.sell.send(2) == 900
            seen: list[int] = []
            look = stall.hoped_for.sink(seen.append)
            assert [await stall.taken.pull(), await stall.hoped_for.pull()] == [900, 1_800]
            prices.tea.set(500)
            assert [await stall.taken.pull(), await stall.hoped_for.pull()] == [1_000, 2_000]
            await site.settled()
            assert seen[-1] == 2_000
            assert await stall.sell.send(1) == 500
            look.close()
            assert site.errors == []

    run(work)


@pytest.mark.parametrize("place", PLACES)
def test_a_handler_writes_its_own_space_only_and_then_nothing_of_it(place: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with at(place, tmp_path) as site:
            rt = site.runtime()
            prices = await rt.space("market").open(Prices, "p")
            stall = await rt.space("street").open(Stall(price=prices.tea, theirs=prices.log), "s")
            with pytest.raises(HandlerFailed) as failed:
                await stall.sell_and_tell.send(2)
            assert isinstance(failed.value.__cause__, AuthoringError)
            assert "another space" in str(failed.value.__cause__)
            assert (await stall.sold.pull(), await prices.log.pull()) == (0, ())

    run(work)
