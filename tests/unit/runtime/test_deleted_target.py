"""Whether the piece of a stored event is gone: an older version, or one without its member, cannot say."""

from __future__ import annotations

from headwater.runtime.events.deleted_target import is_gone
from headwater.testing import Simulation
from tests.scenario.events_kit import told
from tests.scenario.test_events_strangers import Tree

LEAF = "strangers.Leaf"


async def an_older_version(sim: Simulation) -> list[str]:
    ann = sim.runtime("ann")
    await ann.space("s").open(Tree, "t")
    await sim.settle()
    places = ("leaves/k", "branches/k", "leaves/k/branches/j")
    known = [await is_gone(ann.pieces, ann.core, ann.channel, f"s/t/{rest}:bump", LEAF) for rest in places]
    wrong = [] if known == [True, False, True] else [f"{known} are gone"]
    home = ann.pieces.find("s", "t")
    assert home is not None
    home.generation -= 1  # What is stored is of a newer version, and this runtime has not heard of it.
    is_decided = await is_gone(ann.pieces, ann.core, ann.channel, "s/t/leaves/k:bump", LEAF)
    return [*wrong, "an older version decided it"] if is_decided else wrong


def test_older_version_does_not_decide_that_a_child_is_gone() -> None:
    assert told(an_older_version) == []
