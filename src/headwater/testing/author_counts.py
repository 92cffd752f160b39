"""What ran in an author's simulation, counted by member: completed runs, attempts, and calls of handlers.

Owns the counts, of all runtimes together, those that are gone included. A node is named by its space, its piece and
its member, from which the class is found while it runs. An `each` or a `child` counts the calls of its method, one for
each element that it looked at. Nothing is decided by it.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, Final

from headwater import Member
from headwater.data.trace import Failed, Ran, RunStarted, TraceEvent
from headwater.data.value import Value
from headwater.errors import AuthoringError
from headwater.pieces.declarations import ChildMember, EachMember, HandlerMember, TopicMember
from headwater.pieces.member import Declaration
from headwater.runtime.binding.events import Event
from headwater.runtime.binding.facet import Facet
from headwater.runtime.binding.handling import Handling
from headwater.runtime.binding.home import Home
from headwater.runtime.binding.pieces import Pieces
from headwater.testing.author_trace import Trace

_NODE: Final = re.compile(r"([^/]+)/([^:]*):(\w+)(.*)", re.DOTALL)
_ROW: Final = " row"

Key = tuple[type[Any], str, bool]
"""A class, the name a member is stored under, and whether it is of one of its elements."""


class Counts:
    """How often what ran."""

    __slots__ = ("_attempts", "_classes", "_runs", "_trace", "total")

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._runs: Counter[Key] = Counter()
        self._attempts: Counter[Key] = Counter()
        self._classes: dict[tuple[str, str], str] = {}  # of pieces that handled something
        self.total = 0

    def runs(self, member: Member[Any]) -> int:
        """Completed runs of a member's node, failed ones included."""
        if isinstance(_declared(member), (HandlerMember, TopicMember)):
            raise AuthoringError(f"runs({member!r}): it is no node. Ask attempts() of a handler, records() of a topic.")
        return _sum(self._runs, member)

    def attempts(self, member: Member[Any]) -> int:
        """How often a member's function was called: stopped and repeated attempts count, too."""
        return _sum(self._attempts, member)

    def ran(self, pieces: Pieces, who: str, event: TraceEvent) -> None:
        """Something happened to a node of a runtime."""
        if isinstance(event, RunStarted):
            self._count(self._attempts, pieces, event.node)
        elif isinstance(event, (Ran, Failed)):
            self.total += 1
            self._trace.note(who, "ran", event.node)
            self._count(self._runs, pieces, event.node)

    def handled(self, event: Event) -> None:
        """A handler is called."""
        self._classes[event.home.space.name, event.home.id] = event.home.outline.name
        self._attempts[event.home.cls, event.member.stored, False] += 1

    def class_of(self, space: str, id: str) -> str | None:
        """The name of the class of a piece that handled something."""
        return self._classes.get((space, id))

    def _count(self, counter: Counter[Key], pieces: Pieces, node: str) -> None:
        parts = _NODE.fullmatch(node)
        if parts is None:
            return  # It belongs to no member: somebody's own node, or a look from outside.
        space, id, stored, rest = parts.groups()
        is_row = rest.endswith(_ROW)
        if not rest or is_row or rest.startswith(" of "):
            home = home_of(pieces, space, id)
            if home is not None:
                counter[home.cls, stored, is_row] += 1


def home_of(pieces: Pieces, space: str, id: str) -> Home | None:
    """The piece of an id in a runtime."""
    return pieces._homes.get((space, id))


class CountedHandling(Handling):
    """Handles events as always, and counts the attempts."""

    __slots__ = ("_counts",)

    def __init__(self, pieces: Pieces, counts: Counts) -> None:
        super().__init__(pieces)
        self._counts = counts

    def _attempt(self, event: Event, facet: Facet, arguments: dict[str, Any]) -> Value:
        self._counts.handled(event)
        return super()._attempt(event, facet, arguments)


def _declared(member: Member[Any]) -> Declaration:
    if not isinstance(member, Member):
        raise AuthoringError(f"{member!r} is no member of a class: write the class and its name, like Cart.total")
    declared: Declaration = member.declaration
    return declared


def _sum(counter: Counter[Key], member: Member[Any]) -> int:
    declared = _declared(member)
    is_row = isinstance(declared, (EachMember, ChildMember))
    return sum(
        count
        for (cls, stored, of_row), count in counter.items()
        if stored == declared.stored and of_row == is_row and issubclass(cls, member.owner)
    )
