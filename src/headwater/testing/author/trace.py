"""The trace of an author's simulation: each step with its time, line by line.

Two runs of one seed are compared by the digest of their lines. The newest lines are kept, for the report of a failing
seed; no decision reads them.
"""

from __future__ import annotations

import hashlib
import zlib
from collections import deque
from typing import Final

from headwater.clock import VirtualClock
from headwater.protocol.messages import FromEngine, FromReplica, Problem, Sync, Transact, Verdicts, Watched
from headwater.protocol.verdict import Accepted, Verdict

KEPT: Final = 2_000


class Trace:
    """The steps of one world, in order."""

    __slots__ = ("_clock", "_digest", "is_over", "lines", "noted")

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._digest = hashlib.sha256()
        self.noted = 0
        self.is_over = False  # steps after the end of a test do not count
        self.lines: deque[str] = deque(maxlen=KEPT)

    def note(self, who: str, *what: object) -> None:
        if self.is_over:
            return
        line = f"{self._clock.monotonic_us() / 1e6:.6f} {who}: {' '.join(str(each) for each in what if each != '')}"
        self.noted += 1
        self._digest.update(line.encode("utf-8", "backslashreplace") + b"\n")
        self.lines.append(line)

    def said(self, who: str, whom: str, message: FromReplica | FromEngine, data: bytes) -> None:
        """A message leaves. Its values are not shown, but no two of them look the same."""
        self.note(who, "to", whom, _short(message), f"({zlib.crc32(data):08x})")

    @property
    def digest(self) -> str:
        """The same for two runs in which the same was said at the same times."""
        return self._digest.hexdigest()


def _short(message: FromReplica | FromEngine) -> str:
    """A message on one line, without values."""
    kind = type(message).__name__
    match message:
        case Transact():
            return (
                f"{kind} {', '.join(f'{each.local_seq} {each.provenance.node}'.rstrip() for each in message.commits)}"
            )
        case Verdicts():
            return f"{kind} {', '.join(_verdict(each) for each in message.verdicts)}"
        case Sync() | Watched():
            return f"{kind} to {message.seq}"
        case Problem():
            return f"{kind} {message.message}"
        case _:
            return kind


def _verdict(verdict: Verdict) -> str:
    return f"{verdict.local_seq} {f'is {verdict.seq}' if isinstance(verdict, Accepted) else 'rejected'}"
