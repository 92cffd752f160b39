"""The tape of a run without failures, which every crashed run is compared with.

It holds everything in order: each operation of the disk, each call of the store, each step asked and answered; and the
tables after each store transaction, read from the file without the engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import apsw

from headwater.clock import VirtualClock
from headwater.engine import Outcome
from headwater.engine.store.sqlite import SqliteStore
from headwater.engine.verify import Report, verify_store
from headwater.protocol.verdict import Accepted
from headwater.testing.disk.faulty_disk import FaultyDisk
from headwater.testing.disk.machine import FILE, Documents, Machine, Rig
from headwater.testing.disk.model import DiskOp, Image, Platter
from headwater.testing.disk.steps import Step
from headwater.testing.disk.workload import Script

_ENDS_TRANSACTION: Final = ("open", "commit")

Tables: TypeAlias = Mapping[str, list[tuple[object, ...]]]
"""Every row of every table, as SQLite itself reads the file; before them, the names of the columns."""


@dataclass(frozen=True, slots=True)
class Called:
    """The engine called this method of its store."""

    method: str


@dataclass(frozen=True, slots=True)
class Transacted:
    """A store transaction is over, whether anybody was told or not."""


@dataclass(frozen=True, slots=True)
class Asked:
    step: int


@dataclass(frozen=True, slots=True)
class Answered:
    step: int


Moment: TypeAlias = DiskOp | Called | Transacted | Asked | Answered


@dataclass(slots=True)
class Tape:
    """A run in which nothing failed."""

    steps: list[Step] = field(default_factory=list)
    answers: list[list[Outcome]] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)
    states: list[Tables] = field(default_factory=list)  # before the first transaction, and after each
    documents: list[Documents] = field(default_factory=list)  # after each step

    @property
    def commits(self) -> int:
        """How many were accepted."""
        outcomes = [outcome for answer in self.answers for outcome in answer if not isinstance(outcome, Exception)]
        return sum(
            isinstance(verdict, Accepted) and not verdict.replayed for outcome in outcomes for verdict in outcome
        )

    @property
    def operations(self) -> int:
        return sum(isinstance(moment, DiskOp) for moment in self.moments)

    @property
    def calls(self) -> int:
        return sum(isinstance(moment, Called) for moment in self.moments)


def record(rig: Rig, *, seed: int, commits: int) -> Tape:
    """Run the whole workload once."""
    tape = Tape()
    disk = FaultyDisk("crash-tape", on_op=tape.moments.append, sector_garbled=rig.sector_garbled)

    def after_call(name: str) -> None:
        if name in _ENDS_TRANSACTION:
            tape.moments.append(Transacted())

    machine = Machine(rig, disk, before_call=lambda name: tape.moments.append(Called(name)), after_call=after_call)
    script = Script(VirtualClock(seed=seed).randomness("workload"), commits)
    machine.open()
    while (step := script.next(machine.engine.last_seq)) is not None:
        number = len(tape.steps)
        tape.steps.append(step)
        tape.moments.append(Asked(number))
        answer = machine.ask(number, step)
        tape.moments.append(Answered(number))
        tape.answers.append(answer)
        script.heard(answer)
        end = len(tape.moments)
        tape.documents.append(machine.documents())
        del tape.moments[end:]  # looking is no part of the work, and changes nothing on the disk
    machine.close()
    tape.states = _states(tape.moments)
    return tape


def _states(moments: list[Moment]) -> list[Tables]:
    """Return the tables before the first transaction and after each, by the same operations on another disk."""
    platter = Platter()
    looker = StateReader()
    states: list[Tables] = [{}]
    for moment in moments:
        if isinstance(moment, DiskOp):
            platter.apply(moment)
        elif isinstance(moment, Transacted):
            states.append(looker.tables(platter.visible()))
    return states


class StateReader:
    """Reads the tables of an image without the engine, on a disk of its own."""

    def __init__(self) -> None:
        self._disk = FaultyDisk("crash-looker")

    def tables(self, image: Image) -> Tables:
        """Every row of every table. Raises apsw.Error for a file that SQLite finds damaged."""
        self._disk.load(image)
        connection = apsw.Connection(FILE, vfs=self._disk.vfs)
        try:
            execute = connection.execute
            execute("PRAGMA locking_mode=EXCLUSIVE")
            damage = execute("PRAGMA integrity_check").fetchall()
            if damage != [("ok",)]:
                raise apsw.CorruptError(f"integrity_check: {damage[0][0]}")
            names = execute("SELECT name FROM sqlite_schema WHERE type='table' ORDER BY name").fetchall()
            return {str(name): _rows(connection, str(name)) for (name,) in names}
        finally:
            connection.close()

    def verify(self, image: Image) -> Report:
        """Return the history oracle's report about the file."""
        self._disk.load(image)
        store = SqliteStore(FILE, vfs=self._disk.vfs)
        try:
            return verify_store(store)
        finally:
            store.close()


def _rows(connection: apsw.Connection, table: str) -> list[tuple[object, ...]]:
    columns = connection.execute(f"SELECT name FROM pragma_table_info('{table}')").fetchall()
    return [tuple(name for (name,) in columns), *connection.execute(f'SELECT * FROM "{table}"')]
