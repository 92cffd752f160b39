"""Retry rules of reactions: turn an error into the next step of a record (retry, block, park or skip).

Waits follow `backoff`. An error can carry its own wait (`retry_after`) or be permanent; a reaction can have rules for
kinds of errors and a time budget. This module neither waits nor counts attempts.
"""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from headwater.backoff import LONGEST_MS, Backoff
from headwater.clock import Random
from headwater.errors import AuthoringError, GoneError, Refused
from headwater.protocol.reactions import DeliveryFailure, Granted, Then
from headwater.reactions.limits import DEFAULT_DRAIN_LIMITS, DrainLimits

Exhausted = Literal["block", "park", "skip", "never"]
Rule = Backoff | Literal["permanent"]


class SourceGoneError(GoneError):
    """The piece that emitted a record is gone: the record is passed over, whatever the rules of its reaction say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How often, and after which waits, a reaction is tried again."""

    max_retries: int = 3
    backoff: Backoff = field(default_factory=Backoff.none)
    on_exhausted: Exhausted = "block"
    budget_ms: float | None = None  # since the record was emitted; beyond it there is no further attempt
    errors: Mapping[type[BaseException], Rule] = field(default_factory=dict)  # the first that matches counts

    def is_over(self, age_us: int) -> bool:
        """Return whether the budget of a record of this age is spent."""
        return self.budget_ms is not None and age_us > self.budget_ms * 1_000 and self.on_exhausted != "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedAttempt:
    """An attempt that raised: its number, from 0 on, the age of its record, and the error."""

    attempt: int
    age_us: int
    error: BaseException


def judge_failure(
    rules: Rules,
    record: Granted,
    tried: FailedAttempt,
    random: Random,
    limits: DrainLimits = DEFAULT_DRAIN_LIMITS,
) -> DeliveryFailure:
    """Decide the next step of a record that could not be delivered."""
    error = tried.error
    then, wait_us = _decide(rules, tried, random, limits.never_us)
    return DeliveryFailure(
        record.seq,
        record.ordinal,
        _storable(type(error).__qualname__, limits.error_characters),
        error_text(error, limits.error_characters),
        fingerprint(error),
        then,
        wait_us,
    )


def error_text(error: BaseException, most: int) -> str:
    """Return the message of an error, at most `most` characters, as it can be stored. Its `__str__` may raise."""
    try:
        text = str(error)
    except Exception as failed:
        text = f"its message cannot be shown: its __str__ raised {type(failed).__qualname__}"
    return _storable(text, most)


def _storable(text: str, most: int) -> str:
    """Cut a text and replace lone surrogates, which file names can contain and messages cannot."""
    return text[:most].encode("utf-8", "backslashreplace").decode()[:most]


def _decide(rules: Rules, tried: FailedAttempt, random: Random, never_us: int) -> tuple[Then, int]:
    if isinstance(tried.error, SourceGoneError):
        return "skip", 0
    rule = _find_rule(rules, tried.error)
    never = rules.on_exhausted == "never"
    if rule == "permanent" and not never:
        return _exhausted_action(rules), 0
    backoff = rule if isinstance(rule, Backoff) else rules.backoff
    wait_us = backoff.delay_us(min(tried.attempt, 1_000), random)
    said_us = retry_after_us(tried.error)
    if said_us is not None:
        wait_us = max(wait_us, said_us)
    if (tried.attempt >= rules.max_retries and not never) or rules.is_over(tried.age_us + wait_us):
        return _exhausted_action(rules), 0
    if tried.attempt >= rules.max_retries and not wait_us:
        return "retry", never_us
    return "retry", wait_us


def _exhausted_action(rules: Rules) -> Then:
    match rules.on_exhausted:
        case "block" | "park" | "skip":
            return rules.on_exhausted
        case "never":
            return "retry"


def _find_rule(rules: Rules, error: BaseException) -> Rule | None:
    for kind, rule in rules.errors.items():
        if isinstance(error, kind):
            return rule
    return "permanent" if isinstance(error, (Refused, AuthoringError)) else None


def retry_after_us(error: BaseException) -> int | None:
    """Return `retry_after` of an error, in seconds or as a timedelta, as errors of many client libraries have it.

    None if there is no such attribute, or its value is no usable time.
    """
    try:
        after = getattr(error, "retry_after", None)
    except Exception:  # A property that raises is treated as missing.
        return None
    if isinstance(after, timedelta):
        after = after.total_seconds()
    if isinstance(after, bool) or not isinstance(after, (int, float)) or not 0 <= after <= LONGEST_MS / 1_000:
        return None
    return round(after * 1_000_000)


def fingerprint(error: BaseException) -> str:
    """Return a hash of the kind of an error and of where it was raised, without its message. Equal failures have equal
    hashes.
    """
    codes = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    frames = [(code.co_name, code.co_filename.rpartition("/")[2]) for code in codes[-3:]]
    text = repr((type(error).__module__, type(error).__qualname__, frames))
    return hashlib.blake2s(text.encode("utf-8", "backslashreplace"), digest_size=6).hexdigest()
