"""Plays a shared program: several runtimes on one served space, whose connections and processes come and go.

A `Site` is the place where it is played: a simulation, or a server and its network.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final, Protocol

from headwater import (
    GoneError,
    HandlerFailed,
    HeadwaterError,
    NotReadyError,
    NotSettlingError,
    Refused,
    Runtime,
    Space,
    link,
)
from headwater.errors import ProtocolError
from headwater.scheduler import Failure
from tests.simulation.programs.build import NaiveProgram, real_classes
from tests.simulation.programs.description import (
    By,
    Crash,
    Offline,
    Online,
    Open,
    Piece,
    Program,
    Pull,
    Remake,
    Rest,
    Send,
    SetClock,
    SharedStep,
    Stop,
    Transact,
    Unwatch,
    Wait,
    Watch,
    Write,
)
from tests.simulation.programs.draw import READABLE
from tests.simulation.programs.draw_shared import SERVER
from tests.simulation.programs.expected_shared import UNSEEN, WHO, Answer, Entry, Made, replayed
from tests.simulation.programs.expressions import CELL_KINDS
from tests.simulation.programs.play import is_meant, is_meant_in_handler
from tests.simulation.programs.record import (
    DONE,
    FAILED,
    REFUSED,
    Intended,
    Mismatch,
    check_whole,
    effect_value,
    member_value,
)
from tests.simulation.programs.stored import StoredSend
from tests.simulation.programs.values import NAMES, Listener, listen

__all__ = ["GRACE_MS", "SharedPlayer", "Site"]

GRACE_MS: Final = 100
"""How long a follow-up is left to the runtime that posted it."""
ROUNDS: Final = 50


class Site(Protocol):
    """Where a shared program is played."""

    def runtime(self, user: str) -> Runtime: ...

    def go_offline(self, user: str) -> None: ...

    def go_online(self, user: str) -> None: ...

    async def crash(self, who: str) -> None: ...

    async def wait(self, seconds: float) -> None: ...

    def set_clock(self, seconds: int) -> None: ...

    async def settle(self) -> None:
        """Wait until every user has heard of everything, and nothing is left to do."""

    def log(self, space: str, program: Program) -> list[Entry]:
        """The commits that are in the log of a space."""

    def stored(self, space: str) -> list[StoredSend]:
        """The events that are stored in a space."""


class _User:
    """One user: a runtime, its pieces, sinks, and the last value that each effect showed."""

    def __init__(self, name: str, number: int = 0) -> None:
        self.name = name
        self.number = number
        self.label = f"{name}{number}"
        self.pieces: dict[str, Any] = {}
        self.open: set[str] = set()  # those that are open, or about to be; of the others it has handles
        self.sinks: dict[int, tuple[Watch, Any, list[Any]]] = {}
        self.shown: dict[tuple[str, str], tuple[Any, ...]] = {}
        self.under_way: list[asyncio.Task[None]] = []
        self.transactions: list[asyncio.Task[None]] = []  # those of them that are transactions
        self.is_gone = False  # its process was killed


class SharedPlayer(Listener):
    """All users of a shared program."""

    def __init__(self, program: Program, site: Site) -> None:
        self._program = program
        self._site = site
        self._users = {name: _User(name) for name in program.users}
        # Classes of its own for each user, so that it is known whose effect ran.
        self._classes = {name: real_classes(program.classes, user=name) for name in program.users}
        self._spaces = sorted({piece.space for piece in program.pieces})
        self._made: dict[int, Made] = {}
        self._answers: dict[int, Answer] = {}
        self._mixes: list[Mismatch] = []
        self._has_deleted = False  # a piece was deleted and made again
        self._naive = NaiveProgram(program)

    def show(self, user: str, piece: str, effect: str, values: tuple[object, ...]) -> None:
        self._users[user].shown[piece, effect] = values
        if piece not in self._users[user].open:
            self._mixes.append(Mismatch(f"{user}: {piece}.{effect} ran, and {piece} is not open"))
        if effect != "whole":
            return
        try:
            check_whole(self._naive, piece, effect, self._of_one_space(piece, values))
        except Mismatch as mismatch:
            self._mixes.append(Mismatch(f"{user}: {mismatch}"))

    def _of_one_space(self, piece: str, shown: tuple[Any, ...]) -> tuple[Any, ...]:
        """Of the values of `whole` those that follow from one space.

        A node that reads another space shows a peer's result until 250 ms after it: what the peer read there may not be
        here yet (docs/INVARIANTS.md, I6).
        """
        of = self._program.piece_named(piece)
        foreign = {name for name, where, _ in of.given if self._program.piece_named(where).space != of.space}
        inputs, members = frozenset(foreign), self._program.class_named(of.of).members
        while more := {each.name for each in members if each.uses & foreign} - foreign:
            foreign |= more
        return tuple(each for each in shown if each[0] not in foreign - inputs)

    async def play(self) -> None:
        listen(self)
        try:
            for user in self._users.values():
                await self._enter(user)
            for step in self._program.shared:
                await self._step(step)
        finally:
            listen(None)

    async def _enter(self, user: _User) -> None:
        """Open the pieces of a user, or make handles of them."""
        self._site.runtime(user.name).on_failure(lambda failure: self._failed(user, failure))
        for name in self._spaces:
            space = self._space(user, name)
            await space.transact(space.cell(WHO + user.label, str, default="").set, user.name)
        for piece in self._program.pieces:
            space = self._space(user, piece.space)
            of = self._classes[user.name][piece.of]
            if (user.name, piece.name) in self._program.handles:
                user.pieces[piece.name] = space.piece(of, piece.name)
                continue
            await self._open(user, piece)

    async def _open(self, user: _User, piece: Piece) -> None:
        of = self._classes[user.name][piece.of]
        given = {name: getattr(user.pieces[where], member) for name, where, member in piece.given}
        user.open.add(piece.name)
        opened = await self._space(user, piece.space).open(of(**given) if given else of, piece.name)
        user.pieces[piece.name] = opened

    async def _stop(self, user: _User, piece: Piece) -> None:
        """Stop a piece. Its effects run no more until it is opened, and then again.

        A transaction that reads a computed of a piece that is stopped meanwhile fails, so those under way come first.
        """
        await asyncio.gather(*user.transactions)
        await self._space(user, piece.space).stop(user.pieces[piece.name])
        user.open.discard(piece.name)
        for key in [key for key in user.shown if key[0] == piece.name]:
            del user.shown[key]

    def _failed(self, user: _User, failure: Failure) -> None:
        """Connections that break are reported as well, and so is what a process had in hand that is killed.

        Two runtimes answer each other as long as one of them hears nothing of the other space that a node reads. They
        are held back, and the node is reported (docs/INVARIANTS.md, I6). A sink reports that its piece was deleted.
        """
        error = failure.error
        is_held = isinstance(error, NotSettlingError) and self._reads_other_space(failure.node)
        is_deleted = isinstance(error, GoneError) and self._has_deleted
        if not (user.is_gone or is_meant(failure) or is_held or is_deleted or isinstance(error, ProtocolError)):
            self._mixes.append(Mismatch(f"{user.name}: told on the error channel: {failure}"))

    def _reads_other_space(self, node: str) -> bool:
        """Whether a node is of a piece that was given a handle of another space: `space/piece:member`."""
        of = self._program.piece_named(node.partition("/")[2].partition(":")[0].partition("/")[0])
        return any(self._program.piece_named(where).space != of.space for _, where, _ in of.given)

    async def _step(self, step: SharedStep) -> None:
        match step:
            case By(user=user, step=inner):
                await self._by(self._users[user], inner)
            case Offline(user=user):
                self._site.go_offline(user)
            case Online(user=user):
                self._site.go_online(user)
            case Crash(who=who):
                await self._crash(who)
            case Wait(ms=ms):
                await self._site.wait(ms / 1_000)
            case SetClock(seconds=seconds):
                self._site.set_clock(seconds)
            case Rest():
                await self.rest()

    async def _crash(self, who: str) -> None:
        if who == SERVER:
            await self._site.crash(who)
            return
        user = self._users[who]
        user.is_gone = True
        await self._site.crash(who)
        await asyncio.gather(*user.under_way)
        self._users[who] = user = _User(who, user.number + 1)
        # The new process takes up stored events before it opens the pieces, with the newest classes of their names.
        self._classes[who] = real_classes(self._program.classes, user=who)
        self._site.go_online(who)
        await self._enter(user)

    async def _by(self, user: _User, step: object) -> None:
        match step:
            case Send():
                self._acts(user, step)
                sent = getattr(user.pieces[step.piece], step.handler).send(step.eid, step.n, step.w)
                self._await(user, step.eid, sent)
            case Write():
                self._acts(user, step, self._seen(user, step))
                self._execute(user, step.text)
            case Transact():
                self._acts(user, step)
                self._await(user, step.eid, self._home(user, step).transact(self._writes(user, step)))
                user.transactions.append(user.under_way[-1])
            case Pull():
                pulled = getattr(user.pieces[step.piece], step.member).pull()
                user.under_way.append(asyncio.create_task(self._pulled(pulled)))
            case Watch():
                told: list[Any] = []
                sink = getattr(user.pieces[step.piece], step.member).sink(told.append)
                user.sinks[step.number] = step, sink, told
            case Unwatch():
                for each in self._users.values():
                    if (known := each.sinks.pop(step.number, None)) is not None:
                        known[1].close()
            case Stop() | Open() if (user.name, step.piece) in self._program.handles:
                pass  # This user never opens it.
            case Stop():
                await self._stop(user, self._program.piece_named(step.piece))
            case Open():
                await self._open(user, self._program.piece_named(step.piece))
            case Remake():
                await self._remake(user, self._program.piece_named(step.piece), is_busy=step.is_busy)
            case _:
                raise AssertionError(f"shared programs do not draw {step}")

    async def _remake(self, user: _User, piece: Piece, *, is_busy: bool) -> None:
        """Delete a piece and make it again. Sinks on it end where it is not open, and where it is deleted.

        If events are under way, one of them may make the piece before a sink is told of the deletion. Such a sink may
        go on.
        """
        if not is_busy:
            await self.rest()
        self._has_deleted = True
        user.open.discard(piece.name)
        # On a server all connections are of one user, who may not delete cells of others: there are none then.
        is_for_user = any(member.scope == "user" for of in self._program.classes for member in of.members)
        space = self._site.runtime(user.name).space(piece.space, user=user.name if is_for_user else "")
        await space.delete(user.pieces[piece.name])
        for key in [key for key in user.shown if key[0] == piece.name]:
            del user.shown[key]
        await self._settle()
        for each in self._users.values():
            for number, (watch, sink, _) in tuple(each.sinks.items()):
                if watch.piece == piece.name and piece.name not in each.open:
                    if not isinstance(sink.ended, GoneError) and not (is_busy and sink.ended is None):
                        raise Mismatch(f"{each.name}: sink {number} on {piece.name} ended with {sink.ended!r}")
                    if sink.ended is not None:
                        del each.sinks[number]
        await self._open(user, piece)

    def _acts(self, user: _User, step: Send | Write | Transact, seen: Any = UNSEEN) -> None:
        self._made[step.eid] = Made(step, user, self._seqs(user), seen)

    def _seqs(self, user: _User) -> dict[str, int]:
        """The places in the logs that a user has seen."""
        return {name: self._space(user, name).seq for name in self._spaces}

    def _seen(self, user: _User, step: Write) -> Any:
        """The value of the cell of a plain write that its caller has."""
        try:
            return getattr(user.pieces[step.piece], step.member).get()
        except NotReadyError:
            return UNSEEN

    def _execute(self, user: _User, text: str) -> None:
        exec(text, {**NAMES, "link": link, **user.pieces})

    def _writes(self, user: _User, step: Transact) -> Any:
        def writes() -> None:
            for each in step.writes:
                self._execute(user, each.text)
            if step.fails:
                raise Intended

        return writes

    def _space(self, user: _User, name: str) -> Space:
        return self._site.runtime(user.name).space(name, user=user.name)

    def _home(self, user: _User, step: Transact) -> Space:
        return self._space(user, self._program.piece_named(step.writes[0].piece).space)

    def _await(self, user: _User, eid: int, sent: Coroutine[Any, Any, Any]) -> None:
        """Wait for an answer in a task. If the user is killed before that task starts, `runtime` makes another one."""
        spaces = [self._space(user, name) for name in self._spaces]
        user.under_way.append(asyncio.create_task(self._answered(user, spaces, eid, sent)))

    async def _answered(self, user: _User, spaces: list[Space], eid: int, sent: Coroutine[Any, Any, Any]) -> None:
        try:
            kind, value = DONE, await sent
        except Refused:
            kind, value = REFUSED, None
        except Intended:
            kind, value = FAILED, None
        except HandlerFailed as error:
            if not is_meant_in_handler(error):
                raise
            kind, value = FAILED, None
        except HeadwaterError:
            if not user.is_gone:
                raise
            return  # It may have landed.
        self._answers[eid] = Answer(kind, value, {space.name: space.seq for space in spaces})

    async def _pulled(self, pulled: Coroutine[Any, Any, Any]) -> None:
        with suppress(HeadwaterError):
            await pulled

    async def rest(self) -> None:
        """Wait until nothing is left to do, and compare everything."""
        for user in self._users.values():
            await asyncio.gather(*user.under_way)
            user.under_way.clear()
            user.transactions.clear()
        await self._settle()
        logs = {name: self._site.log(name, self._program) for name in self._spaces}
        done = replayed(self._program, self._made, self._answers, logs, self._decode)
        if self._mixes:
            raise self._mixes[0]
        for user in self._users.values():
            await self._check_user(user, done)

    async def _settle(self) -> None:
        """Wait until nothing is left to do, also of the follow-ups that a killed process left in the store."""
        left: list[StoredSend] = []
        for _ in range(ROUNDS):
            await self._site.settle()
            left = [each for name in self._spaces for each in self._site.stored(name)]
            if not left:
                return
            await self._site.wait(GRACE_MS / 1_000)
        raise Mismatch(f"{left[0].send} answered nothing: it is stored, and no runtime handles it")

    def _decode(self, piece: str, member: str, raw: Any) -> Any:
        user = next(iter(self._users.values()))
        return getattr(user.pieces[piece], member).decoded("set", raw)

    async def _check_user(self, user: _User, done: NaiveProgram) -> None:
        for step, _, told in user.sinks.values():
            what = f"{user.name}: sink {step.number} on {step.piece}.{step.member}"
            self._compare(what, told[-1:], member_value(step.piece, step.member, user.name)(done))
        for piece in self._program.pieces:
            of = self._program.class_named(piece.of)
            if piece.name in user.open:
                for member in of.of_kind("effect"):
                    shown = [user.shown[piece.name, member.name]] if (piece.name, member.name) in user.shown else []
                    what = f"{user.name}: the effect {piece.name}.{member.name}"
                    self._compare(what, shown, effect_value(piece.name, member.name, user.name)(done))
            for member in of.members:
                if member.kind in (*CELL_KINDS, *READABLE):
                    got = await getattr(user.pieces[piece.name], member.name).pull()
                    what = f"{user.name}: pull of {piece.name}.{member.name}"
                    self._compare(what, [got], member_value(piece.name, member.name, user.name)(done), "answered")

    def _compare(self, what: str, got: list[Any], expected: Any, verb: str = "stays on") -> None:
        if not got:
            raise Mismatch(f"{what} showed nothing, and the model has {expected!r}")
        if got[0] != expected:
            raise Mismatch(f"{what} {verb} {got[0]!r}, and the model has {expected!r}")
