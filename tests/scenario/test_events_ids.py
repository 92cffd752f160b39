"""What an event is called, and what is told of one that cannot even be called."""

from __future__ import annotations

from pathlib import Path

import pytest

import headwater
from headwater import Cell, Piece, cell, handler
from headwater.data.ids import minted_at
from headwater.errors import LoadError
from headwater.protocol.commit import SentEvent
from headwater.testing import Simulation
from tests.scenario.events_kit import Front, commits, durable, told
from tests.unit.runtime.kit import address, run, serving

POSTED: list[str] = []
MADE: list[str] = []


class Chain(Piece, name="ids.Chain"):
    seen: Cell[tuple[str, ...]] = cell(default=())
    mine: Cell[str] = cell(default="", scope="user")

    @handler
    def parent(self) -> str:
        self.seen.push("parent")
        POSTED.append(self.child.post().id)
        MADE.append(self.ctx.new_id())
        return MADE[-1]

    @handler
    def child(self) -> None:
        self.seen.push("child")

    @handler
    def only_posts(self) -> None:
        self.child.post()

    @handler
    def look(self) -> str:
        return self.mine.get()


async def a_parent_that_is_tried_again(sim: Simulation) -> list[str]:
    POSTED.clear()
    MADE.clear()
    chain = await sim.runtime("ann").space("s").open(Chain, "c")
    await sim.settle()
    now_us = int(sim.now().timestamp() * 1e6)
    with Front(sim) as front:
        front.reject("parent", 2)
        made = await chain.parent.send()
        await sim.settle()
    wrong = [] if len(POSTED) == len(set(POSTED)) == 3 else [f"its attempts posted {POSTED}"]
    if set(MADE) != {made}:
        wrong.append(f"its attempts made {MADE}")
    (landed,) = commits(sim, "s", ":parent")
    sent: tuple[SentEvent, ...] = landed.commit.events
    if [each.id for each in sent] != POSTED[-1:]:
        wrong.append(f"{sent} was stored")
    if not all(now_us <= minted_at(id) <= now_us + 10_000_000 for id in POSTED):
        wrong.append("an id does not say when it was made")
    return wrong if durable(sim, chain, "seen") == ("parent", "child") else [*wrong, f"{durable(sim, chain, 'seen')}"]


def test_ids_of_follow_ups_are_each_attempts_own_and_what_is_minted_is_the_same_in_all() -> None:
    assert told(a_parent_that_is_tried_again) == []


async def a_parent_that_writes_nothing(sim: Simulation) -> list[str]:
    """Its receipt is a commit like any other: its follow-up stands on that, and is handled once."""
    chain = await sim.runtime("ann").space("s").open(Chain, "c")
    with Front(sim) as front:
        front.reject("only_posts", 1)
        await chain.only_posts.send()
        await sim.settle()
    found = durable(sim, chain, "seen"), len(commits(sim, "s", ":only_posts")), len(commits(sim, "s", ":child"))
    return [] if found == (("child",), 1, 1) else [f"{found}"]


def test_a_parent_that_writes_nothing_has_its_follow_up() -> None:
    assert told(a_parent_that_writes_nothing) == []


def test_what_cannot_be_loaded_fails_the_send_that_reads_it_loudly_and_holds_up_nobody(tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            serving(tmp_path, insecure_local=True) as server,
            headwater.connect(address(server), token="") as rt,
        ):
            errors: list[BaseException] = []
            rt.on_error(errors.append)
            chain = rt.space("s", user="somebody else", session="x").piece(Chain, "c")
            with pytest.raises(LoadError, match="is not for 'local'"):
                await chain.look.send()
            assert await chain.parent.send()  # The lane goes on.
            chain.look.post()
            await rt.durable()
            assert "is not for 'local'" in str(errors)

    run(work)
