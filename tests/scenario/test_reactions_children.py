"""A record of a child, delivered by a process that does not have the child: its keeper is brought up to date first."""

from __future__ import annotations

from headwater import Piece, Topic, child, handler, reaction, topic
from headwater.testing import Simulation
from tests.scenario.events_kit import told

GOT: list[str] = []


class Leaf(Piece, name="reacting.child.Leaf"):
    said: Topic[str] = topic()

    @reaction(on=said, max_retries=0)
    async def hear(self, text: str) -> None:
        GOT.append(text)


class Tree(Piece, name="reacting.child.Tree"):
    @child
    def leaf(self) -> Leaf:
        return Leaf()

    @handler
    def say(self, text: str) -> None:
        self.leaf.get().said.emit(text)


def test_a_record_of_a_child_spends_no_attempt_because_its_worker_does_not_have_the_child_yet() -> None:
    GOT.clear()

    async def story(sim: Simulation) -> list[str]:
        ann, bob = sim.runtime("ann"), sim.runtime("bob")
        await ann.space("s").open(Tree, "a")
        ann.reactions.abandon()
        bob.space("s")
        await sim.advance(seconds=1)
        for n in range(5):
            other = await ann.space("s").open(Tree, f"k{n}")
            await other.say.send(str(n))
        await sim.advance(seconds=5)
        rows = await ann.reactions.list()
        failures = await ann.reactions.failures("reacting.child.Leaf.hear")
        return [f"{row.name} blocked={row.blocked}" for row in rows if row.blocked] + [
            f"{each.key}: {each.error}: {each.message}" for each in failures.attempts
        ]

    assert told(story) == []
    assert sorted(GOT) == list("01234")
