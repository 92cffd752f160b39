"""Preconditions belong to the commit, hold without operations too, and fail for good."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.data.patch import remove, replace
from headwater.errors import PreconditionFailedError
from headwater.protocol.commit import EntityAbsent, LeaseHeld, OriginCommitted
from headwater.protocol.verdict import Accepted, PreconditionFailed, Rejected, Verdict, as_error
from tests.unit.engine.delivery_kit import lease_new_target
from tests.unit.engine.kit import Writer, doc, open_engine, read, value_of, write


def failure(verdict: Verdict) -> PreconditionFailed:
    assert isinstance(verdict, Rejected)
    assert isinstance(verdict.rejection, PreconditionFailed)
    return verdict.rejection


class TestEntityAbsent:
    def test_a_document_never_written_is_absent(self) -> None:
        engine = open_engine()
        ann = Writer(engine, "ann")
        ann.lands(write("r", replace((), 1)), preconditions=[EntityAbsent(doc("r"))])
        assert value_of(engine, "r") == 1

    def test_a_second_creation_is_refused_for_good(self) -> None:
        engine = open_engine()
        ann, bob = Writer(engine, "ann"), Writer(engine, "bob")
        ann.lands(write("r", replace((), 1)))
        found = failure(bob.send(write("r", replace((), 2)), preconditions=[EntityAbsent(doc("r"))]))
        assert found == PreconditionFailed("entity_absent", "space:r was already created on branch 'main'")
        assert value_of(engine, "r") == 1

    def test_a_tombstone_counts_as_present(self) -> None:
        engine = open_engine()
        ann = Writer(engine, "ann")
        ann.lands(write("r", replace((), 1)))
        ann.lands(write("r", remove(())))
        assert failure(ann.send(preconditions=[EntityAbsent(doc("r"))])).precondition == "entity_absent"

    def test_it_holds_for_commits_without_operations(self) -> None:
        engine = open_engine()
        ann = Writer(engine, "ann")
        assert isinstance(ann.send(preconditions=[EntityAbsent(doc("r"))]), Accepted)
        ann.lands(write("r", replace((), 1)))
        failure(ann.send(preconditions=[EntityAbsent(doc("r"))]))

    def test_a_write_that_changed_nothing_made_the_document_all_the_same(self) -> None:
        """A receipt is a receipt even if its content equals what was there before."""
        engine = open_engine()
        ann = Writer(engine, "ann")
        ann.lands(write("r", replace((), 1)))
        engine.fork("b")
        failure(ann.send(write("r", replace((), 1)), preconditions=[EntityAbsent(doc("r"))], branch="b"))

    def test_a_branch_inherits_what_existed_at_its_fork_and_nothing_later(self) -> None:
        engine = open_engine()
        ann = Writer(engine, "ann")
        ann.lands(write("before", replace((), 1)))
        engine.fork("b")
        ann.lands(write("after", replace((), 1)))
        failure(ann.send(preconditions=[EntityAbsent(doc("before"))], branch="b"))
        assert isinstance(ann.send(preconditions=[EntityAbsent(doc("after"))], branch="b"), Accepted)

    def test_it_is_known_after_a_restart(self, tmp_path: Path) -> None:
        engine = open_engine(tmp_path / "s.space")
        ann = Writer(engine, "ann")
        ann.lands(write("r", replace((), 1)))
        ann.lands(write("r", remove(())))
        engine.close()
        engine = ann.engine = open_engine(tmp_path / "s.space")
        failure(ann.send(preconditions=[EntityAbsent(doc("r"))]))

    def test_two_creations_in_one_wave_are_one(self) -> None:
        engine = open_engine()
        ann = Writer(engine, "ann")
        wave = [ann.commit(write("r", replace((), n)), preconditions=[EntityAbsent(doc("r"))]) for n in (1, 2)]
        verdicts = engine.submit("ann", *wave)
        assert isinstance(verdicts[0], Accepted)
        failure(verdicts[1])
        assert value_of(engine, "r") == 1


class TestOriginCommitted:
    def test_an_accepted_origin_lets_its_follow_up_pass(self) -> None:
        engine = open_engine()
        ann = Writer(engine, "ann")
        ann.lands(write("d", replace((), 1)))
        assert isinstance(ann.send(preconditions=[OriginCommitted(1)]), Accepted)

    def test_a_rejected_origin_takes_its_follow_up_along(self) -> None:
        engine = open_engine()
        ann = Writer(engine, "ann")
        ann.send(write("d", replace(("x",), 1)))
        found = failure(ann.send(write("e", replace((), 1)), preconditions=[OriginCommitted(1)]))
        assert found == PreconditionFailed("origin_committed", "its origin, commit 1 of this session, was not accepted")

    def test_an_origin_that_never_came_was_not_accepted(self) -> None:
        engine = open_engine()
        ann = Writer(engine, "ann")
        ann.next = 5
        failure(ann.send(preconditions=[OriginCommitted(3)]))

    def test_an_origin_earlier_in_the_same_wave_counts(self) -> None:
        engine = open_engine()
        ann = Writer(engine, "ann")
        wave = [
            ann.commit(write("d", replace((), 1))),
            ann.commit(write("d", replace(("no",), 1))),
            ann.commit(preconditions=[OriginCommitted(1)]),
            ann.commit(preconditions=[OriginCommitted(2)]),
        ]
        verdicts = engine.submit("ann", *wave)
        assert [isinstance(verdict, Accepted) for verdict in verdicts] == [True, False, True, False]

    def test_the_origin_of_another_session_is_another_commit(self) -> None:
        engine = open_engine()
        Writer(engine, "bob").lands(write("d", replace((), 1)))
        ann = Writer(engine, "ann")
        ann.next = 2
        failure(ann.send(preconditions=[OriginCommitted(1)]))


class TestLeaseHeld:
    def test_a_lease_that_nobody_ever_had(self) -> None:
        found = failure(Writer(open_engine(), "ann").send(preconditions=[LeaseHeld("mail", 1)]))
        assert found == PreconditionFailed(
            "lease_held", "lease 'mail' with token 1 is no longer held: no worker holds it"
        )

    def test_a_lease_that_moved_on_names_its_holder(self) -> None:
        engine = open_engine()
        held = lease_new_target(engine)
        found = failure(Writer(engine, "ann").send(preconditions=[LeaseHeld(held.name, held.token - 1)]))
        assert "another worker holds it" in found.detail


def test_the_first_that_fails_is_the_one_reported() -> None:
    engine = open_engine()
    ann = Writer(engine, "ann")
    ann.lands(write("r", replace((), 1)))
    found = failure(ann.send(preconditions=[OriginCommitted(1), EntityAbsent(doc("r")), LeaseHeld("mail", 1)]))
    assert found.precondition == "entity_absent"


def test_a_failed_precondition_is_answered_before_any_conflict() -> None:
    """Permanent beats retryable: a retry could not help."""
    engine = open_engine()
    ann, bob = Writer(engine, "ann"), Writer(engine, "bob")
    bob.lands(write("r", replace((), 1)))
    failure(ann.send(write("r", replace((), 2)), reads=[read("r", seq=0)], preconditions=[EntityAbsent(doc("r"))]))


def test_as_an_error_it_says_not_to_retry() -> None:
    engine = open_engine()
    ann = Writer(engine, "ann")
    verdict = ann.send(preconditions=[LeaseHeld("mail", 1)])
    assert isinstance(verdict, Rejected)
    with pytest.raises(PreconditionFailedError, match=r"commit 1 was rejected for good, .* Do not retry it\."):
        raise as_error(verdict)
