"""What a drain reports of its work, for whoever counts, prints or draws it. Nothing is decided by it.

Spans: each attempt as a tracer wants it, from its beginning to its end. Nothing is decided by it.

For tracers that are made as OpenTelemetry's are; none is imported here, so that whoever traces chooses which. What
failed is an event of its span, named as the conventions of that project have it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol


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


class Span(Protocol):
    """A part of what a program did."""

    def add_event(self, name: str, attributes: Any = ..., timestamp: int | None = ...) -> None: ...
    def end(self, end_time: int | None = ...) -> None: ...


class Tracer(Protocol):
    """Whoever takes spans. Times are nanoseconds since 1970."""

    def start_span(self, name: str, *, attributes: Any = ..., start_time: int | None = ...) -> Span: ...


def traced_by(tracer: Tracer) -> Hears:
    """What makes a span of every attempt."""

    def hears(what: Traced) -> None:
        if not isinstance(what, Attempt):
            return
        began_ns = what.began_us * 1_000
        ended_ns = began_ns + what.took_us * 1_000
        span = tracer.start_span(f"reaction {what.reaction}", attributes=_attributes(what), start_time=began_ns)
        if what.error:
            said = {"exception.type": what.error, "exception.message": what.message}
            span.add_event("exception", said, ended_ns)
        span.end(ended_ns)

    return hears


def _attributes(what: Attempt) -> Mapping[str, str | int]:
    about: dict[str, str | int] = {
        "headwater.reaction": what.reaction,
        "headwater.key": what.key,
        "headwater.attempt": what.attempt,
        "headwater.records": what.records,
        "headwater.outcome": what.how,
    }
    if what.then:
        about["headwater.then"] = what.then
    if what.error:
        about["error.type"] = what.error
    return about
