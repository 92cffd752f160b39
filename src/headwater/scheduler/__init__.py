"""The scheduler: nine components that run exactly the invalid nodes that are demanded, behind one facade.

The names below are for the runtime and for tests that drive a scheduler without one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.lazy import load_on_use

if TYPE_CHECKING:
    from headwater.scheduler.limits import SchedulerLimits
    from headwater.scheduler.node import CLEAN, INVALID, Node, NodeKind, check_node
    from headwater.scheduler.registry import NodeSpec
    from headwater.scheduler.scheduler import Failure, Scheduler

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
        "Failure": "headwater.scheduler.scheduler",
        "Scheduler": "headwater.scheduler.scheduler",
    },
)
