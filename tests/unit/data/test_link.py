"""Links: checked when made, immutable, compared by value."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from headwater.data.address import Address, Link
from headwater.errors import InvalidValueError


def test_a_link_names_its_target_and_resolves_from_its_home() -> None:
    near = Link(None, "space", "cart", ("lines", 0))
    far = Link("shop", "user:ann", "cart")
    assert near.resolve("home") == Address(space="home", scope="space", id="cart", path=("lines", 0))
    assert far.resolve("home") == Address(space="shop", scope="user:ann", id="cart", path=())
    assert repr(near) == "Link(space:cart#/lines/0)"
    assert repr(far) == "Link(shop/user:ann:cart)"


def test_links_are_equal_and_hashed_by_value() -> None:
    assert Link(None, "space", "x", (1,)) == Link(None, "space", "x", [1])
    assert len({Link(None, "space", "x"), Link(None, "space", "x"), Link("s", "space", "x")}) == 2
    assert Link(None, "space", "x") != "x"
    match Link(None, "space", "x", ("a",)):
        case Link(None, "space", id, (key,)):
            assert (id, key) == ("x", "a")
        case _:
            raise AssertionError


def test_a_link_cannot_be_changed() -> None:
    link: Any = Link(None, "space", "x")
    with pytest.raises(AttributeError, match="a Link is immutable: make a new one instead of setting 'id'"):
        link.id = "y"
    with pytest.raises(AttributeError, match="a Link is immutable: 'id' cannot be deleted"):
        del link.id
    assert not hasattr(link, "__dict__")


def test_a_copied_link_is_the_same_link() -> None:
    link = Link("shop", "space", "x", ("a", 1))
    assert copy.copy(link) is link
    assert copy.deepcopy([link])[0] is link
    assert pickle.loads(pickle.dumps(link)) == link


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (("Shop", "space", "x", ()), "'Shop' cannot name a space"),
        ((None, "team", "x", ()), "'team' is not a scope"),
        ((None, "space", "", ()), "document id '' is empty"),
        ((None, "space", "x", (-1,)), "step 0 of a path is -1"),
        ((None, "space", "x", "abc"), "a path is 'abc'"),
    ],
)
def test_a_link_is_checked_where_it_is_made(parts: tuple[Any, ...], message: str) -> None:
    with pytest.raises(InvalidValueError, match=message):
        Link(*parts)
