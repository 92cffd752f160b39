"""Names of documents and places: allowed ones, and their text form."""

from __future__ import annotations

import enum
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.data.address import (
    Address,
    AddressParts,
    Depth,
    DocKey,
    address_text,
    check_id,
    check_scope,
    check_space,
    doc_text,
    parse_address,
)
from headwater.data.path import Path
from headwater.errors import InvalidValueError
from tests.unit.data.generators import names, paths, scopes, spaces


class Mode(enum.StrEnum):
    SHOP = "shop"


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ((None, "space", "cart", ()), "space:cart"),
        ((None, "space", "cart/lines", (0, "qty")), "space:cart/lines#/0/qty"),
        (("shop", "space", "cart/lines", (0, "qty")), "shop/space:cart/lines#/0/qty"),
        (("shop", "user:ann", "settings", ()), "shop/user:ann:settings"),
        ((None, "user:a:b/c#d%", "x", ()), "user:a%3Ab%2Fc%23d%25:x"),
        ((None, "session:7", "a:b", ("#",)), "session:7:a:b#/#"),
        ((None, "space", "100%#1", ()), "space:100%25%231"),
    ],
)
def test_an_address_is_written_and_read_back(parts: tuple[Any, ...], text: str) -> None:
    space, scope, id, path = parts
    assert address_text(scope, id, path, space=space) == text
    assert doc_text(DocKey(scope, id), path, space=space) == text
    assert parse_address(text) == AddressParts(*parts)


@given(st.none() | spaces, scopes, names, paths)
def test_every_address_survives_its_text_form(space: str | None, scope: str, id: str, path: Path) -> None:
    assert parse_address(address_text(scope, id, path, space=space)) == (space, scope, id, path)


def test_an_address_shows_itself_in_its_text_form() -> None:
    address = Address(space="shop", scope="user:ann", id="cart", path=("lines", 0))
    assert str(address) == "shop/user:ann:cart#/lines/0"
    assert address.doc == DocKey("user:ann", "cart")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cart", "address 'cart' has no scope: write it like space:cart#/lines/0 or user:ann:settings"),
        ("user:ann", "address 'user:ann' has no document id: write it like user:ann:settings"),
        ("team:x:y", "'team:x' is not a scope: use 'space', 'user:<principal>' or 'session:<id>'"),
        ("space:", "document id '' is empty: use 1 to 256 characters"),
        ("user::x", "the user of scope 'user:' is empty: use 1 to 256 characters"),
        (
            "Shop/space:x",
            "'Shop' cannot name a space: use 1 to 64 lower-case letters, digits, '-' and '_', a letter first",
        ),
        ("space:x#y", "path 'y' does not begin with '/': write it like /cards/3/title"),
    ],
)
def test_text_that_is_no_address_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidValueError) as refused:
        parse_address(text)
    assert str(refused.value) == message


@pytest.mark.parametrize("name", ["a", "shop", "a-b_c9", "x" * 64])
def test_lower_case_names_can_name_a_space(name: str) -> None:
    assert check_space(name) == name


@pytest.mark.parametrize(
    "name", ["", "9a", "-a", "_a", "A", "a b", "a/b", "a.b", "x" * 65, "é", "a\n", None, 7, Mode.SHOP]
)
def test_other_names_cannot_name_a_space(name: Any) -> None:
    with pytest.raises(InvalidValueError, match="cannot name a space: use 1 to 64 lower-case letters"):
        check_space(name)


@pytest.mark.parametrize("scope", ["space", "user:ann", "user:https://id/x:y", "session:0"])
def test_the_three_kinds_of_scope_are_known(scope: str) -> None:
    assert check_scope(scope) == scope


@pytest.mark.parametrize("scope", ["", "user", "session", "Space", "space:x", "group:x", ":x", None, 3])
def test_other_scopes_are_refused(scope: Any) -> None:
    with pytest.raises(InvalidValueError, match="is not a scope: use 'space', 'user:<principal>' or 'session:<id>'"):
        check_scope(scope)


@pytest.mark.parametrize(
    ("id", "message"),
    [
        ("", "document id '' is empty: use 1 to 256 characters"),
        ("x" * 257, f"document id '{'x' * 56}... is 257 characters long: use at most 256"),
        ("a\nb", "document id 'a\\nb' holds the control character or lone surrogate \\u000a: leave it out"),
        ("a\x85", "document id 'a\\x85' holds the control character or lone surrogate \\u0085: leave it out"),
        (
            "a\ud800",
            "document id 'a\\ud800' holds the control character or lone surrogate \\ud800: leave it out",
        ),
        (7, "7 cannot name a document: use a string"),
        (Mode.SHOP, "<Mode.SHOP: 'shop'> cannot name a document: use a string"),
    ],
)
def test_a_bad_document_id_is_refused(id: Any, message: str) -> None:
    with pytest.raises(InvalidValueError) as refused:
        check_id(id)
    assert str(refused.value) == message


def test_a_depth_is_an_integer_on_the_wire() -> None:
    assert msgspec.msgpack.encode((Depth.DEEP, Depth.SHAPE)) == b"\x92\x00\x01"
    assert msgspec.msgpack.decode(b"\x01", type=Depth) is Depth.SHAPE
