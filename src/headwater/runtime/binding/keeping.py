"""The commit that stores one event before it is handled. Its handling does not wait for the verdict, and stands on it.

Both are commits of one session, in order: the handling lands only if the storing did. So an event that is to be durable
holds up nobody, also without a connection. A storing that never left this process is made again, and its handling after
it. It reads nothing, so that it never loses. It decides nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headwater.protocol.verdict import Rejection, RuleRefused
from headwater.runtime.binding.lineage import Origin, Status
from headwater.runtime.effort import Effort, Outcome, classify

if TYPE_CHECKING:
    from headwater.replica.pending import Layer
    from headwater.replica.transaction import Transaction
    from headwater.runtime.binding.events import Event
    from headwater.runtime.core import Core

EVENT_ID_RULE: Final = "event_id"


class Keeping:
    """The storing of one event, on its way."""

    __slots__ = ("_core", "_event", "effort", "is_there", "origin")

    def __init__(self, core: Core, event: Event) -> None:
        self._core = core
        self._event = event
        self.effort = Effort(course=self, is_sure=True)
        self.origin = Origin(event.id, event.home.space.name, event.user, event.session)
        self.is_there = False  # it was refused because the row is there already

    @property
    def is_made(self) -> bool:
        """Whether its commit is shown here, or was accepted."""
        return self.origin.status in (Status.PENDING, Status.CONFIRMED)

    @property
    def is_over(self) -> bool:
        """Whether it has its verdict."""
        return self.origin.status in (Status.CONFIRMED, Status.FAILED)

    def fail(self) -> None:
        """It is not stored, and never will be."""
        self.origin.status = Status.FAILED
        self._event.is_stored = False
        self._core.observing.look()

    # ---- the course ----------------------------------------------------------------------------------

    async def turn(self) -> None:
        """It was sent, and waits for nobody."""

    def made(self, transaction: Transaction) -> None:
        event = self._event
        if self.origin.status is Status.OPEN:
            self.origin.status, self.origin.local_seq = Status.PENDING, transaction.local_seq
            event.is_stored, event.stored_in = True, event.home.space.name
            self._core.observing.look()

    def settled(self, layer: Layer, rejection: Rejection | None) -> None:
        outcome = classify(rejection, layer.local_seq)
        if outcome is Outcome.SUCCESS:
            self.origin.status = Status.CONFIRMED
        elif outcome in (Outcome.STALE, Outcome.UNSENT):
            # What stands on it fell with it, and waits until it is made again, under another number.
            self.origin.status, self.origin.local_seq = Status.OPEN, 0
        else:
            self.is_there = isinstance(rejection, RuleRefused) and rejection.rule == EVENT_ID_RULE
            self.fail()
