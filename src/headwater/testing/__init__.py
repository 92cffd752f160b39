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
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'headwater.testing' has no attribute {name!r}")
    value: object = getattr(importlib.import_module(home), name)
    globals()[name] = value  # So that this function is asked once per name.
    return value
