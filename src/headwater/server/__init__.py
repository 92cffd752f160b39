"""The server: spaces of one directory for many processes, over WebSocket. Needs the extra `server`.

Start with `server.py` (the socket, the routes and the shutdown). `sync` serves replicas, `application` runs an
application and serves its pages, `commands` answers the command line, `operation` has the parts that they share:
spaces, keys, limits, metrics.

Imported by `cli`, and by tests and programs that start a server in their own process (the names below). Imports
`runtime` and below.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.lazy import load_on_use

if TYPE_CHECKING:
    from headwater.server.operation.keys import new_key, new_token
    from headwater.server.operation.limits import DEFAULT_SERVER_LIMITS, ServerLimits
    from headwater.server.server import Server

__all__ = [
    "DEFAULT_SERVER_LIMITS",
    "Server",
    "ServerLimits",
    "new_key",
    "new_token",
]

__getattr__ = load_on_use(
    __name__,
    {
        "new_key": "headwater.server.operation.keys",
        "new_token": "headwater.server.operation.keys",
        "ServerLimits": "headwater.server.operation.limits",
        "Server": "headwater.server.server",
        "DEFAULT_SERVER_LIMITS": "headwater.server.operation.limits",
    },
)
