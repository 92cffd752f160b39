"""Codecs for declared types: `codec_for` reads a type and builds its codec once.

Refuses types that cannot be in a cell, with an error that names the type and the type to write instead. Never touches a
value: the codecs in `scalars`, `containers`, `records` and `unions` do.

The interface, for handles:

    codec = codec_for(tuple[Line, ...])     # AuthoringError: the mistake in the type, and a replacement
    raw   = codec.encode(value, at)         # InvalidValueError: the path of the culprit and the expected type;
                                            #   `at`, the path of the handle, is in messages and counts as depth
    value = codec.decode(raw, at)           # InvalidValueError when something else is stored. Never pass ABSENT
    raw   = codec.merge(old, value, at)     # for `set`: encode, but keeps unknown fields of `old` (a raw
                                            #   value or ABSENT) and returns `old` itself where nothing changed
    codec.plain                             # True: the stored form is the value; return it without decoding
    memo  = codec.memo()                    # one per place: memo.decode(raw, at) is free for the same raw object
                                            #   and decodes only new elements of a new version;
                                            #   memo.merge(old, value, at) does not encode values that came out of it
    Selector().select(codec, fn)            # -> Selection(path, codec) for `at(fn)`; one Selector per runtime
    selector.step(codec, key)               # -> Selection for `key(k)` of a Mapping
    view.open_view(codec, raw, path, touch) # the lazy view

Handles delete keys and fields themselves: a codec never receives ABSENT as a new value. Decoded Mappings are lazy: a
misfit inside one is raised when that entry is read, with a path that begins at the Mapping.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import sys
import types
import typing
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, NoReturn

import msgspec

from headwater.cells.codec_base import CELL_LIMITS, Memo, TypeCodec
from headwater.cells.containers import (
    FixedTupleCodec,
    FrozensetCodec,
    Json,
    JsonCodec,
    KeyCodec,
    MappingCodec,
    TupleCodec,
)
from headwater.cells.records import Field, RecordCodec
from headwater.cells.scalars import (
    BoolCodec,
    BytesCodec,
    ConstrainedCodec,
    EnumCodec,
    FloatCodec,
    IntCodec,
    LinkCodec,
    LiteralCodec,
    NoneCodec,
    StrCodec,
    date_codec,
    datetime_codec,
    decimal_codec,
    timedelta_codec,
    uuid_codec,
)
from headwater.cells.unions import UnionCodec
from headwater.data.address import Link
from headwater.errors import AuthoringError

__all__ = [
    "Memo",
    "TypeCodec",
    "cannot_resolve",
    "codec_for",
    "refuse",
    "refuse_container",
    "refuse_key",
    "refuse_mutable",
    "type_text",
]


_MUTABLE_SEQUENCES: Final = (list, collections.abc.Sequence, collections.abc.MutableSequence, collections.deque)
_MUTABLE_SETS: Final = (set, collections.abc.Set, collections.abc.MutableSet)
_MUTABLE_MAPPINGS: Final = (dict, collections.abc.MutableMapping, collections.OrderedDict, collections.defaultdict)
_UNPARAMETRIZED: Final = {
    tuple: "tuple[str, ...]",
    frozenset: "frozenset[str]",
    collections.abc.Mapping: "Mapping[str, int]",
}
_BARE_ALIASES: Final = (typing.Tuple, typing.FrozenSet, typing.Mapping)  # noqa: UP006 (as authors may write them)


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
    raise AuthoringError(f"{type_text(type_)} cannot be the type of a stored value: {why}. Write {instead}")


def refuse_mutable(type_: Any, instead: str) -> NoReturn:
    """Refuse a record whose instances can change."""
    refuse(type_, "its values can be changed in place, which the runtime cannot notice", instead)


def refuse_key(type_: Any, key: Any) -> NoReturn:
    """Refuse a Mapping by the type of its keys."""
    refuse(type_, f"keys are stored as text, and {type_text(key)} has no one text form", "Mapping[str, ...]")


def refuse_container(type_: Any, cls: Any) -> None:
    """Refuse the types that are almost right, each with its replacement."""
    arguments = [type_text(argument) for argument in typing.get_args(type_)]
    if cls in _MUTABLE_SEQUENCES:
        refuse_mutable(type_, f"tuple[{', '.join(arguments) or 'str'}, ...]")
    if cls in _MUTABLE_SETS:
        refuse_mutable(type_, f"frozenset[{', '.join(arguments) or 'str'}]")
    if cls in _MUTABLE_MAPPINGS:
        refuse_mutable(type_, f"Mapping[{', '.join(arguments[:2]) or 'str, int'}]")
    if cls is bytearray or cls is memoryview:
        refuse_mutable(type_, "bytes")
    if cls in _UNPARAMETRIZED:
        refuse(type_, "it does not say what it holds", _UNPARAMETRIZED[cls])
    if cls is Any or cls is object:
        refuse(type_, "it could be anything", "headwater.Json for data without a type")
    if isinstance(cls, typing.TypeVar):
        refuse(type_, "it stands for another type", "that type, like Box[int]")
    if isinstance(cls, str | typing.ForwardRef):
        refuse(type_, "it is a name that was not looked up", "the type itself")
    if not isinstance(cls, type):
        refuse(type_, "values of this type cannot be stored", "a headwater.Model")
    if issubclass(cls, tuple):
        refuse(type_, "it is stored without the names of its fields", f"class {cls.__name__}(headwater.Model)")


def cannot_resolve(cls: type[Any], error: Exception) -> AuthoringError:
    """Make the error for annotations with names that cannot be found."""
    name = getattr(error, "name", None)
    culprits = [field for field, text in vars(cls).get("__annotations__", {}).items() if name and name in str(text)]
    where = f"{cls.__name__}.{culprits[0]}" if culprits else cls.__name__
    return AuthoringError(
        f"the annotation of {where} cannot be resolved: {str(error)[:200]}. "
        f"Import the name at the top of {cls.__module__}, not under TYPE_CHECKING or inside a function"
    )


T = typing.TypeVar("T")


_SCALARS: Final[dict[Any, TypeCodec[Any]]] = {
    str: StrCodec(),
    int: IntCodec(),
    float: FloatCodec(),
    bool: BoolCodec(),
    None: NoneCodec(),
    type(None): NoneCodec(),
    bytes: BytesCodec(),
    Link: LinkCodec(),
    datetime: datetime_codec,
    date: date_codec,
    timedelta: timedelta_codec,
    Decimal: decimal_codec,
    Json: JsonCodec(),
}
_MAPPINGS: Final = (collections.abc.Mapping, typing.Mapping)
_UNIONS: Final = (typing.Union, types.UnionType)

_known: dict[Any, TypeCodec[Any]] = {}


@typing.overload
def codec_for(type_: type[T]) -> TypeCodec[T]: ...
@typing.overload
def codec_for(type_: Any) -> TypeCodec[Any]: ...


def codec_for(type_: Any) -> TypeCodec[Any]:
    """The codec of a declared type. The same one for the same type."""
    made: dict[Any, TypeCodec[Any]] = {}
    codec = _Builder(made).codec(type_)
    # Only now: a type that was refused halfway leaves nothing behind.
    if len(_known) + len(made) > CELL_LIMITS.known_types:
        _known.clear()
    _known.update(made)
    return codec


class _Builder:
    """One call of `codec_for`. Records enter `made` before their fields are known, so that types may be recursive."""

    __slots__ = ("_made",)

    def __init__(self, made: dict[Any, TypeCodec[Any]]) -> None:
        self._made = made

    def codec(self, type_: Any) -> TypeCodec[Any]:
        try:
            found = _SCALARS.get(type_) or _known.get(type_) or self._made.get(type_)
        except TypeError:  # Metadata of an Annotated type that has no hash: built anew each time.
            return self._build(type_)
        if found is None:
            found = self._made[type_] = self._build(type_)
        return found

    def _build(self, type_: Any) -> TypeCodec[Any]:
        origin = typing.get_origin(type_)
        arguments = typing.get_args(type_)
        if origin is typing.Annotated:
            return self._annotated(type_, arguments)
        if isinstance(type_, typing.NewType):
            return self.codec(type_.__supertype__)
        if type(type_).__name__ == "TypeAliasType":  # `type X = ...` of newer Pythons
            return self.codec(type_.__value__)
        if origin in _UNIONS:
            return UnionCodec(tuple(dict.fromkeys(map(self.codec, arguments))))
        if origin is typing.Literal:
            return self._literal(type_, arguments)
        if type_ in _BARE_ALIASES:
            refuse_container(type_, origin)
        if origin is tuple:
            return self._tuple(type_, arguments)
        if origin in _MAPPINGS:
            return MappingCodec(self._key(type_, arguments[0]), self.codec(arguments[1]))
        if origin is frozenset:
            return self._frozenset(type_, arguments[0])
        if origin is Link:
            return _SCALARS[Link]
        return self._class(type_, origin if isinstance(origin, type) else type_)

    def _annotated(self, type_: Any, arguments: tuple[Any, ...]) -> TypeCodec[Any]:
        inner = self.codec(arguments[0])
        is_scalar = inner.native and not isinstance(inner, RecordCodec)
        if is_scalar and any(isinstance(note, msgspec.Meta) for note in arguments[1:]):
            return ConstrainedCodec(inner, type_)
        return inner

    def _literal(self, type_: Any, values: tuple[Any, ...]) -> TypeCodec[Any]:
        if not all(type(value) in (str, int, bool, type(None)) for value in values):
            return refuse(type_, "a Literal of text, integers, booleans and None can be stored", "an Enum")
        return LiteralCodec(values)

    def _tuple(self, type_: Any, arguments: tuple[Any, ...]) -> TypeCodec[Any]:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return TupleCodec(self.codec(arguments[0]), type_)
        return FixedTupleCodec(tuple([self.codec(argument) for argument in arguments]))

    def _key(self, type_: Any, key: Any) -> KeyCodec:
        codec = self.codec(key)
        kinds = codec.kinds
        if kinds != {str} and not (kinds <= {int, float} and not isinstance(codec, FloatCodec)):
            refuse_key(type_, key)
        return KeyCodec(codec)

    def _frozenset(self, type_: Any, element: Any) -> TypeCodec[Any]:
        codec = self.codec(element)
        if not codec.hashable:
            return refuse(type_, f"{type_text(element)} cannot be in a set", f"tuple[{type_text(element)}, ...]")
        return FrozensetCodec(codec)

    # ---- classes -----------------------------------------------------------------------------------------

    def _class(self, type_: Any, cls: Any) -> TypeCodec[Any]:
        refuse_container(type_, cls)
        if issubclass(cls, enum.Enum):
            if not cls.__members__ or not all(type(member.value) in (str, int) for member in cls):
                return refuse(type_, "an Enum is stored by value", "str or int values")
            return EnumCodec(cls)
        if issubclass(cls, msgspec.Struct):
            return self._struct(type_, cls)
        if hasattr(cls, "__dataclass_params__"):
            return self._dataclass(type_, cls)
        if _is_pydantic(cls):
            return self._pydantic(type_, cls)
        if cls.__module__ == "uuid" and cls.__qualname__ == "UUID":
            return uuid_codec(cls)
        return refuse(type_, "values of this type cannot be stored", "a headwater.Model")

    def _struct(self, type_: Any, cls: type[msgspec.Struct]) -> TypeCodec[Any]:
        config = cls.__struct_config__
        if not config.frozen:
            refuse_mutable(type_, f"class {cls.__name__}(headwater.Model) without frozen=False")
        if config.array_like:
            return refuse(type_, "its fields have no names once they are stored", "a Model without array_like=True")
        record = self._made[type_] = RecordCodec(cls, type_text(type_), cls)
        record.keeps = not config.forbid_unknown_fields
        if config.tag is not None:
            record.tag, record.tag_key, record.always_tagged = config.tag, config.tag_field or "type", True
        try:
            infos = msgspec.structs.fields(type_)
        except (NameError, TypeError) as error:
            raise cannot_resolve(cls, error) from error
        fields = [
            self._field(
                cls,
                info.name,
                info.type,
                stored=info.encode_name,
                default=_default(info.default, info.default_factory, msgspec.NODEFAULT),
            )
            for info in infos
        ]
        reuses = not hasattr(cls, "__post_init__")
        record.complete(tuple(fields), native_type=type_, reuses=reuses)
        return record

    def _dataclass(self, type_: Any, cls: type[Any]) -> TypeCodec[Any]:
        if not cls.__dataclass_params__.frozen:
            refuse_mutable(type_, f"@dataclass(frozen=True) above class {cls.__name__}")
        record = self._made[type_] = RecordCodec(cls, type_text(type_), cls)
        hints = _hints(cls)
        given = dict(zip(getattr(cls, "__parameters__", ()), typing.get_args(type_), strict=False))
        fields = [
            self._field(
                cls,
                each.name,
                _filled_in(hints[each.name], given),
                stored=each.metadata.get("was", each.name),
                default=_default(each.default, each.default_factory, dataclasses.MISSING),
            )
            for each in dataclasses.fields(cls)
            if each.init
        ]
        record.complete(tuple(fields), native_type=None, reuses=not hasattr(cls, "__post_init__"))
        return record

    def _pydantic(self, type_: Any, cls: Any) -> TypeCodec[Any]:
        if not cls.model_config.get("frozen"):
            refuse_mutable(type_, f"model_config = ConfigDict(frozen=True) in class {cls.__name__}")
        if cls.model_config.get("extra") == "allow":
            return refuse(type_, "fields that it does not name have no type", "extra='ignore', or a field for them")
        if cls.__pydantic_root_model__:
            return refuse(type_, "it is what it holds, under no name", "the type that it holds")
        record = self._made[type_] = RecordCodec(cls, type_text(type_), lambda **fields: cls.model_validate(fields))
        fields = [
            self._field(
                cls,
                name,
                info.annotation,
                stored=name,
                default=None if info.is_required() else lambda info=info: info.get_default(call_default_factory=True),
                argument=_alias(info) or name,
            )
            for name, info in cls.model_fields.items()
        ]
        # Its validators may change their input, so that parts of one instance are no input for another.
        record.complete(tuple(fields), native_type=None, reuses=False)
        return record

    def _field(
        self, cls: type[Any], name: str, type_: Any, *, stored: str, default: Any, argument: str | None = None
    ) -> Field:
        try:
            codec = self.codec(type_)
        except AuthoringError as error:
            raise AuthoringError(f"{cls.__name__}.{name}: {error}") from None
        return Field(name=name, stored=stored, codec=codec, default=default, argument=argument or name)


def _default(value: Any, factory: Any, missing: object) -> Any:
    """A function that makes the default, or None where there is none."""
    if factory is not missing:
        return factory
    return None if value is missing else lambda: value


def _hints(cls: type[Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(cls, include_extras=True)
    except (NameError, TypeError) as error:
        raise cannot_resolve(cls, error) from error


def _filled_in(hint: Any, given: dict[Any, Any]) -> Any:
    """Return the type of a field of `Box[int]`: type variables are replaced by their arguments."""
    if isinstance(hint, typing.TypeVar):
        return given.get(hint, hint)
    parameters = getattr(hint, "__parameters__", ()) if given else ()
    return hint[tuple([given.get(each, each) for each in parameters])] if parameters else hint


def _alias(info: Any) -> str | None:
    """The name under which pydantic takes a field."""
    alias = info.validation_alias or info.alias
    choices = [each for each in getattr(alias, "choices", (alias,)) if isinstance(each, str)]
    return choices[0] if choices else None


def _is_pydantic(cls: type[Any]) -> bool:
    """Whether it is a pydantic model. One that exists has imported pydantic, so nothing is imported for it."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and issubclass(cls, pydantic.BaseModel)
