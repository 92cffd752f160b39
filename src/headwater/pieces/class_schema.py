"""The schema of a class of pieces: its name and its members, checked when the class is made.

The types of the members are known as soon as their annotations can be resolved. A mistake is an AuthoringError that
shows the line to write. Nothing is bound or run here.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import getattr_static
from types import CodeType, FunctionType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, Union, get_args, get_origin
from weakref import WeakValueDictionary

from headwater.cells.cell import Cell
from headwater.cells.codec_base import TypeCodec
from headwater.cells.handle import Input
from headwater.cells.runtime_port import Topic
from headwater.data.address import NAME_LENGTH
from headwater.data.text import shown
from headwater.data.value import MAX_INT
from headwater.errors import AuthoringError
from headwater.pieces.annotations import Unresolved, annotations_of
from headwater.pieces.declarations import (
    CellMember,
    ChildMember,
    ComputedMember,
    Declaration,
    EachMember,
    EffectMember,
    FoldMember,
    FunctionMember,
    GivenMember,
    HandlerMember,
    MaterializerMember,
    ReactionMember,
    ResourceMember,
)
from headwater.pieces.handles import Handler
from headwater.pieces.names import class_name
from headwater.pieces.signature import Signature
from headwater.pieces.types import Elements, Given, MemberTypes

if TYPE_CHECKING:
    from headwater.pieces.piece import Piece

__all__ = ["ClassSchema"]

D = TypeVar("D", bound=Declaration)
M = TypeVar("M", bound=Declaration)
T = TypeVar("T")
RESERVED = ("ctx",)
_numbers = itertools.count()
_newest: WeakValueDictionary[str, type[Piece]] = WeakValueDictionary()
"""By name, the class that was defined last."""


class ClassSchema:
    """The declarations of a class and of its base classes."""

    __slots__ = (
        "_codecs",
        "_computed",
        "_functions",
        "_is_known",
        "_kinds",
        "_named",
        "_side_writers",
        "_stored",
        "_writers",
        "cls",
        "digests",
        "members",
        "name",
        "number",
        "typing",
        "version",
        "was",
    )

    def __init__(
        self, cls: type[Piece], *, name: str | None, was: str | None, version: int | None, around: Mapping[str, Any]
    ) -> None:
        for what, said in (("name", name), ("was", was)):
            if said is not None and (type(said) is not str or not said or said.strip() != said):
                raise AuthoringError(f"class {cls.__name__}(Piece, {what}={shown(said)}): write {what}='shop.Cart'")
        if version is not None and (type(version) is not int or not 1 <= version <= MAX_INT):
            raise AuthoringError(
                f"class {cls.__name__}(Piece, version={shown(version)}): write version=1, and a greater number for "
                "each later version of its code"
            )
        self.cls = cls
        self.name = name or class_name(cls)
        self.was = was
        self.version = version or 0  # of its code, as its author says; 0: the author says nothing
        self.number = next(_numbers)  # Of two classes of one name the one with the greater number was defined later.
        # The code of its members, their fingerprints, and the names of its cells; None: not computed yet. Kept here, so
        # that all runtimes of a process say the same of one class, whatever a global holds when the second one starts.
        self.digests: tuple[tuple[object, ...], dict[str, str], tuple[str, ...]] | None = None
        self.members: dict[str, Declaration] = {}
        self._kinds: dict[type[Declaration], list[Any]] = {}  # those of a kind, once they were asked for
        self._codecs: dict[Declaration, TypeCodec[Any]] = {}  # results of `codec`
        self._computed: dict[Declaration, tuple[Declaration, ...]] = {}  # results of `computed_by_name`
        self._functions: list[Any] | None = None  # see `functions`, once they were asked for
        self._side_writers: list[Declaration] | None = None  # see `side_writers`, once they were asked for
        self._stored: dict[str, Declaration] | None = None  # by stored name, once one was asked for
        self._named: dict[Declaration, tuple[Declaration, ...]] = {}  # results of `named_by`
        self._writers: dict[Declaration, list[Declaration]] | None = None  # see `writers_of`, once it was asked for
        for base in reversed(cls.__mro__[1:]):
            schema = vars(base).get("__schema__")
            self._inherit(base, {} if schema is None else schema.members)
        own = {each: made for each, made in vars(cls).items() if isinstance(made, Declaration)}
        self._check_own(own)
        self.members.update(own)
        self._check_stored()
        self.typing = MemberTypes(cls, around)
        waiting = False
        for each in own.values():
            try:
                self._check(each)
            except Unresolved:
                waiting = True  # A name is defined later. The first caller that opens such a piece needs it.
        self._is_known = False  # Its bases may still wait for something.
        if not waiting:
            self.typing.is_complete()
        _newest[self.name] = cls

    @property
    def is_former(self) -> bool:
        """Whether the class was defined again since."""
        return _newest.get(self.name, self.cls) is not self.cls

    def __iter__(self) -> Iterator[Declaration]:
        return iter(self.members.values())

    def __repr__(self) -> str:
        return f"<schema of {self.name}>"

    # ---- declarations --------------------------------------------------------------------------------

    def of(self, kind: type[D]) -> list[D]:
        """The members of a kind, in the order in which they were declared."""
        found = self._kinds.get(kind)
        if found is None:
            found = self._kinds[kind] = [each for each in self.members.values() if isinstance(each, kind)]
        return found

    def functions(self) -> list[Any]:
        """The functions whose `__code__` objects, by identity, show whether a member was patched."""
        if self._functions is None:
            found: list[Any] = []
            for each in self.members.values():
                if isinstance(each, FunctionMember):
                    found.append(each.fn)
                elif isinstance(each, FoldMember):
                    found += [fn for fn in (each.add, each.remove, each.by) if hasattr(fn, "__code__")]
            self._functions = found
        return self._functions

    def get(self, stored: str) -> Declaration | None:
        """The member whose value is stored under a name."""
        if self._stored is None:
            self._stored = {each.stored: each for each in reversed(self.members.values())}
        return self._stored.get(stored)

    def named_by(self, member: Declaration) -> tuple[Declaration, ...]:
        """The members that the code of a member names, itself or through members and methods of the class.

        A run of the member probably reads them. Names that are built at run time are not found.
        """
        found = self._named.get(member)
        if found is None:
            found = self._named[member] = tuple(self._find_named(member))
        return found

    def computed_by_name(self, member: FunctionMember) -> tuple[Declaration, ...]:
        """The computed values and folds that the code of a member names itself."""
        found = self._computed.get(member)
        if found is None:
            named = [self.members.get(name) for name in member.fn.__code__.co_names]
            found = self._computed[member] = tuple(
                [each for each in named if isinstance(each, (ComputedMember, FoldMember)) and each is not member]
            )
        return found

    def writers_of(self, cell: Declaration) -> Sequence[Declaration]:
        """The members that declare that they write a cell: computeds with `writes=`, and materializers."""
        if self._writers is None:
            self._writers = {}
            for each in self.members.values():
                for written in _written_by(each):
                    self._writers.setdefault(written, []).append(each)
        return self._writers.get(cell, ())

    def side_writers(self) -> list[Declaration]:
        """The members that write cells, in the order in which they were declared."""
        if self._side_writers is None:
            self._side_writers = [each for each in self.members.values() if _written_by(each)]
        return self._side_writers

    def _find_named(self, member: Declaration) -> list[Declaration]:
        found: dict[Declaration, None] = {}
        methods: set[str] = set()
        codes = list(_codes_of(member))
        sources = [member.source] if isinstance(member, FoldMember) else []
        while codes or sources:
            named = [sources.pop()] if sources else []
            if not named:
                code = codes.pop()
                codes += [each for each in code.co_consts if isinstance(each, CodeType)]
                for name in code.co_names:
                    other = self.members.get(name)
                    if other is not None:
                        named.append(other)
                    elif name not in methods and isinstance(
                        method := getattr_static(self.cls, name, None), FunctionType
                    ):
                        methods.add(name)
                        codes.append(method.__code__)
            for each in named:
                if each not in found and each is not member:
                    found[each] = None
                    codes += _codes_of(each)
                    if isinstance(each, FoldMember):
                        sources.append(each.source)
        return list(found)

    def check_inputs(self, inputs: Mapping[str, Any]) -> None:
        """Refuse to make a piece with a missing or an unknown input."""
        wanted = {each.name for each in self.of(GivenMember)}
        call = f"{self.cls.__name__}({', '.join(f'{name}=...' for name in sorted(wanted))})"
        unknown = sorted(inputs.keys() - wanted)
        if unknown:
            raise AuthoringError(f"{self.cls.__name__} has no input {unknown[0]!r}: write {call}")
        missing = sorted(wanted - inputs.keys())
        if missing:
            raise AuthoringError(f"{self.cls.__name__} needs {missing[0]!r}: write {call}")
        for name, value in inputs.items():
            self._check_input(name, value, call)

    def _check_input(self, name: str, value: Any, call: str) -> None:
        if not isinstance(value, (Input, Handler)) and not hasattr(value, "__narrow__"):
            raise AuthoringError(
                f"{self.cls.__name__}, input {name!r} is {shown(value)}: pass a handle, not a value, as in {call}"
            )

    # ---- types, from annotations ---------------------------------------------------------------------

    def codec(self, member: Declaration) -> TypeCodec[Any]:
        """How the value of a member is stored."""
        found = self._codecs.get(member)
        if found is None:
            found = self._codecs[member] = self._known(member, self.typing.codec)
        return found

    def type_of_input(self, member: GivenMember) -> Given:
        """Return the type of an input."""
        return self._known(member, self.typing.type_of_input)

    def signature(self, member: HandlerMember) -> Signature:
        """Return the arguments and the result of a handler."""
        return self._known(member, self.typing.signature)

    def elements(self, member: Declaration) -> Elements:
        """Return the element and result types of an `each`, a `child` or a `fold`."""
        return self._known(member, self.typing.elements)

    def read_as(self, member: Declaration) -> tuple[object, ...]:
        """The types that the value of a member is read by, as they were written."""
        return self._known(member, self.typing.read_as)

    def _known(self, member: M, ask: Callable[[M], T]) -> T:
        try:
            return ask(member)
        except Unresolved as missing:
            raise AuthoringError(
                f"{self.cls.__name__}.{member.name}: {missing.name!r} in its annotation {missing.text!r} is not in "
                f"module {self.cls.__module__}: define it before a {self.cls.__name__} is opened"
            ) from None

    def check(self) -> None:
        """Check everything once more: names that were unresolved where the class was made have to be known by now."""
        if not self._is_known:
            for member in self.members.values():
                self._known(member, self._check)
            self._is_known = True

    # ---- checks ------------------------------------------------------------------------------------

    def _inherit(self, base: type[Any], members: Mapping[str, Declaration]) -> None:
        """Add the members of a base, unless it cannot declare any or another base has the name."""
        name = self.cls.__name__
        if "__schema__" not in vars(base):
            for each, made in vars(base).items():
                if isinstance(made, Declaration):
                    raise AuthoringError(
                        f"{base.__name__}.{each} is declared in a class that is not a Piece: write "
                        f"class {base.__name__}(Piece), and class {name}({base.__name__})"
                    )
            for each, said in annotations_of(base).items():
                handle = _handle_in(said) if each in vars(base) else None
                if handle is not None:
                    value = shown(vars(base)[each])
                    raise AuthoringError(
                        f"{base.__name__}.{each} is annotated as {_text(said)} and is {value}, in a class that is not "
                        f"a Piece: write class {base.__name__}(Piece), and in it {_declared_as(each, handle, value)}"
                    )
        for each, made in members.items():
            other = self.members.setdefault(each, made)
            if other is not made:
                one, two = (at.home.__name__ if at.home is not None else "?" for at in (other, made))
                raise AuthoringError(
                    f"{name} has {each!r} of {one} and of {two}: a member has one meaning. Call one of them something "
                    "else, or derive from one of them."
                )

    def _check_own(self, own: dict[str, Declaration]) -> None:
        cls = self.cls
        for name, made in own.items():
            if made.name != name or made.home is not cls:
                raise AuthoringError(
                    f"{cls.__name__}.{name} is {made!r} once more: a member has one name, declare another one"
                )
        if "__init__" in vars(cls):
            raise AuthoringError(
                f"{cls.__name__}.__init__: a piece is made of its inputs and holds no state of its own. Declare what "
                "it is given, as in line: Input[Line] = given(), and what it starts with, as cell(default=...)."
            )
        for name, value in vars(cls).items():
            if isinstance(value, (list, dict, set, bytearray)) and not name.startswith("__"):
                raise AuthoringError(
                    f"{cls.__name__}.{name} is a {type(value).__name__}, whose changes the runtime cannot notice: "
                    f"write {name}: Cell[...] = cell(default=...), or, if it never changes, put it outside the class"
                )
            if name in RESERVED:
                raise AuthoringError(f"{cls.__name__}.{name}: pieces have a {name!r} already. Call it something else.")
            if name in self.members:
                home = self.members[name].home
                raise AuthoringError(
                    f"{cls.__name__}.{name} overrides {name!r} of {home.__name__ if home else 'its base'}: what others "
                    "rely on cannot be replaced. Call it something else, or override a plain method that it calls."
                )
        for name, said in annotations_of(cls).items():
            if name in RESERVED:
                raise AuthoringError(f"{cls.__name__}.{name}: pieces have a {name!r} already. Call it something else.")
            handle = None if name in own else _handle_in(said)
            if handle is None:
                continue
            if name in vars(cls):
                value = vars(cls)[name]
                raise AuthoringError(
                    f"{cls.__name__}.{name} is annotated as {_text(said)} and is {shown(value)}: write "
                    f"{_declared_as(name, handle, shown(value))}"
                )
            if name not in self.members:
                raise AuthoringError(
                    f"{cls.__name__}.{name} has an annotation and no declaration: write "
                    f"{_declared_as(name, handle, '...')}"
                )

    def _check_stored(self) -> None:
        known: dict[str, Declaration] = {}
        for each in self.members.values():
            other = known.setdefault(each.stored, each)
            if other is not each:
                both = "handlers on one stream" if isinstance(each, HandlerMember) else "members in one place"
                raise AuthoringError(
                    f"{self.cls.__name__}.{other.name} and .{each.name} are two {both}, {each.stored!r}: give one of "
                    "them another was=, or leave it out"
                )

    def _check(self, member: Declaration) -> None:
        """Refuse mistakes of one member that show once its types are known."""
        match member:
            case CellMember():
                self.typing.check_default(member, self.typing.codec(member))
            case GivenMember():
                self.typing.type_of_input(member)
            case HandlerMember():
                self.typing.signature(member)
            case EffectMember():
                member.takes(0, f"def {member.name}(self) -> None")
            case ReactionMember():
                name = f"{self.was or self.name}.{member.stored}"
                if ":" in name or len(name) > NAME_LENGTH:
                    raise member.fault(
                        f"a reaction is known as {name!r}, which has at most {NAME_LENGTH} characters and no colon",
                        f"class {self.cls.__name__}(Piece, name=...) without one",
                    )
                if len(member.parameters()) not in (1, 2):
                    raise member.fault(
                        "its function takes the record, and the delivery if it wants it",
                        f"async def {member.name}(self, record: Order, delivery: Delivery) -> None",
                    )
                self.typing.check_then(member)
            case ResourceMember():
                self.typing.check_resource(member)
            case FoldMember():
                self.typing.elements(member)
                self.typing.types(member)
                self.typing.check_start(member, self.typing.codec(member))
            case EachMember():
                self.typing.elements(member)
                self.typing.types(member)
            case ChildMember():
                self.typing.elements(member)
            case ComputedMember() | MaterializerMember():
                member.takes(0, f"def {member.name}(self) -> int")
                self.typing.codec(member)
            case _:
                self.typing.codec(member)
        # Fingerprints need the types as they were written: the locals where the class was made are not kept.
        if not isinstance(member, (EffectMember, HandlerMember, ReactionMember)):
            self.typing.read_as(member)


def _codes_of(member: Declaration) -> list[CodeType]:
    """The code of the function that a member declares, if it has one."""
    code = getattr(getattr(member, "fn", None), "__code__", None)
    return [code] if isinstance(code, CodeType) else []


def _written_by(member: Declaration) -> tuple[Declaration, ...]:
    """The cells that a member declares to write."""
    match member:
        case ComputedMember():
            return member.writes
        case MaterializerMember():
            return member.envelope
        case _:
            return ()


_HANDLES = ("Cell", "Input", "Handler", "Computed", "Each", "Child", "Resource", "Topic")


def _handle_in(said: Any) -> str | None:
    """Return the handle that an annotation names, as text, also inside of Annotated, Optional or a union."""
    if isinstance(said, str):
        try:
            return _handle_in_text(ast.parse(said, mode="eval").body)
        except SyntaxError:
            return None
    origin = get_origin(said) or said
    if origin is Annotated or origin is Union or origin is UnionType:
        parts = get_args(said)[:1] if origin is Annotated else get_args(said)
        return next((found for each in parts if (found := _handle_in(each)) is not None), None)
    is_handle = isinstance(origin, type) and issubclass(origin, (Input, Cell, Handler, Topic))
    return _text(said) if is_handle else None


def _handle_in_text(said: ast.expr) -> str | None:
    parts: list[ast.expr] = []
    match said:
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            parts = [left, right]
        case ast.Constant(value=str() as text):
            return _handle_in(text)
        case ast.Name() | ast.Attribute() | ast.Subscript():
            text = ast.unparse(said)
            if _head(text) in _HANDLES:
                return text
            if isinstance(said, ast.Subscript) and _head(text) in ("Annotated", "Optional", "Union"):
                parts = said.slice.elts if isinstance(said.slice, ast.Tuple) else [said.slice]
                parts = parts[:1] if _head(text) == "Annotated" else parts
        case _:
            pass
    return next((found for each in parts if (found := _handle_in_text(each)) is not None), None)


def _head(text: str) -> str:
    """The class that an annotation names, without its module and its arguments."""
    return text.partition("[")[0].rpartition(".")[2]


def _declared_as(name: str, text: str, default: str) -> str:
    """The declarations that fit a handle. A Cell has two: an input that is written is a Cell, too."""
    match _head(text):
        case "Cell":
            return f"{name}: {text} = cell(default={default}), or {name}: {text} = given() for an input"
        case "Topic":
            return f"{name}: {text} = topic()"
        case "Computed" | "Each" | "Child" | "Resource" as kind:
            return f"@{kind.lower()} above a method {name}"
        case _:
            return f"{name}: {text} = given()"


def _text(said: Any) -> str:
    """An annotation as it was written, without the modules that its names are from."""
    return said if isinstance(said, str) else re.sub(r"\b(?:\w+\.)+(?=\w)", "", str(said))
