"""The origin of a module, and the version that stands for its code.

All code is divided into four parts: the application's, which is fingerprinted object by object; the standard
library's, for which the version of Python stands; an installed package's, for which its name and version stand; and
Headwater's own, for which `RULES` stands. Nothing is imported, and no module is looked into.

A module in site-packages that belongs to no installed distribution has no version, and counts as the application's. So
does a package that is installed in place (editable): it changes without a new version. `Packages` reads the installed
distributions, which is slow, when a program first names a package.
"""

from __future__ import annotations

import enum
import importlib.machinery
import importlib.util
import sys
import sysconfig
from pathlib import PurePath
from types import FunctionType, ModuleType
from typing import Any, Final

__all__ = ["RULES", "CodeOrigin", "Origins", "Packages", "canonical_module", "name_of"]


RULES: Final = 1
"""Which version of our own rules a fingerprint was made under. Raised whenever Headwater comes to compute something
else from the same program: every stored fingerprint is then another one, and every node runs once more."""

_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})
_OURS: Final = __name__.partition(".")[0]


_MADE_AT_RUN_TIME: Final = 1 << 9  # A heap type, in CPython.


class CodeOrigin(enum.Enum):
    """Whose code it is."""

    APPLICATION = "application"
    STANDARD = "standard"
    PACKAGE = "package"
    OURS = "ours"


def name_of(module: object, qualname: str) -> str:
    """The name of a class or function of a library in a fingerprint.

    A public name of Headwater is written without the module that defines it: moving a module changes no fingerprint.
    """
    if isinstance(module, str) and module.partition(".")[0] == _OURS:
        public: tuple[str, ...] = tuple(getattr(sys.modules.get(_OURS), "__all__", ()))
        if qualname.partition(".")[0] in public:
            return f"{_OURS}.{qualname}"
    return f"{module}.{qualname}"


def canonical_module(name: str) -> str:
    """The name of a module, also when it was started as a script."""
    if name != "__main__":
        return name
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return str(spec.name)
    file = getattr(main, "__file__", None)
    return PurePath(file).stem if file else name


class Origins:
    """Answers for module names, and remembers."""

    __slots__ = ("_known", "_library", "_packages")

    def __init__(self) -> None:
        self._known: dict[str, tuple[CodeOrigin, str]] = {}
        self._packages: Packages | None = None
        paths = sysconfig.get_paths()
        self._library = tuple({PurePath(paths[key]) for key in ("stdlib", "platstdlib")})

    def of(self, module: str | None) -> CodeOrigin:
        """Whose module this is. Something without a module is a type or function of Python itself."""
        return self._look(module)[0]

    def version(self, module: str | None) -> str:
        """Return the version that stands for a module that is not the application's."""
        return self._look(module)[1]

    def _look(self, module: str | None) -> tuple[CodeOrigin, str]:
        name = module or "builtins"
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = self._decide(name)
        return known

    def _decide(self, name: str) -> tuple[CodeOrigin, str]:
        top = name.partition(".")[0]
        if top == _OURS:
            return CodeOrigin.OURS, f"headwater rules {RULES}"
        if top == "builtins" or top in sys.builtin_module_names:
            return CodeOrigin.STANDARD, "python"
        file = self._file(name, top)
        if file is None:
            # Frozen, or never a file: `__main__` of an interpreter, a class made by a factory with a name of its own.
            return (CodeOrigin.STANDARD, "python") if top in sys.stdlib_module_names else (CodeOrigin.APPLICATION, "")
        if _INSTALLED.intersection(file.parts):
            versions = self._versions(top)
            return (CodeOrigin.PACKAGE, versions) if versions else (CodeOrigin.APPLICATION, "")
        if top in sys.stdlib_module_names and any(file.is_relative_to(library) for library in self._library):
            return CodeOrigin.STANDARD, "python"
        return CodeOrigin.APPLICATION, ""

    def _file(self, name: str, top: str) -> PurePath | None:
        module = sys.modules.get(name) or sys.modules.get(top)
        if module is None:
            return self._spec_file(top)
        file = getattr(module, "__file__", None)
        if file is None:
            places = list(getattr(module, "__path__", ()))  # A namespace package has places and no file.
            return PurePath(places[0]) if places else None
        return PurePath(file)

    def _spec_file(self, top: str) -> PurePath | None:
        try:
            spec: importlib.machinery.ModuleSpec | None = importlib.util.find_spec(top)
        except (ImportError, ValueError):  # Nothing to be found: as a module without a file.
            return None
        if spec is None or spec.origin in (None, "built-in", "frozen"):
            return None
        return PurePath(str(spec.origin))

    def _versions(self, top: str) -> str:
        if self._packages is None:
            self._packages = Packages()
        return self._packages.versions(top)

    def stands_for(self, thing: Any) -> str | None:
        """The version that stands for a module, a class or a function; None where it is the application's."""
        if isinstance(thing, ModuleType):
            name: object = thing.__name__
        elif isinstance(thing, FunctionType):
            # Where its code looks names up: a decorator may have given it the `__module__` of the wrapped function.
            # Code
            # that was made while the program ran counts as the application's, also if a library made it.
            name = thing.__globals__.get("__name__")
            file = thing.__code__.co_filename
            if not isinstance(name, str) or (file.startswith("<") and not file.startswith("<frozen ")):
                return None
        else:
            name = getattr(thing, "__module__", None)
            if isinstance(thing, type) and not _is_at_home(thing):
                return None
        origin, version = self._look(name if isinstance(name, str) else None)
        return None if origin is CodeOrigin.APPLICATION else version


def _is_at_home(cls: type[Any]) -> bool:
    """Whether the class is defined by its module, and not made there for another one, as `make_dataclass` does."""
    if not cls.__flags__ & _MADE_AT_RUN_TIME:
        return True
    found: Any = sys.modules.get(cls.__module__)
    for name in cls.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is cls


class Packages:
    """Answers for the top names of modules."""

    __slots__ = ("_distributions",)

    def __init__(self) -> None:
        self._distributions: dict[str, list[str]] | None = None

    def versions(self, top: str) -> str:
        """`name==version` of each distribution that has this module; empty if none has."""
        import importlib.metadata  # noqa: PLC0415 (slow, and seldom needed)

        names = [top] if self._is_alone(top) else sorted(self._distributing(top))
        return ",".join(f"{name}=={importlib.metadata.version(name)}" for name in names)

    def _is_alone(self, top: str) -> bool:
        """Whether the distribution of the same name is where the module is from. Mostly it is, and that is fast."""
        if getattr(sys.modules.get(top), "__file__", None) is None:
            return False  # A namespace that several may share.
        import importlib.metadata  # noqa: PLC0415

        try:
            files = importlib.metadata.files(top) or ()
        except importlib.metadata.PackageNotFoundError:
            return False
        return any(file.parts[0].partition(".")[0] == top for file in files)

    def _distributing(self, top: str) -> set[str]:
        if self._distributions is None:
            import importlib.metadata  # noqa: PLC0415

            self._distributions = dict(importlib.metadata.packages_distributions())  # reads all records, so: once
        return set(self._distributions.get(top, ()))
