"""The door to the desk: one HTTP request a question, from whoever proves who they are.

Who asks is looked at before anything of the question is read, and how long the question is before the rest of it is.
Without an application it answers what stands in the log; with one also what its members show. Nothing is decided here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from http import HTTPStatus
from math import inf
from typing import Final, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from headwater.engine.admission.access import Right
from headwater.engine.engine import Engine
from headwater.engine.sync.hub import Hub
from headwater.errors import AccessError, HeadwaterError, LimitError
from headwater.protocol.command_messages import DESK_PATH, Question, Told
from headwater.server.application.application import Application
from headwater.server.commands.command_api import Desk
from headwater.server.commands.safe_copy import copied
from headwater.server.operation.limits import ServerLimits
from headwater.server.operation.service import Service

T = TypeVar("T")
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
    hub.changed_outside()
    return found


def desk_route(service: Service, application: Callable[[], Application]) -> Route:
    """The route of the desk."""

    limits = service.limits

    async def ask(request: Request) -> Response:
        header = request.headers.get("authorization", "")
        token = header[len(BEARER) :] if header.lower().startswith(BEARER) else ""
        try:
            # fault desk.body_read_first: await request.body(); name, _ = service.authenticate(token)
            name, _ = service.authenticate(token)
        except AccessError as error:
            # The server closes the connection rather than read a long body of a stranger.
            closes = {} if _length(request) <= limits.command_bytes else {"connection": "close"}
            return _refused(error, HTTPStatus.UNAUTHORIZED, {"www-authenticate": "Bearer", **closes})
        parts = request.stream()
        try:
            body = await _body(request, parts, limits.command_bytes)
        except LimitError as error:
            if "close" in request.headers.get("connection", "").lower():
                # The socket is closed with the answer. A client that is still writing would not read it.
                await _throw_away(parts, limits)
            return _refused(error, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        try:
            asked = await asyncio.to_thread(msgspec.json.decode, body, type=Question)
            user = application().called(name, token, asked.user)
            told = Told(answer=await _answer(service, application(), asked, user))
            return Response(await asyncio.to_thread(msgspec.json.encode, told), media_type="application/json")
        except AccessError as error:
            return _refused(error, HTTPStatus.FORBIDDEN)
        except (HeadwaterError, msgspec.MsgspecError, RecursionError) as error:
            return _refused(error, HTTPStatus.BAD_REQUEST)

    return Route(DESK_PATH, ask, methods=["POST"])


def _refused(error: Exception, status: HTTPStatus, headers: dict[str, str] | None = None) -> Response:
    said = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
    told = msgspec.json.encode(Told(error=said, kind=type(error).__name__))
    return Response(told, status, headers, media_type="application/json")


def _length(request: Request) -> float:
    """How many bytes the body of a request has, if its header says so."""
    said = request.headers.get("content-length", "")
    return int(said) if said.isdecimal() else inf


async def _body(request: Request, parts: AsyncIterator[bytes], most: int) -> bytes:
    text = f"a question has at most {most:,} bytes: ask for less at once, or write less"
    # fault desk.length_not_looked_at: if False:
    if inf > _length(request) > most:
        raise LimitError(text)
    found = bytearray()
    async for part in parts:
        found += part
        if len(found) > most:
            raise LimitError(text)
    return bytes(found)


async def _throw_away(parts: AsyncIterator[bytes], limits: ServerLimits) -> None:
    """Read the rest of a body that is too long and keep none of it, for a bounded time and up to a bounded length."""
    length = 0
    with suppress(ClientDisconnect, TimeoutError):
        async with asyncio.timeout(limits.hello_s):
            async for part in parts:
                length += len(part)
                if length > limits.refused_bytes:
                    return


async def _answer(service: Service, application: Application, asked: Question, user: str) -> object:

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
