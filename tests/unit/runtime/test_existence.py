"""Whether a piece that a sink found was deleted, or its maker was rejected."""

from __future__ import annotations

from headwater.runtime.core.observers import Existence


def test_sink_ends_when_a_piece_is_deleted_whose_first_maker_was_rejected() -> None:
    """The record that another program made was shown in the place of the rejected one, without a change."""
    shown = Existence(is_there=True, written=3, is_undecided=True)
    assert not shown.was_deleted(Existence(is_there=False, written=3))
    assert shown.was_deleted(Existence(is_there=False, written=9))


def test_sink_ends_when_a_piece_is_deleted_before_the_commit_that_made_it_has_a_verdict() -> None:
    made = Existence(is_there=True, written=0, is_undecided=True)
    assert made.was_deleted(Existence(is_there=False, written=0, is_undecided=True))
