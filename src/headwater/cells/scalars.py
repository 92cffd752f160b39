"""Codecs of values without parts.

Numbers, text, bytes, links, enums and literals are stored as they are. Dates, durations, decimals and UUIDs are stored
as text (`TextCodec`). Invariant: the stored form of equal values is equal, so that writing an unchanged value writes
nothing. A Decimal is the exception: 1.0 and 1.00 differ in precision, and both are read back as they were written.

Dates are ISO 8601 text, because an integer of microseconds ends at 2**53 - 1, in the year 2255, and `datetime.max` has
to fit. A datetime is stored in UTC with six digits of microseconds: one instant has one form, and text order is time
order. Its offset is not kept. A timedelta is an ISO duration for the same reason.
"""

from __future__ import annotations

import enum
import inspect
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final, TypeVar

import msgspec

from headwater.cells.codec_base import Mismatch, TypeCodec, misfit
from headwater.cells.handle_base import NotAValue
from headwater.data.address import Link
from headwater.data.limits import DEFAULT_VALUE_LIMITS
from headwater.data.value import MAX_INT, Value, freeze
from headwater.errors import InvalidValueError

__all__ = [
    "BoolCodec",
    "BytesCodec",
    "ConstrainedCodec",
    "EnumCodec",
    "FloatCodec",
    "IntCodec",
    "LinkCodec",
    "LiteralCodec",
    "NoneCodec",
    "StrCodec",
    "TextCodec",
    "check_key",
    "date_codec",
    "datetime_codec",
    "decimal_codec",
    "frozen",
    "timedelta_codec",
    "uuid_codec",
]


_STRING_BYTES: Final = DEFAULT_VALUE_LIMITS.string_bytes
_KEY_BYTES: Final = DEFAULT_VALUE_LIMITS.key_bytes


def frozen(value: object) -> Value:
    """Freeze `value`, for inputs that the short checks below do not decide."""
    if isinstance(value, NotAValue) or inspect.iscoroutine(value):
        misfit("a value", value)
    try:
        return freeze(value)
    except InvalidValueError as error:
        raise Mismatch(str(error).replace(" at the root", ""), "store it in another form") from None


def check_key(step: str) -> str:
    """`step` when an object can have it as a key."""
    if not (step.isascii() and len(step) <= _KEY_BYTES):
        frozen({step: None})
    return step


class StrCodec(TypeCodec[str]):
    """Text."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("str", str, exact=str, plain=True, native=True)

    def enter(self, value: object, level: int) -> Value:
        if type(value) is str and value.isascii() and len(value) <= _STRING_BYTES:
            return value
        return frozen(value) if isinstance(value, str) else self.misfit(value)

    def leave(self, raw: Value) -> str:
        return raw if type(raw) is str else self.misfit_stored(raw)

    def schema(self, within: tuple[type, ...] = ()) -> dict[str, Any]:
        return {"type": "string"}

    def accepts(self, value: object) -> bool:
        return isinstance(value, str)


class IntCodec(TypeCodec[int]):
    """Integers up to 2**53 - 1. A stored 1.0 is 1: they are one number."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("int", int, float, exact=int, plain=True, native=True)

    def enter(self, value: object, level: int) -> Value:
        if type(value) is int and -MAX_INT <= value <= MAX_INT:
            return value
        if isinstance(value, int) and type(value) is not bool:
            return frozen(value)
        return self.misfit(value, "write int(...) of it" if type(value) in (bool, float) else "")

    def leave(self, raw: Value) -> int:
        if type(raw) is int:
            return raw
        return int(raw) if type(raw) is float and raw.is_integer() else self.misfit_stored(raw)

    def schema(self, within: tuple[type, ...] = ()) -> dict[str, Any]:
        return {"type": "integer"}

    def accepts(self, value: object) -> bool:
        return isinstance(value, int) and type(value) is not bool


class FloatCodec(TypeCodec[float]):
    """Finite numbers. An int is a float, as it is for type checkers."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("float", int, float, exact=float, plain=True, native=True)

    def enter(self, value: object, level: int) -> Value:
        if type(value) is float and value - value == 0:
            return value
        if isinstance(value, float | int) and type(value) is not bool:
            return frozen(value)
        return self.misfit(value, "write float(...) of it" if isinstance(value, bool | Decimal) else "")

    def leave(self, raw: Value) -> float:
        if type(raw) is float:
            return raw
        return float(raw) if type(raw) is int else self.misfit_stored(raw)

    def schema(self, within: tuple[type, ...] = ()) -> dict[str, Any]:
        return {"type": "number"}

    def accepts(self, value: object) -> bool:
        return isinstance(value, float | int) and type(value) is not bool


class ExactCodec(TypeCodec[Any]):
    """A type that is stored as it is and has no other forms: bool, None, bytes, Link."""

    __slots__ = ("_type",)

    def __init__(self, expected: str, type_: type, *, native: bool) -> None:
        super().__init__(expected, type_, exact=type_, plain=True, native=native)
        self._type = type_

    def enter(self, value: object, level: int) -> Value:
        return value if type(value) is self._type else self.misfit(value)  # type: ignore[return-value]

    def leave(self, raw: Value) -> Any:
        return raw if type(raw) is self._type else self.misfit_stored(raw)

    def accepts(self, value: object) -> bool:
        return isinstance(value, self._type)


class BoolCodec(ExactCodec):
    """True and False, which are not 1 and 0."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("bool", bool, native=True)

    def schema(self, within: tuple[type, ...] = ()) -> dict[str, Any]:
        return {"type": "boolean"}


class NoneCodec(ExactCodec):
    """None."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("None", type(None), native=True)

    def schema(self, within: tuple[type, ...] = ()) -> dict[str, Any]:
        return {"type": "null"}


class LinkCodec(ExactCodec):
    """A link stays a link; following it is the handle's business."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("Link", Link, native=False)

    def schema(self, within: tuple[type, ...] = ()) -> dict[str, Any]:
        return {"type": "object", "properties": {"$link": {"type": "object"}}, "required": ["$link"]}


class BytesCodec(ExactCodec):
    """Bytes. Not native: msgspec would take text for base64."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("bytes", bytes, native=False)

    def schema(self, within: tuple[type, ...] = ()) -> dict[str, Any]:
        text = {"type": "string", "contentEncoding": "base64"}
        return {"type": "object", "properties": {"$bytes": text}, "required": ["$bytes"]}

    def enter(self, value: object, level: int) -> Value:
        if isinstance(value, bytes):
            return frozen(value)
        return self.misfit(value, "write bytes(...) of it" if isinstance(value, bytearray | memoryview) else "")


class LiteralCodec(TypeCodec[Any]):
    """One of a few texts, integers, booleans or None, told apart with their types: True is not 1."""

    __slots__ = ("values",)

    def __init__(self, values: tuple[str | int | None, ...]) -> None:
        written = ", ".join(repr(value) for value in values)
        # msgspec knows no literal booleans.
        kinds = {type(value) for value in values}
        super().__init__(f"Literal[{written}]", *kinds, plain=True, native=bool not in kinds)
        self.values = frozenset((type(value), value) for value in values)

    def enter(self, value: object, level: int) -> Value:
        return value if self.accepts(value) else self.misfit(value)  # type: ignore[return-value]

    def leave(self, raw: Value) -> Any:
        if self.accepts(raw):
            return raw
        if type(raw) is float and (int, raw) in self.values:
            return int(raw)
        return self.misfit_stored(raw)

    def schema(self, within: tuple[type, ...] = ()) -> dict[str, Any]:
        return {"enum": sorted([value for _, value in self.values], key=repr)}

    def accepts(self, value: object) -> bool:
        return type(value) in self.kinds and (type(value), value) in self.values


class EnumCodec(TypeCodec[Any]):
    """Members of an enum, stored by value, because the name is the program's and the value is the data's."""

    __slots__ = ("_type",)

    def __init__(self, type_: type[enum.Enum]) -> None:
        # msgspec refuses combined flags, and an enum's own way to find a member that is not listed.
        native = not issubclass(type_, enum.Flag) and "_missing_" not in vars(type_)
        kinds = {str if isinstance(member.value, str) else int for member in type_}
        super().__init__(type_.__name__, *kinds, native=native)
        self._type = type_

    def enter(self, value: object, level: int) -> Value:
        if isinstance(value, self._type):
            return frozen(value.value)
        return self.misfit(value, f"write {self.expected}(...) of it" if isinstance(value, str | int) else "")

    def leave(self, raw: Value) -> Any:
        try:
            if type(raw) is float and raw.is_integer():
                raw = int(raw)
            return self._type(raw) if type(raw) in self.kinds else self.misfit_stored(raw)
        except ValueError:
            return self.misfit_stored(raw, f"add it to {self.expected}, or write it anew")

    def schema(self, within: tuple[type, ...] = ()) -> dict[str, Any]:
        return {"title": self.expected, "enum": [member.value for member in self._type]}

    def accepts(self, value: object) -> bool:
        return isinstance(value, self._type)


class ConstrainedCodec(TypeCodec[Any]):
    """A scalar with msgspec's constraints, `Annotated[int, Meta(ge=0)]`: held where it enters, too."""

    __slots__ = ("_annotated", "_inner")

    def __init__(self, inner: TypeCodec[Any], annotated: Any) -> None:
        super().__init__(inner.expected, *inner.kinds, plain=inner.plain, native=inner.native)
        self._inner = inner
        self._annotated = annotated

    def enter(self, value: object, level: int) -> Value:
        raw = self._inner.enter(value, level)
        self._check(raw)
        return raw

    def leave(self, raw: Value) -> Any:
        value = self._inner.leave(raw)
        self._check(value if self.plain else raw)
        return value

    def schema(self, within: tuple[type, ...] = ()) -> dict[str, Any]:
        return {**msgspec.json.schema(self._annotated), **self._inner.schema(within)}

    def _check(self, raw: object) -> None:
        try:
            msgspec.convert(raw, self._annotated)
        except msgspec.ValidationError as error:
            raise Mismatch(f"{str(error)[0].lower()}{str(error)[1:]}") from None

    def accepts(self, value: object) -> bool:
        return self._inner.accepts(value)


T = TypeVar("T")

_FORMATS: Final = {"datetime": "date-time", "date": "date", "timedelta": "duration", "UUID": "uuid"}
"""Formats of JSON Schema, by the name of the type."""
_DURATION: Final = re.compile(r"(-?)P(\d{1,9})DT(\d{1,5})\.(\d{6})S")


class TextCodec(TypeCodec[T]):
    """A type with one text form: a function there and a function back."""

    __slots__ = ("_back", "_there", "_type")

    def __init__(self, type_: type[T], there: Callable[[T], str], back: Callable[[str], T], *, native: bool) -> None:
        super().__init__(type_.__name__, str, native=native)
        self._type = type_
        self._there = there
        self._back = back

    def enter(self, value: object, level: int) -> Value:
        return self._there(value) if self.accepts(value) else self.misfit(value)  # type: ignore[arg-type]

    def leave(self, raw: Value) -> T:
        if type(raw) is not str:
            return self.misfit_stored(raw)
        try:
            return self._back(raw)
        except (ValueError, ArithmeticError):
            return self.misfit_stored(raw)

    def schema(self, within: tuple[type, ...] = ()) -> dict[str, Any]:
        form = _FORMATS.get(self._type.__name__)
        return {"type": "string"} if form is None else {"type": "string", "format": form}

    def accepts(self, value: object) -> bool:
        # A datetime is a date to Python, and would lose its time.
        return isinstance(value, self._type) and not (self._type is date and isinstance(value, datetime))


def _datetime_text(when: datetime) -> str:
    if when.tzinfo is None or when.utcoffset() is None:
        raise Mismatch(
            f"expected an aware datetime, found {when!r}", "give it a zone, like tzinfo=timezone.utc in datetime(...)"
        )
    try:
        utc = when.astimezone(UTC)
    except OverflowError:
        raise Mismatch(f"{when!r} has no form in UTC", "write datetime.max.replace(tzinfo=timezone.utc)") from None
    return utc.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def _text_datetime(text: str) -> datetime:
    when = datetime.fromisoformat(text)
    if when.tzinfo is None:
        raise ValueError(text)
    return when.astimezone(UTC)


def _duration_text(span: timedelta) -> str:
    sign, span = ("-", -span) if span < timedelta() else ("", span)
    return f"{sign}P{span.days}DT{span.seconds}.{span.microseconds:06d}S"


def _text_duration(text: str) -> timedelta:
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(text)
    sign, days, seconds, micros = found.groups()
    span = timedelta(days=int(days), seconds=int(seconds), microseconds=int(micros))
    return -span if sign else span


def _decimal_text(number: Decimal) -> str:
    if not number.is_finite():
        raise Mismatch(f"expected a finite Decimal, found {number!r}", "store None where there is no number")
    return str(number)


def _text_decimal(text: str) -> Decimal:
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise ValueError(text) from None
    if not number.is_finite():
        raise ValueError(text)
    return number


datetime_codec: Final = TextCodec(datetime, _datetime_text, _text_datetime, native=False)
date_codec: Final = TextCodec(date, date.isoformat, date.fromisoformat, native=True)
timedelta_codec: Final = TextCodec(timedelta, _duration_text, _text_duration, native=False)
decimal_codec: Final = TextCodec(Decimal, _decimal_text, _text_decimal, native=False)


def uuid_codec(type_: type[Any]) -> TextCodec[Any]:
    """The codec of `uuid.UUID`. The class is handed in: its module also draws randomness, which only `clock` does."""
    return TextCodec(type_, str, type_, native=True)
