"""Records that a handler emits to a topic that is not its own piece's: whose they are, and what is refused."""

from __future__ import annotations

import gc

import pytest

from headwater import Piece, Topic, handler, reaction, topic
from headwater.errors import HandlerFailed
from headwater.testing import Simulation
from tests.scenario.events_kit import told
from tests.scenario.test_reactions_attacked import BEGAN, Table, heard


class Mouth(Piece):
    said: Topic[str] = topic()

    @handler
    def say(self, text: str) -> None:
        ELSEWHERE[0].emit(text)

    @reaction(on=said)
    async def hear(self, text: str) -> None:
        BEGAN.append((f"its own {text}", 0))


ELSEWHERE: list[Topic[str]] = []


def test_a_record_for_a_piece_that_nobody_has_any_more_is_still_that_ones() -> None:
    """Its topic is all that is left of it here, and whoever emits has one of the same name."""
    BEGAN.clear()

    async def story(sim: Simulation) -> list[str]:
        ann, bob = sim.runtime("ann"), sim.runtime("bob")
        await bob.space("s").open(Table, "a")
        await sim.settle()
        (table,) = (await ann.space("s").find(Table)).items
        ELSEWHERE[:] = [table.said]
        del table
        gc.collect()
        await (await ann.space("s").open(Mouth, "m")).say.send("1")
        await ann.reactions.drained()
        assert heard() == ["1"]
        return []

    assert told(story) == []


def test_a_record_for_a_topic_of_another_space_is_refused_with_what_to_do() -> None:
    BEGAN.clear()

    async def story(sim: Simulation) -> list[str]:
        rt = sim.runtime("ann")
        ELSEWHERE[:] = [(await rt.space("t").open(Table, "a")).said]
        mouth = await rt.space("s").open(Mouth, "m")
        with pytest.raises(HandlerFailed, match=r"is not of s, where this is handled.* Post to a handler there"):
            await mouth.say.send("1")
        await sim.advance(seconds=5)
        assert heard() == []
        return ["told"]

    assert told(story) == ["told"]


def test_a_topic_that_is_no_pieces_is_not_taken_for_one_of_whoever_emits() -> None:
    BEGAN.clear()

    async def story(sim: Simulation) -> list[str]:
        rt = sim.runtime("ann")
        ELSEWHERE[:] = [rt.space("s").topic("said", str)]
        await (await rt.space("s").open(Mouth, "m")).say.send("1")
        await sim.advance(seconds=5)
        assert heard() == []
        return []

    assert told(story) == []
