"""Turns: first come, first served; for a bounded time; and never in the way of anybody who is gone."""

from __future__ import annotations

from headwater.data.address import DocKey
from headwater.engine.limits import DEFAULT_LIMITS
from headwater.engine.peer import Peer
from headwater.engine.turns import LINE, QUIET_US, TURN_US, Turns

D, E = DocKey("space", "d"), DocKey("space", "e")


def peers(count: int) -> list[Peer]:
    return [Peer(lambda message: None, DEFAULT_LIMITS) for _ in range(count)]


def lined_up(count: int) -> tuple[Turns, list[Peer]]:
    turns, all_ = Turns(), peers(count)
    for peer in all_:
        turns.lost(peer, D, 0)
    return turns, all_


def test_turns_are_given_in_the_order_in_which_conflicts_were_lost() -> None:
    turns, (a, b, c) = lined_up(3)
    assert turns.give(0) == [a]
    assert [turns.before(peer) for peer in (a, b, c)] == [0, 1, 2]
    assert turns.give(1) == []
    turns.leave(a)
    assert turns.give(2) == [b]
    turns.leave(b)
    turns.leave(c)
    assert turns.give(3) == []
    assert len(turns) == 0


def test_who_loses_in_its_turn_stays_the_first() -> None:
    turns, (a, b) = lined_up(2)
    assert turns.give(0) == [a]
    turns.lost(a, D, 1)
    assert turns.give(1) == [a]
    assert turns.before(b) == 1


def test_a_turn_that_is_not_used_passes_on_and_is_over_for_good() -> None:
    turns, (a, b) = lined_up(2)
    turns.give(0)
    assert turns.give(TURN_US - 1) == []
    assert turns.give(TURN_US) == [b]
    assert turns.before(a) is None
    assert turns.give(2 * TURN_US) == []
    assert len(turns) == 0


def test_a_peer_stands_in_one_line_and_lines_of_two_documents_do_not_wait_for_each_other() -> None:
    turns, (a, b) = Turns(), peers(2)
    turns.lost(a, D, 0)
    turns.lost(b, E, 0)
    assert turns.give(0) == [a, b]
    turns.lost(a, E, 1)
    assert turns.before(a) == 1
    assert turns.give(1) == []
    assert [peer for peer, _ in turns.holders()] == [b]


def test_news_are_kept_back_only_from_those_who_wait_and_only_for_a_while() -> None:
    turns, (a, b) = lined_up(2)
    stranger = peers(1)[0]
    turns.give(0)
    assert not turns.may_wait(a, 1)
    assert turns.may_wait(b, 1)
    assert not turns.may_wait(b, QUIET_US)
    assert not turns.may_wait(stranger, 1)


def test_a_line_has_an_end() -> None:
    turns, all_ = lined_up(LINE + 2)
    assert turns.before(all_[LINE]) is None
    turns.leave(all_[LINE])  # It stands nowhere, and that is no mistake.
    assert turns.give(0) == [all_[0]]
