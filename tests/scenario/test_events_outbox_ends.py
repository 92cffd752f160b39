"""What an outbox keeps ends there, too; and what was taken up from a store holds up nobody without a connection."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

import headwater
from headwater import Cell, Piece, Policy, StorageError, cell, handler
from headwater.data.value import freeze
from headwater.errors import LimitError
from headwater.protocol.commit import SentEvent
from headwater.runtime import RemoteServer, Runtime
from headwater.testing import Simulation
from tests.scenario.events_kit import durable, stored, told
from tests.scenario.outbox_kit import full_disk, rows_in
from tests.scenario.runtime_kit import Cable
from tests.unit.runtime.kit import address, run, serving

SOON = Policy(grace_ms=1)


class Box(Piece, name="outbox_ends.Box"):
    seen: Cell[tuple[str, ...]] = cell(default=())

    @handler
    def put(self, text: str) -> str:
        self.seen.push(text)
        return text


async def some_turns() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


# ---- taking back what an outbox keeps ----------------------------------------------------------------------


@pytest.mark.parametrize("dies", [False, True])
def test_of_those_that_wait_behind_others_the_withdrawn_ones_are_not_handled(tmp_path: Path, dies: bool) -> None:
    path = tmp_path / "client.outbox"

    async def work() -> None:
        async with serving(tmp_path / "data", insecure_local=True) as server:
            where = address(server)
            cable = Cable(RemoteServer(where))
            client = Runtime(cable, outbox=path, close_s=0.01, policy=SOON)
            await client.space("s").piece(Box, "other").put.send("x")
            cable.unplug()
            box = client.space("s").piece(Box, "b")  # Only named: the first one waits for it to arrive.
            kept = box.put.post("front")
            sent = [box.put.options(durable=n % 2 == 0).post(str(n)) for n in range(6)]
            await some_turns()
            answers = [each.withdraw() for each in sent[:4]]
            assert answers == [True] * 4
            assert [each.withdraw() for each in sent[:4]] == answers  # Asked again, it is the same.
            assert {row.id for row in rows_in(path)} == {kept.id, sent[4].id, sent[5].id}
            if dies:
                with contextlib.suppress(LimitError):  # The others wait for a connection.
                    await client.close()
                client = Runtime(where, outbox=path, policy=SOON)
            else:
                cable.plug_in()
            await client.space("s").piece(Box, "b").put.send("last")
            await client.durable()
            assert await client.space("s").piece(Box, "b").seen.pull() == ("front", "4", "5", "last")
            assert rows_in(path) == []
            await client.close()

    run(work)


def test_event_that_the_outbox_cannot_remove_is_not_withdrawn(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path / "data", insecure_local=True) as server:
            cable = Cable(RemoteServer(address(server)))
            client = Runtime(cable, outbox=tmp_path / "client.outbox", policy=SOON)
            await client.space("s").piece(Box, "other").put.send("x")
            cable.unplug()
            box = client.space("s").piece(Box, "b")
            intent = box.put.post("front")
            with full_disk(), pytest.raises(StorageError, match="the outbox"):
                intent.withdraw()
            cable.plug_in()
            await client.durable()
            assert await box.seen.pull() == ("front",)
            await client.close()

    run(work)


def test_withdrawing_once_it_was_called_says_no_and_it_is_handled(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path / "data", insecure_local=True) as server:
            where = address(server)
            cable = Cable(RemoteServer(where))
            client = Runtime(cable, outbox=tmp_path / "client.outbox", policy=SOON)
            box = await client.space("s").open(Box, "b")
            await box.seen.pull()
            cable.unplug()
            await some_turns()
            intents = [box.put.options(durable=durable).post(f"{durable}") for durable in (False, True)]
            await some_turns()
            assert box.seen.get() == ("False", "True")
            assert [each.withdraw() for each in intents] == [False, False]
            assert len(rows_in(tmp_path / "client.outbox")) == 2
            cable.plug_in()
            await client.durable()
            await client.close()
            async with headwater.connect(where, token="") as rt:
                assert await rt.space("s").piece(Box, "b").seen.pull() == ("False", "True")

    run(work)


# ---- what was taken up, without a connection ---------------------------------------------------------------


async def taken_up_and_cut_off(sim: Simulation, name: str) -> list[str]:
    """What a dead process left is taken up, and the connection is lost in that moment: what is sent here is shown."""
    ann, eve = sim.runtime("ann"), sim.runtime("eve")
    box = await ann.space("s").open(Box, "b")
    eve.space("s")
    await sim.settle()
    channel = eve.channel("s")
    assert channel is not None
    said = {"args": {"text": "x"}, "cls": "outbox_ends.Box", "name": name, "user": "eve", "session": "e", "at": 0}
    rows = [SentEvent(f"1{n:04}", f"s/{name}:put", freeze(said), 0) for n in range(5)]
    await channel.land(lambda made: made.events.extend(rows), node="left behind")
    await sim.crash("eve")
    for _ in range(20_000):
        if ann.intents():
            break
        await sim.advance(seconds=0.001)
    taken_up = [row.stream for row in ann.intents() if row.ended_us is None]
    wrong = [] if taken_up == [f"s/{name}:put"] * 5 else [f"{taken_up} were taken up"]
    mine = tuple(f"mine {n}" for n in range(5))
    with sim.offline("ann"):
        await sim.advance(seconds=0.1)
        for text in mine:
            box.put.post(text)
        await sim.advance(seconds=1)
        if box.seen.get() != mine:
            wrong.append(f"{box.seen.get()} is shown")
        states = [row.state for row in ann.intents()]
        if states.count("left") != 5:
            wrong.append(f"what was taken up is {states}")
        if len(stored(sim)) != 5:
            wrong.append(f"{stored(sim)} is stored")
    await sim.settle()
    await sim.advance(seconds=10)
    await sim.settle()
    other = ann.space("s").piece(Box, name)
    await other.seen.pull()
    found = (*durable(sim, box, "seen"), *(durable(sim, other, "seen") if name != "b" else ()))
    if sorted(found) != sorted((*mine, *("x" * 5))):
        wrong.append(f"{found} is durable")
    return [*wrong, *(f"{each} is still stored" for each in stored(sim))]


@pytest.mark.parametrize("name", ["b", "only named"])
def test_what_was_taken_up_holds_up_nobody_without_a_connection(name: str) -> None:
    for seed in range(5):
        assert told(lambda sim: taken_up_and_cut_off(sim, name), seed=seed) == []
