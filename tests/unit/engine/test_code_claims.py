"""Claims of code over connections: which code is granted, to which peers, and until when."""

from __future__ import annotations

from headwater.data.patch import append
from headwater.engine.admission.access import ACCESS
from headwater.engine.limits import Limits
from headwater.protocol.commit import Operation
from headwater.protocol.messages import Bye, ClaimCode, CodeClaimed, Problem
from tests.unit.engine.hub_kit import Raw, put
from tests.unit.replica.kit import World


def claims(raw: Raw, code: str, name: str = "shop.Cart") -> bool:
    (answer,) = [each for each in raw.say(ClaimCode(7, name, code)) if isinstance(each, CodeClaimed)]
    assert answer.id == 7
    return answer.is_granted


def test_first_code_is_granted_until_the_last_peer_with_it_is_gone() -> None:
    world = World()
    one, two, other = Raw(world, "one"), Raw(world, "two"), Raw(world, "other")
    assert claims(one, "a")
    assert claims(two, "a")
    assert not claims(other, "b")
    assert claims(other, "b", "shop.Till")
    one.say(Bye())
    assert not claims(other, "b")
    world.hub.lost(two.peer)
    assert claims(other, "b")
    assert not claims(Raw(world, "late"), "a")


def test_connection_that_takes_a_session_up_has_to_claim_again() -> None:
    world = World()
    one, other = Raw(world, "one"), Raw(world, "other")
    assert claims(one, "a")
    again = Raw(world)
    again.open("one", one.token)
    assert claims(other, "b")
    assert not claims(again, "a")


def test_peer_without_others_replaces_its_code() -> None:
    world = World()
    one, other = Raw(world, "one"), Raw(world, "other")
    assert claims(one, "a")
    assert claims(one, "b")
    assert not claims(other, "a")
    assert claims(other, "b")
    assert not claims(one, "a")


def test_reader_is_granted_every_code_and_keeps_no_writer_from_another() -> None:
    world = World(access=True)
    ann = Raw(world, "ann-session", principal="ann")
    ann.write(1, put("d", 1))
    ann.write(2, Operation(ACCESS, (append(("readers",), ["rob"]),)))
    rob = Raw(world, "rob-session", principal="rob")
    assert claims(rob, "a")
    assert claims(ann, "b")
    assert claims(rob, "a")


def test_branches_have_claims_of_their_own() -> None:
    world = World()
    one = Raw(world, "one")
    one.write(1, put("d", 1))
    world.engine.fork("side")
    assert claims(one, "a")
    assert claims(Raw(world, "other", branch="side"), "b")


def test_claims_of_a_peer_are_bounded() -> None:
    world = World(limits=Limits(code_claims=2))
    one = Raw(world, "one")
    assert all(claims(one, "a", name) for name in ("x", "y", "x"))
    (refused,) = one.say(ClaimCode(8, "z", "a"))
    (long,) = one.say(ClaimCode(9, "x" * 257, "a"))
    for problem, number in ((refused, 8), (long, 9)):
        assert isinstance(problem, Problem)
        assert (problem.code, problem.fatal, problem.id) == ("limit", False, number)
    assert claims(Raw(world, "other"), "b", "z")
