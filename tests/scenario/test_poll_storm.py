"""The poll: everybody votes at once, some from two windows, and every vote counts."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from datetime import timedelta

import pytest

from examples.poll.app import Poll
from headwater import Refused
from headwater.testing import Simulation, simulated
from tests.counts import scaled

VOTERS = 50
VOTES = max(100, scaled(2_000))
STORM_S = 30
OPTIONS = ("tea", "coffee", "water")


@pytest.mark.random
@simulated(seeds=1, faults=("delay",))
async def test_fifty_voters_storm_one_map_and_every_vote_is_counted(sim: Simulation) -> None:
    screen = await sim.runtime("screen").space("poll").open(Poll, "main")
    shown: list[object] = []
    looks = [screen.tally.sink(shown.append), screen.leader.sink(lambda _: None)]
    await sim.settle()
    draws = random.Random(sim.seed)
    votes = [
        # In bursts, so that some voters vote in both of their windows at once.
        (float(draws.randrange(STORM_S + 1)), draws.randrange(VOTERS), draws.randrange(2), draws.choice(OPTIONS))
        for _ in range(VOTES)
    ]
    began = sim.now()
    landed: list[tuple[str, int]] = []

    async def vote(after_s: float, voter: int, window: int, option: str) -> None:
        # Two windows of one voter are two runtimes: they collide, and the later one is made again.
        name = f"voter{voter}"
        place = sim.runtime(f"machine{(voter + window) % VOTERS}").space("poll", user=name).piece(Poll, "main")
        await asyncio.sleep(after_s)
        landed.append((name, await place.vote.send(option)))

    await asyncio.gather(*(vote(*each) for each in votes))
    assert sim.now() - began >= timedelta(seconds=STORM_S * 0.9)
    await sim.settle()

    kept = await screen.votes.pull()
    assert await screen.cast.pull() == VOTES == len(landed)
    by_voter = Counter(name for name, _ in landed)
    # Each vote of a voter stood on the one before it: none was lost under another.
    assert {name: vote.changes + 1 for name, vote in kept.items()} == by_voter
    for name, count in by_voter.items():
        assert sorted(changes for who, changes in landed if who == name) == list(range(count))
    assert await screen.tally.pull() == Counter(vote.option for vote in kept.values())
    # The screen alone looks at the tally; a frame that touched the votes makes it run twice at most.
    assert sim.runs(Poll.tally) <= 2 * VOTES
    assert sim.runs(Poll.leader) <= 2 * VOTES
    assert sim.attempts(Poll.vote) > VOTES  # Some collided, and were made again.
    assert sim.lost() == 0
    for look in looks:
        look.close()


@simulated(seeds=20, faults=("delay", "drop"))
async def test_after_the_deadline_nobody_votes_and_the_result_stands(sim: Simulation) -> None:
    poll = await sim.runtime("ann").space("poll", user="ann").open(Poll, "main")
    await poll.begin.send("What?", ("a", "b"), 60)
    await poll.vote.send("b")
    results: list[str] = []
    look = poll.result.sink(results.append)
    await sim.settle()
    await sim.advance(seconds=61)
    await sim.settle()
    assert results[-1] == "b it is"
    with pytest.raises(Refused, match="the poll is closed"):
        await sim.runtime("bob").space("poll", user="bob").piece(Poll, "main").vote.send("a")
    assert await poll.tally.pull() == {"b": 1}
    look.close()


@simulated(seeds=20, faults=("delay", "drop", "crash"))
async def test_a_vote_survives_the_server_and_the_last_word_counts(sim: Simulation) -> None:
    ann = sim.runtime("ann").space("poll", user="ann").piece(Poll, "main")
    assert await ann.vote.send("tea") == 0
    await sim.crash()
    assert await ann.vote.send("coffee") == 1
    await sim.settle()
    bob = sim.runtime("bob").space("poll", user="bob").piece(Poll, "main")
    assert await bob.tally.pull() == {"coffee": 1}
    assert await bob.mine.pull() is None
    assert await ann.mine.pull() == "coffee"


@simulated(seeds=1)
async def test_what_is_no_vote_is_refused(sim: Simulation) -> None:
    poll = sim.runtime("ann").space("poll", user="ann").piece(Poll, "main")
    with pytest.raises(Refused, match="there is no option 'beer'"):
        await poll.vote.send("beer")
    with pytest.raises(Refused, match="two different options"):
        await poll.begin.send("What?", ("a", "a"), 60)
    with pytest.raises(Refused, match="a day at most"):
        await poll.begin.send("What?", ("a", "b"), 1e9)
