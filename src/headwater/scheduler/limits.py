"""All bounds of the scheduler in one record, so that a test can shrink them."""

from __future__ import annotations

from dataclasses import dataclass, field

from headwater.backoff import Backoff, check_backoff


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerLimits:
    """Counts and times that bound passes, runs, retries and diagnostics."""

    pass_iterations: int = 10  # sweeps from low to high heights in one pass
    node_runs: int = 10  # runs of one node in one pass; a node that used all of them is held back
    # session-to-session hops, each through a derived commit; a node with a cause of more hops is held back
    node_hops: int = 10
    node_stops: int = 100_000  # stopped attempts of a node in a row; after that the node fails
    slice_runs: int = 500  # attempts before the event loop gets its turn
    nested_depth: int = 64  # nesting depth of `NestedRuns`, which uses the Python stack
    nested_unmeasured: int = 16  # nesting depth up to which the Python stack is not measured
    nested_frames: int = 300  # frames below Python's recursion limit that deeper nesting leaves to author functions
    nested_slices: int = 4  # slices that the nested runs of one attempt may fill: a restart repeats all of its reads
    input_us: int = 250_000  # time that a node with reads in other spaces gives the inputs of a peer's result to arrive
    exhausted: Backoff = field(default_factory=lambda: Backoff.exponential(base_ms=250, max_ms=2_000))
    idle_exhaustions: int = 3  # exhaustions of a node after which `idle` does not wait for the node any more
    transient_retries: int = 5  # runs in a row that fail with a transient error
    transient: Backoff = field(default_factory=lambda: Backoff.exponential(base_ms=50, max_ms=5_000))
    auto_debounce_runs: int = 3  # an effect is slow if at least this many runs
    auto_debounce_average_us: int = 50_000  # take this long on average;
    auto_debounce_us: int = 100_000  # the scheduler then gives the effect this debounce
    trace_entries: int = 10_000  # trace events kept for people; older ones are dropped
    counted_attempts: int = 64  # counted at once: nested ones, and some whose end was never reported
    searched_reads: int = 64  # first reads of a node that are searched for a cause; others are reported by address
    # Clocks of runtimes differ. A node whose clock is behind answers a peer once; it keeps the peer's next answer until
    # its own clock has caught up.
    answered_hops: int = 1  # most hops of a changed result for which a node that reads the time runs again
    timed_runs: int = 8  # first runs of an effect, each of which is timed;
    timed_every: int = 16  # later, one of so many: reading the clock costs more than a small effect does
    timed_us: int = 1_000  # a shorter run of an effect without a gate is not noted
    causes_shown: int = 32  # steps of a chain of causes that `why` follows

    def __post_init__(self) -> None:
        check_backoff("SchedulerLimits: exhausted", self.exhausted)
        check_backoff("SchedulerLimits: transient", self.transient)
