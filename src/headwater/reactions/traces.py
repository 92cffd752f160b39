"""What a drain reports of its work, for whoever counts, prints or draws it. Nothing is decided by it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt at one record, or at a batch of them, from its beginning to its end."""

    reaction: str
    key: str
    attempt: int
    records: int
    began_us: int
    took_us: int
    how: str  # delivered, failed, lost, given back
    then: str = ""  # of one that failed: retry, block, park, skip
    error: str = ""  # what kind of error it was,
    message: str = ""  # and what it said


@dataclass(frozen=True, slots=True, kw_only=True)
class Late:
    """Something was told too late: the target was somebody else's by then, and nothing changed."""

    reaction: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unheard:
    """What came of a target cannot be told: its lease ends by itself, and it is tried again."""

    reaction: str
    key: str
    error: str


Traced = Attempt | Late | Unheard
Hears = Callable[[Traced], object]
