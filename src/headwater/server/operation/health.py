"""Whether a server can take work: the answer to `/readyz`.

Not ready are a server that starts or shuts down, and one whose disk has no room. A broken space of one user does not
make the server unready for all others; it is counted in the answer and in the metrics. Names of spaces are users' data
and are not in the answer.
"""

from __future__ import annotations

import os
from enum import Enum
from pathlib import Path

from headwater.clock import Clock
from headwater.server.operation.limits import ServerLimits
from headwater.server.operation.spaces import Spaces


class Phase(Enum):
    STARTING = "starting"
    SERVING = "serving"
    STOPPING = "shutting down"


class Health:
    """The health of one server."""

    __slots__ = ("_clock", "_directory", "_limits", "_since_us", "_spaces", "phase")

    def __init__(self, directory: str | Path, spaces: Spaces, clock: Clock, limits: ServerLimits) -> None:
        self._directory = Path(directory)
        self._spaces = spaces
        self._clock = clock
        self._limits = limits
        self._since_us = clock.monotonic_us()
        self.phase = Phase.SERVING

    def note_starting(self) -> None:
        """The application's start begins."""
        self.phase, self._since_us = Phase.STARTING, self._clock.monotonic_us()

    def note_started(self) -> None:
        if self.phase is Phase.STARTING:
            self.phase = Phase.SERVING

    def free_bytes(self) -> int:
        """Return the free bytes of the disk of the data; 0 if the directory is gone."""
        try:
            found = os.statvfs(self._directory)
        except OSError:
            return 0
        return found.f_bavail * found.f_frsize

    def report(self) -> tuple[bool, str]:
        """Return whether the server is ready, and the lines of the answer."""
        reasons = []
        if self.phase is Phase.STARTING:
            seconds = (self._clock.monotonic_us() - self._since_us) // 1_000_000
            reasons.append(f"starting for {seconds} s: the application's start has not returned")
        elif self.phase is Phase.STOPPING:
            reasons.append(Phase.STOPPING.value)
        free = self.free_bytes()
        # fault health.full_disk_unseen: if False:
        if free < self._limits.free_bytes:
            reasons.append(f"the disk is full: {free:,} bytes are free, and {self._limits.free_bytes:,} are wanted")
        lines = reasons or ["ok"]
        broken = self._spaces.count_broken()
        if broken:
            lines.append(f"spaces that stopped and were not opened again: {broken}")
        return not reasons, "".join(f"{line}\n" for line in lines)
