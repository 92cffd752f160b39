"""The application of a server: its runtime over the server's own spaces, the rights of its users, and its reactions.

The runtime is trusted: it acts for the user of an event or page, after that user's right was checked. Pieces that the
application opens in its `start` run as long as the process.

`ReactionSpaces` delivers records of spaces that the application did not open. At the start it visits every space of the
directory, one after the other; later each space that a connection enters or leaves, or to which a reaction is declared.
A space with work for the application is opened in a second runtime, so that the application's own runtime has only
spaces that it opened. These spaces stay open, at most half of `ServerLimits.spaces`. A space that could not be visited
is visited again after a wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from headwater.cells.cell import Cell
from headwater.cells.model import Json
from headwater.data.address import check_space
from headwater.data.ids import derive
from headwater.data.value import ABSENT, MaybeValue
from headwater.engine.admission.access import ACCESS, Right, right_in
from headwater.engine.engine import Engine
from headwater.engine.log.sessions import PAGES
from headwater.engine.sync.error_codes import LASTING
from headwater.errors import AccessError, AuthoringError, CorruptionError, HeadwaterError
from headwater.pieces.piece import Piece
from headwater.protocol.pages import Place
from headwater.protocol.reactions import Delivering, QueryReactions, ReactionList, ReactionState
from headwater.replica.document import NOT_HERE
from headwater.runtime.api.entry_points import takes_part, taking_part
from headwater.runtime.api.runtime import Runtime
from headwater.runtime.channel.backend import Backend
from headwater.runtime.channel.loopback import Loopback, LoopbackConnection
from headwater.runtime.channel.transport import Heard, Lost, Transport
from headwater.runtime.pieces.classes import imported_classes, topic_name
from headwater.runtime.reactions.bound import reaction_name, reactions_of
from headwater.server.operation.keys import LOCAL
from headwater.server.operation.limits import RateLimit
from headwater.server.operation.service import Service


def no_right(user: str, space: str) -> AccessError:
    """Return the refusal of a user without a right in a space: the same whether or not the space exists."""
    return AccessError(f"{user!r} may not do that in {space}: ask one of its owners")


class ServedSpaces:
    """The spaces of a server as the backend of a runtime in the same process."""

    __slots__ = ("_service", "is_only", "life", "token")

    def __init__(self, service: Service) -> None:
        self._service = service
        self.life = service.spaces.life  # identifies the process that owns the directory
        self.is_only = False
        self.token = ""

    def transport(self, space: str) -> Transport | None:
        check_space(space)
        return _ServiceTransport(self._service, space)

    async def close(self) -> None:
        """Do nothing: the server closes its spaces."""


class _ServiceTransport:
    """A transport to one space of the server."""

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

        def on_lost(reason: str) -> object:
            spaces.leave(space)
            return lost(reason)

        return await Loopback(lambda _: spaces.host_of(space)).connect(heard, on_lost)


class Application:
    """The application of one server."""

    __slots__ = ("_classes", "_reaction_spaces", "_service", "accounts", "backend", "limits", "runtime")

    def __init__(self, service: Service, classes: Iterable[type[Piece]]) -> None:
        self._service = service
        self._classes = {each.__schema__.name: each for each in classes}
        self.limits = service.limits
        self.accounts = service.accounts
        self.backend = ServedSpaces(service)
        # One process owns the directory, so that this runtime is the one that a former process had, too.
        self.runtime = Runtime(self.backend, clock=service.clock, reacts=bool(self._classes), identity="")
        self._reaction_spaces = ReactionSpaces(service, self.backend, self.runtime)
        if self._classes:
            self._reaction_spaces.start()
        service.metrics.count_resumed(lambda: self.runtime.resume_counts)

    @property
    def attended_spaces(self) -> frozenset[str]:
        """The spaces that were opened to deliver records, in addition to those that the application opened."""
        return self._reaction_spaces.spaces

    @property
    def has_visited_all(self) -> bool:
        """True if every space in which records may wait was visited."""
        return self._reaction_spaces.is_idle

    def authenticate(self, token: str, user: str) -> tuple[str, float | None]:
        """Return the user of a token and the seconds until it expires. Without keys, `user` is believed."""
        name, left_s = self._service.authenticate(token)
        return self.resolve_user(name, token, user), left_s

    @staticmethod
    def resolve_user(name: str, token: str, said: str) -> str:
        """Return the user of a request: its authenticated name, or without keys the user that the request names."""
        return said if name == LOCAL and said and not token else name

    def new_session(self) -> str:
        return self._service.clock.new_token()

    def new_rate_limit(self) -> RateLimit:
        """Return a rate limit for one page."""
        return RateLimit(self.limits.rate, self.limits.burst, self._service.clock)

    @staticmethod
    def session_of(user: str, said: str) -> str:
        """Return the id of the session that a page of `user` names. The name is no secret: for another user it is
        another session.
        """
        return f"{PAGES}{derive('page', user, said)}"

    def piece(self, place: Place, user: str, session: str) -> Piece:
        """Return the piece that a page names, for the page's user and session."""
        cls = self._classes.get(place.cls)
        if cls is None:
            known = next((each for name, each in self._classes.items() if name.rpartition(".")[2] == place.cls), None)
            if known is None:
                there = ", ".join(self._classes)
                raise AuthoringError(f"this application has no class {place.cls!r}. It has: {there}.")
            cls = known
        self.check_open_space(place.space)
        space = self.runtime.acting(place.space, user, session)
        if place.id:
            home = self.runtime.pieces.find(place.space, place.id)
            if home is None or home.cls is not cls:
                raise AuthoringError(
                    f"{place.space} has no {place.cls} {place.id!r} here: name a child that its parent shows now"
                )
            return home.view("session", user, session).piece
        return space.piece(cls, place.name)

    def has_classes(self) -> bool:
        """Return whether the server runs an application; otherwise it only answers commands about spaces."""
        return bool(self._classes)

    def check_open_space(self, name: str) -> None:
        """Raise AccessError unless the application has opened the space. A page must not open spaces by naming them."""
        if not self.has_opened(name):
            raise AccessError(
                f"this application has no space {name!r}: let its start(rt) open the pieces that pages show, as in "
                f"await rt.space({name!r}).open(Class, 'name')"
            )

    def has_space(self, name: str) -> bool:
        """Return whether a space exists, in the runtime or in the directory, without opening it."""
        return self.has_opened(name) or self._service.spaces.is_written(name)

    def has_opened(self, name: str) -> bool:
        """Return whether the application has opened a space."""
        return name in {each.name for each in self.runtime.core.spaces()}

    def may_create_space(self, user: str) -> bool:
        """Return whether a user may create a space by naming it."""
        return self._service.insecure_local or user == self._service.owner

    async def right_of(self, space: str, user: str) -> Right:
        """Return the right of a user in a space, by the access document as this runtime sees it."""
        if not self._service.insecure_local:
            await self.runtime.core.loaded(self.access_cell(space).document)
        return self.right_if_loaded(space, user)

    async def unwritable_spaces(self) -> list[str]:
        """Return the open spaces that this application may not write, because the owner of the server may not."""
        owner = self._service.owner
        open_spaces = [each.name for each in self.runtime.core.spaces()]
        return [name for name in open_spaces if await self.right_of(name, owner) < Right.WRITE]

    def right_if_loaded(self, space: str, user: str) -> Right:
        """Return the right of a user without waiting; Right.NONE while the access document is not loaded."""
        if self._service.insecure_local:
            return Right.OWN
        value = self.access_cell(space).document.value
        return Right.NONE if value is NOT_HERE else self.right_by(value, user)

    def right_by(self, document: MaybeValue, user: str) -> Right:
        """Return the right that an access document gives a user. Without one, only the owner of the server has any."""
        return Right.NONE if document is ABSENT and user != self._service.owner else right_in(document, user)

    def access_cell(self, space: str) -> Cell[Any]:
        """Return the access document of a space."""
        return self.runtime.cell(space, ACCESS.id, Json, scope=ACCESS.scope)

    async def close(self) -> None:
        ends = await asyncio.gather(self._reaction_spaces.close(), self.runtime.close(), return_exceptions=True)
        for error in ends:
            if error is not None:
                raise error


class ReactionSpaces:
    """Spaces in which the application delivers reactions, besides those that it opened."""

    __slots__ = (
        "_backend",
        "_failures",
        "_is_closed",
        "_runtime",
        "_service",
        "_task",
        "_to_visit",
        "_waits",
        "_worker",
    )

    def __init__(self, service: Service, backend: Backend, runtime: Runtime) -> None:
        """`runtime` is the application's; it delivers in its own spaces, and errors are reported to it."""
        self._service = service
        self._backend = backend
        self._runtime = runtime
        self._worker: Runtime | None = None  # created for the first space
        self._to_visit: dict[str, bool] = {}  # in order; True if a connection stays in the space
        self._failures: dict[str, int] = {}  # failed visits of each space
        self._waits: dict[str, asyncio.TimerHandle] = {}  # the next visit of such a space
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    def start(self) -> None:
        self._service.spaces.on_visit = self._visit
        if _wanted_topics():
            for space in self._service.spaces.sizes():
                self._visit(space, False)

    @property
    def spaces(self) -> frozenset[str]:
        """The spaces that were opened for deliveries."""
        return frozenset() if self._worker is None else _space_names(self._worker)

    @property
    def is_idle(self) -> bool:
        """Whether no visit is waiting."""
        return self._task is None or self._task.done()

    def _visit(self, space: str, stays: bool) -> None:
        waits = self._waits.pop(space, None)
        if waits is not None:
            waits.cancel()
        if self._is_closed or space in self.spaces or space in _space_names(self._runtime):
            return
        self._to_visit[space] = self._to_visit.pop(space, False) or stays
        if self.is_idle:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="looking for what is to be delivered")

    async def _run(self) -> None:
        while self._to_visit:
            space = next(iter(self._to_visit))
            stays = self._to_visit.pop(space)
            try:
                is_awaited = await self._has_work(space, stays)
            except HeadwaterError as error:
                self._on_visit_failed(space, stays, error)
                continue
            self._failures.pop(space, None)
            others = [each for each in taking_part() if each.backend is self._backend]
            if is_awaited and not any(space in _space_names(each) for each in (self._runtime, *others)):
                self._open(space)

    def _on_visit_failed(self, space: str, stays: bool, error: HeadwaterError) -> None:
        """Report the first failure, and visit the space again after a wait. A damaged space is not visited again."""
        failures = self._failures.get(space, 0)
        if not failures:
            self._runtime.core.report(f"reactions of {space}", error)
        if isinstance(error, CorruptionError) or self._is_closed:
            return
        self._failures[space] = failures + 1
        clock, backoff = self._service.clock, self._service.limits.visits
        wait_us = backoff.delay_us(failures, clock.randomness(f"looking at {space}"))
        former = self._waits.pop(space, None)
        if former is not None:
            former.cancel()
        loop = asyncio.get_running_loop()
        self._waits[space] = loop.call_later(wait_us / 1e6, self._visit, space, stays)

    async def _has_work(self, space: str, stays: bool) -> bool:
        """Return whether the application has records to deliver in a space, or may get some because a connection stays
        there.
        """
        wanted = _wanted_topics()
        topics = tuple(dict.fromkeys(wanted.values()))
        known: dict[str, ReactionState] = {}
        emitted: set[str] = set()
        most = self._service.limits.visit_topics
        for at in range(0, len(topics), most):
            answer = await self._ask_space(space, topics[at : at + most])
            if answer is None:
                return False
            known.update({state.name: state for state in answer.reactions})
            emitted.update(answer.emitted)
        for name, topic in wanted.items():
            state = known.get(name)
            if state is None:
                if topic in emitted:  # A reaction that is new to the space may get all records of its topic.
                    return True
            elif state.state == "live" and (stays or state.due or state.is_filling):
                return True
        return False

    async def _ask_space(self, space: str, topics: tuple[str, ...]) -> ReactionList | None:
        """Ask a space about its reactions. None if the application has no right to write there."""
        spaces = self._service.spaces
        await spaces.enter(space, visits=True)
        try:
            host, question = spaces.host_of(space), QueryReactions(0, topics)
            answer = await asyncio.to_thread(host.call, lambda engine, _: _query_reactions(engine, question))
        finally:
            spaces.leave(space, visits=True)
        assert answer is None or isinstance(answer, ReactionList)
        return answer

    def _open(self, space: str) -> None:
        most = max(1, self._service.limits.spaces // 2)
        if len(self.spaces) >= most:
            self._service.log.warning("not attended", space=space, most=most, instead="start headwater worker for it")
            return
        if self._worker is None:
            self._worker = Runtime(self._backend, clock=self._service.clock, reacts=True)
            self._worker.core.on_error(self._runtime.core.on_failure)
            takes_part(self._worker)  # Commands and reloaded code reach this runtime, too.
        self._worker.space(space)

    async def close(self) -> None:
        """Finish the deliveries that run, and give the other targets back."""
        self._is_closed = True
        for waits in self._waits.values():
            waits.cancel()
        self._waits.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._worker is not None:
            await self._worker.close()


def _wanted_topics() -> dict[str, str]:
    """Return the topic of each reaction of the imported classes."""
    return {
        reaction_name(cls, each): topic_name(cls, each.on) for cls in imported_classes() for each in reactions_of(cls)
    }


def _query_reactions(engine: Engine, question: QueryReactions) -> Delivering | None:
    return engine.deliver(question) if engine.right_of("") >= Right.WRITE else None


def _space_names(runtime: Runtime) -> frozenset[str]:
    return frozenset(each.name for each in runtime.core.spaces())
