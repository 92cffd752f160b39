"""Values as MessagePack and as JSON text, there and back."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given

from headwater.data.address import Link
from headwater.data.codec import (
    LINK_EXT,
    decode,
    enc_hook,
    encode,
    ext_hook,
    from_json,
    from_json_form,
    json_form,
    record_decoder,
    record_encoder,
    to_json,
)
from headwater.data.limits import MAX_DEPTH, ValueLimits
from headwater.data.patch import Patch, add, append, validate_patch
from headwater.data.value import MAX_INT, Value, equal, freeze
from headwater.errors import InvalidValueError
from tests.counts import scaled
from tests.unit.data.generators import random_value, values

NEAR = Link(None, "user:ann", "cart", ("lines", 0))
FAR = Link("shop", "space", "cart")


def exactly_same(a: Any, b: Any) -> bool:
    """Equal, and of the same types all the way down: arrays are tuples again, 1.0 is not 1."""
    if type(a) is not type(b) or not equal(a, b):
        return False
    if isinstance(a, dict):
        return all(exactly_same(item, b[key]) for key, item in a.items())
    return all(map(exactly_same, a, b)) if isinstance(a, tuple) else True


@given(values)
def test_a_value_survives_messagepack(value: Any) -> None:
    assert exactly_same(decode(encode(value)), value)


@given(values)
def test_a_value_survives_json(value: Any) -> None:
    assert exactly_same(from_json(to_json(value)), value)
    assert exactly_same(from_json(to_json(value).decode()), value)


@pytest.mark.random
def test_many_values_survive_both_encodings() -> None:
    rng = random.Random(9)
    for number in range(scaled(50_000)):
        value = random_value(rng)
        assert exactly_same(decode(encode(value)), value), (number, value)
        assert exactly_same(from_json(to_json(value)), value), (number, value)


def test_a_value_at_every_limit_survives_both_encodings() -> None:
    limits = ValueLimits(depth=4, string_bytes=8, key_bytes=2, container_items=2)
    value = freeze({"$$": [[[NEAR, b"12345678"]]], "é": ["12345678", MAX_INT]}, limits)
    assert exactly_same(from_json(to_json(value), limits), value)
    assert exactly_same(decode(encode(value)), value)


@pytest.mark.parametrize("depth", [5, 64, MAX_DEPTH])
def test_bytes_and_links_survive_json_at_the_greatest_depth(depth: int) -> None:
    limits = ValueLimits(depth=depth)
    value: Value = (NEAR, b"x", {"$": NEAR})
    for _ in range(depth - 2):
        value = (value,)
    assert exactly_same(freeze(value, limits), value)
    assert exactly_same(from_json(to_json(value), limits), value)
    assert exactly_same(decode(encode(value)), value)
    with pytest.raises(InvalidValueError, match=f"nested more than {depth} deep"):
        from_json(to_json((value,)), limits)


def test_a_link_is_an_extension_and_bytes_are_native_in_messagepack() -> None:
    data = encode((FAR, b"\x01"))
    payload = msgspec.msgpack.encode(("shop", "space", "cart", []))
    assert data == bytes([0x92, 0xC7, len(payload), LINK_EXT]) + payload + b"\xc4\x01\x01"


MSGPACK_REFUSED = [
    (b"", "these bytes are not a value in MessagePack: Input data was truncated"),
    (
        b"\xc0\xc0",
        "these bytes are not a value in MessagePack: MessagePack data is malformed: trailing characters",
    ),
    (b"\xa1\xff", "these bytes are not a value in MessagePack: 'utf-8' codec can't decode byte 0xff"),
    (b"\x91" * 100_000 + b"\xc0", "these bytes are not a value in MessagePack: maximum recursion depth"),
    (
        b"\x81\x80\xc0",
        "these bytes are not a value in MessagePack: MessagePack data is malformed: map keys must",
    ),
    (
        b"\x81\x01\xc0",
        "the object at the root has the key 1 of type int: keys are strings, so write str(key)",
    ),
    (b"\x81\xa1a\x81\xc0\xc0", "the object at /a has the key None of type NoneType: keys are strings"),
    (b"\x91\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00", "nan at /0 is not a JSON number"),
    (b"\xcf\x00\x20\x00\x00\x00\x00\x00\x00", "the integer at the root is beyond 2**53 - 1"),
    (b"\x81\xa1t\xd6\xff\x00\x00\x00\x00", "a datetime at /t is not a value"),
    (b"\xd4\x05\x00", "MessagePack extension 5 is unknown: only links (1) are used"),
    (b"\xd4\x01\x01", "these bytes are not a value in MessagePack: Expected `array`, got `int`"),
    (b"\x91" * (MAX_DEPTH + 1) + b"\xc0", "nested more than 128 deep"),
]


@pytest.mark.parametrize(("data", "message"), MSGPACK_REFUSED, ids=[str(i) for i in range(len(MSGPACK_REFUSED))])
def test_bytes_that_hold_no_value_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(InvalidValueError) as refused:
        decode(data)
    assert message in str(refused.value)


def test_a_link_with_a_bad_part_is_refused_when_it_is_read() -> None:
    data = msgspec.msgpack.encode(msgspec.msgpack.Ext(LINK_EXT, msgspec.msgpack.encode((None, "team", "x", ()))))
    with pytest.raises(InvalidValueError, match="'team' is not a scope"):
        decode(data)


@pytest.mark.random
def test_damaged_bytes_are_refused_or_are_another_value_but_nothing_else() -> None:
    rng = random.Random(10)
    for number in range(scaled(50_000)):
        data = bytearray(encode(random_value(rng)))
        data[rng.randrange(len(data))] = rng.randrange(256)
        if rng.random() < 0.3:
            del data[rng.randrange(len(data) + 1) :]
        try:
            value = decode(bytes(data))
        except InvalidValueError:
            continue
        assert exactly_same(freeze(value), value), (number, bytes(data))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"\x00\xff", '{"$bytes":"AP8="}'),
        (NEAR, '{"$link":{"scope":"user:ann","id":"cart","path":["lines",0]}}'),
        (FAR, '{"$link":{"space":"shop","scope":"space","id":"cart","path":[]}}'),
        ({"$bytes": "AP8="}, '{"$$bytes":"AP8="}'),
        ({"$": 1, "$$": 2, "a$": 3}, '{"$$":1,"$$$":2,"a$":3}'),
        ({"$link": {"$x": b""}}, '{"$$link":{"$$x":{"$bytes":""}}}'),
        ("$bytes", '"$bytes"'),
        ((1, 1.0, None, True), "[1,1.0,null,true]"),
    ],
)
def test_the_json_form_is_as_documented(value: Value, text: str) -> None:
    assert to_json(value) == text.encode()
    assert exactly_same(from_json(text), value)
    assert exactly_same(from_json_form(json.loads(text)), value)
    assert json_form(value) == json.loads(text)


LINK_ADVICE = 'write {"scope": ..., "id": ..., "path": [...]} and, for another space, "space"'

JSON_REFUSED = [
    ("[9007199254740992]", "the integer at /0 is beyond 2**53 - 1 and would lose digits as a JSON number: "
     "store it as a string"),
    ('{"a":{"$date":1}}', "at /a: the key '$date' is not known: write '$$date' for a key of your own"),
    ('{"$":1}', "at the root: the key '$' is not known: write '$$' for a key of your own"),
    ('{"$bytes":"AA==","x":1}', "at the root: $bytes has other keys beside it: "
     "write '$$bytes' if it is a key of your own"),
    ('{"x":1,"$link":{}}', "at the root: $link has other keys beside it: "
     "write '$$link' if it is a key of your own"),
    ('[{"$bytes":1}]', "at /0: $bytes holds 1: write padded standard base64"),
    ('{"$bytes":"AA"}', "at the root: $bytes holds 'AA': write padded standard base64"),
    ('{"$bytes":"A-=="}', "at the root: $bytes holds 'A-==': write padded standard base64"),
    ('{"$bytes":"AB=="}', "at the root: $bytes holds 'AB==': write padded standard base64"),
    ('{"$bytes":"é==="}', "at the root: $bytes holds 'é===': write padded standard base64"),
    ('{"$link":"x"}', f"at the root: $link holds 'x': {LINK_ADVICE}"),
    ('{"$link":{"id":"x","path":[]}}', f"at the root: $link holds {{'id': 'x', 'path': []}}: {LINK_ADVICE}"),
    ('{"$link":{"id":"x","scope":"space","path":[],"y":1}}', "at the root: $link holds "
     f"{{'id': 'x', 'scope': 'space', 'path': [], 'y': 1}}: {LINK_ADVICE}"),
    ('{"$link":{"space":null,"id":"x","scope":"space","path":[]}}',
     "at the root: $link has a null space: leave it out for the same space"),
    ('{"a":{"$link":{"id":"","scope":"space","path":[]}}}',
     "at /a: $link cannot be made: document id '' is empty: use 1 to 256 characters"),
    ('{"$link":{"id":"x","scope":"space","path":"x"}}',
     "at the root: $link cannot be made: a path is 'x': "
     "write a tuple of keys and indexes, like ('cards', 3)"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), JSON_REFUSED)
def test_json_that_holds_no_value_is_refused(text: str | bytes, message: str) -> None:
    with pytest.raises(InvalidValueError) as refused:
        from_json(text)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    "text", ["", "{", "[1] x", "NaN", "-Infinity", "01", "'a'", '"\ud800"', b'"\xff"', '["\\ud800"]']
)
def test_text_that_is_no_json_is_refused(text: str | bytes) -> None:
    with pytest.raises(InvalidValueError, match=r"^this is not JSON: ."):
        from_json(text)


@pytest.mark.parametrize("levels", [65, 300, 100_000])
def test_deep_json_is_refused_without_a_recursion_error(levels: int) -> None:
    with pytest.raises(InvalidValueError, match=r"nested more than 64 deep|maximum recursion depth"):
        from_json("[" * levels + "]" * levels)


def test_data_of_another_parser_is_checked_like_any_value() -> None:
    with pytest.raises(InvalidValueError, match="the object at the root has the key 1 of type int"):
        from_json_form({1: 2})
    cycle: list[object] = []
    cycle.append(cycle)
    with pytest.raises(InvalidValueError, match="contains itself"):
        from_json_form(cycle)


class Frame(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A record as the protocol will have them."""

    seq: int
    patches: tuple[Patch, ...]
    value: Value
    target: Link
    raw: bytes = b""


FRAME = Frame(
    seq=1,
    patches=(add(("a", "$x"), {"$k": NEAR, "b": b"\x00", "t": (1, (2.0,))}), append(("l",), [FAR], 3)),
    value={"$bytes": (NEAR,)},
    target=FAR,
    raw=b"\xff",
)


def test_a_record_with_values_and_links_survives_messagepack() -> None:
    data = record_encoder().encode(FRAME)
    frame = record_decoder(Frame).decode(data)
    assert frame.target == FAR
    assert frame.raw == b"\xff"
    assert tuple(validate_patch(patch) for patch in frame.patches) == FRAME.patches
    assert exactly_same(freeze(frame.value), FRAME.value)
    assert data == msgspec.msgpack.Encoder(enc_hook=enc_hook).encode(FRAME)
    assert msgspec.msgpack.Decoder(Frame, ext_hook=ext_hook).decode(data) == frame


def test_an_object_that_is_no_value_is_not_encoded() -> None:
    with pytest.raises(NotImplementedError, match="object is not a type of value"):
        encode(object())  # type: ignore[arg-type]
