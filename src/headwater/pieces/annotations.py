"""Annotations of a class, resolved to types, also when they are text and name a class that is defined later.

They are resolved where the class is made as far as that is possible, and at the latest when a space first opens it.
Types are not built here: names are looked up.
"""

from __future__ import annotations

import builtins
import functools
import operator
import sys
import types
import typing
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["Unresolved", "annotations_of", "names_around", "resolve"]

_UNIONS: Final = (typing.Union, types.UnionType)


class Unresolved(Exception):
    """A name in an annotation that is nothing yet. Never leaves this package."""

    def __init__(self, text: str, name: str) -> None:
        super().__init__(text)
        self.text = text
        self.name = name


def annotations_of(thing: Any) -> dict[str, Any]:
    """Return the annotations of a class or a function itself, without inherited ones. Undefined names do no harm."""
    if sys.version_info >= (3, 14):  # They are made on demand, and are not in the dictionary of a class.
        import annotationlib  # noqa: PLC0415

        return dict(annotationlib.get_annotations(thing, format=annotationlib.Format.FORWARDREF))
    found = vars(thing).get("__annotations__") if isinstance(thing, type) else thing.__annotations__
    return dict(found or {})


def names_around(module: str, around: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the names for annotations of a class: the class itself, the locals where it was made, its module."""
    found = sys.modules.get(module)
    return {**vars(builtins), **(vars(found) if found is not None else {}), **around, **own}


def resolve(annotation: Any, names: Mapping[str, Any]) -> Any:
    """Return the type that an annotation stands for, text inside of it included. Raises Unresolved."""
    if isinstance(annotation, typing.ForwardRef):
        annotation = annotation.__forward_arg__
    if not isinstance(annotation, str):
        return _inside(annotation, names)
    try:
        return _inside(eval(annotation, {"__builtins__": {}}, _Names(names)), names)
    except NameError as error:
        raise Unresolved(annotation, error.name or annotation) from None


def _inside(said: Any, names: Mapping[str, Any]) -> Any:
    """Return the same type, with text in its arguments looked up."""
    if isinstance(said, (str, typing.ForwardRef)):
        return resolve(said, names)
    if isinstance(said, (list, tuple)):  # The arguments of a Handler.
        return type(said)(_inside(each, names) for each in said)
    origin, arguments = typing.get_origin(said), typing.get_args(said)
    if origin is typing.Literal or not arguments:
        return said
    if origin is typing.Annotated:
        found = (_inside(arguments[0], names), *arguments[1:])
    else:
        found = tuple(_inside(each, names) for each in arguments)
    if all(one is other for one, other in zip(found, arguments, strict=True)) or found == arguments:
        return said
    if origin in _UNIONS:
        return functools.reduce(operator.or_, found)
    if origin is typing.Annotated:
        return typing.Annotated[found]
    return origin[found]  # Whatever has arguments was made that way.


class _Names(dict[str, Any]):
    """Names for `eval`, which raises the name that it did not find."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        super().__init__(names)

    def __missing__(self, name: str) -> Any:
        raise NameError(f"name {name!r} is not defined", name=name)
