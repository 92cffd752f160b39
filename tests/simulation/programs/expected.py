"""What a program has to show: the states of the naive model along the order in which its actions landed.

The player writes a tape: the id of each action at the moment it is applied, and everything that it was shown, with the
length of the tape then. A handler that begins anew is on the tape again; its last attempt is the one that landed.
`check` replays the tape since the last check and compares answers and shown values with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from headwater import Refused
from tests.simulation.programs.build import NaiveProgram
from tests.simulation.programs.description import Program, Remake, Send, Transact, Write

__all__ = ["Expected", "Mismatch", "Series", "Tape"]

Action = Send | Write | Transact | Remake

REFUSED: Final = "refused"
FAILED: Final = "failed"
DONE: Final = "done"


class Mismatch(AssertionError):
    """A program showed something that the naive model does not."""


class Intended(Exception):
    """Raised at the end of a transaction that is meant to fail."""


@dataclass(slots=True)
class Series:
    """The values that one sink or effect showed, with the length of the tape at each."""

    what: str
    value: Callable[[NaiveProgram], Any]
    since: int  # its first value is not older
    shown: list[tuple[int, Any]] = field(default_factory=list)
    is_told_changes: bool = False  # no value is shown twice in a row
    last: Any = None
    has_last: bool = False


@dataclass(slots=True)
class Look:
    """One value that was asked for, and the length of the tape before and after."""

    what: str
    value: Callable[[NaiveProgram], Any]
    before: int
    after: int
    got: Any


class Tape:
    """Ids of actions in the order in which they were applied, and what was seen meanwhile."""

    def __init__(self) -> None:
        self.entries: list[int] = []
        self.answers: dict[int, tuple[str, Any]] = {}
        self.looks: list[Look] = []

    def note(self, eid: int) -> None:
        self.entries.append(eid)

    def look(self, what: str, value: Callable[[NaiveProgram], Any], before: int, got: Any) -> None:
        """A value was asked for when the tape was `before` long, and answered now."""
        self.looks.append(Look(what, value, before, len(self.entries), got))

    def __len__(self) -> int:
        return len(self.entries)


class Expected:
    """The naive model of a program, at the state of the last check."""

    def __init__(self, program: Program, tape: Tape) -> None:
        self.naive = NaiveProgram(program)
        self._actions: dict[int, Action] = {}
        self._tape = tape
        self._checked = 0  # entries of the tape that were replayed

    def expect(self, eid: int, action: Action) -> None:
        """An action with this id may be on the tape."""
        self._actions[eid] = action

    def check(self, series: list[Series]) -> None:
        """Compare everything since the last check. Nothing may be under way."""
        entries = self._tape.entries
        last = {eid: at for at, eid in enumerate(entries)}
        first = self._checked
        states = [self.naive.world.cells]
        for at in range(first, len(entries)):
            eid = entries[at]
            if last[eid] == at:
                self._apply(eid)
            states.append(self.naive.world.cells)
        self._checked = len(entries)
        for look in self._tape.looks:
            span = range(max(look.before, first), look.after + 1)
            values = self._values(look.value, [states[at - first] for at in span])
            if look.got not in values:
                raise Mismatch(f"{look.what} answered {look.got!r}, and the model has {_told(values)}")
        self._tape.looks.clear()
        for each in series:
            self._check_series(each, first, states)
        self.naive.world.restore(states[-1])

    def _values(self, value: Callable[[NaiveProgram], Any], states: list[Any]) -> list[Any]:
        values = []
        for state in states:
            self.naive.world.restore(state)
            values.append(value(self.naive))
        return values

    def _check_series(self, series: Series, first: int, states: list[Any]) -> None:
        values = self._values(series.value, states)
        at = max(series.since, first)
        for position, got in series.shown:
            is_same = series.is_told_changes and series.has_last and series.last == got
            if is_same and all(value == got for value in values[at - first : position + 1 - first]):
                raise Mismatch(f"{series.what} told {got!r} twice in a row")
            found = next((j for j in range(at, position + 1) if values[j - first] == got), None)
            if found is None:
                raise Mismatch(f"{series.what} showed {got!r}, and the model has {_told(values[at - first :])}")
            at, series.last, series.has_last = found, got, True
        series.shown.clear()
        series.since = len(self._tape)
        if not series.has_last:
            raise Mismatch(f"{series.what} showed nothing, and the model has {values[-1]!r}")
        if series.last != values[-1]:
            raise Mismatch(f"{series.what} stays on {series.last!r}, and the model has {values[-1]!r}")

    def _apply(self, eid: int) -> None:
        """Apply an action to the model, and compare its answer."""
        action = self._actions[eid]
        expected = apply(self.naive, action)
        got = self._tape.answers.pop(eid, None)
        if got is not None and got != expected:
            raise Mismatch(f"{action} answered {got}, and the model answers {expected}")


def apply(naive: NaiveProgram, action: Action) -> tuple[str, Any]:
    """Apply an action to the model. Return its answer."""
    match action:
        case Send():
            try:
                return DONE, getattr(naive.pieces[action.piece], action.handler)(action.eid, action.n, action.w)
            except Refused:
                return REFUSED, None
            except ValueError:
                return FAILED, None
        case Write():
            naive.execute(action.text)
            return DONE, None
        case Transact():
            try:
                with naive.world.transaction():
                    for each in action.writes:
                        naive.execute(each.text)
                    if action.fails:
                        raise Intended
            except Intended:
                return FAILED, None
            return DONE, None
        case Remake():
            naive.world.forget(action.piece)
            return DONE, None


def _told(values: list[Any]) -> str:
    kept: list[Any] = []
    for value in values:
        if not kept or kept[-1] != value:
            kept.append(value)
    return " then ".join(repr(value) for value in kept[-12:])
