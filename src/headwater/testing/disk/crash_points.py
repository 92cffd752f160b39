"""Crash points: at every moment of a tape the machine stops; the rest is examined, opened and worked on.

From the recorded operations it rebuilds the disk at each moment, without running the work again, lets the unsynced part
of it be lost in every way of `Loss`, and checks:

- the file equals its state after some store transaction, not before the last answered one, no half of one (C7);
- every commit that was answered, and every rejection, is answered the same again (C6, C10);
- a step that was asked and not answered, asked again, leaves the space as if nothing had happened, and durably so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import apsw

from headwater.clock import VirtualClock
from headwater.engine import Outcome
from headwater.errors import HeadwaterError
from headwater.testing.disk.comparison import (
    DERIVED,
    Tally,
    Violation,
    acknowledged,
    after_steps,
    check_history,
    compare_documents,
    compare_outcomes,
    compare_tables,
    has_refusal,
    is_replayed,
    logged_commits,
    opened,
    verdicts,
)
from headwater.testing.disk.faulty_disk import FaultyDisk
from headwater.testing.disk.machine import Machine, Rig
from headwater.testing.disk.model import DiskOp, Image, Loss, OpKind, Platter
from headwater.testing.disk.steps import Acknowledge, Frames
from headwater.testing.disk.tape import Answered, Asked, StateReader, Tables, Tape, Transacted

POWER_LOSSES: Final = (Loss.DROPPED, Loss.TORN, Loss.REORDERED, Loss.SCATTERED)
FULL_LOOK_EVERY: Final = 8  # checks: all documents are read and all frames sent again in one of so many
CARRY_ON_EVERY: Final = 100  # checks: the rest of the workload is run after one of so many
VERIFY_EVERY: Final = 20  # checks: the history oracle replays the whole file after one of so many
RESENT_STEPS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The machine stops here: everything before `moment` of the tape has happened."""

    moment: int
    loss: Loss | None  # None: only the process dies, and its writes are still in the cache
    told: int  # the state that the last answer was about
    reached: int  # the state that a transaction may have reached without an answer
    answered: int  # steps
    in_flight: int | None  # the step that was asked and not answered

    def __str__(self) -> str:
        how = "process killed" if self.loss is None else f"power lost, cache {self.loss.value}"
        doing = "idle" if self.in_flight is None else f"in step {self.in_flight}"
        return f"moment {self.moment} ({how}, {doing})"


def crash_points(tape: Tape) -> list[Point]:
    """Every way to stop this run, without those that leave the same disk and the same answers."""
    platter = Platter()
    found: list[Point] = []
    told = state = answered = synced = 0
    in_flight: int | None = None
    last_dropped: tuple[object, ...] = ()
    for number, moment in enumerate(tape.moments, 1):
        match moment:
            case DiskOp():
                platter.apply(moment)
                synced += moment.kind in (OpKind.SYNC, OpKind.DELETE)
            case Transacted():
                state += 1
            case Asked(step):
                in_flight = step
            case Answered(step):
                in_flight, answered, told = None, step + 1, state
            case _:
                continue  # A call of the store changes neither the disk nor the knowledge of a client.
        for loss in (None,) if platter.is_settled() else (None, *POWER_LOSSES):
            if loss is Loss.DROPPED:
                if last_dropped == (synced, told, in_flight):
                    continue  # The synced state is the same, whatever was written since.
                last_dropped = (synced, told, in_flight)
            point = Point(
                moment=number,
                loss=loss,
                told=told,
                reached=min(state + 1, len(tape.states) - 1),
                answered=answered,
                in_flight=in_flight,
            )
            found.append(point)
    return found


class PointChecks:
    """Checks crash points of one tape, in the order of the tape, on one disk."""

    def __init__(self, rig: Rig, tape: Tape, *, seed: int) -> None:
        self.tally = Tally()
        self._tape = tape
        self._clock = VirtualClock(seed=seed)
        self._platter = Platter(sector_garbled=rig.sector_garbled)
        self._moment = 0  # the platter is as it was before this moment
        self._disk = FaultyDisk("crash-point", sector_garbled=rig.sector_garbled)
        self._machine = Machine(rig, self._disk)
        self._looker = StateReader()
        self._after_step = after_steps(tape)
        self._opened = opened(tape)
        self._acknowledged = acknowledged(tape)

    def check(self, point: Point) -> None:
        """Points come in rising order of their moment."""
        self.tally.checks += 1
        for moment in self._tape.moments[self._moment : point.moment]:
            if isinstance(moment, DiskOp):
                self._platter.apply(moment)
        self._moment = point.moment
        try:
            self._check(point)
        except (Violation, HeadwaterError, apsw.Error) as error:
            self.tally.violations.append(f"{point}: {type(error).__name__}: {error}")
        finally:
            self._disk.load({})
            self._machine.abandon()

    def _check(self, point: Point) -> None:
        content: Image | Platter
        if point.loss is None:
            content, image = self._platter.copy(), self._platter.visible()
        else:
            content = image = self._platter.after_crash(point.loss, self._clock.randomness(str(point)))
        state = self._recovered_state(point, self._looker.tables(image))
        self._disk.load(content)
        self._machine.open()
        full = self.tally.checks % FULL_LOOK_EVERY == 0
        step = self._step_at(point, state)
        if full and step is not None:
            compare_documents(self._tape.documents[step], self._machine.documents(), "after recovery")
        self._resend(point, everything=full)
        expected = max(point.told, self._opened)
        if point.in_flight is not None:
            expected = self._after_step[point.in_flight]
            # A later step that changes nothing leaves the same state.
            self._ask_again(point.in_flight, done=self._tape.states[state] == self._tape.states[expected])
        # Whatever was answered by now is durable: the power fails once more, and nothing unsynced is left.
        left = self._disk.platter().after_crash(Loss.DROPPED, self._clock.randomness("nothing to draw"))
        compare_tables(self._tape.states[expected], self._looker.tables(left), "asked again", DERIVED)
        if self.tally.checks % VERIFY_EVERY == 0:
            check_history(self._looker.verify(left))
        if self.tally.checks % CARRY_ON_EVERY == 0:
            self._carry_on(point)

    # ---- the file ---------------------------------------------------------------------------------------------

    def _recovered_state(self, point: Point, found: Tables) -> int:
        self._check_acknowledged(point, found)
        states = self._tape.states
        for state in range(point.reached, point.told - 1, -1):
            if states[state] == found:
                return state
        compare_tables(states[point.told], found, "neither as answered nor as asked")
        raise Violation("the file holds neither what was answered nor what was asked")

    def _check_acknowledged(self, point: Point, found: Tables) -> None:
        """Each verdict that left is in the log, with its seq and its content."""
        logged, kept_from = logged_commits(found)
        for step in range(point.answered):
            for seq, commit in self._acknowledged[step]:
                if seq < kept_from:
                    continue  # Compacted away, as was asked.
                if logged.get(seq) != commit:
                    raise Violation(f"commit {seq}, acknowledged in step {step}, is not in the log as it was sent")
                self.tally.acknowledged += 1

    def _step_at(self, point: Point, state: int) -> int | None:
        """The step whose documents this state must show, unless it lies inside a step."""
        if point.in_flight is not None and state == self._after_step[point.in_flight]:
            return point.in_flight
        return point.answered - 1 if state == point.told and point.answered else None

    # ---- the answers ------------------------------------------------------------------------------------------

    def _resend(self, point: Point, *, everything: bool) -> None:
        """All that was answered keeps its answer: the newest steps, and everything that was refused."""
        batch = []
        expected: list[Outcome] = []
        forgotten = self._forgotten(point)
        for number in range(point.answered):
            step, outcomes = self._tape.steps[number], self._tape.answers[number]
            if not isinstance(step, Frames):
                continue
            recent = everything or number >= point.answered - RESENT_STEPS
            for (key, frame), outcome in zip(step.batch, outcomes, strict=True):
                if (recent or has_refusal(outcome)) and frame[0].local_seq > forgotten.get(key, 0):
                    batch.append((key, frame))
                    expected.append(outcome)
        if batch:
            self.tally.resent += len(batch)
            compare_outcomes(expected, self._machine.engine.submit_group(batch), "sent again")

    def _forgotten(self, point: Point) -> dict[str, int]:
        """Up to where a session has said, or may have said, that it will send nothing again."""
        last = point.answered if point.in_flight is None else point.in_flight + 1
        return {s.key: s.local_seq for s in self._tape.steps[:last] if isinstance(s, Acknowledge)}

    def _ask_again(self, number: int, *, done: bool) -> None:
        step = self._tape.steps[number]
        if done and not isinstance(step, Frames):
            return
        outcomes = self._machine.ask(number, step)
        compare_outcomes(self._tape.answers[number], outcomes, f"step {number} asked again")
        if done and not all(is_replayed(verdict) for verdict in verdicts(outcomes)):
            raise Violation(f"step {number} was on the disk already, and was accepted a second time: {outcomes}")

    def _carry_on(self, point: Point) -> None:
        """The rest of the work, as if nothing had happened."""
        tape = self._tape
        begin = point.answered if point.in_flight is None else point.in_flight + 1
        for number in range(begin, len(tape.steps)):
            outcomes = self._machine.ask(number, tape.steps[number])
            compare_outcomes(tape.answers[number], outcomes, f"step {number} after the crash")
        compare_documents(tape.documents[-1], self._machine.documents(), "at the end")
        self._machine.close()
        compare_tables(tape.states[-1], self._looker.tables(self._disk.image()), "at the end", DERIVED)
