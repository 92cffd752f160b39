"""What a program did and showed, compared with the naive model.

The player of a program calls a `Record` when something happens, from its own process or through a pipe. The record has
a tape: the id of each action at the moment it is applied. A handler that begins anew is on the tape again; its last
attempt is the one that landed. At a rest, when nothing is under way, the record replays the tape since the last rest on
the model, and compares answers and shown values with the states along it.

After a kill, some actions at the end of the tape may be lost, and none before an action of the same space that is kept.
The cells that the next process finds say how many.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

from headwater import AbsentError, Refused
from tests.simulation.programs.build import NaiveProgram
from tests.simulation.programs.description import ANN, By, PieceClass, Program, Remake, Send, Transact, Write, user_of
from tests.simulation.programs.naive import Address, CellDeclaration, Readable, World, reads_of
from tests.simulation.programs.stored import StoredSend

__all__ = [
    "DONE",
    "FAILED",
    "REFUSED",
    "Action",
    "Intended",
    "Mismatch",
    "Record",
    "apply",
    "check_whole",
    "effect_value",
    "is_handled",
    "member_value",
    "stored_form",
]

Action = Send | Write | Transact | Remake | By
Value = Callable[[NaiveProgram], Any]
"""Reads a value in the model."""

REFUSED: Final = "refused"
FAILED: Final = "failed"
DONE: Final = "done"
FOLLOW_UPS: Final = 1_000
"""The first id of an event that a handler posts."""


class Mismatch(AssertionError):
    """A program showed something that the naive model does not."""


class Intended(Exception):
    """Raised at the end of a transaction that is meant to fail."""


def member_value(piece: str, member: str, window: str = ANN) -> Value:
    """Read a member in the model."""

    def value(naive: NaiveProgram) -> Any:
        with naive.world.seen_from(window):
            return getattr(naive.pieces[piece], member).get()

    return value


def effect_value(piece: str, effect: str, window: str = ANN) -> Value:
    """Run an effect in the model."""

    def value(naive: NaiveProgram) -> Any:
        with naive.world.seen_from(window):
            return getattr(naive.pieces[piece], effect)()

    return value


def is_handled(path: str, opened: Collection[str]) -> bool:
    """Whether stored events for a path are handled with these pieces open. A child needs that its parent is open."""
    name, _, below = path.partition("/")
    return not below or name in {each.partition("@")[0] for each in opened}


def check_whole(naive: NaiveProgram, piece: str, effect: str, shown: tuple[Any, ...]) -> None:
    """Compare the computeds that the effect `whole` shows with the cells that it shows."""
    if effect == "whole" and (fits := naive.whole(piece, shown)) != shown:
        raise Mismatch(f"{piece} showed a mix: {shown!r}, and from these cells follows {fits!r}")


def apply(naive: NaiveProgram, action: Action) -> tuple[str, Any]:
    """Apply an action to the model. Return its answer."""
    match action:
        case Send():
            try:
                return DONE, getattr(naive.find(action.piece), action.handler)(action.eid, action.n, action.w)
            except Refused:
                return REFUSED, None
            except (ValueError, AbsentError):
                return FAILED, None
        case Write():
            naive.execute(action.text, action.piece)
            return DONE, None
        case Transact():
            try:
                with naive.world.transaction():
                    for each in action.writes:
                        naive.execute(each.text, each.piece)
                    if action.fails:
                        raise Intended
            except Intended:
                return FAILED, None
            return DONE, None
        case Remake():
            naive.world.forget(action.piece)
            return DONE, None
        case By(user=window, step=Send() | Write() | Transact() as inner):
            with naive.world.seen_from(window):
                return apply(naive, inner)
        case _:
            raise AssertionError(f"{action} is not applied to the model")


@dataclass(slots=True)
class Series:
    """The values that one sink or effect showed, each with the length of the tape then."""

    what: str
    value: Value
    since: int  # its first value is not older
    is_told_changes: bool = False  # no value is told twice in a row
    shown: list[tuple[int, Any]] = field(default_factory=list)
    last: Any = None
    has_last: bool = False
    is_unsure: bool = False  # whether the last value that it showed is stored is not known


@dataclass(frozen=True, slots=True)
class _Found:
    """The stored cells that have a document, and the stored events."""

    cells: Mapping[Address, Any]
    sends: Sequence[StoredSend]


@dataclass(slots=True)
class Look:
    """One value that was asked for, and the length of the tape before and after."""

    what: str
    value: Value
    before: int
    after: int
    got: Any


class Record:
    """Compares a program with the naive model, from rest to rest."""

    def __init__(self, program: Program) -> None:
        self._program = self._next = program
        self._world = World()
        self.naive = NaiveProgram(program, self._world)
        self._actions: dict[int, Action] = {}
        self._answers: dict[int, tuple[str, Any]] = {}
        self._tape: list[int] = []
        self._checked = 0  # entries of the tape that were replayed
        self._effects: dict[tuple[str, str], Series] = {}
        self._sinks: dict[int, Series] = {}
        self._open: set[str] = set()
        self._looks: list[Look] = []
        self._asked: dict[int, int] = {}  # pulls under way: the length of the tape at their beginning
        self._is_clean = False  # every node was looked at, and nothing was done since
        self._is_killed = False  # the last process was
        self._mixes: list[Mismatch] = []
        self._landed: set[int] = set()  # actions of processes before
        self._receipted: set[int] = set()  # those the rows of which the present process finds stored
        self._posted: set[int] = set()  # follow-ups and records that are to be handled
        self._refused = 0  # follow-ups and records that were refused
        self._has_closed = False  # a piece was closed or deleted
        self._fresh: set[str] = set()  # computeds that ran, and nothing that they read changed since

    # ---- what happens ------------------------------------------------------------------------------------

    def expect(self, action: Action, eid: int) -> None:
        """An action begins."""
        self._actions[eid] = action
        self._is_clean = False

    def note(self, eid: int) -> None:
        """An action is applied, or a handler begins an attempt."""
        self._is_clean = False
        if eid not in self._receipted:  # Otherwise its receipt refuses this attempt.
            self._tape.append(eid)

    def answer(self, eid: int, kind: str, value: Any) -> None:
        self._answers[eid] = kind, value

    def opens(self, piece: str) -> None:
        """A piece is about to be opened in a window. A clean effect that was open before need not run."""
        self._open.add(piece)
        name, _, window = piece.partition("@")
        for member in self._program.class_of(name).of_kind("effect"):
            series = self._effects.get((piece, member.name))
            if series is None or not series.has_last:
                what = f"the effect {piece}.{member.name}"
                value = effect_value(name, member.name, window or ANN)
                series = Series(what, value, len(self._tape))
            series.since = max(series.since, len(self._tape))
            self._effects[piece, member.name] = series

    def closed(self, piece: str) -> None:
        self._open.discard(piece)
        self._has_closed = True

    def deleted(self, piece: str) -> None:
        """A piece was deleted: another one of its name shows its values from the beginning."""
        self.closed(piece)
        for key in [key for key in self._effects if key[0].partition("@")[0] == piece]:
            del self._effects[key]
        eid = -len(self._tape) - 1
        self._fresh = {node for node in self._fresh if not node.startswith(f"{piece}:")}
        self.expect(Remake(piece), eid)
        self.note(eid)

    def show(self, piece: str, effect: str, values: tuple[Any, ...]) -> None:
        """An effect ran."""
        series = self._effects.get((piece, effect))
        if series is None or piece not in self._open:
            self._mixes.append(Mismatch(f"{piece}.{effect} ran, and {piece} is not open"))
            return
        series.shown.append((len(self._tape), values))
        try:
            check_whole(self.naive, piece.partition("@")[0], effect, values)
        except Mismatch as mismatch:
            self._mixes.append(mismatch)

    def watch(self, number: int, piece: str, member: str, window: str = ANN) -> None:
        is_each = member[0] not in "cxy"  # It is told once more when its piece is stopped.
        what = f"sink {number} of {window} on {piece}.{member}"
        self._sinks[number] = Series(what, member_value(piece, member, window), len(self._tape), not is_each)

    def told(self, number: int, value: Any) -> None:
        if number in self._sinks:
            self._sinks[number].shown.append((len(self._tape), value))

    def unwatch(self, number: int) -> None:
        self._sinks.pop(number, None)

    def asks(self, number: int) -> None:
        self._asked[number] = len(self._tape)

    def pulled(self, number: int, piece: str, member: str, value: Any, window: str = ANN) -> None:
        what = f"pull of {piece}.{member} by {window}"
        before = self._asked.pop(number)
        self._looks.append(Look(what, member_value(piece, member, window), before, len(self._tape), value))

    # ---- comparisons -------------------------------------------------------------------------------------

    def rest(self, errors: Sequence[str] = (), runs: Mapping[str, int] | None = None, refused: int = 0) -> None:
        """Nothing is under way: compare everything since the last rest, and the runs of computeds if they are known.

        The error channel told of `refused` events and records that nobody waits for.
        """
        if self._mixes:
            raise self._mixes[0]
        states = self._replay()
        self._forget_refused(states, refused)
        if refused != self._refused:
            raise Mismatch(
                f"{refused} follow-ups and records are refused, and the model answered it {self._refused} times"
            )
        if runs is not None and not self._has_closed:  # What is read of a closed piece is computed once more.
            self._check_runs(runs, states)
            self._world.restore(states[-1])
        if errors:
            raise Mismatch(f"told on the error channel: {errors[0]}")

    def beside(self, piece: str, member: str, value: Any) -> None:
        """The value that `get` returns at a rest, of a cell that a materializer writes or of something observed."""
        if (expected := member_value(piece, member)(self.naive)) != value:
            raise Mismatch(f"{piece}.{member} stays on {value!r}, and the model has {expected!r}")

    def looked_at_all(self) -> None:
        """Every piece is open, every member was pulled, and nothing is under way."""
        self._is_clean = True

    def _check_runs(self, runs: Mapping[str, int], states: list[Any]) -> None:
        """A computed runs at most once for each change of a value that it reads, and once if it was not up to date.

        It is up to date for certain if it ran that often: a run may have come before the last change.
        """
        for piece in self._program.pieces:
            for member in self._program.class_named(piece.of).members:
                is_shared = member.scope == "space"
                if member.name[0] != "c" or member.kind not in ("number", "pair", "table") or not is_shared:
                    continue
                node = f"{piece.name}:{member.name}"
                ran = runs.get(node, 0)
                changes = self._changes(piece.name, member.name, states)
                most = changes + (node not in self._fresh)
                if ran > most:
                    raise Mismatch(f"{node} ran {ran} times, and {changes} changes of its reads justify that")
                if ran == most:
                    self._fresh.add(node)
                else:
                    self._fresh.discard(node)

    def _changes(self, piece: str, member: str, states: list[Any]) -> int:
        """How often a value changed that a computed reads."""
        changes = 0
        handle = type(self.naive.pieces[piece]).__dict__[member]
        for before, after in itertools.pairwise(states):
            if before is after:
                continue
            self._world.restore(before)
            reads = reads_of(lambda: handle.fn(self.naive.pieces[piece]))
            self._world.restore(after)
            changes += any(read() != value for read, value in reads)
        return changes

    def _replay(self) -> list[Any]:
        first = self._checked
        states = self._states()
        for look in self._looks:
            span = range(max(look.before, first), look.after + 1)
            values = self._values(look.value, [states[at - first] for at in span])
            if look.got not in values:
                raise Mismatch(f"{look.what} answered {look.got!r}, and the model has {_told(values)}")
        self._looks.clear()
        effects = [each for (piece, _), each in self._effects.items() if piece in self._open]
        for series in [*effects, *self._sinks.values()]:
            self._check_shown(series, first, states)
            self._check_last(series, states[-1])
        self._world.restore(states[-1])
        return states

    def _states(self) -> list[Any]:
        """Apply the actions since the last rest, and return the states along them."""
        entries = self._tape
        last = {eid: at for at, eid in enumerate(entries)}
        states = [self._world.cells]
        for at in range(self._checked, len(entries)):
            eid = entries[at]
            if last[eid] == at:
                if eid not in self._actions and self._is_killed:
                    states.append(self._world.cells)
                    continue  # It was taken back with the handler that posted it.
                if eid not in self._actions:
                    raise Mismatch(f"the event {eid} ran, and no handler that landed posted it")
                if eid >= FOLLOW_UPS and eid not in self._posted and not self._is_killed:
                    raise Mismatch(f"{self._actions[eid]} ran again after it had landed")
                expected = apply(self.naive, self._actions[eid])
                self._follow_ups(eid, expected[0])
                got = self._answers.pop(eid, None)
                if got is not None and got != expected:
                    raise Mismatch(f"{self._actions[eid]} answered {got}, and the model answers {expected}")
            states.append(self._world.cells)
        self._checked = len(entries)
        return states

    def _follow_ups(self, eid: int, kind: str) -> None:
        """Take the events that the last action posted. If it was one of these itself, it is done."""
        if eid in self._posted:
            self._posted.discard(eid)
            if kind == REFUSED:
                self._refused += 1
        for each in self._world.posted:
            if isinstance(each.step, Send):
                self._actions[each.step.eid] = each
                self._posted.add(each.step.eid)
        self._world.posted.clear()

    def _forget_refused(self, states: list[Any], refused: int) -> None:
        """Take events as refused that were not handled because their child left. Those of a closed piece may wait."""
        awaited = {eid for eid in self._posted if is_handled(_path_of(self._actions[eid]), self._open)}
        gone = self._gone(states)
        if late := awaited - gone:
            raise Mismatch(f"{self._actions[min(late)]} answered nothing: it was not handled")
        others = max(refused - self._refused - len(awaited), 0)
        over = awaited | set(sorted(gone - awaited)[:others])
        self._posted -= over
        self._refused += len(over)

    def _gone(self, states: list[Any]) -> set[int]:
        """The events that are to be handled for children that are not there in one of some states."""
        gone: set[int] = set()
        for state in states if self._posted else ():
            self._world.restore(state)
            gone |= {eid for eid in self._posted if not self.naive.has(_path_of(self._actions[eid]))}
        self._world.restore(states[-1])
        return gone

    def _values(self, value: Value, states: list[Any]) -> list[Any]:
        values = []
        for state in states:
            self._world.restore(state)
            values.append(value(self.naive))
        return values

    def _check_shown(self, series: Series, first: int, states: list[Any]) -> None:
        """Every value is one that the model had, in order, and not before its time."""
        values = self._values(series.value, states)
        at = max(series.since, first)
        for position, got in series.shown:
            is_same = series.is_told_changes and series.has_last and series.last == got
            if is_same and all(value == got for value in values[at - first : position + 1 - first]):
                raise Mismatch(f"{series.what} told {got!r} twice in a row")
            found = next((j for j in range(at, position + 1) if values[j - first] == got), None)
            if found is None:
                raise Mismatch(f"{series.what} showed {got!r}, and the model has {_told(values[at - first :])}")
            at, series.last, series.has_last, series.is_unsure = found, got, True, False
        series.shown.clear()
        series.since = len(self._tape)

    def _check_last(self, series: Series, state: Any) -> None:
        """The last value that it showed is the present one."""
        if series.is_unsure:
            return
        (value,) = self._values(series.value, [state])
        if not series.has_last:
            raise Mismatch(f"{series.what} showed nothing, and the model has {value!r}")
        if series.last != value:
            raise Mismatch(f"{series.what} stays on {series.last!r}, and the model has {value!r}")

    # ---- processes ---------------------------------------------------------------------------------------

    def starts(self, classes: tuple[PieceClass, ...]) -> None:
        """Another process begins, with this code. Nothing is open in it."""
        self._next = replace(self._program, classes=classes)
        self._open.clear()
        self._fresh.clear()
        self._has_closed = False

    def _take_code(self) -> None:
        """Go on with the code of the present process."""
        if self._next.classes != self._program.classes:
            for each in self._effects.values():
                each.is_unsure = True
            self._is_clean = False
            self._program = self._next
            self.naive = NaiveProgram(self._program, self._world)

    def ran(self, nodes: Sequence[str]) -> None:
        """These nodes ran before the first step of a process. If everything was up to date before, there are none."""
        if self._is_clean and nodes:
            raise Mismatch(f"{', '.join(nodes)} ran after a restart without a change")

    def ended(self, *, is_killed: bool) -> None:
        """A process is gone. If it was killed, results of its nodes may not be stored, and are computed again."""
        self._is_killed = is_killed
        self._is_clean = self._is_clean and not is_killed

    def found(self, cells: Mapping[Address, Any], sends: Sequence[StoredSend]) -> None:
        """The cells and events that a process finds stored. After a kill they say which actions landed."""
        start, first, posted = self._world.cells, self._checked, frozenset(self._posted)
        tail = self._tape[first:]
        done = {eid for eid in tail if self._answers.get(eid, ("",))[0] == DONE}
        states = self._states()
        doubted: list[tuple[Series, Mismatch]] = []
        for series in [*self._effects.values(), *self._sinks.values()]:
            if series.shown:
                try:
                    self._check_shown(series, first, states)
                except Mismatch as mismatch:
                    if not self._is_killed:
                        raise
                    doubted.append((series, mismatch))
                series.is_unsure = self._is_killed
        self._looks.clear()
        self._answers.clear()
        self._sinks.clear()
        self._replay_landed(_Found(cells, sends), start, tail, done, posted)
        for series, doubt in doubted:
            self._check_without_lost(series, doubt, start, first, tail)
        if self._is_killed:
            self._forget_uncertain(start)
        self._checked = len(self._tape)
        self._refused = 0  # The error channel of another process tells of its own events.
        self._receipted = {each.send.eid for each in sends} & self._landed
        self._is_killed = False
        self._is_clean = self._is_clean and not sends
        for series in self._effects.values():
            series.since = len(self._tape)
        self._take_code()

    def _check_without_lost(
        self, series: Series, doubt: Mismatch, start: dict[Address, Any], first: int, tail: list[int]
    ) -> None:
        """Compare what a killed process showed with states without the actions that did not land.

        The last attempt of an event is on the tape. If it was taken back, and the process was killed before another
        one, what was shown in between is without it.
        """
        final, landed = self._world.cells, set(self._tape[first:])
        last = {eid: at for at, eid in enumerate(tail)}
        self._world.restore(start)
        states = [start]
        for at, eid in enumerate(tail):
            if eid in landed and last[eid] == at:
                apply(self.naive, self._actions[eid])
                self._world.posted.clear()
            states.append(self._world.cells)
        try:
            self._check_shown(series, first, states)
        except Mismatch:
            raise doubt from None
        finally:
            self._world.restore(final)
        series.is_unsure = True

    def _forget_uncertain(self, certain: Mapping[Address, Any]) -> None:
        """Take first writes of a default as lost with their process: then the next write is the first one."""
        kept = {}
        for (path, name), value in self._world.cells.items():
            declared = type(self.naive.pieces[path]).__dict__.get(name) if path in self.naive.pieces else None
            is_default = isinstance(declared, CellDeclaration) and declared.default == value
            if (path, name) in certain or not is_default:
                kept[path, name] = value
        self._world.restore(kept)

    def _replay_landed(
        self, found: _Found, start: dict[Address, Any], tail: list[int], done: set[int], posted: frozenset[int]
    ) -> None:
        """Replay the actions at the end of the tape that landed, by the cells and events that were found.

        Of each space some last actions of each window may be lost, and none before an acknowledged one. Spaces do not
        wait for each other, and neither do the sessions of windows. An event or a record that is stored has landed if
        its receipt is stored, too: that one was refused is stored by itself, and told after that.
        """
        waiting = {each.send.eid for each in found.sends if not each.is_handled} - done
        order = [eid for at, eid in enumerate(tail) if eid not in tail[at + 1 :] and eid not in waiting]
        spaces: dict[str, list[int]] = {}
        for eid in order:
            action = self._actions[eid]
            window = action.user if isinstance(action, By) else ANN
            spaces.setdefault(f"{self._space_of(action)} of {window}", []).append(eid)
        least = [max([at + 1 for at, eid in enumerate(eids) if eid in done], default=0) for eids in spaces.values()]
        ranges = [range(low, len(eids) + 1) for low, eids in zip(least, spaces.values(), strict=True)]
        missing: list[str] = []
        for kept in sorted(itertools.product(*ranges), key=sum, reverse=True):
            landed = {eid for count, eids in zip(kept, spaces.values(), strict=True) for eid in eids[:count]}
            self._world.restore(start)
            self._posted = set(posted)
            states = [start]
            unposted = 0
            for eid in order:
                if eid in landed:
                    unposted += eid >= FOLLOW_UPS and eid not in self._posted
                    apply(self.naive, self._actions[eid])
                    self._follow_ups(eid, DONE)
                    states.append(self._world.cells)
            self._posted -= self._gone(states) - {each.send.eid for each in found.sends}
            if unposted:
                continue  # A follow-up is handled when the handler that posted it has landed.
            missing = [*self._wrong_cells(found.cells), *self._wrong_events(found.sends, landed)]
            if not missing:
                self._tape[len(self._tape) - len(tail) :] = [eid for eid in order if eid in landed]
                self._landed |= landed
                return
        raise Mismatch(f"what a process found stored answered to no end of the tape: {missing[0]}")

    def _wrong_cells(self, cells: Mapping[Address, Any]) -> Iterator[str]:
        """The cells that have another value in the store than in the model."""
        for path, member in sorted({*cells, *self._world.cells}):
            if path not in self._world.pieces:
                continue
            declared = type(self._world.pieces[path]).__dict__[member.partition("@")[0]]
            expected = stored_form(self._world.cells.get((path, member), declared.default))
            got = cells.get((path, member), declared.default)
            if got != expected:
                yield f"{path}.{member} is {got!r}, not {expected!r}"

    def _wrong_events(self, sends: Sequence[StoredSend], landed: set[int]) -> Iterator[str]:
        """The events that are stored and not to be handled, and those that are to be handled and not stored.

        The row of an event that is stored in another space than its own is deleted after the event is handled.
        """
        for eid in self._posted - {each.send.eid for each in sends}:
            yield f"{self._actions[eid]} is not stored"
        for each in sends:
            action = self._actions.get(each.send.eid)
            is_elsewhere = each.space != self._space_of(action or each.send)
            is_over = each.is_handled and is_elsewhere and each.send.eid in self._landed | landed
            if each.send.eid not in self._posted and not is_over:
                yield f"{each.send} is stored"
            elif not isinstance(action, By) or (action.step, user_of(action.user)) != (each.send, each.user):
                yield f"{each} is stored, not {action}"

    def _space_of(self, action: Action) -> str:
        """The space that an action writes."""
        return self._program.piece_named(_piece_of(action)).space


def _path_of(action: Action) -> str:
    """The path of the piece or child that an action writes."""
    while isinstance(action, By):
        action = cast(Action, action.step)
    return action.writes[0].piece if isinstance(action, Transact) else action.piece


def _piece_of(action: Action) -> str:
    """The piece that an action writes, or to the child of which it writes."""
    return _path_of(action).partition("/")[0]


def stored_form(value: Any) -> Any:
    """A value of the model as a process tells it: a link by the place that it leads to."""
    return value.target if isinstance(value, Readable) else value


def _told(values: list[Any]) -> str:
    kept: list[Any] = []
    for value in values:
        if not kept or kept[-1] != value:
            kept.append(value)
    return " then ".join(repr(value) for value in kept[-12:])
