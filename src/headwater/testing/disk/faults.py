"""Faults in a running engine: the disk or the store fails under it, and it goes on or comes back.

A trial starts from the disk as it was before a step, asks the step while one operation fails, and checks: an answer or
a StorageError, nothing between; a failed call gave no verdict, and the same call afterwards gives the right one; the
memory agrees with the disk; every answer survives a power failure at the end. Opening is tried like a step, with
crashes in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

import apsw

from headwater.clock import VirtualClock
from headwater.engine import Outcome
from headwater.errors import CorruptionError, HeadwaterError, StorageError
from headwater.testing.disk.comparison import (
    DERIVED,
    Tally,
    Violation,
    after_steps,
    check_history,
    compare_documents,
    compare_outcomes,
    compare_tables,
    logged_commits,
)
from headwater.testing.disk.crash_points import POWER_LOSSES, VERIFY_EVERY
from headwater.testing.disk.faulty_disk import FOR_GOOD, Fault, FaultyDisk, Mode
from headwater.testing.disk.machine import Killed, Machine, Rig
from headwater.testing.disk.model import DiskOp, Loss, OpKind, Platter
from headwater.testing.disk.steps import Frames
from headwater.testing.disk.tape import Answered, Asked, StateReader, Tape

OPENINGS_EVERY: Final = 24  # steps: opening with faults is tried on the disk after one of so many
FULL_LOOK_EVERY: Final = 8  # trials: all documents are read in one of so many

_SYNC: Final = frozenset({OpKind.SYNC})
_GROWING: Final = (OpKind.CREATE, OpKind.WRITE)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFault:
    """The `at`-th call of the store from now on fails, or kills the process."""

    at: int
    kill: bool = False
    after: bool = False  # it was done first


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One thing that goes wrong in one step, or (`opening`) while the engine opens after that step."""

    step: int
    fault: Fault | CallFault
    opening: bool = False
    loss: Loss = Loss.DROPPED  # of a crash

    def __str__(self) -> str:
        return f"{'opening after ' if self.opening else ''}step {self.step} with {self.fault}, {self.loss.value}"


class Trials:
    """The trials of one tape, and the machine they run on."""

    def __init__(self, rig: Rig, tape: Tape, *, seed: int) -> None:
        self.tally = Tally()
        self._tape = tape
        self._clock = VirtualClock(seed=seed)
        self._kinds: list[OpKind] = []
        self._calls: list[str] = []
        self._disk = FaultyDisk(
            "crash-trial", on_op=lambda op: self._kinds.append(op.kind), sector_garbled=rig.sector_garbled
        )
        self._machine = Machine(rig, self._disk, before_call=self._before_call, after_call=self._after_call)
        self._looker = StateReader()
        self._after_step = after_steps(tape)
        self._disks = _disks(tape, sector_garbled=rig.sector_garbled)
        self._call_fault: CallFault | None = None
        self._dead = False
        self._met = 0

    # ---- the list -------------------------------------------------------------------------------------------

    def all(self) -> Iterator[Trial]:
        """Every operation, read and call of every step, with everything that can go wrong there."""
        for step in range(len(self._tape.steps)):
            self._start(step)
            yield from self._of(step, partial(self._machine.ask, step, self._tape.steps[step]))
            if step % OPENINGS_EVERY == 0:
                self._disk.load(self._disks[step + 1].copy())
                for trial in self._of(step, self._machine.open, opening=True):
                    yield trial
                    yield from self._crashes(trial)

    def _of(self, step: int, action: Callable[[], object], *, opening: bool = False) -> Iterator[Trial]:
        """Do it once without a fault, and list the operations that can fail in it."""
        self._kinds.clear()
        self._calls.clear()
        reads = self._disk.reads
        action()
        kinds, calls, reads = self._kinds[:], self._calls[:], self._disk.reads - reads
        self._stop()
        faults: list[Fault | CallFault] = []
        for at, kind in enumerate(kinds, 1):
            faults += _faults_of(at, kind, kinds[:at].count(OpKind.SYNC))
        faults += [Fault(mode=Mode.READ_ERROR, at=at) for at in range(1, reads + 1)]
        for at, name in enumerate(calls, 1):
            faults += [CallFault(at=at), CallFault(at=at, kill=True)]
            if name in ("commit", "release"):
                faults += [CallFault(at=at, after=True), CallFault(at=at, after=True, kill=True)]
        for fault in faults:
            yield Trial(step=step, fault=fault, opening=opening)

    def _crashes(self, trial: Trial) -> Iterator[Trial]:
        """A crash while recovering from a crash."""
        if isinstance(trial.fault, Fault) and trial.fault == Fault(mode=Mode.IO_ERROR, at=trial.fault.at):
            for mode in (Mode.CRASH_BEFORE, Mode.CRASH_AFTER):
                for loss in POWER_LOSSES:
                    fault = Fault(mode=mode, at=trial.fault.at)
                    yield Trial(step=trial.step, fault=fault, opening=True, loss=loss)

    # ---- one trial ------------------------------------------------------------------------------------------

    def check(self, trial: Trial) -> None:
        self.tally.checks += 1
        try:
            if trial.opening:
                self._check_opening(trial)
            else:
                self._check_step(trial)
            self._check_end(trial)
        except (Violation, HeadwaterError, apsw.Error) as error:
            self.tally.violations.append(f"{trial}: {type(error).__name__}: {error}")
        finally:
            self._stop()

    def _start(self, step: int) -> None:
        """The machine as it was before a step, with one step's worth of memory."""
        before = max(step - 1, 0)
        self._disk.load(self._disks[before].visible())
        self._machine.open()
        for number in range(before, step):
            self._machine.ask(number, self._tape.steps[number])

    def _stop(self) -> None:
        self._dead, self._call_fault = False, None
        self._disk.load({})
        self._machine.abandon()

    def _check_step(self, trial: Trial) -> None:
        number = trial.step
        self._start(number)
        self._arm(trial.fault)
        outcomes = self._attempt(number)
        if outcomes is None and isinstance(self._tape.steps[number], Frames):
            outcomes = self._attempt(number)  # perhaps still broken: no verdict again, or a good one
        self._check_met(trial)
        self._read_while_broken(number)
        self._disk.heal()
        if self._dead:
            self._dead = False
            self._disk.kill_process()
            self._machine.abandon()
        if outcomes is None and not self._is_done(number):
            outcomes = self._machine.ask(number, self._tape.steps[number])
        if outcomes is not None:
            compare_outcomes(self._tape.answers[number], outcomes, f"step {number}")

    def _attempt(self, number: int) -> list[Outcome] | None:
        """The answer, or None: it failed as it should, without one."""
        try:
            return self._machine.ask(number, self._tape.steps[number])
        except CorruptionError as error:
            raise Violation(f"the disk failed, and the engine took the space for damaged: {error}") from error
        except (StorageError, Killed):
            return None

    def _read_while_broken(self, number: int) -> None:
        """Check that a read while the disk is full or broken is true, or an error."""
        if self.tally.checks % FULL_LOOK_EVERY or self._dead or not self._machine.is_open:
            return
        with suppress(StorageError):
            documents = self._machine.documents()
            before = self._tape.documents[number - 1] if number else {}
            if documents not in (before, self._tape.documents[number]):
                compare_documents(before, documents, "while the disk was broken")

    def _is_done(self, number: int) -> bool:
        """Whether a step that failed is on the disk all the same. A group is simply sent again: the engine knows."""
        if not self._machine.is_open:
            self._disk.kill_process()
            self._machine.abandon()
            self._machine.open()
        if isinstance(self._tape.steps[number], Frames):
            return False
        self._machine.engine.branches()  # whatever is to be mended is mended now
        found = self._looker.tables(self._disk.image())
        try:
            compare_tables(self._tape.states[self._after_step[number]], found, "", DERIVED)
        except Violation:
            return False
        return True

    def _check_opening(self, trial: Trial) -> None:
        self._disk.load(self._disks[trial.step + 1].copy())
        self._arm(trial.fault)
        with suppress(StorageError, Killed):
            self._machine.open()
        self._check_met(trial)
        if self._disk.is_off:
            self._disk.reboot(trial.loss, self._clock.randomness(str(trial)))
        else:
            self._disk.kill_process()
        self._dead = False
        self._machine.abandon()
        self._machine.open()

    def _check_end(self, trial: Trial) -> None:
        """Check that memory and disk are both as if nothing had failed."""
        if self.tally.checks % FULL_LOOK_EVERY == 0:
            compare_documents(self._tape.documents[trial.step], self._machine.documents(), "at the end")
        left = self._disk.platter().after_crash(Loss.DROPPED, self._clock.randomness("unused"))
        found = self._looker.tables(left)
        compare_tables(self._tape.states[self._after_step[trial.step]], found, "at the end", DERIVED)
        if self.tally.checks % VERIFY_EVERY == 0:
            check_history(self._looker.verify(left))
        self.tally.acknowledged += len(logged_commits(found)[0])  # the log is equal, so all of them are there

    # ---- faults ---------------------------------------------------------------------------------------------

    def _arm(self, fault: Fault | CallFault) -> None:
        self._met = self._disk.failed
        if isinstance(fault, Fault):
            self._disk.arm(fault)
        else:
            self._calls.clear()
            self._call_fault = fault

    def _check_met(self, trial: Trial) -> None:
        """Check the harness itself: the chosen operation failed, where the run without a fault had it."""
        call_fault, self._call_fault = self._call_fault, None
        if call_fault is not None or (isinstance(trial.fault, Fault) and self._met == self._disk.failed):
            raise Violation("the fault was never met")

    def _before_call(self, name: str) -> None:
        self._calls.append(name)
        self._fail(name, after=False)

    def _after_call(self, name: str) -> None:
        self._fail(name, after=True)

    def _fail(self, name: str, *, after: bool) -> None:
        if self._dead:
            raise Killed
        fault = self._call_fault
        if fault is None or fault.after != after or fault.at != len(self._calls):
            return
        self._call_fault = None
        if fault.kill:
            self._dead = True
            raise Killed
        raise StorageError(f"{name} failed, as was arranged")


def _faults_of(at: int, kind: OpKind, syncs: int) -> list[Fault]:
    """Return the faults of operation `at`, which is sync number `syncs` if it is one."""
    faults = [Fault(mode=Mode.IO_ERROR, at=at, times=times) for times in (1, FOR_GOOD)]
    if kind is OpKind.SYNC:
        for mode in (Mode.IO_ERROR, Mode.SYNC_DONE, Mode.SYNC_LOST):
            # Some times: it fails again while the engine closes and reopens, and is well in the middle of that.
            faults += [Fault(mode=mode, at=syncs, kinds=_SYNC, times=times) for times in (1, 2, 3, 4, 6, FOR_GOOD)]
    if kind in _GROWING:
        faults += [Fault(mode=Mode.FULL, at=at, times=times) for times in (1, FOR_GOOD)]
    return faults


def _disks(tape: Tape, *, sector_garbled: bool) -> list[Platter]:
    """The disk before each step, and after the last."""
    platter = Platter(sector_garbled=sector_garbled)
    found = []
    for moment in tape.moments:
        if isinstance(moment, DiskOp):
            platter.apply(moment)
        elif isinstance(moment, Asked) or (isinstance(moment, Answered) and moment.step == len(tape.steps) - 1):
            found.append(platter.copy())
    return found
