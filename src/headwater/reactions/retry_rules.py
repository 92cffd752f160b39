"""When a reaction is tried again: the one place that turns what it raised into what becomes of the record.

Waits follow `backoff`. An error may say by itself when to come back, or be hopeless; a reaction may have rules for
kinds of errors, and a budget of time. Never waits and never counts.
"""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Literal

from headwater.backoff import LONGEST_MS, Backoff
from headwater.clock import Random
from headwater.errors import AuthoringError, Refused
from headwater.protocol.reactions import Failure, Granted, Then

Exhausted = Literal["block", "park", "skip", "never"]
Rule = Backoff | Literal["permanent"]
NEVER_US: Final = 1_000_000
"""How long whoever never gives up, and has no backoff, waits between the tries after the last one of others."""
TEXT: Final = 2_000
"""Characters of an error's message that are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How patient a reaction is."""

    max_retries: int = 3
    backoff: Backoff = field(default_factory=Backoff.none)
    on_exhausted: Exhausted = "block"
    budget_ms: float | None = None  # since the record was emitted; beyond it there is no further attempt
    errors: Mapping[type[BaseException], Rule] = field(default_factory=dict)  # the first kind that fits counts

    def is_over(self, age_us: int) -> bool:
        """Whether a record of that age is not tried again."""
        return self.budget_ms is not None and age_us > self.budget_ms * 1_000 and self.on_exhausted != "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """An attempt that came to nothing: its number, from 0 on, how old the record is, and what was raised."""

    attempt: int
    age_us: int
    error: BaseException


def judged(rules: Rules, record: Granted, tried: Tried, random: Random) -> Failure:
    """What becomes of a record that could not be delivered."""
    error = tried.error
    then, wait_us = _next(rules, tried, random)
    return Failure(
        record.seq,
        record.ordinal,
        _kept(type(error).__qualname__),
        said(error),
        fingerprint(error),
        then,
        wait_us,
    )


def said(error: BaseException) -> str:
    """What an error says, as it can be kept. Its author's code makes the words, and may fail at that, too."""
    try:
        text = str(error)
    except Exception as failed:
        text = f"what it says cannot be told: its __str__ raised {type(failed).__qualname__}"
    return _kept(text)


def _kept(text: str) -> str:
    """Without what no message can hold: names of files bring half characters along."""
    return text[:TEXT].encode("utf-8", "backslashreplace").decode()[:TEXT]


def _next(rules: Rules, tried: Tried, random: Random) -> tuple[Then, int]:
    rule = _rule(rules, tried.error)
    never = rules.on_exhausted == "never"
    if rule == "permanent" and not never:
        return _given_up(rules), 0
    backoff = rule if isinstance(rule, Backoff) else rules.backoff
    wait_us = backoff.delay_us(min(tried.attempt, 1_000), random)
    said_us = retry_after_us(tried.error)
    if said_us is not None:
        wait_us = max(wait_us, said_us)
    if (tried.attempt >= rules.max_retries and not never) or rules.is_over(tried.age_us + wait_us):
        return _given_up(rules), 0
    if tried.attempt >= rules.max_retries and not wait_us:
        return "retry", NEVER_US
    return "retry", wait_us


def _given_up(rules: Rules) -> Then:
    match rules.on_exhausted:
        case "block" | "park" | "skip":
            return rules.on_exhausted
        case "never":
            return "retry"


def _rule(rules: Rules, error: BaseException) -> Rule | None:
    for kind, rule in rules.errors.items():
        if isinstance(error, kind):
            return rule
    return "permanent" if isinstance(error, (Refused, AuthoringError)) else None


def retry_after_us(error: BaseException) -> int | None:
    """When an error says to come back: `retry_after` in seconds or as a timedelta, as clients of many services have it.

    None: it does not say, or nothing that can be understood.
    """
    try:
        after = getattr(error, "retry_after", None)
    except Exception:  # A property of its author's that fails says nothing.
        return None
    if isinstance(after, timedelta):
        after = after.total_seconds()
    if isinstance(after, bool) or not isinstance(after, (int, float)) or not 0 <= after <= LONGEST_MS / 1_000:
        return None
    return round(after * 1_000_000)


def fingerprint(error: BaseException) -> str:
    """What failures have in common that failed alike: the kind of error, and where it was raised; not its message."""
    codes = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    frames = [(code.co_name, code.co_filename.rpartition("/")[2]) for code in codes[-3:]]
    text = repr((type(error).__module__, type(error).__qualname__, frames))
    return hashlib.blake2s(text.encode("utf-8", "backslashreplace"), digest_size=6).hexdigest()
