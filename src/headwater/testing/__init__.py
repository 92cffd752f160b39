"""Testing: what authors test their pieces with, and the verifiers that ship.

`simulated` and `Simulation` are for authors. The rest are naive models, random schedules, a disk that fails, and the
harnesses that use them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.testing.author_seeds import simulated
    from headwater.testing.author_simulation import Simulation

__all__ = ["Simulation", "simulated"]

# Loaded on first use: whoever imports a verifier, or a test framework its plugin, need not load a runtime.
_HOMES = {"Simulation": "headwater.testing.author_simulation", "simulated": "headwater.testing.author_seeds"}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(_HOMES[name]), name)
    return value
