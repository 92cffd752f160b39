"""The policy of a runtime: how long it retries events and writes, and how many it accepts.

A negative value is refused. Every other value is clamped to the range in which it makes sense, so that arithmetic with
it is safe. No value can make an
event or a write vanish: with a window of zero the first conflict is a reported failure, not a silent one.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, fields
from math import isnan
from typing import Final

from headwater.backoff import LONGEST_MS, Backoff, check_backoff
from headwater.data.text import shown
from headwater.errors import AuthoringError

__all__ = ["Policy", "RetryPolicy"]

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
"""The range of each value. A value outside its range is replaced by the nearest bound."""
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
class RetryPolicy:
    """How long a write is retried. The first delays are nearly nothing: a conflict usually clears at once."""

    backoff: Backoff = field(default_factory=lambda: Backoff.exponential(base_ms=25 / 32, max_ms=1_000, jitter=1.0))
    window_ms: float = 30_000
    news_us: int = 5_000  # longest wait of a retry for the next commit of other writers
    spread: float = 4.0  # round trips over which writers that lost together retry, not all at once,
    spread_us: int = 50_000  # and at most this long
    turn_ms: int = 100  # longest wait for a turn that the engine promised
    pending: int = 256  # commits of this session without a verdict; a further one waits
    at_once: int = 32  # conflicts after which even a write with a turn waits for the delay, so that it ends

    def __post_init__(self) -> None:
        check_backoff("RetryPolicy: backoff", self.backoff)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How a runtime treats events and writes. `headwater.open(path, policy=Policy(...))`."""

    base_delay_ms: float = 25 / 32  # before the first retry of a conflicted commit: nearly nothing, then doubling,
    max_delay_ms: float = 1_000  # to at most this
    jitter: float = 1.0  # fraction by which a delay is varied, so that writers that lost together retry apart
    retry_window_ms: float = 30_000  # from the first conflict of a write until it fails with an error
    backlog: int = (
        256  # events of one handler of one piece that wait; one more `send` waits for room, `post` is refused
    )
    in_hand: int = 10_000  # events of this runtime without an outcome; one more waits or is refused in the same way
    in_outbox: int = 100_000  # sends without an outcome that an outbox holds; one more is refused
    intents_kept: int = 1_000  # events with an outcome that can still be inspected
    retention_ms: float = 7 * DAY_MS  # how long the receipt of a handled event is kept
    sweep_every: int = 64  # handled events of one space between two searches for older receipts
    sweep_page: int = 100  # receipts that each search examines
    sweep_scopes: int = 10_000  # scopes whose events are counted for that; the count of a forgotten scope restarts
    grace_ms: float = 5_000  # how long a stored event is left to the runtime that stored it
    unread_kept: int = 1_000  # documents of a space that stay here after their last reader is gone
    answer_ms: float = 10_000  # how long an opening piece waits for the stored state of its nodes; then they run
    connect_ms: float = 3_000  # how long it waits for a connection to another space that its nodes read
    named_pieces: int = 500  # pieces that were read by name, are not open, and keep their nodes
    erasures: int = 16  # children of removed keys that are erased at the same time, where `forget=True` says so
    unobserved: Collection[str] = ()  # spaces whose runs are not stored: their demanded nodes run at each start

    def __post_init__(self) -> None:
        names = self.unobserved
        if not isinstance(names, (tuple, list, set, frozenset)) or not all(type(each) is str for each in names):
            raise AuthoringError(f"Policy(unobserved={shown(names)}): write the names of spaces, as in ('scratch',)")
        object.__setattr__(self, "unobserved", tuple(names))
        for each in fields(self):
            if each.name not in _RANGES:
                continue
            value = getattr(self, each.name)
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not is_number or isnan(value):
                raise AuthoringError(f"Policy({each.name}={shown(value)}): write a number")
            if value < 0:
                raise AuthoringError(f"Policy({each.name}={shown(value)}): write a number that is not negative")
            low, high = _RANGES[each.name]
            clamped = min(max(value, low), high)
            object.__setattr__(self, each.name, int(clamped) if each.name in _COUNTS else clamped)
        object.__setattr__(self, "max_delay_ms", max(self.max_delay_ms, self.base_delay_ms))

    @property
    def retry(self) -> RetryPolicy:
        """The settings for retries after conflicts."""
        backoff = Backoff.exponential(base_ms=self.base_delay_ms, max_ms=self.max_delay_ms, jitter=self.jitter)
        return RetryPolicy(backoff=backoff, window_ms=self.retry_window_ms)
