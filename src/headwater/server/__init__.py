"""The server: spaces of one directory for many processes, over WebSocket. Needs the extra `server`.

The names below start a server inside another process, as tests and embedding programs do.
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
