"""The server: spaces of one directory for many processes, over WebSocket. Needs the extra `server`.

The names below start a server inside another process, as tests and embedding programs do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.lazy import load_on_use

if TYPE_CHECKING:
    from headwater.server.keys import new_key, new_token
    from headwater.server.limits import DEFAULT_SERVER_LIMITS, ServerLimits
    from headwater.server.serve import Server

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
        "new_key": "headwater.server.keys",
        "new_token": "headwater.server.keys",
        "ServerLimits": "headwater.server.limits",
        "Server": "headwater.server.serve",
        "DEFAULT_SERVER_LIMITS": "headwater.server.limits",
    },
)
