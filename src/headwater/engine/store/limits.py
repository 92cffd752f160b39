"""The bounds of the files of a space. They are fixed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLimits:
    """Bounds on the write-ahead log of one file."""

    # pages in the write-ahead log before they are moved into the file: 16 MiB, since each move costs two syncs
    checkpoint_pages: int = 4_096
    # bytes that a log may grow to by itself: a space that is hardly used is not made larger
    plain_log_bytes: int = 256 * 1024


STORE_LIMITS: Final = StoreLimits()
