"""A class of pieces with a mistake is refused where it is made, and leaves nothing behind."""

from __future__ import annotations

import pytest

from headwater import AuthoringError, Cell, Input, Piece, Topic, cell

# mypy: disable-error-code="assignment"


def test_plain_value_of_a_cell_is_refused_when_the_class_is_made() -> None:
    with pytest.raises(AuthoringError, match=r"Counter\.n .* is 0: write n: Cell\[int\] = cell\(default=0\)"):

        class Counter(Piece):
            n: Cell[int] = 0


def test_plain_value_of_an_input_is_refused_when_the_class_is_made() -> None:
    with pytest.raises(AuthoringError, match=r"Row\.title .* is 'tea': write title: Input\[str\] = given\(\)"):

        class Row(Piece):
            title: Input[str] = "tea"


def test_plain_value_of_a_topic_is_refused_when_the_class_is_made() -> None:
    with pytest.raises(AuthoringError, match=r"Cart\.placed .* is None: write placed: Topic\[str\] = topic\(\)"):

        class Cart(Piece):
            placed: Topic[str] = None


def test_plain_value_in_a_subclass_is_refused_when_the_class_is_made() -> None:
    class Base(Piece):
        pass

    with pytest.raises(AuthoringError, match=r"Counter\.n .* is 0: write"):

        class Counter(Base):
            n: Cell[int] = 0


def test_member_of_another_class_is_refused_as_a_cell() -> None:
    class Other(Piece):
        n: Cell[int] = cell(default=0)

    with pytest.raises(AuthoringError, match=r"Counter\.m .* write m: Cell\[int\] = cell\("):

        class Counter(Piece):
            m: Cell[int] = Other.n
