"""Reads of other spaces: questions to those spaces, and their effect on the state of nodes.

An engine can check only reads of its own documents. A node whose reads of another space are outdated is not clean, and
a node whose other space could not be asked is unknown. This module makes the questions; its caller, which knows the
user's rights, asks them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from headwater.data.address import doc_text
from headwater.protocol.command_messages import CommandQuestion
from headwater.protocol.observations import ForeignRead
from headwater.server.operation.limits import DEFAULT_SERVER_LIMITS, ServerLimits

__all__ = ["ForeignReads", "ForeignVerdict", "spaces_of", "undecided"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignVerdict:
    """The answers of other spaces about the reads of one node."""

    written: tuple[tuple[str, int], ...]  # outdated reads: address, and the seq of the write that they miss
    unasked: tuple[str, ...]  # spaces without an answer

    @property
    def is_clean(self) -> bool:
        return not self.written and not self.unasked


OnVerdict = Callable[[ForeignVerdict], object]


def spaces_of(reads: Iterable[ForeignRead]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([read.space for read in reads]))


def undecided(reads: Iterable[ForeignRead]) -> ForeignVerdict:
    """Return the verdict before any space was asked."""
    return ForeignVerdict(written=(), unasked=spaces_of(reads))


class ForeignReads:
    """The questions to other spaces that one answer needs, and the callbacks that wait for verdicts."""

    __slots__ = ("_answers", "_limits", "_waiting")

    def __init__(self, limits: ServerLimits = DEFAULT_SERVER_LIMITS) -> None:
        self._limits = limits
        self._waiting: list[tuple[tuple[ForeignRead, ...], OnVerdict]] = []
        self._answers: dict[ForeignRead, int] = {}  # seq of a missed write for each answered read; 0 if it is current

    def add(self, reads: tuple[ForeignRead, ...], on_verdict: OnVerdict) -> None:
        """Call `on_verdict` in `decide` with the verdict on some reads."""
        self._waiting.append((reads, on_verdict))

    def questions(self) -> list[tuple[CommandQuestion, tuple[ForeignRead, ...]]]:
        """Return the questions, each with its reads."""
        wanted: dict[tuple[str, str], dict[ForeignRead, None]] = {}
        for reads, _ in self._waiting:
            for read in reads:
                wanted.setdefault((read.space, read.branch), {})[read] = None
        found = []
        most = self._limits.question_reads
        for (space, branch), listed in wanted.items():
            # A read without the id of its log cannot be compared with the log of today.
            named = [read for read in listed if read.chain is not None]
            for first in range(0, len(named), most):
                some = tuple(named[first : first + most])
                raw = [msgspec.to_builtins(read) for read in some]
                found.append((CommandQuestion("current", space, value=raw, branch=branch), some))
        return found

    def add_answer(self, reads: tuple[ForeignRead, ...], answer: Any) -> None:
        """Record the answer to a question, in the form of `current_form`."""
        stale = {int(place): int(seq) for place, seq in answer["stale"]}
        self._answers.update({read: stale.get(place, 0) for place, read in enumerate(reads)})

    def decide(self) -> None:
        """Call every callback: all spaces that can be asked were asked."""
        waiting, self._waiting = self._waiting, []
        for reads, on_verdict in waiting:
            on_verdict(self._verdict_on(reads))

    def _verdict_on(self, reads: tuple[ForeignRead, ...]) -> ForeignVerdict:
        said = {read: self._answers.get(read) for read in reads}
        return ForeignVerdict(
            written=tuple([(f"{r.space}/{doc_text(r.doc, r.path)}", seq) for r, seq in said.items() if seq]),
            unasked=spaces_of([read for read, seq in said.items() if seq is None]),
        )
