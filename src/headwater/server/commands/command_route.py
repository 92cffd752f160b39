"""The HTTP route of the command API: one POST request for each question.

The token is checked before the body is read, and the length of the body before the rest of it. Without an application
only questions about stored documents and the log can be answered.
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

from headwater.engine.admission.access import ACCESS, Right
from headwater.engine.engine import Engine
from headwater.engine.sync.host import ThreadHost
from headwater.engine.sync.hub import Hub
from headwater.errors import AccessError, HeadwaterError, LimitError, ProtocolError
from headwater.protocol.command_messages import COMMAND_PATH, CommandAnswer, CommandQuestion
from headwater.server.application.application import Application, no_right
from headwater.server.commands.command_api import CommandApi
from headwater.server.commands.safe_copy import copy_space_file
from headwater.server.operation.limits import ServerLimits
from headwater.server.operation.service import Service

T = TypeVar("T")
BEARER: Final = "bearer "
CLOSES: Final = {"connection": "close"}


class ServedEngines:
    """The engines of a server's spaces.

    A question waits for its space without a thread, so that a busy space keeps no other from its answers.
    """

    __slots__ = ("_service",)

    def __init__(self, service: Service) -> None:
        self._service = service

    def sizes(self) -> dict[str, int]:
        return self._service.spaces.sizes()

    async def ask(self, space: str, question: Callable[[Engine], T]) -> T:
        spaces = self._service.spaces
        with spaces.question(space):
            await spaces.enter(space, visits=True)
            try:
                return await _asked(spaces.host_of(space), question)
            finally:
                spaces.leave(space)  # Not as a visit: the question may have made targets due.

    async def copy(self, space: str) -> str:
        """Copy the file of a space on the engine's thread, so that nothing is written meanwhile."""
        file, now_us = self._service.spaces.file_of(space), self._service.clock.now_us()
        return await self.ask(space, lambda _: copy_space_file(file, now_us, self._service.limits).parent.name)


async def _asked(host: ThreadHost, question: Callable[[Engine], T]) -> T:
    """Ask an engine on its thread, and return the answer. A caller that is cancelled leaves the question there."""
    # fault desk.question_in_thread: return await asyncio.to_thread(host.call, lambda e, h: _ask_engine(e, h, question))
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[T] = loop.create_future()

    def settle(set_: Callable[[], None]) -> None:
        if not answered.done():
            set_()

    def then(answer: T) -> None:
        with suppress(RuntimeError):  # The loop is closed.
            loop.call_soon_threadsafe(settle, lambda: answered.set_result(answer))

    def fail(error: BaseException) -> None:
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, lambda: answered.set_exception(error))

    host.ask(lambda engine, hub: _ask_engine(engine, hub, question), then, fail)
    return await answered


def _ask_engine(engine: Engine, hub: Hub, question: Callable[[Engine], T]) -> T:
    """Ask the engine, and have the hub send changes, of a merge or an operator's action, to all connections."""
    found = question(engine)
    hub.changed_outside()
    return found


def make_command_route(service: Service, application: Callable[[], Application]) -> Route:
    """Return the route."""

    limits = service.limits

    async def ask(request: Request) -> Response:
        header = request.headers.get("authorization", "")
        token = header[len(BEARER) :] if header.lower().startswith(BEARER) else ""
        try:
            # fault desk.body_read_first: await request.body(); name, _ = service.authenticate(token)
            name, _ = service.authenticate(token)
        except AccessError as error:
            # The connection is closed, so that a long body of an unknown client is not read.
            closes: dict[str, str] = {} if _content_length(request) <= limits.token.body_bytes else CLOSES
            return _refuse(error, HTTPStatus.UNAUTHORIZED, {"www-authenticate": "Bearer", **closes})
        encoding = request.headers.get("content-encoding", "identity").lower()
        if encoding != "identity":
            wrong = ProtocolError(f"a body encoded as {encoding[:20]!r} is not decoded here: send it as it is")
            return _refuse(wrong, HTTPStatus.UNSUPPORTED_MEDIA_TYPE, CLOSES)
        parts = request.stream()
        try:
            async with asyncio.timeout(limits.token.seconds):
                body = await _read_body(request, parts, limits.token.body_bytes)
        except TimeoutError:
            late = LimitError(f"the body did not arrive within {limits.token.seconds:g} s")
            return _refuse(late, HTTPStatus.REQUEST_TIMEOUT, CLOSES)
        except LimitError as error:
            if "close" in request.headers.get("connection", "").lower():
                # The socket is closed with the answer. A client that is still writing would not read it.
                await _discard_body(parts, limits)
            return _refuse(error, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        try:
            asked = await _aside(limits, body, lambda: msgspec.json.decode(body, type=CommandQuestion))
            user = application().resolve_user(name, token, asked.user)
            with service.accounts.question(name):
                told = CommandAnswer(answer=await _answer(service, application(), asked, user))
            return Response(await asyncio.to_thread(msgspec.json.encode, told), media_type="application/json")
        except AccessError as error:
            return _refuse(error, HTTPStatus.FORBIDDEN)
        except (HeadwaterError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            return _refuse(error, HTTPStatus.BAD_REQUEST)

    return Route(COMMAND_PATH, ask, methods=["POST"])


def _refuse(error: Exception, status: HTTPStatus, headers: dict[str, str] | None = None) -> Response:
    said = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
    told = msgspec.json.encode(CommandAnswer(error=said, kind=type(error).__name__))
    return Response(told, status, headers, media_type="application/json")


def _content_length(request: Request) -> float:
    """Return the Content-Length of a request, or infinity."""
    said = request.headers.get("content-length", "")
    return int(said) if said.isdecimal() else inf


async def _read_body(request: Request, parts: AsyncIterator[bytes], most: int) -> bytes:
    text = f"a question has at most {most:,} bytes: ask for less at once, or write less"
    # fault desk.length_not_looked_at: if False:
    if inf > _content_length(request) > most:
        raise LimitError(text)
    found = bytearray()
    async for part in parts:
        found += part
        if len(found) > most:
            raise LimitError(text)
    return bytes(found)


async def _aside(limits: ServerLimits, data: bytes, decode: Callable[[], T]) -> T:
    """Decode a long text on another thread, a short one at once."""
    return await asyncio.to_thread(decode) if len(data) > limits.aside_bytes else decode()


async def _discard_body(parts: AsyncIterator[bytes], limits: ServerLimits) -> None:
    """Read and discard the rest of a body that is too long, for a bounded time and up to a bounded length."""
    length = 0
    with suppress(ClientDisconnect, TimeoutError):
        async with asyncio.timeout(limits.token.seconds):
            async for part in parts:
                length += len(part)
                if length > limits.right.message_bytes:
                    return


async def _answer(service: Service, application: Application, asked: CommandQuestion, user: str) -> object:

    async def check(space: str, right: Right) -> None:
        if not space:
            if not application.may_create_space(user):
                raise AccessError(f"{user!r} may not ask about all spaces: ask the operator of this server")
            return
        if not application.has_space(space):
            if not application.may_create_space(user):
                raise no_right(user, space)
        elif await right_of(space) < right:
            raise no_right(user, space)

    async def right_of(space: str) -> Right:
        """Ask the space itself if the application has not opened it: a question must not keep a space open."""
        if service.insecure_local or application.has_opened(space):
            return await application.right_of(space, user)
        return await engines.ask(space, lambda engine: application.right_by(engine.read(ACCESS).value, user))

    engines = ServedEngines(service)
    return await CommandApi(application.runtime, engines, service.limits).answer(asked, user, check)
