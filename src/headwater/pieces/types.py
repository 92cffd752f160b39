"""The types of a class's members, from its annotations: codecs, signatures, the element types of an `each`.

Each is built once, when it is first needed. Raises `Unresolved` while an annotation names something that is not
defined yet.

The keys of a `fold` with `by=` get their type from the return annotation of that function. If it has none, the
function runs once on a recorder in place of an element: if it only names a field, the keys have the type of that
field. Otherwise the keys are stored as text. The function is never called with data.
"""

from __future__ import annotations

import enum
import sys
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any, Final

from headwater.cells.cell import Cell
from headwater.cells.codec import codec_for, type_text
from headwater.cells.codec_base import TypeCodec
from headwater.cells.containers import KeyCodec, MappingCodec, TupleCodec
from headwater.cells.handle import Input
from headwater.cells.runtime_port import Topic
from headwater.cells.scalars import FloatCodec
from headwater.cells.selector import PathSelector
from headwater.data.text import shown
from headwater.errors import AuthoringError, InvalidValueError
from headwater.pieces.annotations import Names, annotations_of, resolve
from headwater.pieces.declarations import (
    SCOPES,
    CellMember,
    ChildMember,
    Declaration,
    EachMember,
    FoldMember,
    FunctionMember,
    GivenMember,
    HandlerMember,
    ReactionMember,
    ResourceMember,
    TopicMember,
)
from headwater.pieces.handles import Handler
from headwater.pieces.signature import Signature

__all__ = ["Elements", "Given", "MemberTypes"]


_UNIONS: Final = (typing.Union, types.UnionType)
_SIMPLE: Final = (int, float, str, bool)


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The type of an input: a handle that is read, that is written too, or that is sent to."""

    is_cell: bool
    is_handler: bool
    codec: TypeCodec[Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Elements:
    """The elements of an `each` or a `fold`, and the result for one element."""

    source: TypeCodec[Any] | None  # of all of it; None: there is only one, without a source
    value: TypeCodec[Any] | None  # of the result; None: it is a piece
    is_optional: bool  # whether an element may be left out
    pieces: tuple[type[Any], ...] = ()  # the classes of pieces that may be made


class MemberTypes:
    """The types of the members of one class. Its base classes resolve their own."""

    __slots__ = ("_around", "_cls", "_known")

    def __init__(self, cls: type[Any], around: Mapping[str, Any]) -> None:
        self._cls = cls
        # The locals where the class was made. A module is read again, for names that it defines later.
        self._around: Mapping[str, Any] = {} if around is vars(sys.modules.get(cls.__module__, sys)) else around
        self._known: dict[tuple[Declaration, str], Any] = {}

    def is_complete(self) -> None:
        """Drop the locals of the place where the class was made: everything is resolved."""
        self._around = {}

    def codec(self, member: Declaration) -> TypeCodec[Any]:
        return self._once(member, "codec", MemberTypes._codec)  # type: ignore[no-any-return]

    def types(self, member: EachMember | FoldMember) -> tuple[Any, Any]:
        """Return the types of the elements and of the result, as they were written; None: not written."""
        return self._once(member, "types", MemberTypes._types)  # type: ignore[no-any-return]

    def read_as(self, member: Declaration) -> tuple[Any, ...]:
        """The types that the value of a member is read by. Of children these are their classes."""
        return self._once(member, "read as", MemberTypes._read_as)  # type: ignore[no-any-return]

    def type_of_input(self, member: GivenMember) -> Given:
        return self._once(member, "given", MemberTypes._given)  # type: ignore[no-any-return]

    def signature(self, member: HandlerMember) -> Signature:
        return self._once(member, "signature", MemberTypes._signature)  # type: ignore[no-any-return]

    def elements(self, member: Declaration) -> Elements:
        return self._once(member, "elements", MemberTypes._elements)  # type: ignore[no-any-return]

    def _once(self, member: Declaration, what: str, make: Callable[[MemberTypes, Any], Any]) -> Any:
        found = self._known.get((member, what))
        if found is None:
            found = self._known[member, what] = make(self._home_of(member), member)
        return found

    def _home_of(self, member: Declaration) -> MemberTypes:
        home = member.home
        return self if home is None or home is self._cls else home.__schema__.typing

    def check_default(self, member: CellMember, codec: TypeCodec[Any]) -> None:
        try:
            codec.encode(member.default)
        except InvalidValueError as error:
            raise member.fault(
                f"its default {shown(member.default)} does not fit {codec.expected} ({error})",
                f"{member.name}: Cell[{codec.expected}] = cell(default=...) with such a value",
            ) from None

    def check_start(self, member: FoldMember, codec: TypeCodec[Any]) -> None:
        """Check that the value of an empty fold is a value of its type."""
        if member.by is not None:
            if not isinstance(codec, MappingCodec):
                raise member.fault(f"with by= it is a Mapping, not {codec.expected}", "Computed[Mapping[str, int]]")
            codec = codec.element
        self._check_fits(member, f"start={shown(member.start)}", codec, member.start)

    def _check_fits(self, member: Declaration, what: str, codec: TypeCodec[Any], value: Any) -> None:
        try:
            codec.encode(value)
        except InvalidValueError as error:
            raise member.fault(f"{what} does not fit {codec.expected} ({error})", "such a value there") from None

    def check_resource(self, member: ResourceMember) -> None:
        """Check that a resource takes the value of its input, and that its scope is not wider than the input's."""
        member.takes(1, f"async def {member.name}(self, {member.input.name}: str) -> str")
        self.codec(member)
        self._check_wide(member, member.input, f"@resource({member.input.name}, scope={member.input.scope!r})")

    def check_then(self, member: ReactionMember) -> None:
        """Check that the handler of the result takes it: otherwise the reaction would be repeated for each failure."""
        returned = annotations_of(member.fn).get("return")
        if not isinstance(member.then, HandlerMember) or returned is None:
            return
        self.signature(member.then)  # Its arguments have types.
        name = member.then.parameters()[0].name
        result = self._once(member, "result", MemberTypes._result)
        taken = self._once(member.then, "first argument", MemberTypes._first_argument)
        is_other = isinstance(result, type) and isinstance(taken, type) and not issubclass(result, taken)
        if is_other and not (taken is float and issubclass(result, int)):
            raise member.fault(
                f"its result is {type_text(result)}, and {member.then.name!r}, which gets it, takes {type_text(taken)}",
                f"def {member.then.name}(self, {name}: {type_text(result)}) -> None",
            )

    def _result(self, member: ReactionMember) -> Any:
        found = self._resolve(annotations_of(member.fn)["return"])
        return type(None) if found is None else found

    def _first_argument(self, member: HandlerMember) -> Any:
        return self._resolve(annotations_of(member.fn)[member.parameters()[0].name])

    def _check_wide(self, member: Declaration, source: Declaration, instead: str) -> None:
        if SCOPES.index(source.scope) > SCOPES.index(member.scope):
            raise member.fault(f"{source.name!r} is of one {source.scope} each, and this is wider", instead)

    # ---- resolving ---------------------------------------------------------------------------------

    def _annotation(self, member: Declaration) -> Any:
        said = annotations_of(self._cls).get(member.name)
        return None if said is None else self._resolve(said)

    def _resolve(self, said: Any) -> Any:
        return resolve(said, Names(self._cls, self._around, Declaration))

    def _returned(self, member: FunctionMember, example: str) -> Any:
        said = annotations_of(member.fn)
        if "return" not in said:
            raise member.fault("its function does not say what it returns", example)
        return self._resolve(said["return"])

    def _stored_as(self, member: Declaration, type_: Any) -> TypeCodec[Any]:
        try:
            return codec_for(type_)
        except InvalidValueError:
            raise
        except AuthoringError as error:
            raise AuthoringError(f"{self._cls.__name__}.{member.name}: {error}") from None

    # ---- by kind -----------------------------------------------------------------------------------

    def _codec(self, member: Declaration) -> TypeCodec[Any]:
        match member:
            case CellMember():
                return self._stored_as(member, self._argument(member, Cell, "Cell[int] = cell(default=0)"))
            case TopicMember():
                return self._stored_as(member, self._argument(member, Topic, "Topic[Order] = topic()"))
            case GivenMember():
                codec = self.type_of_input(member).codec
                assert codec is not None
                return codec
            case FoldMember():
                return self._folded(member)
            case FunctionMember():
                return self._stored_as(member, self._returned(member, f"def {member.name}(self) -> int"))
            case _:
                raise member.fault("it has no value", "a cell or a computed")

    def _argument(self, member: Declaration, wanted: type[Any], example: str) -> Any:
        said = self._annotation(member)
        arguments = typing.get_args(said)
        if typing.get_origin(said) is not wanted or len(arguments) != 1:
            raise member.fault("its annotation does not say what is in it", f"{member.name}: {example}")
        return arguments[0]

    def _given(self, member: GivenMember) -> Given:
        said = self._annotation(member)
        origin, arguments = typing.get_origin(said), typing.get_args(said)
        if origin is Handler:
            return Given(is_cell=False, is_handler=True, codec=None)
        if not isinstance(origin, type) or not issubclass(origin, Input) or len(arguments) != 1:
            raise member.fault(
                "an input is a handle",
                f"{member.name}: Input[int] = given(), or Cell[int] to write it too, or Handler[[int], None]",
            )
        return Given(is_cell=issubclass(origin, Cell), is_handler=False, codec=self._stored_as(member, arguments[0]))

    def _signature(self, member: HandlerMember) -> Signature:
        said = annotations_of(member.fn)
        codecs: dict[str, TypeCodec[Any]] = {}
        parameters = member.parameters()
        for each in parameters:
            if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
                raise member.fault(f"it takes *{each.name}", "each argument with its name and type")
            if each.kind is each.POSITIONAL_ONLY:
                raise member.fault(
                    f"argument {each.name!r} has no name for its senders, because of the /", "it without the /"
                )
            if each.name not in said:
                raise member.fault(f"argument {each.name!r} has no type", f"def {member.name}(self, {each.name}: str)")
            codec = codecs[each.name] = self._stored_as(member, self._resolve(said[each.name]))
            if each.default is not each.empty:
                self._check_fits(member, f"{each.name}={shown(each.default)}", codec, each.default)
        result = self._stored_as(member, self._returned(member, f"def {member.name}(self, ...) -> None"))
        return Signature(f"{self._cls.__name__}.{member.name}", parameters, codecs, result)

    def _elements(self, member: Declaration) -> Elements:
        if isinstance(member, FoldMember):
            return Elements(source=self._source(member), value=self.codec(member), is_optional=False)
        assert isinstance(member, (EachMember, ChildMember))
        source = None if isinstance(member, ChildMember) else self._source(member)
        member.takes(
            0 if source is None else 1,
            f"def {member.name}(self) -> Row" if source is None else f"def {member.name}(self, row: Cell[Row]) -> View",
        )
        returned = self._returned(member, f"def {member.name}(self, ...) -> View")
        parts = typing.get_args(returned) if typing.get_origin(returned) in _UNIONS else (returned,)
        made = [part for part in parts if part is not type(None)]
        pieces = [part for part in made if _is_piece(part)]
        if pieces and len(pieces) < len(made):
            raise member.fault("it makes pieces and values", "one or the other")
        if isinstance(member, ChildMember) and not pieces:
            raise member.fault(f"it makes {shown(returned)}, which is not a piece", "@computed for a value")
        value = None if pieces else self._stored_as(member, returned)
        return Elements(source=source, value=value, is_optional=len(made) < len(parts), pieces=tuple(pieces))

    def _types(self, member: EachMember | FoldMember) -> tuple[Any, Any]:
        return self._home_of(member.source)._type(member.source), self._type(member)

    def _read_as(self, member: Declaration) -> tuple[Any, ...]:
        if isinstance(member, (EachMember, ChildMember)):
            pieces = self.elements(member).pieces
            return pieces or (self._type(member),)
        return (self._type(member),)

    def _type(self, member: Declaration) -> Any:
        if isinstance(member, FunctionMember):
            return self._returned(member, f"def {member.name}(self) -> int")
        return next(iter(typing.get_args(self._annotation(member))), None)

    def _source(self, member: EachMember | FoldMember) -> TypeCodec[Any]:
        if isinstance(member.source, (EachMember, ChildMember, ResourceMember)):
            # Its value is put together from several places: none of them has the elements.
            raise member.fault(
                f"{member.source!r} holds no elements that can be read one by one",
                f"a @computed that returns the elements of {member.source.name!r}, and go over that one",
            )
        codec = self.codec(member.source)
        self._check_wide(member, member.source, f"{member.source.name}: Cell[...] = cell(...) without scope=")
        if isinstance(member, EachMember) and isinstance(codec, TupleCodec) and member.key is None:
            raise member.fault(
                f"{member.source.name!r} is a tuple, whose elements have no keys",
                f"@each({member.source.name}, key=lambda row: row.id)",
            )
        if isinstance(member, EachMember) and isinstance(codec, MappingCodec) and member.key is not None:
            raise member.fault(f"{member.source.name!r} is a Mapping and has keys", f"@each({member.source.name})")
        if not isinstance(codec, (TupleCodec, MappingCodec)):
            raise member.fault(
                f"{member.source.name!r} is {codec.expected}", "a tuple[Row, ...] or a Mapping[str, Row]"
            )
        return codec

    def _folded(self, member: FoldMember) -> TypeCodec[Any]:
        said = self._annotation(member)
        if said is not None:
            arguments = typing.get_args(said)
            if len(arguments) != 1:
                raise member.fault(
                    "its annotation does not say what is in it", f"{member.name}: Computed[int] = fold(...)"
                )
            return self._stored_as(member, arguments[0])
        kind = type(member.start)
        if kind not in _SIMPLE and not hasattr(kind, "__struct_fields__"):
            raise member.fault(
                f"start={shown(member.start)} does not say what it adds up to",
                f"{member.name}: Computed[tuple[int, ...]] = fold(...)",
            )
        codec = self._stored_as(member, kind)
        return codec if member.by is None else by_group(member.by, self._source(member), codec)


def _is_piece(part: Any) -> bool:
    """A piece, or a class that pieces derive from."""
    return isinstance(part, type) and any(base.__name__ == "Piece" for base in part.__mro__)


_KEYS = (str, int, enum.Enum, date, Decimal)
"""The types of keys. A datetime is a date, too."""


def by_group(by: Callable[..., Any], source: TypeCodec[Any], kind: TypeCodec[Any]) -> TypeCodec[Any]:
    """Return the codec of a fold by groups without an annotation, from the codecs of its source and of its result."""
    found = _returned(by) or _named(by, source)
    keys = found if found is not None and _is_key(found) else codec_for(str)
    return MappingCodec(KeyCodec(keys), kind)


def _is_key(codec: TypeCodec[Any]) -> bool:
    return codec.kinds == {str} or (codec.kinds <= {int, float} and not isinstance(codec, FloatCodec))


def _returned(by: Callable[..., Any]) -> TypeCodec[Any] | None:
    """Return the codec of its return annotation."""
    try:
        if "return" not in annotations_of(by):
            return None
        return codec_for(typing.get_type_hints(by)["return"])
    except (AttributeError, AuthoringError, NameError, TypeError):
        return None


def _named(by: Callable[..., Any], source: TypeCodec[Any]) -> TypeCodec[Any] | None:
    """The type of the field that it names, if it does nothing else."""
    if not isinstance(source, (TupleCodec, MappingCodec)):
        return None
    try:
        return PathSelector().select(source.element, by).codec
    except Exception:  # It does more than to name a field. It is called with an element when there is one.
        return None


def instead(name: str, group: object, kind: str) -> str:
    """Return the advice for a group of another type than was assumed."""
    if isinstance(group, _KEYS) and not isinstance(group, bool):
        return f"{name}: Computed[Mapping[{type(group).__name__}, {kind}]] = fold(...)"
    return f"by= so that it answers a text, an int, an enum or a date, and not {shown(group)}"
