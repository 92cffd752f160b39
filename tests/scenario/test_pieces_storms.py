"""Handlers in bad weather: conflicts and cut connections, with follow-ups. Nothing is lost, nothing is done twice."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from random import Random

import pytest

from headwater import Cell, Piece, Refused, cell, computed, fold, handler
from tests.counts import scaled
from tests.scenario.pieces_kit import run
from tests.scenario.runtime_kit import TRANSPORTS, Cable, rig_on


class Bank(Piece):
    accounts: Cell[Mapping[str, int]] = cell(default={"a": 100, "b": 100, "c": 100})
    log: Cell[tuple[str, ...]] = cell(default=())
    total = fold(accounts, start=0, add=lambda n, x: n + x, remove=lambda n, x: n - x)

    @computed
    def richest(self) -> str:
        return max(self.accounts.get().items(), key=lambda entry: (entry[1], entry[0]))[0]

    @handler
    def move(self, source: str, target: str, cents: int) -> str:
        """Read, modify, write, on a fresh total, with a follow-up."""
        if self.total.get() != 300:
            raise AssertionError(f"money was made or lost: {self.total.get()}")
        left = self.accounts.key(source).get() - cents
        if left < 0:
            raise Refused("not enough")
        self.accounts.key(source).set(left)
        self.accounts.key(target).set(self.accounts.key(target).get() + cents)
        id = self.ctx.new_id()
        self.note.post(id)
        return id

    @handler
    def note(self, id: str) -> None:
        self.log.push(id)


async def storm(banks: list[Bank], random: Random, moves: int) -> tuple[list[str], int]:
    """Everybody moves money at once; what landed, and how many were refused."""
    sends = []
    for _ in range(moves):
        source, target = random.sample(["a", "b", "c"], 2)
        sends.append(random.choice(banks).move.send(source, target, random.randrange(1, 80)))
    ends = await asyncio.gather(*sends, return_exceptions=True)
    refused = [end for end in ends if isinstance(end, Refused)]
    landed = [end for end in ends if isinstance(end, str)]
    assert len(refused) + len(landed) == moves, [end for end in ends if not isinstance(end, (Refused, str))]
    return landed, len(refused)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_money_is_neither_made_nor_lost_when_everybody_moves_it(transport: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with rig_on(transport, tmp_path) as rig:
            runtimes = [rig.runtime()[0] for _ in range(3)]
            banks = [await rt.space("s").open(Bank, "b") for rt in runtimes]
            landed, _ = await storm(banks, Random(1), 40)
            for rt in runtimes:
                await rt.durable()
            log = await rig.agreed(*(bank.log for bank in banks))
            assert sorted(log) == sorted(landed)
            assert len(set(log)) == len(log)
            assert sum((await rig.agreed(*(bank.accounts for bank in banks))).values()) == 300
            assert [str(failure.error) for failure in rig.errors] == []

    run(work, too_long_s=60)


@pytest.mark.random
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_what_is_sent_over_cut_connections_is_handled_once(transport: str, tmp_path: Path) -> None:
    async def work(seed: int) -> None:
        random = Random(seed)
        async with rig_on(transport, tmp_path / str(seed)) as rig:
            pairs = [rig.runtime() for _ in range(3)]
            banks = [await rt.space("s").open(Bank, "b") for rt, _ in pairs]
            weather = asyncio.ensure_future(cutting(rig.cables, random))
            try:
                landed, _ = await storm(banks, random, 20)
                for rt, _ in pairs:
                    await rt.durable()
            finally:
                weather.cancel()
                for cable in rig.cables:
                    cable.plug_in()
            log = await rig.agreed(*(bank.log for bank in banks))
            assert sorted(log) == sorted(landed)
            assert sum((await rig.agreed(*(bank.accounts for bank in banks))).values()) == 300

    for seed in range(scaled(20)):
        run(lambda seed=seed: work(seed), too_long_s=60)  # type: ignore[misc]


async def cutting(cables: list[Cable], random: Random) -> None:
    """Cut somebody's connection now and then."""
    for _ in range(30):
        for _ in range(random.randrange(5, 60)):
            await asyncio.sleep(0)
        random.choice(cables).cut()
