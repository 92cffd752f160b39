"""The steps of a simulation, and the rules that it broke.

The trace has one entry per step, in order, with virtual time. The same seed gives the same entries, and they are made
into text only when they are read. Findings are collected, not raised, because they are made inside callbacks; the
simulation raises the first (`check`). Exercised mechanisms are counted, so that a mechanism that no history reaches is
seen (`COVERED`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from headwater.clock import VirtualClock

COVERED: Final = (
    "whole writes",
    "layers kept here",
    "layers that yielded",
    "layers taken back when the right was given",
    "reads through a layer kept here",
    "reads beside a layer that does not fit",
    "waves judged in part",
    "refusals kept over a restart",
    "tokens renewed on a live connection",
    "tokens that were over",
    "tokens of somebody else",
    "watches refused while they were widened",
    "watches refused",
    "watches that stopped following",
    "frames sent again after their verdict",
    "backups restored",
    "sessions over after a restore",
    "sessions that outlived a restore",
)
"""Mechanisms that many histories together must have exercised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A rule that did not hold: the time, the process, and the observation."""

    rule: str
    at_us: int
    who: str
    message: str

    def __str__(self) -> str:
        return f"{self.rule} at {self.at_us / 1e6:.6f} s, {self.who}: {self.message}"


class RuleBroken(Exception):
    """A simulated history broke a rule. `findings` has the first ones; replay the seed to see how."""

    def __init__(self, seed: int, findings: tuple[Finding, ...]) -> None:
        more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
        super().__init__(f"seed {seed}: {findings[0]}{more}")
        self.seed = seed
        self.findings = findings


Entry = tuple[int, str, str, tuple[object, ...]]
"""Time, process, step, and details: immutable objects whose repr is the same in every run."""


class Trace:
    """The entries and findings of one simulation."""

    __slots__ = ("_clock", "counts", "entries", "findings", "seed")

    def __init__(self, clock: VirtualClock, seed: int) -> None:
        self._clock = clock
        self.seed = seed
        self.entries: list[Entry] = []
        self.findings: list[Finding] = []
        self.counts: Counter[str] = Counter()

    def note(self, who: str, what: str, *details: object) -> None:
        self.entries.append((self._clock.monotonic_us(), who, what, details))

    def broken(self, rule: str, who: str, message: str) -> None:
        """Note that a rule does not hold. Later steps mean little; the first finding is the one to read."""
        self.note(who, "BROKEN", rule, message)
        self.findings.append(Finding(rule=rule, at_us=self._clock.monotonic_us(), who=who, message=message))

    def check(self) -> None:
        if self.findings:
            raise RuleBroken(self.seed, tuple(self.findings))

    def lines(self) -> list[str]:
        return [
            f"{at_us / 1e6:16.6f}  {who:<8} {what} {' '.join(map(str, details))}".rstrip()
            for at_us, who, what, details in self.entries
        ]

    def digest(self) -> str:
        """A name for the whole trace: equal for equal traces."""
        hashed = blake2b(digest_size=16)
        for line in self.lines():
            hashed.update(line.encode())
            hashed.update(b"\n")
        return hashed.hexdigest()
