"""The door to the desk: one HTTP request a question, from whoever proves who they are.

Without an application it answers what stands in the log; with one also what its members show. Nothing is decided here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headwater.engine.access import Right
from headwater.engine.engine import Engine
from headwater.engine.hub import Hub
from headwater.errors import AccessError, HeadwaterError
from headwater.protocol.desk import DESK_PATH, Question, Told
from headwater.server.application import Application
from headwater.server.copying import copied
from headwater.server.desk import Desk
from headwater.server.service import Service

T = TypeVar("T")
MOST_BYTES: Final = 1_000_000
BEARER: Final = "bearer "


class ServedEngines:
    """The engines of a server's spaces."""

    __slots__ = ("_service",)

    def __init__(self, service: Service) -> None:
        self._service = service

    def sizes(self) -> dict[str, int]:
        return self._service.spaces.there()

    async def ask(self, space: str, question: Callable[[Engine], T]) -> T:
        spaces = self._service.spaces
        await spaces.enter(space, visits=True)
        try:
            host = spaces.host_of(space)
            return await asyncio.to_thread(host.call, lambda engine, hub: _asked(engine, hub, question))
        finally:
            spaces.leave(space)  # Not as one who only looked: there may be more to deliver now.

    async def copy(self, space: str) -> str:
        """Its engine stands still meanwhile."""
        file, now_us = self._service.spaces.file_of(space), self._service.clock.now_us()
        return await self.ask(space, lambda _: copied(file, now_us).parent.name)


def _asked(engine: Engine, hub: Hub, question: Callable[[Engine], T]) -> T:
    """What a question wrote, as merging does, or an operator changed of reactions, is told to everybody at once."""
    found = question(engine)
    hub.told()
    return found


def desk_route(service: Service, application: Callable[[], Application]) -> Route:
    """The route of the desk."""

    async def ask(request: Request) -> Response:
        try:
            asked = msgspec.json.decode(await _body(request), type=Question)
            told = Told(answer=await _answer(service, application(), asked, request))
            return Response(msgspec.json.encode(told), media_type="application/json")
        except (HeadwaterError, msgspec.MsgspecError, RecursionError) as error:
            said = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
            told = Told(error=said, kind=type(error).__name__)
            return Response(msgspec.json.encode(told), _status(error), media_type="application/json")

    return Route(DESK_PATH, ask, methods=["POST"])


def _status(error: Exception) -> int:
    return 403 if isinstance(error, AccessError) else 400


async def _body(request: Request) -> bytes:
    found = bytearray()
    async for part in request.stream():
        found += part
        if len(found) > MOST_BYTES:
            raise AccessError(f"a question has at most {MOST_BYTES:,} bytes")
    return bytes(found)


async def _answer(service: Service, application: Application, asked: Question, request: Request) -> object:
    header = request.headers.get("authorization", "")
    token = header[len(BEARER) :] if header.lower().startswith(BEARER) else ""
    user, _ = application.authenticate(token, asked.user)

    async def check(space: str, right: Right) -> None:
        if not space:
            if not application.may_make(user):
                raise AccessError(f"{user!r} may not ask about all spaces: ask whoever runs this server")
            return
        if not application.is_there(space) and not application.may_make(user):
            raise AccessError(f"there is no space {space!r} here, and {user!r} may not make one")
        if await application.right_of(space, user) < right:
            raise AccessError(f"{user!r} may not do that in {space}: ask one of its owners")

    return await Desk(application.runtime, ServedEngines(service)).answer(asked, user, check)
