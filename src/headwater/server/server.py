"""A server of one data directory: its routes, its connections, and a shutdown that answers everything accepted before.

`Server` runs uvicorn on a socket. `Acceptor` admits connections up to a limit and closes them at the end. Routes:
`/v1/sync` for replicas, `/v1/page` and files for browsers, the command API, and `/healthz`, `/readyz` and `/metrics`
for operators. A directory without keys is served only on a loopback address, and only if the caller asks for that.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from errno import EADDRINUSE
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket
from structlog.typing import FilteringBoundLogger

from headwater.clock import Clock
from headwater.engine.directory import Directory
from headwater.engine.engine import Engine
from headwater.errors import AccessError, StorageError
from headwater.pieces.piece import Piece
from headwater.runtime.channel.websocket import PATH, SUBPROTOCOLS
from headwater.server.application.application import Application
from headwater.server.application.page import PATH as PAGE_PATH
from headwater.server.application.page import OpenPage
from headwater.server.commands.command_route import make_command_route
from headwater.server.operation.health import Phase
from headwater.server.operation.keys import key_ids
from headwater.server.operation.limits import DEFAULT_SERVER_LIMITS, ServerLimits
from headwater.server.operation.metrics import CONTENT_TYPE
from headwater.server.operation.request_gate import RequestGate, refuse_socket
from headwater.server.operation.service import LogRelay, Service
from headwater.server.sync.connection import GOING_AWAY, ServerConnection
from headwater.server.sync.wire import EXTENSION, HandshakeLimit, HttpConnection, Wire

T = TypeVar("T")

STATIC: Final = Path(__file__).parent / "static"
NO_PAGE: Final = (
    "An application runs here, and it has no page. What is in a folder `page` beside its file is shown here:\n"
    "begin with page/index.html, which imports /headwater.js, and start it again.\n"
)
FULL: Final = "This server takes no more connections now. Come back later.\n"
_FRESH: Final = {"cache-control": "no-cache"}  # A page and its script have to be of one version.


class Acceptor:
    """Accepts connections of replicas and pages, and keeps those that are open."""

    __slots__ = ("_connections", "_draining", "_pages", "_service")

    def __init__(self, service: Service) -> None:
        self._service = service
        self._connections: set[ServerConnection] = set()
        self._pages: set[OpenPage] = set()
        self._draining = False

    @property
    def connections(self) -> tuple[ServerConnection, ...]:
        """The open connections of replicas."""
        return tuple(self._connections)

    def is_full(self) -> bool:
        """Return whether no further connection is accepted. Pages count as connections."""
        return self._draining or len(self._connections) + len(self._pages) >= self._service.limits.connections

    async def serve_page(self, page: OpenPage, receive: Receive, send: Send) -> None:
        """Serve a page until it ends, or refuse it if the server is full."""
        if self.is_full():
            await receive()  # websocket.connect
            await refuse_socket(send, 503, FULL)
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
            await refuse_socket(send, 400, f"Ask for one of the sub-protocols {spoken}.\n")
            return
        if self.is_full():
            await refuse_socket(send, 503, FULL)
            return
        await send({"type": "websocket.accept", "subprotocol": name})
        connection = ServerConnection(self._service, SUBPROTOCOLS[name], scope["extensions"][EXTENSION])
        self._connections.add(connection)
        gauge = self._service.metrics.connections
        gauge.inc()
        try:
            await connection.run(receive, send)
        finally:
            self._connections.discard(connection)
            gauge.dec()

    async def drain(self) -> None:
        """Answer everything accepted before, then close every connection. Takes at most `ServerLimits.drain_s`."""
        self._draining = True
        self._service.health.phase = Phase.STOPPING
        connections = tuple(self._connections)
        for connection in connections:
            connection.stop_reading()  # Messages read after the drain of the hosts would not be answered.
        try:
            async with asyncio.timeout(self._service.limits.drain_s):
                for space, error in await asyncio.to_thread(self._service.spaces.drain):
                    self._service.log.error("space failed while it was drained", space=space, exc_info=error)
                for connection in connections:
                    connection.close(GOING_AWAY)
                for connection in connections:
                    await connection.wait_closed()
                for page in tuple(self._pages):
                    await page.close(GOING_AWAY)
        except TimeoutError:
            self._service.log.warning("shutdown did not wait for all connections", connections=len(self._connections))


def make_app(
    service: Service,
    application: Callable[[], Application] | None = None,
    pages: Path | None = None,
    *,
    hosts: Iterable[str] = (),
    any_host: bool = False,
) -> tuple[ASGIApp, Acceptor]:
    """Return the ASGI application and its acceptor; with an application also the routes of its pages (files of a
    folder). It answers under its names only: see `RequestGate`.
    """
    acceptor = Acceptor(service)

    async def healthz(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(_: Request) -> Response:
        is_ready, lines = service.health.report()
        return PlainTextResponse(lines, 200 if is_ready else 503)

    async def metrics(_: Request) -> Response:
        return Response(await service.metrics.latest_page(), media_type=CONTENT_TYPE)

    routes: list[BaseRoute] = [
        WebSocketRoute(PATH, acceptor),
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/metrics", metrics),
    ]
    if application is not None:
        routes.append(make_command_route(service, application))
        routes += _page_routes(acceptor, application, pages)
    gate = RequestGate(
        Starlette(routes=routes),
        hosts=tuple(hosts),
        any_host=any_host,
        # A server without keys trusts the programs of its machine, and a browser there can have any site open.
        own_origin_only=service.insecure_local,
        on_defect=service.request_failed,
    )
    return gate, acceptor


class _PageEndpoint:
    """The WebSocket endpoint of pages."""

    __slots__ = ("_acceptor", "_application")

    def __init__(self, acceptor: Acceptor, application: Callable[[], Application]) -> None:
        self._acceptor = acceptor
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        application, wire = self._application(), scope["extensions"][EXTENSION]
        page = OpenPage(
            application, WebSocket(scope, receive, send), lambda: wire.admit(application.limits.right.message_bytes)
        )
        await self._acceptor.serve_page(page, receive, send)


def _page_routes(acceptor: Acceptor, application: Callable[[], Application], pages: Path | None) -> list[BaseRoute]:
    async def no_page(_: Request) -> Response:
        """Answer `/` of a server without pages with a text that says how to add one."""
        text = NO_PAGE if application().has_classes() else "This server serves no application.\n"
        return PlainTextResponse(text)

    async def page_script(_: Request) -> Response:
        return FileResponse(STATIC / "headwater.js", media_type="text/javascript", headers=_FRESH)

    found: list[BaseRoute] = [
        WebSocketRoute(PAGE_PATH, _PageEndpoint(acceptor, application)),
        Route("/headwater.js", page_script),
    ]
    if pages is not None:
        found.append(Mount("/", StaticFiles(directory=pages, html=True)))
    else:
        found.append(Route("/", no_page))
    return found


PORT: Final = 8_900
LOOPBACK: Final = "127.0.0.1"


def check_safe(directory: str | Path, host: str, *, insecure_local: bool) -> None:
    """Raise AccessError for a directory without keys, unless it is served on a loopback address with
    `insecure_local`.
    """
    if key_ids(directory):
        return
    if not _is_loopback(host):
        raise AccessError(
            f"{directory} has no keys, so every client that reaches {host} could do anything. Make a key first: "
            f"headwater keys new {directory}"
        )
    if not insecure_local:
        raise AccessError(
            f"{directory} has no keys, so every user of this machine could do anything. Make a key "
            f"(headwater keys new {directory}), or allow that with --insecure-local"
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False  # A host name can resolve to any address.


def listen(host: str, port: int, backlog: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With this protocol number asyncio sets TCP_NODELAY on accepted sockets.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OSError, OverflowError, UnicodeError) as error:
        listener.close()
        is_taken = getattr(error, "errno", 0) == EADDRINUSE
        instead = ". Stop the process that listens there, or name another --port" if is_taken else ""
        raise StorageError(f"cannot listen on {host}:{port}: {error}{instead}") from error
    listener.listen(backlog)
    listener.setblocking(False)
    return listener


def _listen_first(directory: str | Path, host: str, port: int, backlog: int) -> socket.socket:
    """Listen before the directory is created, so that a server that cannot listen leaves nothing behind."""
    try:
        return listen(host, port, backlog)
    except StorageError:
        if Path(directory).is_dir():
            Directory(directory).close()  # A directory in use is the better reason.
        raise


class Server(uvicorn.Server):
    """A server of one directory. `run_until_stopped` serves until a signal, or a call of `stop`."""

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
        hosts: Iterable[str] = (),
    ) -> None:
        """Open a directory and its socket; with `classes` the server also runs an application, with files for browsers
        in `pages`. `hosts` are the names under which it answers browsers, besides addresses and localhost.

        `owner` owns the spaces that the application creates; the application writes only where this user may. With
        `anyone_founds` and keys, every user with a token may create a space; otherwise only `owner` may.
        """
        check_safe(directory, host, insecure_local=insecure_local)
        self._classes = None if classes is None else tuple(classes)
        if self._classes and not owner and key_ids(directory):
            raise AccessError(
                f"{directory} has keys, and the spaces that the application makes would have no owner: name one, with "
                "--owner USER"
            )
        self._listener = _listen_first(directory, host, port, limits.listen_backlog)
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
        self._last_call: threading.Timer | None = None  # ends a process that was asked to end
        names = tuple(hosts)
        app, self._acceptor = make_app(
            self.service,
            None if classes is None else self.application,
            pages,
            hosts=names,
            any_host=not (names or self.service.insecure_local or _is_loopback(host)),
        )
        handshakes = HandshakeLimit(limits.nothing)
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        super().__init__(
            uvicorn.Config(
                app,
                http=partial(HttpConnection, handshakes),  # type: ignore[arg-type]
                ws=partial(Wire, handshakes),  # type: ignore[arg-type]
                ws_max_size=limits.nothing.message_bytes,  # until Hello
                h11_max_incomplete_event_size=limits.nothing.message_bytes,
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
        """Return the application, which is created on the event loop."""
        if self._application is None:
            if self._classes is None:
                raise AccessError("this server serves no application")
            self._application = Application(self.service, self._classes)
        return self._application

    def call_in_space(self, space: str, work: Callable[[Engine], T]) -> T:
        """Run a function with the engine of a space, in its turn, and return the result. The caller waits for it."""
        return self.service.spaces.host_of(space).call(lambda engine, _: work(engine))

    @property
    def acceptor(self) -> Acceptor:
        return self._acceptor

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Replace uvicorn's handling of signals, which ends the process before the spaces are closed."""
        yield

    async def run_until_stopped(self, *, signals: bool = False) -> None:
        """Serve until `stop` is called. With `signals`, SIGINT and SIGTERM call it."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM) if signals else ():
            loop.add_signal_handler(number, self._stop_process)
        log = self.service.log
        relay = LogRelay(log)
        relayed = [logging.getLogger(name) for name in ("headwater", "uvicorn", "websockets")]
        for logger in relayed:
            logger.addHandler(relay)
            logger.propagate = logger.name == "headwater"  # An application that sets up logging hears of it there, too.
        logging.getLogger("uvicorn").setLevel(logging.ERROR)  # It warns of each malformed request of a stranger.
        log.info("listening", host=self.address[0], port=self.address[1])
        self.service.loop_watch.start()
        try:
            await self.serve(sockets=[self._listener])
        finally:
            self.service.loop_watch.stop()
            await self.service.spaces.settle()
            await asyncio.to_thread(self.service.spaces.close)
            log.info("stopped")
            if self._last_call is not None:
                self._last_call.cancel()
            for logger in relayed:
                logger.removeHandler(relay)
                logger.propagate = True

    def stop(self) -> None:
        self.should_exit = True

    def _stop_process(self) -> None:
        """Stop because of a signal. The process ends within `ServerLimits.stop_s`, whatever it is doing."""
        self.stop()
        if self._last_call is None:
            self._last_call = threading.Timer(self.service.limits.stop_s, self._end_process)
            self._last_call.daemon = True
            self._last_call.start()

    def _end_process(self) -> None:
        """End the process with work unfinished. Every commit that was acknowledged is on the disk (C6)."""
        self.service.log.warning("shutdown did not wait for all work", seconds=self.service.limits.stop_s)
        os._exit(0)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer everything accepted before, then close the connections."""
        for listening in self.servers:
            listening.close()
        try:
            if self._application is not None:
                await self._application.close()
            await self._acceptor.drain()
        finally:
            await super().shutdown(sockets)
