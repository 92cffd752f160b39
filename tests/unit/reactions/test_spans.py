"""Spans of attempts: what a tracer is told of each, with its own times."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from headwater.backoff import Backoff
from headwater.reactions.traces import record_spans
from tests.unit.reactions.kit import Story, fails, played


@dataclass
class Noted:
    """A span, as it was told."""

    name: str
    attributes: dict[str, Any]
    start: int
    events: list[tuple[str, Any, int | None]] = field(default_factory=list)
    ended: int | None = None

    def add_event(self, name: str, attributes: Any = None, timestamp: int | None = None) -> None:
        self.events.append((name, attributes, timestamp))

    def end(self, end_time: int | None = None) -> None:
        self.ended = end_time


class Notes:
    """A tracer that notes."""

    def __init__(self) -> None:
        self.spans: list[Noted] = []

    def start_span(self, name: str, *, attributes: Any = None, start_time: int | None = None) -> Noted:
        assert start_time is not None
        made = Noted(name, attributes, start_time)
        self.spans.append(made)
        return made


def test_every_attempt_is_a_span_with_its_own_times_and_what_failed_is_an_event_of_it() -> None:
    notes = Notes()

    async def story(s: Story) -> None:
        stub = s.stub(fails(ValueError("boom"), None), backoff=Backoff.fixed(base_ms=200))
        await s.worker(stub)
        s.emit("a", 1)
        await s.passes(1_000)

    told = played(story)
    for each in told.traced:
        record_spans(notes)(each)
    first, second = notes.spans
    assert first.name == second.name == "reaction r"
    assert first.attributes == {
        "headwater.reaction": "r",
        "headwater.key": "a",
        "headwater.attempt": 0,
        "headwater.records": 1,
        "headwater.outcome": "failed",
        "headwater.then": "retry",
        "error.type": "ValueError",
    }
    assert first.events == [("exception", {"exception.type": "ValueError", "exception.message": "boom"}, first.ended)]
    assert (second.attributes["headwater.attempt"], second.attributes["headwater.outcome"]) == (1, "delivered")
    assert second.events == []
    assert second.start - first.start == 200_000_000
    assert second.ended == second.start


def test_the_tracers_of_opentelemetry_take_them() -> None:
    trace = pytest.importorskip("opentelemetry.trace")

    async def story(s: Story) -> None:
        await s.worker(s.stub(fails(ValueError("boom"), None)))
        s.emit("a", 1)
        await s.passes(1_000)

    on_trace = record_spans(trace.get_tracer("headwater"))
    for each in played(story).traced:
        on_trace(each)
