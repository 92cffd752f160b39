"""Traces for people: the newest events of the kinds that were switched on, bounded.

Owns which kinds are kept. What is kept is in the order in which it happened, all kinds together.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from headwater.data.trace import Recorder, TraceEvent
from headwater.errors import AuthoringError
from headwater.scheduler.introspection.taps import Taps

__all__ = ["Traces", "kind_named"]

E = TypeVar("E", bound=TraceEvent)


class Traces:
    """A recorder that looks at some kinds only."""

    __slots__ = ("_kinds", "_recorder", "_taps")

    def __init__(self, taps: Taps, entries: int) -> None:
        self._taps = taps
        self._recorder = Recorder(entries)
        self._kinds: frozenset[type[TraceEvent]] = frozenset()

    @property
    def kinds(self) -> frozenset[type[TraceEvent]]:
        """What is switched on."""
        return self._kinds

    def switch(self, *kinds: type[TraceEvent] | str, on: bool) -> None:
        """Keep events of these kinds from now on, or no more; of every kind if none is named."""
        named = _resolved(kinds) if kinds else frozenset(_all_kinds().values())
        self._kinds = self._kinds | named if on else self._kinds - named
        self._taps.on_event(self._keep, bool(self._kinds))

    def of(self, kind: type[E]) -> list[E]:
        """The newest events of a kind, oldest first."""
        return self._recorder.of(kind)

    def events(self) -> list[TraceEvent]:
        return list(self._recorder)

    def runs(self) -> list[str]:
        """Who completed a run, in order; as far as `Ran` and `Failed` are switched on."""
        return self._recorder.runs()

    def clear(self) -> None:
        self._recorder.events.clear()

    def _keep(self, event: TraceEvent) -> None:
        if type(event) in self._kinds:
            self._recorder.emit(event)


def kind_named(name: str) -> type[TraceEvent]:
    """The kind of event that is called so."""
    kinds = _all_kinds()
    if name not in kinds:
        raise AuthoringError(f"there is no trace event {name!r}: it is one of {', '.join(sorted(kinds))}")
    return kinds[name]


def _resolved(kinds: Iterable[type[TraceEvent] | str]) -> frozenset[type[TraceEvent]]:
    return frozenset(kind_named(kind) if isinstance(kind, str) else kind for kind in kinds)


def _all_kinds() -> dict[str, type[TraceEvent]]:
    return {kind.__name__: kind for kind in TraceEvent.__subclasses__()}
