"""Headwater: a durable, demand-driven reactive runtime.

Owns the list of public names and nothing else. Every layer below imports this package on its way in, so it
loads only the errors; the other names are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.errors import (
    AbsentError,
    AccessError,
    AuthoringError,
    BacklogFullError,
    CommitConvergenceError,
    CommitRejected,
    ConflictError,
    CorruptionError,
    DirectoryInUseError,
    EventExpiredError,
    GoneError,
    HandlerFailed,
    HeadwaterError,
    InvalidValueError,
    InvariantViolation,
    LimitError,
    LoadError,
    MovedError,
    NewerVersionError,
    NotASpaceError,
    NotReadyError,
    NotSettlingError,
    PreconditionFailedError,
    ProtocolError,
    ReactionBlockedError,
    Refused,
    RuleRefusedError,
    SessionExpiredError,
    StorageError,
    UpstreamFailedError,
)
from headwater.lazy import load_on_use

if TYPE_CHECKING:
    from headwater.backoff import Backoff
    from headwater.cells.cell import Cell
    from headwater.cells.handle import Input
    from headwater.cells.handle_base import Member
    from headwater.cells.model import Json, Model, field
    from headwater.cells.runtime_port import SinkSubscription, Subscription, Topic
    from headwater.data.trace import TraceEvent
    from headwater.pieces.handles import (
        Child,
        Computed,
        Delivery,
        Each,
        Effect,
        Failed,
        Handler,
        Intent,
        Pending,
        Reaction,
        Ready,
        Resource,
    )
    from headwater.pieces.members import (
        cell,
        child,
        computed,
        each,
        effect,
        fold,
        given,
        handler,
        materializer,
        reaction,
        resource,
        topic,
    )
    from headwater.pieces.order_keys import between
    from headwater.pieces.piece import Context, Link, Piece, link
    from headwater.runtime.api.entry_points import connect, run
    from headwater.runtime.api.entry_points import open as open
    from headwater.runtime.api.runtime import Runtime
    from headwater.runtime.api.space import Space
    from headwater.runtime.core.policy import Policy
    from headwater.runtime.events.table import IntentRow
    from headwater.runtime.pieces.lifecycle import Page
    from headwater.scheduler.introspection.causes import Explanation
    from headwater.scheduler.introspection.idempotency import Finding
    from headwater.scheduler.introspection.introspection import Introspection, Pause
    from headwater.scheduler.introspection.non_settling import NonSettlingReport
    from headwater.scheduler.introspection.snapshot import GraphSnapshot, NodeRecord
    from headwater.scheduler.introspection.stats import NodeStats, Stats

# `open` is public and not listed: `from headwater import *` would replace the builtin.
__all__ = [
    "AbsentError",
    "AccessError",
    "AuthoringError",
    "BacklogFullError",
    "Backoff",
    "Cell",
    "Child",
    "CommitConvergenceError",
    "CommitRejected",
    "Computed",
    "ConflictError",
    "Context",
    "CorruptionError",
    "Delivery",
    "DirectoryInUseError",
    "Each",
    "Effect",
    "EventExpiredError",
    "Explanation",
    "Failed",
    "Finding",
    "GoneError",
    "GraphSnapshot",
    "Handler",
    "HandlerFailed",
    "HeadwaterError",
    "Input",
    "Intent",
    "IntentRow",
    "Introspection",
    "InvalidValueError",
    "InvariantViolation",
    "Json",
    "LimitError",
    "Link",
    "LoadError",
    "Member",
    "Model",
    "MovedError",
    "NewerVersionError",
    "NodeRecord",
    "NodeStats",
    "NonSettlingReport",
    "NotASpaceError",
    "NotReadyError",
    "NotSettlingError",
    "Page",
    "Pause",
    "Pending",
    "Piece",
    "Policy",
    "PreconditionFailedError",
    "ProtocolError",
    "Reaction",
    "ReactionBlockedError",
    "Ready",
    "Refused",
    "Resource",
    "RuleRefusedError",
    "Runtime",
    "SessionExpiredError",
    "SinkSubscription",
    "Space",
    "Stats",
    "StorageError",
    "Subscription",
    "Topic",
    "TraceEvent",
    "UpstreamFailedError",
    "between",
    "cell",
    "child",
    "computed",
    "connect",
    "each",
    "effect",
    "field",
    "fold",
    "given",
    "handler",
    "link",
    "materializer",
    "reaction",
    "resource",
    "run",
    "topic",
]

__version__ = "0.1.0"

# Where each name lives that is loaded on first use. The imports above tell type checkers the same.
_HOMES = {
    "Backoff": "headwater.backoff",
    "Cell": "headwater.cells.cell",
    "Input": "headwater.cells.handle",
    "SinkSubscription": "headwater.cells.runtime_port",
    "Subscription": "headwater.cells.runtime_port",
    "Json": "headwater.cells.model",
    "Model": "headwater.cells.model",
    "field": "headwater.cells.model",
    "Topic": "headwater.cells.runtime_port",
    "Link": "headwater.pieces.piece",
    "Context": "headwater.pieces.piece",
    "Child": "headwater.pieces.handles",
    "Computed": "headwater.pieces.handles",
    "Delivery": "headwater.pieces.handles",
    "Each": "headwater.pieces.handles",
    "Effect": "headwater.pieces.handles",
    "Handler": "headwater.pieces.handles",
    "Intent": "headwater.pieces.handles",
    "Reaction": "headwater.pieces.handles",
    "Resource": "headwater.pieces.handles",
    "link": "headwater.pieces.piece",
    "Member": "headwater.cells.handle_base",
    "cell": "headwater.pieces.members",
    "child": "headwater.pieces.members",
    "computed": "headwater.pieces.members",
    "each": "headwater.pieces.members",
    "effect": "headwater.pieces.members",
    "fold": "headwater.pieces.members",
    "given": "headwater.pieces.members",
    "handler": "headwater.pieces.members",
    "materializer": "headwater.pieces.members",
    "reaction": "headwater.pieces.members",
    "resource": "headwater.pieces.members",
    "topic": "headwater.pieces.members",
    "Piece": "headwater.pieces.piece",
    "between": "headwater.pieces.order_keys",
    "Failed": "headwater.pieces.handles",
    "Pending": "headwater.pieces.handles",
    "Ready": "headwater.pieces.handles",
    "Page": "headwater.runtime.pieces.lifecycle",
    "connect": "headwater.runtime.api.entry_points",
    "open": "headwater.runtime.api.entry_points",
    "Policy": "headwater.runtime.core.policy",
    "IntentRow": "headwater.runtime.events.table",
    "run": "headwater.runtime.api.entry_points",
    "Runtime": "headwater.runtime.api.runtime",
    "Space": "headwater.runtime.api.space",
    "Explanation": "headwater.scheduler.introspection.causes",
    "Finding": "headwater.scheduler.introspection.idempotency",
    "Introspection": "headwater.scheduler.introspection.introspection",
    "Pause": "headwater.scheduler.introspection.introspection",
    "NonSettlingReport": "headwater.scheduler.introspection.non_settling",
    "GraphSnapshot": "headwater.scheduler.introspection.snapshot",
    "NodeRecord": "headwater.scheduler.introspection.snapshot",
    "NodeStats": "headwater.scheduler.introspection.stats",
    "Stats": "headwater.scheduler.introspection.stats",
    "TraceEvent": "headwater.data.trace",
}


__getattr__ = load_on_use(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
