"""The server's doors: `/v1/sync` for replicas, `/healthz`, `/readyz` and `/metrics` for whoever watches over it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any, Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from headwater.runtime.websocket import PATH, SUBPROTOCOLS
from headwater.server.application import Application
from headwater.server.connection import GOING_AWAY, Connection
from headwater.server.desk_door import desk_route
from headwater.server.metrics import CONTENT_TYPE
from headwater.server.pages import PATH as PAGE_PATH
from headwater.server.pages import Page
from headwater.server.service import Service
from headwater.server.wire import EXTENSION

STATIC: Final = Path(__file__).parent / "static"
_FRESH: Final = {"cache-control": "no-cache"}  # A page and its script are of one version.


class Door:
    """Lets connections in, and knows all that are there."""

    __slots__ = ("_connections", "_draining", "_service")

    def __init__(self, service: Service) -> None:
        self._service = service
        self._connections: set[Connection] = set()
        self._draining = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()  # websocket.connect
        name = next((name for name in scope["subprotocols"] if name in SUBPROTOCOLS), None)
        if name is None:
            spoken = ", ".join(SUBPROTOCOLS)
            await _refuse(send, 400, f"Ask for one of the sub-protocols {spoken}.\n")
            return
        if self._draining or len(self._connections) >= self._service.limits.connections:
            await _refuse(send, 503, "This server takes no more connections now. Come back later.\n")
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
        return Response(service.metrics.page(), media_type=CONTENT_TYPE)

    routes: list[BaseRoute] = [
        WebSocketRoute(PATH, door),
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/metrics", metrics),
    ]
    if application is not None:
        routes.append(desk_route(service, application))
        routes += _for_pages(application, pages)
    return Starlette(routes=routes), door


def _for_pages(application: Callable[[], Application], pages: Path | None) -> list[BaseRoute]:
    async def page(socket: WebSocket) -> None:
        await Page(application(), socket).run()

    async def script(_: Request) -> Response:
        return FileResponse(STATIC / "headwater.js", media_type="text/javascript", headers=_FRESH)

    found: list[BaseRoute] = [WebSocketRoute(PAGE_PATH, page), Route("/headwater.js", script)]
    if pages is not None:
        found.append(Mount("/", StaticFiles(directory=pages, html=True)))
    return found
