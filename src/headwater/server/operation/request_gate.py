"""The gate in front of every route: requests that are malformed, of another host or of another origin end here.

A web site can give its own name the address of this server (DNS rebinding), so that scripts of the site reach it. Their
requests carry that name as Host, and `RequestGate` answers them on no path. Addresses and `localhost` are always names
of the server, since no site has them; others have to be named (`hosts`). A server with keys that listens on more than
this machine answers under every name, unless its names are given.

Every answer says that it must not be shown inside a frame of another site. A defect of a route is answered with 500 and
reported with its place in the code, without its message, which may contain values of users.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Collection, MutableMapping
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

MALFORMED: Final = "This request cannot be understood.\n"
FOREIGN_HOST: Final = "This server has no such name. Name it with --host-name, if it has.\n"
FOREIGN_ORIGIN: Final = "This server asks users for no token, so that pages of other sites are not served.\n"
DEFECT: Final = "The server has a defect here. Its log has the place.\n"
NO_FRAMES: Final = (
    (b"x-frame-options", b"DENY"),
    (b"content-security-policy", b"frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)


class RequestGate:
    """Passes on the requests that this server answers."""

    __slots__ = ("_app", "_hosts", "_is_open", "_on_defect", "_own_origin_only")

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: Collection[str],
        any_host: bool,
        own_origin_only: bool,
        on_defect: Callable[[str, Exception], object],
    ) -> None:
        """`hosts`: names of this server besides addresses and localhost; `any_host`: all names are. With
        `own_origin_only`, scripts of pages of other origins are refused, too. `on_defect` gets the route of an error.
        """
        self._app = app
        self._hosts = frozenset(name.lower() for name in hosts)
        self._is_open = any_host
        self._own_origin_only = own_origin_only
        self._on_defect = on_defect

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        is_started = False

        async def send_guarded(message: MutableMapping[str, Any]) -> None:
            nonlocal is_started
            is_started = True
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                message["headers"] = [*message.get("headers", ()), *NO_FRAMES]
            await send(message)

        refused = self._refusal(Headers(scope=scope))
        if refused is not None:
            await refuse(scope, receive, send_guarded, *refused)
            return
        try:
            await self._app(scope, receive, send_guarded)
        except (OSError, ClientDisconnect):
            pass  # The peer disconnected.
        except Exception as error:
            self._on_defect(scope["path"], error)
            if not is_started:
                await refuse(scope, receive, send_guarded, 500, DEFECT)

    def _refusal(self, headers: Headers) -> tuple[int, str] | None:
        """Return the status and text of a refusal, or None for a request that is passed on."""
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        if len(hosts) != 1 or len(origins) > 1:
            return 400, MALFORMED
        host = _split(f"//{hosts[0]}")
        if host is None or not host.hostname or host.netloc != hosts[0] or host.username is not None:
            return 400, MALFORMED
        origin = _split(origins[0]) if origins else None
        if origins and origin is None:
            return 400, MALFORMED
        # fault gate.rebound_host_answered: if False:
        if not (self._is_open or self._is_own(host.hostname)):
            return 421, FOREIGN_HOST
        if self._own_origin_only and origin is not None and origin.netloc != hosts[0]:
            return 403, FOREIGN_ORIGIN
        return None

    def _is_own(self, name: str) -> bool:
        return name == "localhost" or name in self._hosts or _is_address(name)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _split(url: str) -> SplitResult | None:
    """Return the parts of a URL, or None if it is malformed."""
    try:
        parts = urlsplit(url)
        _ = parts.port, parts.hostname  # These are checked when they are asked for.
    except ValueError:
        return None
    return parts if parts.netloc.isascii() else None


async def refuse(scope: Scope, receive: Receive, send: Send, status: int, text: str) -> None:
    """Answer a request with a status and a text, instead of a route."""
    if scope["type"] == "websocket":
        await receive()  # websocket.connect
        await refuse_socket(send, status, text)
    else:
        await PlainTextResponse(text, status)(scope, receive, send)


async def refuse_socket(send: Send, status: int, text: str) -> None:
    """Refuse a WebSocket whose `websocket.connect` was received."""
    start: MutableMapping[str, Any] = {"type": "websocket.http.response.start", "status": status, "headers": []}
    await send(start)
    await send({"type": "websocket.http.response.body", "body": text.encode()})
