"""Problems: the word by which a peer's program knows what went wrong. The message beside it is for people."""

from __future__ import annotations

from typing import Final

from headwater.errors import AbsentError, AccessError, HeadwaterError, LimitError, StorageError

CODES: Final = {LimitError: "limit", AbsentError: "absent", StorageError: "storage", AccessError: "access"}


def problem_code(error: HeadwaterError) -> str:
    """What a peer's program can act on."""
    return next((code for kind, code in CODES.items() if isinstance(error, kind)), "protocol")
