"""What every result of a graph without cycles ought to be, computed from cells and links alone.

The same rules as the nodes', answered from plain values. What is not here makes whoever needs it unknown. Knows nothing
of runs, passes or the scheduler.
"""

from __future__ import annotations

from collections.abc import Container

from headwater.data.value import MaybeValue
from headwater.replica import NOT_HERE, NotLoaded
from tests.simulation.replica_rules import KEYS, Look, Plan, Shown, number, said, walk


class _NotHere(Exception):
    """Something that a rule needs is not here."""


class Expected:
    """What every result of a graph without cycles ought to be, computed from cells and links alone."""

    def __init__(self, plan: Plan, shown: Shown, registered: Container[str]) -> None:
        self._plan = plan
        self._shown = shown
        self._registered = registered
        self._known: dict[str, MaybeValue | NotLoaded] = {}

    def stored(self, look: Look) -> object:
        return walk(look, self.shown)[1]

    def shown(self, name: str) -> MaybeValue | NotLoaded:
        if name in self._known:
            return self._known[name]
        writer = name.replace("side", "node") if name.startswith("side") else name
        if writer not in self._registered:
            return self._shown(name)
        self._known[name] = NOT_HERE  # as long as it is not known
        value = self._known[name] = self._value(writer)
        return value

    def _value(self, name: str) -> MaybeValue | NotLoaded:
        rule = self._plan.rule(name)
        try:
            value = rule.value(self._read)
            if rule.makes and rule.reads_made:
                keys = [key for key in KEYS if self._read(Look(rule.makes, key, "exists"))]
                value += sum(self._made(f"{name} {key}") for key in keys)
        except _NotHere:
            return self._shown(name)
        return value

    def _made(self, child: str) -> int:
        value = self._value(child)
        if not isinstance(value, int):
            raise _NotHere
        return value

    def _read(self, look: Look) -> int:
        stored = self.stored(look)
        if stored is NOT_HERE:
            raise _NotHere
        return number(said(look, stored))
