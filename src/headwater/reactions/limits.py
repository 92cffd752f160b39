"""The bounds of one drain."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from headwater.backoff import Backoff


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainLimits:
    """Bounds on the messages of one drain, and on its waits."""

    outcomes_at_once: int = 500  # in one message
    outcomes_waiting: int = 5_000  # not reported yet; beyond it the oldest is dropped, whose lease is over long since
    leases_at_once: int = 1_000  # renewed by one message
    topics_at_once: int = 500  # in one question about the reactions of a space
    answer_s: float = 1.0  # a worker that stops waits so long for an answer
    asks: Backoff = field(default_factory=lambda: Backoff.exponential(base_ms=50, max_ms=5_000, jitter=0.2))
    handlers: Backoff = field(default_factory=lambda: Backoff.exponential(base_ms=100, max_ms=5_000, jitter=0.5))
    never_us: int = 1_000_000  # wait after `max_retries` attempts with `on_exhausted="never"` and without a backoff
    error_characters: int = 2_000  # of the message of an error that are kept


DEFAULT_DRAIN_LIMITS: Final = DrainLimits()
