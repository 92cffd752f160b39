"""The parts that lineage stands on, one by one: what an engine says to a follow-up, and what the registry does."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from headwater.data.patch import replace
from headwater.protocol.commit import EntityAbsent, OriginCommitted
from headwater.protocol.verdict import Accepted, PreconditionFailed, Rejected
from headwater.runtime.binding.lineage import Lineage, Origin, Status
from tests.unit.engine.kit import Writer, doc, open_engine, read, write

# ---- the engine: a commit under the condition that its origin is there -------------------------------------


def rejected_origin(engine: Any) -> Writer:
    """A session whose first commit was too late."""
    rival, late = Writer(engine, "rival"), Writer(engine, "late")
    rival.send(write("a", replace((), 1)))
    late.send(write("a", replace((), 2)), reads=[read("a", seq=0)])
    return late


def test_a_follow_up_of_a_commit_that_landed_is_accepted() -> None:
    writer = Writer(open_engine(), "w")
    writer.send(write("a", replace((), 1)))
    verdict = writer.send(write("b", replace((), 1)), preconditions=[OriginCommitted(1)])
    assert isinstance(verdict, Accepted)


def test_a_follow_up_of_a_rejected_commit_is_refused_for_good_and_says_why() -> None:
    late = rejected_origin(open_engine())
    verdict = late.send(write("b", replace((), 1)), preconditions=[OriginCommitted(1)])
    assert isinstance(verdict, Rejected)
    assert verdict.rejection == PreconditionFailed(
        "origin_committed", "its origin, commit 1 of this session, was not accepted"
    )


def test_a_commit_without_conditions_does_not_care_what_was_rejected_before_it() -> None:
    late = rejected_origin(open_engine())
    verdict = late.send(write("b", replace((), 1)))
    assert isinstance(verdict, Accepted)


def test_a_receipt_refuses_the_second_handling_even_if_it_writes_nothing_and_the_first_was_deleted() -> None:
    engine = open_engine()
    one, two = Writer(engine, "one"), Writer(engine, "two")
    one.send(write("$result:e", replace((), "done")), preconditions=[EntityAbsent(doc("$result:e"))])
    verdict = two.send(preconditions=[EntityAbsent(doc("$result:e"))])
    assert isinstance(verdict, Rejected)
    one.send(write("$result:e", replace((), None)))
    verdict = two.send(preconditions=[EntityAbsent(doc("$result:e"))])
    assert isinstance(verdict, Rejected)
    assert isinstance(verdict.rejection, PreconditionFailed)


# ---- the registry ------------------------------------------------------------------------------------------


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
                posted: Any = SimpleNamespace(id=id, home=SimpleNamespace(space=SimpleNamespace(name=space)))
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
