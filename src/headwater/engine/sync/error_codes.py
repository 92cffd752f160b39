"""Codes of problems on the wire: a peer's program acts on the code; the message beside it is for people.

Also makes the verdict on a frame over a limit. Never decides whether a connection goes on.
"""

from __future__ import annotations

from typing import Final

from headwater.errors import (
    AbsentError,
    AccessError,
    CorruptionError,
    HeadwaterError,
    LimitError,
    MovedError,
    NewerVersionError,
    NotASpaceError,
    StorageError,
)
from headwater.protocol.commit import Frame
from headwater.protocol.messages import Problem
from headwater.protocol.verdict import Rejected, RuleRefused, Verdict

CODES: Final = {LimitError: "limit", AbsentError: "absent", StorageError: "storage", AccessError: "access"}


def problem_code(error: HeadwaterError) -> str:
    """Return the code that a peer's program can act on."""
    return next((code for kind, code in CODES.items() if isinstance(error, kind)), "protocol")


LASTING: Final[dict[str, type[StorageError]]] = {
    "damaged": CorruptionError,
    "moved": MovedError,
    "newer": NewerVersionError,
    "foreign": NotASpaceError,
}
"""Why a space cannot be opened, however often a peer connects again."""


def ending_code(error: HeadwaterError) -> str:
    """The code of a problem that ends a connection: one of `LASTING`, if another connection would end like it."""
    return next((code for code, kind in LASTING.items() if isinstance(error, kind)), problem_code(error))


def lasting_error(problem: Problem) -> StorageError | None:
    """The error of a problem that connecting again does not mend. None: it is worth a try."""
    kind = LASTING.get(problem.code) if problem.fatal else None
    return None if kind is None else kind(problem.message)


def refused(frame: Frame, error: LimitError) -> tuple[Verdict, ...]:
    """Make a verdict of a frame over a limit: no retry helps, so its sender has to hear of it like of any rejection."""
    reason = RuleRefused("limit", str(error))
    return tuple(Rejected(commit.local_seq, reason) for commit in frame)
