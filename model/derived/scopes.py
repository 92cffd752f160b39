"""Which schedules are checked, in three sizes: how many random ones, and all schedules of which scripts."""

from __future__ import annotations

from typing import Final

from model.derived.explore import Script
from model.derived.world import Move

_THERE_AND_BACK: Final[tuple[Move, ...]] = (("set", 0, "x", 1), ("set", 0, "x", 0))
_A_SETS: Final[tuple[Move, ...]] = (("set", 0, "x", 1),)
_B_SETS: Final[tuple[Move, ...]] = (("set", 1, "x", 2),)
_B_SETS_Y: Final[tuple[Move, ...]] = (("set", 1, "y", 2),)
_B_DELETES: Final[tuple[Move, ...]] = (("delete", 1, "", 0),)

THERE_AND_BACK: Final = Script("there and back", (_THERE_AND_BACK,))
TWO_WRITERS: Final = Script("two writers", (_A_SETS, _B_SETS))

QUICK: Final = (THERE_AND_BACK, TWO_WRITERS)

FULL: Final = (
    Script("there and back, lost", (_THERE_AND_BACK,), losses=1),
    Script("one node in both", (_A_SETS,), wanted=("a", "a")),
    Script("a reader of a node", (_A_SETS, _B_SETS_Y), wanted=("b", "")),
    Script("a piece deleted", (_A_SETS, _B_DELETES), wanted=("d", "")),
)

VAST: Final = (
    Script("there and back in both", (_THERE_AND_BACK,), wanted=("a", "a")),
    Script("two writers, lost", (_A_SETS, _B_SETS), losses=1),
    Script("a piece deleted, lost", (_A_SETS, _B_DELETES), wanted=("d", ""), losses=1),
)

LEVELS: Final = {"quick": QUICK, "full": QUICK + FULL, "vast": QUICK + FULL + VAST}
SEEDS: Final = {"quick": 200, "full": 2_000, "vast": 20_000}
