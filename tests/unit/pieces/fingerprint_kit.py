"""Small programs for the tests of fingerprints: modules made from text, as if they had been imported."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from headwater.pieces.fingerprints.fingerprint import Fingerprint, Fingerprinter

__all__ = ["digest", "fingerprint", "program", "why"]


@contextmanager
def program(**sources: str) -> Iterator[dict[str, ModuleType]]:
    """The modules of a program, by name; they are imported in the order they are given."""
    made = {}
    kept = {name: sys.modules[name] for name in sources if name in sys.modules}
    try:
        for name, source in sources.items():
            module = made[name] = sys.modules[name] = ModuleType(name)
            module.__file__ = f"/app/{name}.py"
            exec(compile(textwrap.dedent(source), module.__file__, "exec"), vars(module))
        yield made
    finally:
        for name in sources:
            sys.modules.pop(name, None)
        sys.modules.update(kept)


def fingerprint(shop: str, what: str = "total", **others: str) -> Fingerprint:
    """Of `what` in the module `shop`, which may be `Cart.total`. The other modules are imported before."""
    with program(**others, shop=shop) as modules:
        found: Any = modules["shop"]
        owner = None
        for step in what.split("."):
            owner = found if isinstance(found, type) else None
            found = vars(found)[step]
        return Fingerprinter().of(found, owner=owner)


def digest(shop: str, what: str = "total", **others: str) -> str:
    """The digest, which there has to be."""
    made = fingerprint(shop, what, **others)
    assert made.digest is not None, made.why
    assert made.why == ""
    return made.digest


def why(shop: str, what: str = "total", **others: str) -> str:
    """The reason why there is no digest."""
    made = fingerprint(shop, what, **others)
    assert made.digest is None
    return made.why
