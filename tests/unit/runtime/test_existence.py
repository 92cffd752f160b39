"""Whether a piece that a sink found was deleted, or its maker was rejected."""

from __future__ import annotations

from headwater.protocol.commit import Commit
from headwater.replica.pending import Fate, Layer
from headwater.runtime.core.observers import Existence


def test_sink_ends_when_a_piece_is_deleted_whose_first_maker_was_rejected() -> None:
    """The record that another program made was shown in the place of the rejected one, without a change."""
    rejected = Layer(1, Commit(1), {}, None, None)
    rejected.fate = Fate.DEAD
    shown = Existence(is_there=True, written=3, made_by=(rejected,))
    assert not shown.was_deleted(Existence(is_there=False, written=3))
    assert shown.was_deleted(Existence(is_there=False, written=9))
