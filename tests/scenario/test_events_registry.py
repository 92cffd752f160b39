"""What an engine says to a follow-up: a commit under the condition that the commit which posted it was accepted."""

from __future__ import annotations

from typing import Any

from headwater.data.patch import replace
from headwater.protocol.commit import EntityAbsent, OriginCommitted
from headwater.protocol.verdict import Accepted, PreconditionFailed, Rejected
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
