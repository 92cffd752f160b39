"""The bounds of one replica and its session. The bounds of the engine that they talk to are in `engine.limits`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLimits:
    """Bounds on pending commits, on frames and on observations that wait to be sent."""

    pending: int = 4_096  # commits from which on writes outside any run are refused: as many as one read may stand on
    in_flight: int = 512  # commits on the wire without a verdict; an engine takes at least as many
    wave_commits: int = 512  # in one frame
    wave_bytes: int = 1 << 20  # of one frame of several commits, approximately
    commit_bytes: int = 12 << 20  # of one commit, approximately: a server's limit for one message, with a margin
    watched_together: int = 64  # documents that are requested in one message
    loads: int = 256  # requests for documents without an answer; further ones wait
    queries: int = 256  # without an answer; further ones wait
    noted_runs: int = 512  # that changed nothing, from which on their observations are sent without waiting for a frame
    noted_waiting: int = 4_096  # such observations; beyond it the oldest are dropped


DEFAULT_REPLICA_LIMITS: Final = ReplicaLimits()
