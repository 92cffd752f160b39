"""The base of all codecs, and the mismatch of a value and a type.

`TypeCodec` is the base of every codec; `Mismatch` travels from the culprit outwards and becomes the author's error
once, with the whole path; `Memo` keeps the last version of one place. Types are read by `codec.codec_for`.

Invariants. A codec is immutable once it is made and shared by every cell of its type. The results of `encode` and
`merge` are frozen (`data.value`): exact types, nothing shared that could be mutated. A decoded value is never mutated
either, which is why `Memo` may hand out parts of the version before: raw values are shared along unchanged paths, so
the same raw object means the same value. A memo holds one version, so the objects whose identity it compares are alive,
and nothing accumulates.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, Final, Generic, NoReturn, TypeVar

import msgspec

from headwater.cells.handle_base import NotAValue
from headwater.data.limits import DEFAULT_VALUE_LIMITS
from headwater.data.patch_kinds import noun
from headwater.data.path import Path, path_text
from headwater.data.text import shown
from headwater.data.value import ABSENT, Absent, MaybeValue, Value, equal
from headwater.errors import InvalidValueError

__all__ = ["CELL_LIMITS", "CellLimits", "Lazy", "Memo", "Mismatch", "TypeCodec", "is_known_to_msgspec", "misfit"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class CellLimits:
    """Bounds on handles and codecs. They are fixed. Bounds on values are `data.limits.ValueLimits`."""

    link_hops: int = 32
    """Links on the way to one value."""

    kept_parts: int = 4_096
    """Handles of parts that a handle keeps, so that their decoded values are reused."""

    known_types: int = 4_096
    """Types whose codecs are kept. A program has hundreds; one that makes classes without end must not leak."""

    spare_entries: int = 16
    """Cached entries of a Mapping beyond twice the stored ones, before the cache is trimmed."""

    known_places: int = 16
    """Places of one value that are told apart. Of a larger value all of it counts."""

    remembered_selectors: int = 4_096
    """Functions of `at` that a runtime remembers. A program has as many as it has lines with `at`."""


CELL_LIMITS: Final = CellLimits()

_MAX_LEVEL: Final = DEFAULT_VALUE_LIMITS.depth
_MAX_ITEMS: Final = DEFAULT_VALUE_LIMITS.container_items


class Mismatch(Exception):
    """A value that does not fit; each container adds its step on the way out. Never leaves this package."""

    def __init__(self, problem: str, advice: str = "", *, stored_advice: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.advice = advice
        self.stored_advice = stored_advice  # for a value that was read, where it differs
        self.steps: list[str | int] = []

    def error_of_write(self, at: Path) -> InvalidValueError:
        """The error for a value that was to be written."""
        path = at + tuple(reversed(self.steps))
        advice = self.advice or "write a value of the declared type"
        return InvalidValueError(f"at {path_text(path) or 'the root'}: {self.problem}: {advice}", path=path)

    def error_of_read(self, at: Path) -> InvalidValueError:
        """The error for something that was read and is not of the type it is read as."""
        path = at + tuple(reversed(self.steps))
        advice = self.stored_advice or self.advice or "write it anew, or read it as headwater.Json"
        return InvalidValueError(f"stored at {path_text(path) or 'the root'}: {self.problem}: {advice}", path=path)


def misfit(expected: str, found: object, advice: str = "") -> NoReturn:
    """Refuse `found` where `expected` was declared."""
    if isinstance(found, NotAValue):
        advice = "it is a handle, not a value, so write .get()"
    elif inspect.iscoroutine(found):
        found.close()  # It is never awaited: this error says so, and only once.
        advice = "nothing here awaits, so await it before, or call a plain function"
    raise Mismatch(f"expected {expected}, found {shown(found)} ({type(found).__name__})", advice)


class Lazy:
    """Base of objects that stand for a value without being one: views. `__whole__` reads all of it."""

    __slots__ = ()

    def __whole__(self) -> Any:
        """The value it stands for."""
        raise NotImplementedError


def is_known_to_msgspec(type_: Any) -> bool:
    """Whether msgspec can decode the type. It refuses some unions that this package can tell apart."""
    try:
        msgspec.convert(None, type_)
    except msgspec.ValidationError:
        return True
    except TypeError:
        return False
    return True


class TypeCodec(Generic[T]):
    """How values of one type are stored. `encode`, `decode` and `merge` are for handles; the rest for codecs."""

    __slots__ = ("exact", "expected", "hashable", "kinds", "native", "plain")

    def __init__(
        self,
        expected: str,
        *kinds: type,
        plain: bool = False,
        exact: type | None = None,
        native: bool = False,
        hashable: bool = True,
    ) -> None:
        self.expected = expected  # the type as an author writes it, for messages
        self.kinds = frozenset(kinds)  # the raw types it is stored as; a union tells its members apart by them
        self.plain = plain  # the stored form is the value: a handle may return it as it is
        self.exact = exact  # a raw object of exactly this type is its own value, without another look
        self.native = native  # msgspec decodes it alike, and its size does not depend on the data
        self.hashable = hashable  # its values can be in a frozenset

    # ---- for handles -----------------------------------------------------------------------------------

    def encode(self, value: T, at: Path = ()) -> Value:
        """`value` as it is stored, or InvalidValueError that names the culprit. `at` is where it will be."""
        try:
            return self.enter(value, len(at))
        except Mismatch as mismatch:
            raise mismatch.error_of_write(at) from None

    def decode(self, raw: Value, at: Path = ()) -> T:
        """Return the value of a stored form. Use a `Memo` where versions follow one another."""
        try:
            return self.leave(raw)
        except Mismatch as mismatch:
            raise mismatch.error_of_read(at) from None

    def merge(self, old: MaybeValue, new: T, at: Path = ()) -> Value:
        """Return `new` as it is stored, with the fields of `old` that this version of a Model does not know."""
        try:
            return self.join(old, new, ABSENT, len(at))
        except Mismatch as mismatch:
            raise mismatch.error_of_write(at) from None

    def memo(self) -> Memo[T]:
        """A memory of one place's last version, for its handle."""
        return Memo(self)

    # ---- for codecs ------------------------------------------------------------------------------------

    def enter(self, value: object, level: int) -> Value:
        """The raw form of `value`, `level` containers deep. Raises Mismatch."""
        raise NotImplementedError

    def leave(self, raw: Value) -> T:
        """The value of a raw form. Raises Mismatch."""
        raise NotImplementedError

    def accepts(self, value: object) -> bool:
        """Whether a union should give the value to this member. A look at its type, not inside it."""
        raise NotImplementedError

    def schema(self, within: tuple[type, ...] = ()) -> dict[str, Any]:
        """Return the JSON Schema of the JSON form of its values. `within` has the records around it."""
        raise NotImplementedError

    def leave_changed(self, old: Value, known: Any, raw: Value) -> T:
        """`leave(raw)`, where `old` was decoded to `known`: shared parts are taken from it."""
        return self.leave(raw)

    def join(self, old: MaybeValue, new: object, known: object, level: int) -> Value:
        """`enter(new)`, keeping the unknown parts of `old`; `old` was decoded to `known`, or `known` is ABSENT."""
        raw = self.enter(new, level)
        return old if not isinstance(old, Absent) and equal(old, raw) else raw

    def misfit(self, found: object, advice: str = "") -> NoReturn:
        misfit(self.expected, found, advice)

    def misfit_stored(self, raw: Value, advice: str = "") -> NoReturn:
        raise Mismatch(f"expected {self.expected}, found {noun(raw)}, {shown(raw)}", advice)

    def room(self, level: int, items: int) -> None:
        """Refuse a container that is too deep or too long, before it is walked."""
        if level >= _MAX_LEVEL:
            raise Mismatch(
                f"{self.expected} is nested more than {_MAX_LEVEL} deep",
                "keep deep parts in cells of their own and link to them",
            )
        if items > _MAX_ITEMS:
            raise Mismatch(
                f"{self.expected} has {items} items, the limit is {_MAX_ITEMS}", "split it over several cells"
            )

    def __repr__(self) -> str:
        return f"<codec of {self.expected}>"


class Memo(Generic[T]):
    """The last version of one place: raw and decoded. The next one is decoded only where it differs."""

    __slots__ = ("_codec", "_raw", "_value")

    def __init__(self, codec: TypeCodec[T]) -> None:
        self._codec = codec
        self._raw: MaybeValue = ABSENT
        self._value: Any = ABSENT

    def decode(self, raw: Value, at: Path = ()) -> T:
        """The value of `raw`, as `TypeCodec.decode`; the same object for the same raw object."""
        if raw is self._raw:
            return self._value  # type: ignore[no-any-return]  # ABSENT is no raw value, so it was decoded.
        return self._decode(raw, at)

    def _decode(self, raw: Value, at: Path) -> T:
        try:
            if isinstance(self._raw, Absent):
                value = self._codec.leave(raw)
            else:
                value = self._codec.leave_changed(self._raw, self._value, raw)
        except Mismatch as mismatch:
            raise mismatch.error_of_read(at) from None
        self._raw = raw
        self._value = value
        return value

    def merge(self, old: MaybeValue, new: T, at: Path = ()) -> Value:
        """As `TypeCodec.merge`; parts of `new` that came out of this memo are not encoded again."""
        try:
            return self._codec.join(old, new, self._value if old is self._raw else ABSENT, len(at))
        except Mismatch as mismatch:
            raise mismatch.error_of_write(at) from None

    def forget(self) -> None:
        """Let the version go."""
        self._raw = self._value = ABSENT
