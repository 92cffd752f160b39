"""What a drain needs: somebody to ask for targets, and reactions that do something with a record. Owns the ports."""

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
    """Somebody else has the target by now: what was done for it counts for nothing. Never leaves this package."""


class StillRunsError(Exception):
    """What a reaction does was to end, and goes on: in a thread it cannot be stopped. Never leaves this package."""

    def __init__(self, running: Future[Any] | None = None) -> None:
        super().__init__()
        self.running = running  # done when it ends after all


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Records of one target that are delivered together: one, or for a batch reaction many."""

    hold: Hold
    attempt: int
    records: tuple[Granted, ...]
    is_last: bool  # nothing else of what was claimed comes after it


class Reaction(Protocol):
    """One reaction, as the drain sees it."""

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
        """How many records it takes at once; 1: one by one."""

    @property
    def rules(self) -> Rules: ...

    @property
    def lands(self) -> bool:
        """Whether its result is committed together with the position, by `land`."""

    async def run(self, batch: Batch) -> Any:
        """Do it, outside any transaction. Raises what failed. StillRunsError: it was cancelled, and goes on."""

    async def land(self, batch: Batch, result: Any) -> None:
        """Commit the result together with the position. LeaseLostError: somebody else has the target by now."""


def declaration(each: Reaction) -> Declared:
    """What is said of a reaction to a space that may not know it."""
    return Declared(each.name, each.topic, each.since, each.lane or DEFAULT_LANE, each.priority)


def is_refusal(error: HeadwaterError) -> bool:
    """Whether a question was answered with no: asking it again is no use. Without an answer it may be."""
    if isinstance(error, LoadError):
        return error.code not in ("", "storage")
    return isinstance(error, AbsentError | AccessError | LimitError | ProtocolError)


class Desk(Protocol):
    """Whoever has the targets: an engine in this process, or a session with one."""

    async def ask(self, question: Delivers) -> Delivering:
        """The answer. HeadwaterError: there was none, and whether the question was heard is not known."""
