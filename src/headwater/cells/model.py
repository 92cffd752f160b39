"""The typed values an author declares.

Owns `Model`, the frozen record (a `msgspec.Struct` underneath), `field`, which gives a field a default or the
name it is stored under. Never encodes, decodes or checks a value: `codec` does, also for the JSON
that applications exchange with others (`to_json`, `from_json`).

A renamed field keeps the name it is stored under: `title: str = field(was="name")` reads and writes the key
`name`, so that programs from before and after the renaming share their data and nothing has to be migrated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, TypeVar, dataclass_transform, overload

import msgspec

from headwater.cells.codec import codec_for
from headwater.cells.containers import Json, decode_given
from headwater.data.json_form import from_json_form, json_form
from headwater.data.text import shown
from headwater.errors import AuthoringError

__all__ = ["Json", "Model", "field"]

T = TypeVar("T")


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

    pydantic, and so FastAPI, accepts Models as types: it validates with `from_json` and serializes with `to_json`.
    """

    def to_json(self) -> dict[str, Any]:
        """Return the value as data for a JSON encoder, in the form that pages and commands have.

        Fields have the names that they are stored under; a datetime is text, and bytes are `{"$bytes": base64}`.
        """
        return json_form(codec_for(type(self)).encode(self))  # type: ignore[return-value]  # A record is an object.

    @classmethod
    def from_json(cls, data: object, /) -> Self:
        """Return the Model of data that a JSON parser returned. InvalidValueError names the first place that does not
        fit. Fields that the Model does not have are ignored.
        """
        made: Self = decode_given(codec_for(cls), from_json_form(data))
        return made

    if not TYPE_CHECKING:  # Called by pydantic, which this package does not need.

        @classmethod
        def __get_pydantic_core_schema__(cls, source: object, handler: object) -> Any:
            from pydantic_core import core_schema  # noqa: PLC0415

            return core_schema.no_info_plain_validator_function(
                lambda data: data if isinstance(data, cls) else cls.from_json(data),
                serialization=core_schema.plain_serializer_function_ser_schema(
                    lambda made: made.to_json(), when_used="json"
                ),
            )

        @classmethod
        def __get_pydantic_json_schema__(cls, schema: object, handler: object) -> dict[str, Any]:
            return codec_for(cls).schema()
