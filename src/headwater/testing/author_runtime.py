"""A runtime of an author's simulation: the one that ships, for one user, with its diagnoses switched on.

Owns what is different about it, which is little: whose it is where nobody says so, that its runs are counted and
checked, and that it can be killed. Nothing that it decides is decided here.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from headwater.clock import VirtualClock
from headwater.data.trace import TraceEvent
from headwater.errors import HeadwaterError
from headwater.runtime import Outbox, Policy, Runtime, Space
from headwater.scheduler import Failure
from headwater.testing.author_counts import Counts
from headwater.testing.author_network import Client, Route
from headwater.testing.author_trace import Trace

FAILURES: Final = 1_000
BROKEN: Final = "the runtime itself"


class SimulatedRuntime(Runtime):
    """The runtime of one user."""

    def __init__(
        self,
        client: Client,
        clock: VirtualClock,
        counts: Counts,
        trace: Trace,
        policy: Policy | None = None,
        outbox: Outbox | None = None,
        reacts: bool = True,
    ) -> None:
        super().__init__(Route(client), clock=clock, policy=policy, outbox=outbox, reacts=reacts)
        self.client = client
        self.failures: deque[Failure] = deque(maxlen=FAILURES)
        self.broke: Exception | None = None  # what must not happen
        self._trace = trace
        self.introspection.idempotency.switch(on=True)

        def happened(event: TraceEvent) -> None:
            counts.happened(self, client.user, event)

        self.introspection.on_event(happened)
        self.on_failure(self._failed)

    def space(self, name: str, /, *, user: str | None = None, session: str = "") -> Space:
        """A space, for the user of this runtime unless another one is named."""
        return super().space(name, user=self.client.user if user is None else user, session=session)

    def _failed(self, failure: Failure) -> None:
        self._trace.note(self.client.user, "failed:", failure.node, failure.error)
        self.failures.append(failure)
        if failure.node == BROKEN:
            self.broke = failure.error

    async def kill(self) -> None:
        """The process is gone. Whoever waits for something of it is told so."""
        self.client.die()
        self.reactions.abandon()
        self.close_s = 0.0
        try:
            await self.close()
        except HeadwaterError as error:  # What a crash leaves undone is what a crash is about.
            self._trace.note(self.client.user, "is killed:", error)
