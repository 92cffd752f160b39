"""Which installed distributions a module is from, with their versions.

Owns the questions about what is installed. Never decides what such a version stands for: `origin` does, and imports
this module only when a program names a package, because reading what is installed is slow.
"""

from __future__ import annotations

import importlib.metadata
import sys

__all__ = ["Packages"]


class Packages:
    """Answers for the top names of modules."""

    __slots__ = ("_distributions",)

    def __init__(self) -> None:
        self._distributions: dict[str, list[str]] | None = None

    def versions(self, top: str) -> str:
        """`name==version` of each distribution that has this module; empty if none has."""
        names = [top] if self._is_alone(top) else sorted(self._distributing(top))
        return ",".join(f"{name}=={importlib.metadata.version(name)}" for name in names)

    def _is_alone(self, top: str) -> bool:
        """Whether the distribution of the same name is where the module is from. Mostly it is, and that is fast."""
        if getattr(sys.modules.get(top), "__file__", None) is None:
            return False  # A namespace that several may share.
        try:
            files = importlib.metadata.files(top) or ()
        except importlib.metadata.PackageNotFoundError:
            return False
        return any(file.parts[0].partition(".")[0] == top for file in files)

    def _distributing(self, top: str) -> set[str]:
        if self._distributions is None:
            self._distributions = dict(importlib.metadata.packages_distributions())  # reads all records, so: once
        return set(self._distributions.get(top, ()))
