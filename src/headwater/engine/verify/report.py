"""The results and the bounds of a verification. Plain records; nothing here decides anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyLimits:
    """Bounds on the rows that a verification has in memory, and on its reports of progress. They are fixed."""

    log_rows: int = 500  # rows of the log that are read at once
    table_rows: int = 500  # rows of another table that are read at once
    report_commits: int = 1_000  # commits between two calls of `progress`


VERIFY_LIMITS: Final = VerifyLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """The first rule that does not hold: its name, the commit it was found at (0: none), and a message."""

    rule: str
    seq: int
    message: str

    def __str__(self) -> str:
        return f"{self.rule} at seq {self.seq}: {self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """How far a verification came. `notes` list the checks that were impossible, with the reason."""

    commits: int
    documents: int
    branches: int
    violation: Violation | None
    notes: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return self.violation is None


class RuleBroken(Exception):
    """Carries the first violation to the report. Nothing is checked after it."""

    def __init__(self, rule: str, seq: int, message: str) -> None:
        super().__init__(message)
        self.violation = Violation(rule=rule, seq=seq, message=message)
