"""Traces of a drain: one record for each attempt, late report and lost report, for counters, logs and tracers.

`record_spans` turns attempts into spans of an OpenTelemetry tracer. No tracer is imported here: the application passes
one. The error of a failed attempt becomes an event of its span with OpenTelemetry's attribute names. Listeners do not
change deliveries.
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
    error: str = ""  # the name of the error's class
    message: str = ""  # the text of the error


@dataclass(frozen=True, slots=True, kw_only=True)
class Late:
    """A report came too late: another worker had the lease, and nothing changed."""

    reaction: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unheard:
    """An outcome could not be reported. The lease expires, and the target is delivered again."""

    reaction: str
    key: str
    error: str


Trace = Attempt | Late | Unheard
OnTrace = Callable[[Trace], object]


class Span(Protocol):
    """One operation in a trace."""

    def add_event(self, name: str, attributes: Any = ..., timestamp: int | None = ...) -> None: ...
    def end(self, end_time: int | None = ...) -> None: ...


class Tracer(Protocol):
    """A receiver of spans, as OpenTelemetry defines it. Times are nanoseconds since 1970."""

    def start_span(self, name: str, *, attributes: Any = ..., start_time: int | None = ...) -> Span: ...


def record_spans(tracer: Tracer) -> OnTrace:
    """Return a listener that records a span for every attempt."""

    def on_trace(what: Trace) -> None:
        if not isinstance(what, Attempt):
            return
        began_ns = what.began_us * 1_000
        ended_ns = began_ns + what.took_us * 1_000
        span = tracer.start_span(f"reaction {what.reaction}", attributes=_attributes(what), start_time=began_ns)
        if what.error:
            error_text = {"exception.type": what.error, "exception.message": what.message}
            span.add_event("exception", error_text, ended_ns)
        span.end(ended_ns)

    return on_trace


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
