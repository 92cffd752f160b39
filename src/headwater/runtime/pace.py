"""The pace of a writer: how many events it has on their way that may lose, while others keep writing what they read.

Under contention every attempt that is sent beside somebody's turn is lost, with all that stand on it. So after a
conflict fewer are sent at once, in the end one, which finds its place in the line; when it has its turn, what waits
behind it goes with it. Each that lands makes it one more. It never waits; the writer does.
"""

from __future__ import annotations

from headwater.runtime.effort import Effort, Outcome

__all__ = ["Pace"]


class Pace:
    """How many first attempts of events may be on their way at once."""

    __slots__ = ("_flying", "_has_turn", "_most", "_taken_along", "_window")

    def __init__(self, most: int) -> None:
        self._most = most
        self._window = float(most)
        self._flying = 0  # attempts without a verdict
        self._has_turn = False  # what was rejected before was sent again, and nothing was heard since
        self._taken_along: set[Effort] = set()  # that they land says nothing of those without a turn

    def admits(self, effort: Effort) -> bool:
        """Whether it may be tried now. What has its turn may, and whatever waits right behind it."""
        is_plain = effort.course is None or effort.is_sure
        return is_plain or effort.attempts > 0 or self._has_turn or self._flying < max(1, int(self._window))

    def sent(self, effort: Effort) -> None:
        """An attempt is on its way. Its effort counts it already."""
        self._flying += 1
        self._has_turn = self._has_turn or effort.attempts > 1
        if self._has_turn:
            self._taken_along.add(effort)

    def heard(self, effort: Effort, outcome: Outcome) -> None:
        """Its verdict is here."""
        self._has_turn = False
        if outcome is Outcome.STALE:
            self._window = max(1.0, min(self._window, self._flying) / 2)
        elif outcome is Outcome.SUCCESS and effort not in self._taken_along:
            self._window = min(self._window + 1, self._most)
        self._taken_along.discard(effort)
        self._flying -= 1
