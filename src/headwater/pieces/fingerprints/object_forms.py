"""The form of any object, remembered.

An object has the form of a constant, a container, a reference, or a version that stands for it. Functions, classes and
other objects of the application are references, and `describe` returns the form of such an object by itself; all else
is written where it occurs. References are followed by `fingerprint`.

An object may define its own content: `__fingerprint__(self)` returns a tuple of values. That is how the application
makes a client with an open connection comparable, and how a declared member names the parts that count.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import sys
import types
from typing import Any, Final

import msgspec

from headwater.pieces.fingerprints.classes import class_form
from headwater.pieces.fingerprints.form import LIMITS, REFERENCE, Form, FormWriter, Unfingerprintable, atom
from headwater.pieces.fingerprints.functions import function_form
from headwater.pieces.fingerprints.origin import Origin, Origins, name_of
from headwater.pieces.fingerprints.values import container_form, pickled_form, scalar_form

__all__ = ["HOOK", "Forms"]

HOOK: Final = "__fingerprint__"

_OF_PYTHON: Final = (
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
)
_PLACES: Final = (types.GetSetDescriptorType, types.MemberDescriptorType)  # which every class may have
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
        is_record = _is_record(thing)
        if not is_record and self.origins.stands_for(type(thing)) is None:
            return Form(REFERENCE, (("", thing),))
        if not is_record and self.origins.of(type(thing).__module__) is Origin.OURS:
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
