"""Reactions that are declared while nobody waits for it, and a disk that fails just then: no record is missed.

A commit that emits says itself who hears of it. Whatever becomes of a declaration by itself changes nothing of that.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headwater.engine import Engine
from headwater.errors import RuleRefusedError, StorageError
from headwater.protocol.commit import Declared
from headwater.protocol.messages import FromReplica, Transact
from headwater.protocol.reactions import Subscribe
from headwater.testing import Simulation
from tests.scenario.events_kit import read, told
from tests.scenario.test_reactions_attacked import BEGAN, Table, heard


def declared_in(message: FromReplica) -> list[Subscribe | Declared]:
    """The reactions that a message declares, by itself or with commits."""
    if isinstance(message, Subscribe):
        return [message]
    return [each for commit in message.commits for each in commit.declared] if isinstance(message, Transact) else []


@contextmanager
def refusing(sim: Simulation, cls: str) -> Iterator[None]:
    """The disk refuses every declaration of a class's reactions that comes by itself."""

    def arrived(engine: Engine, message: FromReplica) -> FromReplica:
        if isinstance(message, Subscribe) and f".{cls}." in message.reaction:
            raise StorageError("the disk is full (planted)")
        return message

    sim.server.front = arrived
    yield
    sim.server.front = None


@contextmanager
def failing(sim: Simulation, cls: str, times: int) -> Iterator[None]:
    """The disk fails at the first declarations of a class's reactions, by themselves or with a commit, and goes on."""
    left = [cls] * times

    def arrived(engine: Engine, message: FromReplica) -> FromReplica:
        if left and any(f".{cls}." in each.reaction for each in declared_in(message)):
            left.pop()
            raise StorageError("the disk is full (planted)")
        return message

    sim.server.front = arrived
    yield
    sim.server.front = None
    assert not left, "it was met"


def test_a_process_that_dies_behind_its_commit_leaves_a_record_that_the_next_one_delivers() -> None:
    """The disk refuses the declaration by itself, the commit lands, and nobody is left to say it again."""
    BEGAN.clear()

    async def story(sim: Simulation) -> list[str]:
        table = await sim.runtime("ann").space("s").open(Table, "a")
        sim.runtime("ann").reactions.abandon()
        with refusing(sim, "Row"):
            await table.say.send("1")
            await sim.crash("ann")
        sim.runtime("bob").space("s")
        await sim.advance(seconds=5)
        await sim.runtime("bob").reactions.drained()
        assert heard() == ["1"]
        return []

    assert told(story) == []


def test_one_that_another_process_declares_and_delivers_meanwhile_has_the_earlier_record_first() -> None:
    BEGAN.clear()

    async def story(sim: Simulation) -> list[str]:
        ann, bob = sim.runtime("ann"), sim.runtime("bob")
        table = await ann.space("s").open(Table, "a")
        ann.reactions.abandon()
        with refusing(sim, "Row"):
            await table.say.send("first")
        with sim.offline("ann"):
            theirs = await bob.space("s").open(Table, "a")
            await theirs.say.send("second")
            await bob.reactions.drained()
        await sim.advance(seconds=60)
        await bob.reactions.drained()
        assert heard() == ["first", "second"]
        return []

    assert told(story) == []


def test_a_parent_that_emits_to_its_childs_topic_while_the_disk_fails_misses_nothing() -> None:
    BEGAN.clear()

    async def story(sim: Simulation) -> list[str]:
        with failing(sim, "Row", 3):
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
        with failing(sim, "Table", 3):
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
        with failing(sim, "Row", 4):
            table.say.post("1")
            await sim.settle()
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
        sim.runtime("ann").reactions.abandon()
        sim.runtime("bob").space("s")
        await sim.advance(seconds=1)
        with failing(sim, "Row", 3):
            await table.say.send("1")
            await sim.advance(seconds=5)
        assert heard() == ["1"]
        return []

    assert told(story) == []


def test_what_is_known_to_have_landed_is_not_declared_with_every_commit() -> None:
    BEGAN.clear()
    said: list[tuple[str, ...]] = []

    def arrived(engine: Engine, message: FromReplica) -> FromReplica:
        for each in declared_in(message):
            said.append((type(each).__name__, each.reaction.rpartition(".")[0].rpartition(".")[2]))
        return message

    async def story(sim: Simulation) -> list[str]:
        sim.server.front = arrived
        rt = sim.runtime("ann")
        table = await rt.space("s").open(Table, "a")
        for number in range(4):
            await table.say.send(str(number))
            await table.shout.send(str(number))
        await rt.reactions.drained()
        assert sorted(heard()) == sorted([str(number) for number in range(4)] * 2)
        return []

    assert told(story) == []
    assert said == [("Subscribe", "Table"), ("Declared", "Row")]


def test_what_cannot_be_declared_refuses_the_event_that_emits_and_nothing_else() -> None:
    """Its name is another topic's: no record lands that nobody would hear of, with a connection or without."""
    BEGAN.clear()

    async def story(sim: Simulation) -> list[str]:
        rt = sim.runtime("ann")
        table = await rt.space("s").open(Table, "a")
        other = Subscribe(0, f"{Table.__module__}.Row.hear", "elsewhere")
        read(sim, lambda engines: engines["s"].deliver(other))
        with pytest.raises(RuleRefusedError, match="is for the records of 'elsewhere'"):
            await table.say.send("1")
        with sim.offline("ann"):
            table.say.post("2")
            await sim.advance(seconds=2)
        await sim.advance(seconds=20)
        await table.shout.send("3")
        await rt.reactions.drained()
        assert heard() == ["3"]
        return [row.state for row in rt.intents()]

    assert told(story) == ["failed", "failed", "landed"]
