"""Looks on while events are handled: whether anybody is handled before somebody who was sent earlier and still waits.

Owns a model of lanes of its own, which is a set per lane: who waits, and when they were sent. It hears of sendings,
attempts, verdicts and ends, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from headwater.runtime.binding.course import Course
from headwater.runtime.binding.handling import Handling
from headwater.runtime.binding.lanes import Lane
from headwater.runtime.binding.lineage import Status
from headwater.runtime.effort import Outcome, classify


class Watch:
    """All lanes of all runtimes."""

    def __init__(self) -> None:
        self._order: dict[Any, int] = {}  # of every event: when it was sent
        self._waiting: dict[Lane, set[Any]] = {}
        self.wrong: list[str] = []
        self.attempts = 0
        self.rejected = 0

    def entered(self, lane: Lane, event: Any) -> None:
        self._order.setdefault(event, len(self._order))
        self._waiting.setdefault(lane, set()).add(event)

    def attempted(self, lane: Lane, event: Any) -> None:
        self.attempts += 1
        if event.is_over:
            self.wrong.append(f"{event.payload} was called again after it was over")
        waiting = self._waiting.setdefault(lane, set())
        waiting.discard(event)
        before = [each for each in waiting if self._order[each] < self._order[event] and not is_over(each)]
        if before:
            self.wrong.append(
                f"{event.payload} was handled before {before[0].payload}, which was sent earlier and waits"
            )

    def settled(self, lane: Lane, event: Any, layer: Any, rejection: Any) -> None:
        if rejection is not None:
            self.rejected += 1
            if classify(rejection, layer.local_seq) in (Outcome.STALE, Outcome.UNSENT) and not event.is_dropped:
                self._waiting[lane].add(event)

    def ended(self, event: Any) -> None:
        for waiting in self._waiting.values():
            waiting.discard(event)

    @contextmanager
    def watching(self) -> Iterator[None]:
        enter, made, settled, end = Lane.enter, Course.made, Course.settled, Handling._end

        def entering(lane: Lane, event: Any) -> None:
            self.entered(lane, event)
            enter(lane, event)

        def making(course: Course, transaction: Any) -> None:
            if is_open(course):
                self.attempted(course._lane, course._event)
            made(course, transaction)

        def settling(course: Course, layer: Any, rejection: Any) -> None:
            if is_open(course):  # in the same moment in which it was made
                self.attempted(course._lane, course._event)
            self.settled(course._lane, course._event, layer, rejection)
            settled(course, layer, rejection)

        def ending(handling: Handling, event: Any, *args: Any, **kwargs: Any) -> None:
            self.ended(event)
            end(handling, event, *args, **kwargs)

        with ExitStack() as stack:
            for cls, name, stand_in in (
                (Lane, "enter", entering),
                (Course, "made", making),
                (Course, "settled", settling),
                (Handling, "_end", ending),
            ):
                stack.enter_context(patch.object(cls, name, stand_in))
            yield


def is_over(event: Any) -> bool:
    """Whether it is not called any more: it has its end, or what it said is being written down."""
    return event.is_over or event.end is not None


def is_open(course: Course) -> bool:
    """Whether its attempt has not been told yet that its commit was made."""
    attempt = course._event.attempt
    return attempt is not None and attempt.status is Status.OPEN
