"""The registry of lineage: what an attempt posted and launched starts, goes on or stops with it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from headwater.protocol.commit import OriginCommitted
from headwater.runtime.events.lineage import Lineage, Origin, Status


class Registry:
    """A lineage, and what it asked for."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.dropped: list[str] = []
        self.kept: list[str] = []
        self.stopped: list[str] = []
        self.lineage = Lineage(
            start=lambda event: self.started.append(event.id),
            drop=lambda event: self.dropped.append(event.id),
            keep=lambda origin, home: self.kept.append(home.id),
            stop=lambda home: self.stopped.append(home.id),
        )

    def origin(
        self, *, here: tuple[str, ...] = (), there: tuple[str, ...] = (), pieces: tuple[str, ...] = ()
    ) -> Origin:
        """An attempt in space `s` that has posted and launched this."""
        made = Origin("parent", "s", "ann", "")
        for space, ids in (("s", here), ("t", there)):
            for id in ids:
                posted: Any = SimpleNamespace(id=id, instance=SimpleNamespace(space=SimpleNamespace(name=space)))
                made.posted.append(posted)
        for id in pieces:
            home: Any = SimpleNamespace(id=id)
            made.launched.append((home, False))
        return made

    def made(self, origin: Origin) -> None:
        transaction: Any = SimpleNamespace(local_seq=7)
        self.lineage.made(origin, transaction)


def test_what_fails_takes_its_events_and_its_pieces_with_it() -> None:
    registry = Registry()
    origin = registry.origin(here=("a", "b"), there=("c",), pieces=("p",))
    registry.made(origin)
    assert registry.started == ["a", "b"]
    registry.lineage.failed(origin)
    assert registry.dropped == ["a", "b", "c"]
    assert registry.stopped == ["p"]
    assert origin.status is Status.FAILED


def test_what_is_confirmed_keeps_all_of_it_and_stops_nothing_later() -> None:
    registry = Registry()
    origin = registry.origin(here=("a",), there=("b", "c"), pieces=("p",))
    registry.made(origin)
    registry.lineage.confirmed(origin)
    assert registry.started == ["a", "b", "c"]  # of two siblings elsewhere none is left behind
    registry.lineage.failed(origin)
    assert registry.dropped == registry.stopped == []
    assert set(registry.kept) == {"p"}


def test_settling_twice_is_settling_once() -> None:
    registry = Registry()
    origin = registry.origin(here=("a",), pieces=("p",))
    registry.made(origin)
    registry.lineage.failed(origin)
    registry.lineage.failed(origin)
    assert registry.dropped == ["a"]
    assert registry.stopped == ["p"]


def test_an_origin_that_was_settled_at_once_starts_or_stops_what_it_launched_at_once() -> None:
    """No verdict will come any more, so that nothing may wait for one."""
    registry = Registry()
    landed = registry.origin(here=("a",), there=("b",), pieces=("p",))
    registry.lineage.confirmed(landed)
    registry.made(landed)
    assert registry.started == ["a", "b"]
    assert landed.condition("s") is None
    fallen = registry.origin(here=("c",))
    registry.lineage.failed(fallen)
    registry.made(fallen)
    assert registry.started == ["a", "b"]
    assert registry.dropped == ["c"]


def test_a_condition_is_attached_only_in_the_same_space_and_only_while_the_origin_is_pending() -> None:
    registry = Registry()
    origin = registry.origin(here=("a",))
    assert origin.condition("s") is None
    registry.made(origin)
    assert origin.condition("s") == OriginCommitted(7)
    assert origin.condition("t") is None
    registry.lineage.confirmed(origin)
    assert origin.condition("s") is None
