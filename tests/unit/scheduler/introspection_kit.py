"""Introspection over a `World`, with everything it says kept in lists."""

from __future__ import annotations

from headwater.errors import NotSettlingError
from headwater.scheduler.failures import Failure
from headwater.scheduler.introspection.introspection import Introspection
from headwater.scheduler.introspection.non_settling import NonSettlingReport
from headwater.testing.scheduler.kit import World


class Inspected:
    """A world and what looks at it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.errors: list[Exception] = []
        self.reports: list[NonSettlingReport] = []
        scheduler = world.scheduler
        self.look = Introspection(
            scheduler.current,
            scheduler.registry,
            scheduler.graph,
            scheduler.gates,
            scheduler.pass_,
            scheduler.runner,
            scheduler.limits,
            set_trace=scheduler.set_trace,
            on_error=self.errors.append,
            on_non_settling=self._told,
        )
        self._world = world

    def _told(self, report: NonSettlingReport) -> None:
        """As the scheduler's own does, in whose place this one is."""
        self.reports.append(report)
        self._world.driver.on_failure(Failure(report.node, NotSettlingError(str(report))))
