"""Running a server: the sockets, uvicorn, and an end that answers what was accepted.

Refuses to listen where strangers could come without proving who they are.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import signal
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from errno import EADDRINUSE
from functools import partial
from pathlib import Path
from typing import Final

import uvicorn
from structlog.typing import FilteringBoundLogger

from headwater.clock import Clock
from headwater.engine.directory import Directory
from headwater.errors import AccessError, StorageError
from headwater.pieces.piece import Piece
from headwater.server.app import Door, make_app
from headwater.server.application.application import Application
from headwater.server.operation.keys import key_ids
from headwater.server.operation.limits import DEFAULT_SERVER_LIMITS, ServerLimits
from headwater.server.operation.log import Relay
from headwater.server.operation.service import Service
from headwater.server.sync.request import Lobby, Request
from headwater.server.sync.wire import Wire

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
