"""Bounds of the scheduler. All of them, in one place, so that a test can shrink them."""

from __future__ import annotations

from dataclasses import dataclass, field

from headwater.backoff import Backoff, check_backoff


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerLimits:
    """How much, how often and how long."""

    pass_iterations: int = 10  # sweeps from low to high in one pass
    node_runs: int = 10  # of one node in one pass; whoever spends them is held back
    node_hops: int = 10  # from session to session, each time through a derived commit; what came further waits
    node_stops: int = 100_000  # attempts of a node that are stopped one after the other; then it fails
    slice_runs: int = 500  # attempts until the event loop gets its turn
    between_depth: int = 16  # attempts that wait where they are, each for the next one: Python's own stack waits
    between_slices: int = 4  # one attempt may take that was stopped: beginning it anew costs all that it has read
    input_us: int = 250_000  # a node that reads other spaces gives the inputs of a peer's result so long to arrive
    exhausted: Backoff = field(default_factory=lambda: Backoff.exponential(base_ms=250, max_ms=2_000))
    idle_exhaustions: int = 3  # how often a node may spend its runs before `idle` stops waiting for it
    transient_retries: int = 5  # runs that fail with a transient error, in a row
    transient: Backoff = field(default_factory=lambda: Backoff.exponential(base_ms=50, max_ms=5_000))
    auto_debounce_runs: int = 3  # an effect is slow if that many runs
    auto_debounce_average_us: int = 50_000  # take that long on average,
    auto_debounce_us: int = 100_000  # and then it is given this much quiet time
    trace_entries: int = 10_000  # kept for people; older ones are dropped
    causes_shown: int = 32  # steps of a chain that `why` follows

    def __post_init__(self) -> None:
        check_backoff("SchedulerLimits: exhausted", self.exhausted)
        check_backoff("SchedulerLimits: transient", self.transient)
