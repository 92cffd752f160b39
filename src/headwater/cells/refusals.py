"""The sentences about types that cannot be in a cell.

Owns what is said, and what to write instead. It is only ever on the failing path and never decides what is
allowed beyond naming the usual mistakes. Invariant: every sentence names the type and shows its replacement.
"""

from __future__ import annotations

import collections.abc
import typing
from typing import Any, Final, NoReturn

from headwater.errors import AuthoringError

__all__ = ["cannot_resolve", "refuse", "refuse_container", "refuse_key", "refuse_mutable", "type_text"]

_TUPLES: Final = (list, collections.abc.Sequence, collections.abc.MutableSequence, collections.deque)
_SETS: Final = (set, collections.abc.Set, collections.abc.MutableSet)
_MAPPINGS: Final = (dict, collections.abc.MutableMapping, collections.OrderedDict, collections.defaultdict)
_BARE: Final = {
    tuple: "tuple[str, ...]",
    frozenset: "frozenset[str]",
    collections.abc.Mapping: "Mapping[str, int]",
}


def type_text(type_: Any) -> str:
    """A type as an author writes it."""
    if type_ is None or type_ is type(None):
        return "None"
    if type_ is Ellipsis:
        return "..."
    arguments = typing.get_args(type_)
    origin = typing.get_origin(type_)
    if isinstance(origin, type) and arguments:
        name = " | " if origin.__name__ == "UnionType" else origin.__name__
        parts = [type_text(argument) for argument in arguments]
        return " | ".join(parts) if name == " | " else f"{name}[{', '.join(parts)}]"
    if isinstance(type_, type):
        return type_.__name__
    return str(type_).replace("typing.", "").replace("collections.abc.", "")


def refuse(type_: Any, why: str, instead: str) -> NoReturn:
    """Refuse a type."""
    raise AuthoringError(f"{type_text(type_)} cannot be the type of a cell: {why}. Write {instead}")


def refuse_mutable(type_: Any, instead: str) -> NoReturn:
    """Refuse a record whose instances can change."""
    refuse(type_, "its values can be changed in place, where nobody would notice", instead)


def refuse_key(type_: Any, key: Any) -> NoReturn:
    """Refuse a Mapping by the type of its keys."""
    refuse(type_, f"keys are stored as text, and {type_text(key)} has no one text form", "Mapping[str, ...]")


def refuse_container(type_: Any, cls: Any) -> None:
    """Refuse the types that are almost right, each with what to write instead of it."""
    arguments = [type_text(argument) for argument in typing.get_args(type_)]
    if cls in _TUPLES:
        refuse_mutable(type_, f"tuple[{', '.join(arguments) or 'str'}, ...]")
    if cls in _SETS:
        refuse_mutable(type_, f"frozenset[{', '.join(arguments) or 'str'}]")
    if cls in _MAPPINGS:
        refuse_mutable(type_, f"Mapping[{', '.join(arguments[:2]) or 'str, int'}]")
    if cls is bytearray or cls is memoryview:
        refuse_mutable(type_, "bytes")
    if cls in _BARE:
        refuse(type_, "it does not say what it holds", _BARE[cls])
    if cls is Any or cls is object:
        refuse(type_, "it could be anything", "headwater.Json for data without a type")
    if isinstance(cls, typing.TypeVar):
        refuse(type_, "it stands for another type", "that type, like Box[int]")
    if isinstance(cls, str | typing.ForwardRef):
        refuse(type_, "it is a name that was not looked up", "the type itself")
    if not isinstance(cls, type):
        refuse(type_, "it is no type that can be stored", "a headwater.Model")
    if issubclass(cls, tuple):
        refuse(type_, "it is stored without the names of its fields", f"class {cls.__name__}(headwater.Model)")


def cannot_resolve(cls: type[Any], error: Exception) -> AuthoringError:
    """The error for annotations that name what cannot be found."""
    name = getattr(error, "name", None)
    culprits = [field for field, text in vars(cls).get("__annotations__", {}).items() if name and name in str(text)]
    where = f"{cls.__name__}.{culprits[0]}" if culprits else cls.__name__
    return AuthoringError(
        f"the annotation of {where} cannot be resolved: {str(error)[:200]}. "
        f"Import the name at the top of {cls.__module__}, not under TYPE_CHECKING or inside a function"
    )
