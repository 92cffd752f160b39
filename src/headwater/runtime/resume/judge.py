"""The judge of stored observations: whether a node has to run, and why.

One function with three callers: resume installs the nodes that need no run, a preview reports the reason for each node,
and a shadow run runs the nodes that need no run and compares. The caller looks up all that is compared; `judge` asks
nothing and changes nothing. A caller that keeps state for a node, such as its rows, and a caller that knows the writers
of its inputs, add the last two reasons. Upholds I7.
"""

from __future__ import annotations

from enum import Enum

from headwater.protocol.observations import About, Observed
from headwater.scheduler.run_reporter import standing_on


class Reason(Enum):
    """Why a node has to run. The values are the texts of counters and previews."""

    GENERATION = "another generation"
    OPAQUE = "its code has no fingerprint"
    UNCOMPARED = "its last run cannot be compared"
    UNDECLARED = "the defaults of the values that it read are not known"
    CODE = "its code has changed"
    DELAYS = "its debounce or throttle has changed"
    FAILED = "it failed"
    WRITTEN = "a value that it read was written"
    WRITTEN_THERE = "a value that it read in another space was written"
    NO_ANSWER = "another space did not say whether it was written"
    KEEPS = "its rows or its child cannot be restored"
    NO_WRITER = "the writer of a value that it read is not here"


def judge(said: About, implied: str | None, observed: Observed, foreign: Reason | None) -> Reason | None:
    """Return why a node has to run; None: its last run still holds.

    `said` describes the node as this program has it, `implied` the declarations behind its reads (None: not known
    here), `foreign` is the answer of the other spaces that it read.
    """
    if observed.node.generation > said.node.generation:
        return Reason.GENERATION
    if not said.fingerprint:
        return Reason.OPAQUE
    if not observed.fingerprint:
        return Reason.UNCOMPARED
    if implied is None:
        return foreign or Reason.UNDECLARED
    if (observed.fingerprint, observed.kind) != (standing_on(said.fingerprint, implied), said.kind):
        return Reason.CODE
    if observed.gate != said.gate:
        return Reason.DELAYS
    if observed.failed:
        return Reason.FAILED
    # fault resume.writes_ignored: if False:
    # fault materializers.never_dirty: if observed.stale and not said.kind.startswith("materializer"):
    if observed.stale:
        return Reason.WRITTEN
    return foreign
