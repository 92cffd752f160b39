"""Plays a program in one runtime, and compares what it shows with the naive model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from headwater import HandlerFailed, Refused, Runtime
from headwater.runtime import Embedded
from headwater.scheduler import Failure
from tests.simulation.programs.build import NaiveProgram, real_classes
from tests.simulation.programs.description import (
    Open,
    Piece,
    Program,
    Pull,
    Remake,
    Rest,
    Send,
    Step,
    Stop,
    Transact,
    Unwatch,
    Watch,
    Write,
)
from tests.simulation.programs.expected import DONE, FAILED, REFUSED, Expected, Intended, Mismatch, Series, Tape
from tests.simulation.programs.values import Listener, Rec, listen

__all__ = ["Player", "play_alone"]

SPACE = "one"
PATIENCE_S = 60.0


def member_value(piece: str, member: str) -> Callable[[NaiveProgram], Any]:
    """Read a member in the model."""
    return lambda naive: getattr(naive.pieces[piece], member).get()


def effect_value(piece: str, effect: str) -> Callable[[NaiveProgram], Any]:
    """Run an effect in the model."""
    return lambda naive: getattr(naive.pieces[piece], effect)()


class Player(Listener):
    """One runtime with the pieces of a program."""

    def __init__(self, program: Program, runtime: Runtime, tape: Tape, expected: Expected) -> None:
        self._program = program
        self._runtime = runtime
        self._space = runtime.space(SPACE, user="ann")
        self._classes = real_classes(program.classes)
        self._tape = tape
        self._expected = expected
        self._pieces: dict[str, Any] = {}
        self._open: set[str] = set()
        self._sinks: dict[int, tuple[Any, Series]] = {}
        self._effects: dict[tuple[str, str], Series] = {}
        self._under_way: list[asyncio.Task[None]] = []
        self._defects = 0  # handlers that are meant to fail
        self.errors: list[Failure] = []
        runtime.on_failure(self.errors.append)

    # ---- calls of drawn code ---------------------------------------------------------------------------

    def note(self, piece: str, eid: int) -> None:
        self._tape.note(eid)

    def show(self, piece: str, effect: str, values: tuple[object, ...]) -> None:
        series = self._effects.get((piece, effect))
        if series is None:
            raise Mismatch(f"{piece}.{effect} ran, and {piece} is not open")
        series.shown.append((len(self._tape), values))

    # ---- steps -----------------------------------------------------------------------------------------

    async def play(self) -> None:
        for piece in self._program.pieces:
            await self._open_piece(piece)
        for step in self._program.steps:
            await self.step(step)

    async def _open_piece(self, piece: Piece) -> None:
        for member in self._program.class_named(piece.of).of_kind("effect"):
            what = f"the effect {piece.name}.{member.name}"
            series = Series(what, effect_value(piece.name, member.name), len(self._tape))
            self._effects[piece.name, member.name] = series
        given = {name: getattr(self._pieces[where], member) for name, where, member in piece.given}
        of = self._classes[piece.of]
        self._pieces[piece.name] = await self._space.open(of(**given) if given else of, piece.name)
        self._open.add(piece.name)

    async def step(self, step: Step) -> None:
        match step:
            case Send():
                await self._send(step)
            case Write():
                self._expected.expect(step.eid, step)
                self._execute(step.text)
                self._tape.note(step.eid)
            case Transact():
                await self._transact(step)
            case Pull():
                await self._pull(step)
            case Watch():
                self._watch(step)
            case Unwatch():
                sink, _ = self._sinks.pop(step.number, (None, None))
                if sink is not None:
                    sink.close()
            case Stop():
                await self._close_piece(step.piece)
                await self._space.stop(self._pieces[step.piece])
            case Open():
                await self._open_piece(self._program.piece_named(step.piece))
            case Remake():
                await self._remake(step)
            case Rest():
                await self.rest()
            case _:
                raise NotImplementedError(step)

    async def _send(self, step: Send) -> None:
        self._expected.expect(step.eid, step)
        handler = getattr(self._pieces[step.piece], step.handler)
        task = asyncio.create_task(self._answered(step.eid, handler.send(step.eid, step.n, step.w)))
        self._under_way.append(task)
        if step.is_awaited:
            await asyncio.gather(*self._under_way)

    async def _answered(self, eid: int, sent: Coroutine[Any, Any, Any]) -> None:
        try:
            self._tape.answers[eid] = DONE, await sent
        except Refused:
            self._tape.answers[eid] = REFUSED, None
        except HandlerFailed as error:
            if not isinstance(error.__cause__, ValueError):
                raise
            self._tape.answers[eid] = FAILED, None
            self._defects += 1

    def _execute(self, text: str) -> None:
        exec(text, {"Rec": Rec, **self._pieces})

    async def _transact(self, step: Transact) -> None:
        self._expected.expect(step.eid, step)

        def writes() -> None:
            self._tape.note(step.eid)
            for each in step.writes:
                self._execute(each.text)
            if step.fails:
                raise Intended

        try:
            await self._space.transact(writes)
        except Intended:
            self._tape.answers[step.eid] = FAILED, None
        else:
            self._tape.answers[step.eid] = DONE, None

    async def _pull(self, step: Pull) -> None:
        before = len(self._tape)
        got = await getattr(self._pieces[step.piece], step.member).pull()
        value = member_value(step.piece, step.member)
        self._tape.look(f"pull of {step.piece}.{step.member}", value, before, got)

    def _watch(self, step: Watch) -> None:
        # A cell is shown once more when it is written for the first time, an `each` when its piece is stopped.
        is_computed = step.member.startswith("c")
        series = Series(
            f"sink {step.number} on {step.piece}.{step.member}",
            member_value(step.piece, step.member),
            len(self._tape),
            is_told_changes=is_computed,
        )

        def told(value: Any) -> None:
            series.shown.append((len(self._tape), value))

        self._sinks[step.number] = getattr(self._pieces[step.piece], step.member).sink(told), series

    async def _close_piece(self, name: str) -> None:
        """Check the effects of a piece before it is closed."""
        if name in self._open:
            await self.rest()
            self._open.discard(name)

    async def _remake(self, step: Remake) -> None:
        await self._close_piece(step.piece)
        await self._space.delete(self._pieces[step.piece])
        self._expected.expect(-len(self._tape) - 1, step)
        self._tape.note(-len(self._tape) - 1)
        await self._open_piece(self._program.piece_named(step.piece))

    async def rest(self) -> None:
        """Wait until nothing is left to do, and compare everything."""
        await asyncio.gather(*self._under_way)
        self._under_way.clear()
        for _ in range(2):
            await self._runtime.settled()
            await self._runtime.durable()
        effects = [each for (piece, _), each in self._effects.items() if piece in self._open]
        self._expected.check([*effects, *(series for _, series in self._sinks.values())])
        unexpected = [each for each in self.errors if not isinstance(each.error, (HandlerFailed, ValueError))]
        if unexpected:
            raise Mismatch(f"told on the error channel: {unexpected[0]}")


def play_alone(program: Program, folder: Path) -> None:
    """Play a program in one runtime on a directory."""

    async def work() -> None:
        async with asyncio.timeout(PATIENCE_S), Embedded(folder, synchronous="OFF") as data, Runtime(data) as runtime:
            tape = Tape()
            player = Player(program, runtime, tape, Expected(program, tape))
            listen(player)
            await player.play()

    try:
        asyncio.run(work())
    finally:
        listen(None)
