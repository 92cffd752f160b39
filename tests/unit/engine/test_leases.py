"""Leases go to one holder at a time, by a token that only rises, on the engine's clock."""

from __future__ import annotations

import pytest

from headwater.clock import VirtualClock
from headwater.engine.engine import Engine
from headwater.errors import AuthoringError
from headwater.protocol.commit import LeaseHeld
from headwater.protocol.verdict import Accepted, PreconditionFailed, Rejected
from tests.unit.engine.kit import Writer, open_engine

SECOND = 1_000_000


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def engine(clock: VirtualClock) -> Engine:
    return open_engine(clock=clock)


def token(engine: Engine, holder: str, seconds: int = 10, name: str = "mail") -> int:
    lease = engine.acquire_lease(name, holder, seconds * SECOND)
    assert lease is not None
    return lease.token


def test_a_free_lease_is_given_until_a_time(engine: Engine, clock: VirtualClock) -> None:
    lease = engine.acquire_lease("mail", "w1", 10 * SECOND)
    assert lease is not None
    assert (lease.name, lease.token, lease.holder, lease.until_us) == ("mail", 1, "w1", clock.now_us() + 10 * SECOND)


def test_a_held_lease_is_not_given_to_another(engine: Engine, clock: VirtualClock) -> None:
    token(engine, "w1")
    assert engine.acquire_lease("mail", "w2", SECOND) is None
    clock.advance(10 * SECOND - 1)
    assert engine.acquire_lease("mail", "w2", SECOND) is None


def test_one_that_ran_out_goes_to_the_next_with_a_higher_token(engine: Engine, clock: VirtualClock) -> None:
    first = token(engine, "w1")
    clock.advance(10 * SECOND)
    assert token(engine, "w2") == first + 1


def test_a_holder_that_asks_again_fences_its_own_earlier_self(engine: Engine) -> None:
    """A restarted worker has the same name; what its dead predecessor sent late must not pass."""
    first = token(engine, "w1")
    second = token(engine, "w1")
    assert second > first
    assert not engine.renew_lease("mail", first, SECOND)


def test_renewing_moves_the_end_and_keeps_the_token(engine: Engine, clock: VirtualClock) -> None:
    mine = token(engine, "w1")
    clock.advance(9 * SECOND)
    assert engine.renew_lease("mail", mine, 10 * SECOND)
    clock.advance(9 * SECOND)
    assert engine.acquire_lease("mail", "w2", SECOND) is None


def test_one_that_ran_out_and_was_not_taken_can_still_be_renewed(engine: Engine, clock: VirtualClock) -> None:
    mine = token(engine, "w1")
    clock.advance(100 * SECOND)
    assert engine.renew_lease("mail", mine, SECOND)


def test_a_lease_taken_over_can_neither_be_renewed_nor_released_by_the_old_holder(
    engine: Engine, clock: VirtualClock
) -> None:
    old = token(engine, "w1")
    clock.advance(10 * SECOND)
    token(engine, "w2")
    assert not engine.renew_lease("mail", old, SECOND)
    assert not engine.release_lease("mail", old)
    assert engine.acquire_lease("mail", "w3", SECOND) is None


def test_a_released_lease_is_free_at_once_and_its_token_is_dead(engine: Engine) -> None:
    old = token(engine, "w1")
    assert engine.release_lease("mail", old)
    assert token(engine, "w2") > old
    assert not engine.release_lease("mail", old)


def test_a_released_lease_is_with_nobody_whatever_token_is_named(engine: Engine) -> None:
    """Its token has moved on, so that the old holder is fenced; but nobody was ever given the next one."""
    writer = Writer(engine, "w1")
    old = token(engine, "w1")
    assert engine.release_lease("mail", old)
    for named in range(old + 3):
        verdict = writer.send(preconditions=[LeaseHeld("mail", named)])
        assert isinstance(verdict, Rejected)
        detail = f"lease 'mail' with token {named} is no longer held: it is with nobody"
        assert verdict.rejection == PreconditionFailed("lease_held", detail)


def test_a_released_lease_can_neither_be_renewed_nor_released_by_guessing_its_token(engine: Engine) -> None:
    old = token(engine, "w1")
    assert engine.release_lease("mail", old)
    for named in range(old + 3):
        assert not engine.renew_lease("mail", named, 1_000 * SECOND)
        assert not engine.release_lease("mail", named)
    assert token(engine, "w2") > old


def test_leases_have_nothing_to_do_with_each_other(engine: Engine) -> None:
    token(engine, "w1", name="mail")
    assert token(engine, "w2", name="Mail") == 1
    assert not engine.renew_lease("other", 1, SECOND)
    assert not engine.release_lease("other", 1)


def test_a_commit_that_holds_the_lease_passes_and_a_late_one_does_not(engine: Engine, clock: VirtualClock) -> None:
    writer = Writer(engine, "w1")
    old = token(engine, "w1")
    assert isinstance(writer.send(preconditions=[LeaseHeld("mail", old)]), Accepted)
    clock.advance(60 * SECOND)
    # It ran out, and nobody took it: still fenced by the token alone, so that nothing has to tick.
    assert isinstance(writer.send(preconditions=[LeaseHeld("mail", old)]), Accepted)
    token(engine, "w2")
    verdict = writer.send(preconditions=[LeaseHeld("mail", old)])
    assert isinstance(verdict, Rejected)
    assert isinstance(verdict.rejection, PreconditionFailed)
    assert verdict.rejection.precondition == "lease_held"


@pytest.mark.parametrize("duration", [0, -1, 2**52, 2**63])
def test_a_lease_lasts_longer_than_nothing_and_not_for_ever(engine: Engine, duration: int) -> None:
    expected = f"a lease lasts from 1 to 4503599627370495 microseconds, not {duration}"
    with pytest.raises(AuthoringError, match=expected):
        engine.acquire_lease("mail", "w1", duration)
    mine = token(engine, "w1")
    with pytest.raises(AuthoringError, match=expected):
        engine.renew_lease("mail", mine, duration)
    assert engine.renew_lease("mail", mine, 2**52 - 1)
