"""Classes of pieces by the names that records contain."""

from __future__ import annotations

import pytest

from headwater import AuthoringError, Cell, Piece, cell
from headwater.runtime.pieces.classes import class_named


class Shelf(Piece):
    books: Cell[int] = cell(default=0)


def test_refused_class_does_not_hide_the_others() -> None:
    """Python counts a refused class among the subclasses of Piece as long as its error is kept."""
    with pytest.raises(AuthoringError) as refused:

        class Broken(Piece):
            books: Cell[list[int]] = cell(default=[])

    assert "Broken" in [each.__name__ for each in Piece.__subclasses__()]
    assert class_named(Shelf.__schema__.name) is Shelf
    assert refused.value is not None
