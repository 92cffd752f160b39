"""Reactions that are declared while nobody waits for it, and a disk that fails just then: no record is missed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from headwater.engine.engine import Engine
from headwater.errors import StorageError
from headwater.protocol.reactions import Delivering, Delivers, Subscribe
from headwater.testing import Simulation
from tests.scenario.events_kit import told
from tests.scenario.test_reactions_attacked import BEGAN, Table, heard


@contextmanager
def failing(cls: str, times: int) -> Iterator[None]:
    """The engine fails at the first declarations of a class's reactions, and goes on."""
    real, left = Engine.deliver, [StorageError("the disk is full (planted)")] * times

    def deliver(self: Engine, question: Delivers) -> Delivering:
        if isinstance(question, Subscribe) and f".{cls}." in question.reaction and left:
            raise left.pop()
        return real(self, question)

    with patch.object(Engine, "deliver", deliver):
        yield
    assert not left, "it was met"


def test_a_parent_that_emits_to_its_childs_topic_while_the_disk_fails_misses_nothing() -> None:
    BEGAN.clear()

    async def story(sim: Simulation) -> list[str]:
        with failing("Row", 3):
            rt = sim.runtime("ann")
            table = await rt.space("s").open(Table, "a")
            await table.say.send("1")
            await rt.reactions.drained()
            assert heard() == ["1"], "drained says so, and it is so"
            await table.say.send("2")
            await rt.reactions.drained()
        assert heard() == ["1", "2"]
        return []

    assert told(story) == []


def test_what_was_emitted_without_a_connection_survives_a_disk_that_fails_when_there_is_one() -> None:
    BEGAN.clear()

    async def story(sim: Simulation) -> list[str]:
        rt = sim.runtime("ann")
        table = await rt.space("s").open(Table, "a")
        with failing("Table", 3):
            with sim.offline("ann"):
                table.shout.post("offline")
                await sim.advance(seconds=3)
            await sim.advance(seconds=10)
            await table.shout.send("online")
            await rt.reactions.drained()
        assert heard() == ["offline", "online"]
        return []

    assert told(story) == []


def test_a_connection_that_ends_while_the_disk_fails_changes_nothing_of_it() -> None:
    BEGAN.clear()

    async def story(sim: Simulation) -> list[str]:
        rt = sim.runtime("ann")
        table = await rt.space("s").open(Table, "a")
        with failing("Row", 4):
            await table.say.send("1")
            with sim.offline("ann"):
                await sim.advance(seconds=1)
            await table.say.send("2")
            await rt.reactions.drained()
        assert heard() == ["1", "2"]
        return []

    assert told(story) == []


def test_a_worker_that_delivers_elsewhere_hears_of_it_without_another_record() -> None:
    BEGAN.clear()

    async def story(sim: Simulation) -> list[str]:
        table = await sim.runtime("ann").space("s").open(Table, "a")
        sim.runtime("ann").pieces.reacting.kill()
        sim.runtime("bob").space("s")
        await sim.advance(seconds=1)
        with failing("Row", 3):
            await table.say.send("1")
            await sim.advance(seconds=5)
        assert heard() == ["1"]
        return []

    assert told(story) == []
