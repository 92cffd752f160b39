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

__all__ = ["Names", "Unresolved", "annotations_of", "resolve"]

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


class Names(dict[str, Any]):
    """The names for annotations of a class: its own, the locals where it was made, those of its module.

    Each is looked up when it is needed: a class of a thousand members has an annotation for each of them.
    """

    def __init__(self, cls: type[Any], around: Mapping[str, Any], hidden: type[Any]) -> None:
        """`hidden`: the type of the values in the body of the class that its annotations do not see."""
        super().__init__()
        module = sys.modules.get(cls.__module__)
        self._body = vars(cls)
        self._hidden = hidden
        self._outer = ({cls.__name__: cls}, around, {} if module is None else vars(module), vars(builtins))

    def __missing__(self, name: str) -> Any:
        if name in self._body and not isinstance(self._body[name], self._hidden):
            return self._body[name]
        for names in self._outer:
            if name in names:
                return names[name]
        raise NameError(f"name {name!r} is not defined", name=name)


def resolve(annotation: Any, names: Mapping[str, Any]) -> Any:
    """Return the type that an annotation stands for, text inside of it included. Raises Unresolved."""
    if isinstance(annotation, typing.ForwardRef):
        annotation = annotation.__forward_arg__
    if not isinstance(annotation, str):
        return _inside(annotation, names)
    try:
        return _inside(eval(annotation, {"__builtins__": {}}, names), names)
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
