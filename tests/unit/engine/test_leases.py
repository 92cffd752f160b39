"""The lease of a target goes to one worker at a time, and its token fences the commits of workers that lost it."""

from __future__ import annotations

import pytest

from headwater.errors import ProtocolError
from headwater.protocol.commit import LeaseHeld
from headwater.protocol.reactions import Hold, Outcome, lease_name
from headwater.protocol.verdict import Accepted, PreconditionFailed, Rejected
from tests.unit.engine.delivery_kit import LEASE_US, World

MAIL = lease_name("r", "mail")


@pytest.fixture
def world() -> World:
    """A space in which the target `mail` of the reaction `r` is due."""
    world = World()
    world.subscribe()
    world.emit("mail", 1)
    return world


def refusal(world: World, lease: str, token: int) -> str:
    verdict = world.commit(preconditions=(LeaseHeld(lease, token),))
    assert isinstance(verdict, Rejected)
    assert isinstance(verdict.rejection, PreconditionFailed)
    assert verdict.rejection.precondition == "lease_held"
    return verdict.rejection.detail


def test_commit_is_accepted_until_another_worker_has_the_lease(world: World) -> None:
    old = world.claim_one(worker="w1").hold.token
    assert isinstance(world.commit(preconditions=(LeaseHeld(MAIL, old),)), Accepted)
    world.clock.advance(60 * LEASE_US)
    # The lease is over and was not taken: only the token fences it, so that nothing has to tick.
    assert isinstance(world.commit(preconditions=(LeaseHeld(MAIL, old),)), Accepted)
    new = world.claim_one(worker="w2").hold.token
    assert new > old
    assert refusal(world, MAIL, old) == f"lease {MAIL!r} with token {old} is no longer held: another worker holds it"
    assert isinstance(world.commit(preconditions=(LeaseHeld(MAIL, new),)), Accepted)


def test_worker_that_claims_again_fences_its_own_earlier_process(world: World) -> None:
    """A restarted worker has the same name; late commits of the process before it must not be accepted."""
    first = world.claim_one(worker="w")
    world.clock.advance(LEASE_US)
    second = world.claim_one(worker="w")
    assert second.hold.token > first.hold.token
    assert world.renew(first.hold) == (first.hold,)
    refusal(world, MAIL, first.hold.token)


def test_lease_that_is_over_and_not_taken_can_be_renewed(world: World) -> None:
    grant = world.claim_one(worker="w1")
    world.clock.advance(100 * LEASE_US)
    assert world.renew(grant.hold) == ()
    assert world.claim(worker="w2") == []


def test_lease_that_was_given_back_is_held_under_no_token(world: World) -> None:
    """Neither under the old token nor under the next one, which no worker was given yet."""
    grant = world.claim_one(worker="w1")
    old = grant.hold.token
    world.give_back(grant)
    for token in (0, 1, old - 1, old, old + 1, old + 2):
        assert refusal(world, MAIL, token) == f"lease {MAIL!r} with token {token} is no longer held: no worker holds it"
        hold = Hold("r", "mail", token)
        assert world.renew(hold, lease_us=1_000 * LEASE_US) == (hold,)
        assert world.finish(Outcome(hold)).late == (hold,)
    assert world.claim_one(worker="w2").hold.token > old


def test_leases_of_two_targets_are_independent(world: World) -> None:
    world.emit("Mail", 1)
    lower, upper = sorted(world.claim(), key=lambda grant: grant.hold.key, reverse=True)
    world.give_back(upper)
    assert isinstance(world.commit(preconditions=(LeaseHeld(MAIL, lower.hold.token),)), Accepted)
    refusal(world, MAIL, upper.hold.token)
    refusal(world, lease_name("r", "Mail"), lower.hold.token)


@pytest.mark.parametrize("name", ["mail", "", "$reaction:", "$reaction:r", "$reaction:r:", "$reaction:other:mail"])
def test_lease_of_no_target_has_no_holder(world: World, name: str) -> None:
    token = world.claim_one().hold.token
    for named in (0, 1, token):
        assert refusal(world, name, named) == f"lease {name!r} with token {named} is no longer held: no worker holds it"


@pytest.mark.parametrize("lease_us", [0, -1, 2**51, 2**63])
def test_lease_lasts_longer_than_nothing_and_not_for_ever(world: World, lease_us: int) -> None:
    expected = f"a target is leased for 1 to 2251799813685247 microseconds, not {lease_us}"
    with pytest.raises(ProtocolError, match=expected):
        world.claimed(lease_us=lease_us)
    grant = world.claim_one()
    with pytest.raises(ProtocolError, match=expected):
        world.renew(grant.hold, lease_us=lease_us)
    assert world.renew(grant.hold, lease_us=2**51 - 1) == ()
