"""The sentinel for "there is nothing here".

Owns `ABSENT`, which is distinct from every value, `None` included. It is never stored, encoded or frozen.
Invariant: one member, so that `x is ABSENT` narrows types and costs one comparison.
"""

from __future__ import annotations

import enum
from typing import Final, Literal

__all__ = ["ABSENT", "Absent"]


class Absent(enum.Enum):
    """The type of `ABSENT`."""

    ABSENT = "absent"

    def __repr__(self) -> str:
        return "ABSENT"

    def __bool__(self) -> Literal[False]:
        return False


ABSENT: Final = Absent.ABSENT
