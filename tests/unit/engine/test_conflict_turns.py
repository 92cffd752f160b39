"""Turns: first come, first served; for a bounded time; and never in the way of anybody who is gone."""

from __future__ import annotations

from headwater.data.address import Depth, DocKey
from headwater.data.patch import increment
from headwater.engine.limits import DEFAULT_LIMITS
from headwater.engine.sync.conflict_turns import Arrived, ConflictTurns
from headwater.engine.sync.peer import Peer
from headwater.protocol.commit import Commit, Operation, Read
from headwater.protocol.messages import Ack, Transact
from headwater.protocol.verdict import Accepted

D, E = DocKey("space", "d"), DocKey("space", "e")


def peers(count: int) -> list[Peer]:
    return [Peer(lambda message: None, DEFAULT_LIMITS) for _ in range(count)]


def lined_up(count: int) -> tuple[ConflictTurns, list[Peer]]:
    turns, all_ = ConflictTurns(), peers(count)
    for peer in all_:
        turns.queue_loser(peer, D, 0)
    return turns, all_


def test_turns_are_given_in_the_order_in_which_conflicts_were_lost() -> None:
    turns, (a, b, c) = lined_up(3)
    assert turns.give_turns(0) == [a]
    assert [turns.place_of(peer) for peer in (a, b, c)] == [0, 1, 2]
    assert turns.give_turns(1) == []
    turns.leave_queue(a)
    assert turns.give_turns(2) == [b]
    turns.leave_queue(b)
    turns.leave_queue(c)
    assert turns.give_turns(3) == []
    assert not turns.lines


def test_who_loses_in_its_turn_stays_the_first() -> None:
    turns, (a, b) = lined_up(2)
    assert turns.give_turns(0) == [a]
    turns.queue_loser(a, D, 1)
    assert turns.give_turns(1) == [a]
    assert turns.place_of(b) == 1


def test_a_turn_that_is_not_used_passes_on_and_is_over_for_good() -> None:
    turns, (a, b) = lined_up(2)
    turns.give_turns(0)
    assert turns.give_turns(DEFAULT_LIMITS.turn_us - 1) == []
    assert turns.give_turns(DEFAULT_LIMITS.turn_us) == [b]
    assert turns.place_of(a) is None
    assert turns.give_turns(DEFAULT_LIMITS.turn_us + turns.turn_us) == []
    assert not turns.lines


def test_a_turn_is_as_long_as_those_who_had_it_took_within_bounds() -> None:
    turns, now_us = ConflictTurns(), 0
    assert turns.turn_us == DEFAULT_LIMITS.turn_us
    for took_us, bound in ((DEFAULT_LIMITS.turn_us_most, DEFAULT_LIMITS.turn_us_most), (10, DEFAULT_LIMITS.turn_us)):
        for _ in range(40):
            (peer,) = peers(1)
            turns.queue_loser(peer, D, now_us)
            assert turns.give_turns(now_us) == [peer]
            now_us += min(took_us, turns.turn_us)
            turns.note_verdict(peer, Accepted(1, 1), now_us)
            turns.give_turns(now_us)
        assert turns.turn_us == bound


def test_a_peer_stands_in_one_line_and_lines_of_two_documents_do_not_wait_for_each_other() -> None:
    turns, (a, b) = ConflictTurns(), peers(2)
    turns.queue_loser(a, D, 0)
    turns.queue_loser(b, E, 0)
    assert turns.give_turns(0) == [a, b]
    turns.queue_loser(a, E, 1)
    assert turns.place_of(a) == 1
    assert turns.give_turns(1) == []
    assert [peer for peer, _ in turns.holders()] == [b]


def test_news_are_kept_back_only_from_those_who_wait_and_only_for_a_while() -> None:
    turns, (a, b) = lined_up(2)
    stranger = peers(1)[0]
    turns.give_turns(0)
    assert not turns.may_wait(a, 1)
    assert turns.may_wait(b, 1)
    assert not turns.may_wait(b, DEFAULT_LIMITS.turn_quiet_us)
    assert not turns.may_wait(stranger, 1)


def test_a_line_has_an_end() -> None:
    turns, all_ = lined_up(DEFAULT_LIMITS.turn_queue + 2)
    assert turns.place_of(all_[DEFAULT_LIMITS.turn_queue]) is None
    turns.leave_queue(all_[DEFAULT_LIMITS.turn_queue])  # It stands nowhere, and that is no mistake.
    assert turns.give_turns(0) == [all_[0]]


# ---- bursts ------------------------------------------------------------------------------------------------


def test_a_turn_lasts_until_all_that_was_sent_with_it_is_judged() -> None:
    turns, (a, b) = lined_up(2)
    coming = {a}
    turns.is_coming = coming.__contains__
    turns.give_turns(0)
    turns.note_verdict(a, Accepted(1, 1), 1)
    assert turns.give_turns(1) == []
    assert turns.place_of(a) == 0
    coming.clear()
    turns.note_verdict(a, Accepted(2, 2), 2)
    assert turns.give_turns(2) == [b]
    assert turns.place_of(a) is None


def test_a_turn_ends_with_its_time_however_much_is_still_coming() -> None:
    turns, (a, b) = lined_up(2)
    turns.is_coming = lambda peer: True
    turns.give_turns(0)
    turns.note_verdict(a, Accepted(1, 1), 1)
    assert turns.give_turns(DEFAULT_LIMITS.turn_us - 1) == []
    assert turns.give_turns(DEFAULT_LIMITS.turn_us) == [b]


def test_who_was_served_hears_of_the_others_a_little_later_while_somebody_waits() -> None:
    turns, (a, _) = lined_up(2)
    turns.give_turns(0)
    turns.note_verdict(a, Accepted(1, 1), 1)
    turns.give_turns(1)
    assert turns.may_wait(a, 2)
    assert not turns.may_wait(a, 1 + DEFAULT_LIMITS.turn_us)
    assert not turns.may_wait(a, 2)  # It was told once, and is nobody special any more.


# ---- what is kept back -------------------------------------------------------------------------------------


def writes(doc: DocKey, local_seq: int = 1) -> Transact:
    return Transact((Commit(local_seq, (Operation(doc, (increment(("n",), 1),)),)),))


def looks(doc: DocKey) -> Transact:
    return Transact((Commit(1, (Operation(E, (increment(("n",), 1),)),), (Read(doc, (), Depth.DEEP, 1),)),))


def test_what_collides_with_somebody_s_turn_waits_for_it_and_nothing_else_does() -> None:
    turns, (a,) = lined_up(1)
    other, third, fourth = peers(3)
    turns.give_turns(0)
    arrived: list[Arrived] = [(other, writes(D)), (third, looks(D)), (fourth, writes(E)), (other, Ack(1))]
    assert turns.in_order(arrived, 1) == ([arrived[2]], [])
    assert len(turns.held) == 3
    assert turns.in_order([(fourth, writes(E))], 2) == ([(fourth, writes(E))], [])
    now, after = turns.in_order([(a, writes(D)), (fourth, Ack(1))], 3)
    assert now == [(a, writes(D)), arrived[0], arrived[3], (fourth, Ack(1))]  # The next in line is told of it, too.
    assert after == [arrived[1]]
    assert not turns.held


def test_what_waited_for_one_turn_does_not_wait_for_the_next() -> None:
    turns, (a, b) = lined_up(2)
    other = peers(1)[0]
    turns.give_turns(0)
    assert turns.in_order([(other, looks(D))], 1) == ([], [])
    _, after = turns.in_order([(a, writes(D))], 2)
    turns.note_verdict(a, Accepted(1, 1), 2)
    assert turns.give_turns(2) == [b]
    assert after == [(other, looks(D))]  # In the caller's hands: judged now, whoever has the turn.


def test_nobody_is_kept_back_for_longer_than_a_turn() -> None:
    turns, _ = lined_up(1)
    other = peers(1)[0]
    turns.give_turns(0)
    assert turns.in_order([(other, writes(D)), (other, Ack(1))], 1) == ([], [])
    assert turns.in_order([], DEFAULT_LIMITS.turn_us - 1) == ([], [])
    assert turns.in_order([], DEFAULT_LIMITS.turn_us) == ([(other, writes(D)), (other, Ack(1))], ())


def test_a_turn_that_was_used_keeps_nobody_back() -> None:
    turns, (a,) = lined_up(1)
    other = peers(1)[0]
    turns.is_coming = lambda peer: True
    turns.give_turns(0)
    turns.note_verdict(a, Accepted(1, 1), 1)
    assert turns.in_order([(other, looks(D))], 2) == ([], [(other, looks(D))])
    assert turns.in_order([(other, writes(D))], 3) == ([(other, writes(D))], [])


def test_released_turns_leave_nothing_behind() -> None:
    turns, (a, b) = lined_up(2)
    other = peers(1)[0]
    turns.give_turns(0)
    turns.in_order([(other, writes(D))], 1)
    turns.end_turns()
    assert turns.in_order([], 1) == ([(other, writes(D))], ())
    assert not turns.lines
    assert not turns.held
    assert turns.place_of(a) is turns.place_of(b) is None
