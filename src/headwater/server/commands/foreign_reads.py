"""What nodes of one space read of others: those are asked, and what they say is put into what is told of the nodes.

A space knows of its own documents only. Owns which questions that makes, and what becomes of a node by their answers:
one whose reads were written elsewhere is not clean, and neither is one of which nobody could be asked. Asks nobody by
itself, since who may ask is for whoever answers a command to know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from headwater.data.address import doc_text
from headwater.protocol.command_messages import Question
from headwater.protocol.observations import ForeignRead

__all__ = ["Abroad", "Fate", "spaces_of", "unsure"]

TOGETHER: Final = 1_000
"""Reads in one question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """What other spaces say of the reads of one node."""

    written: tuple[tuple[str, int], ...]  # those that would not be admitted there now: address, and what they missed
    unasked: tuple[str, ...]  # spaces that did not say

    @property
    def holds(self) -> bool:
        return not self.written and not self.unasked


Then = Callable[[Fate], object]


def spaces_of(reads: Iterable[ForeignRead]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([read.space for read in reads]))


def unsure(reads: Iterable[ForeignRead]) -> Fate:
    """As long as nobody was asked."""
    return Fate(written=(), unasked=spaces_of(reads))


class Abroad:
    """What is to be asked of other spaces for one answer, and what waits for it."""

    __slots__ = ("_said", "_waiting")

    def __init__(self) -> None:
        self._waiting: list[tuple[tuple[ForeignRead, ...], Then]] = []
        self._said: dict[ForeignRead, int] = {}  # of those that were asked for; 0: it holds

    def add(self, reads: tuple[ForeignRead, ...], then: Then) -> None:
        """Have something done once it is known whether some reads hold."""
        self._waiting.append((reads, then))

    def questions(self) -> list[tuple[Question, tuple[ForeignRead, ...]]]:
        """What has to be asked, with the reads that each question is of."""
        wanted: dict[tuple[str, str], dict[ForeignRead, None]] = {}
        for reads, _ in self._waiting:
            for read in reads:
                wanted.setdefault((read.space, read.branch), {})[read] = None
        found = []
        for (space, branch), listed in wanted.items():
            # A log that nobody can name cannot be compared with the one that is there now.
            named = [read for read in listed if read.chain is not None]
            for first in range(0, len(named), TOGETHER):
                some = tuple(named[first : first + TOGETHER])
                raw = [msgspec.to_builtins(read) for read in some]
                found.append((Question("current", space, value=raw, branch=branch), some))
        return found

    def told(self, reads: tuple[ForeignRead, ...], answer: Any) -> None:
        """What a space answered to a question, in the form of `current_form`."""
        stale = {int(place): int(seq) for place, seq in answer["stale"]}
        self._said.update({read: stale.get(place, 0) for place, read in enumerate(reads)})

    def settle(self) -> None:
        """Everybody was asked who can be."""
        waiting, self._waiting = self._waiting, []
        for reads, then in waiting:
            then(self._fate(reads))

    def _fate(self, reads: tuple[ForeignRead, ...]) -> Fate:
        said = {read: self._said.get(read) for read in reads}
        return Fate(
            written=tuple([(f"{r.space}/{doc_text(r.doc, r.path)}", seq) for r, seq in said.items() if seq]),
            unasked=spaces_of([read for read, seq in said.items() if seq is None]),
        )
