"""The scheduler: runs exactly the nodes that are invalid and demanded.

Start with `node.py` (the record of a node), then `scheduler.py` (the facade that composes the components).
`registry.py` holds the nodes, `graph/` their edges, `invalidation.py` marks nodes whose inputs changed, `gates.py`
delays nodes, `pass_.py` orders runs and `runner.py` makes them. The runner uses `freshness.py`, `suspension.py`,
`waiting_nodes.py`, `commit_verdicts.py` and `failures.py`; the pass uses `nested_runs.py`. `run_reporter.py`
reports runs, `persistence.py` restores nodes; `introspection/` is for people and tests; `limits.py` has every bound.

Imported by `runtime` and `server`. Imports `cells` and the layers below. The names below are for the runtime and for
tests that drive a scheduler without a runtime.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.lazy import load_on_use

if TYPE_CHECKING:
    from headwater.scheduler.failures import Failure
    from headwater.scheduler.limits import SchedulerLimits
    from headwater.scheduler.node import CLEAN, INVALID, Node, NodeKind, check_node
    from headwater.scheduler.registry import NodeSpec
    from headwater.scheduler.scheduler import Scheduler

__all__ = [
    "CLEAN",
    "INVALID",
    "Failure",
    "Node",
    "NodeKind",
    "NodeSpec",
    "Scheduler",
    "SchedulerLimits",
    "check_node",
]

__getattr__ = load_on_use(
    __name__,
    {
        "SchedulerLimits": "headwater.scheduler.limits",
        "CLEAN": "headwater.scheduler.node",
        "INVALID": "headwater.scheduler.node",
        "Node": "headwater.scheduler.node",
        "NodeKind": "headwater.scheduler.node",
        "check_node": "headwater.scheduler.node",
        "NodeSpec": "headwater.scheduler.registry",
        "Failure": "headwater.scheduler.failures",
        "Scheduler": "headwater.scheduler.scheduler",
    },
)
