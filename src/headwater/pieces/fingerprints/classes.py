"""Classes of the application: their names, bases and contents.

The form of a class has its name, its bases, the types of its fields with their defaults and stored names, the members
of an enum, its methods and other attributes, each as a reference. Attributes count by name, because the order of
methods does nothing; fields and enum members count in order, because that does.
"""

from __future__ import annotations

import enum
import sys
from typing import Any, Final

import msgspec

from headwater.pieces.fingerprints.form import Form, FormWriter, Unfingerprintable
from headwater.pieces.fingerprints.functions import TYPE, annotations_form
from headwater.pieces.fingerprints.values import FormOf

__all__ = ["IGNORED", "class_form"]

# Attributes of a class about its text, or caches.
IGNORED: Final = frozenset(
    {
        "__annotate__",
        "__annotate_func__",
        "__annotations__",
        "__annotations_cache__",
        "__dict__",
        "__doc__",
        "__firstlineno__",
        "__module__",
        "__msgspec_cache__",
        "__qualname__",
        "__signature__",
        "__slots__",  # each slot is an attribute of its own
        "__static_attributes__",
        "__weakref__",
        "_abc_impl",
    }
)
_MADE_BY_ENUM: Final = frozenset(
    f"_{name}_"
    for name in (
        "all_bits",
        "boundary",
        "flag_mask",
        "hashable_values",
        "inverted",
        "member_map",
        "member_names",
        "member_type",
        "new_member",
        "singles_mask",
        "sort_order",
        "unhashable_values",
        "unhashable_values_map",
        "use_args",
        "value2member_map",
        "value_repr",
    )
)
_PYDANTIC: Final = "__pydantic_"
_PYDANTIC_FIELDS: Final = "__pydantic_fields__"


def class_form(cls: type[Any], form_of: FormOf) -> Form:
    """Return the form of a class by itself."""
    writer = FormWriter("class")
    writer.of_kind(TYPE)
    writer.text(cls.__name__)
    _put(writer, cls.__bases__, " -> bases", form_of)
    if all(type(base) is not type(cls) for base in cls.__bases__):  # Otherwise the base stands for it.
        _put(writer, type(cls), " -> metaclass", form_of)
    names = vars(sys.modules[cls.__module__]) if cls.__module__ in sys.modules else {}
    writer.put(annotations_form(cls, names, form_of, dict(vars(cls))))
    ignored: frozenset[str] = IGNORED
    if isinstance(cls, enum.EnumMeta):
        ignored = IGNORED | _MADE_BY_ENUM | frozenset(cls.__members__)
        members = [(name, member._value_) for name, member in cls.__members__.items()]
        _put(writer, members, "", form_of)
    if issubclass(cls, msgspec.Struct):
        _put_struct(writer, cls, form_of)
    is_pydantic = _PYDANTIC_FIELDS in vars(cls)
    for name in sorted(vars(cls)):
        if name in ignored or (is_pydantic and name.startswith(_PYDANTIC) and name != _PYDANTIC_FIELDS):
            continue
        writer.text(name)
        _put(writer, vars(cls)[name], f".{name}", form_of)
    return writer.form()


def _put_struct(writer: FormWriter, cls: type[msgspec.Struct], form_of: FormOf) -> None:
    _put(writer, (cls.__struct_fields__, cls.__struct_encode_fields__), "", form_of)
    defaults: tuple[Any, ...] = cls.__struct_defaults__
    first = len(cls.__struct_fields__) - len(defaults)
    for name, default in zip(cls.__struct_fields__[first:], defaults, strict=True):
        # A default that is made anew each time is kept as the function that makes it, in a type that is msgspec's own.
        made_by = getattr(default, "factory", None) if type(default).__name__ == "Factory" else None
        if default is msgspec.NODEFAULT:
            writer.text(f"{name} has no default")
        else:
            _put(writer, ("made by", made_by) if made_by is not None else default, f".{name}", form_of)
    config = cls.__struct_config__
    options = {name: getattr(config, name) for name in dir(config) if not name.startswith("_")}
    _put(writer, options, " -> options", form_of)


def _put(writer: FormWriter, value: object, step: str, form_of: FormOf) -> None:
    try:
        writer.put(form_of(value, 0), step)
    except Unfingerprintable as problem:
        problem.steps.append(step)
        raise
