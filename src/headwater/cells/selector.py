"""Where `at(lambda card: card.title)` leads.

Owns the recorder that such a function runs on, and the memory of functions that were run already. Never reads
data: a selection is a path and a codec. A function may only name fields and keys; whatever else it does raises
and says so. Invariant: a selection is remembered only for code that can name nothing but its parameter and
constants, so that the same code always means the same place.
"""

from __future__ import annotations

import dis
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any, Final, NamedTuple, NoReturn

from headwater.cells.codec_base import CELL_LIMITS, Mismatch, TypeCodec
from headwater.cells.containers import JsonCodec, MappingCodec
from headwater.cells.records import RecordCodec
from headwater.cells.unions import UnionCodec
from headwater.data.path import Path
from headwater.data.text import shown
from headwater.errors import AuthoringError

__all__ = ["PathSelector", "Selection", "step"]

_ALLOWED: Final = "at() takes a function that only names fields and keys, like at(lambda card: card.title)"
_READS_MORE: Final = ("GLOBAL", "NAME", "DEREF", "CLASSDEREF", "CLOSURE", "CALL", "IMPORT", "YIELD")


class Selection(NamedTuple):
    """A place below a handle: the steps to it, and how values there are stored."""

    path: Path
    codec: TypeCodec[Any]


class PathSelector:
    """Runs functions on a recorder and remembers where they led. One per runtime; it is not thread-safe.

    `most` bounds the functions that it remembers.
    """

    __slots__ = ("_most", "_remembered")

    def __init__(self, most: int = CELL_LIMITS.remembered_selectors) -> None:
        self._most = most
        # By identity of code and codec, because a code object's own hash looks at all of it. The entry keeps both
        # alive, so that an identity is never that of something else.
        self._remembered: dict[tuple[int, int], tuple[CodeType, TypeCodec[Any], Selection]] = {}

    def select(self, codec: TypeCodec[Any], fn: Callable[[Any], object]) -> Selection:
        """Where `fn` leads from a value of the codec's type. AuthoringError where it does more than lead."""
        if type(fn) is FunctionType:
            found = self._remembered.get((id(fn.__code__), id(codec)))
            if found is not None:
                return found[2]
        selection = _record(codec, fn)
        if type(fn) is FunctionType and _names_only_its_parameter(fn.__code__):
            if len(self._remembered) >= self._most:
                self._remembered.clear()
            self._remembered[id(fn.__code__), id(codec)] = (fn.__code__, codec, selection)
        return selection


def step(codec: TypeCodec[Any], key: object) -> Selection:
    """Where `key(k)` leads. AuthoringError where there are no keys, or this cannot be one."""
    for member in _members(codec):
        if isinstance(member, MappingCodec | JsonCodec):
            try:
                name = member.keys.step(key)
            except Mismatch as mismatch:
                advice = f": {mismatch.advice}" if mismatch.advice else ""
                raise AuthoringError(f"{shown(key)} is not a valid key here: {mismatch.problem}{advice}") from None
            return Selection((name,), member if isinstance(member, JsonCodec) else member.element)
    raise AuthoringError(f"{codec.expected} has no keys: {_instead(codec)}")


def _names_only_its_parameter(code: CodeType) -> bool:
    if code.co_freevars or code.co_argcount != 1 or code.co_kwonlyargcount:
        return False
    return not any(part in each.opname for each in dis.get_instructions(code) for part in _READS_MORE)


def _record(codec: TypeCodec[Any], fn: Callable[[Any], object]) -> Selection:
    named = fn(PathRecorder((), codec))
    if type(named) is not PathRecorder:
        raise AuthoringError(f"the function returned {shown(named)}, which names no field or key: {_ALLOWED}")
    return _selection(named)


def _members(codec: TypeCodec[Any]) -> tuple[TypeCodec[Any], ...]:
    """Return the types that a name may belong to: in `Address | None` it belongs to the Address."""
    return codec.members if isinstance(codec, UnionCodec) else (codec,)


def _instead(codec: TypeCodec[Any]) -> str:
    records = [member for member in _members(codec) if isinstance(member, RecordCodec)]
    if records:
        names = [field.name for record in records for field in record.fields]
        return f"name a field, one of {', '.join(dict.fromkeys(names)) or 'none'}"
    if any(isinstance(member, MappingCodec | JsonCodec) for member in _members(codec)):
        return "name a key, like ['k']"
    if tuple in codec.kinds:
        return "an element cannot be named by its index; declare a Mapping by id to edit parts"
    return "it has no parts"


def _field(codec: TypeCodec[Any], name: str) -> Selection:
    found = [
        record.by_name[name] for record in _members(codec) if isinstance(record, RecordCodec) and name in record.by_name
    ]
    if not found:
        raise AuthoringError(f"{codec.expected} has no field {name!r}: {_instead(codec)}")
    if any(field.stored != found[0].stored or field.codec is not found[0].codec for field in found):
        raise AuthoringError(
            f"the field {name!r} is not the same in all classes of {codec.expected}: "
            f"give it one type, or replace the whole value with set()"
        )
    return Selection((found[0].stored,), found[0].codec)


class PathRecorder:
    """Stands for a value while a selecting function runs. Every name is a field, so it has none of its own."""

    __slots__ = ("_selection",)

    def __init__(self, path: Path, codec: TypeCodec[Any]) -> None:
        object.__setattr__(self, "_selection", Selection(path, codec))

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            return object.__getattribute__(self, name)
        here = _selection(self)
        path, codec = _field(here.codec, name)
        return PathRecorder(here.path + path, codec)

    def __getitem__(self, key: object) -> Any:
        here = _selection(self)
        path, codec = step(here.codec, key)
        return PathRecorder(here.path + path, codec)


# Past `__getattribute__`, which would take the name for a field.
_selection: Final[Callable[[PathRecorder], Selection]] = vars(PathRecorder)["_selection"].__get__


def _refusing(operation: str) -> Callable[..., NoReturn]:
    def refuse(*_: object) -> NoReturn:
        raise AuthoringError(f"a selecting function used {operation}: {_ALLOWED}")

    return refuse


_REFUSED: Final = {
    "a call": ("call",),
    "truth (if, and, or, not)": ("bool",),
    "iteration or unpacking": ("iter", "next", "reversed", "enter"),
    "len()": ("len", "length_hint"),
    "in": ("contains",),
    "a comparison": ("eq", "ne", "lt", "le", "gt", "ge", "hash"),
    "formatting": ("str", "repr", "format", "bytes"),
    "an assignment": ("setattr", "delattr", "setitem", "delitem"),
    "a conversion to a number": ("int", "float", "complex", "index", "round", "trunc", "floor", "ceil"),
    "arithmetic": (
        *("neg", "pos", "abs", "invert"),
        *(
            side + name
            for side in ("", "r", "i")
            for name in (
                *("add", "sub", "mul", "matmul", "truediv", "floordiv"),
                *("mod", "divmod", "pow", "lshift", "rshift", "and", "or", "xor"),
            )
        ),
    ),
}
"""Operations that a recorder refuses, by the name that an author would use."""

for _operation, _names in _REFUSED.items():
    for _name in _names:
        setattr(PathRecorder, f"__{_name}__", _refusing(_operation))
