"""Functions: their code, and what it stands on.

Owns the form of a function of Python and how the names in its code become objects: closures, defaults, the types in
its annotations, the globals that it names, what it imports while it runs. Never describes those objects.

A name that the code takes from one of the application's modules at once (`helpers.tax`) is that object. A module that
goes elsewhere (`f(helpers)`) is a reference, of which every name counts that any code of the closure uses.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import importlib.util
import operator
import sys
import typing
from types import CellType, FunctionType, ModuleType, SimpleNamespace
from typing import Any, Final

from headwater.pieces.fingerprints.code import CodeParts, Import, take_apart
from headwater.pieces.fingerprints.form import Form, FormWriter, Unfingerprintable, atom
from headwater.pieces.fingerprints.origin import Origin, Origins, canonical_module
from headwater.pieces.fingerprints.values import FormOf

__all__ = ["CODE", "CONSTANT", "DEFAULT", "TYPE", "annotations_form", "function_form"]

# What a function is made of.
CODE: Final = "code"
CONSTANT: Final = "constant"
DEFAULT: Final = "default"
TYPE: Final = "type"

# What a module says about itself. It differs between machines, and between a script and the same file imported.
_ABOUT_THE_MODULE: Final = frozenset(
    {"__builtins__", "__cached__", "__doc__", "__file__", "__loader__", "__package__", "__path__", "__spec__"}
)
# With these, the names that the code uses are not all in the code.
_LOOKS_UP: Final = (getattr, vars, dir, operator.attrgetter, operator.methodcaller)
_RUNS_ANYTHING: Final = (eval, exec, compile, globals, __import__, importlib.import_module)


def function_form(function: FunctionType, origins: Origins, form_of: FormOf) -> Form:
    """What the function is by itself. Code that a version stands for counts by that version, and by its closure."""
    writer = FormWriter("function")
    module = function.__globals__.get("__name__")
    version = origins.stands_for(function)
    if version is None:
        _put_code(writer, function, take_apart(function.__code__), origins, form_of)
        writer.of_kind(DEFAULT)
        _put(writer, function.__defaults__, " -> defaults", form_of)
        _put(writer, function.__kwdefaults__, " -> defaults", form_of)
        writer.of_kind(TYPE)
        writer.put(annotations_form(function, function.__globals__, form_of), "")
        writer.of_kind(CONSTANT)
        _put(writer, sorted(vars(function).items()), " -> attributes", form_of)
    else:
        writer.of_kind(CODE)
        writer.put(atom("version", f"{version} {module}.{function.__qualname__}", version))
        writer.of_kind(CONSTANT)
    registry = getattr(function, "registry", None)
    if module == "functools" and registry is not None:  # singledispatch: the rest of its closure is a cache
        _put(writer, list(registry.items()), " -> registry", form_of)
        return writer.form()
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        writer.text(name)
        _put(writer, _content(cell, name), f" -> {name}", form_of)
    return writer.form()


def _content(cell: CellType, name: str) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        raise Unfingerprintable(
            "is a variable of the function around it that has no value yet", f" -> {name}"
        ) from None


def _put(writer: FormWriter, value: object, step: str, form_of: FormOf) -> None:
    try:
        writer.put(form_of(value, 0), step)
    except Unfingerprintable as problem:
        problem.steps.append(step)
        raise


def _put_code(writer: FormWriter, function: FunctionType, parts: CodeParts, origins: Origins, form_of: FormOf) -> None:
    writer.of_kind(CODE)
    for piece in parts.shape:
        writer.bytes(piece)
    for constant in parts.constants:
        writer.put(form_of(constant, 0))
    writer.of_kind(CONSTANT)
    is_dynamic = "__dict__" in parts.names
    for chain in parts.chains:
        if chain[0] in _ABOUT_THE_MODULE:
            continue
        if chain[0] == "__name__":
            writer.text(canonical_module(str(function.__globals__.get("__name__"))))
            continue
        found, used = _resolve(chain, function.__globals__, parts.own_names, origins)
        if found is _NOTHING:
            continue
        step = f" -> {'.'.join(used)}"
        if any(found is each for each in _RUNS_ANYTHING):
            raise Unfingerprintable("reaches code that only shows when it runs", step)
        is_dynamic |= any(found is each for each in _LOOKS_UP)
        writer.of_kind(CODE)
        writer.text(".".join(used))
        writer.of_kind(CONSTANT)
        _put(writer, found, step, form_of)
    for wanted in parts.imports:
        _put_import(writer, wanted, function, origins, form_of)
    writer.uses(parts.names, is_dynamic=is_dynamic)


_NOTHING: Final = object()


def _resolve(
    chain: tuple[str, ...], names: dict[str, Any], own_names: set[str], origins: Origins
) -> tuple[object, tuple[str, ...]]:
    """The object that the chain leads to through the application's modules, and the names that led there."""
    first = chain[0]
    if first in names:
        found = names[first]
    elif hasattr(builtins, first):
        found = getattr(builtins, first)
    elif first in own_names:
        return _NOTHING, ()
    else:
        raise Unfingerprintable("is a name that is not defined", f" -> {first}")
    for at, name in enumerate(chain[1:], 1):
        if not isinstance(found, ModuleType):
            return found, chain[:at]
        if origins.stands_for(found) is not None:
            # Its version stands for what is in it, and the code says which name it takes. Some change the rules.
            taken = vars(found).get(name)
            is_special = any(taken is each for each in (*_LOOKS_UP, *_RUNS_ANYTHING))
            return (taken, chain[: at + 1]) if is_special else (found, chain[:at])
        found = _of_module(found, name, chain[: at + 1])
    return found, chain


def _of_module(module: ModuleType, name: str, way: tuple[str, ...]) -> Any:
    try:
        return getattr(module, name)
    except AttributeError:
        raise Unfingerprintable("is a name that is not defined", f" -> {'.'.join(way)}") from None


def _put_import(writer: FormWriter, wanted: Import, function: FunctionType, origins: Origins, form_of: FormOf) -> None:
    name = wanted.module
    step = f" -> import {name}"
    if wanted.level:
        package = function.__globals__.get("__package__") or ""
        try:
            name = importlib.util.resolve_name("." * wanted.level + wanted.module, package)
        except ImportError:
            raise Unfingerprintable("is imported from a package that is not known", step) from None
    if origins.of(name) is not Origin.APPLICATION:
        writer.put(atom("import", f"{origins.version(name)} {name}", origins.version(name)))
        return
    module = sys.modules.get(name)
    if module is None:
        raise Unfingerprintable("is imported only while the code runs: import it where the module begins", step)
    if not wanted.names:
        _put(writer, sys.modules[name.partition(".")[0]], step, form_of)
        _put(writer, module, step, form_of)
    for each in wanted.names:
        found = sys.modules.get(f"{name}.{each}") if not hasattr(module, each) else getattr(module, each)
        if found is None and not hasattr(module, each):
            raise Unfingerprintable("is a name that is not defined", f" -> {name}.{each}")
        writer.of_kind(CODE)
        writer.text(each)
        writer.of_kind(CONSTANT)
        _put(writer, found, f" -> {name}.{each}", form_of)


def annotations_form(thing: Any, names: dict[str, Any], form_of: FormOf, local: dict[str, Any] | None = None) -> Form:
    """The types in the annotations of a function or class. One that cannot be resolved counts by its text."""
    writer = FormWriter("annotations")
    try:
        written: dict[str, Any] = getattr(thing, "__annotations__", {})
    except NameError:  # Python 3.14 resolves them when they are asked for, and all or none.
        annotate = getattr(thing, "__annotate__", None)
        writer.put(Form(b"lazy", ((" -> annotations", annotate),)))
        return writer.form()
    if not written:
        return writer.form()
    try:
        types = typing.get_type_hints(thing, names, local, include_extras=True)
    except Exception:  # A name that only a type checker sees, or any other text: each for itself, then.
        types = {}
        for name, annotation in written.items():
            with contextlib.suppress(Exception):
                alone = SimpleNamespace(__annotations__={name: annotation})
                types |= typing.get_type_hints(alone, names, local, include_extras=True)
    for name, annotation in written.items():
        writer.text(name)
        _put(writer, types.get(name, annotation), f" -> {name}", form_of)
    return writer.form()
