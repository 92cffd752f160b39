"""Headwater: a durable, demand-driven reactive runtime.

Owns the list of public names and nothing else. Every layer below imports this package on its way in, so it
loads only the errors; the other names are loaded when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from headwater.errors import (
    AbsentError,
    AccessError,
    AuthoringError,
    CommitConvergenceError,
    CommitRejected,
    ConflictError,
    CorruptionError,
    DirectoryInUseError,
    HeadwaterError,
    InvalidValueError,
    InvariantViolation,
    LimitError,
    LoadError,
    NewerVersionError,
    NotReadyError,
    NotSettlingError,
    PreconditionFailedError,
    ProtocolError,
    RuleRefusedError,
    SessionExpiredError,
    StorageError,
    UpstreamFailedError,
)

if TYPE_CHECKING:
    from headwater.backoff import Backoff

__all__ = [
    "AbsentError",
    "AccessError",
    "AuthoringError",
    "Backoff",
    "CommitConvergenceError",
    "CommitRejected",
    "ConflictError",
    "CorruptionError",
    "DirectoryInUseError",
    "HeadwaterError",
    "InvalidValueError",
    "InvariantViolation",
    "LimitError",
    "LoadError",
    "NewerVersionError",
    "NotReadyError",
    "NotSettlingError",
    "PreconditionFailedError",
    "ProtocolError",
    "RuleRefusedError",
    "SessionExpiredError",
    "StorageError",
    "UpstreamFailedError",
]

__version__ = "0.1.0"

# Where each name lives that is loaded on first use. The imports above tell type checkers the same.
_HOMES = {
    "Backoff": "headwater.backoff",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'headwater' has no attribute {name!r}")
    value: object = getattr(importlib.import_module(home), name)
    globals()[name] = value  # So that this function is asked once per name.
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
