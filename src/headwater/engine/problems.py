"""Problems: the word by which a peer's program knows what went wrong. The message beside it is for people.

And the one problem that is a verdict. Never decides what becomes of a connection.
"""

from __future__ import annotations

from typing import Final

from headwater.errors import AbsentError, AccessError, HeadwaterError, LimitError, StorageError
from headwater.protocol.commit import Frame
from headwater.protocol.verdict import Rejected, RuleRefused, Verdict

CODES: Final = {LimitError: "limit", AbsentError: "absent", StorageError: "storage", AccessError: "access"}


def problem_code(error: HeadwaterError) -> str:
    """What a peer's program can act on."""
    return next((code for kind, code in CODES.items() if isinstance(error, kind)), "protocol")


def refused(frame: Frame, error: LimitError) -> tuple[Verdict, ...]:
    """No retry helps a frame over a limit, so that is a verdict like any other: whoever made it hears of it."""
    reason = RuleRefused("limit", str(error))
    return tuple(Rejected(commit.local_seq, reason) for commit in frame)
