"""Codecs of values that are stored as text: dates, durations, decimals, identifiers.

Owns their text forms. Never looks inside a container. Invariant: the stored form of equal values is equal, so
that writing what is there writes nothing (a Decimal excepted: 1.0 and 1.00 say different things about precision,
and both come back as they were).

Dates are ISO 8601 text, because an integer of microseconds ends at 2**53 - 1, in the year 2255, and
`datetime.max` has to fit. A datetime is stored in UTC with six digits of microseconds: one instant has one form,
and text order is time order. Its offset is not kept. A timedelta is an ISO duration for the same reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final, TypeVar

from headwater.cells.typecodec import Mismatch, TypeCodec
from headwater.data.value import Value

__all__ = ["TextCodec", "date_codec", "datetime_codec", "decimal_codec", "timedelta_codec", "uuid_codec"]

T = TypeVar("T")

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
