"""Runtimes on one space that do anything at any time, over connections that are cut: nothing lost, nothing twice."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headwater.runtime import Runtime
from tests.counts import scaled
from tests.scenario.runtime_kit import Cable, rig_on
from tests.unit.runtime.kit import run

STEPS = 60


class Member:
    """One runtime, its handles, and what it derives."""

    def __init__(self, name: str, runtime: Runtime, cable: Cable) -> None:
        self.name = name
        self.runtime = runtime
        self.cable = cable
        shop = runtime.space("shop")
        self.count = shop.cell("count", int, default=0)
        self.log = shop.cell("log", tuple[str, ...], default=())
        self.cards: Any = shop.cell("cards", Mapping[str, int], default={})
        self.double, self.sum = shop.cell("double", int), shop.cell("sum", int)
        runtime.register(lambda: self.count.get() * 2, output=self.double, id="double")
        runtime.register(lambda: self.double.get() + sum(self.cards.get().values()), output=self.sum, id="sum")
        self.subscription = self.sum.sink(lambda _: None)

    def look_or_not(self) -> None:
        self.subscription.close()
        self.subscription = self.sum.sink(lambda _: None)


class Storm:
    """What was meant to be written, beside what is."""

    def __init__(self, random: Random, members: list[Member]) -> None:
        self.random = random
        self.members = members
        self.counted = 0
        self.said: list[str] = []
        self.keys: dict[str, int] = {}

    async def step(self, number: int) -> None:
        random = self.random
        member = random.choice(self.members)
        match random.randrange(9):
            case 0 | 1:
                member.count.increment()
                self.counted += 1
            case 2:
                member.count.update(lambda n: n + 1)
                self.counted += 1
            case 3:
                said = f"{member.name} {number}"
                member.log.push(said)
                self.said.append(said)
            case 4:
                key = f"{member.name}{random.randrange(3)}"  # Everybody has keys of their own.
                member.cards.key(key).set(number)
                self.keys[key] = number
            case 5:
                member.cable.cut()
            case 6:
                member.look_or_not()
            case 7:
                if random.random() < 0.5:
                    member.cable.unplug()
                else:
                    member.cable.plug_in()
            case _:
                for _ in range(random.randrange(30)):
                    await asyncio.sleep(0)


@pytest.mark.random
@pytest.mark.parametrize("transport", ["embedded", "websocket"])
def test_runtimes_agree_after_any_storm(transport: str, tmp_path: Path) -> None:
    for seed in range(scaled(100)):
        run(lambda seed=seed: storm(seed, transport, tmp_path / str(seed)))  # type: ignore[misc]


async def storm(seed: int, transport: str, folder: Path) -> None:
    random = Random(seed)
    async with rig_on(transport, folder) as rig:
        members = [Member(f"m{n}", *rig.runtime()) for n in range(random.randrange(1, 4))]
        play = Storm(random, members)
        for number in range(STEPS):
            await play.step(number)
        for member in members:
            member.cable.plug_in()
        assert await rig.agreed(*[member.count for member in members]) == play.counted, f"seed {seed}"
        assert sorted(await rig.agreed(*[member.log for member in members])) == sorted(play.said), f"seed {seed}"
        cards = await rig.agreed(*[member.cards for member in members])
        assert dict(cards) == play.keys, f"seed {seed}"
        total = play.counted * 2 + sum(play.keys.values())
        assert await rig.agreed(*[member.sum for member in members]) == total, f"seed {seed}"
        wrong = [failure for failure in rig.errors if "connection" not in str(failure.error)]
        assert not wrong, f"seed {seed}: {wrong}"
