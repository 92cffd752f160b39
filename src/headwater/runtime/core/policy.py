"""The policy of a runtime: how patient it is with what was sent and written, and how much of it it takes on.

Every value is clamped to where it makes sense, so that arithmetic on it stays sane. That nothing vanishes does not
depend on any of them: a window of zero makes the first conflict a loud failure, not a silent one.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import isnan
from typing import Final

from headwater.backoff import LONGEST_MS, Backoff
from headwater.data.text import shown
from headwater.errors import AuthoringError
from headwater.runtime.core.local_space import KEPT_UNREAD
from headwater.runtime.writing.retry import RetryPolicy

__all__ = ["Policy"]

DAY_MS: Final = 86_400_000
_RANGES: Final[dict[str, tuple[float, float]]] = {
    "base_delay_ms": (0, LONGEST_MS),
    "max_delay_ms": (0, LONGEST_MS),
    "jitter": (0, 1),
    "retry_window_ms": (0, LONGEST_MS),
    "backlog": (1, 1_000_000),
    "in_hand": (1, 1_000_000),
    "in_outbox": (1, 10_000_000),
    "intents_kept": (0, 1_000_000),
    "retention_ms": (1, LONGEST_MS),
    "sweep_every": (1, 1_000_000),
    "sweep_page": (1, 1_000),
    "sweep_scopes": (1, 1_000_000),
    "grace_ms": (0, LONGEST_MS),
    "named_pieces": (0, 1_000_000),
    "erasures": (1, 1_000),
    "unread_kept": (0, 1_000_000),
    "answer_ms": (0, LONGEST_MS),
    "connect_ms": (0, LONGEST_MS),
}
"""From where to where each value makes sense. What is outside is taken for the nearest that does."""
_COUNTS: Final = frozenset(
    {
        "backlog",
        "erasures",
        "in_hand",
        "in_outbox",
        "intents_kept",
        "named_pieces",
        "sweep_every",
        "sweep_page",
        "sweep_scopes",
        "unread_kept",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How a runtime treats what is sent and written in it. `headwater.open(path, policy=Policy(...))`."""

    base_delay_ms: float = 25 / 32  # before the first retry of a conflicted commit: nearly nothing, then doubling,
    max_delay_ms: float = 1_000  # to at most this
    jitter: float = 1.0  # the fraction by which a delay is varied, so that those who lost together do not come together
    retry_window_ms: float = 30_000  # from its first conflict on; then it fails, loudly
    backlog: int = 256  # events of one handler of one piece that wait for their turn; one more is refused
    in_hand: int = 10_000  # events of this runtime that have no end yet; one more is refused
    in_outbox: int = 100_000  # sends without an end that an outbox holds; one more is refused
    intents_kept: int = 1_000  # events with an end that can still be looked at
    retention_ms: float = 7 * DAY_MS  # how long it is remembered that an event was handled
    sweep_every: int = 64  # events of one space that are handled before receipts that are older are looked for
    sweep_page: int = 100  # receipts that are looked at each time
    sweep_scopes: int = 10_000  # scopes whose events are counted for that; the count of a forgotten one begins anew
    grace_ms: float = 5_000  # how long a stored event is left to whoever stored it
    unread_kept: int = KEPT_UNREAD  # documents of a space that were read and are read no more, and still are here
    answer_ms: float = 10_000  # how long a piece that is opened waits for what is stored of its nodes; then they run
    connect_ms: float = 3_000  # how long it waits for a connection to another space that its nodes read
    named_pieces: int = 500  # pieces that were looked at by name and are not open: so many of them keep their nodes
    erasures: int = 16  # children of removed keys that are erased at the same time, where `forget=True` says so

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not is_number or isnan(value):
                raise AuthoringError(f"Policy({each.name}={shown(value)}): write a number")
            low, high = _RANGES[each.name]
            clamped = min(max(value, low), high)
            object.__setattr__(self, each.name, int(clamped) if each.name in _COUNTS else clamped)
        object.__setattr__(self, "max_delay_ms", max(self.max_delay_ms, self.base_delay_ms))

    @property
    def retry(self) -> RetryPolicy:
        """What of it is about conflicts."""
        backoff = Backoff.exponential(base_ms=self.base_delay_ms, max_ms=self.max_delay_ms, jitter=self.jitter)
        return RetryPolicy(backoff=backoff, window_ms=self.retry_window_ms)
