"""An application in the process that serves it: its runtime over the server's own spaces, and what pages may ask of it.

The runtime is trusted: it acts for whoever sent an event, and what that person may do is decided before. Pieces that
the application opens itself run as long as the process.

Attending: an application delivers what any space of its server has for its reactions, whoever emitted it there.

At the start every space of the directory is looked at, one after the other; from then on those that somebody enters,
leaves or declares a reaction to. What has something for the application is opened in a runtime of its own, so that the
application's runtime has no space that it did not open. Owns that runtime, and which spaces it has: at most half of
those that the server opens at once, since it keeps them open. One that could not be looked at is looked at again after
a while. What is due, and when, is the engine's to say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from headwater.backoff import Backoff
from headwater.cells.cell import Cell
from headwater.cells.model import Json
from headwater.data.address import check_space
from headwater.data.ids import derive
from headwater.data.value import ABSENT
from headwater.engine.admission.access import ACCESS, Right, right_in
from headwater.engine.engine import Engine
from headwater.engine.log.sessions import PAGES
from headwater.engine.sync.error_codes import LASTING
from headwater.errors import AccessError, AuthoringError, CorruptionError, HeadwaterError
from headwater.pieces.piece import Piece
from headwater.protocol.pages import Place
from headwater.protocol.reactions import Delivering, QueryReactions, Reactions, ReactionState
from headwater.replica.document import NOT_HERE
from headwater.runtime.attachment import Attachment
from headwater.runtime.binding.bound_reaction import reaction_name, reactions_of, topic_name
from headwater.runtime.binding.records import classes
from headwater.runtime.entry import takes_part, taking_part
from headwater.runtime.loopback import Loopback, LoopbackConnection
from headwater.runtime.runtime import Runtime
from headwater.runtime.transport import Heard, Lost, Transport
from headwater.server.operation.keys import LOCAL
from headwater.server.operation.limits import Rate
from headwater.server.operation.service import Service


class Served:
    """The spaces of a server, for a runtime of the same process."""

    __slots__ = ("_service", "life", "token")

    def __init__(self, service: Service) -> None:
        self._service = service
        self.life = service.clock.new_token(8)  # of the process that owns the directory
        self.token = ""

    def transport(self, space: str) -> Transport | None:
        check_space(space)
        return _ToService(self._service, space)

    async def close(self) -> None:
        """The server closes its spaces itself."""


class _ToService:
    """Connects to one space of the server."""

    __slots__ = ("_service", "_space")

    def __init__(self, service: Service, space: str) -> None:
        self._service = service
        self._space = space

    async def connect(self, heard: Heard, lost: Lost) -> LoopbackConnection:
        spaces, space = self._service.spaces, self._space
        try:
            await spaces.enter(space)
        except tuple(LASTING.values()):
            raise
        except HeadwaterError as error:
            raise ConnectionError(f"space {space!r} cannot be opened: {error}") from error

        def left(reason: str) -> object:
            spaces.leave(space)
            return lost(reason)

        return await Loopback(lambda _: spaces.host_of(space)).connect(heard, left)


class Application:
    """The application of one server."""

    __slots__ = ("_classes", "_service", "attachment", "attending", "limits", "runtime")

    def __init__(self, service: Service, classes: Iterable[type[Piece]]) -> None:
        self._service = service
        self._classes = {each.__outline__.name: each for each in classes}
        self.limits = service.limits
        self.attachment = Served(service)
        self.runtime = Runtime(self.attachment, clock=service.clock, reacts=bool(self._classes))
        self.attending = Attending(service, self.attachment, self.runtime)
        if self._classes:
            self.attending.begin()
        service.metrics.count_resumed(lambda: self.runtime.pieces.resuming.counts)

    def authenticate(self, token: str, user: str) -> tuple[str, float | None]:
        """Who somebody is, and for how many seconds that is known. Where nobody has to prove it, it is who they say."""
        name, left_s = self._service.authenticate(token)
        return self.called(name, token, user), left_s

    @staticmethod
    def called(name: str, token: str, said: str) -> str:
        """The user of a request: its authenticated name, or without keys the user that the request names."""
        return said if name == LOCAL and said and not token else name

    def new_session(self) -> str:
        return self._service.clock.new_token()

    def new_rate(self) -> Rate:
        """How fast a page may ask."""
        return Rate(self.limits.rate, self.limits.burst, self._service.clock)

    @staticmethod
    def session_of(user: str, said: str) -> str:
        """The session of a window that calls it so. Its name is no secret: it leads its own user there, nobody else."""
        return f"{PAGES}{derive('page', user, said)}"

    def piece(self, place: Place, user: str, session: str) -> Piece:
        """The piece that a page names, for its user and session."""
        cls = self._classes.get(place.cls)
        if cls is None:
            known = next((each for name, each in self._classes.items() if name.rpartition(".")[2] == place.cls), None)
            if known is None:
                there = ", ".join(self._classes)
                raise AuthoringError(f"this application has no class {place.cls!r}. It has: {there}.")
            cls = known
        self.check_space(place.space)
        space = self.runtime.acting(place.space, user, session)
        if place.id:
            home = self.runtime.pieces.known(place.space, place.id)
            if home is None or home.cls is not cls:
                raise AuthoringError(
                    f"{place.space} has no {place.cls} {place.id!r} here: name a child that its parent shows now"
                )
            return home.facet("session", user, session).piece
        return space.piece(cls, place.name)

    def has_classes(self) -> bool:
        """Whether it is an application, or only what answers commands for the spaces of a server."""
        return bool(self._classes)

    def check_space(self, name: str) -> None:
        """Naming a space opens it, which is for the application to do, not for whoever comes along."""
        if name not in {each.name for each in self.runtime.core.spaces()}:
            raise AccessError(
                f"this application has no space {name!r}: let its start(rt) open what pages look at, as in "
                f"await rt.space({name!r}).open(Class, 'name')"
            )

    def is_there(self, name: str) -> bool:
        """Whether there is such a space, here or in the directory. Asking opens nothing."""
        return name in {each.name for each in self.runtime.core.spaces()} or name in self._service.spaces.there()

    def may_make(self, user: str) -> bool:
        """Whether a user may have a space made by naming it."""
        return self._service.insecure_local or user == self._service.owner

    async def right_of(self, space: str, user: str) -> Right:
        """What a user may do in a space, by its access document as this runtime sees it."""
        if not self._service.insecure_local:
            await self.runtime.core.loaded(self.access_of(space).document)
        return self.right_now(space, user)

    def right_now(self, space: str, user: str) -> Right:
        """The same, at once: what is not known yet is no right."""
        if self._service.insecure_local:
            return Right.OWN
        value = self.access_of(space).document.value
        if value is NOT_HERE or (value is ABSENT and user != self._service.owner):
            return Right.NONE  # Not known, or nobody's yet but its owner's to be.
        return right_in(value, user)

    def access_of(self, space: str) -> Cell[Any]:
        """The access document of a space."""
        return self.runtime.cell(space, ACCESS.id, Json, scope=ACCESS.scope)

    async def close(self) -> None:
        ends = await asyncio.gather(self.attending.close(), self.runtime.close(), return_exceptions=True)
        for error in ends:
            if error is not None:
                raise error


AGAIN: Final = Backoff.exponential(base_ms=200, max_ms=30_000, jitter=0.2)
"""After a space could not be looked at."""
TOPICS: Final = 500
"""Topics that are asked about at once."""


class Attending:
    """The spaces that an application delivers in, besides those that it opened itself."""

    __slots__ = (
        "_attachment",
        "_failures",
        "_is_closed",
        "_looks",
        "_runtime",
        "_service",
        "_task",
        "_waits",
        "_worker",
    )

    def __init__(self, service: Service, attachment: Attachment, runtime: Runtime) -> None:
        """`runtime` is the application's, which delivers in its own spaces, and is told of errors."""
        self._service = service
        self._attachment = attachment
        self._runtime = runtime
        self._worker: Runtime | None = None  # made for the first space
        self._looks: dict[str, bool] = {}  # spaces to look at, in order, and whether somebody stays there
        self._failures: dict[str, int] = {}  # spaces that could not be looked at, how often,
        self._waits: dict[str, asyncio.TimerHandle] = {}  # and when they are looked at again
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    def begin(self) -> None:
        self._service.spaces.attends = self._attend
        if _wanted():
            for space in self._service.spaces.there():
                self._attend(space, False)

    @property
    def spaces(self) -> frozenset[str]:
        """Those that are attended."""
        return frozenset() if self._worker is None else _names(self._worker)

    @property
    def is_idle(self) -> bool:
        """Whether no space is to be looked at."""
        return self._task is None or self._task.done()

    def _attend(self, space: str, stays: bool) -> None:
        waits = self._waits.pop(space, None)
        if waits is not None:
            waits.cancel()
        if self._is_closed or space in self.spaces or space in _names(self._runtime):
            return
        self._looks[space] = self._looks.pop(space, False) or stays
        if self.is_idle:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="looking for what is to be delivered")

    async def _run(self) -> None:
        while self._looks:
            space = next(iter(self._looks))
            stays = self._looks.pop(space)
            try:
                is_awaited = await self._is_awaited(space, stays)
            except HeadwaterError as error:
                self._failed(space, stays, error)
                continue
            self._failures.pop(space, None)
            others = [each for each in taking_part() if each.attachment is self._attachment]
            if is_awaited and not any(space in _names(each) for each in (self._runtime, *others)):
                self._open(space)

    def _failed(self, space: str, stays: bool, error: HeadwaterError) -> None:
        """It is looked at again after a while: nobody may ever enter it. What is damaged waits for whoever mends it."""
        failures = self._failures.get(space, 0)
        if not failures:
            self._runtime.core.report(f"reactions of {space}", error)
        if isinstance(error, CorruptionError) or self._is_closed:
            return
        self._failures[space] = failures + 1
        wait_us = AGAIN.delay_us(min(failures, 20), self._service.clock.randomness(f"looking at {space}"))
        former = self._waits.pop(space, None)
        if former is not None:
            former.cancel()
        loop = asyncio.get_running_loop()
        self._waits[space] = loop.call_later(wait_us / 1e6, self._attend, space, stays)

    async def _is_awaited(self, space: str, stays: bool) -> bool:
        """Whether the application has something to deliver there; or may have, because somebody stays there."""
        wanted = _wanted()
        topics = tuple(dict.fromkeys(wanted.values()))
        known: dict[str, ReactionState] = {}
        emitted: set[str] = set()
        for at in range(0, len(topics), TOPICS):
            answer = await self._asked(space, topics[at : at + TOPICS])
            if answer is None:
                return False
            known.update({state.name: state for state in answer.reactions})
            emitted.update(answer.emitted)
        for name, topic in wanted.items():
            state = known.get(name)
            if state is None:
                if topic in emitted:  # It is new there, and may be for all of them.
                    return True
            elif state.state == "live" and (stays or state.due or state.is_filling):
                return True
        return False

    async def _asked(self, space: str, topics: tuple[str, ...]) -> Reactions | None:
        """What a space has for reactions. None: it belongs to users whom this application does not run for."""
        spaces = self._service.spaces
        await spaces.enter(space, visits=True)
        try:
            host, question = spaces.host_of(space), QueryReactions(0, topics)
            answer = await asyncio.to_thread(host.call, lambda engine, _: _delivered(engine, question))
        finally:
            spaces.leave(space, visits=True)
        assert answer is None or isinstance(answer, Reactions)
        return answer

    def _open(self, space: str) -> None:
        most = max(1, self._service.limits.spaces // 2)
        if len(self.spaces) >= most:
            self._service.log.warning("not attended", space=space, most=most, instead="start headwater worker for it")
            return
        if self._worker is None:
            self._worker = Runtime(self._attachment, clock=self._service.clock, reacts=True)
            self._worker.core.on_error(self._runtime.core.on_failure)
            takes_part(self._worker)  # Commands ask it, too, and new code is for it.
        self._worker.space(space)

    async def close(self) -> None:
        """Finish what runs, and give the rest back."""
        self._is_closed = True
        for waits in self._waits.values():
            waits.cancel()
        self._waits.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._worker is not None:
            await self._worker.close()


def _wanted() -> dict[str, str]:
    """The reactions of the classes that are imported, and their topics."""
    return {reaction_name(cls, each): topic_name(cls, each.on) for cls in classes() for each in reactions_of(cls)}


def _delivered(engine: Engine, question: QueryReactions) -> Delivering | None:
    return engine.deliver(question) if engine.right_of("") >= Right.WRITE else None


def _names(runtime: Runtime) -> frozenset[str]:
    return frozenset(each.name for each in runtime.core.spaces())
