"""The durable side: one append-only log per space, and the decision which commits enter it.

The names below are for the packages above and for tests that talk to an engine directly: the engine of one space, the
directory of many, the hub that serves sessions, and the values that they take and return.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.lazy import load_on_use

if TYPE_CHECKING:
    from headwater.engine.access import ACCESS
    from headwater.engine.directory import Directory
    from headwater.engine.engine import Engine
    from headwater.engine.group import Outcome
    from headwater.engine.host import Host, InlineHost, ThreadHost
    from headwater.engine.hub import Hub
    from headwater.engine.limits import DEFAULT_LIMITS, Limits
    from headwater.engine.merge import BranchDiff
    from headwater.engine.peer import Peer, PeerState
    from headwater.engine.problems import problem_code
    from headwater.engine.reads import Document, Logged, every

__all__ = [
    "ACCESS",
    "DEFAULT_LIMITS",
    "BranchDiff",
    "Directory",
    "Document",
    "Engine",
    "Host",
    "Hub",
    "InlineHost",
    "Limits",
    "Logged",
    "Outcome",
    "Peer",
    "PeerState",
    "ThreadHost",
    "every",
    "problem_code",
]

__getattr__ = load_on_use(
    __name__,
    {
        "ACCESS": "headwater.engine.access",
        "Directory": "headwater.engine.directory",
        "Engine": "headwater.engine.engine",
        "InlineHost": "headwater.engine.host",
        "Hub": "headwater.engine.hub",
        "DEFAULT_LIMITS": "headwater.engine.limits",
        "Limits": "headwater.engine.limits",
        "BranchDiff": "headwater.engine.merge",
        "Peer": "headwater.engine.peer",
        "PeerState": "headwater.engine.peer",
        "Document": "headwater.engine.reads",
        "Logged": "headwater.engine.reads",
        "Outcome": "headwater.engine.group",
        "problem_code": "headwater.engine.problems",
        "every": "headwater.engine.reads",
        "Host": "headwater.engine.host",
        "ThreadHost": "headwater.engine.host",
    },
)
