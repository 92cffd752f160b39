"""Checks the order in which events are handled, by what the traces of their runtimes say.

Owns a naive model of lanes: for each space of each runtime, the events that wait, and when they were sent. An event may
be committed only if no event of its space that was sent earlier waits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from headwater import Runtime
from headwater.data.trace import (
    EventAttempted,
    EventDecided,
    EventEnded,
    EventQueued,
    EventRejected,
    TraceEvent,
)

Event = tuple[str, str]
"""The handler and the id of an event."""


@dataclass
class Lanes:
    """The events of one runtime."""

    waiting: dict[Event, int] = field(default_factory=dict)  # by event: when it was sent
    attempted: dict[Event, int] = field(default_factory=dict)  # by event: the number of its last commit
    sent: dict[Event, int] = field(default_factory=dict)
    decided: set[Event] = field(default_factory=set)


class Watch:
    """All lanes of all runtimes."""

    def __init__(self) -> None:
        self._count = 0
        self.wrong: list[str] = []

    def join(self, runtime: Runtime, now_us: int) -> None:
        """Watch a runtime that was just made. The events of its outbox have their places already."""
        lanes = Lanes()
        for row in runtime.intents():
            if row.state == "queued" and (row.due_us or 0) <= now_us:
                self._heard(lanes, EventQueued(row.stream, row.id))
        runtime.introspection.on_event(partial(self._heard, lanes))

    def _heard(self, lanes: Lanes, happened: TraceEvent) -> None:
        match happened:
            case EventQueued(node, id):
                event = (node, id)
                self._count += 1
                lanes.sent[event] = lanes.waiting[event] = self._count
                lanes.attempted.pop(event, None)
                lanes.decided.discard(event)
            case EventAttempted(node, id, attempt):
                self._attempted(lanes, (node, id), attempt)
            case EventRejected(node, id, attempt, _, backing_off):
                event = (node, id)
                self._attempted(lanes, event, attempt)  # A commit may be rejected in the moment in which it is made.
                if backing_off and event in lanes.sent:
                    lanes.waiting[event] = lanes.sent[event]
            case EventDecided(node, id):
                lanes.decided.add((node, id))
                lanes.waiting.pop((node, id), None)
            case EventEnded(node, id):
                lanes.waiting.pop((node, id), None)
            case _:
                pass  # It says nothing about the order of events.

    def _attempted(self, lanes: Lanes, event: Event, attempt: int) -> None:
        if lanes.attempted.get(event) == attempt:
            return  # Its rejection was heard first.
        lanes.attempted[event] = attempt
        if event not in lanes.sent:
            self.wrong.append(f"{event} was handled without a place in its lane")
            return
        if event in lanes.decided:
            self.wrong.append(f"{event} was handled again after it was decided")
        lanes.waiting.pop(event, None)
        for other, sent in lanes.waiting.items():
            if _space(other) == _space(event) and sent < lanes.sent[event]:
                self.wrong.append(f"{event} was handled before {other}, which was sent earlier and waits")
                return


def _space(event: Event) -> str:
    return event[0].partition("/")[0]
