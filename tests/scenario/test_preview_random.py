"""Whatever happened while a program was away: a preview says what its start runs, and nothing clean would differ."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.counts import seldom
from tests.scenario.pieces_kit import run
from tests.scenario.preview_kit import named, previewed, shadow_of
from tests.scenario.resume_kit import SPACE, Process, Shop, filled, process

KEYS = ("k0", "k1", "k2", "k3", "k9")


async def _happens(other: Process, rng: random.Random) -> None:
    """Somebody sends to the shop, or writes to it, without running it."""
    shop = other.space.piece(Shop, "a")
    for _ in range(rng.randint(0, 4)):
        match rng.randrange(7):
            case 0 | 1:
                await shop.put.send(rng.choice(KEYS), rng.randint(0, 9))
            case 2:
                await shop.drop.send(rng.choice(KEYS))
            case 3:
                await shop.note.send(f"l{rng.randrange(4)}", rng.randint(-5, 50))
            case 4:
                await shop.name.send(rng.choice(("shop", "store", "stall")))
            case 5:
                await shop.touch.send()
            case _:
                await other.rt.space(SPACE).transact(lambda: shop.rate.set(rng.randint(1, 3)))


@pytest.mark.random
@pytest.mark.parametrize("seed", range(seldom(200)))
def test_a_preview_says_what_a_start_runs(tmp_path: Path, seed: int) -> None:
    async def story() -> None:
        rng = random.Random(seed)
        async with process(tmp_path) as first:
            await filled(await first.open())
            await first.settled()
        for _ in range(2):
            async with process(tmp_path) as other:
                await _happens(other, rng)
            report = await shadow_of(tmp_path)
            assert report.ok, report.findings
            found = await previewed(tmp_path)
            async with process(tmp_path) as again:
                shop = await again.open()
                ran = again.taken()
                there = {*shop.items.get(), *(line.id for line in shop.lines.get())}
                assert not again.errors
            known = {each.node.partition(" of ")[0].partition(", ")[0] for each in found.nodes}
            assert ran & known <= named(found, "rerun") | named(found, "may"), "nothing runs that was called clean"
            missed = {each for each in named(found, "rerun") - ran if _is_there(each, there)}
            assert not missed, "what is said to run again does"

    run(story)


def _is_there(node: str, there: set[str]) -> bool:
    """Whether the element that a node is of is still there."""
    parts = node.replace(":", "/").removesuffix(" row").split("/")
    of = [part for part in parts if part in (*KEYS, *(f"l{n}" for n in range(4)))]
    return all(part in there for part in of)
