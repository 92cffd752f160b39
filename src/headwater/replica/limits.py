"""The bounds of one replica and its session. The bounds of the engine that they talk to are in `engine.limits`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLimits:
    """Bounds on pending commits, on frames and on observations that wait to be sent."""

    pending: int = 4_096  # commits from which on writes outside any run are refused: as many as one read may stand on
    in_flight: int = 512  # commits on the wire without a verdict; an engine takes at least as many
    frame_commits: int = 512
    frame_bytes: int = 1 << 20  # of one frame of several commits, approximately
    wave_results: int = 4_096
    wave_bytes: int = 1 << 20  # of one wave of several results, approximately
    commit_bytes: int = 12 << 20  # of one commit, approximately: a server's limit for one message, with a margin
    watched_together: int = 64  # documents that are requested in one message
    loads: int = 256  # requests for documents without an answer; further ones wait
    queries: int = 256  # without an answer; further ones wait
    noted_runs: int = 512  # that changed nothing, from which on their observations are sent without waiting for a frame
    noted_waiting: int = 4_096  # such observations; beyond it the oldest are dropped


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerLimits:
    """Bounds on the bookkeeping of pending layers. They are fixed."""

    # ranges of layers that are kept apart; beyond it, the older ranges are joined where that is possible
    separate_spans: int = 32
    exact_spans: int = 8  # the newest ranges, which are never joined
    joined_numbers: int = 2_048  # in one joined range; an engine accepts a read that names 4,096 layers
    compared_patches: int = 16  # of a layer, that are compared with a read one by one; beyond it there is an index
    spare_places: int = 64  # beyond twice the number of layers, that may be left over from layers that are gone


DEFAULT_REPLICA_LIMITS: Final = ReplicaLimits()
LAYER_LIMITS: Final = LayerLimits()
