"""The runtime: a running program with its spaces, sessions and transports.

The names below are for servers, commands and tests that build a runtime from its parts; an application calls
`headwater.open` and `headwater.connect`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.lazy import load_on_use

if TYPE_CHECKING:
    from headwater.reactions.drain import Drain, Pace
    from headwater.reactions.port import Batch, LeaseLostError
    from headwater.reactions.retry_rules import Rule, Rules
    from headwater.reactions.traces import Attempt
    from headwater.runtime.attachment import Attachment, Embedded, Remote
    from headwater.runtime.core import Core
    from headwater.runtime.driver import Driver
    from headwater.runtime.entry import served
    from headwater.runtime.loopback import Loopback
    from headwater.runtime.outbox import Outbox
    from headwater.runtime.policy import Policy
    from headwater.runtime.reception import Reception
    from headwater.runtime.retry import RetryPolicy, Writer
    from headwater.runtime.runtime import Runtime
    from headwater.runtime.shared_space import Space
    from headwater.runtime.transport import Connection, Heard, Lost, Transport
    from headwater.runtime.websocket import WebSocket

__all__ = [
    "Attachment",
    "Attempt",
    "Batch",
    "Connection",
    "Core",
    "Drain",
    "Driver",
    "Embedded",
    "Heard",
    "LeaseLostError",
    "Loopback",
    "Lost",
    "Outbox",
    "Pace",
    "Policy",
    "Reception",
    "Remote",
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
        "Attachment": "headwater.runtime.attachment",
        "Embedded": "headwater.runtime.attachment",
        "Remote": "headwater.runtime.attachment",
        "served": "headwater.runtime.entry",
        "Policy": "headwater.runtime.policy",
        "Reception": "headwater.runtime.reception",
        "Runtime": "headwater.runtime.runtime",
        "Space": "headwater.runtime.shared_space",
        "Heard": "headwater.runtime.transport",
        "Lost": "headwater.runtime.transport",
        "Transport": "headwater.runtime.transport",
        "Connection": "headwater.runtime.transport",
        "Core": "headwater.runtime.core",
        "Driver": "headwater.runtime.driver",
        "Loopback": "headwater.runtime.loopback",
        "RetryPolicy": "headwater.runtime.retry",
        "Writer": "headwater.runtime.retry",
        "WebSocket": "headwater.runtime.websocket",
        "Batch": "headwater.reactions.port",
        "Drain": "headwater.reactions.drain",
        "LeaseLostError": "headwater.reactions.port",
        "Pace": "headwater.reactions.drain",
        "Attempt": "headwater.reactions.traces",
        "Rule": "headwater.reactions.retry_rules",
        "Rules": "headwater.reactions.retry_rules",
        "Outbox": "headwater.runtime.outbox",
    },
)
