"""Values as bytes.

There are two encodings of values and records: MessagePack for disk and wire (bytes native, a link is an extension), and
JSON text for people and browsers (`{"$bytes": ...}`, `{"$link": ...}`, a user's key that begins with `$` gets one more
`$`). The canonical form is in `json_form`. Invariants: decode(encode(v)) equals v and so does from_json(to_json(v));
decoded values are frozen; bytes that hold no value are refused with InvalidValueError and nothing else.

A record (a struct or tuple with `Value`, `Patch` or `Link` somewhere inside) is encoded with the same hooks. Its
untyped fields come back as plain lists and dicts: freeze them, or pass patches through `validate_patch`.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

from headwater.data.address import Link
from headwater.data.json_form import DIGEST_NAME, canonical, digest, from_json_form, json_form
from headwater.data.limits import DEFAULT_VALUE_LIMITS, MAX_DEPTH, STORED_VALUE_LIMITS, ValueLimits
from headwater.data.value import MAX_INT, Refusal, Value, freeze
from headwater.errors import InvalidValueError

__all__ = [
    "DIGEST_NAME",
    "LINK_EXT",
    "canonical",
    "decode",
    "digest",
    "enc_hook",
    "encode",
    "ext_hook",
    "from_json",
    "from_json_form",
    "json_form",
    "record_decoder",
    "record_encoder",
    "record_to_json",
    "to_json",
]

LINK_EXT: Final = 1
"""The MessagePack extension code of a link: the array [space, scope, id, path]."""

_T = TypeVar("_T")


def enc_hook(raw: object) -> object:
    """For a MessagePack encoder: writes a link as an extension."""
    if type(raw) is Link:
        payload = msgspec.msgpack.encode((raw.space, raw.scope, raw.id, raw.path))
        return msgspec.msgpack.Ext(LINK_EXT, payload)
    raise NotImplementedError(f"{type(raw).__name__} is not a type of value")


_LINK: Final = msgspec.msgpack.Decoder(tuple[str | None, str, str, tuple[str | int, ...]])


def ext_hook(code: int, data: memoryview) -> object:
    """For a MessagePack decoder: reads a link back."""
    if code != LINK_EXT:
        raise InvalidValueError(f"MessagePack extension {code} is unknown: only links ({LINK_EXT}) are used")
    return Link(*_LINK.decode(data))


_ENCODER: Final = msgspec.msgpack.Encoder(enc_hook=enc_hook)
_DECODER: Final = msgspec.msgpack.Decoder(ext_hook=ext_hook)
_FINISHED: Final = frozenset({str, bytes, bool, type(None), Link})
_JSON: Final = msgspec.json.Decoder()


def encode(value: Value) -> bytes:
    """A frozen value as MessagePack."""
    return _ENCODER.encode(value)


def decode(data: bytes | memoryview) -> Value:
    """The value that `encode` wrote. Its form is checked; its size is not, because it was accepted once."""
    try:
        return _adopt(_DECODER.decode(data), 0)
    except Refusal:
        return freeze(_DECODER.decode(data), STORED_VALUE_LIMITS)  # Raises again, and names the culprit.
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise InvalidValueError(f"these bytes are not a value in MessagePack: {error}") from None


def _adopt(raw: object, level: int) -> Value:
    """Turn a fresh result of the decoder into a value. It has no other owner, and its text was valid UTF-8."""
    if type(raw) is int and -MAX_INT <= raw <= MAX_INT:
        return raw
    if type(raw) is dict and level < MAX_DEPTH:
        for key, item in raw.items():
            if type(key) is not str:
                raise Refusal("key", key)
            if type(item) not in _FINISHED:
                raw[key] = _adopt(item, level + 1)  # Replacing an item does not disturb the iteration.
        return raw
    if type(raw) is list and level < MAX_DEPTH:
        return tuple([item if type(item) in _FINISHED else _adopt(item, level + 1) for item in raw])
    if type(raw) in _FINISHED or (type(raw) is float and raw - raw == 0):
        return raw  # type: ignore[return-value]  # One of the types of _FINISHED, or a finite float.
    raise Refusal("type", raw)


def to_json(value: Value) -> bytes:
    """A frozen value as JSON text, readable again with `from_json`."""
    return msgspec.json.encode(json_form(value))


def from_json(data: bytes | str, limits: ValueLimits = DEFAULT_VALUE_LIMITS) -> Value:
    """The value of a JSON text in which bytes, links and `$` keys are written as `to_json` writes them."""
    try:
        raw = _JSON.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise InvalidValueError(f"this is not JSON: {error}") from None
    return from_json_form(raw, limits)


def record_encoder() -> msgspec.msgpack.Encoder:
    """A MessagePack encoder for records that hold values."""
    return msgspec.msgpack.Encoder(enc_hook=enc_hook)


def record_decoder(kind: type[_T]) -> msgspec.msgpack.Decoder[_T]:
    """A MessagePack decoder for records of `kind` that hold values."""
    return msgspec.msgpack.Decoder(kind, ext_hook=ext_hook)


def record_to_json(record: Any) -> bytes:
    """A record as JSON text, with the values inside it in their JSON form."""
    plain = msgspec.to_builtins(record, builtin_types=(bytes, Link), str_keys=True)
    return msgspec.json.encode(json_form(plain))
