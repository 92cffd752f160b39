"""What travels between a replica and the engine in the model, and the way a broken rule is reported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

NAMES = "ABC"
"""The replicas by number. A commit is called by its replica and `local_seq`: A1, B2."""

Id = tuple[int, int]
"""Replica and `local_seq`: what names a commit for ever (C10)."""


class Commit(NamedTuple):
    """A commit on the wire; `saw` is not sent: it is what its reads really saw, for the checker alone."""

    replica: int
    local: int
    reads: str
    writes: str
    basis: int
    layers: tuple[int, ...]
    saw: tuple[tuple[Id, ...], ...]  # for each read path, the writes that were visible, in order

    @property
    def id(self) -> Id:
        return self.replica, self.local

    @property
    def bytes(self) -> tuple[object, ...]:
        """What a replay must repeat."""
        return self[:-1]

    def __str__(self) -> str:
        return called(self.id)


class Verdict(NamedTuple):
    """The answer to a commit: its seq, or 0 for a rejection."""

    local: int
    seq: int

    def __str__(self) -> str:
        return f"accepted at seq {self.seq}" if self.seq else "rejected"


class Frame(NamedTuple):
    """Changes of the log on their way to a replica: `first` is the seq of the first."""

    first: int
    commits: tuple[Commit, ...]


@dataclass(frozen=True, slots=True)
class Judging:
    """The engine judges a commit, or knows it already."""

    commit: Commit
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Acknowledging:
    """A replica says that it has the verdicts up to this one."""

    replica: int
    local: int


@dataclass(frozen=True, slots=True)
class Flushing:
    """The engine's group becomes durable."""


@dataclass(frozen=True, slots=True)
class Crashing:
    """The engine restarts."""


Event = Judging | Acknowledging | Flushing | Crashing
"""What happens to the engine, for those who compare engines."""


class Broken(Exception):
    """A rule forbids this state, or the step that is named."""

    def __init__(self, rule: str, why: str, step: str = "") -> None:
        super().__init__(f"{rule}: {why}")
        self.rule = rule
        self.why = why
        self.step = step


def called(id: Id) -> str:
    return f"{NAMES[id[0]]}{id[1]}"


def listed(ids: tuple[Id, ...]) -> str:
    return "[" + ", ".join(map(called, ids)) + "]"
