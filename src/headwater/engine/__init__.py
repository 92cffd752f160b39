"""The durable side: one append-only log per space, and the decision which commits enter it.

Start with `engine` (the facade of one space), then follow one commit: `commit_group` judges the frames of a store
transaction, `admission` decides which commits enter the log, `waves` which results of nodes do, `planned_writes`
changes the documents, `log` gives commits their places. `delivery` has events and records, `observations` the last
runs of nodes, `store` the database, `sync` the sessions of replicas. `directory` opens the files of many spaces,
`provenance` finds the commits behind a value, `verify` checks a file against the rules, `limits` has every bound that
can be set.

Imported by `runtime`, `server` and `cli`. Imports `protocol` and the layers below. The names below are for them and for
tests that talk to an engine directly: the engine of one space, the directory of many, the hub that serves sessions, and
the values that they take and return.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.lazy import load_on_use

if TYPE_CHECKING:
    from headwater.engine.admission.access import ACCESS
    from headwater.engine.admission.merge import BranchDiff
    from headwater.engine.commit_group import Outcome
    from headwater.engine.directory import Directory
    from headwater.engine.engine import Engine
    from headwater.engine.limits import DEFAULT_LIMITS, Limits
    from headwater.engine.log.history import HistoricDocument, Logged, every
    from headwater.engine.sync.error_codes import problem_code
    from headwater.engine.sync.host import Host, InlineHost, ThreadHost
    from headwater.engine.sync.hub import Hub
    from headwater.engine.sync.peer import Peer, PeerState

__all__ = [
    "ACCESS",
    "DEFAULT_LIMITS",
    "BranchDiff",
    "Directory",
    "Engine",
    "HistoricDocument",
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
        "ACCESS": "headwater.engine.admission.access",
        "Directory": "headwater.engine.directory",
        "Engine": "headwater.engine.engine",
        "InlineHost": "headwater.engine.sync.host",
        "Hub": "headwater.engine.sync.hub",
        "DEFAULT_LIMITS": "headwater.engine.limits",
        "Limits": "headwater.engine.limits",
        "BranchDiff": "headwater.engine.admission.merge",
        "Peer": "headwater.engine.sync.peer",
        "PeerState": "headwater.engine.sync.peer",
        "HistoricDocument": "headwater.engine.log.history",
        "Logged": "headwater.engine.log.history",
        "Outcome": "headwater.engine.commit_group",
        "problem_code": "headwater.engine.sync.error_codes",
        "every": "headwater.engine.log.history",
        "Host": "headwater.engine.sync.host",
        "ThreadHost": "headwater.engine.sync.host",
    },
)
