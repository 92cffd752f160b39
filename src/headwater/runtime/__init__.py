"""The runtime: a running program with its spaces, sessions and transports.

Start with `api` (the objects that an application calls; its `composition` makes the parts of a runtime), then `core`
(spaces, handles, nodes and plain writes). `channel` connects spaces with their engines, `writing` retries transactions,
`pieces` has the instances of pieces, `events` runs handlers, `resume` brings nodes back without a run, `reactions`
delivers records.

Imported by `server` and `cli`. Imports `scheduler`, `reactions` and the layers below. The names below are for them and
for tests that build a runtime from its parts; an application calls `headwater.open` and `headwater.connect`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.lazy import load_on_use

if TYPE_CHECKING:
    from headwater.reactions.drain import Drain, Pace
    from headwater.reactions.port import Batch, LeaseLostError
    from headwater.reactions.retry_rules import Rule, Rules
    from headwater.reactions.traces import Attempt
    from headwater.runtime.api.entry_points import served
    from headwater.runtime.api.runtime import Runtime
    from headwater.runtime.api.space import Space
    from headwater.runtime.channel.backend import Backend, LocalDirectory, RemoteServer
    from headwater.runtime.channel.connection_end import ConnectionEnd
    from headwater.runtime.channel.driver import Driver
    from headwater.runtime.channel.loopback import Loopback
    from headwater.runtime.channel.transport import Connection, Heard, Lost, Transport
    from headwater.runtime.channel.websocket import WebSocket
    from headwater.runtime.core.core import Core
    from headwater.runtime.core.policy import Policy, RetryPolicy
    from headwater.runtime.events.outbox import Outbox
    from headwater.runtime.writing.retry import Writer

__all__ = [
    "Attempt",
    "Backend",
    "Batch",
    "Connection",
    "ConnectionEnd",
    "Core",
    "Drain",
    "Driver",
    "Heard",
    "LeaseLostError",
    "LocalDirectory",
    "Loopback",
    "Lost",
    "Outbox",
    "Pace",
    "Policy",
    "RemoteServer",
    "RetryPolicy",
    "Rule",
    "Rules",
    "Runtime",
    "Space",
    "Transport",
    "WebSocket",
    "Writer",
    "served",
]

__getattr__ = load_on_use(
    __name__,
    {
        "Backend": "headwater.runtime.channel.backend",
        "LocalDirectory": "headwater.runtime.channel.backend",
        "RemoteServer": "headwater.runtime.channel.backend",
        "served": "headwater.runtime.api.entry_points",
        "Policy": "headwater.runtime.core.policy",
        "ConnectionEnd": "headwater.runtime.channel.connection_end",
        "Runtime": "headwater.runtime.api.runtime",
        "Space": "headwater.runtime.api.space",
        "Heard": "headwater.runtime.channel.transport",
        "Lost": "headwater.runtime.channel.transport",
        "Transport": "headwater.runtime.channel.transport",
        "Connection": "headwater.runtime.channel.transport",
        "Core": "headwater.runtime.core.core",
        "Driver": "headwater.runtime.channel.driver",
        "Loopback": "headwater.runtime.channel.loopback",
        "RetryPolicy": "headwater.runtime.core.policy",
        "Writer": "headwater.runtime.writing.retry",
        "WebSocket": "headwater.runtime.channel.websocket",
        "Batch": "headwater.reactions.port",
        "Drain": "headwater.reactions.drain",
        "LeaseLostError": "headwater.reactions.port",
        "Pace": "headwater.reactions.drain",
        "Attempt": "headwater.reactions.traces",
        "Rule": "headwater.reactions.retry_rules",
        "Rules": "headwater.reactions.retry_rules",
        "Outbox": "headwater.runtime.events.outbox",
    },
)
