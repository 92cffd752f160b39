"""Names of a package that are loaded when they are first used.

A package lists the names that other packages and tests may import, and this module loads the defining module on first
access. Importing the package itself therefore stays cheap, and a module can move inside its package without a change
for its importers.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping

__all__ = ["load_on_use"]


def load_on_use(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """Return a module-level `__getattr__` for `package`. `homes` maps each name to the module that defines it."""

    def __getattr__(name: str) -> object:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(importlib.import_module(home), name)
        setattr(sys.modules[package], name, value)  # The next access does not come here.
        return value

    return __getattr__
