"""Failures are grouped over all pages of them, and targets of a state are found behind pages of others."""

from __future__ import annotations

import pytest

from headwater import Piece, Refused, Topic, handler, reaction, topic
from headwater.runtime.api import reactions
from headwater.runtime.core.limits import RuntimeLimits
from headwater.testing import Simulation
from tests.scenario.events_kit import told


class Refusing(Piece):
    numbers: Topic[int] = topic(key=str)

    @handler
    def go(self, most: int) -> None:
        for number in range(most):
            self.numbers.emit(number)

    @reaction(on=numbers)
    async def refuse(self, number: int) -> None:
        if number % 2:
            raise Refused("odd")


def test_groups_and_targets_are_found_over_all_pages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reactions, "RUNTIME_LIMITS", RuntimeLimits(listed_targets=3))

    async def story(sim: Simulation) -> list[str]:
        rt = sim.runtime("ann")
        refusing = await rt.space("s").open(Refusing, "a")
        await refusing.go.send(10)
        await rt.reactions.drained()
        (name,) = [each.name for each in await rt.reactions.list()]
        groups = await rt.reactions.groups(name)
        assert sorted(len(group.keys) for group in groups) == [5]
        assert [each.key for each in await rt.reactions.targets(name, state="blocked", limit=4)] == ["1", "3", "5", "7"]
        assert len(await rt.reactions.targets(name, state="idle")) == 5
        return []

    assert told(story) == []
