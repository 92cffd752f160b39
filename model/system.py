"""One engine and its replicas: every step that is possible in a state, and what must hold there.

The states of the engine and of each replica are numbered as they are found, and a state of the system is those
numbers side by side in one integer. Almost every step touches the engine and one replica only, so for each such
pair its steps are computed once, as differences to be added. That is what makes the search fast. Never searches.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Generic, NamedTuple, TypeVar

from model import engine as engines
from model.engine import Engine, Leaving
from model.messages import Broken, Crashing, Event, Flushing
from model.moves import Move, Moves
from model.progress import check_progress, is_settled, rank_of, unsettled
from model.replica import Replica, check_agreement
from model.rules import Rules
from model.workload import Conditions, Workload

T = TypeVar("T")

_BITS: Final = 20
_MASK: Final = (1 << _BITS) - 1


class Steps(NamedTuple):
    """Steps as what they add to the system's number, and what was seen while they were computed."""

    numbers: tuple[int, ...]
    names: tuple[str, ...]
    progresses: bool
    broken: Broken | None
    crash: int = 0  # what a crash of this engine adds for this replica
    is_settled: bool = False


class Numbered(Generic[T]):
    """Each value once, with a number."""

    __slots__ = ("_numbers", "values")

    def __init__(self) -> None:
        self.values: list[T] = []
        self._numbers: dict[T, int] = {}

    def number(self, value: T) -> int:
        found = self._numbers.setdefault(value, len(self.values))
        if found == len(self.values):
            if found > _MASK:
                raise OverflowError("more states of one part than its place in a system's number can hold")
            self.values.append(value)
        return found


class System:
    """The steps of one workload under given rules and conditions."""

    __slots__ = (
        "_alone",
        "_engine_crashes",
        "_engines",
        "_flushed",
        "_moves",
        "_pairs",
        "_replicas",
        "_shifts",
        "_unchecked",
        "start",
        "workload",
    )

    def __init__(self, workload: Workload, rules: Rules, conditions: Conditions) -> None:
        self.workload = workload
        self._moves = Moves(workload, rules, conditions)
        self._unchecked = Moves(workload, rules, conditions, checks=False)
        self._engines: Numbered[Engine] = Numbered()
        self._replicas: Numbered[Replica] = Numbered()
        # What was computed before, by number.
        self._alone: dict[int, Steps] = {}
        self._pairs: dict[int, Steps] = {}
        self._flushed: dict[int, tuple[Engine, Leaving] | None] = {}
        self._engine_crashes: dict[int, int] = {}
        # The engine's number is in the lowest bits, then each replica's.
        self._shifts = tuple(_BITS * (number + 1) for number in range(len(workload)))
        fresh = [Replica(number, copies=conditions.copies) for number in range(len(workload))]
        self.start = self._state(engines.new_engine(len(workload)), fresh)

    def after(self, state: int) -> list[int]:
        """The states that are one step away. Raises Broken where a rule is violated."""
        engine = state & _MASK
        found: list[int] = []
        progresses, settled = False, True
        crashed = state + self._crash(engine)
        for shift in self._shifts:
            replica = state >> shift & _MASK
            pair = self._pairs.get(replica << _BITS | engine)
            if pair is None:
                pair = self._pair(engine, replica)
            if pair.broken is not None:
                raise pair.broken
            progresses = progresses or pair.progresses
            settled = settled and pair.is_settled
            found += [state + step for step in pair.numbers]
            crashed += pair.crash
        found.append(crashed)
        flushed = self._flush(engine)
        if flushed is not None:
            found.append(self._durable(state, *flushed))
        elif not (progresses or settled):
            raise self._stuck(state)
        return found

    def steps(self, state: int) -> Iterator[tuple[str, int]]:
        """The same with names, for those who ask how a state came about."""
        engine = state & _MASK
        crashed = state + self._crash(engine)
        for shift in self._shifts:
            pair = self._pairs[(state >> shift & _MASK) << _BITS | engine]
            yield from zip(pair.names, (state + step for step in pair.numbers), strict=True)
            crashed += pair.crash
        yield "the engine crashes and restarts", crashed
        flushed = self._flush(engine)
        if flushed is not None:
            yield "the group is durable and its verdicts leave", self._durable(state, *flushed)

    def parts(self, state: int) -> tuple[Engine, list[Replica]]:
        return self._engines.values[state & _MASK], [
            self._replicas.values[state >> shift & _MASK] for shift in self._shifts
        ]

    def engine_steps(self) -> Iterator[tuple[Engine, Event | None, Engine]]:
        """Every step of the engine that was seen, right or wrong, with the engine before and after it."""
        for key in self._pairs:
            engine, replica = self._engines.values[key & _MASK], self._replicas.values[key >> _BITS]
            for move in self._unchecked.together(engine, replica):
                yield engine, move.event, move.engine
        for engine in self._engines.values:
            yield engine, Crashing(), engines.crashed(engine)
            if engine.group:
                yield engine, Flushing(), engines.flushed(engine)[0]

    def _state(self, engine: Engine, parts: list[Replica]) -> int:
        numbers = [self._replicas.number(replica) << shift for replica, shift in zip(parts, self._shifts, strict=True)]
        return self._engines.number(engine) + sum(numbers)

    def _stuck(self, state: int) -> Broken:
        engine, parts = self.parts(state)
        return next(
            Broken("settles", unsettled(engine, replica)) for replica in parts if not is_settled(engine, replica)
        )

    # ---- one replica, alone and with the engine --------------------------------------------------

    def _pair(self, engine_number: int, replica_number: int) -> Steps:
        engine, replica = self._engines.values[engine_number], self._replicas.values[replica_number]
        alone = self._alone.get(replica_number)
        if alone is None:
            # The engine makes no difference here, so that it may be any.
            moves = self._moves.alone(self._engines.values[0], replica)
            alone = self._alone[replica_number] = self._numbered(0, replica_number, moves)
        joint = self._numbered(engine_number, replica_number, self._moves.together(engine, replica))
        broken = alone.broken or joint.broken
        try:
            check_agreement(replica, engine.log, engine.history)
        except Broken as found:
            broken = found
        restarted = self._moves.restarted(engines.crashed(engine), replica)
        pair = self._pairs[replica_number << _BITS | engine_number] = Steps(
            alone.numbers + joint.numbers,
            alone.names + joint.names,
            alone.progresses or joint.progresses,
            broken,
            self._replicas.number(restarted) - replica_number << self._shifts[replica.number],
            is_settled(engine, replica),
        )
        return pair

    def _numbered(self, engine_number: int, replica_number: int, moves: Iterator[Move]) -> Steps:
        engine, replica = self._engines.values[engine_number], self._replicas.values[replica_number]
        before = rank_of(engine, [replica])
        shift = self._shifts[replica.number]
        numbers: list[int] = []
        names: list[str] = []
        progresses, broken = False, None
        try:
            for what, engine_then, replica_then, is_progress, _ in moves:
                if is_progress:
                    check_progress(what, before, rank_of(engine_then, [replica_then]))
                    progresses = True
                step = 0 if replica_then is replica else self._replicas.number(replica_then) - replica_number << shift
                if engine_then is not engine:
                    step += self._engines.number(engine_then) - engine_number
                numbers.append(step)
                names.append(what)
        except Broken as found:
            broken = found
        return Steps(tuple(numbers), tuple(names), progresses, broken)

    # ---- the engine and all replicas -------------------------------------------------------------

    def _flush(self, number: int) -> tuple[Engine, Leaving] | None:
        if number not in self._flushed:
            engine = self._engines.values[number]
            self._flushed[number] = engines.flushed(engine) if engine.group else None
        return self._flushed[number]

    def _durable(self, state: int, stored: Engine, leaving: Leaving) -> int:
        """C5: the verdicts of a group leave in the order of its commits."""
        engine, parts = self.parts(state)
        told = [replica._replace(down=replica.down + news) for replica, news in zip(parts, leaving, strict=True)]
        check_progress("a flush", rank_of(engine, parts), rank_of(stored, told))
        return self._state(stored, told)

    def _crash(self, number: int) -> int:
        """What a crash adds to the system's number for the engine."""
        step = self._engine_crashes.get(number)
        if step is None:
            crashed = engines.crashed(self._engines.values[number])
            step = self._engine_crashes[number] = self._engines.number(crashed) - number
        return step
