"""A resource begins its work on confirmed input, unless it says otherwise."""

from __future__ import annotations

from headwater import Cell, Piece, Ready, cell, handler, resource
from headwater.testing import Simulation, simulated

FETCHED: list[str] = []


class Page(Piece, name="confirmed.Page"):
    url: Cell[str] = cell(default="")

    @resource(url)
    async def careful(self, url: str) -> str:
        FETCHED.append(f"careful {url}")
        return url.upper()

    @resource(url, speculative=True)
    async def eager(self, url: str) -> str:
        FETCHED.append(f"eager {url}")
        return url.upper()

    @handler
    def go(self, url: str) -> None:
        self.url.set(url)


@simulated(seeds=10, faults=())
async def test_work_begins_when_its_input_is_confirmed_unless_it_is_speculative(sim: Simulation) -> None:
    page = await sim.runtime("ann").space("s").open(Page, "p")
    looks = [each.sink(lambda _: None) for each in (page.careful, page.eager)]
    await sim.settle()
    FETCHED.clear()
    with sim.offline("ann"):
        page.url.set("a")  # shown at once, and nobody knows yet whether it lands
        await sim.advance(seconds=5)
        assert FETCHED == ["eager a"]
    await sim.settle()
    assert FETCHED == ["eager a", "careful a"]
    assert (await page.careful.pull(), await page.eager.pull()) == (Ready("A"), Ready("A"))
    for each in looks:
        each.close()
