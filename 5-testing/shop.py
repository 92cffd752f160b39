import asyncio
from datetime import UTC, datetime, timedelta

from headwater import Cell, Piece, Refused, cell, computed, handler
from headwater.testing import Simulation, simulated


class Auction(Piece):
    best: Cell[int] = cell(default=0)
    winner: Cell[str] = cell(default="")
    ends: Cell[datetime] = cell(default=datetime.max.replace(tzinfo=UTC))

    @computed
    def state(self) -> str:
        return f"{self.winner.get() or 'nobody'} at {self.best.get()}"

    @handler
    def open_for(self, hours: float) -> None:
        self.ends.set(self.ctx.now() + timedelta(hours=hours))

    @handler
    def bid(self, cents: int) -> None:
        if self.ctx.past(self.ends.get()):
            raise Refused("it is over")
        if cents <= self.best.get():
            raise Refused("too little")
        self.best.set(cents)
        self.winner.set(self.ctx.user)


@simulated(seeds=20, faults=("delay", "drop"))
async def test_the_highest_bid_wins_whatever_the_network_does(sim: Simulation) -> None:
    lots = {user: sim.runtime(user).space("house").piece(Auction, "vase") for user in ("ann", "bob", "cy")}

    async def bids(user: str, cents: list[int]) -> None:
        for each in cents:
            try:
                await lots[user].bid.send(each)
            except Refused:
                pass  # somebody else was faster

    await asyncio.gather(bids("ann", [10, 40]), bids("bob", [20, 50]), bids("cy", [30]))
    await sim.settle()
    assert [await lot.state.pull() for lot in lots.values()] == ["bob at 50"] * 3


@simulated(seeds=5)
async def test_an_hour_passes_at_once(sim: Simulation) -> None:
    lot = await sim.runtime("ann").space("house").open(Auction, "vase")
    await lot.open_for.send(1)
    await sim.advance(seconds=3_601)
    try:
        await lot.bid.send(10)
    except Refused as refused:
        assert refused.reason == "it is over"
    else:
        raise AssertionError("somebody bid after the end")


@simulated(seeds=5)
async def test_what_is_done_offline_lands_later(sim: Simulation) -> None:
    ann = await sim.runtime("ann").space("house").open(Auction, "vase")
    bob = await sim.runtime("bob").space("house").open(Auction, "vase")
    await sim.settle()
    with sim.offline("ann"):
        sent = asyncio.create_task(ann.bid.send(10))
        await sim.advance(seconds=5)
        assert await bob.best.pull() == 0
    await sent
    await sim.settle()
    assert await bob.best.pull() == 10
    assert sim.runs(Auction.state) == 0  # nobody looked at it
    assert sim.lost() == 0


test_the_highest_bid_wins_whatever_the_network_does()
test_an_hour_passes_at_once()
test_what_is_done_offline_lands_later()
