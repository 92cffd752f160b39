"""Test kits: simulations for authors, and the harnesses that check Headwater itself.

Authors import `simulated` and `Simulation` from here; pytest loads `author_plugin`. The rooms, from the top:

- `author`: `@simulated` and the world of one seed. Start with `author.simulation`.
- `differential`: the engine and the naive model of `engine.verify` play the same random schedules. Start with
  `harness`.
- `simulation`: a server and several replicas with faults, checked after every step. Start with
  `simulation.simulation`.
- `scheduler`: a world of nodes without an engine, for tests of the scheduler. Start with `scheduler.kit`.
- `disk`: a disk that fails, and the harness that kills an engine at every point of a workload. Start with `disk.model`.
- `network`: connections in virtual time that are slow, break and freeze.

Imported by tests only: no other package imports this one. It may import every layer except `cli`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.testing.author.seeds import simulated
    from headwater.testing.author.simulation import Simulation

__all__ = ["Simulation", "simulated"]

# Loaded on first use: an import of a verifier or of the pytest plugin need not load a runtime.
_HOMES = {"Simulation": "headwater.testing.author.simulation", "simulated": "headwater.testing.author.seeds"}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(_HOMES[name]), name)
    return value
