"""Plays the steps of a program in one runtime, and tells a record what happens."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol

from headwater import (
    AbsentError,
    AuthoringError,
    HandlerFailed,
    ReactionBlockedError,
    Refused,
    Runtime,
    Space,
    UpstreamFailedError,
    link,
)
from headwater.data.trace import Ran
from headwater.runtime import LocalDirectory
from headwater.scheduler import Failure
from tests.simulation.programs.build import real_classes
from tests.simulation.programs.description import (
    ANN,
    WINDOWS,
    By,
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
    seen_from,
)
from tests.simulation.programs.expressions import CELL_KINDS
from tests.simulation.programs.record import DONE, FAILED, REFUSED, Action, Intended, Record, is_handled
from tests.simulation.programs.values import NAMES, Listener, listen

__all__ = ["SPACE", "Player", "Tells", "is_meant", "play_alone"]

SPACE = "one"
PATIENCE_S = 120.0


class Tells(Protocol):
    """Where a player tells what happens: a record, or a pipe to the process that has it."""

    def expect(self, action: Action, eid: int, /) -> None: ...
    def note(self, eid: int, /) -> None: ...
    def answer(self, eid: int, kind: str, value: Any, /) -> None: ...
    def opens(self, piece: str, /) -> None: ...
    def closed(self, piece: str, /) -> None: ...
    def deleted(self, piece: str, /) -> None: ...
    def show(self, piece: str, effect: str, values: tuple[object, ...], /) -> None: ...
    def watch(self, number: int, piece: str, member: str, window: str, /) -> None: ...
    def told(self, number: int, value: Any, /) -> None: ...
    def unwatch(self, number: int, /) -> None: ...
    def asks(self, number: int, /) -> None: ...
    def pulled(self, number: int, piece: str, member: str, value: Any, window: str, /) -> None: ...
    def beside(self, piece: str, member: str, value: Any, /) -> None: ...
    def rest(self, errors: list[str], runs: dict[str, int] | None, refused: int, /) -> None: ...


_HANDLER: Final = re.compile(r":h\d+$")
"""The end of the names of drawn handlers, with their pieces."""


def is_meant(failure: Failure) -> bool:
    """Whether a failure on the error channel is one of drawn code."""
    error = failure.error
    if isinstance(error, AbsentError | UpstreamFailedError):
        return is_drawn(error) and _HANDLER.search(failure.node) is not None
    return type(error) is ValueError or isinstance(error, HandlerFailed | Refused | ReactionBlockedError)


def is_meant_in_handler(error: HandlerFailed) -> bool:
    """Whether a handler failed by drawn code: it raised, or read an element that it had deleted itself."""
    return is_drawn(error.__cause__)


def is_drawn(cause: BaseException | None) -> bool:
    """Whether drawn code raises this error, directly or in a computed."""
    if isinstance(cause, UpstreamFailedError):
        cause = cause.__cause__
    return isinstance(cause, ValueError | AbsentError)


class Player(Listener):
    """One runtime with the pieces of a program."""

    def __init__(self, program: Program, runtime: Runtime, record: Tells) -> None:
        self._program = program
        self._runtime = runtime
        self._record = record
        self._classes = real_classes(program.classes)
        self.pieces: dict[str, Any] = {}
        self._open: set[str] = set()
        self._sinks: dict[int, tuple[Any, Any, Watch]] = {}  # of its number: the sink, its handle and the step
        self._pulls = 0
        self._under_way: list[asyncio.Task[None]] = []
        self._errors: list[Failure] = []
        self._runs: Counter[str] = Counter()
        self._is_counting = False
        self.left: dict[str, str] = {}  # of ids of stored events of processes before: the paths that they are for
        self._has_reactions = any(of.of_kind("reaction") for of in program.classes)
        runtime.on_failure(self._errors.append)

    # ---- calls of drawn code ---------------------------------------------------------------------------

    def note(self, piece: str, eid: int) -> None:
        self._record.note(eid)

    def show(self, user: str, piece: str, effect: str, values: tuple[object, ...]) -> None:
        name, _, session = piece.partition("@")
        window = next((each for each, (_, of) in WINDOWS.items() if of == session), ANN)
        self._record.show(seen_from(window, name), effect, values)

    # ---- pieces ----------------------------------------------------------------------------------------

    def _space(self, piece: str, window: str = ANN) -> Space:
        user, session = WINDOWS[window]
        return self._runtime.space(self._program.piece_named(piece).space, user=user, session=session)

    async def open_all(self) -> None:
        for piece in self._program.pieces:
            await self._open_piece(piece)

    def _pieces_of(self, window: str) -> dict[str, Any]:
        """The pieces as a window has them: the first one has opened them, others have handles."""
        if window == ANN:
            return self.pieces
        return {
            piece.name: self._space(piece.name, window).piece(self._classes[piece.of], piece.name)
            for piece in self._program.pieces
        }

    def find_all(self) -> None:
        """Have a handle of each piece, and open none."""
        for piece in self._program.pieces:
            self.pieces[piece.name] = self._space(piece.name).piece(self._classes[piece.of], piece.name)

    async def _open_piece(self, piece: Piece, window: str = ANN) -> None:
        self._record.opens(seen_from(window, piece.name))
        pieces = self._pieces_of(window)
        given = {name: getattr(pieces[where], member) for name, where, member in piece.given}
        of = self._classes[piece.of]
        opened = await self._space(piece.name, window).open(of(**given) if given else of, piece.name)
        pieces[piece.name] = opened  # Those of another window are not kept.
        self._open.add(seen_from(window, piece.name))

    @property
    def has_all_open(self) -> bool:
        return all(piece.name in self._open for piece in self._program.pieces)

    async def look_at_all(self) -> None:
        """Pull every computed."""
        for piece in self._program.pieces:
            for member in self._program.class_named(piece.of).of_kind("number", "pair", "table"):
                await getattr(self.pieces[piece.name], member.name).pull()

    # ---- steps -----------------------------------------------------------------------------------------

    async def play(self, steps: Iterable[Step]) -> None:
        for step in steps:
            await self._step(step)

    async def _step(self, step: Step, window: str = ANN) -> None:
        match step:
            case By():
                await self._step(step.step, step.user)
            case Send():
                await self._send(step, window)
            case Write():
                piece = await self._find(step.piece, window)
                if piece is not None:
                    await self._here_or_in_thread(step.eid, lambda: self._write(step, window, piece))
            case Transact():
                await self._transact(step, window)
            case Pull():
                await self._pull(step, window)
            case Watch():
                self._watch(step, window)
            case Unwatch():
                if step.number in self._sinks:
                    self._sinks.pop(step.number)[0].close()
                    self._record.unwatch(step.number)
            case Stop():
                await self._stop(step.piece, window)
            case Open():
                await self._open_piece(self._program.piece_named(step.piece), window)
            case Remake():
                for each in WINDOWS:
                    if each != ANN and seen_from(each, step.piece) in self._open:
                        await self._stop(step.piece, each)
                await self._close_piece(step.piece)
                await self._space(step.piece).delete(self.pieces[step.piece])
                self._record.deleted(step.piece)
                await self._open_piece(self._program.piece_named(step.piece))
            case Rest():
                await self.rest()

    async def _here_or_in_thread(self, eid: int, act: Callable[[], None]) -> None:
        """Take an action on the thread that the program has drawn for it.

        On another one it is tried without `Runtime.call` first, which has to be refused.
        """
        if eid not in self._program.in_threads:
            act()
            return

        def refused() -> None:
            for handle in cells[:1]:
                try:
                    handle.get()
                except AuthoringError:
                    continue
                raise AssertionError(f"{handle!r} was used on another thread")

        cells = [
            getattr(self.pieces[piece.name], member.name)
            for piece in self._program.pieces
            for member in self._program.class_named(piece.of).of_kind(*CELL_KINDS)
        ]
        with ThreadPoolExecutor(1) as pool:
            pool.submit(refused).result()  # No run is open meanwhile: this thread waits.
        await asyncio.to_thread(self._runtime.call, act)

    def _write(self, step: Write, window: str, piece: Any) -> None:
        self._record.expect(By(window, step), step.eid)
        self._record.note(step.eid)
        self._execute(step.text, window, child=piece)

    async def _send(self, step: Send, window: str) -> None:
        piece = await self._find(step.piece, window)
        if piece is None:
            return

        def send() -> None:
            self._record.expect(By(window, step), step.eid)
            self._begin(step.eid, getattr(piece, step.handler).send(step.eid, step.n, step.w))

        await self._here_or_in_thread(step.eid, send)
        if step.is_awaited:
            await asyncio.gather(*self._under_way)

    async def _find(self, path: str, window: str) -> Any:
        """The piece of a path. For a child, wait until nothing is left to do; return None if it is not there then."""
        name, _, below = path.partition("/")
        piece = self._pieces_of(window)[name]
        if not below:
            return piece
        await self._quiet()
        member, key = below.split("/")
        children = await getattr(piece, member).pull()
        return children.get(key) if isinstance(children, Mapping) else children

    def _begin(self, eid: int, work: Coroutine[Any, Any, Any]) -> None:
        self._under_way.append(asyncio.create_task(self._answered(eid, work)))

    async def _answered(self, eid: int, work: Coroutine[Any, Any, Any]) -> None:
        kind, value = DONE, None
        try:
            value = await work
        except Refused:
            kind = REFUSED
        except Intended:
            kind = FAILED
        except HandlerFailed as error:
            if not is_meant_in_handler(error):
                raise
            kind = FAILED
        self._record.answer(eid, kind, value)

    def _execute(self, text: str, window: str, **more: Any) -> None:
        exec(text, {**NAMES, "link": link, **self._pieces_of(window), **more})

    async def _transact(self, step: Transact, window: str) -> None:
        def writes() -> None:
            self._record.note(step.eid)
            for each in step.writes:
                self._execute(each.text, window)
            if step.fails:
                raise Intended

        def transact() -> None:
            self._record.expect(By(window, step), step.eid)
            self._begin(step.eid, self._space(step.writes[0].piece, window).transact(writes))

        await self._here_or_in_thread(step.eid, transact)
        await asyncio.gather(*self._under_way)

    async def _pull(self, step: Pull, window: str) -> None:
        self._pulls += 1
        number = self._pulls
        self._record.asks(number)
        value = await getattr(self._pieces_of(window)[step.piece], step.member).pull()
        self._record.pulled(number, step.piece, step.member, value, window)

    def _watch(self, step: Watch, window: str) -> None:
        self._record.watch(step.number, step.piece, step.member, window)
        handle = getattr(self._pieces_of(window)[step.piece], step.member)
        sink = handle.sink(lambda value: self._record.told(step.number, value))
        self._sinks[step.number] = sink, handle, step

    async def _stop(self, piece: str, window: str) -> None:
        await self._close_piece(seen_from(window, piece))
        await self._space(piece, window).stop(self._pieces_of(window)[piece])

    async def _close_piece(self, name: str) -> None:
        """Have the effects of a piece compared before it is closed."""
        if name in self._open:
            await self.rest()
            self._open.discard(name)
            self._record.closed(name)

    async def _quiet(self) -> None:
        """Wait until nothing is left to do."""
        await asyncio.gather(*self._under_way)
        self._under_way.clear()
        await self._runtime.until(self._has_taken_up)
        for _ in range(2):
            await self._runtime.settled()
            if self._has_reactions:
                await self._runtime.reactions.drained()
                await self._runtime.settled()
            await self._runtime.durable()

    def _has_taken_up(self) -> bool:
        """Whether the events that were stored before this process have their outcomes.

        One for a child waits until its parent is open.
        """
        if self.left:
            ended = {row.id for row in self._runtime.intents() if row.ended_us is not None}
            self.left = {id: path for id, path in self.left.items() if id not in ended}
        return not any(is_handled(path, self._open) for path in self.left.values())

    async def rest(self) -> None:
        """Wait until nothing is left to do, and have everything compared."""
        await self._quiet()
        refused = sum(isinstance(each.error, Refused | ReactionBlockedError) for each in self._errors)
        errors = [str(each) for each in self._errors if not is_meant(each)]
        runs, self._runs = self._runs, Counter()
        self._record.rest(errors, dict(runs) if self._is_counting else None, refused)
        for _, handle, watch in self._sinks.values():
            own: Any = getattr(self.pieces[watch.piece], watch.member, None)
            if own is handle:  # Others are of another window.
                self._record.beside(watch.piece, watch.member, own.get())
        for piece in self._program.pieces:
            for member in self._program.class_named(piece.of).of_kind("side"):
                if piece.name in self._open:
                    self._record.beside(piece.name, member.name, getattr(self.pieces[piece.name], member.name).get())

    def count_runs(self) -> None:
        """Have the runs of computeds compared, too."""
        self._is_counting = True
        self._runtime.scheduler.set_trace(self)

    def emit(self, event: object) -> None:
        """Count a run of a computed: `space/piece:member`."""
        if isinstance(event, Ran):
            self._runs[event.node.partition("/")[2]] += 1

    async def end(self) -> None:
        """Cancel the waits for answers."""
        for task in self._under_way:
            task.cancel()
        for task in self._under_way:
            with suppress(asyncio.CancelledError):
                await task


def play_alone(program: Program, folder: Path) -> None:
    """Play a program in one runtime on a directory."""

    async def work() -> None:
        async with (
            asyncio.timeout(PATIENCE_S),
            LocalDirectory(folder, synchronous="OFF") as data,
            Runtime(data, reacts=True) as runtime,
        ):
            player = Player(program, runtime, Record(program))
            listen(player)
            player.count_runs()
            await player.open_all()
            await player.play(program.steps)

    try:
        asyncio.run(work())
    finally:
        listen(None)
