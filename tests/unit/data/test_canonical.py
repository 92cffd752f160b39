"""Canonical bytes are those of RFC 8785, by the word of the `rfc8785` package and of the RFC itself."""

from __future__ import annotations

import hashlib
import random
import struct
from typing import Any

import pytest
import rfc8785
from hypothesis import given

from headwater.data.address import Link
from headwater.data.codec import DIGEST_NAME, canonical, digest, json_form
from headwater.data.json_form import number_text
from headwater.data.value import Value, equal
from tests.counts import scaled
from tests.unit.data.generators import random_double, random_value, values


@pytest.mark.random
def test_canonical_bytes_agree_with_the_rfc8785_package() -> None:
    rng = random.Random(8785)
    for number in range(scaled(100_000)):
        value = random_value(rng)
        form: Any = json_form(value)
        assert canonical(value) == rfc8785.dumps(form), (number, value)


@pytest.mark.random
def test_numbers_agree_with_the_rfc8785_package() -> None:
    rng = random.Random(7)
    for number in range(scaled(100_000)):
        double = random_double(rng) if number % 2 else rng.uniform(-1, 1) * 10.0 ** rng.randint(-8, 23)
        assert number_text(double) == rfc8785.dumps(double).decode(), double.hex()
        assert float(number_text(double)) == double


@pytest.mark.parametrize(
    ("bits", "text"),
    [
        (0x0000000000000000, "0"),
        (0x8000000000000000, "0"),
        (0x0000000000000001, "5e-324"),
        (0x8000000000000001, "-5e-324"),
        (0x7FEFFFFFFFFFFFFF, "1.7976931348623157e+308"),
        (0xFFEFFFFFFFFFFFFF, "-1.7976931348623157e+308"),
        (0x4340000000000000, "9007199254740992"),
        (0x4430000000000000, "295147905179352830000"),
        (0x44B52D02C7E14AF5, "9.999999999999997e+22"),
        (0x44B52D02C7E14AF6, "1e+23"),
        (0x44B52D02C7E14AF7, "1.0000000000000001e+23"),
        (0x444B1AE4D6E2EF4E, "999999999999999700000"),
        (0x444B1AE4D6E2EF4F, "999999999999999900000"),
        (0x444B1AE4D6E2EF50, "1e+21"),
        (0x3EB0C6F7A0B5ED8C, "9.999999999999997e-7"),
        (0x3EB0C6F7A0B5ED8D, "0.000001"),
        (0x41B3DE4355555553, "333333333.3333332"),
        (0xBECBF647612F3696, "-0.0000033333333333333333"),
        (0x43143FF3C1CB0959, "1424953923781206.2"),
    ],
)
def test_numbers_are_written_as_in_appendix_b_of_the_rfc(bits: int, text: str) -> None:
    (double,) = struct.unpack(">d", bits.to_bytes(8))
    assert number_text(double) == text


def test_the_example_of_the_rfc_comes_out_as_printed_there() -> None:
    value: Value = {
        "numbers": (333333333.33333329, 1e30, 4.50, 2e-3, 0.000000000000000000000000001),
        "string": "\u20ac$\u000f\u000aA'\u0042\u0022\u005c\\\"/",
        "literals": (None, True, False),
    }
    assert canonical(value) == (
        b'{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        b'"string":"\xe2\x82\xac$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )


def test_keys_are_sorted_by_utf16_code_units() -> None:
    keys = ["\u20ac", "\r", "\ufb33", "1", "\U0001f600", "\u0080", "\u00f6"]
    text = canonical(dict.fromkeys(keys, 0)).decode()
    assert text == '{"\\r":0,"1":0,"\u0080":0,"\u00f6":0,"\u20ac":0,"\U0001f600":0,"\ufb33":0}'


def test_empty_containers_bytes_and_links_have_a_canonical_form() -> None:
    value: Value = {"o": {}, "l": (), "b": b"\x00", "k": Link(None, "space", "x", (1,)), "$": 1}
    assert canonical(value) == (
        b'{"$$":1,"b":{"$bytes":"AA=="},"k":{"$link":{"id":"x","path":[1],"scope":"space"}},"l":[],"o":{}}'
    )


def test_the_digest_is_the_named_hash_of_the_canonical_bytes() -> None:
    value: Value = {"b": 1.0, "a": ("x",)}
    assert DIGEST_NAME == "blake2b-128"
    assert digest(value) == hashlib.blake2b(b'{"a":["x"],"b":1}', digest_size=16).hexdigest()
    assert digest(value) == digest({"a": ("x",), "b": 1})


@given(values, values)
def test_equal_values_and_only_they_have_equal_canonical_bytes(a: Any, b: Any) -> None:
    assert equal(a, b) == (canonical(a) == canonical(b))
