"""Fingerprints: whether a node's code is the same as in its last run.

A `Fingerprint` is the digest of a function and of everything that it refers to; a walk over these objects makes it. No
code is run.

The closure is over objects, not modules: the code (without line numbers, file names, comments and docstrings), its
constants, defaults and closures, the globals it names, the plain methods that it calls on its piece, the classes and
types it names, and so on with each of these. Where a version stands for code, it is not looked into: the version of
Python for its library, that of an installed package for the package, `RULES` for Headwater.

- Equal on every start of the same program: no address, hash, path or import order is in it, and a script has the same
  one as the same file imported.
- More rather than less: everything that may matter counts. Renaming a local variable is a change, and so is a changed
  method that has the name of another one that the code calls. A node then runs once too often, never once too rarely.
- An unknown fingerprint is None, with the way to the cause: `Cart.total -> helpers.RATES['x'] -> <socket>`. Such a
  node is never clean. An author mends it with `__fingerprint__` (see `Forms`), or by passing the thing in.
- Mutable globals count with the content that they have when they are looked at (see `fingerprints.values`): before the
  first piece of the process runs.
- Data that a program reads from outside while it runs (the time, the environment, a file) is no code and does not
  count.

A piece's class, and a module that is passed around, are namespaces: of them the names count that any code of the
closure uses, not all of them. So a change of one computed leaves the others of its class alone: they are members,
which stand for data. Of such a member counts how it is read: its type, and the default of a cell.

`Forms` finds the form of any object, and remembers it. An object has the form of a constant, a container, a reference,
or a version that stands for it. Functions, classes and other objects of the application are references, and `describe`
returns the form of such an object by itself; all else is written where it occurs. An object may define its own content:
`__fingerprint__(self)` returns a tuple of values. That is how the application makes a client with an open connection
comparable, and how a declared member names the parts that count.

The form of a class has its name, its bases, the types of its fields with their defaults and stored names, the members
of an enum, its methods and other attributes, each as a reference. Attributes count by name, because the order of
methods does nothing; fields and enum members count in order, because that does.
"""

from __future__ import annotations

import _thread
import base64
import dataclasses
import enum
import functools
import hashlib
import sys
import types
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from types import FunctionType, ModuleType
from typing import Any, Final

import msgspec

from headwater.pieces.declarations import Declaration
from headwater.pieces.fingerprints.change_kinds import DECLARED, PYTHON, Kinds
from headwater.pieces.fingerprints.form import (
    DIGEST_BYTES,
    LIMITS,
    REFERENCE,
    Form,
    FormWriter,
    Unfingerprintable,
    atom,
)
from headwater.pieces.fingerprints.functions import CONSTANT, TYPE, annotations_form, function_form
from headwater.pieces.fingerprints.origin import RULES, CodeOrigin, Origins, name_of
from headwater.pieces.fingerprints.values import FormOf, container_form, pickled_form, scalar_form

__all__ = ["Fingerprint", "Fingerprinter", "fingerprint_of"]


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


HOOK: Final = "__fingerprint__"

_OF_PYTHON: Final = (
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
)
_PLACES: Final = (types.GetSetDescriptorType, types.MemberDescriptorType)  # which every class may have
_LOCKS: Final = (_thread.LockType, _thread.RLock)
_LRU_CACHE: Final = type(functools.lru_cache(lambda: None))


class Forms:
    """Makes forms, each once. Keeps the objects alive, so that no address is ever used twice."""

    __slots__ = ("_described", "_known", "_open", "origins")

    def __init__(self) -> None:
        self.origins = Origins()
        self._known: dict[int, tuple[object, Form]] = {}
        self._described: dict[int, tuple[object, Form | Unfingerprintable]] = {}
        self._open: set[int] = set()

    @property
    def described(self) -> int:
        """How many objects have a form, or a reason why they have none."""
        return len(self._described)

    def form_of(self, thing: object, level: int = 0) -> Form:
        """Return the form of an object where it occurs."""
        form = scalar_form(thing)
        if form is not None:
            return form
        known = self._known.get(id(thing))
        if known is not None:
            return known[1]
        if id(thing) in self._open:
            raise Unfingerprintable("contains itself")
        if level > LIMITS.level:
            raise Unfingerprintable(f"is nested more than {LIMITS.level} levels deep")
        self._open.add(id(thing))
        try:
            form = self._make(thing, level)
        finally:
            self._open.discard(id(thing))
        self._known[id(thing)] = (thing, form)
        return form

    def describe(self, thing: Any) -> Form:
        """Return the form of a referenced object by itself."""
        known = self._described.get(id(thing))
        if known is None:
            try:
                made: Form | Unfingerprintable = self._describe(thing)
            except Unfingerprintable as problem:
                made = problem
            known = self._described[id(thing)] = (thing, made)
        form = known[1]
        if isinstance(form, Unfingerprintable):
            raise Unfingerprintable(form.problem, *form.steps)  # A new one: each caller adds to its way.
        return form

    def _describe(self, thing: Any) -> Form:
        if isinstance(thing, types.FunctionType):
            return function_form(thing, self.origins, self.form_of)
        if isinstance(thing, type):
            return class_form(thing, self.form_of)
        return pickled_form(thing, 0, self.form_of)

    def _make(self, thing: Any, level: int) -> Form:
        form = container_form(thing, level, self.form_of) or self._named(thing) or self._wrapping(thing, level)
        if form is not None:
            return form
        if getattr(type(thing), HOOK, None) is not None:
            return self._said_by_itself(thing, level)
        logging = sys.modules.get("logging")
        if logging is not None and isinstance(thing, logging.Logger):
            return atom("logger")  # It answers nothing, and its name is often that of the module.
        if isinstance(thing, _LOCKS):
            return atom("lock", type(thing).__name__)
        is_record = _is_record(thing)
        if not is_record and self.origins.stands_for(type(thing)) is None:
            return Form(REFERENCE, (("", thing),))
        if not is_record and self.origins.of(type(thing).__module__) is CodeOrigin.OURS:
            return self._class(type(thing))
        return pickled_form(thing, level, self.form_of)

    def _said_by_itself(self, thing: Any, level: int) -> Form:
        try:
            parts = tuple(getattr(type(thing), HOOK)(thing))
        except Exception as error:  # The author's code.
            raise Unfingerprintable(f"{HOOK} raised {type(error).__name__}: {error}") from None
        return self._group("said", level, type(thing), parts)

    # ---- things that have a name -------------------------------------------------------------------------

    def _named(self, thing: Any) -> Form | None:
        if isinstance(thing, type):
            return self._class(thing)
        if isinstance(thing, types.FunctionType):
            return self._function(thing)
        if isinstance(thing, types.ModuleType):
            version = self.origins.stands_for(thing)
            return (
                Form(REFERENCE, (("", thing),))
                if version is None
                else atom("module", f"{version} {thing.__name__}", version)
            )
        if isinstance(thing, types.BuiltinFunctionType):
            return self._builtin(thing)
        if isinstance(thing, _OF_PYTHON):
            owner = thing.__objclass__
            version = self.origins.stands_for(owner)
            if version is None and not isinstance(thing, _PLACES):
                raise _compiled(thing)
            return atom("descriptor", f"{version} {owner.__name__}.{thing.__name__}", version or "")
        return None

    def _class(self, cls: type[Any]) -> Form:
        version = self.origins.stands_for(cls)
        if version is None:
            return Form(REFERENCE, (("", cls),))
        return atom("class", f"{version} {name_of(cls.__module__, cls.__qualname__)}", version)

    def _function(self, function: types.FunctionType) -> Form:
        version = self.origins.stands_for(function)
        if version is None or function.__closure__:
            return Form(REFERENCE, (("", function),))
        name = name_of(function.__globals__.get("__name__"), function.__qualname__)
        return atom("function", f"{version} {name}", version)

    def _builtin(self, function: Any) -> Form:
        on = function.__self__
        if on is not None and not isinstance(on, types.ModuleType):
            return self._group(function.__name__, 0, on)
        version = self.origins.stands_for(function)
        if version is None:
            raise _compiled(function)
        return atom("builtin", f"{version} {function.__module__}.{function.__qualname__}", version)

    # ---- things around others ----------------------------------------------------------------------------

    def _wrapping(self, thing: Any, level: int) -> Form | None:
        match thing:
            case types.MethodType():
                return self._group("method", level, thing.__func__, thing.__self__)
            case types.MethodWrapperType():
                return self._group(thing.__name__, level, thing.__self__)
            case staticmethod() | classmethod():
                return self._group(type(thing).__name__, level, thing.__func__)
            case property():
                return self._group(type(thing).__name__, level, thing.fget, thing.fset, thing.fdel)
            case functools.partial() | functools.partialmethod():
                named = [*thing.keywords.items()]
                return self._group(type(thing).__name__, level, type(thing), thing.func, thing.args, named)
            case functools.cached_property():
                return self._group("cached_property", level, type(thing), thing.func)
            case functools.singledispatchmethod():
                return self._group("singledispatchmethod", level, thing.dispatcher)
            case _ if isinstance(thing, _LRU_CACHE):
                return self._group("lru_cache", level, thing.__wrapped__, thing.cache_parameters())
            case _:
                return None

    def _group(self, tag: str, level: int, *parts: object) -> Form:
        writer = FormWriter(tag)
        for part in parts:
            writer.put(self.form_of(part, level + 1))
        return writer.form()


def _compiled(thing: Any) -> Unfingerprintable:
    return Unfingerprintable("is compiled code without a version", f" -> <{thing.__qualname__}>")


def _is_record(thing: Any) -> bool:
    """Whether it is a value, equal to any other with the same fields."""
    if isinstance(thing, (enum.Enum, msgspec.Struct)):
        return True
    if isinstance(thing, tuple) and hasattr(thing, "_fields"):
        return True
    parameters = getattr(type(thing), "__dataclass_params__", None)
    return dataclasses.is_dataclass(thing) and bool(getattr(parameters, "frozen", False))


ClassNames = tuple[list[type[Any]], set[str], set[str]]
"""The classes that define the names of a class, its names, and the names of its special methods."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """The fingerprint of a node's code. Equal digests mean the same code; None means that it is unknown."""

    digest: str | None
    why: str = ""
    """The object that could not be fingerprinted, and the way there; empty if there is a digest."""
    kinds: str = dataclasses.field(default="", compare=False)
    """Its contents by kind (see `fingerprints.change_kinds`): says which kind of thing changed, and never whether it
    did.
    """


class Fingerprinter:
    """Makes fingerprints, and remembers the forms of objects. One serves a whole program."""

    __slots__ = ("_classes", "_forms")

    def __init__(self) -> None:
        self._forms = Forms()
        self._classes: dict[type[Any], ClassNames] = {}

    @property
    def described(self) -> int:
        """How many functions, classes and other objects it has looked at, each of them once."""
        return self._forms.described

    def of(
        self,
        fn: object,
        *,
        owner: type[Any] | None = None,
        types: Iterable[object] = (),
        extra: Iterable[object] = (),
    ) -> Fingerprint:
        """Return the fingerprint of a function (or anything that can be called) of the class `owner`.

        `types` are those of the values that it reads and writes, `extra` are options and other values that decide its
        behaviour.
        """
        name = str(getattr(fn, "__name__", None) or f"<{type(fn).__name__}>")
        title = f"{owner.__name__}.{name}" if owner is not None else name
        walk = _Walk(self._forms, self._classes, owner)
        walk.start(title, fn, (("", fn), (" -> types", tuple(types)), (" -> extra", tuple(extra))))
        return walk.finish()


def fingerprint_of(
    fn: object, *, owner: type[Any] | None = None, types: Iterable[object] = (), extra: Iterable[object] = ()
) -> Fingerprint:
    """One fingerprint. For many, a `Fingerprinter` is faster: it looks at each object once."""
    return Fingerprinter().of(fn, owner=owner, types=types, extra=extra)


class _Walk:
    """From one function to all that it refers to, nearest first. Numbers objects in the order it meets them, so that
    the digest says which references lead to the same object, whatever their addresses are."""

    __slots__ = (
        "_classes",
        "_digest",
        "_forms",
        "_is_dynamic",
        "_kinds",
        "_names",
        "_namespaces",
        "_numbers",
        "_owner",
        "_queue",
        "_reasons",
        "_roots",
    )

    def __init__(self, forms: Forms, classes: dict[type[Any], ClassNames], owner: type[Any] | None) -> None:
        self._forms = forms
        self._classes = classes  # results of `_members_of`
        self._owner = owner
        self._digest = hashlib.blake2b(f"headwater {RULES} {PYTHON};".encode(), digest_size=DIGEST_BYTES)
        self._numbers: dict[int, int] = {}
        self._queue: deque[tuple[str, Any]] = deque()
        self._names: set[str] = set()
        self._is_dynamic = False
        self._namespaces: list[tuple[str, Any, set[str]]] = []  # with the names of it that were taken already
        self._reasons: list[str] = []
        self._roots: set[int] = set()  # functions whose code is the member's own
        self._kinds = Kinds()

    def start(self, title: str, fn: object, roots: Sequence[tuple[str, object]]) -> None:
        """Take in the roots of the walk."""
        self._roots = {id(fn), *(id(each) for _, root in roots[1:] if isinstance(root, tuple) for each in root)}
        if self._owner is not None:
            # It is there from the beginning, because `self` is.
            self._numbers[id(self._owner)] = 0
            self._namespaces.append((title, self._owner, set()))
        for step, root in roots:
            self._take(root, title + step, DECLARED)

    def finish(self) -> Fingerprint:
        """Follow every reference."""
        while not self._is_over():
            while self._queue and not self._is_over():
                way, thing = self._queue.popleft()
                if self._is_namespace(thing):
                    self._namespaces.append((way, thing, set()))
                    self._absorb(way, self._identity(thing), TYPE)
                    continue
                try:
                    self._absorb(way, self._forms.describe(thing), CONSTANT, is_called=id(thing) not in self._roots)
                except Unfingerprintable as problem:
                    self._refuse(way, problem)
            if not self._take_from_namespaces():
                break
        if self._reasons:
            return Fingerprint(digest=None, why="; ".join(self._reasons))
        digest = base64.b32hexencode(self._digest.digest()).decode("ascii").lower()
        return Fingerprint(digest=digest, kinds=self._kinds.text(PYTHON))

    def _is_over(self) -> bool:
        return len(self._reasons) >= LIMITS.reasons

    def _take(self, thing: object, way: str, kind: str) -> None:
        try:
            self._absorb(way, self._forms.form_of(thing), kind)
        except Unfingerprintable as problem:
            self._refuse(way, problem)

    def _absorb(self, way: str, form: Form, kind: str, *, is_called: bool = False) -> None:
        self._kinds.take(form, kind, is_called=is_called)
        self._digest.update(b"%d:%b" % (len(form.token), form.token))
        for step, referred in form.refs:
            number = self._numbers.get(id(referred))
            if number is None:
                number = self._numbers[id(referred)] = len(self._numbers)
                if number >= LIMITS.objects:
                    self._refuse(way, Unfingerprintable(f"refers to more than {LIMITS.objects:,} objects"))
                    return
                self._queue.append((way + step, referred))
            self._digest.update(b"&%d" % number)
        self._digest.update(b";")
        self._names |= form.names
        self._is_dynamic |= form.is_dynamic

    def _refuse(self, way: str, problem: Unfingerprintable) -> None:
        if not self._is_over():
            self._reasons.append(f"{way}{problem.way()}: {problem.problem}")

    # ---- namespaces -----------------------------------------------------------------------------------------

    def _is_namespace(self, thing: object) -> bool:
        if isinstance(thing, type):
            return thing is self._owner or hasattr(thing, "__schema__")  # a class with a schema is a piece
        return isinstance(thing, ModuleType)

    def _identity(self, thing: Any) -> Form:
        schema = getattr(thing, "__schema__", None) if isinstance(thing, type) else None
        return self._forms.form_of("" if schema is None else str(schema.name))

    def _take_from_namespaces(self) -> bool:
        """Take the names that the code found so far uses in them. Answers whether any was new."""
        is_new = False
        for number, (way, thing, taken) in enumerate(self._namespaces):
            for name, value, step in list(self._wanted(thing, taken)):
                is_new = True
                taken.add(name)
                self._digest.update(f"{number}.{name};".encode())
                self._take(value, way + step, DECLARED if isinstance(value, Declaration) else CONSTANT)
        return is_new

    def _wanted(self, thing: Any, taken: set[str]) -> Iterator[tuple[str, object, str]]:
        if isinstance(thing, ModuleType):
            for name in sorted(self._among(set(vars(thing)) - taken)):
                yield name, vars(thing)[name], f".{name}"
            return
        homes, names, special = self._members_of(thing)
        for name in sorted((self._among(names) | special) - taken):
            for cls in homes:  # Also overridden ones: super() reaches them.
                if name in vars(cls):
                    yield name, vars(cls)[name], f" -> {cls.__name__}.{name}"

    def _members_of(self, cls: type[Any]) -> ClassNames:
        """Return where the names of a class come from: looked up once, since each member of the class asks."""
        found = self._classes.get(cls)
        if found is None:
            homes = [each for each in cls.__mro__ if self._forms.origins.stands_for(each) is None]
            names = {name for each in homes for name in vars(each)} - IGNORED
            # Python calls a special method without naming it.
            dunders = [name for name in names if name.startswith("__")]
            special = {name for name in dunders if any(_is_method(each, name) for each in homes)}
            found = self._classes[cls] = (homes, names, special)
        return found

    def _among(self, names: set[str]) -> set[str]:
        if self._is_dynamic:
            return {name for name in names if not name.startswith("__")}
        return names & self._names


def _is_method(cls: type[Any], name: str) -> bool:
    return isinstance(vars(cls).get(name), FunctionType)
