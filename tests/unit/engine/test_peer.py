"""A peer: what one connection is owed, in bounded memory."""

from __future__ import annotations

from headwater.data.address import DocKey
from headwater.data.patch import increment
from headwater.engine.limits import Limits
from headwater.engine.sync.peer import Peer, PeerState
from headwater.protocol.messages import Own, Patched, Selector

D, E = DocKey("space", "d"), DocKey("space", "e")
BY_ONE = (increment(("n",)),)


def peer(**limits: int) -> Peer:
    return Peer(lambda message: None, Limits(**limits))  # type: ignore[arg-type]


def change(seq: int, doc: DocKey = D) -> Patched:
    return Patched(doc, seq, BY_ONE)


def test_a_new_peer_has_said_nothing_and_is_owed_nothing() -> None:
    made = peer()
    assert made.state is PeerState.NEW
    assert not made.is_owed()
    assert made.take_changes() == ([], [])


def test_changes_of_several_documents_are_told_in_the_order_of_the_log() -> None:
    made = peer()
    for seq, doc in ((1, D), (2, E), (3, D), (4, E)):
        made.note_change(change(seq, doc))
    changes, merged = made.take_changes()
    assert [each.seq for each in changes] == [1, 2, 3, 4]
    assert merged == []
    assert not made.is_owed()


def test_up_to_the_limit_changes_are_told_one_by_one() -> None:
    made = peer(sync_patches=3)
    for seq in (1, 2, 3):
        made.note_change(change(seq))
    assert made.take_changes() == ([change(1), change(2), change(3)], [])


def test_past_the_limit_only_the_fact_is_kept_and_for_that_document_only() -> None:
    made = peer(sync_patches=3)
    for seq in (1, 2, 3, 4):
        made.note_change(change(seq))
    made.note_change(change(5, E))
    assert made.take_changes() == ([change(5, E)], [D])


def test_however_much_happens_a_slow_peer_costs_no_more_than_its_documents() -> None:
    made = peer(sync_patches=2)
    docs = [DocKey("space", str(number)) for number in range(5)]
    for seq in range(10_000):
        made.note_change(change(seq, docs[seq % 5]))
        assert made.held <= 2 * 5
    changes, merged = made.take_changes()
    assert (changes, merged) == ([], docs)


def test_own_changes_count_towards_the_limit_like_any_other() -> None:
    made = peer(sync_patches=1)
    made.note_change(Own(D, 1, 1))
    made.note_change(change(2))
    assert made.take_changes() == ([], [D])


def test_a_forgotten_document_is_owed_nothing() -> None:
    made = peer(sync_patches=1)
    for seq in (1, 2):
        made.note_change(change(seq))
    made.note_change(change(3, E))
    made.forget_document(D)
    made.forget_document(E)
    made.forget_document(E)
    assert not made.is_owed()


def test_what_was_merged_stays_merged_until_it_is_told() -> None:
    made = peer(sync_patches=1)
    made.merge_changes(D)
    made.note_change(change(9))
    assert made.take_changes() == ([], [D])
    made.note_change(change(10))
    assert made.take_changes() == ([change(10)], [])


def test_a_seq_alone_can_be_owed() -> None:
    made = peer()
    made.owes_seq = True
    assert made.is_owed()
    assert made.take_changes() == ([], [])
    assert not made.is_owed()


def test_a_new_connection_takes_over_what_the_old_one_watched_and_leaves_it_nothing() -> None:
    old, new = peer(), peer()
    old.watches[1] = (Selector(D),)
    old.watched[D] = {1}
    new.inherit(old)
    assert new.watches == {1: (Selector(D),)}
    assert new.watched == {D: {1}}
    assert old.watches == {}
    assert old.watched == {}
