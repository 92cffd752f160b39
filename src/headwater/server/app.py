"""The server's doors: `/v1/sync` for replicas, `/healthz`, `/readyz` and `/metrics` for whoever watches over it."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from headwater.runtime.websocket import PATH, SUBPROTOCOLS
from headwater.server.application.application import Application
from headwater.server.application.page import PATH as PAGE_PATH
from headwater.server.application.page import Page
from headwater.server.commands.command_route import desk_route
from headwater.server.operation.metrics import CONTENT_TYPE
from headwater.server.operation.service import Service
from headwater.server.sync.connection import GOING_AWAY, Connection
from headwater.server.sync.wire import EXTENSION

STATIC: Final = Path(__file__).parent / "static"
NO_PAGE: Final = (
    "An application runs here, and it has no page. What is in a folder `page` beside its file is shown here:\n"
    "begin with page/index.html, which imports /headwater.js, and start it again.\n"
)
STRANGE: Final = "Nobody has to prove who they are here, so that pages of other sites are not served.\n"
FULL: Final = "This server takes no more connections now. Come back later.\n"
_FRESH: Final = {"cache-control": "no-cache"}  # A page and its script are of one version.


class Door:
    """Lets connections in, and knows all that are there."""

    __slots__ = ("_connections", "_draining", "_pages", "_service")

    def __init__(self, service: Service) -> None:
        self._service = service
        self._connections: set[Connection] = set()
        self._pages: set[Page] = set()
        self._draining = False

    @property
    def connections(self) -> tuple[Connection, ...]:
        """The connections of replicas that stand now."""
        return tuple(self._connections)

    def is_full(self) -> bool:
        """Whether nobody else is let in: a page is a connection like every other."""
        return self._draining or len(self._connections) + len(self._pages) >= self._service.limits.connections

    async def let_in(self, page: Page, receive: Receive, send: Send) -> None:
        """Serve a page, if there is room for one more."""
        if self.is_full():
            await receive()  # websocket.connect
            await _refuse(send, 503, FULL)
            return
        self._pages.add(page)
        gauge = self._service.metrics.connections
        gauge.inc()
        try:
            await page.run()
        finally:
            self._pages.discard(page)
            gauge.dec()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()  # websocket.connect
        name = next((name for name in scope["subprotocols"] if name in SUBPROTOCOLS), None)
        if name is None:
            spoken = ", ".join(SUBPROTOCOLS)
            await _refuse(send, 400, f"Ask for one of the sub-protocols {spoken}.\n")
            return
        if self.is_full():
            await _refuse(send, 503, FULL)
            return
        await send({"type": "websocket.accept", "subprotocol": name})
        connection = Connection(self._service, SUBPROTOCOLS[name], scope["extensions"][EXTENSION])
        self._connections.add(connection)
        gauge = self._service.metrics.connections
        gauge.inc()
        try:
            await connection.run(receive, send)
        finally:
            self._connections.discard(connection)
            gauge.dec()

    async def drain(self) -> None:
        """Answer everything that was accepted, then close every connection. Bounded by `drain_s`."""
        self._draining = True
        self._service.ready = False
        connections = tuple(self._connections)
        for connection in connections:
            connection.take_no_more()  # Whatever were taken in after the hosts were asked would not be answered.
        try:
            async with asyncio.timeout(self._service.limits.drain_s):
                for space, error in await asyncio.to_thread(self._service.spaces.drain):
                    self._service.log.error("space failed while it was drained", space=space, error=repr(error))
                for connection in connections:
                    connection.close(GOING_AWAY)
                for connection in connections:
                    await connection.closed()
                for page in tuple(self._pages):
                    await page.leave(GOING_AWAY)
        except TimeoutError:
            self._service.log.warning("shutdown did not wait for everybody", connections=len(self._connections))


async def _refuse(send: Send, status: int, text: str) -> None:
    start: MutableMapping[str, Any] = {"type": "websocket.http.response.start", "status": status, "headers": []}
    await send(start)
    await send({"type": "websocket.http.response.body", "body": text.encode()})


def make_app(
    service: Service, application: Callable[[], Application] | None = None, pages: Path | None = None
) -> tuple[Starlette, Door]:
    """All doors of a server; with an application also those for its pages, which are files of a folder."""
    door = Door(service)

    async def healthz(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(_: Request) -> Response:
        return PlainTextResponse("ok\n") if service.ready else PlainTextResponse("shutting down\n", 503)

    async def metrics(_: Request) -> Response:
        return Response(await service.metrics.latest_page(), media_type=CONTENT_TYPE)

    routes: list[BaseRoute] = [
        WebSocketRoute(PATH, door),
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/metrics", metrics),
    ]
    if application is not None:
        routes.append(desk_route(service, application))
        routes += _for_pages(door, application, pages)
    own = [Middleware(_OwnSite)] if service.insecure_local else []
    return Starlette(routes=routes, middleware=own), door


class _OwnSite:
    """Where nobody has to prove who they are, it is the programs of this machine that may ask, not every web site that
    a browser of this machine has open, nor one that gives itself the address of this machine."""

    __slots__ = ("_app",)

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or _is_own(Headers(scope=scope)):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()  # websocket.connect
            await _refuse(send, 403, STRANGE)
        else:
            await PlainTextResponse(STRANGE, 403)(scope, receive, send)


def _is_own(headers: Headers) -> bool:
    """Browsers say where a page comes from, in whatever changes something or opens a connection; programs do not."""
    host, origin = headers.get("host", ""), headers.get("origin")
    if origin is None:
        return True
    name = urlsplit(f"//{host}").hostname or ""
    return (name == "localhost" or _is_loopback(name)) and urlsplit(origin).netloc == host


def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


class _PageDoor:
    """Where pages come in."""

    __slots__ = ("_application", "_door")

    def __init__(self, door: Door, application: Callable[[], Application]) -> None:
        self._door = door
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        application, wire = self._application(), scope["extensions"][EXTENSION]
        page = Page(application, WebSocket(scope, receive, send), lambda: wire.allow(application.limits.refused_bytes))
        await self._door.let_in(page, receive, send)


def _for_pages(door: Door, application: Callable[[], Application], pages: Path | None) -> list[BaseRoute]:
    async def nothing(_: Request) -> Response:
        """What a browser is given where there is no page: which address this is, and how to have one."""
        text = NO_PAGE if application().has_classes() else "This server serves no application.\n"
        return PlainTextResponse(text)

    async def script(_: Request) -> Response:
        return FileResponse(STATIC / "headwater.js", media_type="text/javascript", headers=_FRESH)

    found: list[BaseRoute] = [WebSocketRoute(PAGE_PATH, _PageDoor(door, application)), Route("/headwater.js", script)]
    if pages is not None:
        found.append(Mount("/", StaticFiles(directory=pages, html=True)))
    else:
        found.append(Route("/", nothing))
    return found
