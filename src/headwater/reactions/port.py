"""The interfaces between a drain, the reactions that it calls and the source of its targets."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, Protocol

from headwater.errors import AbsentError, AccessError, HeadwaterError, LimitError, LoadError, ProtocolError
from headwater.protocol.commit import Declared
from headwater.protocol.reactions import Delivering, Delivers, Granted, Hold, Since
from headwater.reactions.retry_rules import Rules

DEFAULT_LANE: Final = "default"


class LeaseLostError(Exception):
    """Another worker has the target, so that this delivery does not count. Never leaves this package."""


class StillRunsError(Exception):
    """A cancelled reaction goes on in a thread, which cannot be stopped. Never leaves this package."""

    def __init__(self, running: Future[Any] | None = None) -> None:
        super().__init__()
        self.running = running  # done when the thread ends


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Records of one target that are delivered together: one record, or several for a batch reaction."""

    hold: Hold
    attempt: int
    records: tuple[Granted, ...]
    is_last: bool  # no other batch of the same grant follows


class Deliverable(Protocol):
    """A reaction as the drain calls it."""

    @property
    def name(self) -> str: ...

    @property
    def topic(self) -> str: ...

    @property
    def since(self) -> Since: ...

    @property
    def lane(self) -> str: ...

    @property
    def priority(self) -> int: ...

    @property
    def batch(self) -> int:
        """The number of records in one call; 1 for a reaction that takes single records."""

    @property
    def rules(self) -> Rules: ...

    @property
    def lands(self) -> bool:
        """Whether `land` commits the result together with the position."""

    async def run(self, batch: Batch) -> Any:
        """Call the reaction outside any transaction. Raises its error, or StillRunsError if it was cancelled and goes
        on.
        """

    async def land(self, batch: Batch, result: Any) -> None:
        """Commit the result together with the position. Raises LeaseLostError if another worker has the target."""

    @property
    def has_otherwise(self) -> bool:
        """Whether `give_up` commits a record that is given up."""

    async def give_up(self, batch: Batch, reason: str) -> None:
        """Commit the handler that hears of a record that is given up, together with the position, as `land` does."""


def declaration(each: Deliverable) -> Declared:
    """Return the declaration of a reaction, for a space that may not know it."""
    return Declared(each.name, each.topic, each.since, each.lane or DEFAULT_LANE, each.priority)


def is_refusal(error: HeadwaterError) -> bool:
    """Return whether an error is a negative answer, which the same question would get again. A missing answer is
    none.
    """
    if isinstance(error, LoadError):
        return error.code not in ("", "storage")
    return isinstance(error, AbsentError | AccessError | LimitError | ProtocolError)


class TargetSource(Protocol):
    """A space that has targets: an engine in this process, or a session of one."""

    async def ask(self, question: Delivers) -> Delivering:
        """Return the answer. Raises HeadwaterError if none came; the question may have been processed all the same."""
