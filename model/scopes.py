"""Which workloads are checked, in three sizes. README.md says how they are named.

`full` is what `./dev sim` runs; `./dev test` runs parts of the first two of `quick`. `vast` takes half an hour on
two cores, and is for whoever changes a rule.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from model.workload import BLIND, OF_BOTH, READING, Conditions, Kind, Scope

_DETAIL: Final = Conditions(groups=True, offline=True, frames=True)
_NO_ACKS: Final = Conditions(acknowledgements=False)
FEW: Final = (Kind("", "x"), Kind("x", "x"), Kind("x", "y"))
"""Kinds that suffice for the mistakes that a third commit reveals."""

TWO_AND_ONE: Final = Scope(name="2+1", commits=(2, 1))

QUICK: Final = (
    Scope(name="1+1 in detail", commits=(1, 1), conditions=replace(_DETAIL, copies=1)),
    TWO_AND_ONE,
    Scope(name="3+1 of few kinds", commits=(3, 1), kinds=FEW, conditions=replace(_NO_ACKS, refusals=False)),
    Scope(name="1+1+1", commits=(1, 1, 1)),
)

FULL: Final = (
    Scope(name="2+2", commits=(2, 2), conditions=_NO_ACKS),
    Scope(name="3+1", commits=(3, 1), conditions=_NO_ACKS),
    Scope(name="2+1 in detail", commits=(2, 1), conditions=_DETAIL),
    Scope(name="2+1 with copies", commits=(2, 1), conditions=Conditions(copies=1)),
)

VAST: Final = (
    Scope(name="2+2 with acks", commits=(2, 2)),
    Scope(name="3+1 with acks", commits=(3, 1)),
    Scope(name="2+2 reading both", commits=(2, 2), kinds=BLIND + READING + OF_BOTH, conditions=_NO_ACKS),
    Scope(name="3+2 of few kinds", commits=(3, 2), kinds=FEW, conditions=_NO_ACKS),
    Scope(name="2+1+1", commits=(2, 1, 1), conditions=_NO_ACKS),
)

LEVELS: Final = {"quick": QUICK, "full": QUICK + FULL, "vast": QUICK + FULL + VAST}
