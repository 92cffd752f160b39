"""Time that keeps a node from running: one record for debounce, throttle and backoff. Read through `Gates`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Gate:
    """Everything about one node's time. All times are microseconds of the monotonic clock."""

    debounce_us: int = 0  # quiet time that its invalidations must leave
    throttle_us: int = 0  # from the start of one run to the next
    is_auto: bool = False  # the debounce was chosen because its runs are slow
    no_auto: bool = False  # its author said that no debounce may be chosen
    debounce_until: int = 0  # moves with every invalidation
    throttle_until: int = 0  # moves with every run
    backoff_until: int = 0  # moves when its runs do not come to an end
    input_until: int = 0  # a peer's result came, perhaps before what that was made of; ends when it is invalidated
    exhaustions: int = 0  # how often in a row it spent its runs
    is_held: bool = False  # it spent its runs and had none since
    is_forgiven: bool = False  # it came to an end since; `exhaustions` counts on unless something comes from outside
    is_far: bool = False  # what it is to run for came a long way over other sessions, and it has not paused for that
    goes_round: bool = False  # its last run was for such a thing: clean, it still may be on a cycle through others
    waits_for: int = 0  # what the wake timer knows it to wait for; 0: nothing
    spent_us: int = 0  # by its runs, for the automatic debounce
    timed_runs: int = 0

    @property
    def eligible_at(self) -> int:
        return max(self.debounce_until, self.throttle_until, self.backoff_until, self.input_until)
