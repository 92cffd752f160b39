"""The typed values an author declares.

Owns `Model`, the frozen record (a `msgspec.Struct` underneath), `field`, which gives a field a default or the
name it is stored under, and the name `Json`. Never encodes, decodes or checks a value: `codec` does.

A renamed field keeps the name it is stored under: `title: str = field(was="name")` reads and writes the key
`name`, so that programs from before and after the renaming share their data and nothing has to be migrated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NewType, TypeAlias, TypeVar, dataclass_transform, overload

import msgspec

from headwater.data.text import shown
from headwater.errors import AuthoringError

__all__ = ["Json", "Model", "field"]

T = TypeVar("T")

if TYPE_CHECKING:
    Json: TypeAlias = bool | int | float | str | tuple["Json", ...] | Mapping[str, "Json"] | None
else:
    # A name of its own while the program runs: a union would dissolve in `Json | None` and could not be found again.
    Json = NewType("Json", Any)


@overload
def field(*, default: T, was: str = ...) -> T: ...
@overload
def field(*, was: str = ...) -> Any: ...


def field(*, default: Any = msgspec.NODEFAULT, was: str | None = None) -> Any:
    """A field of a `Model`: its default, and with `was=` the name it had before it was renamed."""
    if was is not None and (type(was) is not str or not was):
        raise AuthoringError(f"field(was={shown(was)}) names no field: write the name it had before, like was='title'")
    return msgspec.field(default=default, name=was)


class _Checked(msgspec.StructMeta):
    """The metaclass of Models: that of Structs, with errors in an author's words."""

    def __new__(meta, name: str, bases: tuple[type[Any], ...], body: dict[str, Any], **options: Any) -> Any:
        try:
            return super().__new__(meta, name, bases, body, **options)
        except ValueError as error:
            if "rename to the same name" not in str(error):
                raise
        clash = _clash(bases, body)
        raise AuthoringError(
            f"{name}: fields {clash[0]!r} and {clash[1]!r} would both be stored as {clash[2]!r}. A field that was "
            f"renamed keeps its place: write another name for {clash[1]!r}, or leave was={clash[2]!r} away"
        ) from None


def _clash(bases: tuple[type[Any], ...], body: dict[str, Any]) -> tuple[str, str, str]:
    """Two fields that are stored under one name, and that name."""
    stored: dict[str, str] = {}
    for base in reversed(bases):
        fields = getattr(base, "__struct_fields__", ())
        stored.update(zip(getattr(base, "__struct_encode_fields__", fields), fields, strict=False))
    said = body.get("__annotations__") or dict.fromkeys(body)
    own = {name: getattr(body.get(name), "name", None) or name for name in said}
    for name in sorted(own, key=lambda each: own[each] != each):  # A field that has this name by itself comes first.
        other = stored.setdefault(own[name], name)
        if other != name:
            return (name, other, own[name])
    return ("", "", "")


@dataclass_transform(frozen_default=True, field_specifiers=(field, msgspec.field))
class Model(msgspec.Struct, frozen=True, metaclass=_Checked):
    """A frozen, typed value. Fields are checked where the value enters a cell, not where it is made.

    A union of Models is stored with the name of the class beside its fields; `class Disc(Model, tag="circle")`
    keeps an old name when the class is renamed.
    """
