"""Values, strictly: 1, 1.0 and True are three.

The forms of constants and containers, and of any other object by its pickled content. Functions, classes and modules
are references or versions.

A mutable object counts with the content that it has when it is looked at. A dict, a list or a set of values has the
content that the start of the program gave it, and a change of the program that changes it shows on the next start. An
object with a state outside the program (a file, a socket) cannot be pickled and has no fingerprint. The order of a dict
counts, because an iteration shows it; that of a set does not.
"""

from __future__ import annotations

import copyreg
import enum
import struct
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, ForwardRef, NewType

from headwater.pieces.fingerprints.form import EMPTY, LIMITS, Form, FormWriter, Unfingerprintable, atom

__all__ = ["FormOf", "container_form", "pickled_form", "scalar_form"]

_TYPE_ALIAS: Final[Any] = getattr(typing, "TypeAliasType", None)  # Python 3.12 has it.

_NAMES_OF_TYPES: Final = (typing.TypeVar, typing.ParamSpec)

FormOf = Callable[[object, int], Form]


def _integer(value: int) -> Form:
    return atom("int", value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))


def _float(value: float) -> Form:
    return atom("float", struct.pack(">d", value))


def _complex(value: complex) -> Form:
    return atom("complex", struct.pack(">dd", value.real, value.imag))


_SCALARS: Final[Mapping[type, Callable[[Any], Form]]] = {
    type(None): lambda _: EMPTY,
    bool: lambda value: atom("bool", b"1" if value else b"0"),
    int: _integer,
    float: _float,
    complex: _complex,
    str: lambda value: atom("str", value),
    bytes: lambda value: atom("bytes", value),
    bytearray: lambda value: atom("bytearray", bytes(value)),
    type(...): lambda _: atom("ellipsis"),
    type(NotImplemented): lambda _: atom("not implemented"),
}


def scalar_form(value: object) -> Form | None:
    """The form of a constant that contains nothing."""
    make = _SCALARS.get(type(value))
    return None if make is None else make(value)


def container_form(value: Any, level: int, form_of: FormOf) -> Form | None:
    """The form of a container of exactly one of Python's own types."""
    kind = type(value)
    if kind not in (tuple, list, dict, set, frozenset, types.MappingProxyType):
        return None
    if len(value) > LIMITS.items:
        raise Unfingerprintable(f"has more than {LIMITS.items:,} items")
    if isinstance(value, (set, frozenset)):
        return _set_form(kind.__name__, value, level, form_of)
    writer = FormWriter(kind.__name__)
    if isinstance(value, (dict, types.MappingProxyType)):
        for key, item in value.items():
            _put(writer, key, "[key]", level, form_of)
            _put(writer, item, _element_step(key), level, form_of)
    else:
        for index, item in enumerate(value):
            _put(writer, item, f"[{index}]", level, form_of)
    return writer.form()


def _element_step(key: object) -> str:
    """How the way through a mapping is written. Only a short text or number is shown: a key may be anything."""
    text = repr(key) if type(key) in (str, int, bool, type(None)) else f"<{type(key).__name__}>"
    return f"[{text if len(text) <= 40 else text[:37] + '...'}]"


def _put(writer: FormWriter, item: object, step: str, level: int, form_of: FormOf) -> None:
    try:
        writer.put(form_of(item, level + 1), step)
    except Unfingerprintable as problem:
        problem.steps.append(step)
        raise


def _set_form(kind: str, value: Iterable[object], level: int, form_of: FormOf) -> Form:
    forms: dict[tuple[bytes, tuple[str, ...]], Form] = {}
    for item in value:
        form = form_of(item, level + 1)
        key = (form.token, tuple(_name_of(referred) for _, referred in form.refs))
        if key in forms:
            raise Unfingerprintable(f"is a set of two things called {key[1]}, whose order is not known")
        forms[key] = form
    writer = FormWriter(kind)
    for key in sorted(forms):
        writer.put(forms[key], "[element]")
    return writer.form()


def _name_of(referred: object) -> str:
    named = referred if isinstance(referred, (type, types.FunctionType, types.ModuleType)) else type(referred)
    return str(getattr(named, "__qualname__", getattr(named, "__name__", "")))


def pickled_form(value: object, level: int, form_of: FormOf) -> Form:
    """Return the form of any other object, from its pickled content."""
    writer = FormWriter("object")
    if isinstance(value, enum.Enum):
        _put(writer, type(value), "", level, form_of)
        _put(writer, (value._name_, value._value_), "", level, form_of)
        return writer.form()
    if isinstance(value, NewType):
        _put(writer, value.__supertype__, "", level, form_of)
        writer.text(value.__name__)
        return writer.form()
    if _TYPE_ALIAS is not None and isinstance(value, _TYPE_ALIAS):
        _put(writer, value.__value__, "", level, form_of)
        return writer.form()
    if isinstance(value, ForwardRef):
        return atom("forward", value.__forward_arg__)
    reduced = _reduced(value)
    if isinstance(reduced, str):
        _check_name(value, level, form_of)
        _put(writer, type(value), "", level, form_of)
        writer.text(reduced)
        return writer.form()
    make, arguments, *rest = reduced
    state, items, entries = (*rest, None, None, None)[:3]
    _put(writer, make, "", level, form_of)
    _put(writer, arguments, "", level, form_of)
    _put_state(writer, state, level, form_of)
    _put(writer, None if items is None else list(items), "", level, form_of)
    _put(writer, None if entries is None else dict(entries), "", level, form_of)
    return writer.form()


def _check_name(value: Any, level: int, form_of: FormOf) -> None:
    """Refuse an object that is known by a name of the application only, such as a compiled function: no change would
    show.
    """
    if not callable(value) or isinstance(value, _NAMES_OF_TYPES) or form_of(type(value), level).refs:
        return
    home = sys.modules.get(getattr(value, "__module__", None) or "builtins")
    if home is not None and form_of(home, level).refs:
        raise Unfingerprintable("is compiled code without a version", f" -> <{type(value).__name__}>")


def _put_state(writer: FormWriter, state: object, level: int, form_of: FormOf) -> None:
    """Attributes count by name: the order in which a constructor sets them does not show."""
    if isinstance(state, tuple) and len(state) == 2 and all(part is None or type(part) is dict for part in state):
        for part in state:
            _put_state(writer, part, level, form_of)
    elif type(state) is dict and all(type(name) is str for name in state):
        writer.text(f"{len(state)} attributes")
        for name in sorted(state):
            writer.text(name)
            _put(writer, state[name], f".{name}", level, form_of)
    else:
        _put(writer, state, "", level, form_of)


def _reduced(value: object) -> str | tuple[Any, ...]:
    reducer = copyreg.dispatch_table.get(type(value))
    try:
        reduced = value.__reduce_ex__(2) if reducer is None else reducer(value)
    except Exception as error:  # Any class may define it, and it may do anything.
        raise Unfingerprintable(
            f"has a state that cannot be compared ({type(error).__name__}: {error})", f" -> <{type(value).__name__}>"
        ) from None
    if isinstance(reduced, str) or (isinstance(reduced, tuple) and 2 <= len(reduced) <= 6):
        return reduced
    raise Unfingerprintable("is pickled in a way of its own", f" -> <{type(value).__name__}>")
