"""Running a server: the sockets, uvicorn, and an end that answers what was accepted.

Refuses to listen where strangers could come without proving who they are.

The server's doors: `/v1/sync` for replicas, `/healthz`, `/readyz` and `/metrics` for whoever watches over it.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import signal
import socket
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from errno import EADDRINUSE
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket
from structlog.typing import FilteringBoundLogger

from headwater.clock import Clock
from headwater.engine.directory import Directory
from headwater.errors import AccessError, StorageError
from headwater.pieces.piece import Piece
from headwater.runtime.websocket import PATH, SUBPROTOCOLS
from headwater.server.application.application import Application
from headwater.server.application.page import PATH as PAGE_PATH
from headwater.server.application.page import Page
from headwater.server.commands.command_route import desk_route
from headwater.server.operation.keys import key_ids
from headwater.server.operation.limits import DEFAULT_SERVER_LIMITS, ServerLimits
from headwater.server.operation.metrics import CONTENT_TYPE
from headwater.server.operation.service import Relay, Service
from headwater.server.sync.connection import GOING_AWAY, Connection
from headwater.server.sync.wire import EXTENSION, Lobby, Request, Wire

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


PORT: Final = 8_900
LOOPBACK: Final = "127.0.0.1"
BACKLOG: Final = 2_048


def check_safe(directory: str | Path, host: str, *, insecure_local: bool) -> None:
    """Without keys nobody can prove who they are: then only this machine, and only if that was asked for."""
    if key_ids(directory):
        return
    if not _is_loopback(host):
        raise AccessError(
            f"{directory} has no keys, so anybody who reaches {host} could do anything. Make a key first: "
            f"headwater keys new {directory}"
        )
    if not insecure_local:
        raise AccessError(
            f"{directory} has no keys, so anybody on this machine could do anything. Make a key "
            f"(headwater keys new {directory}), or say that this is fine: --insecure-local"
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False  # A name can be made to mean any address.


def listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named as TCP: only then does asyncio switch off on what is accepted that small answers wait for one another.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OSError, OverflowError, UnicodeError) as error:
        listener.close()
        is_taken = getattr(error, "errno", 0) == EADDRINUSE
        instead = ". Stop what listens there, or name another --port" if is_taken else ""
        raise StorageError(f"cannot listen on {host}:{port}: {error}{instead}") from error
    listener.listen(BACKLOG)
    listener.setblocking(False)
    return listener


def _listen_first(directory: str | Path, host: str, port: int) -> socket.socket:
    """Listen before the directory is made: one that cannot serve leaves nothing behind."""
    try:
        return listen(host, port)
    except StorageError:
        if Path(directory).is_dir():
            Directory(directory).close()  # If somebody has it, that is the better reason.
        raise


class Server(uvicorn.Server):
    """A server of one directory. `await serve()` runs until it is told to stop, by a signal or by `stop`."""

    def __init__(
        self,
        directory: str | Path,
        *,
        host: str = LOOPBACK,
        port: int = PORT,
        insecure_local: bool = False,
        clock: Clock | None = None,
        limits: ServerLimits = DEFAULT_SERVER_LIMITS,
        log: FilteringBoundLogger | None = None,
        owner: str = "",
        anyone_founds: bool = False,
        classes: Iterable[type[Piece]] | None = None,
        pages: Path | None = None,
    ) -> None:
        """With `classes` it serves an application too, and `pages` is the folder of what a browser is given.

        `owner` is the user who has the spaces that the application makes; the application writes only where this
        user may. `anyone_founds`: with keys, every user with a token may make a space; otherwise only `owner`.
        """
        check_safe(directory, host, insecure_local=insecure_local)
        self._classes = None if classes is None else tuple(classes)
        if self._classes and not owner and key_ids(directory):
            raise AccessError(
                f"{directory} has keys, and nobody would own the spaces that the application makes: say who does, with "
                "--owner USER"
            )
        self._listener = _listen_first(directory, host, port)
        try:
            self.service = Service(
                directory,
                insecure_local=insecure_local,
                clock=clock,
                limits=limits,
                log=log,
                owner=owner,
                anyone_founds=anyone_founds,
                guarded=bool(self._classes),
            )
        except BaseException:
            self._listener.close()
            raise
        self._application: Application | None = None
        app, self._door = make_app(self.service, None if classes is None else self.application, pages)
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        super().__init__(
            uvicorn.Config(
                app,
                http=partial(Request, Lobby(limits)),  # type: ignore[arg-type]
                ws=Wire,
                ws_max_size=min(limits.hello_bytes, limits.refused_bytes),  # until a connection has said who it is
                ws_ping_interval=limits.ping_s,
                ws_ping_timeout=limits.ping_s,
                ws_per_message_deflate=False,
                lifespan="off",
                access_log=False,
                log_config=None,
                server_header=False,
                timeout_graceful_shutdown=round(limits.drain_s),
            )
        )

    def application(self) -> Application:
        """The application that is served. It lives on the loop, so that it is made there."""
        if self._application is None:
            if self._classes is None:
                raise AccessError("this server serves no application")
            self._application = Application(self.service, self._classes)
        return self._application

    @property
    def door(self) -> Door:
        return self._door

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Not uvicorn's own: it ends the process by the signal, before the spaces are closed."""
        yield

    async def run_until_stopped(self, *, signals: bool = False) -> None:
        """Serve until `stop`. With `signals`, an interrupt or a request to terminate means just that."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM) if signals else ():
            loop.add_signal_handler(number, self.stop)
        log = self.service.log
        relay = Relay(log)
        for name in ("uvicorn", "websockets"):
            logging.getLogger(name).addHandler(relay)
            logging.getLogger(name).propagate = False
        logging.getLogger("uvicorn").setLevel(logging.WARNING)
        log.info("listening", host=self.address[0], port=self.address[1])
        try:
            await self.serve(sockets=[self._listener])
        finally:
            await self.service.spaces.settle()
            await asyncio.to_thread(self.service.spaces.close)
            log.info("stopped")
            for name in ("uvicorn", "websockets"):
                logging.getLogger(name).removeHandler(relay)

    def stop(self) -> None:
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """First what was accepted is answered, then the connections are closed."""
        for listening in self.servers:
            listening.close()
        try:
            if self._application is not None:
                await self._application.close()
            await self._door.drain()
        finally:
            await super().shutdown(sockets)
