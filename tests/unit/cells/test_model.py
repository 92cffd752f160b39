"""Models: a renamed field keeps its place, and two fields cannot have one."""

from __future__ import annotations

import pytest

from headwater import AuthoringError, Model
from headwater.cells.model import field


class Base(Model):
    name: str


def test_a_renamed_field_and_another_of_its_old_name_cannot_both_be() -> None:
    with pytest.raises(AuthoringError) as refused:

        class Taken(Model):
            a: int = field(was="b", default=1)
            b: int = 0

    assert str(refused.value) == (
        "Taken: fields 'a' and 'b' would both be stored as 'b'. A field that was renamed keeps its place: write "
        "another name for 'b', or leave was='b' away"
    )


def test_nor_can_two_that_were_renamed_from_one() -> None:
    with pytest.raises(AuthoringError, match="'b' and 'a' would both be stored as 'c'"):

        class Twice(Model):
            a: int = field(was="c", default=1)
            b: int = field(was="c", default=0)


def test_nor_can_one_that_has_the_place_of_an_inherited_field() -> None:
    with pytest.raises(AuthoringError, match="'title' and 'name' would both be stored as 'name'"):

        class Derived(Base):
            title: str = field(was="name", default="")


def test_what_else_is_wrong_with_a_model_is_said_as_it_was() -> None:
    with pytest.raises(TypeError, match="Required field"):

        class Wrong(Model):
            a: int = 0
            b: int  # type: ignore[misc]
